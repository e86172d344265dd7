//! A peer made of verbs alone: it says and does whatever a test tells it.

use crate::support::client::std_addr;
use crate::support::{HANG, SOLO, pattern, until};
use gpunet_core::rc::{HELLO_LEN, Hello, Remote};
use gpunet_core::verbs::sim::Sim;
use gpunet_core::verbs::{
    Completion, CompletionStatus, Depth, Endpoint, Handshake, Keys, Listening, Memory, Op, Pending, Ring,
    RingMemory, Sge, Source, Verbs, WorkRequest,
};
use gpunet_device::{Listener, Stream};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes that a network card writes while the test looks.
pub type Bytes = Arc<[AtomicU8]>;

/// What a peer says about itself, and what it has.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of each of its two rings.
    pub ring: usize,
    /// Bytes of the first area that it publishes.
    pub area: u32,
    pub credits: u16,
    /// Receives posted.
    pub receives: u32,
}

impl Shape {
    pub const PLAIN: Self = Self { ring: 65_536, area: 65_536, credits: 64, receives: 72 };
}

pub struct RawPeer {
    pub endpoint: Box<dyn Endpoint>,
    pub send: Bytes,
    pub recv: Bytes,
    pub keys: Keys,
    pub theirs: Hello,
    pub iwarp: bool,
    next_id: u64,
}

/// Waits for a future of the verbs.
pub fn wait<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async { tokio::time::timeout(HANG / 2, future).await.expect("it took too long") })
}

/// Rings, registered, and the private data to send.
fn prepare(handshake: &mut dyn Handshake, shape: Shape) -> io::Result<(Bytes, Bytes, Keys, Vec<u8>)> {
    let bytes = || (0..shape.ring).map(|_| AtomicU8::new(0xee)).collect::<Bytes>();
    let (send, recv) = (bytes(), bytes());
    let ring = |bytes: &Bytes| Ring {
        address: bytes.as_ptr() as u64,
        len: bytes.len() as u64,
        memory: RingMemory::Mapped,
    };
    let keep = Arc::new((send.clone(), recv.clone()));
    let memory = Memory { send_ring: ring(&send), recv_ring: ring(&recv), owner: 0, keep };
    let keys = handshake.prepare(&memory, Depth { sends: 1024, receives: shape.receives })?;
    let hello = Hello {
        big_endian: false,
        credits: shape.credits,
        table: Remote { address: keys.table_address, rkey: keys.table_rkey, len: 2 },
        area: Remote { address: recv.as_ptr() as u64, rkey: keys.recv_rkey, len: shape.area },
        gpunet: None,
    };
    // As an rsocket does: what is behind is the network's padding.
    Ok((send, recv, keys, hello.encode()[..HELLO_LEN].to_vec()))
}

/// Connects with private data that `twist` may change.
pub fn connect_with(
    sim: &Sim,
    to: SocketAddr,
    shape: Shape,
    twist: impl FnOnce(&mut Vec<u8>),
) -> io::Result<RawPeer> {
    let mut handshake = wait(sim.resolve(to, None))?;
    let iwarp = handshake.device().iwarp;
    let (send, recv, keys, mut data) = prepare(&mut *handshake, shape)?;
    twist(&mut data);
    let (endpoint, answer) = wait(handshake.connect(&data))?;
    let theirs = Hello::decode(&answer).expect("a gpunet's answer");
    Ok(RawPeer { endpoint, send, recv, keys, theirs, iwarp, next_id: 0 })
}

/// A client that has asked and stops before it takes the answer.
pub type Stopped = Pending<(Box<dyn Endpoint>, Vec<u8>)>;

/// Asks for a connection, as a plain peer does, and stops.
pub fn stopped(sim: &Sim, to: SocketAddr) -> Stopped {
    let mut handshake = wait(sim.resolve(to, None)).expect("a route");
    let (_, _, _, data) = prepare(&mut *handshake, Shape::PLAIN).expect("memory");
    handshake.connect(&data)
}

