//! A chat server: lines of one connection are delivered to others, whichever block serves them.

mod modes;

use gpunet_proxy::device::{Group, Options, Result};
use gpunet_proxy::{Config, embed};
use gpunet_serve::{Bytes, Carve, Heap, Line, Map, Next, Service, Shared, Topics, Turn};
use gpunet_serve_host::{Running, ServerSettings, start};
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Rooms, each a topic.
const ROOMS: u32 = 4;
/// Lines of a room that are kept for readers that are behind.
const KEPT: u64 = 256;
/// The longest line.
const LONGEST: usize = 60;

#[derive(Clone, Copy)]
#[repr(C)]
struct Chat {
    memory: u64,
}

/// Where a connection is: its number, its room, and the lines of it that it has seen.
#[derive(Clone, Copy, Default)]
struct Place {
    id: u64,
    room: u32,
    seen: u64,
}

#[derive(Clone, Copy)]
struct Rooms {
    /// Lines by room and number: `number sender text`.
    lines: Map,
    /// How many lines each room has had.
    heads: [Shared<1>; ROOMS as usize],
    ids: Shared<1>,
    listeners: Topics,
}

impl Rooms {
    /// How many lines a room has had. Not by an index, whose panic would format a number: that is
    /// much code on a GPU.
    fn head(&self, room: u32) -> Shared<1> {
        self.heads.get(room as usize).copied().unwrap_or(self.heads[0])
    }

    fn key(room: u32, number: u64) -> Line {
        Line::new().number(room.into()).text(b":").number((number % KEPT) as i64)
    }
}

impl Service for Chat {
    const ENTRY: &'static str = "chat";
    type State = Place;
    type Shared = Rooms;

    fn shared(&self, carve: &mut Carve) -> Rooms {
        let heap = Heap::new(carve, self.memory as usize);
        let lines = Map::new(carve, heap, 1024).without_eviction();
        let heads = [(); ROOMS as usize].map(|()| Shared::new(carve));
        Rooms { lines, heads, ids: Shared::new(carve), listeners: Topics::new(carve, ROOMS) }
    }

    fn serve<G: Group>(&mut self, g: &G, turn: &mut Turn<'_, Self>) -> Result<Next> {
        if !deliver(g, turn)? {
            return Ok(Next::Output);
        }
        loop {
            match turn.input.line(LONGEST) {
                Ok(Some(line)) if line.first(5) == b"JOIN " => join(g, turn, line.skip(5))?,
                Ok(Some(line)) => say(g, turn, line)?,
                Ok(None) if turn.input.has_ended() => return Ok(Next::Close),
                Ok(None) => return Ok(Next::Input),
                Err(_) => return Ok(Next::Close),
            }
        }
    }
}

/// Puts what others have said into the output. Returns whether there was room for all.
fn deliver<G: Group>(g: &G, turn: &mut Turn<'_, Chat>) -> Result<bool> {
    if turn.state.id == 0 {
        return Ok(true);
    }
    let (rooms, context) = (turn.shared, turn.context);
    let [head] = rooms.head(turn.state.room).peek(g);
    while turn.state.seen < head {
        if !turn.output.make_room(g, LONGEST + 1)? {
            return Ok(false);
        }
        let (number, key) = (turn.state.seen, Rooms::key(turn.state.room, turn.state.seen));
        let line = rooms.lines.lock(g, &context, key.bytes().into())?;
        let value = line.value().unwrap_or(Bytes::EMPTY);
        let first = value.find(b' ', 0).unwrap_or(0);
        match value.first(first).number() {
            Some(found) if found == number as i64 => {}
            Some(found) if found > number as i64 => {
                // This reader is so far behind that the line is gone.
                turn.state.seen += 1;
                continue;
            }
            // Its sender has taken the number and not stored the line yet. There will be a
            // notification.
            _ => return Ok(true),
        }
        let rest = value.skip(first + 1);
        let second = rest.find(b' ', 0).unwrap_or(0);
        if rest.first(second).number() != Some(turn.state.id as i64) {
            turn.output.put(g, rest.skip(second + 1));
            turn.output.put(g, b"\n");
        }
        line.unlock()?;
        turn.state.seen += 1;
    }
    Ok(true)
}

fn join<G: Group>(g: &G, turn: &mut Turn<'_, Chat>, room: Bytes<'_>) -> Result<()> {
    let Some(room) = room.number().filter(|room| (0..i64::from(ROOMS)).contains(room)) else {
        turn.output.put(g, b"no such room\n");
        return Ok(());
    };
    let (rooms, context) = (turn.shared, turn.context);
    let [id] = rooms.ids.update(g, &context, |[ids]| [ids + 1])?;
    let bell = turn.bell();
    rooms.listeners.unsubscribe(g, turn.state.room, bell);
    rooms.listeners.subscribe(g, room as u32, bell);
    // From here on, each line rings.
    let [seen] = rooms.head(room as u32).peek(g);
    *turn.state = Place { id, room: room as u32, seen };
    turn.output.put(g, b"joined\n");
    Ok(())
}

