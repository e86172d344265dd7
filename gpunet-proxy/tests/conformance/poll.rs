//! Waiting for one of many sockets.

use crate::support::asleep::Tid;
use crate::support::world::listen;
use crate::support::{Case, Memory, PollMemory, Team, World, team, until};
use gpunet_device::group::Solo;
use gpunet_device::poll::{POLLHUP, POLLIN, POLLNVAL, POLLOUT};
use gpunet_device::{Error, Group, Listener, Shutdown, Stream, Timeout, poll, poll_until};
use gpunet_posix as posix;
use gpunet_posix::send::MSG_MORE;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A time that is over soon, in nanoseconds.
const SOON: Timeout = Timeout::ms(2);

pub fn a_listener_is_readable_while_a_connection_waits(case: &Case) {
    let world = World::of(case);
    let (net, there) = (world.net(), world.there());
    let options = case.options();
    let listener = listen(net, options);
    let (addr, handle) = (listener.local_addr(), listener.handle());
    let set = PollMemory::new(&[(handle.raw(), POLLIN | POLLOUT)]);
    let nobody =
        team(case.lanes, |g| (poll(g, net, set.set(), Timeout::NON_BLOCKING), poll(g, net, set.set(), SOON)));
    assert_eq!((nobody, set.found(0)), ((Ok(0), Ok(0)), 0));

    let client = std::thread::spawn(move || {
        let solo = Solo::new(0, 1);
        Stream::connect_with(&solo, there, addr, options).and_then(|stream| stream.close(&solo))
    });
    let result = team(case.lanes, |g| {
        assert_eq!(poll(g, net, set.set(), Timeout::NEVER), Ok(1));
        let stream = Listener::from_handle(g, net, handle)?.try_accept(g)?;
        stream.close(g)
    });
    assert_eq!((result, set.found(0)), (Ok(()), POLLIN));
    assert_eq!(client.join().expect("no panic"), Ok(()));
    let empty = team(case.lanes, |g| poll(g, net, set.set(), Timeout::NON_BLOCKING));
    assert_eq!((empty, set.found(0)), (Ok(0), 0));
    listener.close(&Solo::new(0, 1)).expect("open");
    world.end();
}

pub fn a_condition_ends_a_poll(case: &Case) {
    let world = World::of(case);
    let (net, there) = (world.net(), world.there());
    let options = case.options();
    let listener = listen(net, options);
    let (addr, handle) = (listener.local_addr(), listener.handle());
    let set = PollMemory::new(&[(handle.raw(), POLLIN)]);
    // The wait has no limit: what ends it is the condition.
    let at_once = team(case.lanes, |g| poll_until(g, net, set.set(), Timeout::NEVER, || true));
    assert_eq!((at_once, set.found(0)), (Ok(0), 0));
    // A socket that is ready is found whatever the condition is.
    let client = std::thread::spawn(move || {
        let solo = Solo::new(0, 1);
        Stream::connect_with(&solo, there, addr, options).and_then(|stream| stream.close(&solo))
    });
    let result = team(case.lanes, |g| {
        assert_eq!(poll_until(g, net, set.set(), Timeout::NEVER, || false), Ok(1));
        assert_eq!(poll_until(g, net, set.set(), Timeout::NEVER, || true), Ok(1));
        Listener::from_handle(g, net, handle)?.try_accept(g)?.close(g)
    });
    assert_eq!((result, set.found(0)), (Ok(()), POLLIN));
    assert_eq!(client.join().expect("no panic"), Ok(()));
    listener.close(&Solo::new(0, 1)).expect("open");
    world.end();
}

