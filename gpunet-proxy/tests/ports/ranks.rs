//! Two ranks with a stream between them, wherever two ranks can be.

use crate::support::{World, small};
use gpunet_core::verbs::sim::Fabric;
use gpunet_device::{Kernel, Net, Options, TransportKind};
use gpunet_proxy::config::Rdma;
use gpunet_proxy::queue::Queue;
use gpunet_proxy::socket::{Receiver, Sender, Socket};
use gpunet_proxy::{Attachment, Config, FinishPolicy, Launch};

/// Where two ranks are, and what carries their stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In one attachment.
    Together(TransportKind),
    /// In two attachments of one proxy.
    Apart(TransportKind),
    /// On two hosts of a simulated network, over rc.
    Hosts,
}

pub const TOGETHER: [Place; 2] = [Place::Together(TransportKind::Tcp), Place::Together(TransportKind::Peer)];
pub const APART: [Place; 3] =
    [Place::Apart(TransportKind::Tcp), Place::Apart(TransportKind::Peer), Place::Hosts];

impl Place {
    pub fn kind(self) -> TransportKind {
        match self {
            Self::Together(kind) | Self::Apart(kind) => kind,
            Self::Hosts => TransportKind::Rc,
        }
    }

    pub fn options(self, ring: u64) -> Options {
        Options::DEFAULT.with_transport(self.kind()).with_rings(ring, ring)
    }

    /// The worlds of rank 0 and rank 1; `None` if they share one.
    pub fn worlds(self) -> (World, Option<World>) {
        if self == Self::Hosts {
            let config = Config { rdma: Rdma::Simulated(Fabric::new(7)), ..small() };
            return (World::with(config.clone()), Some(World::with(config)));
        }
        let here = World::new();
        let there = matches!(self, Self::Apart(_)).then(|| World::beside(&here));
        (here, there)
    }

    /// Runs a program with its two ranks, and checks that it leaves nothing.
    pub fn run(self, ring: u64, program: impl FnOnce([Rank<'_>; 2])) {
        // The test harness shows it when the test fails.
        println!("{self:?}");
        let (here, there) = self.worlds();
        program(ranks(&here, there.as_ref().unwrap_or(&here), self.options(ring)));
        here.end();
        if let Some(there) = there {
            there.end();
        }
    }
}

/// Runs a program in every place.
pub fn everywhere(ring: u64, program: impl Fn(Place, [Rank<'_>; 2])) {
    for place in TOGETHER.into_iter().chain(APART) {
        place.run(ring, |ranks| program(place, ranks));
    }
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

/// A stream between two worlds: the ends that connected and accepted.
pub fn connect(here: &World, there: &World, options: Options) -> [Socket; 2] {
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = there.attachment().listen_blocking(any, options, 1).expect("listening");
    std::thread::scope(|scope| {
        let connect = scope.spawn(|| here.attachment().connect_blocking(listener.local_addr(), options));
        let accepted = listener.accept_blocking().expect("a connection");
        [connect.join().expect("no panic").expect("connected"), accepted]
    })
}

pub fn ranks<'a>(here: &'a World, there: &'a World, options: Options) -> [Rank<'a>; 2] {
    let [near, far] = connect(here, there, options);
    [Rank::new(0, here, &near), Rank::new(1, there, &far)]
}

impl<'a> Rank<'a> {
    pub fn new(number: usize, world: &'a World, socket: &Socket) -> Self {
        let attachment = world.attachment();
        let (sender, receiver) = (socket.take_send(), socket.take_recv());
        let (sender, receiver) = (sender.expect("nobody uses it"), receiver.expect("nobody uses it"));
        Self { number, attachment, sender, receiver, queue: Queue::cpu(attachment).expect("a queue") }
    }

    /// A further queue.
    pub fn another_queue(&self) -> Queue {
        Queue::cpu(self.attachment).expect("a queue")
    }

    /// Starts one block of a kernel, whose buffers and words outlive it.
    pub fn launch<K: Kernel>(&self, threads: u32, kernel: impl FnOnce(Net) -> K) -> Launch {
        let program = self.attachment.load("", threads).expect("the CPU runs it");
        // SAFETY: tests keep what a kernel uses until it has ended.
        unsafe { self.attachment.launch(&program, 1, threads, kernel) }.expect("threads")
    }
}

/// Runs a program as both ranks at a time.
pub fn run_both(ranks: &mut [Rank<'_>; 2], program: impl Fn(&mut Rank<'_>) + Sync) {
    let program = &program;
    std::thread::scope(|scope| {
        for rank in ranks {
            scope.spawn(move || program(rank));
        }
    });
}

/// Waits for the end of a kernel; panics as it did.
#[track_caller]
pub fn finish(launch: Launch) {
    assert_eq!(launch.finish(FinishPolicy::Close).expect("no panic").left_open, 0);
}
