//! Small messages, which travel in a line as well as through the ring.

use crate::support::rng::Rng;
use crate::support::world::{Case, Home};
use crate::support::{Memory, Team, World};
use gpunet_device::{Stream, TransportKind};

const ROUNDS: usize = 40;
/// The longest message: some have a line, some are too long for one.
const LONGEST: u64 = 400;

/// Two ends that answer each other, by messages of any length, in one piece or in two, received
/// whole or in part.
pub fn play(mut rng: Rng) {
    // Streams have lines if the ends lie apart or several lanes call.
    let apart = rng.below(2) == 0;
    let case = Case {
        transport: TransportKind::Peer,
        lanes: rng.one_of(if apart { &[1, 2, 3] } else { &[2, 2, 3] }),
        placement: Default::default(),
        home: rng.one_of(&[Home::Embedded, Home::Daemon]),
        apart,
    };
    let world = World::of(&case);
    // Of each message: its length, how much of it is sent at first, and how much is received at a
    // time.
    let plan: Vec<[usize; 3]> = (0..ROUNDS)
        .map(|_| {
            let len = 1 + rng.below(LONGEST) as usize;
            [len, rng.one_of(&[len, len, 1 + len / 2]), rng.one_of(&[len, len, 512, 1 + len / 3])]
        })
        .collect();
    let bytes: usize = plan.iter().map(|[len, ..]| len).sum();
    let memory = [Memory::filled(1, 0, bytes), Memory::new(bytes), Memory::new(bytes)];
    let [out, there, back] = &memory;
    let client = |g: &Team, mut stream: Stream| {
        let mut at = 0;
        for &[len, first, most] in &plan {
            let (first, second) =
                (out.buffer().slice(at, first), out.buffer().slice(at + first, len - first));
            if second.is_empty() {
                stream.send_all(g, first)?;
            } else {
                stream.sender().send_more(g, first)?;
                stream.send_all(g, second)?;
            }
            receive(g, &mut stream, back, [at, len, most])?;
            at += len;
        }
        stream.close(g)?;
        Ok(at)
    };
    let server = |g: &Team, mut stream: Stream| {
        let mut at = 0;
        for &[len, first, most] in &plan {
            receive(g, &mut stream, there, [at, len, most.max(first)])?;
            stream.send_all(g, there.buffer().slice(at, len))?;
            at += len;
        }
        let end = stream.recv(g, there.buffer().first(1))?;
        stream.close(g)?;
        Ok(at + end)
    };
    let (served, got) = case.pair(&world, case.rings(1 << 16), server, client);
    assert_eq!((served, got), (bytes, bytes), "{case:?}");
    assert!(there.holds(0, bytes, 1, 0) && back.holds(0, bytes, 1, 0), "{case:?}: wrong bytes");
    world.end();
}

/// Receives a message of `len` bytes, at most `most` at a time.
fn receive(
    g: &Team,
    stream: &mut Stream,
    into: &Memory,
    [at, len, most]: [usize; 3],
) -> gpunet_device::Result<()> {
    let mut have = 0;
    while have < len {
        // A buffer for more than the message, too: nothing follows it.
        let room = most.min(into.buffer().len() - at - have).max(1);
        match stream.recv(g, into.buffer().slice(at + have, room))? {
            0 => return Err(gpunet_device::Error::ConnectionReset),
            n => have += n,
        }
    }
    assert_eq!(have, len, "more than the peer has sent");
    Ok(())
}
