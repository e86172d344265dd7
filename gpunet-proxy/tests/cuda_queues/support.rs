//! The device, memory of each kind, and peers.

use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::fake::Fake;
use gpu_usermap::cuda::{Cuda, CudaStream, Device, GpuBuffer, Registration, StreamPriority};
use gpunet_device::Buffer;
use gpunet_device::abi::Options;
use gpunet_proxy::queue::{Queue, QueueSettings};
use gpunet_proxy::socket::Socket;
use gpunet_proxy::{Attachment, Config};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static TURN: Mutex<()> = Mutex::new(());

/// An attachment of the device. Tests take turns.
pub struct World {
    attachment: Option<Attachment>,
    pub device: Device,
    pub is_real: bool,
    fake: Option<Fake>,
    _turn: MutexGuard<'static, ()>,
}

impl World {
    pub fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (device, fake) = match Cuda::load() {
            Ok(cuda) => (cuda.device(0).expect("the first GPU"), None),
            Err(unavailable) => {
                // Once: each test runs, on the stand-in.
                static SAID: std::sync::Once = std::sync::Once::new();
                SAID.call_once(|| {
                    not_run(&format!(
                        "a GPU ({unavailable}); all tests run on a driver that stands in for it"
                    ));
                });
                let fake = Fake::new();
                (fake.cuda().device(0).expect("a device"), Some(fake))
            }
        };
        Self::of(device, fake, turn)
    }

    /// An attachment of the driver that stands in for a GPU, where there is one, too.
    pub fn simulated() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let fake = Fake::new();
        Self::of(fake.cuda().device(0).expect("a device"), Some(fake), turn)
    }

    fn of(device: Device, fake: Option<Fake>, turn: MutexGuard<'static, ()>) -> Self {
        let config = Config { shared_rings: 32 << 20, device_rings: 32 << 20, ..Config::small() };
        let attachment = gpunet_proxy::embed(config).expect("a proxy").attach_cuda(&device);
        let attachment = Some(attachment.expect("an attachment"));
        Self { attachment, is_real: fake.is_none(), device, fake, _turn: turn }
    }

    pub fn attachment(&self) -> &Attachment {
        self.attachment.as_ref().expect("open")
    }

    /// Closes the attachment.
    pub fn close(&mut self) -> gpunet_proxy::CloseReport {
        self.attachment.take().expect("open").close()
    }

    /// Has the driver that stands in refuse the `nth` call that enqueues something or takes memory;
    /// 0: none.
    pub fn refuse(&self, nth: u32) {
        self.fake.as_ref().expect("simulated").refuse(nth);
    }

    /// Returns whether that call is still to come.
    pub fn has_to_refuse(&self) -> bool {
        self.fake.as_ref().expect("simulated").has_to_refuse()
    }

    pub fn stream(&self) -> CudaStream {
        self.device.create_stream(StreamPriority::Normal).expect("a stream")
    }

    /// The stand-in runs no kernels.
    pub fn settings(&self) -> QueueSettings {
        if self.is_real {
            QueueSettings::default()
        } else {
            QueueSettings { short: 0, ..QueueSettings::default() }
        }
    }

    pub fn queue(&self) -> Queue {
        Queue::cuda_with(self.attachment(), self.stream(), self.settings()).expect("a queue")
    }

    /// A socket of the device, and its peer, a plain TCP stream.
    pub fn tcp(&self, options: Options) -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let addr = listener.local_addr().expect("an address");
        let socket = self.attachment().connect_blocking(addr, options).expect("connected");
        let (peer, _) = listener.accept().expect("a connection");
        peer.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        (socket, peer)
    }

    /// Two sockets of the device, connected to each other.
    pub fn pair(&self, options: Options) -> (Socket, Socket) {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = self.attachment().listen_blocking(any, options, 1).expect("listening");
        std::thread::scope(|scope| {
            let near = scope.spawn(|| self.attachment().connect_blocking(listener.local_addr(), options));
            let far = listener.accept_blocking().expect("a connection");
            (near.join().expect("no panic").expect("connected"), far)
        })
    }
}

/// Says that something did not run for lack of `hardware`.
pub fn not_run(hardware: &str) {
    let thread = std::thread::current();
    let text = format!("NOT RUN: {}: needs {hardware}\n", thread.name().unwrap_or("a test"));
    assert!(std::env::var_os("GPUNET_REQUIRE_GPU").is_none(), "{text}");
    std::io::stderr().write_all(text.as_bytes()).expect("stderr");
}

/// Where a message lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Device,
    Pinned,
    Pageable,
}

pub const KINDS: [Kind; 3] = [Kind::Device, Kind::Pinned, Kind::Pageable];

/// Memory of a message.
pub enum Memory {
    Device(GpuBuffer),
    Pinned(Registration),
    Pageable(Box<[u8]>),
}

impl Memory {
    pub fn new(world: &World, kind: Kind, len: usize) -> Self {
        match kind {
            Kind::Device => Self::Device(world.device.alloc(len).expect("memory")),
            Kind::Pinned => {
                let region = PinnedRegion::create("message", len.next_multiple_of(4096)).expect("a region");
                Self::Pinned(world.device.register(region).expect("a registration"))
            }
            Kind::Pageable => Self::Pageable(vec![0; len].into_boxed_slice()),
        }
    }

    pub fn filled(world: &World, kind: Kind, len: usize, seed: u64) -> Self {
        let mut memory = Self::new(world, kind, len);
        memory.fill(world, &pattern(seed, len));
        memory
    }

    pub fn fill(&mut self, world: &World, bytes: &[u8]) {
        match self {
            Self::Device(buffer) => world.device.write(buffer, 0, bytes).expect("written"),
            // SAFETY: the region has as many bytes, and no operation uses it now.
            Self::Pinned(pinned) => unsafe {
                pinned.region().base().as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            },
            Self::Pageable(memory) => memory[..bytes.len()].copy_from_slice(bytes),
        }
    }

    pub fn bytes(&self, world: &World, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        match self {
            Self::Device(buffer) => world.device.read(buffer, 0, &mut bytes).expect("read"),
            // SAFETY: as in `fill`.
            Self::Pinned(pinned) => unsafe {
                bytes.as_mut_ptr().copy_from_nonoverlapping(pinned.region().base().as_ptr(), len);
            },
            Self::Pageable(memory) => bytes.copy_from_slice(&memory[..len]),
        }
        bytes
    }

    pub fn buffer(&self, len: usize) -> Buffer {
        let at = match self {
            Self::Device(buffer) => buffer.ptr() as *mut u8,
            Self::Pinned(pinned) => pinned.device_ptr() as *mut u8,
            Self::Pageable(memory) => memory.as_ptr().cast_mut(),
        };
        // SAFETY: the tests keep the memory until their queues are done with it.
        unsafe { Buffer::from_raw_parts(at, len) }
    }
}

/// Bytes that differ everywhere.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