pub fn a_stream_is_readable_when_data_or_the_end_came(case: &Case) {
    let world = World::of(case);
    let net = world.net();
    let memory = Memory::new(8);
    let entry = PollMemory::new(&[(0, 0)]);
    let watch = |g: &Team, stream: &Stream, events: i16, timeout: Timeout| {
        g.sync();
        if g.is_leader() {
            let handle = stream.handle().raw();
            entry.set().set(0, gpunet_device::PollFd { handle, events, revents: 0 });
        }
        g.sync();
        let n = poll(g, net, entry.set(), timeout);
        let found = entry.found(0);
        g.sync();
        n.map(|n| (n, found))
    };
    let server = |g: &Team, mut stream: Stream| {
        assert_eq!(watch(g, &stream, POLLIN, Timeout::NEVER)?, (1, POLLIN));
        assert_eq!(stream.recv(g, memory.buffer().first(3))?, 3);
        // The rest is still there.
        assert_eq!(watch(g, &stream, POLLIN, Timeout::NON_BLOCKING)?, (1, POLLIN));
        assert_eq!(stream.recv_exact(g, memory.buffer().first(2))?, 2);
        stream.send_all(g, b"!")?;
        // The end is readable, and no hang-up while this end can still send.
        assert_eq!(watch(g, &stream, POLLIN, Timeout::NEVER)?, (1, POLLIN));
        assert_eq!(stream.recv(g, memory.buffer())?, 0);
        assert_eq!(watch(g, &stream, POLLIN | POLLOUT, Timeout::NEVER)?, (1, POLLIN | POLLOUT));
        stream.shutdown(g, Shutdown::Write);
        let (n, found) = watch(g, &stream, 0, Timeout::NEVER)?;
        assert_eq!((n, found), (1, POLLHUP), "a hang-up is told unasked");
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        stream.send_all(g, b"hello")?;
        assert_eq!(stream.recv_exact(g, memory.buffer().slice(7, 1))?, 1);
        stream.shutdown(g, Shutdown::Write);
        assert_eq!(stream.recv(g, memory.buffer().skip(7))?, 0);
        stream.close(g)
    };
    case.pair(&world, case.options(), server, client);
    world.end();
}

