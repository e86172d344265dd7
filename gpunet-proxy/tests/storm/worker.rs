//! A worker: this test program, started again. It listens, connects to the others, and checks all
//! that comes, until it is told to end, or killed.

use crate::plan::{self, Target};
use crate::support::SOLO;
use crate::support::rng::Rng;
use crate::watch::{LEAK, STRANGE, Watch, fail};
use crate::{foreign, host, kernel};
use gpunet_device::{Listener, Options, SockAddr};
use gpunet_proxy::{Config, FinishPolicy, Proxy, Usage, attach};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where a worker finds the daemon and the others.
pub const DIR: &str = "GPUNET_STORM_DIR";
pub const SEED: &str = "GPUNET_STORM_WORKER_SEED";
/// It is a host program, not kernels.
pub const HOST: &str = "GPUNET_STORM_HOST";
/// It knows nothing of gpunet.
pub const FOREIGN: &str = "GPUNET_STORM_FOREIGN";
/// The daemon may die.
pub const MORTAL: &str = "GPUNET_STORM_MORTAL";

/// Clients of each worker, and of a foreign one.
const CLIENTS: usize = 3;
const FOREIGN_CLIENTS: usize = 48;
/// What takes longer is never.
const LONG: Duration = Duration::from_secs(15);

struct Worker {
    dir: PathBuf,
    watch: Arc<Watch>,
    rng: Rng,
}

/// Does a worker's work; never returns.
pub fn run() -> ! {
    let dir: PathBuf = std::env::var_os(DIR).expect("a directory").into();
    let seed = std::env::var(SEED).expect("a seed").parse().expect("a number");
    let set = |name| std::env::var_os(name).is_some();
    let mut worker = Worker { watch: Watch::start(&dir, set(MORTAL)), dir, rng: Rng::new(seed) };
    let mut first = None;
    while !worker.told("exit") {
        if set(FOREIGN) {
            worker.as_foreign();
            continue;
        }
        let Some(proxy) = worker.attach() else { break };
        worker.watch.down.store(false, Ordering::Relaxed);
        if set(HOST) {
            worker.as_host(&proxy);
        } else {
            worker.as_kernels(&proxy);
        }
        drop(proxy);
        let first = *first.get_or_insert_with(held);
        if !soon(|| held() <= first) {
            fail(LEAK, &format!("descriptors and threads {first:?} at first, now {:?}", held()));
        }
    }
    // Not the harness's business.
    std::process::exit(0);
}

/// This process's descriptors.
pub fn held() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("this is Linux").count()
}

