//! Groups that sleep in a call, and what another group or the host does to their sockets meanwhile:
//! they hear of it, and need not look for it when their sleep is over. Sleeps are endless here, so
//! that a test that forgets one does not end.

#[path = "../support/mod.rs"]
mod support;

mod threads;

use gpunet_abi::Word;
use gpunet_abi::hand_off::{self, Plan};
use gpunet_device::poll::{POLLIN, POLLNVAL, POLLRDHUP};
use gpunet_device::{
    Error, Handle, Net, Options, Stream, Timeout, TransportKind, WakeWords, poll, poll_until,
    poll_until_woken,
};
use gpunet_posix as posix;
use gpunet_proxy::{Config, FinishPolicy, embed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;
use support::asleep::spawn_asleep_in;
use support::client::std_addr;
use support::world::listen;
use support::{Memory, PollMemory, SOLO, World, bounded, until};

const ROUNDS: u32 = 5;

/// Runs a test whose sleepers wait for whoever wakes them; with `GPUNET_PAUSES_POLL=1` blocks poll,
/// as a GPU's do, what they are told of.
fn endless(test: impl FnOnce() + Send + 'static) {
    bounded(|| {
        let polls = std::env::var_os("GPUNET_PAUSES_POLL").is_some_and(|value| value == "1");
        // The plan is the whole process's, and all tests here start the same one.
        hand_off::start(Plan { longest: Duration::ZERO, endless: true, polls, ..Plan::new(1) });
        test();
    });
}

/// Lets a block fall asleep, does something to it, and waits until it is awake.
fn sleep_through(sleep: impl FnOnce() + Send, change: impl FnOnce()) {
    std::thread::scope(|scope| {
        let sleeper = spawn_asleep_in(scope, sleep);
        change();
        sleeper.join().expect("no panic");
    });
}

/// Polls one socket until something is found.
fn poll_one(net: Net, handle: Handle, events: i16) -> i16 {
    let set = PollMemory::new(&[(handle.raw(), events)]);
    assert_eq!(poll(&SOLO, net, set.set(), Timeout::NEVER), Ok(1));
    set.found(0)
}

/// The accepting and the connecting end of a stream.
fn pair(net: Net, there: Net, kind: TransportKind) -> [Handle; 2] {
    let options = Options::DEFAULT.with_transport(kind).with_rings(4096, 4096);
    let [client, server] = support::pair::pair(there, net, options);
    [server.handle(), client.handle()]
}

fn close(net: Net, socket: Handle) {
    posix::close::close(&SOLO, net, socket.raw()).expect("open");
}

#[test]
fn a_poller_hears_of_a_shutdown_by_another_group() {
    endless(|| {
        let world = World::new();
        let net = world.net();
        for kind in [TransportKind::Tcp, TransportKind::Peer] {
            for _ in 0..ROUNDS {
                let [server, client] = pair(net, net, kind);
                let shut = || {
                    let how = posix::shutdown::SHUT_RD;
                    posix::shutdown::shutdown(&SOLO, net, server.raw(), how).expect("open");
                };
                let sleep = || assert_eq!(poll_one(net, server, POLLIN), POLLIN);
                sleep_through(sleep, shut);
                assert_eq!(poll_one(net, server, POLLRDHUP), POLLRDHUP);
                [server, client].into_iter().for_each(|socket| close(net, socket));
            }
        }
        world.end();
    });
}

#[test]
fn a_receive_from_another_attachment_hears_of_a_close_by_another_group() {
    endless(|| {
        let world = World::new();
        let there = World::beside(&world);
        let net = world.net();
        for _ in 0..ROUNDS {
            let [server, client] = pair(net, there.net(), TransportKind::Peer);
            let receive = || {
                let memory = Memory::new(1);
                let received = Stream::from_handle(&SOLO, net, server)
                    .and_then(|mut stream| stream.recv(&SOLO, memory.buffer()));
                assert_eq!(received, Err(Error::BadHandle));
            };
            let closes = || {
                let stream = Stream::from_handle(&SOLO, net, server).expect("open");
                stream.close(&SOLO).expect("open");
            };
            sleep_through(receive, closes);
            close(there.net(), client);
        }
        there.end();
        world.end();
    });
}

#[test]
fn a_poller_hears_that_the_launch_of_its_listener_has_ended() {
    endless(|| {
        let world = World::new();
        let net = world.net();
        for _ in 0..ROUNDS {
            let leaver = world.attachment().token().expect("a number");
            let listener = listen(leaver.net(), Options::DEFAULT).handle();
            let sleep = || assert_eq!(poll_one(net, listener, POLLIN), POLLNVAL);
            sleep_through(sleep, || assert_eq!(leaver.finish(FinishPolicy::Close).left_open, 1));
        }
        world.end();
    });
}

/// A block that polls, as a GPU's do, asks while it waits; one that sleeps asks when something
/// wakes it.
#[test]
fn a_polling_block_hears_of_a_condition() {
    if std::env::var_os("GPUNET_PAUSES_POLL").is_none_or(|value| value != "1") {
        println!("NOT RUN: a condition that comes during a poll, which needs GPUNET_PAUSES_POLL=1");
        return;
    }
    endless(|| {
        let world = World::new();
        let net = world.net();
        let listener = listen(net, Options::DEFAULT);
        let set = PollMemory::new(&[(listener.handle().raw(), POLLIN)]);
        for _ in 0..ROUNDS {
            let is_over = AtomicBool::new(false);
            let wait = || {
                // Nothing else ends it.
                let ended =
                    poll_until(&SOLO, net, set.set(), Timeout::NEVER, || is_over.load(Ordering::Relaxed));
                assert_eq!((ended, is_over.load(Ordering::Relaxed)), (Ok(0), true));
            };
            sleep_through(wait, || is_over.store(true, Ordering::Relaxed));
        }
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

/// A block that sleeps on words of its own is woken by whoever changes one, beside a socket or
/// without any.
#[test]
fn a_poller_hears_of_words_of_its_own() {
    endless(|| {
        let world = World::new();
        let net = world.net();
        let listener = listen(net, Options::DEFAULT);
        let sets = [PollMemory::new(&[(listener.handle().raw(), POLLIN)]), PollMemory::new(&[])];
        let (memory, sleeping) = ([AtomicU64::new(0), AtomicU64::new(0)], AtomicU32::new(0));
        // SAFETY: words of this test, which live as long as its threads.
        let word = |at: usize| unsafe { Word::from_ptr(memory[at].as_ptr()) };
        for round in 0..4 * ROUNDS as usize {
            let (set, changed) = (&sets[round % 2], round / 2 % 2);
            let wait = || {
                let words = [0, 1].map(|at| (word(at), word(at).observe()));
                // SAFETY: as above; one thread at a time sleeps by the flag.
                let own = unsafe { WakeWords::new(words, sleeping.as_ptr()) };
                let is_over = || own.have_changed();
                let ended = poll_until_woken(&SOLO, net, set.set(), Timeout::NEVER, Some(own), is_over);
                assert_eq!((ended, own.have_changed()), (Ok(0), true));
            };
            sleep_through(wait, || {
                memory[changed].fetch_add(1, Ordering::Release);
                // SAFETY: as above.
                unsafe { WakeWords::wake(sleeping.as_ptr(), word(changed)) };
            });
        }
        // It hears of its sockets meanwhile.
        let set = &sets[0];
        let wait = || {
            // SAFETY: as above.
            let own =
                unsafe { WakeWords::new([0, 1].map(|at| (word(at), word(at).observe())), sleeping.as_ptr()) };
            assert_eq!(poll_until_woken(&SOLO, net, set.set(), Timeout::NEVER, Some(own), || false), Ok(1));
        };
        let mut clients = Vec::new();
        sleep_through(wait, || clients.push(std::net::TcpStream::connect(std_addr(listener.local_addr()))));
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

/// Tests that have hosts hold it. One of them counts the threads of all hosts.
static HOSTS: RwLock<()> = RwLock::new(());

/// The states of this process's threads of that name, as Linux spells them.
fn threads_named(name: &str) -> Vec<char> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let (begin, name) =
        (|stat: String| stat.split_once(" (").map(|(_, rest)| rest.to_owned()), format!("{name}) "));
    stats.filter_map(begin).filter_map(|stat| stat.strip_prefix(&name)?.chars().next()).collect()
}

#[test]
fn the_thread_of_a_host_ends_with_it() {
    // No other test has hosts meanwhile. The time of this one begins after that.
    let _alone = HOSTS.write().unwrap_or_else(PoisonError::into_inner);
    endless(|| {
        let proxy = embed(Config::small()).expect("embedded");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for _ in 0..ROUNDS {
            let attachment = proxy.attach_cpu().expect("attached");
            let host = attachment.host().expect("a host");
            let address = "127.0.0.1:0".parse().expect("an address");
            drop(runtime.block_on(host.bind(address, Options::DEFAULT, 1)).expect("bound"));
            until("its thread sleeps", || threads_named("gpunet-host") == ['S']);
            drop(host);
            until("its thread ends", || threads_named("gpunet-host").is_empty());
        }
    });
}
