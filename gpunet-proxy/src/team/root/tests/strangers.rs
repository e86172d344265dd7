//! Programs that are not members, at the root's sockets.

use super::*;
use crate::os::peer::set_accepts_descriptors;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn descriptors_of_a_stranger_do_not_stop_the_root() {
    // As before Linux 6.16, and since then.
    for takes_descriptors in [true, false] {
        let listener = listener();
        let id = listener.id();
        let root = listener.root(3, &options(), None, Vec::new(), Box::new(|| None)).expect("sockets");
        let _ =
            set_accepts_descriptors(root.arrivals.watched().next().expect("it listens"), takes_descriptors);
        root.start().expect("a thread");
        let results = join(id, 0..2, 3);
        let mut last = hello(id, 2, 3);
        let Told { name, .. } = told(&mut last);
        let (near, far) = lingering();
        let stranger = connect(&name);
        // Whether the kernel allows it or not, the connection is closed.
        let _ = pass(&stranger, b"no frame".to_vec(), near, 1);
        let _ = wire::send(stranger.as_fd(), b"no frame", &[]);
        assert!(receive(&stranger).is_none());
        // A death is noticed.
        drop(last);
        assert_all_fail(&results, 2, &TeamFailure::Died { rank: Rank(2) });
        drop(far);
    }
}

/// Connections that one flooding thread holds at a time: two such threads hold more than the root
/// has room for.
const HELD: usize = 70;

/// Connects again and again, until it is over.
fn flood<T>(over: &AtomicBool, count: &AtomicUsize, connect: impl Fn(usize) -> Option<T>) {
    let mut held = VecDeque::new();
    while !over.load(Ordering::Relaxed) {
        let Some(socket) = connect(count.load(Ordering::Relaxed)) else {
            std::thread::yield_now();
            continue;
        };
        held.push_back(socket);
        count.fetch_add(1, Ordering::Relaxed);
        if held.len() > HELD {
            held.pop_front();
        }
    }
}

/// Connects to the rendezvous, and sometimes sends half a hello.
fn meet(address: SocketAddr, count: usize) -> Option<TcpStream> {
    let mut socket = TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok()?;
    // It leaves no connection in TIME_WAIT.
    set_socket_linger(&socket, Some(Duration::ZERO)).expect("a socket");
    if count.is_multiple_of(3) {
        let _ = socket.write_all(&[40, 0]);
    }
    Some(socket)
}

/// Connects to the root's other socket.
fn knock(name: &str) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let made = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
    let to = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
    rustix::net::connect(&made, &to).ok().map(|()| made)
}

#[test]
fn teams_form_while_strangers_connect() {
    for _ in 0..5 {
        let listener = listener();
        let id = listener.id();
        let root = listener.root(8, &options(), None, Vec::new(), Box::new(|| None)).expect("sockets");
        let name = root.arrivals.name().to_owned();
        root.start().expect("a thread");
        let (over, counts) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; 4]);
        std::thread::scope(|scope| {
            for (n, count) in counts.iter().enumerate() {
                let (over, name) = (&over, &name);
                scope.spawn(move || match n % 2 {
                    0 => flood(over, count, |count| meet(id.address(), count)),
                    _ => flood(over, count, |_| knock(name)),
                });
            }
            while counts.iter().any(|count| count.load(Ordering::Relaxed) < 2 * HELD) {
                std::thread::yield_now();
            }
            let results = join(id, 0..8, 8);
            let teams: Vec<_> =
                (0..8).map(|_| results.recv_timeout(Duration::from_secs(60)).expect("an answer")).collect();
            over.store(true, Ordering::Relaxed);
            for team in teams {
                team.expect("a team");
            }
        });
    }
}
