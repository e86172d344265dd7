//! How many queues may wait at a time without holding up another one. The hardware has fewer queues
//! than a program may have streams (`CUDA_DEVICE_MAX_CONNECTIONS`): streams that share one wait for
//! each other.

use super::portion::{BEGUN, ENDED, FREE, START, Timed};
use super::{LIMIT, RING, options, settings, unfailed};
use crate::bench::{Bench, ByHand, Lent, Step, Words};
use crate::measure::Run;
use crate::outcome::Outcome;
use crate::pair::Transport;
use crate::report::{Axis, Role, Row, counted};
use crate::sockets::{are_cores_few, spin};
use gpunet_device::{Options, TransportKind};
use gpunet_proxy::queue::Queue;
use gpunet_proxy::socket::Receiver;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const COUNTS: [usize; 6] = [7, 8, 16, 31, 33, 40];
const SIZE: usize = 64;
/// The time after which the queue counts as held up.
const STANDS_STILL: Duration = Duration::from_secs(2);
const VARIABLE: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// Words: the first is never written, and a stream signals itself by the other.
const NEVER: usize = FREE;
const SELF: usize = FREE + 1;

/// Measures a queue while others wait.
pub fn measure(run: &mut Run<'_>, bench: &Bench, transport: Transport) -> Outcome<()> {
    let portions = run.effort.of(20, 100, 500);
    let title =
        format!("{}, a queue beside others that wait, {}, round trip", bench.title(), transport.name());
    let mut setting = settings(bench, transport);
    setting.push((VARIABLE, std::env::var(VARIABLE).unwrap_or_else(|_| "not set".to_owned())));
    setting.push(("round trip", "the queue sends and receives at both sockets".to_owned()));
    run.recorder.table("stream", title, Axis::None, setting, 2 * COUNTS.len())?;
    // The first copies load code, and for this the driver would wait for all waiting streams.
    let words = Words::new(bench)?;
    beside_streams(bench, &words, 0, 1)?.map_err(|(_, why)| why)?;
    drop(words);
    for count in COUNTS {
        // If a thread takes the place of a stream, other waiting threads take only the cores.
        let by_hand = if bench.is_gpu() { count } else { 0 };
        let name = format!("{} by hand waiting", counted(by_hand as u64, "stream"));
        let words = Words::new(bench)?;
        let samples = beside_streams(bench, &words, by_hand, portions)?;
        record(run, Role::Floor, &name, count, samples);
        // The waiting streams continue.
        drop(words);
        let name = format!("{} waiting", counted(count as u64, "queue"));
        let samples = beside_queues(bench, transport, count, portions)?;
        record(run, Role::Gpunet, &name, count, samples);
    }
    Ok(())
}

/// The nanoseconds of rounds; or the number of rounds before the first that made no progress, and
/// the reason.
type Samples = Result<Vec<u64>, (u64, String)>;

fn record(run: &mut Run<'_>, role: Role, name: &str, count: usize, samples: Samples) {
    match samples {
        Ok(samples) => run.recorder.row(Row::times(role, name, &samples).at(role_name(role), count as u64)),
        Err((rounds, why)) => {
            let what = if why.starts_with("refused") { "refused after" } else { "stood still after" };
            let name = format!("{name}: {what}");
            run.recorder.row(Row::number(role, &name, rounds as f64, "round trips"));
            run.recorder.note(format!("{count}: {why}"));
        }
    }
}

const fn role_name(role: Role) -> &'static str {
    if matches!(role, Role::Floor) { "by hand" } else { "gpunet" }
}

/// Times portions that `enqueue` enqueues, each by its number.
fn time(timed: Timed, words: &Words, portions: u64, mut enqueue: impl FnMut(u64) -> Outcome<()>) -> Samples {
    (1..=portions)
        .map(|portion| {
            enqueue(portion)
                .and_then(|()| timed.round(words, portion, STANDS_STILL))
                .map_err(|error| (timed.rounds * (portion - 1), error.to_string()))
        })
        .collect()
}

