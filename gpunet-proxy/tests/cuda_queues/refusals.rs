//! The driver refuses one call, whichever: then the program has an error and nothing of the
//! operation happens, or it happens as it should. The memory of an operation that was refused is
//! the program's again, which uses it for something else at once.

use crate::support::{Kind, Memory, World, pattern};
use gpunet_device::TransportKind;
use gpunet_device::abi::Options;
use gpunet_device::team::{Rank, Signal};
use gpunet_proxy::queue::{Queue, QueueError, QueueOutcome, QueueSettings};
use gpunet_proxy::team::{Team, TeamListener, TeamOptions};
use std::io::{Read, Write};
use std::time::Duration;

const LEN: usize = 150_000;
/// What is in memory that is not the queue's.
const ELSE: u8 = 0xee;
const LIMIT: Duration = Duration::from_secs(20);
/// More calls than any of the programs makes.
const MOST_CALLS: u32 = 500;

/// Runs a program with each of the driver's calls refused in turn, until it makes fewer; returns
/// how many it makes.
fn sweep(world: &World, program: impl Fn(&World, u32)) -> u32 {
    (1..MOST_CALLS)
        .find(|&nth| {
            program(world, nth);
            let makes_fewer = world.has_to_refuse();
            world.refuse(0);
            makes_fewer
        })
        .expect("a program that ends")
        - 1
}

/// Every message is staged, in several fragments.
fn queue(world: &World) -> Queue {
    let settings = QueueSettings { short: 0, fragment: 64 << 10, depth: 2, ..QueueSettings::default() };
    Queue::cuda_with(world.attachment(), world.stream(), settings).expect("a queue")
}

/// Waits until all is done. It may be what is refused.
fn end(queue: &mut Queue) -> QueueOutcome {
    for _ in 0..2 {
        let (sender, done) = std::sync::mpsc::channel();
        if queue.on_done(move |outcome| _ = sender.send(outcome)).is_ok() {
            let outcome = done.recv_timeout(LIMIT).expect("hangs");
            assert!(queue.is_idle(), "{outcome:?}");
            return outcome;
        }
    }
    panic!("two calls were refused");
}

/// How many operations are as they should be: all before the first that failed.
fn good(outcome: QueueOutcome) -> u64 {
    outcome.failure.map_or(u64::MAX, |failure| failure.operation)
}

/// Accepted operations, and the memory of all.
#[derive(Default)]
struct Script {
    operations: u64,
    /// Of each message that was accepted: which operation it is, and its number.
    messages: Vec<(u64, usize)>,
}

impl Script {
    fn accepted<T>(&mut self, result: Result<T, QueueError>) -> Option<T> {
        self.operations += u64::from(result.is_ok());
        result.ok()
    }

    /// Does what may be the one thing that is refused.
    fn retried(&mut self, mut call: impl FnMut() -> Result<(), QueueError>) -> Option<()> {
        self.accepted(call()).or_else(|| self.accepted(call()))
    }
}

fn options(transport: TransportKind) -> Options {
    Options::DEFAULT.with_transport(transport).with_rings(1 << 16, 1 << 16)
}

const KINDS: [Kind; 4] = [Kind::Device, Kind::Pageable, Kind::Device, Kind::Pageable];

