//! The ends of a stream: half-closes, ends of stream, closes.

use crate::support::{Case, Memory, Team, World};
use gpunet_device::stream::Shutdown;
use gpunet_device::{Error, Group, Stream};
use std::sync::atomic::{AtomicBool, Ordering};

pub fn an_end_of_stream_follows_the_data_and_stays(case: &Case) {
    let world = World::of(case);
    let (sent, got) = (Memory::filled(1, 0, 1000), Memory::new(1000));
    let server = |g: &Team, mut stream: Stream| {
        let n = stream.recv_exact(g, got.buffer())?;
        for _ in 0..3 {
            assert_eq!(stream.recv(g, got.buffer())?, 0);
            assert_eq!(stream.try_recv(g, got.buffer())?, 0);
        }
        stream.close(g)?;
        Ok(n)
    };
    let client = |g: &Team, mut stream: Stream| {
        stream.send_all(g, sent.buffer())?;
        stream.shutdown(g, Shutdown::Write);
        assert_eq!(stream.recv(g, sent.buffer())?, 0);
        stream.close(g)
    };
    let (n, ()) = case.pair(&world, case.options(), server, client);
    assert!(n == 1000 && got.holds(0, 1000, 1, 0));
    world.end();
}

pub fn both_ends_may_half_close_with_data_in_flight(case: &Case) {
    const LEN: usize = 50_000;
    let world = World::of(case);
    let sent = [Memory::filled(1, 0, LEN), Memory::filled(2, 0, LEN)];
    let got = [Memory::new(LEN + 1), Memory::new(LEN + 1)];
    let end = |me: usize| {
        let (sent, got) = (&sent[me], &got[me]);
        move |g: &Team, mut stream: Stream| {
            stream.send_all(g, sent.buffer())?;
            stream.shutdown(g, Shutdown::Write);
            let n = stream.recv_exact(g, got.buffer())?;
            stream.close(g)?;
            Ok(n)
        }
    };
    let ends = case.pair(&world, case.rings(1 << 16), end(0), end(1));
    assert_eq!(ends, (LEN, LEN));
    assert!(got[0].holds(0, LEN, 2, 0) && got[1].holds(0, LEN, 1, 0));
    world.end();
}

pub fn the_other_direction_runs_on_after_a_half_close(case: &Case) {
    let world = World::of(case);
    let len = case.scaled(200_000);
    let (sent, got, scratch) = (Memory::filled(4, 0, len), Memory::new(len + 1), Memory::new(100));
    let server = |g: &Team, mut stream: Stream| {
        // The end of the request is what starts the answer, many rings long.
        assert_eq!(stream.recv_exact(g, scratch.buffer())?, 5);
        stream.send_all(g, sent.buffer())?;
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        stream.send_all(g, b"hello")?;
        stream.shutdown(g, Shutdown::Write);
        let n = stream.recv_exact(g, got.buffer())?;
        stream.close(g)?;
        Ok(n)
    };
    let ((), n) = case.pair(&world, case.rings(4096), server, client);
    assert!(n == len && got.holds(0, len, 4, 0));
    world.end();
}

pub fn a_send_after_shutdown_is_a_broken_pipe(case: &Case) {
    let world = World::of(case);
    let memory = Memory::new(10);
    let server = |g: &Team, mut stream: Stream| {
        assert_eq!(stream.recv(g, memory.buffer())?, 0);
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        stream.shutdown(g, Shutdown::Write);
        stream.shutdown(g, Shutdown::Write);
        assert_eq!(stream.send(g, b"x"), Err(Error::BrokenPipe));
        assert_eq!(stream.try_send(g, b"x"), Err(Error::BrokenPipe));
        assert_eq!(stream.send_all(g, b"x"), Err(Error::BrokenPipe));
        assert_eq!(stream.reserve(g, 1).map(|span| span.len()), Err(Error::BrokenPipe));
        stream.close(g)
    };
    case.pair(&world, case.options(), server, client);
    world.end();
}

