//! A process whose kernel serves clients: to be stopped, or to have its kernel panic.

use super::{SOON, Shown, Words, until};
use crate::bench::Bench;
use crate::json_lines;
use crate::measure::Run;
use crate::outcome::Outcome;
use crate::pair::Ports;
use crate::process::{Owned, start_bound};
use crate::sockets::{ListenAddr, Socket};
use clap::Args;
use gpunet_app::proxy::ProxyArgs;
use gpunet_bench_kernel::{Attend, failed};
use gpunet_device::{Error, Options, SockAddr, TransportKind};
use gpunet_proxy::FinishPolicy;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::io::{BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Blocks that serve.
const BLOCKS: u16 = 4;
/// Longer than a heartbeat may be late ([`gpunet_proxy::Config::heartbeat`]).
const STOPPED: Duration = Duration::from_secs(4);
/// Launches of a program that is stopped: resources that the first one leaked would be missing in
/// the second one.
const LAUNCHES: u32 = 2;
/// Clients of each block and launch.
const CLIENTS: u64 = 8;

/// What `attend` takes. `faults` starts it.
#[derive(Args, Clone, Debug)]
pub struct AttendArgs {
    /// Where the first block listens; the others at the ports that follow.
    #[arg(long)]
    at: SocketAddr,
    /// Clients of each block and launch.
    #[arg(long)]
    clients: u64,
    /// Launches, one after another.
    #[arg(long)]
    launches: u32,
}

/// A report of the child, as a line.
#[derive(Debug, Deserialize, Serialize)]
enum FaultEvent {
    /// All blocks listen.
    Ready,
    /// A launch has ended: its clients, how often a call returned ENETDOWN, and the sockets and
    /// requests that are left.
    Served {
        clients: u64,
        downs: u64,
        left: (usize, usize),
    },
    Failed(String),
}

/// `attend`: serves clients by blocks of a kernel, and reports that as lines.
pub fn attend(device: &str, proxy: &ProxyArgs, args: &AttendArgs) -> Outcome<bool> {
    let launches = Bench::open(proxy, device)
        .and_then(|bench| (0..args.launches).try_for_each(|_| report(&one_launch(&bench, args)?)));
    launches.or_else(|error| report(&FaultEvent::Failed(error.to_string())))?;
    Ok(true)
}

fn one_launch(bench: &Bench, args: &AttendArgs) -> Outcome<FaultEvent> {
    let blocks = usize::from(BLOCKS);
    let words = Words::new(bench)?;
    let job = bench.job(blocks, 2 * blocks)?;
    let launch = bench.start(u32::from(BLOCKS), bench.threads(super::THREADS), |net| Attend {
        net,
        addr: SockAddr::from(args.at),
        options: Options::DEFAULT.with_transport(TransportKind::Tcp),
        clients: args.clients,
        buffer: job.buffer(),
        told: words.device(Words::wait(0)),
        results: job.results(),
    })?;
    let listen = || (0..blocks).all(|block| words.word(Words::wait(block)).observe() == 1);
    until("all blocks listen", &launch, listen)?;
    report(&FaultEvent::Ready)?;
    let results = bench.finish_with(launch, &job, FinishPolicy::Keep)?;
    let usage = bench.attachment().usage();
    let (mut clients, mut downs) = (0, 0);
    for pair in results.chunks_exact(2) {
        if let Some(errno) = failed(pair[0]) {
            return Err(Error::from_errno(errno).into());
        }
        (clients, downs) = (clients + pair[0], downs + pair[1]);
    }
    Ok(FaultEvent::Served { clients, downs, left: (usage.sockets, usage.requests) })
}

fn report(event: &FaultEvent) -> Outcome<()> {
    json_lines::write(&mut std::io::stdout().lock(), event)
}

/// The process.
struct ServerProcess {
    process: Owned,
    lines: BufReader<ChildStdout>,
    at: SocketAddr,
}

impl ServerProcess {
    fn start(run: &Run<'_>, clients: u64, launches: u32) -> Outcome<Self> {
        let at = Ports::of(IpAddr::V4(Ipv4Addr::LOCALHOST)).take(BLOCKS);
        let mut command = Command::new(std::env::current_exe()?);
        run.add_device_and_daemon(&mut command);
        command.args(["attend", "--at", &at.to_string(), "--clients", &clients.to_string()]);
        command.args(["--launches", &launches.to_string()]);
        // Errors come as lines. The intended panic is kept off stderr, so that it is not taken for
        // an error.
        command.env_remove("GPUNET_DAEMON").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = start_bound(&mut command, Signal::KILL)?;
        let lines = BufReader::new(process.stdout.take().ok_or("no pipe")?);
        Ok(Self { process: Owned(process), lines, at })
    }

    fn event(&mut self) -> Outcome<FaultEvent> {
        match json_lines::read(&mut self.lines)? {
            Some(event) => Ok(event),
            None => Err(format!("the process has ended: {:?}", self.process.0.try_wait()?).into()),
        }
    }

    fn ready(&mut self) -> Outcome<()> {
        match self.event()? {
            FaultEvent::Ready => Ok(()),
            other => Err(format!("{other:?} before it was ready").into()),
        }
    }

    fn signal(&self, signal: Signal) -> Outcome<()> {
        let pid = Pid::from_raw(self.process.0.id().cast_signed()).ok_or("no process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Connects to a block.
    fn client(&self, block: u16) -> Outcome<Socket> {
        let addr = SocketAddr::new(self.at.ip(), self.at.port() + block);
        Ok(Socket::connect(&ListenAddr::Tcp(addr))?)
    }
}

fn round_trip(client: &mut Socket, byte: u8) -> Outcome<()> {
    let mut message = [byte];
    client.send_all(&message)?;
    back(client, &mut message)
}

fn back(client: &mut Socket, message: &mut [u8; 1]) -> Outcome<()> {
    let sent = *message;
    if !client.receive_all(message)? || *message != sent {
        return Err(format!("{sent:?} came back as {message:?}").into());
    }
    Ok(())
}

/// Stops the process while its kernel waits for clients, lets one client of each block come in this
/// time, and continues the process. All clients are served, then and by the next launch, and
/// nothing is left. Returns how often its calls returned ENETDOWN.
pub fn stopped(run: &Run<'_>) -> Shown {
    let mut child = ServerProcess::start(run, CLIENTS, LAUNCHES)?;
    let mut told = 0;
    for launch in 0..LAUNCHES {
        child.ready()?;
        let mut early = Vec::new();
        if launch == 0 {
            child.signal(Signal::STOP)?;
            // After the first missed heartbeat: an abandoned accept call must not take a client
            // with it.
            std::thread::sleep(STOPPED - Duration::from_millis(500));
            for block in 0..BLOCKS {
                let mut client = child.client(block)?;
                client.send_all(&[7])?;
                early.push(client);
            }
            std::thread::sleep(Duration::from_millis(500));
            child.signal(Signal::CONT)?;
        }
        for mut client in early.drain(..) {
            back(&mut client, &mut [7])?;
        }
        let rest = CLIENTS - u64::from(launch == 0);
        for block in 0..BLOCKS {
            for client in 0..rest {
                round_trip(&mut child.client(block)?, client as u8)
                    .map_err(|error| format!("launch {launch}, block {block}, client {client}: {error}"))?;
            }
        }
        match child.event()? {
            FaultEvent::Served { clients, downs, left: (0, 0) } if clients == CLIENTS * u64::from(BLOCKS) => {
                told += downs;
            }
            other => return Err(format!("launch {launch}: {other:?}").into()),
        }
    }
    Ok((told as f64, "times ENETDOWN; all clients served"))
}

/// Makes a block panic: its clients and those of the other blocks are reset immediately, and the
/// process reports the place and the reason.
pub fn panics(run: &Run<'_>) -> Shown {
    let mut child = ServerProcess::start(run, 1, 1)?;
    child.ready()?;
    let mut clients = (0..BLOCKS).map(|block| child.client(block)).collect::<Outcome<Vec<_>>>()?;
    for client in &mut clients {
        round_trip(client, 1)?;
    }
    let start = Instant::now();
    clients[0].send_all(&[Attend::PANIC])?;
    for client in &mut clients {
        match client.receive(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => return Err(format!("a client of the launch got {other:?}, not a reset").into()),
        }
    }
    let reset = start.elapsed();
    match child.event()? {
        FaultEvent::Failed(why) if why.contains(Attend::LAST_WORDS) && why.contains("faults.rs") => {}
        other => return Err(format!("the place and reason of the panic are not reported: {other:?}").into()),
    }
    if start.elapsed() > SOON {
        return Err(format!("the panic was reported only after {:?}", start.elapsed()).into());
    }
    Ok((reset.as_secs_f64() * 1e3, "ms"))
}