fn send(world: &World, nth: u32) {
    let (socket, mut peer) = world.tcp(options(TransportKind::Tcp));
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A connection that is given up ends with a reset, after what was sent.
        let _ = peer.read_to_end(&mut bytes);
        bytes
    });
    let mut sender = socket.take_send().expect("free");
    let mut queue = queue(world);
    let mut memory: Vec<_> = (0..4).map(|at| Memory::filled(world, KINDS[at], LEN, at as u64)).collect();
    world.refuse(nth);
    let mut script = Script::default();
    // A message that the program writes into the ring.
    let first = sender.prepare(1000).expect("room");
    for piece in first.span.pieces() {
        // SAFETY: the message's place in the ring, which on the stand-in lies in memory of the
        // host.
        unsafe { piece.ptr.copy_from_nonoverlapping(pattern(99, 1000).as_ptr(), piece.len) };
    }
    script.retried(|| queue.post(&[first.post])).expect("one call is refused");
    for (at, memory) in memory.iter_mut().enumerate() {
        let buffer = memory.buffer(LEN);
        let accepted = if at < 2 {
            script.accepted(queue.send(&mut sender, buffer))
        } else {
            let started = script.accepted(queue.start_send(&mut sender, buffer));
            started.map(|started| script.retried(|| queue.finish(&[started])).expect("one call is refused"))
        };
        match accepted {
            Some(()) => script.messages.push((script.operations - 1, at)),
            None => memory.fill(world, &[ELSE; LEN]),
        }
    }
    let outcome = end(&mut queue);
    let has_refused = !world.has_to_refuse();
    let left = if has_refused { 0 } else { nth };
    world.refuse(0);
    drop((queue, sender, socket));
    let bytes = reader.join().expect("no panic");
    let mut expected = pattern(99, 1000);
    script.messages.iter().for_each(|&(_, at)| expected.extend(pattern(at as u64, LEN)));
    // A failure in the middle of a message resets the connection.
    assert!(
        expected.starts_with(&bytes),
        "{nth}: {outcome:?}: wrong bytes, {} of {}",
        bytes.len(),
        expected.len()
    );
    if outcome.failure.is_none() {
        assert_eq!(bytes.len(), expected.len(), "{nth}: {outcome:?}");
    }
    world.refuse(left);
}

#[test]
fn what_a_refused_send_would_have_sent_never_reaches_the_peer() {
    let world = World::simulated();
    let calls = sweep(&world, send);
    assert!(calls > 20, "{calls}");
}

fn recv(world: &World, nth: u32) {
    let (socket, mut peer) = world.tcp(options(TransportKind::Tcp));
    let writer = std::thread::spawn(move || {
        // It ends early if less is received.
        let _ = peer.write_all(&pattern(7, 4 * LEN));
        peer
    });
    let mut receiver = socket.take_recv().expect("free");
    let mut queue = queue(world);
    let mut memory: Vec<_> = KINDS.map(|kind| Memory::new(world, kind, LEN)).into();
    memory.iter_mut().for_each(|memory| memory.fill(world, &[ELSE; LEN]));
    world.refuse(nth);
    let mut script = Script::default();
    for (at, memory) in memory.iter().enumerate() {
        let buffer = memory.buffer(LEN);
        let accepted = if at < 2 {
            script.accepted(queue.recv(&mut receiver, buffer))
        } else {
            let started = script.accepted(queue.start_recv(&mut receiver, buffer));
            started.map(|started| script.retried(|| queue.finish(&[started])).expect("one call is refused"))
        };
        if accepted.is_some() {
            script.messages.push((script.operations - 1, at));
        }
    }
    let outcome = end(&mut queue);
    let left = if world.has_to_refuse() { nth } else { 0 };
    world.refuse(0);
    let (all, good) = (pattern(7, 4 * LEN), good(outcome));
    for (at, memory) in memory.iter().enumerate() {
        let found = memory.bytes(world, LEN);
        match script.messages.iter().position(|&(_, message)| message == at) {
            // What comes after a failure is void.
            Some(place) if script.messages[place].0 < good => {
                assert!(found == all[place * LEN..][..LEN], "{nth}: {outcome:?}: message {at}");
            }
            Some(_) => {}
            None => assert!(found == [ELSE; LEN], "{nth}: {outcome:?}: refused, and {at} was written"),
        }
    }
    drop((queue, receiver, socket));
    drop(writer.join().expect("no panic"));
    world.refuse(left);
}

#[test]
fn a_refused_receive_takes_nothing_and_writes_nowhere() {
    let world = World::simulated();
    let calls = sweep(&world, recv);
    assert!(calls > 20, "{calls}");
}

