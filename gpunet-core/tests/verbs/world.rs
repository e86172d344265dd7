//! What the conformance tests run in: a pair of RDMA stacks, and how to make a connection there.

use crate::buffer::Rings;
use gpunet_core::verbs::{
    Completion, CompletionStatus, Depth, Endpoint, Handshake, Keys, Listening, Op, Request, Source, Verbs,
    WorkRequest,
};
use std::future::Future;
use std::io;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Longest time that anything may take.
pub const TIMEOUT: Duration = Duration::from_secs(20);
pub const RING: usize = 16384;
pub const DEPTH: Depth = Depth { sends: 16, receives: 32 };

/// Two RDMA stacks that reach each other, and the address at which the second one is reached.
pub struct World {
    pub name: String,
    pub client: Box<dyn Verbs>,
    pub server: Box<dyn Verbs>,
    pub ip: IpAddr,
    runtime: Runtime,
}

/// One end of a connection.
pub struct End {
    pub endpoint: Box<dyn Endpoint>,
    pub rings: Rings,
    pub keys: Keys,
    /// What the peer sent in its request or answer.
    pub private_data: Vec<u8>,
    pub iwarp: bool,
}

pub struct Pair {
    pub client: End,
    pub server: End,
}

impl World {
    pub fn new(name: &str, client: Box<dyn Verbs>, server: Box<dyn Verbs>, ip: IpAddr) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { name: name.into(), client, server, ip, runtime }
    }

    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { tokio::time::timeout(TIMEOUT, future).await.expect("it took too long") })
    }

    /// An address whose port nobody uses.
    pub fn address(&self) -> SocketAddr {
        TcpListener::bind((self.ip, 0)).and_then(|held| held.local_addr()).expect("a free port")
    }

    pub fn listen(&self, backlog: u32) -> (SocketAddr, Box<dyn Listening>) {
        loop {
            let addr = self.address();
            match self.server.listen(addr, backlog) {
                Ok(listening) => return (addr, listening),
                // Another thread was given the same port, which nobody used, and was faster.
                Err(e) if e.kind() == ErrorKind::AddrInUse => {}
                Err(e) => panic!("listening: {e}"),
            }
        }
    }

    pub fn resolve(&self, to: SocketAddr) -> Box<dyn Handshake> {
        self.wait(self.client.resolve(to, None)).expect("a route")
    }

    /// A connection with these rings at its ends.
    pub fn connect_with(&self, client: &Rings, server: &Rings, depth: Depth) -> Pair {
        let (addr, mut listening) = self.listen(8);
        self.connect_to(addr, &mut *listening, (client, server), depth)
    }

    pub fn connect_to(
        &self,
        addr: SocketAddr,
        listening: &mut dyn Listening,
        (client, server): (&Rings, &Rings),
        depth: Depth,
    ) -> Pair {
        let active = async {
            let mut handshake = self.client.resolve(addr, None).await.expect("a route");
            let iwarp = handshake.device().iwarp;
            let keys = handshake.prepare(&client.memory(), depth).expect("memory registered");
            let (endpoint, private_data) = handshake.connect(&encode(&keys)).await.expect("connected");
            End { endpoint, rings: client.clone(), keys, private_data, iwarp }
        };
        let passive = async {
            let Request { mut handshake, private_data } = next(listening).await;
            let iwarp = handshake.device().iwarp;
            let keys = handshake.prepare(&server.memory(), depth).expect("memory registered");
            let endpoint = handshake.accept(&encode(&keys)).await.expect("accepted");
            End { endpoint, rings: server.clone(), keys, private_data, iwarp }
        };
        let (client, server) = self.wait(async { tokio::join!(active, passive) });
        Pair { client, server }
    }

    pub fn connect(&self) -> Pair {
        self.connect_with(&Rings::new(RING, 1), &Rings::new(RING, 2), DEPTH)
    }
}

/// The next request at a listener.
pub async fn next(listening: &mut dyn Listening) -> Request {
    loop {
        match listening.next() {
            Ok(request) => return request,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(error) => panic!("no request: {error}"),
        }
    }
}

/// Keys as the tests' private data: 16 bytes.
pub fn encode(keys: &Keys) -> Vec<u8> {
    let mut bytes = keys.table_address.to_ne_bytes().to_vec();
    bytes.extend(keys.recv_rkey.to_ne_bytes());
    bytes.extend(keys.table_rkey.to_ne_bytes());
    bytes
}

impl End {
    /// The next completion, by polling.
    pub fn next(&mut self) -> Completion {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.endpoint.poll() {
                return completion;
            }
            assert!(start.elapsed() < TIMEOUT, "no completion");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// The next completion that is a message; the others are dropped.
    pub fn next_message(&mut self) -> (u32, Option<u32>) {
        loop {
            match self.next() {
                Completion::Received { message, len } => return (message, len),
                Completion::Sent { status: CompletionStatus::Success, .. } => {}
                other => panic!("{other:?} instead of a message"),
            }
        }
    }

    /// The next completion of a request; messages are dropped.
    pub fn next_sent(&mut self) -> (u64, CompletionStatus) {
        loop {
            if let Completion::Sent { id, status } = self.next() {
                return (id, status);
            }
        }
    }

    pub fn post(&mut self, id: u64, op: Op) {
        self.endpoint.post(&WorkRequest { id, op }).expect("posted");
    }

    /// Writes a piece of the send ring to the same place in the peer's ring with a message; returns
    /// the number of requests that this took.
    pub fn write(&mut self, id: u64, (at, len): (usize, u32), peer: (u64, u32), message: u32) -> u32 {
        let from = Source::Ring([(self.rings.send.address() + at as u64, len), (0, 0)]);
        let (to, rkey) = (peer.0 + at as u64, peer.1);
        self.write_and_tell(id, from, to, rkey, message)
    }

    /// Posts a write with a message, in whichever way the device can.
    pub fn write_and_tell(&mut self, id: u64, from: Source, to: u64, rkey: u32, message: u32) -> u32 {
        if self.iwarp {
            self.post(id, Op::Write { from, to, rkey, immediate: None });
            self.post(id, Op::Send { message });
            2
        } else {
            self.post(id, Op::Write { from, to, rkey, immediate: Some(message) });
            1
        }
    }

    /// Posts a message alone.
    pub fn tell(&mut self, id: u64, message: u32) {
        let op = if self.iwarp {
            Op::Send { message }
        } else {
            Op::Write { from: Source::Nothing, to: 0, rkey: 0, immediate: Some(message) }
        };
        self.post(id, op);
    }

    /// Where the peer writes.
    pub fn target(&self) -> (u64, u32) {
        (self.rings.recv.address(), self.keys.recv_rkey)
    }

    /// Waits until the connection is known to be gone.
    pub fn wait_for_end(&mut self) {
        until("the peer's end to be noticed", || self.endpoint.is_disconnected());
    }
}

pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < TIMEOUT, "waited too long for {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
