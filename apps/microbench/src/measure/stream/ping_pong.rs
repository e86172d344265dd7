//! Messages there and back in the order of two queues.
//!
//! A stream takes about a thousand operations, so the rounds come in portions. One portion is enqueued while a word holds it back.
//! Its time is told by two words: see `Timed`.

use super::portion::{BEGUN, ENDED, FREE, START, Timed};
use super::{End, LIMIT, settings, unfailed};
use crate::bench::{Bench, ByHand, Lent, Outcome, Step, Words};
use crate::floor;
use crate::measure::Run;
use crate::pair::Transport;
use crate::report::{Axis, Role, Row};
use crate::sockets::{Kind, Socket, are_cores_few, join, spawn};
use gpunet_app::cli::spell;

const SIZES: [usize; 3] = [64, 1 << 10, 64 << 10];

/// Measures queues beside streams by hand and, over tcp, beside plain programs.
pub fn measure(run: &mut Run<'_>, bench: &Bench, transport: Transport) -> Outcome<()> {
    let (portions, rounds) = (run.effort.of(30, 300, 2000), Timed::of(bench).rounds);
    let title = format!("{}, ping-pong of two queues, {}, round trip", bench.title(), transport.name());
    let mut setting = settings(bench, transport);
    setting.push(("samples", format!("the mean of {rounds} rounds that are enqueued together")));
    setting.push(("floor", "copies and words of two streams by hand, through pinned memory".to_owned()));
    run.recorder.table("stream", title, Axis::TimeBySize, setting, 3 * SIZES.len())?;
    for size in SIZES {
        let name = |what: &str| format!("{}, {what}", spell(size as u64));
        let x = size as u64;
        let hand = "two streams by hand";
        let row = floor::best(|| Ok(Row::times(Role::Floor, name(hand), &by_hand(bench, size, portions)?)))?;
        run.recorder.row(row.at(hand, x));
        if transport == Transport::Tcp {
            let plain = "two plain programs";
            let samples = plain_tcp(size, portions * rounds)?;
            run.recorder.row(Row::times(Role::Reference, name(plain), &samples).at(plain, x));
        }
        let samples = by_queues(bench, transport, size, portions)?;
        run.recorder.row(Row::times(Role::Gpunet, name("two queues"), &samples).at("gpunet", x));
    }
    Ok(())
}

fn by_queues(bench: &Bench, transport: Transport, size: usize, portions: u64) -> Outcome<Vec<u64>> {
    let (words, timed) = (Words::new(bench)?, Timed::of(bench));
    let [mut near, mut far] = End::both(bench, transport, size)?;
    let ball: Vec<u8> = (0..size).map(|at| (at * 7 + at / 251 + 1) as u8).collect();
    near.ball.write(&ball)?;
    let mut samples = Vec::new();
    for portion in 1..=portions {
        near.queue.wait_word(words.there(START), portion)?;
        near.queue.write(words.there(BEGUN), portion)?;
        for _ in 0..timed.rounds {
            far.recv()?;
            far.send()?;
            near.send()?;
            near.recv()?;
        }
        near.queue.write(words.there(ENDED), portion)?;
        samples.push(timed.round(&words, portion, LIMIT).map_err(|error| with_failure(error, &near))?);
    }
    unfailed(&near.queue)?;
    unfailed(&far.queue)?;
    if !near.ball.holds(&ball)? || !far.ball.holds(&ball)? {
        return Err("the message has changed on its way".into());
    }
    near.done()?;
    far.done()?;
    Ok(samples)
}

/// What the queue knows about why it stood still.
fn with_failure(error: Box<dyn std::error::Error>, end: &End) -> Box<dyn std::error::Error> {
    match unfailed(&end.queue) {
        Ok(()) => error,
        Err(failure) => format!("{error}; {failure}").into(),
    }
}

/// The same by words and copies: the message is copied into a window, a word tells, and it is copied out.
///
/// Not through windows in memory of the device: on an H200 two streams with copies there that wait for each other stand still.
fn by_hand(bench: &Bench, size: usize, portions: u64) -> Outcome<Vec<u64>> {
    let (to_far, to_near) = (FREE, FREE + 1);
    let (words, timed) = (Words::new(bench)?, Timed::of(bench));
    let balls = [bench.lend(size)?, bench.lend(size)?];
    let pinned = bench.pinned(2 * size)?;
    let window = |end: usize| pinned.device(end * size) as u64;
    // Last, so that what they use outlives them.
    let [near, far]: [ByHand; 2] = [bench.by_hand()?, bench.by_hand()?];
    let out = |end: usize| Step::Copy { to: window(end), from: balls[end].address(), len: size };
    let back = |end: usize| Step::Copy { to: balls[end].address(), from: window(1 - end), len: size };
    let [start, begun, ended] = [START, BEGUN, ENDED].map(|word| words.address(word));
    let (tell_far, tell_near) = (words.address(to_far), words.address(to_near));
    let (mut samples, mut round) = (Vec::new(), 0);
    for portion in 1..=portions {
        near.enqueue(&[
            Step::Wait { word: start, value: portion },
            Step::Write { word: begun, value: portion },
        ])?;
        for _ in 0..timed.rounds {
            round += 1;
            let waits = |word| Step::Wait { word, value: round };
            let tells = |word| Step::Write { word, value: round };
            far.enqueue(&[waits(tell_far), back(1), out(1), tells(tell_near)])?;
            near.enqueue(&[out(0), tells(tell_far), waits(tell_near), back(0)])?;
        }
        near.enqueue(&[Step::Write { word: ended, value: portion }])?;
        samples.push(timed.round(&words, portion, LIMIT)?);
    }
    drop([near, far]);
    balls.into_iter().for_each(Lent::done);
    Ok(samples)
}

/// Round trips between two threads with plain sockets.
fn plain_tcp(size: usize, rounds: u64) -> Outcome<Vec<u64>> {
    let mut pairs = Socket::pairs(Kind::Tcp, 1)?;
    let Some([mut near, mut far]) = pairs.pop() else { return Err("no sockets".into()) };
    // A spinning socket takes small messages only.
    let spins = !are_cores_few() && size <= 4096;
    near.spin(spins)?;
    far.spin(spins)?;
    let samples = std::thread::scope(|scope| -> std::io::Result<Vec<u64>> {
        let echo = spawn(scope, move || far.echo(size))?;
        let mut message = vec![1; size];
        let samples: std::io::Result<Vec<u64>> = (0..rounds).map(|_| near.round_trip(&mut message)).collect();
        drop(near);
        join(echo)?;
        samples
    })?;
    Ok(samples)
}