pub fn soon(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > LONG {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

pub fn all_free(usage: impl Fn() -> Usage) {
    let free =
        |usage: Usage| usage.sockets == 0 && usage.requests == 0 && usage.free_ring_bytes == usage.ring_bytes;
    if !soon(|| free(usage())) {
        fail(LEAK, &format!("not all is free: {:?}", usage()));
    }
}

pub fn config() -> Config {
    Config { sockets: 256, controls: 64, shared_rings: 16 << 20, ..Config::small() }
}

/// Is it time to go on to the next attachment, or to end?
fn told(dir: &Path, what: &str) -> bool {
    dir.join(what).exists()
}

impl Worker {
    fn told(&self, what: &str) -> bool {
        told(&self.dir, what)
    }

    /// Joins the daemon, once there is one; `None` if none is needed any more.
    fn attach(&self) -> Option<Proxy> {
        let start = Instant::now();
        loop {
            match attach(&self.dir.join("d.sock"), config()) {
                Ok(proxy) => return Some(proxy),
                Err(_) if self.told("exit") => return None,
                Err(error) if !self.watch.mortal || start.elapsed() > LONG => {
                    fail(STRANGE, &format!("attach: {error}"))
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn as_kernels(&mut self, proxy: &Proxy) {
        let watch = self.watch.clone();
        let attachment = match proxy.attach_cpu() {
            Ok(attachment) => attachment,
            Err(_) if watch.mortal => return,
            Err(error) => fail(STRANGE, &format!("attach: {error}")),
        };
        let token = attachment.token().expect("a number");
        let net = token.net();
        let loopback = SockAddr::v4([127, 0, 0, 1], 0);
        let listener = match Listener::bind_with(&SOLO, net, loopback, Options::DEFAULT, 128) {
            Ok(listener) => listener,
            Err(_) if watch.mortal => return,
            Err(error) => fail(STRANGE, &format!("bind: {error}")),
        };
        plan::publish(&self.dir, listener.local_addr().to_std().expect("an address"));
        watch.attached.fetch_add(1, Ordering::Relaxed);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (watch, stop, dir, handle) = (&watch, &stop, &self.dir, listener.handle());
            let mut rng = Rng::new(self.rng.next());
            let server = scope.spawn(move || {
                let listener = Listener::from_handle(&SOLO, net, handle).expect("open");
                kernel::serve(watch, net, &listener, stop, &mut rng);
            });
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let mut rng = Rng::new(self.rng.next());
                    scope.spawn(move || {
                        while let Some(target) = next(watch, dir, &mut rng) {
                            if let Some(target) = target
                                && !kernel::client(watch, net, target, &mut rng)
                            {
                                continue;
                            }
                            std::thread::sleep(Duration::from_millis(rng.range(1, 20)));
                        }
                    })
                })
                .collect();
            clients.into_iter().for_each(|client| client.join().expect("no panic"));
            watch.idle.store(true, Ordering::Relaxed);
            while !told(dir, "exit") && !watch.down.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Ordering::Relaxed);
            server.join().expect("no panic");
        });
        watch.idle.store(false, Ordering::Relaxed);
        let closed = listener.close(&SOLO);
        if watch.mortal {
            return;
        }
        if closed.is_err() || token.finish(FinishPolicy::Close).left_open > 0 {
            fail(LEAK, &format!("sockets are left open; the listener's close: {closed:?}"));
        }
        all_free(|| attachment.usage());
    }

    /// Plain TCP clients, without a daemon.
    fn as_foreign(&mut self) {
        let (watch, dir) = (&self.watch, &self.dir);
        std::thread::scope(|scope| {
            for _ in 0..FOREIGN_CLIENTS {
                let mut rng = Rng::new(self.rng.next());
                scope.spawn(move || {
                    while let Some(target) = next(watch, dir, &mut rng) {
                        if target.is_none_or(|target| foreign::client(watch, target, &mut rng)) {
                            std::thread::sleep(Duration::from_millis(rng.range(1, 20)));
                        }
                    }
                });
            }
        });
        watch.idle.store(true, Ordering::Relaxed);
        while !self.told("exit") {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn as_host(&mut self, proxy: &Proxy) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let watch = self.watch.clone();
        runtime.block_on(async {
            let host = match proxy.host() {
                Ok(host) => host,
                Err(_) if watch.mortal => return,
                Err(error) => fail(STRANGE, &format!("attach: {error}")),
            };
            let any = "127.0.0.1:0".parse().expect("an address");
            let listener = match host.bind(any, Options::DEFAULT, 128).await {
                Ok(listener) => listener,
                Err(_) if watch.mortal => return,
                Err(error) => fail(STRANGE, &format!("bind: {error}")),
            };
            plan::publish(&self.dir, listener.local_addr().expect("bound"));
            watch.attached.fetch_add(1, Ordering::Relaxed);
            let stop = Arc::new(AtomicBool::new(false));
            let rng = Rng::new(self.rng.next());
            let server = tokio::spawn(host::serve(watch.clone(), listener, stop.clone(), rng));
            let mut clients = tokio::task::JoinSet::new();
            for _ in 0..CLIENTS {
                let (watch, host, dir) = (watch.clone(), host.clone(), self.dir.clone());
                let mut rng = Rng::new(self.rng.next());
                clients.spawn(async move {
                    while let Some(target) = next(&watch, &dir, &mut rng) {
                        if let Some(target) = target
                            && !host::client(&watch, &host, target, &mut rng).await
                        {
                            continue;
                        }
                        tokio::time::sleep(Duration::from_millis(rng.range(1, 20))).await;
                    }
                });
            }
            clients.join_all().await;
            watch.idle.store(true, Ordering::Relaxed);
            while !told(&self.dir, "exit") && !watch.down.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            stop.store(true, Ordering::Relaxed);
            server.await.expect("no panic");
            while watch.busy() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            watch.idle.store(false, Ordering::Relaxed);
            if !watch.mortal {
                let usage = host.clone();
                let free = tokio::task::spawn_blocking(move || all_free(|| usage.usage()));
                free.await.expect("no panic");
            }
            let _ = host.close().await;
        });
    }
}

/// The next one to connect to: `None` when it is time to stop, `Some(None)` while there is nobody.
fn next(watch: &Watch, dir: &Path, rng: &mut Rng) -> Option<Option<Target>> {
    if told(dir, "finish") || watch.down.load(Ordering::Relaxed) {
        return None;
    }
    Some(rng.pick(&plan::targets(dir)).copied())
}
