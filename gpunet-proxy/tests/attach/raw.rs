//! A program that speaks the protocol by hand: its frames as docs and wire.rs have them, said once
//! more, so that a change there without a new version shows here.

use gpunet_device::abi::control::{Op, Reply, Request};
use gpunet_device::{Options, SockAddr, TransportKind};
use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

pub const MAGIC: &[u8; 4] = b"gpnd";
pub const VERSION: u32 = 5;

#[derive(Clone, Debug, Serialize)]
#[allow(dead_code, reason = "the order is the protocol")]
pub enum Want {
    Probe,
    Attach(Wish),
    Admin,
}

#[derive(Clone, Debug, Serialize)]
pub struct Wish {
    pub sockets: u32,
    pub controls: u32,
    pub shared_rings: u64,
    pub device_rings: u64,
    pub device: Device,
    pub command: String,
    pub card: Option<(u64, u64, u64)>,
}

#[derive(Clone, Debug, Serialize)]
#[allow(dead_code, reason = "the order is the protocol")]
pub enum Device {
    Cpu,
    Cuda { name: String, uuid: [u8; 16], shareable: bool },
}

#[derive(Clone, Debug, Serialize)]
#[allow(dead_code, reason = "the order is the protocol")]
pub enum ToDaemon {
    FinishLaunch { call: u32, launch: u32, policy: u8, fresh: Vec<i32> },
    AbortLaunch { launch: u32 },
    Release { handles: Vec<i32> },
    ResetAll,
    Usage { call: u32 },
    Ask { number: u32, request: Vec<u8> },
    Abandon { number: u32 },
    Detach,
    Agent(AgentAnswer),
    Snapshot,
    Card,
}

#[derive(Clone, Debug, Serialize)]
#[allow(dead_code, reason = "the order is the protocol")]
pub enum AgentAnswer {
    Provided { arena: u32, len: u64 },
    Mapped { arena: u32 },
    Failed { arena: u32, reason: String },
    Cleared { arena: u32, ring: u64 },
    Unmapped { arena: u32 },
}

/// What the daemon's first frame is, as far as tests care.
#[derive(Clone, Debug, Deserialize)]
#[allow(dead_code, reason = "the order is the protocol")]
pub enum First {
    Refused { errno: i32, reason: String },
    Ready { pid: u32 },
    Welcome { pid: u32 },
    Finished,
    UsageIs,
    Reply,
    Detached,
    Agent,
    Snapshot,
    SendCard,
}

/// A wish that is granted.
pub fn wish() -> Wish {
    Wish {
        sockets: 16,
        controls: 4,
        shared_rings: 1 << 16,
        device_rings: 0,
        device: Device::Cpu,
        command: "a stranger".to_owned(),
        card: None,
    }
}

pub fn gpu() -> Device {
    Device::Cuda { name: "a GPU".into(), uuid: [0; 16], shareable: true }
}

pub fn bytes(frame: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(frame).expect("bytes")
}

pub fn hello(want: &Want) -> Vec<u8> {
    let mut all = MAGIC.to_vec();
    all.extend(VERSION.to_le_bytes());
    all.extend(bytes(want));
    all
}

/// A connection.
pub struct Raw(pub OwnedFd);

impl Raw {
    pub fn connect(path: &Path) -> Self {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a socket");
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("connected");
        let raw = Self(socket);
        raw.give_up_after(Duration::from_secs(20));
        raw
    }

    pub fn give_up_after(&self, limit: Duration) {
        for timeout in [rustix::net::sockopt::Timeout::Recv, rustix::net::sockopt::Timeout::Send] {
            rustix::net::sockopt::set_socket_timeout(&self.0, timeout, Some(limit)).expect("a socket");
        }
    }

    /// A client that was welcomed.
    pub fn attached(path: &Path) -> Self {
        let raw = Self::connect(path);
        raw.send(&hello(&Want::Attach(wish())));
        assert!(matches!(raw.first(), Some(First::Welcome { .. })));
        raw
    }

    /// A client that was welcomed with a GPU, which may send descriptors.
    pub fn attached_gpu(path: &Path) -> Self {
        let raw = Self::connect(path);
        raw.send(&hello(&Want::Attach(Wish { device: gpu(), ..wish() })));
        assert!(matches!(raw.first(), Some(First::Welcome { .. })));
        raw
    }

