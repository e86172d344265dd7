//! A proxy, a host, and a runtime for its tasks.

use crate::support::daemon::Served;
use crate::support::world::Home;
use crate::support::{HANG, bounded, small};
use gpunet_core::verbs::sim::Fabric;
use gpunet_device::{Options, TransportKind};
use gpunet_proxy::config::Rdma;
use gpunet_proxy::host::{Host, Listener, Stream};
use gpunet_proxy::socket::SocketError;
use gpunet_proxy::{Config, Proxy};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub use crate::support::memory::pattern;

/// Loopback, any port.
pub const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// One instance of the suite: a transport and a flavour of runtime.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub transport: TransportKind,
    /// 1: the current-thread flavour.
    pub threads: usize,
}

impl Case {
    pub fn config(self) -> Config {
        // Two threads of the runtime go with several data threads.
        let data_threads = if self.threads > 1 { 2 } else { 1 };
        Config { data_threads, rdma: Rdma::Simulated(Fabric::new(7)), ..small() }
    }

    /// Runs a test's body on the flavour's runtime, and fails when it hangs.
    pub fn run<F: Future<Output = ()>>(self, body: impl FnOnce(Bench) -> F + Send + 'static) {
        bounded(move || self.runtime().block_on(body(Bench::with(self, self.config()))));
    }

    pub fn runtime(self) -> tokio::runtime::Runtime {
        let mut builder = match self.threads {
            1 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        builder.worker_threads(self.threads).enable_all().build().expect("a runtime")
    }
}

pub struct Bench {
    pub case: Case,
    pub proxy: Proxy,
    pub host: Host,
    // Dropped last.
    _daemon: Option<Served>,
}

impl Bench {
    pub fn with(case: Case, config: Config) -> Self {
        let (proxy, daemon) = Home::of_environment().proxy(config);
        let host = proxy.host().expect("a host's sockets");
        Self { case, proxy, host, _daemon: daemon }
    }

    pub fn options(&self) -> Options {
        Options::DEFAULT.with_transport(self.case.transport).with_rings(1 << 16, 1 << 16)
    }

    pub async fn listen(&self) -> Listener {
        self.listen_with(self.options()).await
    }

    pub async fn listen_with(&self, options: Options) -> Listener {
        self.host.bind(LOOPBACK, options, 256).await.expect("a free port")
    }

    /// The two ends of one connection: connected, accepted.
    pub async fn pair(&self) -> (Stream, Stream) {
        self.pair_with(self.options()).await
    }

    pub async fn pair_with(&self, options: Options) -> (Stream, Stream) {
        let listener = self.listen_with(options).await;
        let addr = listener.local_addr().expect("an address");
        let (connected, accepted) = tokio::join!(self.host.connect(addr, options), listener.accept());
        (connected.expect("connected"), accepted.expect("accepted").0)
    }

    /// Waits until every slot and every byte of ring memory is free again.
    #[track_caller]
    pub fn expect_all_free(&self) -> impl Future<Output = ()> {
        eventually("all slots and rings are free", || {
            let usage = self.host.usage();
            usage.sockets == 0 && usage.requests == 0 && usage.free_ring_bytes == usage.ring_bytes
        })
    }

    /// Ends a bench on which everything was closed and delivered.
    pub async fn end(self) {
        self.expect_all_free().await;
        let report = self.host.close().await;
        assert_eq!((report.undelivered, report.unfinished), (0, 0));
    }
}

/// Waits until `condition` holds.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < HANG / 2, "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Bytes `start..start + len` of stream `seed`.
pub fn bytes(seed: u64, start: usize, len: usize) -> Vec<u8> {
    (start..start + len).map(|i| pattern(seed, i)).collect()
}

/// What calls of host sockets fail with.
pub trait HasErrno {
    fn number(&self) -> i32;
}

impl HasErrno for std::io::Error {
    fn number(&self) -> i32 {
        self.raw_os_error().expect("an errno")
    }
}

impl HasErrno for SocketError {
    fn number(&self) -> i32 {
        self.errno()
    }
}

/// The errno of a failed call.
#[track_caller]
pub fn errno<T>(result: Result<T, impl HasErrno>) -> i32 {
    match result {
        Ok(_) => panic!("the call succeeded"),
        Err(error) => error.number(),
    }
}

impl Bench {
    /// Ends this bench and runs `body` on another, made by that configuration, which it ends too.
    pub async fn end_with(self, config: Config, body: impl AsyncFnOnce(&Self)) {
        let case = self.case;
        self.end().await;
        let bench = Self::with(case, config);
        body(&bench).await;
        bench.end().await;
    }
}
