//! A proxy, an attachment and a launch token: what a kernel has when it starts.

use super::client::client;
use super::daemon::Served;
use super::{HANG, Team, team, until};
use gpu_usermap::placement::PlacementChoice;
use gpunet_core::verbs::sim::Fabric;
use gpunet_device::group::Solo;
use gpunet_device::{Error, Listener, Net, Options, SockAddr, Stream, TransportKind};
use gpunet_proxy::config::{Lines, Rdma};
use gpunet_proxy::{Attachment, Config, FinishPolicy, FinishReport, LaunchToken, Proxy, embed};
use std::fmt::Debug;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// The environment's choice: `GPUNET_TEST_LINES=on` (or `off`, `units`) gives all streams of the
/// CPU device lines.
fn lines_of_environment() -> Lines {
    std::env::var("GPUNET_TEST_LINES").map_or(Lines::Auto, |which| which.parse().expect("GPUNET_TEST_LINES"))
}

/// A little proxy: starting one takes milliseconds.
pub fn small() -> Config {
    Config {
        sockets: 64,
        controls: 32,
        shared_rings: 8 << 20,
        // A reader on a busy machine may take long, and what it was sent is not to be given up.
        linger: HANG,
        lines: lines_of_environment(),
        ..Config::small()
    }
}

pub struct World {
    pub proxy: Proxy,
    attachment: Option<Attachment>,
    token: Option<LaunchToken>,
    /// Where the connecting ends are, if that is not here: an attachment of the same proxy.
    there: Option<Box<World>>,
    /// A stream that has data thread 0. Its client goes first: a closed stream waits two seconds
    /// for an end of stream that its peer does not send.
    occupant: Option<(TcpStream, Box<World>)>,
    // Dropped last.
    daemon: Option<Arc<Served>>,
}

/// Where a world's proxy runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In the program.
    Embedded,
    /// In a daemon, which here is the same process, but knows nothing of it.
    Daemon,
}

impl Home {
    /// A proxy there, and the daemon, if it is one.
    pub fn proxy(self, config: Config) -> (Proxy, Option<Served>) {
        // A simulated card's dma-buf is none: a daemon refuses it.
        let pretends = config.placement != PlacementChoice::Auto && matches!(config.rdma, Rdma::Simulated(_));
        let daemon = (self == Self::Daemon && !pretends).then(|| Served::new(config.clone()));
        let proxy = match &daemon {
            Some(daemon) => daemon.attach(config),
            None => embed(config).expect("a proxy"),
        };
        (proxy, daemon)
    }

    /// The environment's choice: `GPUNET_TEST_DAEMON=1` runs a whole suite attached.
    pub fn of_environment() -> Self {
        match std::env::var_os("GPUNET_TEST_DAEMON") {
            Some(value) if value == "1" => Self::Daemon,
            _ => Self::Embedded,
        }
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(small())
    }

    /// The proxies of the conformance suite differ too, whatever the machine: one that spins and
    /// has three data threads serves the groups of two lanes, one with a single data thread all
    /// others. Of three, the first is occupied, so that the streams of the suite have the others.
    pub fn of(case: &Case) -> Self {
        let (data_threads, spin) =
            if case.lanes == 2 { (3, Duration::from_micros(50)) } else { (1, small().spin) };
        // Half of the cases have lines, in which small messages travel a second time.
        let lines = match small().lines {
            Lines::Units => Lines::Units,
            // Some have units instead.
            Lines::Auto if case.apart && case.lanes == 1 || !case.apart && case.lanes == 2 => Lines::Units,
            _ if case.apart || case.lanes > 1 => Lines::On,
            lines => lines,
        };
        let config =
            Config { data_threads, spin, lines, rdma: case.rdma(), placement: case.placement, ..small() };
        let home = if case.home == Home::Embedded { Home::of_environment() } else { case.home };
        let mut world = Self::at(home, config);
        world.there = case.apart.then(|| Box::new(Self::beside(&world)));
        world.occupant = (data_threads > 1).then(|| world.occupy());
        world
    }

    /// Opens a stream on the first data thread, which no other stream has yet.
    fn occupy(&self) -> (TcpStream, Box<Self>) {
        let beside = Self::beside(self);
        let listener = listen(beside.net(), Options::DEFAULT.with_transport(TransportKind::Tcp));
        let client = client(listener.local_addr());
        listener.accept(&Solo::new(0, 1)).expect("accepted");
        let snapshot = self.proxy.snapshot().expect("a snapshot");
        let streams: Vec<u32> = snapshot.threads.iter().map(|thread| thread.streams).collect();
        assert_eq!(streams, [1, 0, 0]);
        (client, Box::new(beside))
    }

    pub fn with(config: Config) -> Self {
        Self::at(Home::of_environment(), config)
    }

    pub fn at(home: Home, config: Config) -> Self {
        let (proxy, daemon) = home.proxy(config);
        let daemon = daemon.map(Arc::new);
        let attachment = proxy.attach_cpu().expect("an attachment");
        let token = attachment.token().expect("a launch number");
        Self { proxy, attachment: Some(attachment), token: Some(token), there: None, occupant: None, daemon }
    }

    /// A further attachment of the same proxy.
    pub fn beside(other: &Self) -> Self {
        let proxy = other.proxy.clone();
        let attachment = proxy.attach_cpu().expect("an attachment");
        let token = attachment.token().expect("a launch number");
        let daemon = other.daemon.clone();
        Self { proxy, attachment: Some(attachment), token: Some(token), there: None, occupant: None, daemon }
    }

    /// Where the connecting ends are.
    pub fn there(&self) -> Net {
        self.connecting().net()
    }

