//! What the examples of queues share: two ranks with a stream between them, their memory, and
//! kernels that take turns with a queue.
#![allow(dead_code, reason = "every example uses a part of it")]

use gpunet_device::abi::{Options, TransportKind, Word};
use gpunet_device::copy::{copy_into_ring, copy_out_of_ring};
use gpunet_device::trigger::{GateExt, PreparedExt, TriggerExt};
use gpunet_device::{Buffer, Group, Kernel, Net, Prepared, Result, Timeout};
use gpunet_proxy::queue::Queue;
use gpunet_proxy::socket::{Receiver, Sender, Socket};
use gpunet_proxy::{Attachment, Config, DeviceBuffer, FinishPolicy, Launch, embed};
use std::sync::atomic::AtomicU64;

pub type Fallible<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Runs an example between two attachments of one proxy, over the transport that the command line
/// names.
pub fn start(example: impl FnOnce(&Attachment, &Attachment, TransportKind) -> Fallible) -> Fallible {
    let transport = match std::env::args().nth(1).as_deref() {
        None | Some("peer") => TransportKind::Peer,
        Some("tcp") => TransportKind::Tcp,
        Some(other) => return Err(format!("{other:?} is neither tcp nor peer").into()),
    };
    let proxy = embed(Config::small())?;
    example(&proxy.attach_cpu()?, &proxy.attach_cpu()?, transport)
}

/// One of two processes of a program, with its end of the stream between them.
pub struct Rank<'a> {
    /// 0 or 1.
    pub number: usize,
    pub attachment: &'a Attachment,
    pub sender: Sender,
    pub receiver: Receiver,
    pub queue: Queue,
}

/// Opens a stream: the ends that connected and accepted.
pub fn connect(near: &Attachment, far: &Attachment, options: Options) -> Fallible<[Socket; 2]> {
    let listener = far.listen_blocking("127.0.0.1:0".parse()?, options, 1)?;
    let addr = listener.local_addr();
    std::thread::scope(|scope| {
        let connect = scope.spawn(|| near.connect_blocking(addr, options));
        let accepted = listener.accept_blocking()?;
        Ok([connect.join().expect("no panic")?, accepted])
    })
}

/// Two ranks, and a stream between them with rings of so many bytes.
pub fn ranks<'a>(
    near: &'a Attachment,
    far: &'a Attachment,
    transport: TransportKind,
    ring: u64,
) -> Fallible<[Rank<'a>; 2]> {
    let options = Options::DEFAULT.with_transport(transport).with_rings(ring, ring);
    let sockets = connect(near, far, options)?;
    Ok([Rank::new(0, near, &sockets[0])?, Rank::new(1, far, &sockets[1])?])
}

/// Runs a program as both ranks at a time.
pub fn run_both(ranks: &mut [Rank<'_>; 2], program: impl Fn(&mut Rank<'_>) -> Fallible + Sync) -> Fallible {
    let program = &program;
    std::thread::scope(|scope| {
        let running = ranks.each_mut().map(|rank| scope.spawn(move || program(rank)));
        running.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
    })
}

impl<'a> Rank<'a> {
    pub fn new(number: usize, attachment: &'a Attachment, socket: &Socket) -> Fallible<Self> {
        let (sender, receiver, queue) = (socket.take_send()?, socket.take_recv()?, Queue::cpu(attachment)?);
        Ok(Self { number, attachment, sender, receiver, queue })
    }

    /// Memory of the rank's device, with these bytes.
    pub fn memory(&self, bytes: &[u8]) -> Fallible<DeviceBuffer> {
        let mut memory = self.attachment.alloc(bytes.len())?;
        memory.write(0, bytes)?;
        Ok(memory)
    }

    /// Starts one block of a kernel, whose buffers and words outlive it.
    pub fn launch<K: Kernel>(&self, threads: u32, kernel: impl FnOnce(Net) -> K) -> Fallible<Launch> {
        let program = self.attachment.load("", threads)?;
        // SAFETY: the examples keep what a kernel uses until it has ended.
        Ok(unsafe { self.attachment.launch(&program, 1, threads, kernel) }?)
    }
}

/// Waits for the end of a kernel; panics as it did.
pub fn finish(launch: Launch) -> Fallible {
    assert_eq!(launch.finish(FinishPolicy::Close)?.left_open, 0);
    Ok(())
}

/// A memory's bytes, for queues and kernels.
pub fn buffer(memory: &DeviceBuffer) -> Buffer {
    // SAFETY: the examples keep the memory until queues and kernels are done with it.
    unsafe { memory.buffer() }
}

/// What a memory holds now.
pub fn bytes(memory: &DeviceBuffer) -> Fallible<Vec<u8>> {
    let mut bytes = vec![0; memory.len()];
    memory.read(0, &mut bytes)?;
    Ok(bytes)
}

/// So many bytes, which differ from those of other seeds.
pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31 + seed * 101) % 251) as u8).collect()
}

/// Words that queues, kernels and the program share.
pub struct Words<const COUNT: usize>(Box<[AtomicU64; COUNT]>);

impl<const COUNT: usize> Words<COUNT> {
    pub fn new() -> Self {
        Self(Box::new([const { AtomicU64::new(0) }; COUNT]))
    }

    pub fn at(&self, index: usize) -> Word {
        // SAFETY: an atomic of its own; the examples keep it until queues and kernels are done.
        unsafe { Word::from_ptr(self.0[index].as_ptr()) }
    }
}

/// Waits for a word, as a kernel and as the program.
pub fn await_word(word: Word, value: u64) {
    while word.observe() < value {
        std::thread::yield_now();
    }
}

/// A kernel in the order of a queue. A queue of the CPU device starts none, so one that runs all
/// the time takes turns.
#[derive(Clone, Copy)]
pub struct Turns {
    go: Word,
    done: Word,
}

impl Turns {
    pub fn of(words: &Words<2>) -> Self {
        Self { go: words.at(0), done: words.at(1) }
    }

    /// Enqueues the kernel's turn; the first one is 1.
    pub fn enqueue(self, queue: &mut Queue, turn: u64) -> Fallible {
        queue.write(self.go, turn)?;
        Ok(queue.wait_word(self.done, turn)?)
    }

    /// The kernel's side: takes that turn.
    pub fn take<G: Group>(self, g: &G, turn: u64, work: impl FnOnce()) {
        if g.is_leader() {
            await_word(self.go, turn);
        }
        g.sync();
        work();
        g.sync();
        if g.is_leader() {
            self.done.publish(turn);
        }
    }
}

/// Sends a buffer as a prepared message, once the ring of so many bytes has room for it.
pub fn send<G: Group>(g: &G, net: Net, message: Prepared, ring: u64, from: Buffer) -> Result<()> {
    message.room(ring).wait(g, net, Timeout::NEVER)?;
    let span = message.span(g, net)?;
    // SAFETY: the ring has room for the message, which is this group's; the buffer is as long.
    unsafe { copy_into_ring(g, span, from.as_ptr()) };
    message.trigger().release(g, net)
}

/// Receives a prepared message into a buffer, and gives its bytes in the ring back.
pub fn recv<G: Group>(g: &G, net: Net, message: Prepared, to: Buffer) -> Result<()> {
    message.arrived().wait(g, net, Timeout::NEVER)?;
    let span = message.span(g, net)?;
    // SAFETY: the message has landed and is this group's; the buffer is as long.
    unsafe { copy_out_of_ring(g, to.as_ptr(), span) };
    message.trigger().release(g, net)
}
