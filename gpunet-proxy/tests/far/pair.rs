//! Two attachments of one proxy.

use crate::support::{Team, World, small, team};
use gpunet_device::group::Solo;
use gpunet_device::{Error, Listener, Net, Options, Stream, TransportKind};
use gpunet_proxy::Config;

pub const ONE: Solo = Solo::new(0, 1);

/// A world with a second attachment.
pub struct Two {
    pub here: World,
    pub there: World,
}

impl Two {
    pub fn new() -> Self {
        Self::with(small())
    }

    pub fn with(config: Config) -> Self {
        let here = World::with(config);
        let there = World::beside(&here);
        Self { here, there }
    }

    /// Ends both, and nothing is left.
    #[track_caller]
    pub fn end(self) {
        self.here.end();
        self.there.end();
    }
}

/// Options that demand peer.
pub fn peer() -> Options {
    Options::DEFAULT.with_transport(TransportKind::Peer)
}

/// Connects a client at `there` to a server at `here`, and runs both.
pub fn run<S: Send + PartialEq + std::fmt::Debug, C: Send + PartialEq + std::fmt::Debug>(
    two: &Two,
    lanes: u32,
    options: Options,
    server: impl Fn(&Team, Stream) -> Result<S, Error> + Sync,
    client: impl Fn(&Team, Stream) -> Result<C, Error> + Sync,
) -> (S, C) {
    let (here, there) = (two.here.net(), two.there.net());
    let listener = listen(here, options);
    let (addr, handle) = (listener.local_addr(), listener.handle());
    let accept = |g: &Team| {
        let stream = Listener::from_handle(g, here, handle)?.accept(g)?;
        server(g, stream)
    };
    let connect = |g: &Team| client(g, Stream::connect_with(g, there, addr, options)?);
    let (served, done) = std::thread::scope(|scope| {
        let served = scope.spawn(|| team(lanes, accept));
        let done = team(lanes, connect);
        (served.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), done)
    });
    listener.close(&ONE).expect("an open listener");
    (served.expect("the server's end"), done.expect("the client's end"))
}

pub fn listen(net: Net, options: Options) -> Listener {
    crate::support::world::listen(net, options)
}

/// Both ends of a stream, by single lanes: the client's at `there`, the server's at `here`.
pub fn ends(two: &Two, options: Options) -> (Stream, Stream) {
    crate::support::pair::pair(two.there.net(), two.here.net(), options).into()
}