pub fn a_stream_is_writable_while_the_ring_has_space(case: &Case) {
    let world = World::of(case);
    let there = world.there();
    let (memory, scratch) = (Memory::new(1 << 16), Memory::new(1 << 16));
    let (full, entry) = (AtomicBool::new(false), PollMemory::new(&[(0, 0)]));
    let server = |g: &Team, mut stream: Stream| {
        // Reads nothing until the other end's ring is full.
        until("the other end's ring is full", || g.broadcast(u64::from(full.load(Ordering::Acquire))) == 1);
        while stream.recv(g, scratch.buffer())? > 0 {}
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        if g.is_leader() {
            let handle = stream.handle().raw();
            entry.set().set(0, gpunet_device::PollFd { handle, events: POLLOUT, revents: 0 });
        }
        g.sync();
        // What has left the ring within the time is in the kernel's buffers, which fill up too.
        while poll(g, there, entry.set(), Timeout::ms(40))? == 1 {
            assert_eq!(entry.found(0), POLLOUT);
            match stream.try_send(g, memory.buffer()) {
                Ok(_) | Err(Error::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        full.store(true, Ordering::Release);
        assert_eq!(poll(g, there, entry.set(), Timeout::NEVER)?, 1);
        stream.close(g)
    };
    case.pair(&world, case.rings(1 << 18), server, client);
    world.end();
}

pub fn only_what_was_asked_for_ends_a_poll(case: &Case) {
    let world = World::of(case);
    let net = world.net();
    let memory = Memory::new(5);
    let client = |g: &Team, mut stream: Stream| {
        stream.send_all(g, b"hello")?;
        assert_eq!(stream.recv(g, memory.buffer())?, 0);
        stream.close(g)
    };
    let entry = PollMemory::new(&[(0, 0), (0, 0)]);
    let server = |g: &Team, mut stream: Stream| {
        let handle = stream.handle().raw();
        let set = |events: [i16; 2]| {
            g.sync();
            if g.is_leader() {
                for (index, events) in events.into_iter().enumerate() {
                    entry.set().set(index, gpunet_device::PollFd { handle, events, revents: 0 });
                }
            }
            g.sync();
        };
        set([POLLIN, POLLIN]);
        // The lanes look one after another; data may come in between.
        while poll(g, net, entry.set(), Timeout::NEVER)? < 2 {}
        // There is data and space, and neither was asked for.
        set([0, 0]);
        assert_eq!(poll(g, net, entry.set(), SOON)?, 0);
        set([0, POLLOUT]);
        assert_eq!(poll(g, net, entry.set(), Timeout::NEVER)?, 1);
        assert_eq!((entry.found(0), entry.found(1)), (0, POLLOUT));
        g.sync();
        stream.recv_exact(g, memory.buffer())?;
        set([POLLIN, 0]);
        assert_eq!(poll(g, net, entry.set(), SOON)?, 0);
        stream.close(g)
    };
    case.pair(&world, case.options(), server, client);
    world.end();
}

pub fn low_water_marks_hold_a_poll_back(case: &Case) {
    const MARK: usize = 1000;
    let world = World::of(case);
    let net = world.net();
    let memory = Memory::new(2 * MARK);
    let entry = PollMemory::new(&[(0, 0)]);
    let server = |g: &Team, mut stream: Stream| {
        let options = stream.options();
        stream.set_options(g, options.with_low_water(1, MARK as u32))?;
        if g.is_leader() {
            let handle = stream.handle().raw();
            entry.set().set(0, gpunet_device::PollFd { handle, events: POLLIN, revents: 0 });
        }
        g.sync();
        // All but one byte of a request have come, and are not reported.
        while stream.available(g)? < MARK - 1 {}
        assert_eq!(poll(g, net, entry.set(), SOON)?, 0);
        stream.send_all(g, b"x")?;
        assert_eq!(poll(g, net, entry.set(), Timeout::NEVER)?, 1);
        assert!(stream.available(g)? >= MARK);
        assert_eq!(stream.recv_exact(g, memory.buffer().first(MARK))?, MARK);
        stream.send_all(g, b"y")?;
        // The end is reported whatever has come.
        assert_eq!(poll(g, net, entry.set(), Timeout::NEVER)?, 1);
        assert_eq!((stream.recv(g, memory.buffer())?, stream.recv(g, memory.buffer())?), (1, 0));
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        let answer = memory.buffer().slice(MARK, 1);
        stream.send_all(g, memory.buffer().first(MARK - 1))?;
        assert_eq!(stream.recv_exact(g, answer)?, 1);
        stream.send_all(g, b"1")?;
        assert_eq!(stream.recv_exact(g, answer)?, 1);
        stream.send_all(g, b"2")?;
        stream.shutdown(g, Shutdown::Write);
        assert_eq!(stream.recv(g, answer)?, 0);
        stream.close(g)
    };
    case.pair(&world, case.options(), server, client);
    world.end();
}

pub fn a_poll_for_space_waits_for_the_low_water_mark(case: &Case) {
    const RING: usize = 1 << 14;
    let world = World::of(case);
    let there = world.there();
    let memory = Memory::new(2 * RING);
    let entry = PollMemory::new(&[(0, 0)]);
    let server = |g: &Team, mut stream: Stream| {
        while stream.recv(g, memory.buffer().first(RING))? > 0 {}
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        let options = stream.options();
        let more =
            |stream: &mut Stream, len: usize| stream.sender().send_more(g, memory.buffer().slice(RING, len));
        stream.set_options(g, options.with_low_water((RING / 2) as u32, 1))?;
        if g.is_leader() {
            let handle = stream.handle().raw();
            entry.set().set(0, gpunet_device::PollFd { handle, events: POLLOUT, revents: 0 });
        }
        g.sync();
        for round in 0..case.scaled(60) {
            assert_eq!(poll(g, there, entry.set(), Timeout::NEVER)?, 1);
            let free = stream.sender().free_space(g)?;
            assert!(free >= RING / 2, "{free} bytes are free");
            match round % 3 {
                // Fills the ring, and leaves nothing unpublished.
                1 => {
                    for _ in 0..4 {
                        match stream.sender().free_space(g)? {
                            0 => break,
                            free => assert_eq!(more(&mut stream, free)?, free),
                        }
                    }
                    continue;
                }
                // Leaves some of what is there unpublished, and too little room.
                2 => {
                    let published = (free - RING / 2).max(1);
                    assert_eq!(stream.send(g, memory.buffer().slice(RING, published))?, published);
                    assert_eq!(more(&mut stream, RING / 8 + 1)?, RING / 8 + 1);
                    continue;
                }
                _ => {}
            }
            // What is free, and what has become free since.
            for _ in 0..2 {
                match stream.try_send(g, memory.buffer().slice(RING, RING)) {
                    Ok(_) | Err(Error::WouldBlock) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        stream.close(g)
    };
    case.pair(&world, case.rings(RING as u64), server, client);
    world.end();
}

pub fn a_poll_publishes_what_calls_by_handle_have_left(case: &Case) {
    let world = World::of(case);
    let there = world.there();
    let memory = Memory::new(16);
    let entry = PollMemory::new(&[(0, 0)]);
    let rounds = case.scaled(16);
    let server = |g: &Team, mut stream: Stream| {
        for _ in 0..rounds {
            assert_eq!(stream.recv_exact(g, memory.buffer().first(7))?, 7);
            stream.send_all(g, b"x")?;
        }
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        let (socket, request) = (stream.handle().raw(), b"request");
        if g.is_leader() {
            entry.set().set(0, gpunet_device::PollFd { handle: socket, events: POLLIN, revents: 0 });
        }
        g.sync();
        for _ in 0..rounds {
            // SAFETY: the bytes are mapped.
            let sent = unsafe { posix::send::send(g, there, socket, request.as_ptr(), 7, MSG_MORE) };
            assert_eq!(sent, Ok(7));
            assert_eq!(poll(g, there, entry.set(), Timeout::NEVER)?, 1);
            assert_eq!(stream.recv_exact(g, memory.buffer().slice(8, 1))?, 1);
        }
        stream.close(g)
    };
    case.pair(&world, case.options(), server, client);
    world.end();
}

pub fn stale_and_negative_handles_are_told_apart(case: &Case) {
    let world = World::of(case);
    let net = world.net();
    let solo = Solo::new(0, 1);
    let (open, closed) = (listen(net, case.options()), listen(net, case.options()));
    let stale = closed.handle().raw();
    closed.close(&solo).expect("open");
    let set = PollMemory::new(&[(-1, POLLIN), (stale, POLLIN), (open.handle().raw(), POLLIN), (5, 0)]);
    let result = team(case.lanes, |g| poll(g, net, set.set(), Timeout::NEVER));
    assert_eq!(result, Ok(2));
    let found: Vec<i16> = (0..4).map(|i| set.found(i)).collect();
    assert_eq!(found, [0, POLLNVAL, 0, POLLNVAL]);
    assert_eq!(team(case.lanes, |g| poll(g, net, PollMemory::new(&[]).set(), SOON)), Ok(0));
    open.close(&solo).expect("open");
    world.end();
}

pub fn a_sleeping_poller_is_woken(case: &Case) {
    let world = World::of(case);
    let net = world.net();
    let memory = Memory::new(2);
    let entry = PollMemory::new(&[(0, 0)]);
    let (rounds, sleeper) = (case.scaled(16), OnceLock::new());
    let server = |g: &Team, mut stream: Stream| {
        if g.is_leader() {
            sleeper.get_or_init(Tid::current);
            let handle = stream.handle().raw();
            entry.set().set(0, gpunet_device::PollFd { handle, events: POLLIN, revents: 0 });
        }
        g.sync();
        for _ in 0..rounds {
            assert_eq!(poll(g, net, entry.set(), Timeout::NEVER)?, 1);
            assert_eq!(stream.recv_exact(g, memory.buffer().first(1))?, 1);
            stream.send_all(g, b"x")?;
        }
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        for _ in 0..rounds {
            if g.is_leader() {
                sleeper.wait().until_asleep();
            }
            stream.send_all(g, b"x")?;
            assert_eq!(stream.recv_exact(g, memory.buffer().skip(1))?, 1);
        }
        stream.close(g)
    };
    case.pair(&world, case.options(), server, client);
    world.end();
}
