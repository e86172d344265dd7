//! Two hosts with an rc transport each, and streams between them.

use crate::buffer::{Buffer, Rings};
use gpunet_abi::{Options, RingSpan};
use gpunet_core::ids::{AttachmentId, RequestId};
use gpunet_core::rc::{Hello, Remote};
use gpunet_core::transport::peer::Ticket;
use gpunet_core::transport::rc::{Rc, RcSettings};
use gpunet_core::transport::tcp;
use gpunet_core::transport::{
    Bound, Connect, Connecting, Listen, Opened, Opening, Ready, StreamIo, Transport, Turn,
};
use gpunet_core::verbs::sim::Fabric;
use gpunet_core::verbs::{Depth, Endpoint};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc as Shared;
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Longest time that anything may take.
const HANG: Duration = Duration::from_secs(20);

pub struct World {
    client: Rc,
    server: Rc,
    runtime: Runtime,
}

/// One end of a stream with its rings, driven by the test instead of a data thread.
pub struct End {
    pub io: Box<dyn StreamIo>,
    pub rings: Rings,
    capacity: u64,
    /// Bytes that the transport has taken, and those that it has given.
    pub sent: u64,
    pub received: u64,
}

impl World {
    pub fn new(fabric: &Fabric) -> Self {
        let host = || Rc::new(Shared::from(fabric.verbs()), RcSettings::default());
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { client: host(), server: host(), runtime }
    }

    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(HANG, future).await.expect("it took too long") })
    }

    pub fn listen(&self, backlog: u32) -> (Bound, Box<dyn Listen>) {
        let bound = tcp::bind("127.0.0.1:0".parse().expect("an address"), Options::DEFAULT);
        let bound = bound.expect("a free port");
        let listening = self.server.listen(&bound, backlog).expect("nobody else listens there");
        (bound, listening)
    }

    pub fn connect(&self, to: SocketAddr, rings: &Rings) -> Opening {
        let ticket = Ticket {
            attachment: AttachmentId(1),
            slot: 1,
            generation: 1,
            request: RequestId::Device { control: 0, seq: 1 },
        };
        let memory = Some(rings.memory());
        let wish = Connect { to, from: None, options: Options::DEFAULT, ticket, memory };
        match self.client.connect(wish) {
            Connecting::Pending(opening) => opening,
            _ => panic!("a connect over rc takes its time"),
        }
    }

    /// Answers the request that has waited longest.
    pub fn answer(&self, listening: &mut dyn Listen, rings: &Rings) -> Opening {
        listening.answer(&rings.memory()).expect("a request")
    }

    /// Drives one end until `done`, and no further.
    pub fn start(&self, mut opening: Opening, mut done: impl FnMut() -> bool) -> Opening {
        self.wait(poll_fn(|context| {
            if done() {
                return Poll::Ready(());
            }
            assert!(opening.as_mut().poll(context).is_pending(), "it is over");
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        opening
    }

    /// Drives one end as far as it comes by itself; returns whether it waits for the other.
    pub fn is_pending(&self, opening: &mut Opening) -> bool {
        self.wait(async { tokio::time::timeout(Duration::from_millis(50), opening).await }).is_err()
    }

    /// A connection of a plain rsocket: its queue pair, and the server's end.
    pub fn plain_client(&self, capacity: u64) -> (Box<dyn Endpoint>, End) {
        let (bound, mut listening) = self.listen(1);
        let rings = [1, 2].map(|owner| Rings::new(capacity as usize, owner));
        let connecting = async {
            let mut handshake = self.client.verbs().resolve(bound.addr, None).await.expect("a route");
            let memory = rings[0].memory();
            let keys = handshake.prepare(&memory, Depth { sends: 16, receives: 16 }).expect("memory");
            let hello = Hello {
                big_endian: cfg!(target_endian = "big"),
                credits: 16,
                table: Remote { address: keys.table_address, rkey: keys.table_rkey, len: 2 },
                area: Remote {
                    address: memory.recv_ring.address,
                    rkey: keys.recv_rkey,
                    len: capacity as u32,
                },
                gpunet: None,
            };
            handshake.connect(&hello.encode()).await.expect("accepted").0
        };
        let accepting = async {
            while !listening.has_request() {
                tokio::task::yield_now().await;
            }
            self.answer(&mut *listening, &rings[1]).await
        };
        let (client, server) = self.wait(async { tokio::join!(connecting, accepting) });
        let [_, theirs] = rings;
        (client, End::new(server.expect("accepted"), theirs, capacity))
    }

    /// A stream between rings of `capacity` bytes: the client's end and the server's.
    pub fn pair(&self, capacity: u64) -> (End, End) {
        let (bound, mut listening) = self.listen(1);
        let rings = [1, 2].map(|owner| Rings::new(capacity as usize, owner));
        let connecting = self.connect(bound.addr, &rings[0]);
        let accepting = async {
            while !listening.has_request() {
                tokio::task::yield_now().await;
            }
            self.answer(&mut *listening, &rings[1]).await
        };
        let (client, server) = self.wait(async { tokio::join!(connecting, accepting) });
        let [ours, theirs] = rings;
        (
            End::new(client.expect("connected"), ours, capacity),
            End::new(server.expect("accepted"), theirs, capacity),
        )
    }
}

impl End {
    fn new(opened: Opened, rings: Rings, capacity: u64) -> Self {
        Self { io: opened.io, rings, capacity, sent: 0, received: 0 }
    }

    /// Takes a turn in which the application has consumed what came up to `consumed`.
    pub fn turn(&mut self, consumed: u64) -> Ready {
        self.turn_at(0, consumed)
    }

    /// The same at that time, in nanoseconds.
    pub fn turn_at(&mut self, now: u64, consumed: u64) -> Ready {
        self.io.turn(&Turn { now, events: [true; 2], consumed, discards: false })
    }

    /// Offers the bytes up to `position`; returns how many were taken.
    pub fn offer(&mut self, position: u64) -> io::Result<usize> {
        let taken = self.io.offer(self.span(&self.rings.send, self.sent, position - self.sent))?;
        self.sent += taken as u64;
        Ok(taken)
    }

    /// Takes what came, at most up to `position`.
    pub fn take(&mut self, position: u64) -> io::Result<usize> {
        let taken = self.io.take(self.span(&self.rings.recv, self.received, position - self.received))?;
        self.received += taken as u64;
        Ok(taken)
    }

    fn span(&self, ring: &Buffer, position: u64, len: u64) -> RingSpan {
        RingSpan::new(ring.address() as *mut u8, self.capacity, position, len)
    }
}
