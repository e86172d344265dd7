//! Memory operations of CUDA streams: one stream waits for words that another one writes, and
//! answers.

use super::device::{Step, Streams, TestDevice};
use super::{Found, LIMIT};
use std::time::{Duration, Instant};

/// Round trips between the two streams; a stream takes about a thousand operations.
const ROUNDS: u64 = 200;
/// Where the words lie, on lines of their own: what the first stream waits for, what it answers,
/// what the CPU ends.
const PING: usize = 0;
const PONG: usize = 256;
const GO: usize = 512;
/// How long the first stream is seen to wait.
const WAIT: Duration = Duration::from_millis(20);

pub fn run(device: &TestDevice) -> Result<Found, String> {
    if let Some(why) = device.no_stream_operations() {
        return Ok(Found::Slow(
            format!("{why}; queues use kernels instead"),
            "do what the line says, if queues on CUDA streams are to wait without a kernel".to_owned(),
        ));
    }
    let streams = device.streams(device.job(4096, 0)?)?;
    // A wait that passes at once would not be noticed below.
    streams.enqueue(0, &[(Step::Wait, GO, 1), (Step::Write, PONG, 1)])?;
    std::thread::sleep(WAIT);
    if streams.word(PONG).observe() != 0 || streams.are_idle()? {
        return Err("a stream did not wait for a word".to_owned());
    }
    streams.word(GO).publish(1);
    finish(&streams, "a store of the CPU does not end a stream's wait")?;
    let rounds = 2..ROUNDS + 2;
    let answers: Vec<_> =
        rounds.clone().flat_map(|at| [(Step::Wait, PING, at), (Step::Write, PONG, at)]).collect();
    let calls: Vec<_> = rounds.flat_map(|at| [(Step::Write, PING, at), (Step::Wait, PONG, at)]).collect();
    let start = Instant::now();
    streams.enqueue(0, &answers)?;
    streams.enqueue(1, &calls)?;
    finish(&streams, "another stream's write does not end a stream's wait")?;
    let us = start.elapsed().as_micros() as u64 / ROUNDS;
    match streams.word(PONG).observe() {
        last if last == ROUNDS + 1 => Ok(Found::Right(format!(
            "a stream waits for words of the CPU and of another stream; {ROUNDS} round trips, {us} us each"
        ))),
        last => Err(format!("the last word is {last}, not {}", ROUNDS + 1)),
    }
}

fn finish(streams: &Streams, otherwise: &str) -> Result<(), String> {
    let start = Instant::now();
    while !streams.are_idle()? {
        if start.elapsed() > LIMIT {
            return Err(otherwise.to_owned());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}
