//! Messages that a kernel writes, queues carry, and a kernel checks byte by byte.
//!
//! Both kernels run all the time, and take turns by words that the queues write and wait for. All
//! messages use the same memory, so a byte that is left of the previous message is found.

use super::{End, LIMIT, settings, unfailed};
use crate::bench::{Bench, Words};
use crate::measure::Run;
use crate::outcome::Outcome;
use crate::pair::Transport;
use crate::report::{Axis, Role, Row, counted};
use gpunet_bench_kernel::Turns;
use std::time::{Duration, Instant};

/// Messages that are enqueued together; at most two such portions are under way.
const PORTION: u64 = 16;
const THREADS: u32 = 128;

/// Words: the turns of both blocks, and the progress of the queues.
const FILL: usize = 0;
const FILLED: usize = 1;
const CHECK: usize = 2;
const CHECKED: usize = 3;
const SENT: usize = 4;

/// Loads the kernel.
pub fn prepare(bench: &Bench) -> Outcome<()> {
    bench.prepare::<Turns>(THREADS)
}

/// Checks `count` messages, or as many as fit into `limit`. Returns whether all were right.
pub fn check(
    run: &mut Run<'_>,
    bench: &Bench,
    transport: Transport,
    count: u64,
    limit: Duration,
) -> Outcome<bool> {
    let threads = bench.threads(THREADS);
    let title = format!(
        "{}, checked messages of {} to {} B, {}",
        bench.title(),
        Turns::SHORTEST,
        Turns::LONGEST,
        transport.name()
    );
    let mut setting = settings(bench, transport);
    setting.push(("blocks", format!("{} a block", counted(threads, "thread"))));
    run.recorder.table("stream", title, Axis::None, setting, 4)?;
    let words = Words::new(bench)?;
    let [mut near, mut far] = End::both([bench; 2], transport, Turns::LONGEST)?;
    let job = bench.job(0, 5)?;
    let launch = bench.start(2, threads, |_| Turns {
        from: near.ball.buffer(),
        to: far.ball.buffer(),
        fill: words.there(FILL).as_ptr(),
        filled: words.there(FILLED).as_ptr(),
        check: words.there(CHECK).as_ptr(),
        checked: words.there(CHECKED).as_ptr(),
        results: job.results(),
    })?;
    let start = Instant::now();
    let played = play(&words, &mut near, &mut far, count, limit);
    let took = start.elapsed();
    // In any case, so that the kernel ends.
    [FILL, CHECK].into_iter().for_each(|word| words.here(word).publish(Turns::STOP));
    let counts = bench.finish(launch, &job)?;
    let sent = played?;
    unfailed(&near.queue)?;
    unfailed(&far.queue)?;
    near.done()?;
    far.done()?;
    let [filled, checked, wrong, stale, first] = counts[..] else { return Err("five counts".into()) };
    let mut number = |name: &str, value: u64, unit| {
        run.recorder.row(Row::number(Role::Gpunet, name, value as f64, unit));
    };
    let bytes: u64 = (1..=checked).map(|turn| Turns::len_of(turn) as u64).sum();
    number("checked, every byte", checked, "messages");
    number("checked", bytes, "bytes");
    number("with a wrong byte", wrong, "messages");
    number("stale: with bytes of the message before", stale, "messages");
    run.recorder.row(Row::number(
        Role::Gpunet,
        "rate",
        checked as f64 / took.as_secs_f64().max(1e-9),
        "messages a second",
    ));
    if sent < count {
        run.recorder.note(format!("{sent} of {count} messages in {} s: --seconds", limit.as_secs()));
    }
    if wrong > 0 {
        run.recorder.note(format!("WRONG: message {first} was the first"));
    }
    let all = [filled, checked] == [sent; 2];
    if !all {
        run.recorder.note(format!("WRONG: {sent} messages sent, {filled} made, {checked} checked"));
    }
    Ok(all && wrong == 0)
}

/// Enqueues the messages in portions. Returns how many went through.
fn play(words: &Words, near: &mut End, far: &mut End, count: u64, limit: Duration) -> Outcome<u64> {
    let start = Instant::now();
    let mut sent = 0;
    while sent < count && start.elapsed() < limit {
        let portion = PORTION.min(count - sent);
        for turn in sent + 1..=sent + portion {
            let len = Turns::len_of(turn);
            near.queue.write(words.there(FILL), turn)?;
            near.queue.wait_word(words.there(FILLED), turn)?;
            near.queue.send(&mut near.sender, near.ball.buffer().first(len))?;
            far.queue.recv(&mut far.receiver, far.ball.buffer().first(len))?;
            far.queue.write(words.there(CHECK), turn)?;
            far.queue.wait_word(words.there(CHECKED), turn)?;
        }
        sent += portion;
        near.queue.write(words.there(SENT), sent)?;
        words.wait(CHECKED, sent.saturating_sub(PORTION), LIMIT)?;
    }
    words.wait(SENT, sent, LIMIT)?;
    words.wait(CHECKED, sent, LIMIT)?;
    Ok(sent)
}
