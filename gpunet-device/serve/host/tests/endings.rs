//! How connections end: by a half-close behind more bytes than a round shows, with an answer that
//! is not complete, and by a reset.

use gpunet_proxy::device::{Group, Options, Result};
use gpunet_proxy::{Attachment, Config, Proxy, embed};
use gpunet_serve::{Carve, Next, Service, Shared, Topics, Turn};
use gpunet_serve_host::{Running, ServerSettings, start};
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a condition may take: far longer than it does.
const SOON: Duration = Duration::from_secs(30);

/// One block that serves, and what it needs.
struct Server {
    running: Running,
    // Dropped last, in this order.
    _attachment: Attachment,
    proxy: Proxy,
}

impl Server {
    /// Starts one block, with rings of that size.
    fn start<S: Service>(service: S, ring: u64, settings: ServerSettings) -> Self {
        let proxy = embed(Config::small()).unwrap();
        let attachment = proxy.attach_cpu().unwrap();
        let program = attachment.load("", 1).unwrap();
        let options = Options::DEFAULT.with_rings(ring, ring);
        let addr = "127.0.0.1:0".parse().unwrap();
        let running = start(&attachment, &program, (1, 1), addr, options, settings, service).unwrap();
        Self { running, _attachment: attachment, proxy }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.running.addr()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    /// Waits until so many bytes are in the receive ring of its only stream, and not consumed.
    fn await_landed(&self, bytes: u64) {
        wait_until("the bytes land", || {
            let snapshot = self.proxy.snapshot().unwrap();
            snapshot.sockets.iter().any(|socket| socket.peer.is_some() && socket.recv_queue >= bytes)
        });
    }

    /// Waits until no connection is open.
    fn await_no_connection(&self) {
        wait_until("the connection ends", || {
            let counters = self.running.counters();
            counters.iter().all(|block| block.accepted > 0 && block.open == 0)
        });
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < SOON, "in {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the connection by a reset.
fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// A place in a turn where the service, which runs on a thread of this process, waits for the test.
struct Gate {
    reached: Sender<()>,
    goes_on: Receiver<()>,
}

/// For the next turn of [`Counting`].
static GATE: Mutex<Option<Gate>> = Mutex::new(None);

/// Takes a few bytes first and then what it is shown, and says how many bytes there were when the
/// stream has ended.
#[derive(Clone, Copy)]
#[repr(C)]
struct Counting {
    first: u64,
}

impl Service for Counting {
    const ENTRY: &'static str = "counting";
    type State = u64;
    type Shared = ();

    fn shared(&self, _: &mut Carve) {}

    fn serve<G: Group>(&mut self, g: &G, turn: &mut Turn<'_, Self>) -> Result<Next> {
        if let Some(gate) = GATE.lock().unwrap_or_else(PoisonError::into_inner).take() {
            gate.reached.send(()).unwrap();
            gate.goes_on.recv_timeout(SOON).unwrap();
        }
        let before = turn.input.used();
        turn.input.consume(if *turn.state == 0 { self.first as usize } else { usize::MAX });
        *turn.state += (turn.input.used() - before) as u64;
        if turn.input.is_empty() && turn.input.has_ended() {
            turn.output.put_number(g, *turn.state as i64);
            return Ok(Next::Close);
        }
        Ok(Next::Again)
    }
}

#[test]
fn bytes_behind_those_that_a_round_shows_are_served_before_the_end() {
    const FIRST: usize = 20_000;
    const THEN: usize = 300_000;
    let server = Server::start(Counting { first: 15_000 }, 512 << 10, ServerSettings::DEFAULT);
    let ((reached, has_reached), (go_on, goes_on)) = (channel(), channel());
    let mut client = server.connect();
    *GATE.lock().unwrap() = Some(Gate { reached, goes_on });
    client.write_all(&[1; FIRST]).unwrap();
    has_reached.recv_timeout(SOON).unwrap();
    // The service is in a round that leaves some bytes, so that the next one looks for more and
    // shows a part of them.
    client.write_all(&[2; THEN]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    server.await_landed((FIRST + THEN) as u64);
    go_on.send(()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, (FIRST + THEN).to_string());
    server.running.stop().unwrap();
}

/// A line begins an answer of words, one for each notification: `TALK` is told by another
/// connection's `GO`, `SPIN` goes on whenever there is room.
#[derive(Clone, Copy)]
#[repr(C)]
struct Talker {
    words: u64,
}

#[derive(Clone, Copy, Default)]
struct Answer {
    listens: bool,
    spins: bool,
    said: u64,
}

impl Service for Talker {
    const ENTRY: &'static str = "talker";
    type State = Answer;
    type Shared = (Shared<1>, Topics);

    fn shared(&self, carve: &mut Carve) -> Self::Shared {
        (Shared::new(carve), Topics::new(carve, 1))
    }

    fn serve<G: Group>(&mut self, g: &G, turn: &mut Turn<'_, Self>) -> Result<Next> {
        let (words, listeners) = turn.shared;
        while let Ok(Some(line)) = turn.input.line(9) {
            if line == b"TALK" {
                turn.output.put(g, b"yes ");
                turn.state.listens = true;
                listeners.subscribe(g, 0, turn.bell());
            } else if line == b"GO" {
                words.update(g, &turn.context, |[said]| [said + 1])?;
                listeners.notify(g, turn.bells, 0);
            } else if line == b"SPIN" {
                turn.state.spins = true;
            }
        }
        if turn.state.spins {
            turn.output.put(g, b"and on ");
            return Ok(Next::Output);
        }
        if turn.state.listens {
            let [said] = words.peek(g);
            while turn.state.said < said && turn.output.put(g, b"word ") {
                turn.state.said += 1;
            }
            if turn.state.said == self.words {
                return Ok(Next::Close);
            }
            if turn.input.has_ended() {
                return Ok(Next::Bell);
            }
        }
        Ok(Next::Input)
    }
}

fn talker() -> Server {
    Server::start(Talker { words: 3 }, 64 << 10, ServerSettings { request_ns: 0, ..ServerSettings::DEFAULT })
}

#[test]
fn an_answer_of_a_subscriber_that_has_sent_everything_is_completed() {
    let server = talker();
    let (mut listener, mut other) = (server.connect(), server.connect());
    // Also with something left that is no request.
    listener.write_all(b"TALK\nrest").unwrap();
    listener.shutdown(Shutdown::Write).unwrap();
    let mut yes = [0; 4];
    listener.read_exact(&mut yes).unwrap();
    for _ in 0..3 {
        let mut word = [0; 5];
        other.write_all(b"GO\n").unwrap();
        listener.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"word ");
    }
    assert_eq!(listener.read(&mut [0]).unwrap(), 0, "the service has closed it");
    drop(other);
    server.await_no_connection();
    server.running.stop().unwrap();
}

#[test]
fn a_connection_whose_service_waits_for_input_alone_ends_with_its_stream() {
    let server = talker();
    let mut client = server.connect();
    client.write_all(b"half a requ").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    server.await_no_connection();
    server.running.stop().unwrap();
}

#[test]
fn a_reset_ends_a_connection_whatever_its_service_waits_for() {
    let server = talker();
    type Case = (&'static str, &'static [u8], &'static [u8], bool);
    let cases: [Case; 6] = [
        ("input", b"", b"", false),
        ("the rest of a request", b"half", b"", false),
        ("a topic", b"TALK\n", b"yes ", false),
        ("a topic, after the end", b"TALK\n", b"yes ", true),
        ("room", b"SPIN\n", b"and on ", false),
        ("room, with input that it does not take", b"SPIN\nTHIS IS A LONG LINE", b"and on ", false),
    ];
    for (what, says, hears, half_closes) in cases {
        let mut client = server.connect();
        client.write_all(says).unwrap();
        if half_closes {
            client.shutdown(Shutdown::Write).unwrap();
        }
        let mut heard = vec![0; hears.len()];
        client.read_exact(&mut heard).unwrap();
        assert_eq!(heard, hears, "{what}");
        if hears.is_empty() {
            server.await_landed(says.len() as u64);
        }
        let before: u64 = server.running.counters().iter().map(|block| block.failed).sum();
        reset(client);
        wait_until(what, || {
            let counters = server.running.counters();
            counters.iter().map(|block| block.failed).sum::<u64>() > before
        });
    }
    server.await_no_connection();
    server.running.stop().unwrap();
}
