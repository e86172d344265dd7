//! What a thousand connections leave behind.

use crate::hosts::{Host, Hosts, RC, config};
use crate::raw_peer::stopped;
use crate::support::client::{nobody, std_addr};
use crate::support::daemon::Served;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, bounded, until};
use gpunet_core::verbs::Verbs;
use gpunet_core::verbs::sim::Fabric;
use gpunet_device::{Error, Listener, Net, Options, SockAddr, Stream};

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

/// Programs that die in the middle of a handshake, under an account that has just enough for one.
#[test]
fn what_a_handshake_has_registered_goes_back_to_the_account_of_a_program_that_dies() {
    const SMALL: Options = RC.with_rings(4096, 4096);
    bounded(|| {
        let fabric = Fabric::new(92);
        let rules = format!("[user.{}]\nregistered_memory = 8192", rustix::process::getuid().as_raw());
        let served = Served::with(config(&fabric), toml::from_str(&rules).expect("rules"));
        let attach = || served.attach(config(&fabric));
        let sim = fabric.host();
        let until_it_holds_a_queue_pair = || {
            let others = || fabric.hosts().into_iter().filter(|&host| host != sim.id());
            until("a handshake begins", || others().any(|host| fabric.usage(host).queue_pairs == 1));
        };
        // It connects to somebody who does not answer.
        let proxy = attach();
        let attachment = proxy.attach_cpu().expect("attached");
        let token = attachment.token().expect("a launch number");
        let (net, addr) = (token.net(), nobody());
        let silent = sim.listen(std_addr(addr), 1).expect("nobody is there");
        let client = std::thread::spawn(move || Stream::connect_with(&SOLO, net, addr, SMALL).map(|_| ()));
        until_it_holds_a_queue_pair();
        proxy.abort();
        assert!(client.join().expect("no panic").is_err());
        drop((silent, token, attachment));
        // It listens, and its client has stopped.
        let proxy = attach();
        let attachment = proxy.attach_cpu().expect("attached");
        let token = attachment.token().expect("a launch number");
        let listener = listen(token.net(), SMALL);
        let client = stopped(&sim, std_addr(listener.local_addr()));
        until_it_holds_a_queue_pair();
        proxy.abort();
        drop((client, token, attachment));
        // There is enough for another one.
        let host = Host::new(&fabric);
        let listener = listen(host.net(), SMALL);
        let proxy = attach();
        let attachment = proxy.attach_cpu().expect("attached");
        let token = attachment.token().expect("a launch number");
        let stream = Stream::connect_with(&SOLO, token.net(), listener.local_addr(), SMALL);
        stream.expect("the account is empty").close(&SOLO).expect("open");
        drop((token, attachment));
        listener.close(&SOLO).expect("open");
        host.end();
    });
}
