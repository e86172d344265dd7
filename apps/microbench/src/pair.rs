//! Two ends that communicate: blocks of one device, of two devices or of two processes, or plain
//! programs.
//!
//! | file | holds |
//! |---|---|
//! | `end` | one end: a device of this process, or a process |
//! | `child`, `serve` | an end in a process of its own, from outside and from inside |
//! | `task` | the tasks of the ends |
//! | `plain` | the references: the same work by plain sockets |

mod child;
mod end;
mod plain;
mod serve;
mod task;

use crate::bench::{Bench, device_name};
use crate::outcome::Outcome;
use crate::report::{Recorder, counted};
pub use child::Daemon;
use child::EndProcess;
use clap::Args;
use end::End;
pub use end::TIMEOUT;
use gpunet_app::proxy::ProxyArgs;
use gpunet_proxy::Proxy;
use gpunet_proxy::snapshot::{Placement, Snapshot, State};
pub use serve::{EndArgs, serve as serve_end};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::{Duration, Instant};
pub use task::{
    BlockShape, Cooperation, Direction, EndpointKind, Flow, How, Ports, Side, Task, Transport, Work,
};

/// Who talks to whom, and how.
#[derive(Args, Clone, Debug)]
pub struct PairArgs {
    /// Device of the other end, the server: cpu or cuda:N. Without it: every kind of pair that the
    /// machine has.
    #[arg(long, value_parser = device_name)]
    pub other: Option<String>,
    /// Transports to measure. Without it: peer and tcp.
    #[arg(long, value_delimiter = ',')]
    pub transport: Vec<Transport>,
    /// Address of this host where both ends meet; for rc that of an RDMA device.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub address: IpAddr,
    /// Run each end in a process of its own, attached to a daemon: the one that --daemon names, or
    /// one that is started from this program's folder.
    #[arg(long)]
    pub processes: bool,
}

impl Default for PairArgs {
    fn default() -> Self {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self { other: None, transport: Vec::new(), address, processes: false }
    }
}

impl PairArgs {
    /// The transports to measure.
    pub fn transports(&self) -> Vec<Transport> {
        if self.transport.is_empty() {
            return vec![Transport::Peer, Transport::Tcp];
        }
        self.transport.clone()
    }
}

/// Returns the devices of all pairs that the command line selects, client and server, given the
/// client, perhaps the server, and the number of GPUs. `is_auto`: the command line does not name
/// the client.
pub fn devices(client: &str, other: Option<String>, is_auto: bool, gpus: u32) -> Vec<[String; 2]> {
    let pair = |server: String| [client.to_owned(), server];
    if let Some(other) = other {
        return vec![pair(other)];
    }
    if client == "cpu" {
        return vec![pair(client.to_owned())];
    }
    // Another GPU, if there is one.
    let second = (0..gpus).map(|nth| format!("cuda:{nth}")).find(|name| name != client);
    let servers = [client.to_owned(), "cpu".to_owned()].into_iter().chain(second);
    let mut pairs: Vec<_> = servers.map(pair).collect();
    if is_auto {
        pairs.push(["cpu".to_owned(), "cpu".to_owned()]);
    }
    pairs
}

/// The devices or programs that play the two ends.
#[allow(clippy::large_enum_variant, reason = "one value for each measurement")]
enum Ends {
    /// One launch on one device plays both.
    One(End),
    Two {
        server: End,
        client: End,
    },
}

/// Two ends that communicate.
pub struct Pair {
    ends: Ends,
    /// The kinds of the server and of the client.
    kinds: [EndpointKind; 2],
    ports: Ports,
    proxy: ProxyHandle,
    // Dropped after the ends, which detach from it first.
    daemon: Option<Daemon>,
}

/// How often, and each time for how long, to look for sockets, which may be closed already.
const LOOKS: u32 = 4;
const LOOK_TIMEOUT: Duration = Duration::from_millis(100);

/// The proxy of the ends, to ask where rings lie: this process's, or the daemon that their own
/// processes use.
enum ProxyHandle {
    Local(Proxy),
    Daemon(PathBuf),
    /// Both ends are plain.
    None,
}