/// Two sockets of the device, whose words the CPU does not reach.
fn exchange(world: &World, nth: u32) {
    let (near, far) = world.pair(options(TransportKind::Peer));
    let (mut sender, mut receiver) = (near.take_send().expect("free"), far.take_recv().expect("free"));
    let (mut sends, mut receives) = (queue(world), queue(world));
    let mut from: Vec<_> = (0..4).map(|at| Memory::filled(world, KINDS[at], LEN, at as u64)).collect();
    let to: Vec<_> = KINDS.map(|kind| Memory::new(world, kind, LEN)).into();
    world.refuse(nth);
    let (mut script, mut expected) = (Script::default(), Vec::new());
    for (at, memory) in from.iter_mut().enumerate() {
        match script.accepted(sends.send(&mut sender, memory.buffer(LEN))) {
            Some(()) => {
                script.messages.push((script.operations - 1, at));
                expected.extend(pattern(at as u64, LEN));
            }
            None => memory.fill(world, &[ELSE; LEN]),
        }
    }
    let (mut others, mut received) = (Script::default(), Vec::new());
    // As many as were sent: no other would come.
    for (at, memory) in to.iter().enumerate().take(script.messages.len()) {
        // Not if the direction was given up.
        if others.retried(|| receives.recv(&mut receiver, memory.buffer(LEN))).is_some() {
            others.messages.push((others.operations - 1, at));
        }
    }
    let sent = end(&mut sends);
    let outcome = end(&mut receives);
    let left = if world.has_to_refuse() { nth } else { 0 };
    world.refuse(0);
    let count = others.messages.iter().filter(|message| message.0 < good(outcome)).count();
    others.messages[..count].iter().for_each(|&(_, at)| received.extend(to[at].bytes(world, LEN)));
    assert!(expected.starts_with(&received), "{nth}: {sent:?}, {outcome:?}: wrong bytes");
    if sent.failure.is_none() && outcome.failure.is_none() {
        assert_eq!(received.len(), others.messages.len() * LEN, "{nth}");
    }
    world.refuse(left);
}

#[test]
fn refusals_on_a_direct_link_bring_no_wrong_bytes() {
    let world = World::simulated();
    let calls = sweep(&world, exchange);
    assert!(calls > 20, "{calls}");
}

const DATA: Signal = Signal(0);

/// A team of one member: what it puts to itself, and the values that it signals.
fn team(world: &World, nth: u32) {
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = TeamListener::bind(any).expect("a free port");
    let team = Team::lead_with(world.attachment(), listener, 1, &TeamOptions { signals: 2, timeout: LIMIT });
    let team = team.expect("a team");
    let own = Rank(0);
    let y = team.alloc::<u8>(4 * LEN).expect("memory");
    let mut from: Vec<_> = (0..4).map(|at| Memory::filled(world, Kind::Device, LEN, at)).collect();
    let mut queue = queue(world);
    world.refuse(nth);
    let (mut script, mut value) = (Script::default(), 0);
    for (at, memory) in from.iter_mut().enumerate() {
        let to = y.slice(at * LEN, LEN);
        let accepted = if at < 2 {
            script.accepted(queue.put(to, memory.buffer(LEN), own))
        } else {
            value += 1;
            script.accepted(queue.put_signal(to, memory.buffer(LEN), DATA, value, own))
        };
        match accepted {
            Some(()) => script.messages.push((script.operations - 1, at)),
            None => memory.fill(world, &[ELSE; LEN]),
        }
    }
    script.retried(|| queue.signal(&team, DATA, 3, own)).expect("one call is refused");
    script.retried(|| queue.wait_until(&team, DATA, own, 3)).expect("one call is refused");
    let outcome = end(&mut queue);
    let left = if world.has_to_refuse() { nth } else { 0 };
    world.refuse(0);
    for at in 0..4 {
        let mut found = vec![0; LEN];
        y.read(at * LEN, &mut found).expect("read");
        let accepted = script.messages.iter().find(|message| message.1 == at);
        let failed = outcome.failure.map(|failure| failure.operation);
        match accepted {
            Some((operation, _)) if Some(*operation) != failed => {
                assert!(found == pattern(at as u64, LEN), "{nth}: {outcome:?}: put {at}");
            }
            Some(_) => {}
            None => assert!(found == [0; LEN], "{nth}: {outcome:?}: refused, and {at} was put"),
        }
    }
    drop((queue, y));
    team.leave().expect("it alone");
    world.refuse(left);
}

#[test]
fn a_refused_put_puts_nothing() {
    let world = World::simulated();
    let calls = sweep(&world, team);
    assert!(calls > 8, "{calls}");
}
