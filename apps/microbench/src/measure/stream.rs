//! Queues in the order of streams: their times compared with streams by hand, and whether every
//! byte is right.
//!
//! | file | holds |
//! |---|---|
//! | `enqueueing` | the cost of enqueueing |
//! | `ping_pong` | round trips of messages |
//! | `messages` | every byte checked |
//! | `triggers` | kernels that fill prepared messages |
//! | `waiting` | how many queues may wait at a time |
//! | `portion` | rounds that are enqueued together, and timed |

mod enqueueing;
mod messages;
mod ping_pong;
mod portion;
mod triggers;
mod waiting;

use super::{Failed, Run};
use crate::bench::{Bench, Lent, device_name};
use crate::outcome::Outcome;
use crate::pair::Transport;
use clap::{Args, ValueEnum};
use gpunet_device::Options;
use gpunet_proxy::queue::Queue;
use gpunet_proxy::socket::{Receiver, Sender, Socket};
use std::time::Duration;

/// Bytes of a ring.
const RING: u64 = 256 << 10;
/// How long a stream may make no progress before the measurement is abandoned.
const LIMIT: Duration = Duration::from_secs(10);

/// What `stream` takes.
#[derive(Args, Clone, Debug)]
pub struct StreamArgs {
    /// Measure these parts only.
    #[arg(value_enum, value_name = "PART")]
    parts: Vec<Part>,
    /// Transports between the two sockets: peer, tcp. Without it: both.
    #[arg(long, value_delimiter = ',')]
    transport: Vec<Transport>,
    /// The other end's device in the ping-pong: cpu or cuda:N. Without it: both ends are on one
    /// device, as in all other parts.
    #[arg(long, value_parser = device_name)]
    other: Option<String>,
    /// Messages to check over each transport. Without it: 100,000; 1,000 with --quick, 1,000,000
    /// with --full.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    messages: Option<u64>,
    /// Check for at most this many seconds over each transport.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Messages there and back in the order of two queues, beside two streams by hand.
    PingPong,
    /// What the calls that enqueue take.
    Enqueueing,
    /// Kernels that release prepared messages, beside kernels that send.
    Triggers,
    /// A queue beside many that wait.
    Waiting,
    /// Messages that kernels make and check.
    Messages,
}

/// Measures all parts. Returns whether every byte was right.
pub fn stream(run: &mut Run<'_>, args: &StreamArgs) -> Outcome<bool> {
    let transports = match args.transport.as_slice() {
        [] => vec![Transport::Peer, Transport::Tcp],
        named => named.to_vec(),
    };
    if transports.contains(&Transport::Rc) {
        return Err("stream has both ends under one proxy: --transport peer or tcp".into());
    }
    let proxy = run.proxy()?;
    let bench = Bench::attach(&proxy, run.device)?;
    let other = args.other.as_deref().map(|name| Bench::attach(&proxy, name)).transpose()?;
    let ends = [&bench, other.as_ref().unwrap_or(&bench)];
    // Before any stream waits.
    triggers::prepare(&bench)?;
    messages::prepare(&bench)?;
    let (mut failed, mut is_right) = (Failed::default(), true);
    for &part in Part::value_variants() {
        if !args.parts.is_empty() && !args.parts.contains(&part) {
            continue;
        }
        if part == Part::Enqueueing {
            failed.attempt(run, "enqueueing", |run| enqueueing::measure(run, &bench));
            continue;
        }
        for &transport in &transports {
            let name = format!("{part:?} over {}", transport.name());
            failed.attempt(run, &name, |run| match part {
                Part::PingPong => ping_pong::measure(run, ends, transport),
                Part::Triggers => triggers::measure(run, &bench, transport),
                Part::Waiting => waiting::measure(run, &bench, transport),
                Part::Messages => {
                    let count = args.messages.unwrap_or(run.effort.of(1000, 100_000, 1_000_000));
                    let limit = Duration::from_secs(args.seconds);
                    is_right &= messages::check(run, &bench, transport, count, limit)?;
                    Ok(())
                }
                Part::Enqueueing => Ok(()),
            });
        }
    }
    failed.into_outcome().map(|()| is_right)
}

/// Returns the options of the two sockets.
fn options(transport: Transport) -> Options {
    Options::DEFAULT.with_transport(transport.kind()).with_rings(RING, RING)
}

/// Returns the settings that every table shows.
fn settings(bench: &Bench, transport: Transport) -> Vec<(&'static str, String)> {
    vec![
        ("device", bench.title()),
        ("transport", format!("{}, two sockets of one attachment", transport.name())),
        (
            "queues",
            if bench.is_gpu() { "each on a stream of its own" } else { "each a thread of its own" }
                .to_owned(),
        ),
    ]
}

/// One of two ends: a socket whose directions the program has taken, a queue for it, and memory for
/// a message.
struct End {
    sender: Sender,
    receiver: Receiver,
    queue: Queue,
    ball: Lent,
}

impl End {
    /// Makes both ends of a stream, one on each device.
    fn both(ends: [&Bench; 2], transport: Transport, size: usize) -> Outcome<[Self; 2]> {
        let [near, far] = Bench::connected(ends, options(transport))?;
        Ok([Self::of(ends[0], &near, size)?, Self::of(ends[1], &far, size)?])
    }

    fn of(bench: &Bench, socket: &Socket, size: usize) -> Outcome<Self> {
        let (sender, receiver) = (socket.take_send()?, socket.take_recv()?);
        Ok(Self { sender, receiver, queue: bench.queue()?, ball: bench.lend(size)? })
    }

    fn send(&mut self) -> Outcome<()> {
        Ok(self.queue.send(&mut self.sender, self.ball.buffer())?)
    }

    fn recv(&mut self) -> Outcome<()> {
        Ok(self.queue.recv(&mut self.receiver, self.ball.buffer())?)
    }

    /// Waits for the queue's end and frees the memory.
    fn done(mut self) -> Outcome<()> {
        self.queue.synchronize()?;
        self.ball.done();
        Ok(())
    }
}

/// Returns an error if an operation of the queue has failed.
fn unfailed(queue: &Queue) -> Outcome<()> {
    match queue.outcome().failure {
        None => Ok(()),
        Some(failure) => Err(format!(
            "operation {} of a queue: {}, after {} B",
            failure.operation, failure.error, failure.bytes
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effort::Effort;
    use crate::report::Recorder;
    use gpu_usermap::cuda::fake::Fake;
    use gpunet_app::proxy::ProxyArgs;
    use gpunet_proxy::{Config, embed};

    /// Runs the parts that need no kernels, on the streams of a driver without a GPU.
    #[test]
    fn queues_on_streams_are_measured() {
        let fake = Fake::new();
        let device = fake.cuda().device(0).unwrap();
        let bench = Bench::on(&embed(Config::small()).unwrap(), &device).unwrap();
        let mut recorder = Recorder::new("gpunet-bench stream".to_owned(), None, false);
        let (proxy, effort) = (ProxyArgs::default(), Effort::Quick);
        let run =
            &mut Run { recorder: &mut recorder, effort, device: "cuda:0", is_auto: false, proxy: &proxy };
        for transport in [Transport::Peer, Transport::Tcp] {
            ping_pong::measure(run, [&bench; 2], transport).unwrap();
            waiting::measure(run, &bench, transport).unwrap();
        }
        enqueueing::measure(run, &bench).unwrap();
    }
}
