//! When a connection has its turn: at a time, when its bell is rung by another block, by a worker,
//! by another kernel or by the host, and at no other moment.

mod modes;

use gpunet_proxy::device::{Group, Kernel, Options, Result};
use gpunet_proxy::{Attachment, Config, FinishPolicy, Proxy, embed};
use gpunet_serve::{Bell, Bells, Carve, Next, Service, Shared, Turn, Worker};
use gpunet_serve_host::{Error, Running, ServerSettings, start};
use socket2::SockRef;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a condition may take: far longer than it does.
const SOON: Duration = Duration::from_secs(30);

/// Says what its turns are for. A line begins a wait.
#[derive(Clone, Copy)]
#[repr(C)]
struct Turns {
    workers: u64,
}

#[derive(Clone, Copy, Default)]
enum Waits {
    #[default]
    Input,
    /// For this time; so many more follow, each so long after the one before.
    At {
        time: u64,
        every: u64,
        left: u64,
    },
    Bell,
    /// For its bell or input.
    Both,
}

#[derive(Clone, Copy, Default)]
struct Session {
    waits: Waits,
    /// How often it was rung for, as far as it has said.
    heard: u64,
}

/// What was said to whoever is rung for, and the last bell that was given away.
type Said = Shared<2>;

/// What a worker of this process shows the test.
static BELLS: Mutex<Option<Bells>> = Mutex::new(None);

impl Service for Turns {
    const ENTRY: &'static str = "turns";
    type State = Session;
    type Shared = Said;

    fn shared(&self, carve: &mut Carve) -> Said {
        Shared::new(carve)
    }

    fn workers(&self) -> u32 {
        self.workers as u32
    }

    fn serve<G: Group>(&mut self, g: &G, turn: &mut Turn<'_, Self>) -> Result<Next> {
        let now = turn.context.now;
        match turn.state.waits {
            Waits::At { time, every, left } if now >= time => {
                turn.output.put(g, b"time\n");
                turn.state.waits = match left {
                    0 => Waits::Input,
                    left => Waits::At { time: time + every, every, left: left - 1 },
                };
            }
            Waits::Bell | Waits::Both => {
                let [said, _] = turn.shared.peek(g);
                if turn.state.heard < said {
                    turn.state.heard = said;
                    turn.output.put(g, b"rung\n");
                    turn.state.waits = Waits::Input;
                } else {
                    turn.counters.own[3] += 1;
                }
            }
            _ => {}
        }
        if !matches!(turn.state.waits, Waits::Bell) {
            while let Ok(Some(line)) = turn.input.line(40) {
                let number = line.skip(5).number().unwrap_or(0) as u64;
                if line.first(4) == b"EACH" {
                    let every = number * 1_000_000;
                    turn.state.waits = Waits::At { time: now + every, every, left: 2 };
                } else if line == b"BELL" || line == b"BOTH" {
                    let bell = turn.bell();
                    let [said, _] = turn.shared.update(g, &turn.context, |[said, _]| [said, bell.raw()])?;
                    turn.state.heard = said;
                    turn.state.waits = if line == b"BELL" { Waits::Bell } else { Waits::Both };
                    turn.output.put(g, b"waits\n");
                    turn.counters.own[0] = bell.raw();
                    if line == b"BELL" {
                        break;
                    }
                } else if line == b"RING" {
                    let [_, raw] = turn.shared.update(g, &turn.context, |[said, bell]| [said + 1, bell])?;
                    turn.bells.ring(g, Bell::from_raw(raw));
                    turn.output.put(g, b"ok\n");
                } else if line == b"WORK" {
                    turn.bells.ring_workers(g);
                    turn.output.put(g, b"ok\n");
                } else {
                    turn.output.put(g, line);
                    turn.output.put(g, b"\n");
                }
            }
        }
        Ok(match turn.state.waits {
            Waits::At { time, .. } => Next::At(time),
            Waits::Bell => Next::Bell,
            Waits::Both if turn.input.has_ended() => Next::Bell,
            Waits::Input | Waits::Both => Next::Input,
        })
    }

    fn work<G: Group>(&mut self, g: &G, worker: &mut Worker<'_, Self>) -> Result<()> {
        if g.is_leader() {
            *BELLS.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker.bells);
        }
        while worker.wait(g, u64::MAX)? {
            worker.counters.own[1] += 1;
            let [_, raw] = worker.shared.update(g, &worker.context, |[said, bell]| [said + 1, bell])?;
            worker.bells.ring(g, Bell::from_raw(raw));
        }
        worker.counters.own[2] = 1;
        Ok(())
    }
}

struct Server {
    running: Running,
    // Dropped last, in this order.
    attachment: Attachment,
    _proxy: Proxy,
}

