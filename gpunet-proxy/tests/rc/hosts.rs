//! Proxies as hosts of one simulated network, and streams between them.

use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, pattern, small};
use gpunet_core::verbs::Usage;
use gpunet_core::verbs::sim::{Fabric, HostId};
use gpunet_device::{Error, Handle, Net, Options, Stream, TransportKind};
use gpunet_proxy::config::Rdma;
use gpunet_proxy::{Config, FinishPolicy};
use std::thread::JoinHandle;
use std::time::Duration;

pub const RC: Options = Options::DEFAULT.with_transport(TransportKind::Rc);

/// What a send, or a receive, of a failed local card ends with.
pub const EIO: i32 = 5;

/// A proxy on that network, which asks often whether its peers live.
pub fn config(fabric: &Fabric) -> Config {
    Config { rdma: Rdma::Simulated(fabric.clone()), rc_keepalive: Duration::from_millis(50), ..small() }
}

/// A proxy and the host that it is.
pub struct Host {
    pub world: World,
    pub id: HostId,
    fabric: Fabric,
}

impl Host {
    pub fn new(fabric: &Fabric) -> Self {
        Self::with(fabric, config(fabric))
    }

    /// A proxy becomes a host when it first has to do with rc.
    pub fn with(fabric: &Fabric, config: Config) -> Self {
        let world = World::with(config);
        listen(world.net(), RC.with_rings(4096, 4096)).close(&SOLO).expect("open");
        let id = *fabric.hosts().last().expect("a host");
        Self { world, id, fabric: fabric.clone() }
    }

    pub fn net(&self) -> Net {
        self.world.net()
    }

    pub fn usage(&self) -> Usage {
        self.fabric.usage(self.id)
    }

    /// Checks that nothing is left: slots, rings, queue pairs, identifiers.
    #[track_caller]
    pub fn expect_all_free(&self) {
        self.world.expect_all_free();
        crate::support::until("queue pairs and identifiers are gone", || {
            let usage = self.usage();
            usage.queue_pairs == 0 && usage.identifiers == 0
        });
    }

    /// Ends a host in which everything was closed and delivered.
    #[track_caller]
    pub fn end(self) {
        self.expect_all_free();
        self.world.end();
        let usage = self.fabric.usage(self.id);
        assert_eq!(usage, Usage::default(), "a proxy that has ended holds nothing");
    }

    /// Ends a host whose connections are beyond good order.
    #[track_caller]
    pub fn bury(self) {
        let (proxy, attachment, token) = self.world.apart();
        token.finish(FinishPolicy::Reset);
        drop(attachment);
        drop(proxy);
        let usage = self.fabric.usage(self.id);
        assert_eq!(usage, Usage::default(), "a proxy that has ended holds nothing");
    }
}

/// Two of them.
pub struct Hosts {
    pub fabric: Fabric,
    pub a: Host,
    pub b: Host,
}

impl Hosts {
    pub fn new(fabric: Fabric) -> Self {
        let (a, b) = (Host::new(&fabric), Host::new(&fabric));
        Self { fabric, a, b }
    }

    /// A stream from `a` to `b`: both ends.
    pub fn pair(&self, options: Options) -> (Stream, Stream) {
        pair(self.a.net(), self.b.net(), options)
    }

    #[track_caller]
    pub fn end(self) {
        self.a.end();
        self.b.end();
    }
}

/// A stream from one proxy to another: both ends.
pub fn pair(client: Net, server: Net, options: Options) -> (Stream, Stream) {
    crate::support::pair::pair(client, server, options).into()
}

/// A stream by its handle: a Stream does not travel between threads.
pub fn open(net: Net, handle: Handle) -> Stream {
    Stream::from_handle(&SOLO, net, handle).expect("open")
}

/// Closes a stream that other threads have used meanwhile: what this one knows of it is old.
#[track_caller]
pub fn close(net: Net, stream: Stream) {
    open(net, stream.handle()).close(&SOLO).expect("open");
}

/// Sends until that fails: what the ring takes before its proxy sees it succeeds.
pub fn send_error(stream: &mut Stream) -> Error {
    let memory = Memory::new(100_000);
    loop {
        if let Err(error) = stream.send(&SOLO, memory.buffer()) {
            return error;
        }
    }
}

/// Sends bytes of the stream number `seed` on a thread of its own, until all are sent or it fails.
pub fn sending(net: Net, stream: &Stream, seed: u64, len: usize) -> JoinHandle<Result<(), Error>> {
    let handle = stream.handle();
    std::thread::spawn(move || {
        let mut stream = open(net, handle);
        let memory = Memory::filled(seed, 0, len);
        stream.send_all(&SOLO, memory.buffer())
    })
}

/// Receives what [`sending`] sends, up to `len` bytes; says how many came, and the error that ended
/// it.
pub fn receive(stream: &mut Stream, seed: u64, start: usize, len: usize) -> (usize, Option<Error>) {
    let memory = Memory::new(32 * 1024);
    let mut done = 0;
    while done < len {
        match stream.recv(&SOLO, memory.buffer().first((len - done).min(32 * 1024))) {
            Ok(0) => break,
            Ok(n) => {
                assert!(memory.holds(0, n, seed, start + done), "wrong bytes near {}", start + done);
                done += n;
            }
            Err(error) => return (done, Some(error)),
        }
    }
    (done, None)
}

/// Moves a few bytes either way.
#[track_caller]
pub fn exchange(a: &mut Stream, b: &mut Stream) {
    const LEN: usize = 1000;
    for seed in 0..3 {
        let bytes: Vec<u8> = (0..LEN).map(|i| pattern(seed, i)).collect();
        let there = Memory::from_fn(LEN, |i| bytes[i]);
        let back = Memory::new(LEN);
        a.send_all(&SOLO, there.buffer()).expect("room");
        assert_eq!(b.recv_exact(&SOLO, back.buffer()), Ok(LEN));
        b.send_all(&SOLO, back.buffer()).expect("room");
        assert_eq!(a.recv_exact(&SOLO, there.buffer()), Ok(LEN));
        assert!(back.copy(0, LEN) == bytes && there.copy(0, LEN) == bytes);
    }
}

/// Streams of a proxy that have nothing to do with what befalls another of its streams: one over rc
/// from a host of its own, one within the proxy.
pub struct Bystanders {
    other: Host,
    rc: (Stream, Stream),
    direct: (Stream, Stream),
}

impl Bystanders {
    pub fn of(host: &Host) -> Self {
        let other = Host::new(&host.fabric);
        let rc = pair(other.net(), host.net(), RC);
        let direct = Options::DEFAULT.with_transport(TransportKind::Peer);
        let direct = pair(host.net(), host.net(), direct);
        let mut new = Self { other, rc, direct };
        new.are_well();
        new
    }

    #[track_caller]
    pub fn are_well(&mut self) {
        exchange(&mut self.rc.0, &mut self.rc.1);
        exchange(&mut self.direct.0, &mut self.direct.1);
    }

    #[track_caller]
    pub fn end(mut self) {
        self.are_well();
        for stream in [self.rc.0, self.rc.1, self.direct.0, self.direct.1] {
            stream.close(&SOLO).expect("open");
        }
        self.other.end();
    }
}
