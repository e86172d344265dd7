//! A server with several blocks. They poll, and take turns. Some of them die.

use crate::support::client::std_addr;
use crate::support::rng::Rng;
use crate::support::world::listen;
use crate::support::{Memory, PollMemory, SOLO, World, pattern, small};
use gpunet_device::abi::hand_off::{HandOff, Plan};
use gpunet_device::poll::{self, POLLIN, POLLOUT};
use gpunet_device::{Error, Listener, Net, Options, Stream, Timeout, TransportKind};
use gpunet_proxy::Config;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Threads of that name stop for good.
const MORTAL: &str = "mortal";
const MORTALS: usize = 3;
const SERVERS: usize = 3;
const CLIENTS: usize = 4;
/// Connections of each client.
const ROUNDS: u64 = 4;
/// A dead block's connections get no answer: a client tries again after so long.
const SILENCE: Duration = Duration::from_secs(1);

/// Blocks poll as a GPU's do: one of them relays the epoch, and those that find one connection take
/// turns. By one seed those that die have a turn or are about to relay, by the next one they are
/// anywhere.
pub fn plan(plan: Plan) -> Plan {
    let (chance, deadly) = match plan.seed % 2 {
        0 => (50_000, vec![HandOff::TurnTaken, HandOff::EpochRead]),
        _ => (200, Vec::new()),
    };
    Plan { deaths: vec![(MORTAL, chance)], deadly, polls: true, ..plan }
}

/// Blocks die with a turn, between reading the epoch and relaying it, or wherever they are. The
/// others serve every client, through rings that are mostly full.
pub fn play(mut rng: Rng) {
    let world = World::with(Config { data_threads: 2, ..small() });
    let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(4096, 4096);
    let listener = listen(world.net(), tcp);
    let doomed = world.attachment().token().expect("a number");
    for number in 0..MORTALS {
        let net = doomed.net();
        let mortal = std::thread::Builder::new().name(format!("{MORTAL}-{number}"));
        mortal.spawn(move || serve(net, listener)).expect("a thread");
    }
    let addr = std_addr(listener.local_addr());
    std::thread::scope(|scope| {
        for _ in 0..SERVERS {
            scope.spawn(|| serve(world.net(), listener));
        }
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut rng = Rng::new(rng.next());
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        while !is_served(addr, &mut rng) {}
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        world.token().cancel();
    });
    doomed.cancel();
    // What the dead had in their hands stays as it is, and their launch is never finished.
    std::mem::forget((world, doomed));
}

/// Sends and receives some bytes; returns whether they came back.
fn is_served(addr: SocketAddr, rng: &mut Rng) -> bool {
    let stream = TcpStream::connect(addr).expect("connected");
    stream.set_read_timeout(Some(SILENCE)).expect("a timeout");
    stream.set_write_timeout(Some(SILENCE)).expect("a timeout");
    let (seed, len) = (rng.next(), 1 + rng.below(60_000) as usize);
    let exchange = || -> io::Result<bool> {
        let sent = std::thread::scope(|scope| {
            let sent = scope.spawn(|| {
                (&stream).write_all(&(0..len).map(|at| pattern(seed, at)).collect::<Vec<_>>())?;
                stream.shutdown(Shutdown::Write)
            });
            let mut back = Vec::new();
            let read = (&stream).take(len as u64 + 1).read_to_end(&mut back);
            let right = back.iter().enumerate().all(|(at, &byte)| byte == pattern(seed, at));
            assert!(right && back.len() <= len, "{} bytes, not those that were sent", back.len());
            let sent = sent.join().expect("no panic");
            read.map(|read| read == len && sent.is_ok())
        })?;
        Ok(sent)
    };
    exchange().unwrap_or(false)
}

/// One stream of a block, and what it still has to send back.
struct Echo {
    stream: Stream,
    memory: Memory,
    /// Bytes in memory, and how many of them were sent.
    have: usize,
    sent: usize,
}

impl Echo {
    /// Goes on as far as it can; returns what it waits for, or 0 when it is over.
    fn turn(&mut self) -> Result<i16, Error> {
        loop {
            if self.sent < self.have {
                let rest = self.memory.buffer().slice(self.sent, self.have - self.sent);
                match self.stream.try_send(&SOLO, rest) {
                    Ok(n) => self.sent += n,
                    Err(Error::WouldBlock) => return Ok(POLLOUT),
                    Err(error) => return Err(error),
                }
                continue;
            }
            match self.stream.try_recv(&SOLO, self.memory.buffer()) {
                Ok(0) => return Ok(0),
                Ok(n) => (self.have, self.sent) = (n, 0),
                Err(Error::WouldBlock) => return Ok(POLLIN),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Polls the listener and its own streams, and accepts and echoes whatever comes.
fn serve(net: Net, listener: Listener) {
    let mut echoes: Vec<(Echo, i16)> = Vec::new();
    loop {
        let mut fds = vec![(listener.handle().raw(), POLLIN)];
        fds.extend(echoes.iter().map(|(echo, events)| (echo.stream.handle().raw(), *events)));
        let set = PollMemory::new(&fds);
        match poll::poll(&SOLO, net, set.set(), Timeout::NEVER) {
            Ok(_) => {}
            Err(Error::Canceled | Error::NetworkDown) => return,
            Err(error) => panic!("poll: {error}"),
        }
        if set.set().get(0).revents != 0 {
            match listener.try_accept(&SOLO) {
                Ok(stream) => {
                    let echo = Echo { stream, memory: Memory::new(2000), have: 0, sent: 0 };
                    echoes.push((echo, POLLIN));
                }
                Err(Error::WouldBlock | Error::TooManySockets | Error::NoBuffers) => {}
                Err(Error::Canceled | Error::NetworkDown) => return,
                Err(error) => panic!("accept: {error}"),
            }
        }
        // Only what poll has found: a change that it misses shows as a client that nobody serves.
        let mut at = 0;
        echoes = echoes
            .into_iter()
            .filter_map(|(mut echo, events)| {
                at += 1;
                // One that was accepted just now is not in the set.
                if at < fds.len() && set.found(at) == 0 {
                    return Some((echo, events));
                }
                match echo.turn() {
                    Ok(events) if events != 0 => Some((echo, events)),
                    // Its client has all, or has given up.
                    Ok(_) | Err(Error::ConnectionReset | Error::BrokenPipe) => {
                        let _ = echo.stream.close(&SOLO);
                        None
                    }
                    Err(Error::Canceled | Error::NetworkDown) => None,
                    Err(error) => panic!("echo: {error}"),
                }
            })
            .collect();
    }
}