impl Pair {
    /// Makes both ends in this process, under one proxy.
    pub fn here(
        proxy: Proxy,
        [client, server]: &[String; 2],
        transport: Transport,
        address: IpAddr,
    ) -> Outcome<Self> {
        let server_end = End::here(Bench::attach(&proxy, server)?);
        let ends = if client == server {
            Ends::One(server_end)
        } else {
            Ends::Two { server: server_end, client: End::here(Bench::attach(&proxy, client)?) }
        };
        let kinds = [EndpointKind::Gpunet(transport); 2];
        Ok(Self { ends, kinds, ports: Ports::of(address), proxy: ProxyHandle::Local(proxy), daemon: None })
    }

    /// Makes each end in a process of its own, attached to a daemon.
    pub fn apart(
        [client, server]: &[String; 2],
        transport: Transport,
        address: IpAddr,
        proxy: &ProxyArgs,
    ) -> Outcome<Self> {
        let daemon = Daemon::start(proxy)?;
        let server = End::Child(EndProcess::attached("server", server, daemon.path())?);
        let client = End::Child(EndProcess::attached("client", client, daemon.path())?);
        Ok(Self {
            ends: Ends::Two { server, client },
            kinds: [EndpointKind::Gpunet(transport); 2],
            ports: Ports::of(address),
            proxy: ProxyHandle::Daemon(daemon.path().to_owned()),
            daemon: Some(daemon),
        })
    }

    /// Makes a pair of a device of this process and a plain program that is its client or its
    /// server.
    pub fn mixed(
        proxy: Proxy,
        device: &str,
        plain: EndpointKind,
        plain_serves: bool,
        address: IpAddr,
    ) -> Outcome<Self> {
        let ours = End::here(Bench::attach(&proxy, device)?);
        let gpunet = EndpointKind::Gpunet(Transport::Tcp);
        let (ends, kinds) = if plain_serves {
            (Ends::Two { server: End::Child(EndProcess::plain("server")?), client: ours }, [plain, gpunet])
        } else {
            (Ends::Two { server: ours, client: End::Child(EndProcess::plain("client")?) }, [gpunet, plain])
        };
        Ok(Self { ends, kinds, ports: Ports::of(address), proxy: ProxyHandle::Local(proxy), daemon: None })
    }

    /// Makes a pair of two plain programs.
    pub fn plain(kinds: [EndpointKind; 2], address: IpAddr) -> Outcome<Self> {
        let server = End::Child(EndProcess::plain("server")?);
        let client = End::Child(EndProcess::plain("client")?);
        let ends = Ends::Two { server, client };
        Ok(Self { ends, kinds, ports: Ports::of(address), proxy: ProxyHandle::None, daemon: None })
    }

    /// Sets the kinds of both ends, the server's first. Each end must be able to play its kind.
    pub fn set_kinds(&mut self, kinds: [EndpointKind; 2]) {
        self.kinds = kinds;
    }

    /// Runs both ends and returns their words, the server's first.
    pub fn play(&mut self, work: &Work, shape: BlockShape) -> Outcome<[Vec<u64>; 2]> {
        self.begin(work, shape)?;
        self.end(work)
    }

    /// Runs both ends only to see where the rings lie, since looking takes time from them. An echo
    /// that ends before its sockets were seen is run again with more rounds, a few times at most.
    pub fn find_placement(&mut self, work: &Work, shape: BlockShape) -> Outcome<Option<String>> {
        let mut work = work.clone();
        for _ in 0..LOOKS {
            self.begin(&work, shape)?;
            let placement = self.wait_for_placement();
            self.end(&work)?;
            if placement.is_some() {
                return Ok(placement);
            }
            if let Work::Echo { rounds, .. } = &mut work {
                *rounds *= 4;
            }
        }
        Ok(None)
    }