/// Over `peer` the other end's shutdown tells; TCP has no such sign but the reset that answers what
/// is sent to a closed socket.
pub fn a_peer_that_reads_no_more_breaks_the_pipe(case: &Case) {
    let world = World::of(case);
    let (memory, piece) = (Memory::new(10), Memory::filled(1, 0, 3000));
    let server = |g: &Team, mut stream: Stream| {
        assert_eq!(stream.recv_exact(g, memory.buffer().first(5))?, 5);
        if case.is_direct() {
            stream.shutdown(g, Shutdown::Read);
            // It can still send.
            stream.send_all(g, b"still")?;
            assert_eq!(stream.recv(g, memory.buffer())?, 0);
        }
        // The other end finds out before this one closes (direct), or because it does (TCP).
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        stream.send_all(g, b"hello")?;
        let broken = loop {
            match stream.send(g, piece.buffer()) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(
            broken == Error::BrokenPipe || (!case.is_direct() && broken == Error::ConnectionReset),
            "{broken:?}"
        );
        if case.is_direct() {
            assert_eq!(stream.recv_exact(g, memory.buffer().slice(5, 5))?, 5);
        }
        stream.close(g)
    };
    case.pair(&world, case.rings(4096), server, client);
    if case.is_direct() {
        assert_eq!(memory.copy(5, 5), b"still");
    }
    world.expect_all_free();
}

pub fn a_receive_after_shutdown_is_the_end(case: &Case) {
    let world = World::of(case);
    let memory = Memory::new(10);
    let server = |g: &Team, mut stream: Stream| {
        stream.shutdown(g, Shutdown::Read);
        assert_eq!(stream.recv(g, memory.buffer())?, 0);
        assert_eq!(stream.peek(g, 10)?.len(), 0);
        stream.send_all(g, b"over")?;
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        let n = stream.recv_exact(g, memory.buffer())?;
        stream.close(g)?;
        Ok(n)
    };
    let ((), n) = case.pair(&world, case.options(), server, client);
    assert_eq!((n, memory.copy(0, 4)), (4, b"over".to_vec()));
    world.end();
}

pub fn nothing_can_be_sent_and_received(case: &Case) {
    let world = World::of(case);
    let memory = Memory::new(10);
    let server = |g: &Team, mut stream: Stream| {
        // It does not wait, and says nothing of the end of the stream.
        assert_eq!(stream.recv(g, memory.buffer().first(0))?, 0);
        assert_eq!(stream.recv_exact(g, memory.buffer().first(1))?, 1);
        assert_eq!(stream.recv(g, memory.buffer().skip(1))?, 0);
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        assert_eq!(stream.send(g, memory.buffer().first(0))?, 0);
        stream.send_all(g, memory.buffer().first(0))?;
        assert_eq!(stream.send(g, b"x")?, 1);
        stream.close(g)
    };
    case.pair(&world, case.options(), server, client);
    world.end();
}

pub fn what_was_sent_before_close_is_delivered(case: &Case) {
    let world = World::of(case);
    let (sent, got) = (Memory::filled(5, 0, 60_000), Memory::new(60_001));
    let client = |g: &Team, mut stream: Stream| {
        stream.send_all(g, sent.buffer())?;
        let handle = stream.handle();
        stream.close(g)?;
        assert!(matches!(Stream::from_handle(g, world.there(), handle), Err(Error::BadHandle)));
        Ok(())
    };
    let server = |g: &Team, mut stream: Stream| {
        let n = stream.recv_exact(g, got.buffer())?;
        g.sync();
        stream.close(g)?;
        Ok(n)
    };
    let (n, ()) = case.pair(&world, case.rings(1 << 16), server, client);
    assert!(n == 60_000 && got.holds(0, n, 5, 0));
    world.end();
}

/// A message as large as the ring takes all that a receiver can grant, and the second one waits for
/// that.
pub fn messages_as_large_as_the_ring_leave_the_out_queue(case: &Case) {
    const RING: usize = 1 << 16;
    let world = World::of(case);
    let (sent, got) = (Memory::filled(6, 0, 2 * RING), Memory::new(2 * RING));
    // What waits outside of the receiver's ring; a direct stream has no such place.
    let until_left = |g: &Team, stream: &mut Stream, left: usize| -> Result<(), Error> {
        while !case.is_direct() && stream.out_queue(g)? > left as u64 {}
        Ok(())
    };
    let (waits, arrived) = (AtomicBool::new(case.is_direct()), AtomicBool::new(false));
    let until_set =
        |g: &Team, flag: &AtomicBool| while g.broadcast(u64::from(flag.load(Ordering::Acquire))) == 0 {};
    let client = |g: &Team, mut stream: Stream| {
        stream.send_all(g, sent.buffer().first(RING))?;
        stream.send_all(g, sent.buffer().skip(RING))?;
        until_left(g, &mut stream, RING)?;
        waits.store(true, Ordering::Release);
        until_left(g, &mut stream, 0)?;
        arrived.store(true, Ordering::Release);
        stream.close(g)
    };
    let server = |g: &Team, mut stream: Stream| {
        until_set(g, &waits);
        let mut n = stream.recv_exact(g, got.buffer().first(RING))?;
        until_set(g, &arrived);
        n += stream.recv_exact(g, got.buffer().skip(RING))?;
        assert_eq!(stream.recv(g, got.buffer())?, 0);
        stream.close(g)?;
        Ok(n)
    };
    let (n, ()) = case.pair(&world, case.rings(RING as u64), server, client);
    assert!(n == 2 * RING && got.holds(0, n, 6, 0));
    world.end();
}
