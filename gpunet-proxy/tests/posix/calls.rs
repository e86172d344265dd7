//! A device with a proxy behind it, and the C calls made by one thread of it.

use gpunet_device::group::Solo;
use gpunet_device::{Group, Net, PollFd, PollSet, Timeout};
use gpunet_posix::name::End;
use gpunet_posix::open::CallOptions;
use gpunet_posix::{self as posix, SOCKET_TIMEOUT, in_place, recv, returned, send};
use gpunet_proxy::{Attachment, Config, FinishPolicy, LaunchToken, Proxy, embed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// A proxy, an attachment of the CPU device, and a launch of it.
pub struct World {
    token: LaunchToken,
    attachment: Attachment,
    _proxy: Proxy,
}

impl World {
    pub fn new() -> Self {
        Self::with_sockets(64)
    }

    pub fn with_sockets(sockets: u32) -> Self {
        let config = Config { sockets, linger: Duration::from_secs(5), ..Config::small() };
        let proxy = embed(config).expect("a proxy");
        let attachment = proxy.attach_cpu().expect("an attachment");
        let token = attachment.token().expect("a launch");
        Self { token, attachment, _proxy: proxy }
    }

    /// The calls as made by a thread of its own group.
    pub fn calls(&self) -> Calls {
        Calls { g: Solo::new(0, 1), net: self.token.net() }
    }

    pub fn net(&self) -> Net {
        self.token.net()
    }

    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Checks that everything was closed and delivered.
    pub fn end(self) {
        assert_eq!(self.token.finish(FinishPolicy::Close).left_open, 0, "sockets left open");
        let report = self.attachment.close();
        assert_eq!((report.undelivered, report.unfinished), (0, 0), "(bytes lost, streams not ended)");
    }
}

/// The C calls, by the group `G`. A result below 0 is an errno.
#[derive(Clone, Copy)]
pub struct Calls<G = Solo> {
    pub g: G,
    pub net: Net,
}

impl<G: Group> Calls<G> {
    pub fn socket(&self, domain: i32, kind: i32, protocol: i32) -> i64 {
        returned(posix::socket::socket(&self.g, self.net, domain, kind, protocol))
    }

    /// A stream socket for IPv4.
    pub fn tcp_socket(&self) -> i32 {
        good(self.socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP))
    }

    pub fn bind(&self, fd: i32, addr: &[u8]) -> i64 {
        // SAFETY: a slice is readable for its length.
        returned(unsafe { posix::bind::bind(&self.g, self.net, fd, addr.as_ptr(), addr.len() as u32) })
    }

    pub fn listen(&self, fd: i32, backlog: i32) -> i64 {
        returned(posix::bind::listen(&self.g, self.net, fd, backlog))
    }

    pub fn bind_in(&self, addr: &[u8]) -> i64 {
        let (from, len) = (addr.as_ptr(), addr.len() as u32);
        // SAFETY: as in `bind`.
        returned(unsafe { posix::open::listen_at(&self.g, self.net, from, len, 128, std::ptr::null()) })
    }

    pub fn connect(&self, fd: i32, addr: &[u8]) -> i64 {
        // SAFETY: as in `bind`.
        returned(unsafe { posix::connect::connect(&self.g, self.net, fd, addr.as_ptr(), addr.len() as u32) })
    }

    pub fn connect_in(&self, addr: &[u8]) -> i64 {
        self.connect_to(addr, std::ptr::null(), SOCKET_TIMEOUT)
    }

    pub fn connect_to(&self, addr: &[u8], options: *const CallOptions, timeout_ns: i64) -> i64 {
        let (from, len) = (addr.as_ptr(), addr.len() as u32);
        // SAFETY: as in `bind`; the callers' options are theirs, or null.
        returned(unsafe { posix::open::connect_to(&self.g, self.net, from, len, options, timeout_ns) })
    }

    /// Without an address.
    pub fn accept(&self, fd: i32, wait: bool) -> i64 {
        self.accept_timeout(fd, if wait { SOCKET_TIMEOUT } else { 0 })
    }

    /// The same, waiting for so many nanoseconds.
    pub fn accept_timeout(&self, fd: i32, timeout_ns: i64) -> i64 {
        let (none, no_len) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: null is allowed.
        returned(unsafe { posix::accept::accept(&self.g, self.net, fd, none, no_len, timeout_ns) })
    }

    /// With the peer's address.
    pub fn accept_from(&self, fd: i32) -> (i64, SocketAddr) {
        let (mut addr, mut len) = ([0; 28], 28);
        let (to, room) = (addr.as_mut_ptr(), &raw mut len);
        // SAFETY: 28 bytes and a length of this stack.
        let result =
            returned(unsafe { posix::accept::accept(&self.g, self.net, fd, to, room, SOCKET_TIMEOUT) });
        (result, std_addr(&addr[..len as usize]))
    }

    pub fn send(&self, fd: i32, bytes: &[u8], flags: i32) -> i64 {
        // SAFETY: as in `bind`.
        returned(unsafe { posix::send::send(&self.g, self.net, fd, bytes.as_ptr(), bytes.len(), flags) })
    }

    pub fn recv(&self, fd: i32, bytes: &mut [u8], flags: i32) -> i64 {
        // SAFETY: an exclusive slice is writable for its length.
        returned(unsafe { posix::recv::recv(&self.g, self.net, fd, bytes.as_mut_ptr(), bytes.len(), flags) })
    }

    pub fn send_timeout(&self, fd: i32, bytes: &[u8], flags: i32, timeout_ns: i64) -> i64 {
        let (from, len) = (bytes.as_ptr(), bytes.len());
        // SAFETY: as in `bind`.
        returned(unsafe { send::send_timeout(&self.g, self.net, fd, from, len, flags, timeout_ns) })
    }

    pub fn recv_timeout(&self, fd: i32, bytes: &mut [u8], flags: i32, timeout_ns: i64) -> i64 {
        let (to, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: as in `recv`.
        returned(unsafe { recv::recv_timeout(&self.g, self.net, fd, to, len, flags, timeout_ns) })
    }

    /// Reserves space and writes the bytes in place; returns how many there was room for.
    pub fn reserve(&self, fd: i32, bytes: &[u8], timeout_ns: i64) -> i64 {
        let span = match in_place::reserve(&self.g, self.net, fd, bytes.len(), timeout_ns) {
            Ok(span) => span,
            Err(error) => return returned(Err(error)),
        };
        let (first, second) = bytes[..span.len()].split_at(span.first.len);
        for (piece, bytes) in span.pieces().into_iter().zip([first, second]) {
            // SAFETY: space that is this thread's until it commits.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), piece.ptr, piece.len) };
        }
        span.len() as i64
    }

    pub fn commit(&self, fd: i32, len: usize) -> i64 {
        returned(in_place::commit(&self.g, self.net, fd, len))
    }

    /// The bytes that a peek shows in place, or the errno.
    pub fn peek(&self, fd: i32, len: usize, timeout_ns: i64) -> Result<Vec<u8>, i64> {
        let span =
            in_place::peek(&self.g, self.net, fd, len, timeout_ns).map_err(|error| returned(Err(error)))?;
        let mut bytes = vec![0; span.len()];
        let (first, second) = bytes.split_at_mut(span.first.len);
        for (piece, to) in span.pieces().into_iter().zip([first, second]) {
            // SAFETY: bytes that are this thread's until it releases them.
            unsafe { std::ptr::copy_nonoverlapping(piece.ptr, to.as_mut_ptr(), piece.len) };
        }
        Ok(bytes)
    }

    pub fn release(&self, fd: i32, len: usize) -> i64 {
        returned(in_place::release(&self.g, self.net, fd, len))
    }

    pub fn shutdown(&self, fd: i32, how: i32) -> i64 {
        returned(posix::shutdown::shutdown(&self.g, self.net, fd, how))
    }

    pub fn close(&self, fd: i32) -> i64 {
        returned(posix::close::close(&self.g, self.net, fd))
    }

    /// The address, or the errno.
    pub fn name(&self, fd: i32, end: End) -> Result<SocketAddr, i64> {
        let (mut addr, mut len) = ([0; 28], 28);
        let (to, room) = (addr.as_mut_ptr(), &raw mut len);
        // SAFETY: 28 bytes and a length of this stack.
        match returned(unsafe { posix::name::name(&self.g, self.net, fd, end, to, room) }) {
            0 => Ok(std_addr(&addr[..len as usize])),
            errno => Err(errno),
        }
    }

    /// Sets an option from the bytes of a C value.
    pub fn set<T: Copy>(&self, fd: i32, (level, name): (i32, i32), value: T) -> i64 {
        let (from, len) = ((&raw const value).cast(), size_of::<T>() as u32);
        // SAFETY: `value` is readable; the callers' types have no padding.
        returned(unsafe { posix::options::set(&self.g, self.net, fd, level, name, from, len) })
    }

    /// Reads an option into a C value of zeros.
    pub fn get<T: Copy + Default>(&self, fd: i32, (level, name): (i32, i32)) -> Result<T, i64> {
        let (mut value, mut len) = (T::default(), size_of::<T>() as u32);
        let (to, room) = ((&raw mut value).cast(), &raw mut len);
        // SAFETY: `value` has `len` bytes, and the callers' types take any bits.
        match returned(unsafe { posix::options::get(&self.g, self.net, fd, level, name, to, room) }) {
            0 => Ok(value),
            errno => Err(errno),
        }
    }

    pub fn ioctl(&self, fd: i32, request: u32, value: &mut i32) -> i64 {
        // SAFETY: an exclusive reference is readable and writable.
        returned(unsafe { posix::ioctl::ioctl(&self.g, self.net, fd, request, value) })
    }

    pub fn poll(&self, fds: &mut [PollFd], timeout_ns: i64) -> i64 {
        let timeout = u64::try_from(timeout_ns).map_or(Timeout::NEVER, Timeout::ns);
        // SAFETY: the entries of an exclusive slice, used by this thread alone.
        let set = unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), fds.len()) };
        returned(gpunet_device::poll(&self.g, self.net, set, timeout).map(|ready| ready as i64))
    }

    /// Sends all of it.
    pub fn send_all(&self, fd: i32, bytes: &[u8]) {
        assert_eq!(self.send(fd, bytes, libc::MSG_WAITALL), bytes.len() as i64);
    }

    /// Receives that many bytes.
    pub fn recv_exact(&self, fd: i32, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert_eq!(self.recv(fd, &mut bytes, libc::MSG_WAITALL), len as i64);
        bytes
    }

    /// Receives until the end of the stream.
    pub fn recv_to_end(&self, fd: i32) -> Vec<u8> {
        let (mut all, mut part) = (Vec::new(), [0; 1000]);
        loop {
            match self.recv(fd, &mut part, 0) {
                0 => return all,
                n => all.extend_from_slice(&part[..good(n) as usize]),
            }
        }
    }

    /// A listener at a free port of the loopback address, and its address.
    pub fn listener(&self, addr: &str) -> (i32, SocketAddr) {
        let addr: SocketAddr = addr.parse().expect("an address");
        let fd = good(self.bind_in(&c_addr(addr)));
        (fd, self.name(fd, End::Local).expect("its address"))
    }

    /// A stream to a TCP program, and that program's end of it.
    pub fn stream(&self) -> (i32, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a TCP listener");
        let fd = self.tcp_socket();
        assert_eq!(self.connect(fd, &c_addr(listener.local_addr().expect("its address"))), 0);
        (fd, listener.accept().expect("the connection").0)
    }
}