impl Server {
    fn start(blocks: u32, workers: u64) -> Self {
        let proxy = embed(Config::small()).unwrap();
        let attachment = proxy.attach_cpu().unwrap();
        let program = attachment.load("", 1).unwrap();
        let options = Options::DEFAULT.with_rings(16 << 10, 16 << 10);
        let (addr, settings) = ("127.0.0.1:0".parse().unwrap(), ServerSettings::DEFAULT);
        let service = Turns { workers };
        let running = start(&attachment, &program, (blocks, 1), addr, options, settings, service).unwrap();
        Self { running, attachment, _proxy: proxy }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(self.running.addr()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Client { reader: BufReader::new(stream) }
    }

    /// Turns of connections that waited for a bell, for which nothing was said.
    fn in_vain(&self) -> u64 {
        self.counted(|block| block.own[3])
    }

    /// The sum of a counter of all blocks.
    fn counted(&self, what: impl Fn(&gpunet_serve_host::Counters) -> u64) -> u64 {
        self.running.counters().iter().map(what).sum()
    }
}

struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    fn say(&mut self, line: &str) {
        self.reader.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line comes");
        line.trim_end().into()
    }

    fn asks(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    fn reset(self) {
        SockRef::from(self.reader.get_ref()).set_linger(Some(Duration::ZERO)).unwrap();
    }

    fn half_close(&self) {
        self.reader.get_ref().shutdown(Shutdown::Write).unwrap();
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < SOON, "in {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn connections_have_turns_at_their_times_and_meanwhile_for_input() {
    modes::in_both_ways(|_| {
        let server = Server::start(1, 0);
        let mut clients: Vec<_> = [5, 20, 40].into_iter().map(|every| (every, server.client())).collect();
        let started = Instant::now();
        for (every, client) in &mut clients {
            client.say(&format!("EACH {every}"));
            assert_eq!(client.asks("hello"), "hello", "a time is waited for, and input");
        }
        // Who has sent everything gets its turns, too.
        clients[1].1.half_close();
        for (every, client) in &mut clients {
            for _ in 0..3 {
                assert_eq!(client.hear(), "time");
            }
            assert!(started.elapsed() >= Duration::from_millis(3 * *every), "not too early");
        }
        assert_eq!(clients[1].1.hear(), "", "nothing more comes of it, and nothing is waited for");
        assert_eq!(clients[0].1.asks("and input again"), "and input again");
        // A block that waits for times does not look again and again.
        let turns = server.counted(|block| block.turns);
        assert!(turns <= 40, "{turns} turns");
        server.running.stop().unwrap();
    });
}

#[test]
fn a_bell_is_heard_from_another_block_a_worker_another_kernel_and_the_host() {
    modes::in_both_ways(|_| {
        // Two blocks that serve, so that whoever rings is another one now and then.
        let server = Server::start(3, 1);
        let ringer = server.running.ringer();
        let mut ringers: Vec<_> = (0..4).map(|_| server.client()).collect();
        for ring in &mut ringers {
            for waits in ["BELL", "BOTH"] {
                let mut client = server.client();
                assert_eq!(client.asks(waits), "waits");
                assert_eq!(ring.asks("RING"), "ok");
                assert_eq!(client.hear(), "rung");
                assert_eq!(client.asks(waits), "waits");
                assert_eq!(ring.asks("WORK"), "ok");
                assert_eq!(client.hear(), "rung");
            }
        }
        // The host rings workers, who ring the last bell that was given away.
        let mut client = server.client();
        for _ in 0..5 {
            assert_eq!(client.asks("BELL"), "waits");
            ringer.ring_workers();
            assert_eq!(client.hear(), "rung");
        }
        server.running.stop().unwrap();
    });
}

#[test]
fn the_host_rings_a_bell_that_was_given_to_it() {
    modes::in_both_ways(|_| {
        let server = Server::start(1, 0);
        let ringer = server.running.ringer();
        let (mut client, mut other) = (server.client(), server.client());
        assert_eq!(client.asks("BELL"), "waits");
        let bell = || Bell::from_raw(server.counted(|block| block.own[0]));
        wait_until("the bell is given away", || bell().raw() != 0);
        let given = bell();
        // It looks, and nothing was said yet.
        ringer.ring(given);
        assert_eq!(other.asks("RING"), "ok");
        assert_eq!(client.hear(), "rung");
        // Any thread rings, as a task of tokio would.
        assert_eq!(client.asks("BOTH"), "waits");
        let before = server.in_vain();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| ringer.ring(given));
            }
        });
        wait_until("a turn for it", || server.in_vain() > before);
        // Bells of no connection do nothing, and neither do those of one that has ended.
        let hostile =
            [0, 1, u64::MAX, 0xffff_ffff, given.raw() ^ 1 << 32, given.raw() + 1, 255, 256, 1 << 63];
        hostile.into_iter().for_each(|raw| ringer.ring(Bell::from_raw(raw)));
        client.reset();
        wait_until("it ends", || server.counted(|block| block.open) == 1);
        let mut next = server.client();
        assert_eq!(next.asks("BELL"), "waits");
        wait_until("another bell is given away", || bell() != given);
        assert_eq!(bell().place(), given.place(), "in the same place");
        let in_vain = server.in_vain();
        (0..100).for_each(|_| ringer.ring(given));
        // Each answer comes after what was done before was counted.
        (0..3).for_each(|_| assert_eq!(other.asks("hello"), "hello"));
        assert_eq!(server.in_vain(), in_vain);
        assert_eq!(other.asks("RING"), "ok");
        assert_eq!(next.hear(), "rung");
        server.running.stop().unwrap();
        ringer.ring(given);
    });
}

