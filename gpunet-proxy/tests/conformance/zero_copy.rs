//! Work in the ring itself: reserve and commit, peek and release.

use crate::support::{Case, Memory, Team, World, pattern};
use gpunet_device::{Error, Group, RingSpan, Stream};

/// Byte `index` of a span.
fn byte(span: RingSpan, index: usize) -> *mut u8 {
    match index.checked_sub(span.first.len) {
        None => span.first.ptr.wrapping_add(index),
        Some(rest) => span.second.ptr.wrapping_add(rest),
    }
}

/// Writes bytes from `position` of stream `seed` into a span, the lanes side by side.
fn write(g: &Team, span: RingSpan, seed: u64, position: usize) {
    for i in (g.rank() as usize..span.len()).step_by(g.size() as usize) {
        // SAFETY: inside the reserved span, which is this group's, and this lane's byte of it.
        unsafe { byte(span, i).write_volatile(pattern(seed, position + i)) };
    }
}

/// Returns whether a span holds bytes from `position` of stream `seed`. Every lane reads all of it.
fn holds(span: RingSpan, seed: u64, position: usize) -> bool {
    // SAFETY: inside the peeked span, which nobody writes until it is released.
    (0..span.len()).all(|i| unsafe { byte(span, i).read_volatile() } == pattern(seed, position + i))
}

pub fn reserved_space_is_sent_once_committed(case: &Case) {
    const LEN: usize = 3000;
    let world = World::of(case);
    let total = case.scaled(40 * LEN) / LEN * LEN;
    let got = Memory::new(total + 1);
    let client = |g: &Team, mut stream: Stream| {
        assert_eq!(stream.reserve(g, 0).map(|span| span.len()), Err(Error::InvalidArgument));
        let mut sent = 0;
        while sent < total {
            let span = stream.reserve(g, LEN.min(total - sent))?;
            assert!(!span.is_empty() && span.len() <= LEN);
            write(g, span, 1, sent);
            // Not all of what was reserved has to go.
            let n = span.len() - span.len() / 3;
            stream.commit(g, n);
            sent += n;
        }
        stream.close(g)
    };
    let server = |g: &Team, mut stream: Stream| {
        let n = stream.recv_exact(g, got.buffer())?;
        stream.close(g)?;
        Ok(n)
    };
    let (n, ()) = case.pair(&world, case.rings(4096), server, client);
    assert_eq!(n, total);
    assert!(got.holds(0, total, 1, 0));
    world.end();
}

pub fn peeked_bytes_stay_until_released(case: &Case) {
    let world = World::of(case);
    let total = case.scaled(100_000);
    let sent = Memory::filled(2, 0, total);
    let client = |g: &Team, mut stream: Stream| {
        stream.send_all(g, sent.buffer())?;
        stream.close(g)
    };
    let server = |g: &Team, mut stream: Stream| {
        let mut at = 0;
        loop {
            let first = stream.peek(g, 3000)?;
            if first.is_empty() {
                break;
            }
            assert!(first.len() <= 3000 && holds(first, 2, at));
            let again = stream.peek(g, 3000)?;
            assert!(again.len() >= first.len() && holds(again, 2, at));
            // All lanes have read before any lets go; part of it stays for the next look.
            g.sync();
            let n = again.len().div_ceil(2);
            stream.release(g, n);
            at += n;
        }
        stream.close(g)?;
        Ok(at)
    };
    let (n, ()) = case.pair(&world, case.rings(4096), server, client);
    assert_eq!(n, total);
    world.end();
}

pub fn an_incomplete_request_waits_for_more_than_is_there(case: &Case) {
    const LEN: usize = 1000;
    let world = World::of(case);
    let requests = case.scaled(20);
    let (sent, answer) = (Memory::filled(3, 0, requests * LEN), Memory::new(1));
    let client = |g: &Team, mut stream: Stream| {
        for request in 0..requests {
            for at in [0, LEN / 2, LEN - 1] {
                let end = if at == 0 {
                    LEN / 2
                } else if at == LEN / 2 {
                    LEN - 1
                } else {
                    LEN
                };
                stream.send_all(g, sent.buffer().slice(request * LEN + at, end - at))?;
            }
            assert_eq!(stream.recv_exact(g, answer.buffer())?, 1);
        }
        stream.close(g)
    };
    let server = |g: &Team, mut stream: Stream| {
        assert_eq!(
            stream.receiver().peek_more(g, 4096, 1).map(|span| span.len()),
            Err(Error::MessageTooLong)
        );
        for request in 0..requests {
            let mut seen = stream.peek(g, usize::MAX)?;
            while seen.len() < LEN {
                let more = stream.receiver().peek_more(g, seen.len(), usize::MAX)?;
                assert!(more.len() > seen.len());
                seen = more;
            }
            assert!(seen.len() == LEN && holds(seen, 3, request * LEN));
            assert_eq!(stream.receiver().try_peek(g, usize::MAX)?.len(), LEN);
            g.sync();
            stream.release(g, LEN);
            assert_eq!(stream.receiver().try_peek(g, 1).map(|span| span.len()), Err(Error::WouldBlock));
            let space = stream.sender().try_reserve(g, 1)?;
            write(g, space, 4, 0);
            stream.commit(g, 1);
        }
        // At the end it shows what there is.
        assert_eq!(stream.receiver().peek_more(g, 0, 1)?.len(), 0);
        stream.close(g)
    };
    case.pair(&world, case.rings(4096), server, client);
    world.end();
}