/// Measures one stream that copies, writes a word and waits for it, twice in each round, while
/// other streams wait for another word.
fn beside_streams(bench: &Bench, words: &Words, count: usize, portions: u64) -> Outcome<Samples> {
    let timed = Timed::of(bench).half();
    let [from, to] = [bench.lend(SIZE)?, bench.lend(SIZE)?];
    let stream = bench.by_hand()?;
    let waiting: Vec<ByHand> = (0..count).map(|_| bench.by_hand()).collect::<Outcome<_>>()?;
    let wait = Step::Wait { word: words.address(NEVER), value: 1 };
    waiting.iter().try_for_each(|stream| stream.enqueue(&[wait]))?;
    let [start, begun, ended, own] = [START, BEGUN, ENDED, SELF].map(|word| words.address(word));
    let mut value = 0;
    let samples = time(timed, words, portions, |portion| {
        stream.enqueue(&[
            Step::Wait { word: start, value: portion },
            Step::Write { word: begun, value: portion },
        ])?;
        for _ in 0..2 * timed.rounds {
            value += 1;
            stream.enqueue(&[
                Step::Copy { to: to.address(), from: from.address(), len: SIZE },
                Step::Write { word: own, value },
                Step::Wait { word: own, value },
                Step::Copy { to: from.address(), from: to.address(), len: SIZE },
            ])?;
        }
        stream.enqueue(&[Step::Write { word: ended, value: portion }])
    });
    // The memory of a stalled stream is freed only when the stream has continued: streams of GPUs
    // ensure this, and the drop of a thread ends it.
    drop((stream, waiting));
    [from, to].into_iter().for_each(Lent::done);
    Ok(samples)
}

/// A queue that waits for a byte of a plain program.
struct Waiting {
    queue: Queue,
    receiver: Receiver,
    plain: TcpStream,
    byte: Lent,
    /// Operations that were enqueued.
    enqueued: u64,
}

impl Waiting {
    fn new(bench: &Bench, listener: &TcpListener) -> Outcome<Self> {
        let options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(RING / 16, RING / 16);
        let socket = bench.attachment().connect_blocking(listener.local_addr()?, options)?;
        let (plain, _) = listener.accept()?;
        let (queue, receiver, byte) = (bench.queue()?, socket.take_recv()?, bench.lend(1)?);
        Ok(Self { queue, receiver, plain, byte, enqueued: 0 })
    }

    fn begin(&mut self) -> Outcome<()> {
        self.queue.recv(&mut self.receiver, self.byte.buffer())?;
        self.enqueued += 1;
        Ok(())
    }

    /// Sends the queue its byte, and waits until it is done.
    fn end(mut self) -> Outcome<()> {
        self.plain.write_all(&[1])?;
        finished(&self.queue, self.enqueued)?;
        unfailed(&self.queue)?;
        self.byte.done();
        Ok(())
    }
}

/// Waits until `operations` operations of a queue are done.
fn finished(queue: &Queue, operations: u64) -> Outcome<()> {
    let (start, few) = (Instant::now(), are_cores_few());
    while queue.outcome().done < operations {
        if start.elapsed() > LIMIT {
            return Err(format!("a queue stood still for {LIMIT:?} after it was released").into());
        }
        spin(few);
    }
    Ok(())
}

/// Measures one queue that sends and receives at both sockets of a stream, while other queues wait.
fn beside_queues(bench: &Bench, transport: Transport, count: usize, portions: u64) -> Outcome<Samples> {
    let words = Words::new(bench)?;
    let [near, far] = Bench::connected([bench; 2], options(transport))?;
    let (mut near, mut far) = ((near.take_send()?, near.take_recv()?), (far.take_send()?, far.take_recv()?));
    let (ball, mut queue) = (bench.lend(SIZE)?, bench.queue()?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // All of them are made before the first one waits: much of that work would wait, too.
    let made: Outcome<Vec<_>> = (0..count).map(|_| Waiting::new(bench, &listener)).collect();
    let mut waiting = match made {
        Ok(waiting) => waiting,
        Err(refused) => {
            ball.done();
            return Ok(Err((0, format!("refused: {refused}"))));
        }
    };
    let (mut enqueued, message, timed) = (0, ball.buffer(), Timed::of(bench).half());
    let began = waiting.iter_mut().enumerate().try_for_each(|(number, waiting)| {
        waiting.begin().map_err(|error| (0, format!("queue {number} of {count} could not wait: {error}")))
    });
    let mut time = || {
        time(timed, &words, portions, |portion| {
            queue.wait_word(words.there(START), portion)?;
            queue.write(words.there(BEGUN), portion)?;
            for _ in 0..timed.rounds {
                queue.send(&mut near.0, message)?;
                queue.recv(&mut far.1, message)?;
                queue.send(&mut far.0, message)?;
                queue.recv(&mut near.1, message)?;
            }
            queue.write(words.there(ENDED), portion)?;
            enqueued += 3 + 4 * timed.rounds;
            Ok(())
        })
    };
    let samples = began.and_then(|()| time());
    waiting.into_iter().try_for_each(Waiting::end)?;
    finished(&queue, enqueued)?;
    unfailed(&queue)?;
    if samples.is_ok() {
        // Otherwise part of a round may still be enqueued.
        ball.done();
    }
    Ok(samples.map_err(|(rounds, why)| (rounds, format!("{why}; all went on once they had their bytes"))))
}