fn say<G: Group>(g: &G, turn: &mut Turn<'_, Chat>, text: Bytes<'_>) -> Result<()> {
    let Place { id, room, .. } = *turn.state;
    if id == 0 {
        turn.output.put(g, b"join a room first\n");
        return Ok(());
    }
    let (rooms, context) = (turn.shared, turn.context);
    let [after] = rooms.head(room).update(g, &context, |[head]| [head + 1])?;
    let number = after - 1;
    let line = Line::new().number(number as i64).text(b" ").number(id as i64).text(b" ").bytes_of(text);
    let key = Rooms::key(room, number);
    let fresh = rooms.lines.fresh(g, &context, key.bytes().into(), line.bytes(), 128)?;
    let mut entry = rooms.lines.lock(g, &context, key.bytes().into())?;
    fresh.into_iter().for_each(|fresh| entry.put(fresh));
    entry.unlock()?;
    rooms.listeners.notify(g, turn.bells, room);
    Ok(())
}

/// The attachment ends the launch when it is dropped.
fn serve(blocks: u32, threads: u32) -> (gpunet_proxy::Proxy, gpunet_proxy::Attachment, Running) {
    let proxy = embed(Config::small()).unwrap();
    let attachment = proxy.attach_cpu().unwrap();
    let program = attachment.load("", threads).unwrap();
    // Silent subscribers lose nothing by it: none of their answers waits.
    let settings = ServerSettings { stall_ns: 200_000_000, ..ServerSettings::DEFAULT };
    let (addr, chat) = ("127.0.0.1:0".parse().unwrap(), Chat { memory: 8 << 20 });
    let options = Options::DEFAULT.with_rings(16 << 10, 16 << 10);
    let running = start(&attachment, &program, (blocks, threads), addr, options, settings, chat).unwrap();
    (proxy, attachment, running)
}

struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    fn join(addr: SocketAddr, room: u32) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut client = Self { reader: BufReader::new(stream) };
        client.say(&format!("JOIN {room}"));
        assert_eq!(client.hear(), "joined");
        client
    }

    fn say(&mut self, line: &str) {
        self.reader.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line comes");
        line.trim_end().into()
    }
}

#[test]
fn each_line_reaches_each_other_member_of_the_room_once() {
    const MEMBERS: usize = 4;
    const LINES: usize = 50;
    modes::in_both_ways(|_| {
        for (blocks, threads) in [(1, 1), (2, 3)] {
            let (_proxy, _attachment, mut running) = serve(blocks, threads);
            let addr = running.addr();
            let clients: Vec<_> =
                (0..2).flat_map(|room| (0..MEMBERS).map(move |_| (room, Client::join(addr, room)))).collect();
            std::thread::scope(|scope| {
                for (number, (room, mut client)) in clients.into_iter().enumerate() {
                    scope.spawn(move || {
                        let mut next = [0; 2 * MEMBERS];
                        for line in 0..LINES {
                            client.say(&format!("{room} {number} {line}"));
                        }
                        for _ in 0..(MEMBERS - 1) * LINES {
                            let heard = client.hear();
                            let words: Vec<usize> =
                                heard.split(' ').map(|word| word.parse().expect(&heard)).collect();
                            let [from_room, from, line] = words[..] else { panic!("{heard}") };
                            assert!(from_room == room as usize && from != number, "{heard}");
                            assert_eq!(line, core::mem::replace(&mut next[from], line + 1), "{heard}");
                        }
                    });
                }
            });
            assert_eq!(running.log(), []);
            running.stop().unwrap();
        }
    });
}

#[test]
fn a_silent_member_stays_and_the_end_of_one_is_seen() {
    modes::in_both_ways(|_| {
        let (_proxy, _attachment, running) = serve(1, 1);
        let (mut silent, mut other) = (Client::join(running.addr(), 2), Client::join(running.addr(), 2));
        // Longer than a peer may leave its answers unread.
        std::thread::sleep(Duration::from_millis(500));
        other.say("still there?");
        assert_eq!(silent.hear(), "still there?");
        other.reader.get_ref().shutdown(Shutdown::Write).unwrap();
        assert_eq!(other.hear(), "", "the server closes it");
        let counters: u64 = running.stop().unwrap().iter().map(|block| block.limited).sum();
        assert_eq!(counters, 0);
    });
}