    fn begin(&mut self, work: &Work, shape: BlockShape) -> Outcome<()> {
        let addr = self.ports.take(match work {
            Work::Echo { .. } => 1,
            Work::Flow(flow) => flow.pairs as u16,
            Work::Duplex { pairs, .. } => *pairs as u16,
        });
        let run = std::process::id();
        let task = |kind, side| Task { work: work.clone(), kind, side, addr, shape, run };
        // No kernel may be loaded while another kernel waits.
        for bench in self.benches() {
            end::prepare(bench, work, shape.threads)?;
        }
        match &mut self.ends {
            Ends::One(end) => end.start(&task(self.kinds[0], Side::Both)),
            Ends::Two { server, client } => {
                server.start(&task(self.kinds[0], Side::Server))?;
                let started = client.start(&task(self.kinds[1], Side::Client));
                if started.is_err() {
                    // It waits for a client until its timeout.
                    let _ = server.finish();
                }
                started
            }
        }
    }

    fn end(&mut self, work: &Work) -> Outcome<[Vec<u64>; 2]> {
        let checked = |words: Outcome<Vec<u64>>, serves: bool| {
            words.and_then(|words| Bench::no_failure(&work.outcomes(serves, &words)).map(|()| words))
        };
        let [server, client] = match &mut self.ends {
            Ends::One(end) => split(work, end.finish()?).map(Ok),
            Ends::Two { server, client } => {
                let client = client.finish();
                [server.finish(), client]
            }
        };
        together(checked(server, true), checked(client, false))
    }

