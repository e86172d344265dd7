//! Calls that do not wait, and waits that end.

use crate::support::world::listen;
use crate::support::{Case, Memory, Team, World, team};
use gpunet_device::{Error, Group, Listener, Options, Stream, Timeout};
use std::sync::Barrier;

/// A time that is over soon, in nanoseconds.
const SOON: Timeout = Timeout::ms(2);

/// Sends until the ring, and whatever lies behind it, takes no more; returns how many bytes.
fn fill(g: &Team, stream: &mut Stream, memory: &Memory) -> Result<usize, Error> {
    let mut total = 0;
    loop {
        // What has left the ring by the end of the time makes room for more.
        match stream.sender().send_timeout(g, memory.buffer(), Timeout::ms(40)) {
            Ok(n) => total += n,
            Err(Error::TimedOut) => return Ok(total),
            Err(error) => return Err(error),
        }
    }
}

/// Waits until the other end's group comes here too.
fn meet(g: &Team, turn: &Barrier) {
    if g.is_leader() {
        turn.wait();
    }
    g.sync();
}

pub fn calls_that_would_wait_say_so(case: &Case) {
    let world = World::of(case);
    let listener = listen(world.net(), case.options()).handle();
    let nobody = team(case.lanes, |g| {
        let listener = Listener::from_handle(g, world.net(), listener).expect("open");
        let nobody = listener.try_accept(g).map(|_| ());
        listener.close(g).expect("open");
        nobody
    });
    assert_eq!(nobody, Err(Error::WouldBlock));

    let (memory, got) = (Memory::filled(1, 0, 1 << 16), Memory::new(1 << 16));
    let turn = Barrier::new(2);
    let wait = |g: &Team| meet(g, &turn);
    let server = |g: &Team, mut stream: Stream| {
        assert_eq!(stream.try_recv(g, got.buffer()), Err(Error::WouldBlock));
        wait(g);
        // The other end fills everything up, then this end reads it all.
        wait(g);
        let mut total = 0;
        loop {
            match stream.recv(g, got.buffer())? {
                0 => break,
                n => total += n,
            }
        }
        stream.close(g)?;
        Ok(total)
    };
    let client = |g: &Team, mut stream: Stream| {
        wait(g);
        let mut sent = fill(g, &mut stream, &memory)?;
        // What was under way still may have made room.
        let full = loop {
            match stream.try_send(g, b"x") {
                Ok(n) => sent += n + fill(g, &mut stream, &memory)?,
                full => break full,
            }
        };
        assert_eq!(full, Err(Error::WouldBlock));
        wait(g);
        stream.close(g)?;
        Ok(sent)
    };
    let (received, sent) = case.pair(&world, case.rings(1 << 20), server, client);
    assert!(received == sent && sent >= 1 << 20, "{received} of {sent}");
    world.end();
}

pub fn a_nonblocking_stream_does_not_wait(case: &Case) {
    let world = World::of(case);
    let memory = Memory::new(100);
    let server = |g: &Team, mut stream: Stream| {
        assert_eq!(stream.recv_exact(g, memory.buffer().first(2))?, 2);
        stream.send_all(g, b"later")?;
        assert_eq!(stream.recv(g, memory.buffer())?, 0);
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        let options = stream.options().with_flag(Options::NONBLOCK, true);
        stream.set_options(g, options)?;
        assert!(stream.options().has(Options::NONBLOCK));
        assert_eq!(stream.recv(g, memory.buffer().skip(50)), Err(Error::WouldBlock));
        stream.send_all(g, b"go")?;
        // These wait all the same.
        assert_eq!(stream.recv_exact(g, memory.buffer().slice(50, 5))?, 5);
        stream.close(g)
    };
    case.pair(&world, case.options(), server, client);
    assert_eq!(memory.copy(50, 5), b"later");
    world.end();
}

pub fn waits_end_when_their_time_is_over(case: &Case) {
    let world = World::of(case);
    let limited = case.rings(1 << 16).with_timeouts(Timeout::ms(40), SOON);
    // A bind takes as long as a busy machine lets it.
    let listener = listen(world.net(), limited.with_timeouts(Timeout::secs(2), SOON)).handle();
    let late = team(case.lanes, |g| {
        let listener = Listener::from_handle(g, world.net(), listener).expect("open");
        let by_option = listener.accept(g).map(|_| ());
        let by_call = listener.accept_timeout(g, SOON).map(|_| ());
        listener.close(g).expect("open");
        (by_option, by_call)
    });
    assert_eq!(late, (Err(Error::TimedOut), Err(Error::TimedOut)));
    world.expect_all_free();

    let (memory, got) = (Memory::filled(1, 0, 1 << 20), Memory::new(1 << 16));
    let turn = Barrier::new(2);
    // The pair's own accept and connect are patient; only the streams' waits are short.
    let server = |g: &Team, mut stream: Stream| {
        stream.set_options(g, limited)?;
        assert_eq!(stream.receiver().recv_timeout(g, got.buffer(), SOON), Err(Error::TimedOut));
        assert_eq!(stream.recv(g, got.buffer()), Err(Error::TimedOut));
        assert_eq!(stream.recv_exact(g, got.buffer()), Err(Error::TimedOut));
        // The stream is as good as before. The other end's sends find no reader at first.
        stream.send_all(g, b"x")?;
        meet(g, &turn);
        loop {
            match stream.receiver().recv_timeout(g, got.buffer(), Timeout::NEVER) {
                Ok(0) => return stream.close(g),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
    };
    let client = |g: &Team, mut stream: Stream| {
        assert_eq!(stream.recv_exact(g, got.buffer().skip((1 << 16) - 1))?, 1);
        fill(g, &mut stream, &memory)?;
        stream.set_options(g, limited)?;
        let full = loop {
            match stream.send(g, memory.buffer()) {
                Ok(_) => continue,
                full => break full,
            }
        };
        assert_eq!(full, Err(Error::TimedOut));
        // A busy machine may have made the ring full before the kernel behind it was.
        let none_of_it = loop {
            match stream.send_all(g, memory.buffer()) {
                Ok(()) => continue,
                full => break full,
            }
        };
        assert_eq!(none_of_it, Err(Error::TimedOut));
        meet(g, &turn);
        stream.close(g)
    };
    case.pair(&world, case.rings(1 << 16), server, client);
    world.end();
}

pub fn recv_exact_fills_the_buffer_or_meets_the_end(case: &Case) {
    let world = World::of(case);
    let (sent, got) = (Memory::filled(6, 0, 30_000), Memory::new(40_000));
    let server = |g: &Team, mut stream: Stream| {
        assert_eq!(stream.recv_exact(g, got.buffer().first(20_000))?, 20_000);
        assert_eq!(stream.recv_exact(g, got.buffer().skip(20_000))?, 10_000);
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        let step = if case.lanes > 8 { 3000 } else { 700 };
        for at in (0..30_000).step_by(step) {
            stream.send_all(g, sent.buffer().slice(at, step))?;
        }
        stream.close(g)
    };
    case.pair(&world, case.rings(8192), server, client);
    assert!(got.holds(0, 30_000, 6, 0));
    world.end();
}
