//! Bytes come back as they were sent.

use crate::support::{Case, Memory, Team, World, pattern};
use gpunet_device::{Error, Group, Stream};

/// Sends back whatever comes, in pieces of at most `piece` bytes.
pub fn serve_echo(g: &Team, mut stream: Stream, memory: &Memory, piece: usize) -> Result<(), Error> {
    loop {
        match stream.recv(g, memory.buffer().first(piece))? {
            0 => return stream.close(g),
            n => stream.send_all(g, memory.buffer().first(n))?,
        }
    }
}

fn echo(case: &Case, ring: usize, sizes: &[usize]) {
    let world = World::of(case);
    let longest = sizes.iter().copied().max().unwrap_or(1);
    let (served, sent, back) = (Memory::new(ring), Memory::filled(1, 0, longest), Memory::new(longest));
    let client = |g: &Team, mut stream: Stream| {
        for &size in sizes {
            // No more on its way than the rings hold: this end does not read while it sends.
            let mut done = 0;
            while done < size {
                let n = (size - done).min(ring);
                stream.send_all(g, sent.buffer().slice(done, n))?;
                assert_eq!(stream.recv_exact(g, back.buffer().slice(done, n))?, n);
                done += n;
            }
            if g.rank() == g.size() - 1 {
                assert!(back.holds(0, size, 1, 0), "{size} bytes came back changed");
            }
        }
        stream.close(g)
    };
    case.pair(&world, case.rings(ring as u64), |g, s| serve_echo(g, s, &served, ring), client);
    world.end();
}

pub fn messages_of_all_sizes_come_back(case: &Case) {
    let sizes = [1, 2, 3, 15, 16, 17, 63, 64, 65, 1023, 4095, 4096, 4097, 65_535, 65_536, 1 << 20];
    echo(case, 1 << 18, &sizes);
}

pub fn rings_of_every_size_work(case: &Case) {
    for ring in [4 << 10, 16 << 10, 1 << 20] {
        echo(case, ring, &[1, 4096, case.scaled(3 * ring / 2)]);
    }
}

pub fn buffers_may_lie_at_any_offset(case: &Case) {
    const LEN: usize = 75;
    const PLACE: usize = 96;
    let world = World::of(case);
    let step = if case.lanes > 8 { 3 } else { 1 };
    let offsets = || (0..16).step_by(step);
    let pairs: Vec<(usize, usize)> = offsets().flat_map(|a| offsets().map(move |b| (a, b))).collect();
    // Message `i` lies `from` bytes into its place here, and is to come to `to` bytes into its
    // place there.
    let byte = |at: usize| {
        let (i, from) = (at / PLACE, pairs[at / PLACE].0);
        (at % PLACE).checked_sub(from).filter(|&k| k < LEN).map_or(0xaa, |k| pattern(2, i * LEN + k))
    };
    let (sent, got) = (Memory::from_fn(PLACE * pairs.len(), byte), Memory::new(PLACE * pairs.len()));
    let server = |g: &Team, mut stream: Stream| {
        for (i, &(_, to)) in pairs.iter().enumerate() {
            assert_eq!(stream.recv_exact(g, got.buffer().slice(i * PLACE + to, LEN))?, LEN);
        }
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        for (i, &(from, _)) in pairs.iter().enumerate() {
            stream.send_all(g, sent.buffer().slice(i * PLACE + from, LEN))?;
        }
        stream.close(g)
    };
    case.pair(&world, case.rings(1 << 16), server, client);
    for (i, &(from, to)) in pairs.iter().enumerate() {
        assert!(got.holds(i * PLACE + to, LEN, 2, i * LEN), "from offset {from} to offset {to}");
        let around = [got.copy(i * PLACE, to), got.copy(i * PLACE + to + LEN, PLACE - to - LEN)];
        assert!(around.iter().flatten().all(|&b| b == 0xee), "bytes around offset {to} were written");
    }
    world.end();
}

pub fn a_message_far_larger_than_the_ring_arrives(case: &Case) {
    let world = World::of(case);
    let len = case.scaled(1 << 20);
    let (sent, got) = (Memory::filled(3, 0, len), Memory::new(len));
    let server = |g: &Team, mut stream: Stream| {
        let n = stream.recv_exact(g, got.buffer())?;
        stream.close(g)?;
        Ok(n)
    };
    let client = |g: &Team, mut stream: Stream| {
        stream.send_all(g, sent.buffer())?;
        stream.close(g)
    };
    let (n, ()) = case.pair(&world, case.rings(4096), server, client);
    assert_eq!(n, len);
    assert!(got.holds(0, len, 3, 0));
    world.end();
}
