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