/// Reads a TCP program's end of a stream to its end, and counts the bytes.
pub fn count_to_end(mut peer: TcpStream) -> JoinHandle<usize> {
    std::thread::spawn(move || std::io::copy(&mut peer, &mut std::io::sink()).expect("the end") as usize)
}

/// A handle, or another result that is no errno.
#[track_caller]
pub fn good(result: i64) -> i32 {
    assert!(result >= 0, "errno {}", -result);
    i32::try_from(result).expect("an int")
}

/// The C structure of an address.
pub fn c_addr(addr: SocketAddr) -> Vec<u8> {
    match addr {
        SocketAddr::V4(v4) => {
            let c = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            bytes_of(&c)
        }
        SocketAddr::V6(v6) => {
            let c = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo().to_be(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            bytes_of(&c)
        }
    }
}

fn bytes_of<T>(value: &T) -> Vec<u8> {
    // SAFETY: C structures of integers without padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }.to_vec()
}

/// Reads the C structure of an address.
fn std_addr(bytes: &[u8]) -> SocketAddr {
    match bytes.len() {
        16 => {
            // SAFETY: as many bytes as the structure has, which takes any bits.
            let c: libc::sockaddr_in = unsafe { bytes.as_ptr().cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(c.sin_addr.s_addr));
            SocketAddrV4::new(ip, u16::from_be(c.sin_port)).into()
        }
        28 => {
            // SAFETY: as above.
            let c = unsafe { bytes.as_ptr().cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(c.sin6_addr.s6_addr);
            let flow = u32::from_be(c.sin6_flowinfo);
            SocketAddrV6::new(ip, u16::from_be(c.sin6_port), flow, c.sin6_scope_id).into()
        }
        other => panic!("an address of {other} bytes"),
    }
}