    pub fn send(&self, bytes: &[u8]) {
        self.send_with(bytes, &[]).expect("sent");
    }

    /// Sends; the daemon may have closed already.
    pub fn try_send(&self, bytes: &[u8]) {
        let _ = self.send_with(bytes, &[]);
    }

    pub fn send_with(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(64))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(fds)));
        sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends with descriptors; returns whether the kernel lets it, on behalf of a daemon that takes
    /// none.
    pub fn offer(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let sent = self.send_with(bytes, fds);
        let refused = sent.as_ref().err().and_then(io::Error::raw_os_error);
        assert!(sent.is_ok() || refused == Some(1), "{sent:?}");
        sent.is_ok()
    }

    /// Asks as a host program does, and does not wait for the answer.
    pub fn ask(&self, number: u32, request: &Request) {
        // SAFETY: a request is plain integers without padding.
        let request = unsafe {
            std::slice::from_raw_parts(std::ptr::from_ref(request).cast::<u8>(), size_of::<Request>())
        };
        self.send(&bytes(&ToDaemon::Ask { number: (1 << 31) | number, request: request.to_vec() }));
    }

    /// The reply that is the next packet.
    pub fn reply(&self) -> Reply {
        let packet = self.next().expect("a reply");
        assert_eq!(packet[0], 5, "another frame");
        let reply = &packet[packet.len().checked_sub(size_of::<Reply>()).expect("a whole reply")..];
        // SAFETY: as many bytes as a reply has, which is plain integers.
        unsafe { reply.as_ptr().cast::<Reply>().read_unaligned() }
    }

    /// The next packet's bytes (what came with it is thrown away); `None` at the end.
    pub fn next(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 1 << 16];
        match recv(&self.0, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) | Err(rustix::io::Errno::CONNRESET) => None,
            Ok((len, _)) => Some(buffer[..len].to_vec()),
            Err(error) => panic!("no answer: {error}"),
        }
    }

    /// Asks to connect a socket to a listener over peer.
    pub fn connect_peer(&self, to: SockAddr) {
        let mut connect = Request::new(Op::Connect, 1, 1, 0);
        let peer = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(4096, 4096);
        (connect.address, connect.options) = (to, peer);
        self.ask(1, &connect);
    }

    /// What the client's agent is asked next (0 to provide, 1 to map, 2 to clear, 3 to unmap), and
    /// of which arena; whatever else comes is thrown away. `None` at the end.
    pub fn asked(&self) -> Option<(u32, u32)> {
        loop {
            let packet = self.next()?;
            if packet[0] == 7 {
                let (_, what, arena): (u32, u32, u32) =
                    postcard::take_from_bytes(&packet).expect("a request to the agent").0;
                return Some((what, arena));
            }
        }
    }

    pub fn answer(&self, answer: AgentAnswer) {
        self.try_send(&bytes(&ToDaemon::Agent(answer)));
    }

    /// The daemon's first frame; `None` if it closed without one.
    pub fn first(&self) -> Option<First> {
        let packet = self.next()?;
        assert_eq!(&packet[..4], MAGIC);
        assert_eq!(packet[4..8], VERSION.to_le_bytes());
        Some(postcard::take_from_bytes(&packet[8..]).expect("a first frame").0)
    }

    /// The descriptors of the next packet: of a welcome the region's, and the doorbells'.
    #[allow(dead_code, reason = "for tests/hostile and the fuzz targets")]
    pub fn descriptors(&self) -> Vec<OwnedFd> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(64))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut buffer = vec![0; 1 << 16];
        let flags = RecvFlags::CMSG_CLOEXEC;
        rustix::io::retry_on_intr(|| {
            recvmsg(&self.0, &mut [IoSliceMut::new(&mut buffer)], &mut ancillary, flags)
        })
        .expect("an answer");
        let rights = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        rights.flatten().collect()
    }

    /// Says that the daemon has closed, after whatever it had still to say.
    pub fn expect_closed(&self) {
        while self.next().is_some() {}
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
