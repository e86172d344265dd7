//! The cost of enqueueing: the program's side of a queue.

use super::{End, LIMIT, settings};
use crate::bench::{Bench, Step, Words};
use crate::measure::Run;
use crate::outcome::Outcome;
use crate::pair::Transport;
use crate::report::{Axis, Role, Row};
use std::time::Instant;

const SIZE: usize = 64;
/// Operations of a kind that are enqueued behind a word; they are too few to fill a stream.
const PORTION: u64 = 20;
const START: usize = 0;
const OTHER: usize = 1;
const ENDED: usize = 2;

/// An operation of a queue.
#[derive(Clone, Copy)]
enum Kind {
    Send,
    Recv,
    Write,
    Wait,
}

/// Measures the calls of queues, compared with the calls that a program would make by hand.
pub fn measure(run: &mut Run<'_>, bench: &Bench) -> Outcome<()> {
    let portions = run.effort.of(20, 100, 1000);
    let title = format!("{}, enqueueing: one call", bench.title());
    let mut setting = settings(bench, Transport::Tcp);
    setting.push(("operations", format!("{PORTION} behind one that waits")));
    run.recorder.table("stream", title, Axis::None, setting, 6)?;
    let rows = [("by hand: wait, copy, write", 0, true), ("by hand: write", 1, false)];
    for (name, x, is_message) in rows {
        let samples = by_hand(bench, portions, is_message)?;
        run.recorder.row(Row::times(Role::Floor, name, &samples).at(name, x));
    }
    let rows = [
        ("Queue::send, 64 B", 0, Kind::Send),
        ("Queue::recv, 64 B", 0, Kind::Recv),
        ("Queue::write", 1, Kind::Write),
        ("Queue::wait_word", 1, Kind::Wait),
    ];
    for (name, x, kind) in rows {
        let samples = by_queue(bench, portions, kind)?;
        run.recorder.row(Row::times(Role::Gpunet, name, &samples).at(name, x));
    }
    Ok(())
}

fn by_queue(bench: &Bench, portions: u64, kind: Kind) -> Outcome<Vec<u64>> {
    let words = Words::new(bench)?;
    let [mut near, mut far] = End::both([bench; 2], Transport::Tcp, SIZE)?;
    // The bytes of a portion, which the other end sends or receives as one message.
    let all = bench.lend(SIZE * PORTION as usize)?;
    let mut samples = Vec::new();
    for portion in 1..=portions {
        near.queue.wait_word(words.there(START), portion)?;
        for _ in 0..PORTION {
            let start = Instant::now();
            match kind {
                Kind::Send => near.send()?,
                Kind::Recv => near.recv()?,
                Kind::Write => near.queue.write(words.there(OTHER), portion)?,
                Kind::Wait => near.queue.wait_word(words.there(START), portion)?,
            }
            samples.push(start.elapsed().as_nanos() as u64);
        }
        near.queue.write(words.there(ENDED), portion)?;
        words.here(START).publish(portion);
        match kind {
            Kind::Send => far.queue.recv(&mut far.receiver, all.buffer())?,
            Kind::Recv => far.queue.send(&mut far.sender, all.buffer())?,
            Kind::Write | Kind::Wait => {}
        }
        words.wait(ENDED, portion, LIMIT)?;
    }
    near.done()?;
    far.done()?;
    all.done();
    Ok(samples)
}

/// Measures the calls of a message, or of one word.
fn by_hand(bench: &Bench, portions: u64, is_message: bool) -> Outcome<Vec<u64>> {
    let words = Words::new(bench)?;
    let [from, to] = [bench.lend(SIZE)?, bench.lend(SIZE)?];
    let stream = bench.by_hand()?;
    let [start, other, ended] = [START, OTHER, ENDED].map(|word| words.address(word));
    let mut samples = Vec::new();
    for portion in 1..=portions {
        stream.enqueue(&[Step::Wait { word: start, value: portion }])?;
        let message = [
            Step::Wait { word: start, value: portion },
            Step::Copy { to: to.address(), from: from.address(), len: SIZE },
            Step::Write { word: other, value: portion },
        ];
        let steps = if is_message { &message[..] } else { &message[2..] };
        for _ in 0..PORTION {
            let called = Instant::now();
            stream.enqueue(steps)?;
            samples.push(called.elapsed().as_nanos() as u64);
        }
        stream.enqueue(&[Step::Write { word: ended, value: portion }])?;
        words.here(START).publish(portion);
        words.wait(ENDED, portion, LIMIT)?;
    }
    drop(stream);
    [from, to].into_iter().for_each(crate::bench::Lent::done);
    Ok(samples)
}
