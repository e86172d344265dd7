//! Conformance: arming and sleeping.

use crate::world::{End, Pair, TIMEOUT, World, until};
use gpunet_core::verbs::{Completion, CompletionStatus, Endpoint};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::thread;
use std::time::Duration;

/// Sleeps until one of the endpoint's descriptors is readable; returns which are.
fn sleep(endpoint: &dyn Endpoint, time: Duration) -> [bool; 2] {
    let fds = endpoint.readiness();
    let mut fds = fds.each_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // A signal is as good as nothing.
    let _ = poll(&mut fds, Some(&time));
    fds.map(|fd| fd.revents().contains(PollFlags::IN))
}

/// The next message among the completions that are there.
fn take_message(end: &mut End) -> Option<u32> {
    loop {
        match end.endpoint.poll()? {
            Completion::Received { message, .. } => return Some(message),
            Completion::Sent { status: CompletionStatus::Success, .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The next message, slept for by the protocol: poll, arm, poll once more, sleep.
fn next_by_sleeping(end: &mut End) -> u32 {
    loop {
        if let Some(message) = take_message(end) {
            return message;
        }
        end.endpoint.arm().unwrap();
        if let Some(message) = take_message(end) {
            return message;
        }
        assert!(sleep(&*end.endpoint, TIMEOUT)[0], "a wake-up was lost");
    }
}

pub fn no_wake_up_is_lost(world: &World) {
    const ROUNDS: u32 = 500;
    let Pair { mut client, mut server } = world.connect();
    let echo = thread::spawn(move || {
        for _ in 0..ROUNDS {
            let message = next_by_sleeping(&mut server);
            server.endpoint.post_receive().unwrap();
            server.tell(u64::from(message), message + 1);
        }
        server
    });
    for round in 0..ROUNDS {
        client.tell(u64::from(round), round);
        assert_eq!(next_by_sleeping(&mut client), round + 1);
        client.endpoint.post_receive().unwrap();
    }
    drop(echo.join().expect("the echo"));
}

pub fn an_event_comes_once_for_each_arm(world: &World) {
    let Pair { mut client, mut server } = world.connect();
    let short = Duration::from_millis(20);
    client.tell(1, 1);
    assert_eq!(server.next_message().0, 1);
    assert!(!sleep(&*server.endpoint, short)[0], "not armed: no event");
    server.endpoint.arm().unwrap();
    client.tell(2, 2);
    assert!(sleep(&*server.endpoint, TIMEOUT)[0], "armed: an event");
    client.tell(3, 3);
    assert_eq!(server.next_message().0, 2);
    assert_eq!(server.next_message().0, 3);
    server.endpoint.arm().unwrap();
    assert!(!sleep(&*server.endpoint, short)[0], "the event was taken, and nothing has come since");
}

/// As files that the kernel's RDMA modules make: a wait for output there would never end.
pub fn descriptors_report_input_only(world: &World) {
    let (_, listening) = world.listen(1);
    let Pair { mut client, mut server } = world.connect();
    server.endpoint.arm().unwrap();
    client.tell(1, 1);
    assert!(sleep(&*server.endpoint, TIMEOUT)[0], "armed: an event");
    let endpoints = [client.endpoint.readiness(), server.endpoint.readiness()];
    for fd in endpoints.iter().flatten().chain([&listening.readiness()]) {
        let mut fds = [PollFd::new(fd, PollFlags::OUT)];
        let found = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        assert_eq!((found, fds[0].revents()), (Ok(0), PollFlags::empty()));
    }
}

pub fn the_end_of_a_connection_wakes(world: &World) {
    let Pair { client, mut server } = world.connect();
    let (started, waits) = std::sync::mpsc::channel();
    let sleeper = thread::spawn(move || {
        server.endpoint.arm().unwrap();
        started.send(()).unwrap();
        until("the end", || {
            // On iWARP the receives flush as well, which wakes too.
            assert_ne!(sleep(&*server.endpoint, TIMEOUT), [false; 2], "nothing woke the sleeper");
            server.endpoint.is_disconnected()
        });
    });
    waits.recv().unwrap();
    drop(client);
    sleeper.join().expect("the sleeper");
}
