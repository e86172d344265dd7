//! File descriptors that are used up: of a whole process, so the test is a process of its own.

use crate::lines;
use crate::support::client::{client, std_addr};
use crate::support::world::{LOOPBACK, listen};
use crate::support::{Memory, SOLO, World, bounded, small, until};
use gpunet_device::{Error, Listener, Options, Stream, Timeout, TransportKind};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::Command;

#[test]
fn accepts_that_wait_for_a_descriptor() {
    as_a_process("descriptors::a_process_without_descriptors");
}

/// Runs a test that is ignored otherwise, in a process of its own.
pub fn as_a_process(test: &str) {
    let done = Command::new(std::env::current_exe().expect("this file"))
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "a part of `accepts_that_wait_for_a_descriptor`, which runs it as a process of its own"]
fn a_process_without_descriptors() {
    bounded(|| {
        lines::keep();
        let world = World::with(small());
        let net = world.net();
        let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp);
        let listener = listen(net, tcp);
        let (addr, handle) = (listener.local_addr(), listener.handle());
        let mut clients: Vec<_> = (0..3).map(|_| client(addr)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.write_all(&[number as u8]).expect("room");
        }
        let taken = take_all();
        let none = Err(Error::TooManyFiles);
        // Who cannot wait is told why; then the listener is not ready until it is worth another
        // try.
        for _ in 0..3 {
            until("the listener is ready again, and its accept refused", || {
                let refused = listener.try_accept(&SOLO).map(|_| ());
                assert!(refused == none || refused == Err(Error::WouldBlock), "{refused:?}");
                refused == none
            });
        }
        assert_eq!(listener.accept_timeout(&SOLO, Timeout::ms(1)).map(|_| ()), Err(Error::TimedOut));
        assert_eq!(Listener::bind_with(&SOLO, net, LOOPBACK, tcp, 1).map(|_| ()), none);
        assert_eq!(Stream::connect_with(&SOLO, net, addr, tcp).map(|_| ()), none);
        let said = lines::with(&["ulimit -n"]);
        assert_eq!(said.len(), 1, "{said:#?}");
        let expected = format!("accepts at {} wait: the proxy has no file descriptor left", std_addr(addr));
        assert!(said[0].contains(&expected) && said[0].contains("which is 128"), "{said:?}");

        // Who waits gets the connections, in order, once there are descriptors.
        let accept = move || {
            let listener = Listener::from_handle(&SOLO, net, handle)?;
            (0..3)
                .map(|_| listener.accept(&SOLO).map(|stream| stream.handle()))
                .collect::<Result<Vec<_>, _>>()
        };
        let accepting = std::thread::spawn(accept);
        world.expect_requests(1);
        drop(taken);
        let accepted = accepting.join().expect("no panic").expect("accepted");
        let memory = Memory::new(1);
        for (number, handle) in accepted.into_iter().enumerate() {
            let mut stream = Stream::from_handle(&SOLO, net, handle).expect("open");
            assert_eq!(stream.recv(&SOLO, memory.buffer()), Ok(1));
            assert_eq!(memory.copy(0, 1), [number as u8]);
            stream.close(&SOLO).expect("open");
        }
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

/// Lowers the limit, and takes every descriptor that it leaves.
fn take_all() -> Vec<OwnedFd> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(128), ..limit }).expect("a lower limit");
    std::iter::from_fn(|| eventfd(0, EventfdFlags::CLOEXEC).ok()).collect()
}