    /// The world of the connecting ends.
    pub fn connecting(&self) -> &Self {
        self.there.as_deref().unwrap_or(self)
    }

    pub fn attachment(&self) -> &Attachment {
        self.attachment.as_ref().expect("attached")
    }

    pub fn token(&self) -> &LaunchToken {
        self.token.as_ref().expect("a launch")
    }

    pub fn net(&self) -> Net {
        self.token().net()
    }

    /// Ends the launch and begins another.
    pub fn relaunch(&mut self, policy: FinishPolicy) -> FinishReport {
        let report = self.token.take().expect("a launch").finish(policy);
        self.token = Some(self.attachment().token().expect("a launch number"));
        report
    }

    /// Waits until every slot and every byte of ring memory is free again.
    #[track_caller]
    pub fn expect_all_free(&self) {
        until("all slots and rings are free", || {
            let usage = self.attachment().usage();
            usage.sockets == 0 && usage.requests == 0 && usage.free_ring_bytes == usage.ring_bytes
        });
    }

    /// Waits until so many control requests have no answer.
    #[track_caller]
    pub fn expect_requests(&self, count: usize) {
        until("that many requests wait", || self.attachment().usage().requests == count);
    }

    /// Ends a world in which everything was closed and delivered.
    #[track_caller]
    pub fn end(mut self) {
        if let Some(there) = self.there.take() {
            there.end();
        }
        drop(self.occupant.take());
        self.expect_all_free();
        let report = self.token.take().expect("a launch").finish(FinishPolicy::Close);
        assert_eq!(report.left_open, 0);
        let report = self.attachment.take().expect("attached").close();
        assert_eq!((report.undelivered, report.unfinished), (0, 0));
    }

    /// The parts, for tests that end them in their own way. A daemon goes on until the process
    /// ends.
    pub fn apart(mut self) -> (Proxy, Attachment, LaunchToken) {
        let (attachment, token) = (self.attachment.take(), self.token.take());
        std::mem::forget(self.daemon.take());
        (self.proxy.clone(), attachment.expect("attached"), token.expect("a launch"))
    }
}

/// Loopback, any port.
pub const LOOPBACK: SockAddr = SockAddr::v4([127, 0, 0, 1], 0);

/// The address where rc listens: that of an RDMA device, where the environment names one, else
/// loopback over a simulated network.
pub fn rc_home() -> Option<Ipv4Addr> {
    let ip = std::env::var("GPUNET_RC_ADDR").ok()?;
    Some(ip.parse().expect("GPUNET_RC_ADDR is an IPv4 address"))
}

/// The address where a listener with these options is reached.
pub fn home(options: Options) -> SockAddr {
    match rc_home() {
        Some(ip) if options.transport == TransportKind::Rc as u8 => SockAddr::v4(ip.octets(), 0),
        _ => LOOPBACK,
    }
}

/// A listener of a world, made by a single lane.
pub fn listen(net: Net, options: Options) -> Listener {
    Listener::bind_with(&Solo::new(0, 1), net, home(options), options, 128).expect("a free port")
}

/// One instance of the conformance suite: a transport and a size of groups.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub transport: TransportKind,
    pub lanes: u32,
    /// Where rings of rc streams lie.
    pub placement: PlacementChoice,
    /// The two ends are sockets of two attachments.
    pub apart: bool,
    pub home: Home,
}

impl Case {
    pub fn options(&self) -> Options {
        Options::DEFAULT.with_transport(self.transport)
    }

    /// Options with both rings of that size.
    pub fn rings(&self, bytes: u64) -> Options {
        self.options().with_rings(bytes, bytes)
    }

    /// How much to do: groups of many CPU threads spend their time at barriers.
    pub fn scaled(&self, amount: usize) -> usize {
        if self.lanes > 8 { amount / 8 } else { amount }
    }

    /// The RDMA stack of its proxy.
    pub fn rdma(&self) -> Rdma {
        match self.transport {
            TransportKind::Rc if rc_home().is_none() => Rdma::Simulated(Fabric::new(7)),
            TransportKind::Rc => Rdma::System,
            _ => Rdma::Off,
        }
    }

    /// The address where its listeners are reached.
    pub fn address(&self) -> SockAddr {
        home(self.options())
    }

    /// Returns whether it has the address of a network card, and no other.
    pub fn has_one_address(&self) -> bool {
        self.transport == TransportKind::Rc && rc_home().is_some()
    }

    pub fn is_direct(&self) -> bool {
        self.transport == TransportKind::Peer
    }

    /// Runs two groups at the same time, with the two ends of one connection, and gives their
    /// results. Each closes its end.
    pub fn pair<S, C>(
        &self,
        world: &World,
        options: Options,
        server: impl Fn(&Team, Stream) -> Result<S, Error> + Sync,
        client: impl Fn(&Team, Stream) -> Result<C, Error> + Sync,
    ) -> (S, C)
    where
        S: Send + PartialEq + Debug,
        C: Send + PartialEq + Debug,
    {
        let (net, there) = (world.net(), world.there());
        let listener = listen(net, options);
        let (addr, handle) = (listener.local_addr(), listener.handle());
        let accept = |g: &Team| {
            let stream = Listener::from_handle(g, net, handle)?.accept(g)?;
            server(g, stream)
        };
        let connect = |g: &Team| client(g, Stream::connect_with(g, there, addr, options)?);
        let (served, done) = std::thread::scope(|scope| {
            let served = scope.spawn(|| team(self.lanes, accept));
            let done = team(self.lanes, connect);
            (served.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), done)
        });
        listener.close(&Solo::new(0, 1)).expect("an open listener");
        (served.expect("the server's end"), done.expect("the client's end"))
    }
}