    /// Returns where the rings of the open streams lie. Waits a little for a stream.
    fn wait_for_placement(&self) -> Option<String> {
        let pids = match &self.ends {
            Ends::One(end) => vec![end.pid()],
            Ends::Two { server, client } => vec![server.pid(), client.pid()],
        };
        let limit = Instant::now() + LOOK_TIMEOUT;
        while Instant::now() < limit {
            let snapshot = match &self.proxy {
                ProxyHandle::Local(proxy) => proxy.snapshot().ok()?,
                ProxyHandle::Daemon(path) => gpunet_proxy::daemon::snapshot(path).ok()?,
                ProxyHandle::None => return None,
            };
            if let Some(placement) = placement(&snapshot, &pids) {
                return Some(placement);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        None
    }

    /// The devices of this process.
    pub fn benches(&self) -> Vec<&Bench> {
        match &self.ends {
            Ends::One(end) => end.bench().into_iter().collect(),
            Ends::Two { server, client } => [server, client].into_iter().filter_map(End::bench).collect(),
        }
    }

    /// The devices of both ends, the server's first, if both are of this process.
    pub fn both(&self) -> Option<[&Bench; 2]> {
        match self.benches()[..] {
            [one] if matches!(self.ends, Ends::One(_)) => Some([one, one]),
            [server, client] => Some([server, client]),
            _ => None,
        }
    }

    /// Returns whether an end is a GPU.
    pub fn is_gpu(&self) -> bool {
        match &self.ends {
            Ends::One(end) => end.is_gpu(),
            Ends::Two { server, client } => server.is_gpu() || client.is_gpu(),
        }
    }

    /// Returns whether both ends are GPUs.
    pub fn are_gpus(&self) -> bool {
        match &self.ends {
            Ends::One(end) => end.is_gpu(),
            Ends::Two { server, client } => server.is_gpu() && client.is_gpu(),
        }
    }

    /// Returns whether both ends are blocks of one launch.
    pub fn are_one(&self) -> bool {
        matches!(self.ends, Ends::One(_))
    }

    /// Returns the devices of the ends, the client's first. `apart`: they are in two processes.
    pub fn title(&self, apart: bool) -> String {
        let names = match &self.ends {
            Ends::One(end) => [end.name(); 2],
            Ends::Two { server, client } => [client.name(), server.name()],
        };
        match &self.ends {
            _ if apart || self.daemon.is_some() => format!("{} -> {}, two processes", names[0], names[1]),
            Ends::One(end) if end.is_gpu() => format!("two blocks of one {}", end.name()),
            Ends::One(_) => "two CPU blocks".to_owned(),
            Ends::Two { .. } => format!("{} -> {}, one process", names[0], names[1]),
        }
    }

    /// Returns the shape of blocks in words.
    pub fn shape_name(&self, shape: BlockShape) -> String {
        if !self.is_gpu() {
            return "CPU blocks of one thread".to_owned();
        }
        format!("{} a block, the {} uses the stream", counted(shape.threads, "thread"), shape.group.name())
    }

    /// Returns the shape of blocks for the name of a row; empty if there is only one shape.
    pub fn shape_suffix(&self, shape: BlockShape) -> String {
        if self.is_gpu() { format!(", {} of {}", shape.group.name(), shape.threads) } else { String::new() }
    }

    /// Returns the settings that a table shows.
    pub fn settings(&self, shape: BlockShape, apart: bool) -> Vec<(&'static str, String)> {
        vec![
            ("ends", self.title(apart)),
            ("transport", self.kinds[0].name().to_owned()),
            ("blocks", self.shape_name(shape)),
        ]
    }
}

/// Returns how a plain program waits.
pub const fn waits(spin: bool) -> &'static str {
    if spin { "spinning" } else { "blocking" }
}

/// Returns the words of both ends; otherwise the reason, or both reasons. The client's comes first,
/// because the server often fails only because the client is gone.
fn together(server: Outcome<Vec<u64>>, client: Outcome<Vec<u64>>) -> Outcome<[Vec<u64>; 2]> {
    match (server, client) {
        (Ok(server), Ok(client)) => Ok([server, client]),
        (Ok(_), Err(client)) => Err(format!("client: {client}").into()),
        (Err(server), Ok(_)) => Err(format!("server: {server}").into()),
        (Err(server), Err(client)) => Err(format!("client: {client}; server: {server}").into()),
    }
}

/// Separates the words of blocks that are server and client alternately.
fn split(work: &Work, words: Vec<u64>) -> [Vec<u64>; 2] {
    let per_block = match work {
        Work::Echo { .. } => return [words[..2].to_vec(), words],
        Work::Flow(_) => 4,
        Work::Duplex { .. } => 3,
    };
    let side = |odd: usize| {
        let blocks = words.chunks_exact(per_block).skip(odd).step_by(2);
        blocks.flatten().copied().collect()
    };
    [side(0), side(1)]
}

/// Returns where the rings of these processes' open streams lie. A daemon may also have streams of
/// other programs.
fn placement(snapshot: &Snapshot, pids: &[u32]) -> Option<String> {
    let clients = snapshot.clients.iter().filter(|client| pids.contains(&client.pid));
    let clients: Vec<u32> = clients.map(|client| client.id).collect();
    let sockets = snapshot.sockets.iter().filter(|socket| clients.contains(&socket.client));
    let open = sockets.filter(|socket| socket.state == State::Established);
    let mut places: Vec<&str> = open
        .map(|socket| socket.placement)
        .filter(|place| *place != Placement::None)
        .map(Placement::name)
        .collect();
    places.sort_unstable();
    places.dedup();
    if places.is_empty() { None } else { Some(places.join(", ")) }
}

/// Records where the streams of a table have their rings.
pub fn record_placement(recorder: &mut Recorder, placement: Option<String>) {
    if let Some(placement) = placement {
        recorder.setting("placement", placement);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_of_what_the_machine_has_and_the_command_line_names() {
        let said = |client: &str, other: Option<&str>, is_auto, gpus| {
            let pairs = devices(client, other.map(str::to_owned), is_auto, gpus);
            pairs.iter().map(|pair| pair.join("-")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(said("cpu", None, false, 2), "cpu-cpu");
        assert_eq!(said("cpu", None, true, 1), "cpu-cpu", "a GPU that cannot be used");
        assert_eq!(said("cpu", Some("cuda:1"), true, 2), "cpu-cuda:1");
        assert_eq!(said("cuda:0", None, true, 1), "cuda:0-cuda:0 cuda:0-cpu cpu-cpu");
        assert_eq!(said("cuda:1", None, false, 2), "cuda:1-cuda:1 cuda:1-cpu cuda:1-cuda:0");
    }

    #[test]
    fn the_reasons_of_both_ends_are_told() {
        let bad = |why: &str| Err(why.to_owned().into());
        let told = |server, client| together(server, client).unwrap_err().to_string();
        assert_eq!(told(Ok(vec![]), bad("gone")), "client: gone");
        assert_eq!(told(bad("gone"), Ok(vec![])), "server: gone");
        assert_eq!(told(bad("nobody came"), bad("no way")), "client: no way; server: nobody came");
        assert_eq!(together(Ok(vec![1]), Ok(vec![2])).unwrap(), [vec![1], vec![2]]);
    }
}