#[test]
fn who_waits_for_a_bell_alone_outlives_a_half_close_and_hears_of_it() {
    modes::in_both_ways(|_| {
        let server = Server::start(1, 0);
        let mut other = server.client();
        let mut client = server.client();
        assert_eq!(client.asks("BELL"), "waits");
        // Input, and the end: both stay where they are.
        client.say("said meanwhile");
        client.half_close();
        // Each answer comes after what was done before was counted.
        (0..3).for_each(|_| assert_eq!(other.asks("hello"), "hello"));
        assert_eq!(server.in_vain(), 0);
        assert_eq!(other.asks("RING"), "ok");
        assert_eq!((client.hear(), client.hear()), ("rung".into(), "said meanwhile".into()));
        assert_eq!(client.hear(), "", "and then it has ended");
        server.running.stop().unwrap();
    });
}

#[test]
fn a_reset_is_reported_at_once_to_who_waits_for_a_bell_or_a_time() {
    modes::in_both_ways(|_| {
        let server = Server::start(1, 0);
        for (waits, hears) in [("BELL", Some("waits")), ("BOTH", Some("waits")), ("EACH 1000000", None)] {
            for half_closes in [false, true] {
                let mut client = server.client();
                client.say(waits);
                hears.into_iter().for_each(|hears| assert_eq!(client.hear(), hears));
                wait_until("it is there", || server.counted(|block| block.open) == 1);
                if half_closes {
                    client.half_close();
                }
                let failed = server.counted(|block| block.failed);
                client.reset();
                wait_until("the reset", || server.counted(|block| block.failed) > failed);
                wait_until("the end", || server.counted(|block| block.open) == 0);
            }
        }
        server.running.stop().unwrap();
    });
}

/// Another kernel of the same device, which was given a server's bells.
#[derive(Clone, Copy)]
struct Rings {
    bells: Bells,
    bell: Bell,
}

impl Kernel for Rings {
    const ENTRY: &'static str = "rings";

    fn run<G: Group>(self, g: &G) {
        self.bells.ring_each(g, 2, |at| (at == 1).then_some(self.bell));
    }
}

#[test]
fn another_kernel_rings() {
    modes::in_both_ways(|_| {
        *BELLS.lock().unwrap() = None;
        let server = Server::start(2, 1);
        let program = server.attachment.load("", 1).unwrap();
        let mut client = server.client();
        assert_eq!(client.asks("BOTH"), "waits");
        wait_until("the bell is given away", || server.counted(|block| block.own[0]) != 0);
        let bell = Bell::from_raw(server.counted(|block| block.own[0]));
        wait_until("the worker runs", || BELLS.lock().unwrap().is_some());
        let bells = BELLS.lock().unwrap().unwrap();
        let before = server.in_vain();
        // SAFETY: the server, whose memory the bells name, runs until the kernel has ended.
        let launch = unsafe { server.attachment.launch(&program, 1, 1, |_| Rings { bells, bell }) }.unwrap();
        assert!(launch.wait_timeout(SOON).unwrap());
        launch.finish(FinishPolicy::Close).unwrap();
        wait_until("a turn", || server.in_vain() > before);
        server.running.stop().unwrap();
    });
}

#[test]
fn workers_end_with_the_server_and_need_a_block_beside_them() {
    modes::in_both_ways(|_| {
        let server = Server::start(2, 1);
        let counters = server.running.stop().unwrap();
        assert_eq!((counters[0].own[2], counters[1].own[2]), (0, 1), "the last block is the worker");
        let (addr, options) = ("127.0.0.1:0".parse().unwrap(), Options::DEFAULT);
        let program = server.attachment.load("", 1).unwrap();
        let service = Turns { workers: 2 };
        let refused =
            start(&server.attachment, &program, (2, 1), addr, options, ServerSettings::DEFAULT, service);
        assert!(matches!(refused, Err(Error::Workers { blocks: 2, workers: 2 })), "{refused:?}");
    });
}
