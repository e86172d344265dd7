//! Frames that decoding rejects.

use super::*;
use gpunet_core::ids::HostRequestId;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, AsRawFd};

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair")
}

fn packet(bytes: Vec<u8>) -> Packet {
    Packet { bytes, fds: Vec::new(), lost: false }
}

#[test]
fn a_frame_and_its_descriptors_arrive_as_they_were_sent() {
    let (a, b) = pair();
    let frame = ToDaemon::Agent(AgentAnswer::Provided { arena: 3, len: 9 });
    send(a.as_fd(), &encode(&frame), &[b.as_fd()]).expect("sent");
    let packet = recv(b.as_fd(), &mut vec![0; MAX_FRAME]).expect("received").expect("open");
    let (frame, fds) = decode::<ToDaemon>(packet).expect("a frame");
    assert!(matches!(frame, ToDaemon::Agent(AgentAnswer::Provided { arena: 3, len: 9 })));
    assert_eq!(fds.len(), 1);
    let flags = rustix::io::fcntl_getfd(&fds[0]).expect("open");
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    drop(a);
    assert!(recv(b.as_fd(), &mut vec![0; MAX_FRAME]).expect("the end").is_none());
}

/// Makes a peek pass over empty packets that an earlier peek has seen.
#[allow(unsafe_code)]
fn pass_over_empty_packets(socket: &OwnedFd) {
    let from: libc::c_int = 0;
    let (value, len) = (std::ptr::from_ref(&from).cast(), size_of_val(&from) as libc::socklen_t);
    // SAFETY: the kernel reads `len` bytes of `from`.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEEK_OFF, value, len) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// The kernel can report the end although a packet is queued: if a packet and then the end arrive
/// between its check for packets and its check for the end. An empty packet produces the same
/// report every time.
#[test]
fn an_end_is_believed_when_it_is_seen_twice() {
    let (frame, mut buffer) = (encode(&ToDaemon::Detach), vec![0; MAX_FRAME]);
    let (a, b) = pair();
    send(a.as_fd(), &[], &[]).expect("sent");
    send(a.as_fd(), &frame, &[]).expect("sent");
    drop(a);
    let packet = recv(b.as_fd(), &mut buffer).expect("received").expect("no end yet");
    assert!(matches!(decode::<ToDaemon>(packet), Ok((ToDaemon::Detach, _))));
    assert!(recv(b.as_fd(), &mut buffer).expect("the end").is_none());

    // And by one that only peeks.
    let (a, b) = pair();
    pass_over_empty_packets(&b);
    send(a.as_fd(), &[], &[]).expect("sent");
    send(a.as_fd(), &frame, &[b.as_fd()]).expect("sent");
    drop(a);
    let incoming = recv_plain(b.as_fd(), &mut buffer).expect("received");
    assert!(matches!(incoming, Some(Incoming::WithDescriptors)), "{incoming:?}");
}

#[test]
fn too_many_descriptors_and_too_long_packets_are_refused() {
    let (a, b) = pair();
    let mut buffer = vec![0; MAX_FRAME];
    rustix::net::send(&a, &vec![1; MAX_FRAME + 1], rustix::net::SendFlags::empty()).expect("sent");
    assert_eq!(recv(b.as_fd(), &mut buffer).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    send(a.as_fd(), &encode(&ToDaemon::Detach), &[a.as_fd()]).expect("sent");
    let packet = recv(b.as_fd(), &mut buffer).expect("received").expect("open");
    assert!(matches!(decode::<ToDaemon>(packet), Err(BadFrame::Descriptors { expected: 0, found: 1 })));
}

#[test]
fn what_follows_a_frame_makes_it_garbage() {
    let mut bytes = encode(&ToDaemon::ResetAll);
    bytes.push(0);
    assert!(matches!(decode::<ToDaemon>(packet(bytes)), Err(BadFrame::Garbage(_))));
    assert!(matches!(decode::<ToDaemon>(packet(vec![200])), Err(BadFrame::Garbage(1))));
}

#[test]
fn calls_and_host_requests_have_different_numbers() {
    let id = HostRequestId::new(3);
    let abandon = encode(&ToDaemon::Abandon { id });
    let call = encode(&ToDaemon::Usage { call: CallId::default().next() });
    assert_eq!((&abandon[1..], &call[1..]), (&[0x83, 0x80, 0x80, 0x80, 0x08][..], &[1][..]));
    assert!(
        matches!(decode::<ToDaemon>(packet(abandon.clone())), Ok((ToDaemon::Abandon { id: same }, _)) if same == id)
    );
    // Each with the number of the other.
    let swapped = [[&abandon[..1], &call[1..]].concat(), [&call[..1], &abandon[1..]].concat()];
    for bytes in swapped {
        assert!(matches!(decode::<ToDaemon>(packet(bytes)), Err(BadFrame::Garbage(_))));
    }
}

#[test]
fn another_version_is_told_from_garbage() {
    let mut bytes = encode_first(&Hello::Probe);
    assert!(matches!(decode_first::<Hello>(packet(bytes.clone())), Ok((Hello::Probe, _))));
    bytes[4] = 9;
    bytes.truncate(8);
    assert!(matches!(decode_first::<Hello>(packet(bytes.clone())), Err(BadFrame::Version(9))));
    bytes[0] = 9;
    assert!(matches!(decode_first::<Hello>(packet(bytes)), Err(BadFrame::Magic)));
    assert!(matches!(decode_first::<Hello>(packet(vec![1, 2])), Err(BadFrame::Magic)));
}

#[test]
fn descriptors_are_told_apart() {
    let (a, _b) = pair();
    assert!(!is_dma_buf(a.as_fd()) && !is_gpu_export(a.as_fd()));
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    assert!(!is_gpu_export(null.as_fd()), "a character device of somebody else");
}
