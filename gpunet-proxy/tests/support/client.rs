//! Programs on the other side of a TCP connection: plain sockets of the standard library.

use gpunet_device::SockAddr;
use socket2::{Domain, SockRef, Socket, Type};
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

pub fn std_addr(addr: SockAddr) -> SocketAddr {
    addr.to_std().expect("an address")
}

/// A client that gives up before the watchdog does.
pub fn client(addr: SockAddr) -> TcpStream {
    patient(TcpStream::connect(std_addr(addr)).expect("connected"))
}

/// A client whose kernel takes little that is not read.
pub fn narrow_client(addr: SockAddr) -> TcpStream {
    let addr = std_addr(addr);
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    socket.connect(&addr.into()).expect("connected");
    patient(socket.into())
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(super::HANG / 2)).expect("a timeout");
    stream.set_write_timeout(Some(super::HANG / 2)).expect("a timeout");
    stream
}

/// Closes with a reset (SO_LINGER 0).
pub fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket");
}

/// Reads to the end of the stream or its failure; returns what came and whether it ended in order.
pub fn read_all(stream: &mut TcpStream) -> (Vec<u8>, std::io::Result<()>) {
    let mut all = Vec::new();
    let end = stream.read_to_end(&mut all).map(|_| ());
    (all, end)
}

/// An address on which nobody listens.
pub fn nobody() -> SockAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    SockAddr::from_std(listener.local_addr().expect("an address"))
}

/// A TCP listener whose backlog is full: connects to it neither succeed nor fail.
pub struct FullListener {
    _listener: Socket,
    _waiting: Vec<Socket>,
    pub addr: SockAddr,
}

impl FullListener {
    pub fn new() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        listener.bind(&any.into()).expect("a free port");
        listener.listen(0).expect("a listener");
        let addr = listener.local_addr().expect("an address").as_socket().expect("an IP address");
        let mut waiting = Vec::new();
        // Linux takes one more than the backlog, and one may still be between the two queues.
        loop {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            if socket.connect_timeout(&addr.into(), Duration::from_millis(150)).is_err() {
                break;
            }
            waiting.push(socket);
        }
        Self { _listener: listener, _waiting: waiting, addr: SockAddr::from_std(addr) }
    }
}

/// Bytes that a socket sent and the other side's kernel has not acknowledged.
pub fn unacknowledged(stream: &TcpStream) -> i32 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (the number of TIOCOUTQ) writes one int through the pointer.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    bytes
}
