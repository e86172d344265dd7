//! Round trips of messages in the order of two queues.
//!
//! A stream takes about a thousand operations, so the rounds come in portions. One portion is
//! enqueued while a word holds it back. Two words measure its time: see `Timed`.

use super::portion::{BEGUN, ENDED, FREE, START, Timed};
use super::{End, LIMIT, settings, unfailed};
use crate::bench::{Bench, ByHand, Lent, Pinned, Step, Windows, Words};
use crate::measure::Run;
use crate::outcome::Outcome;
use crate::pair::Transport;
use crate::report::{Axis, Role, Row};
use crate::sockets::{Kind, Socket, are_cores_few, join, spawn};
use crate::{floor, foreign};
use gpunet_app::cli::spell;

const SIZES: [usize; 3] = [64, 1 << 10, 64 << 10];

/// Measures queues, compared with streams by hand and, over tcp, with plain programs.
pub fn measure(run: &mut Run<'_>, ends: [&Bench; 2], transport: Transport) -> Outcome<()> {
    let [bench, other] = ends;
    let (portions, rounds) = (run.effort.of(30, 300, 2000), Timed::of(bench).rounds);
    let is_one = std::ptr::eq(bench, other);
    let devices = if is_one { bench.title() } else { format!("{} and {}", bench.title(), other.title()) };
    let title = format!("{devices}, ping-pong of two queues, {}, round trip", transport.name());
    let mut setting = settings(bench, transport);
    if !is_one {
        setting.push(("other end", other.title()));
    }
    let through = if is_one { "pinned memory" } else { "the other device's memory" };
    setting.push(("samples", format!("the mean of {rounds} rounds that are enqueued together")));
    setting.push(("floor", format!("copies and words of two streams by hand, through {through}")));
    run.recorder.table("stream", title, Axis::TimeBySize, setting, 3 * SIZES.len())?;
    for size in SIZES {
        let name = |what: &str| format!("{}, {what}", spell(size as u64));
        let x = size as u64;
        let hand = "two streams by hand";
        let row = floor::best(|| Ok(Row::times(Role::Floor, name(hand), &by_hand(ends, size, portions)?)))?;
        run.recorder.row(row.at(hand, x));
        if transport == Transport::Tcp {
            let plain = "two plain programs";
            let samples = plain_tcp(size, portions * rounds)?;
            run.recorder.row(Row::times(Role::Reference, name(plain), &samples).at(plain, x));
        }
        let samples = by_queues(ends, transport, size, portions)?;
        run.recorder.row(Row::times(Role::Gpunet, name("two queues"), &samples).at("gpunet", x));
    }
    if !is_one && bench.is_gpu() && other.is_gpu() {
        foreign::in_stream_order(run.recorder);
    }
    Ok(())
}

fn by_queues(ends: [&Bench; 2], transport: Transport, size: usize, portions: u64) -> Outcome<Vec<u64>> {
    let (words, timed) = (Words::new(ends[0])?, Timed::of(ends[0]));
    let [mut near, mut far] = End::both(ends, transport, size)?;
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

/// Adds the queue's failure, if it has one, to an error.
fn with_failure(error: Box<dyn std::error::Error>, end: &End) -> Box<dyn std::error::Error> {
    match unfailed(&end.queue) {
        Ok(()) => error,
        Err(failure) => format!("{error}; {failure}").into(),
    }
}

/// The memory of two streams by hand: a window and a word for each way, at the addresses of their
/// writers and of their readers.
struct Passage {
    /// The addresses for the writing end.
    out: [u64; 2],
    tell: [u64; 2],
    /// The addresses for the reading end.
    back: [u64; 2],
    heard: [u64; 2],
    _memory: Memory,
}

#[expect(dead_code, reason = "only kept")]
enum Memory {
    Pinned(Pinned),
    Windows(Windows),
}

impl Passage {
    /// Two streams of one device do not use windows in the device's memory: on an H200 two streams
    /// with copies there that wait for each other make no progress.
    fn between(ends: [&Bench; 2], size: usize) -> Outcome<Self> {
        let word = size.next_multiple_of(128);
        let len = word + 128;
        if std::ptr::eq(ends[0], ends[1]) {
            let pinned = ends[0].pinned(2 * len)?;
            let out = [0, 1].map(|end| pinned.device(end * len) as u64);
            let tell = out.map(|window| window + word as u64);
            let ([out_near, out_far], [tell_near, tell_far]) = (out, tell);
            let (back, heard) = ([out_far, out_near], [tell_far, tell_near]);
            return Ok(Self { out, tell, back, heard, _memory: Memory::Pinned(pinned) });
        }
        let windows = Windows::between(ends, len)?;
        let address = |at: fn(&Windows, usize, usize) -> *mut u8, offset| {
            [0, 1].map(|end| at(&windows, end, offset) as u64)
        };
        let (out, tell) = (address(Windows::far, 0), address(Windows::far, word));
        let (back, heard) = (address(Windows::near, 0), address(Windows::near, word));
        Ok(Self { out, tell, back, heard, _memory: Memory::Windows(windows) })
    }
}

/// The same with words and copies: the message is copied into a window, a word publishes it, and it
/// is copied out.
fn by_hand(ends: [&Bench; 2], size: usize, portions: u64) -> Outcome<Vec<u64>> {
    let (words, timed) = ([Words::new(ends[0])?, Words::new(ends[1])?], Timed::of(ends[0]));
    let balls = [ends[0].lend(size)?, ends[1].lend(size)?];
    let passage = Passage::between(ends, size)?;
    // Last, so that the memory that they use outlives them.
    let streams: [ByHand; 2] = [ends[0].by_hand()?, ends[1].by_hand()?];
    for end in 0..2 {
        let ready = Step::Write { word: words[end].address(FREE), value: 1 };
        streams[end].enqueue(&[Step::Write { word: passage.heard[end], value: 0 }, ready])?;
        words[end].wait(FREE, 1, LIMIT)?;
    }
    let out = |end: usize| Step::Copy { to: passage.out[end], from: balls[end].address(), len: size };
    let back = |end: usize| Step::Copy { to: balls[end].address(), from: passage.back[end], len: size };
    let [start, begun, ended] = [START, BEGUN, ENDED].map(|word| words[0].address(word));
    let (mut samples, mut round) = (Vec::new(), 0);
    for portion in 1..=portions {
        streams[0].enqueue(&[
            Step::Wait { word: start, value: portion },
            Step::Write { word: begun, value: portion },
        ])?;
        for _ in 0..timed.rounds {
            round += 1;
            let waits = |end: usize| Step::Wait { word: passage.heard[end], value: round };
            let tells = |end: usize| Step::Write { word: passage.tell[end], value: round };
            streams[1].enqueue(&[waits(1), back(1), out(1), tells(1)])?;
            streams[0].enqueue(&[out(0), tells(0), waits(0), back(0)])?;
        }
        streams[0].enqueue(&[Step::Write { word: ended, value: portion }])?;
        samples.push(timed.round(&words[0], portion, LIMIT)?);
    }
    drop(streams);
    balls.into_iter().for_each(Lent::done);
    Ok(samples)
}

/// Measures round trips between two threads with plain sockets.
fn plain_tcp(size: usize, rounds: u64) -> Outcome<Vec<u64>> {
    let mut pairs = Socket::pairs(Kind::Tcp, 1)?;
    let Some([mut near, mut far]) = pairs.pop() else { return Err("no sockets".into()) };
    // Only small messages may be sent on a spinning socket.
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
