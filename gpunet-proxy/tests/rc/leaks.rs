//! What a thousand connections leave behind.

use crate::hosts::{Hosts, RC};
use crate::support::world::listen;
use crate::support::{Memory, SOLO, bounded, until};
use gpunet_core::verbs::sim::Fabric;
use gpunet_device::{Error, Listener, Net, SockAddr, Stream};

const COUNT: usize = 1000;

/// Accepts, while streams that are being closed hold slots and rings for a moment more.
fn accept(listener: &Listener) -> Stream {
    loop {
        match listener.accept(&SOLO) {
            Ok(stream) => return stream,
            Err(Error::TooManySockets | Error::NoBuffers) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn connect(net: Net, addr: SockAddr) -> Stream {
    loop {
        match Stream::connect_with(&SOLO, net, addr, RC.with_rings(4096, 4096)) {
            Ok(stream) => return stream,
            Err(Error::TooManySockets | Error::NoBuffers) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// So many connections, each of which moves a byte either way.
fn connections(hosts: &Hosts, listener: &Listener, count: usize) {
    let (net, addr) = (hosts.a.net(), listener.local_addr());
    let clients = std::thread::spawn(move || {
        let memory = Memory::new(1);
        for _ in 0..count {
            let mut stream = connect(net, addr);
            stream.send_all(&SOLO, memory.buffer()).expect("room");
            assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(1));
            stream.close(&SOLO).expect("open");
        }
    });
    let memory = Memory::new(1);
    for _ in 0..count {
        let mut stream = accept(listener);
        assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(1));
        stream.send_all(&SOLO, memory.buffer()).expect("room");
        stream.close(&SOLO).expect("open");
    }
    clients.join().expect("no panic");
    until("all is closed", || {
        let usage = [&hosts.a, &hosts.b].map(|host| host.usage());
        usage[0].queue_pairs + usage[1].queue_pairs == 0 && usage[0].identifiers == 0
    });
}

#[test]
fn connections_leave_nothing_and_registrations_are_used_again() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(91));
        let listener = listen(hosts.b.net(), RC.with_rings(4096, 4096));
        connections(&hosts, &listener, 100);
        connections(&hosts, &listener, COUNT);
        let (a, b) = (hosts.a.usage(), hosts.b.usage());
        assert_eq!((a.queue_pairs, a.identifiers), (0, 0));
        assert_eq!((b.queue_pairs, b.identifiers), (0, 1), "the listener");
        // Three regions for each pair of rings; measured: 12 in all, two pairs a host. More when
        // streams that are being closed still hold theirs.
        let registrations = hosts.fabric.counters().registrations;
        assert!(registrations <= 120, "{registrations} for {} ends", 2 * (COUNT + 100));
        assert_eq!((a.memory_regions + b.memory_regions) as u64, registrations, "all of them cached");
        listener.close(&SOLO).expect("open");
        hosts.end();
    });
}