/// Answers the next request at a listener of its own.
pub fn accept_with(
    listening: &mut dyn Listening,
    shape: Shape,
    twist: impl FnOnce(&mut Vec<u8>),
) -> io::Result<RawPeer> {
    let mut request = None;
    until("a request comes", || {
        request = listening.next().ok();
        request.is_some()
    });
    let mut request = request.expect("it came");
    let theirs = Hello::decode(&request.private_data).expect("a gpunet's request");
    let iwarp = request.handshake.device().iwarp;
    let (send, recv, keys, mut data) = prepare(&mut *request.handshake, shape)?;
    twist(&mut data);
    let endpoint = wait(request.handshake.accept(&data))?;
    Ok(RawPeer { endpoint, send, recv, keys, theirs, iwarp, next_id: 0 })
}

/// A raw peer connected to a device's listener, and the device's end.
pub fn connected(sim: &Sim, listener: &Listener, shape: Shape) -> (RawPeer, Stream) {
    let addr = std_addr(listener.local_addr());
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| connect_with(sim, addr, shape, |_| {}));
        let stream = listener.accept(&SOLO).expect("accepted");
        (peer.join().expect("no panic").expect("connected"), stream)
    })
}

impl RawPeer {
    pub fn try_post(&mut self, op: Op) -> io::Result<()> {
        self.next_id += 1;
        self.endpoint.post(&WorkRequest { id: self.next_id, op })
    }

    pub fn post(&mut self, op: Op) {
        self.try_post(op).expect("room in the send queue");
    }

    /// Sends a message without bytes.
    pub fn message(&mut self, message: u32) {
        let write = Op::Write { from: Source::Nothing, to: 0, rkey: 0, immediate: Some(message) };
        self.post(if self.iwarp { Op::Send { message } } else { write });
    }

    /// Sends a message behind bytes.
    pub fn write(&mut self, from: Source, to: u64, rkey: u32, message: u32) {
        let immediate = (!self.iwarp).then_some(message);
        self.post(Op::Write { from, to, rkey, immediate });
        if self.iwarp {
            self.post(Op::Send { message });
        }
    }

    /// Writes bytes of the stream number `seed`, from `position`, to where they belong in the first
    /// area, and says that they are `claimed` bytes.
    pub fn data(&mut self, seed: u64, position: usize, len: usize, claimed: u32) {
        self.fill(seed, position, len);
        let at = position % self.send.len();
        let pieces = [(self.send.as_ptr() as u64 + at as u64, len as u32), (0, 0)];
        let area = self.theirs.area;
        let to = area.address + position as u64 % u64::from(area.len);
        self.write(Source::Ring(pieces), to, area.rkey, claimed);
    }

    /// Puts bytes of the stream number `seed` into the send ring.
    pub fn fill(&self, seed: u64, position: usize, len: usize) {
        for i in position..position + len {
            self.send[i % self.send.len()].store(pattern(seed, i), Ordering::Relaxed);
        }
    }

    /// Writes a descriptor into the device's table, with a credit limit behind it.
    pub fn publish(&mut self, entry: u64, area: Sge, limit: u16) {
        let table = self.theirs.table;
        let to = table.address + entry * 16;
        self.write(Source::Inline(area.to_bytes()), to, table.rkey, 4 << 29 | u32::from(limit));
    }

    /// A part of the receive ring.
    pub fn area(&self, at: u64, len: u32) -> Sge {
        Sge { address: self.recv.as_ptr() as u64 + at, rkey: self.keys.recv_rkey, len }
    }

    /// Bytes that came.
    pub fn received(&self, at: usize, len: usize) -> Vec<u8> {
        self.recv[at..at + len].iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    /// Waits for the next completion of a request.
    pub fn sent(&mut self) -> CompletionStatus {
        let mut status = None;
        until("a request completes", || {
            if let Some(Completion::Sent { status: ended, .. }) = self.endpoint.poll() {
                status = Some(ended);
            }
            status.is_some()
        });
        status.expect("it did")
    }
}
