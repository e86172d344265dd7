//! Which transport an open choice comes to.

use crate::hosts::{Host, Hosts, RC, config, exchange, open};
use crate::support::client::{client, nobody, std_addr};
use crate::support::pair::connect;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, bounded, small, until};
use gpunet_core::verbs::Verbs;
use gpunet_core::verbs::sim::{Fabric, FabricSettings};
use gpunet_device::{Error, Listener, Net, Options, SockAddr, Stream, TransportKind};
use gpunet_proxy::Config;
use gpunet_proxy::config::Rdma;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

const AUTO: Options = Options::DEFAULT;
const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A host that takes its neighbours for speakers of rc.
fn eager(fabric: &Fabric) -> Host {
    Host::with(fabric, Config { rc_peers: vec![HERE], ..config(fabric) })
}

/// Connects, moves a few bytes, closes; returns whether they went over rc.
fn goes_by_rc(fabric: &Fabric, from: Net, listener: &Listener, options: Options, to: Net) -> bool {
    let before = fabric.counters().messages;
    let [mut near, far] = connect(from, listener, options);
    let mut far = open(to, far.handle());
    exchange(&mut near, &mut far);
    near.close(&SOLO).expect("open");
    far.close(&SOLO).expect("open");
    // What this one still says must not count for the next.
    let is_over = || fabric.hosts().into_iter().all(|host| fabric.usage(host).queue_pairs == 0);
    until("the connection is gone", is_over);
    fabric.counters().messages > before
}

#[test]
fn rc_is_tried_where_the_settings_name_the_host() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(61));
        let eager = eager(&hosts.fabric);
        let listener = listen(hosts.b.net(), AUTO);
        let b = hosts.b.net();
        assert!(!goes_by_rc(&hosts.fabric, hosts.a.net(), &listener, AUTO, b), "nothing says so");
        assert!(goes_by_rc(&hosts.fabric, eager.net(), &listener, AUTO, b), "the settings say so");
        assert!(!goes_by_rc(&hosts.fabric, eager.net(), &listener, TCP, b), "the socket says otherwise");
        assert!(goes_by_rc(&hosts.fabric, eager.net(), &listener, AUTO, b), "that changed nothing");
        listener.close(&SOLO).expect("open");
        eager.end();
        hosts.end();
    });
}

#[test]
fn rc_is_tried_where_it_was_reached_before() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(62));
        let listener = listen(hosts.b.net(), AUTO);
        let (a, b) = (hosts.a.net(), hosts.b.net());
        assert!(!goes_by_rc(&hosts.fabric, a, &listener, AUTO, b));
        assert!(goes_by_rc(&hosts.fabric, a, &listener, RC, b));
        assert!(goes_by_rc(&hosts.fabric, a, &listener, AUTO, b));
        // Another port is another listener.
        let other = listen(b, AUTO);
        assert!(!goes_by_rc(&hosts.fabric, a, &other, AUTO, b));
        other.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        hosts.end();
    });
}

#[test]
fn a_listener_of_the_same_proxy_is_reached_directly() {
    bounded(|| {
        let fabric = Fabric::new(63);
        let host = eager(&fabric);
        let listener = listen(host.net(), AUTO);
        assert!(!goes_by_rc(&fabric, host.net(), &listener, AUTO, host.net()));
        assert!(goes_by_rc(&fabric, host.net(), &listener, RC, host.net()), "unless it is demanded");
        listener.close(&SOLO).expect("open");
        host.end();
    });
}

/// A TCP program that answers so many clients.
fn tcp_echo(clients: usize) -> (SockAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let addr = SockAddr::from_std(listener.local_addr().expect("an address"));
    let server = std::thread::spawn(move || {
        for _ in 0..clients {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes).expect("five bytes");
            stream.write_all(&bytes).expect("sent");
        }
    });
    (addr, server)
}

fn ask(net: Net, addr: SockAddr) -> Duration {
    let start = Instant::now();
    let mut stream = Stream::connect(&SOLO, net, addr).expect("connected");
    let took = start.elapsed();
    stream.send_all(&SOLO, b"hello").expect("room");
    let memory = Memory::new(5);
    assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(5));
    assert_eq!(memory.copy(0, 5), b"hello");
    stream.close(&SOLO).expect("open");
    took
}

#[test]
fn a_host_that_refuses_rc_is_reached_by_tcp() {
    bounded(|| {
        let fabric = Fabric::new(64);
        let host = eager(&fabric);
        let (addr, server) = tcp_echo(2);
        ask(host.net(), addr);
        ask(host.net(), addr);
        server.join().expect("no panic");
        host.end();
    });
}

#[test]
fn a_host_that_does_not_answer_rc_is_reached_by_tcp_after_a_while() {
    bounded(|| {
        let fabric = Fabric::new(65);
        let host = eager(&fabric);
        let (addr, server) = tcp_echo(2);
        let sim = fabric.host();
        let mut silent = sim.listen(std_addr(addr), 8).expect("nobody is there");
        let took = ask(host.net(), addr);
        assert!(took >= Duration::from_millis(400), "rc had its chance: {took:?}");
        assert!(silent.next().is_err(), "it was given up, and that was told");
        // It is remembered: the next one does not even ask.
        let mut asked = false;
        std::thread::scope(|scope| {
            let net = host.net();
            let again = scope.spawn(move || ask(net, addr));
            while !again.is_finished() {
                asked |= silent.next().is_ok();
                std::thread::yield_now();
            }
            again.join().expect("no panic");
        });
        assert!(!asked, "asked again");
        server.join().expect("no panic");
        drop(silent);
        host.end();
    });
}

#[test]
fn a_host_that_no_rdma_device_leads_to_is_reached_by_tcp() {
    bounded(|| {
        let fabric = Fabric::with(FabricSettings::new(66));
        let host = eager(&fabric);
        fabric.hide(HERE);
        let (addr, server) = tcp_echo(1);
        ask(host.net(), addr);
        server.join().expect("no panic");
        let forced = Stream::connect_with(&SOLO, host.net(), addr, RC).map(|_| ());
        assert_eq!(forced, Err(Error::NetworkUnreachable));
        host.end();
    });
}

#[test]
fn rc_that_is_demanded_and_cannot_be() {
    bounded(|| {
        let fabric = Fabric::new(67);
        let host = eager(&fabric);
        let refused = Stream::connect_with(&SOLO, host.net(), nobody(), RC).map(|_| ());
        assert_eq!(refused, Err(Error::ConnectionRefused));
        // A TCP listener is nobody.
        let tcp = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let addr = SockAddr::from_std(tcp.local_addr().expect("an address"));
        let refused = Stream::connect_with(&SOLO, host.net(), addr, RC).map(|_| ());
        assert_eq!(refused, Err(Error::ConnectionRefused));
        host.end();
        // Without RDMA at all.
        let world = World::with(Config { rdma: Rdma::Off, rc_peers: vec![HERE], ..small() });
        let refused = Stream::connect_with(&SOLO, world.net(), addr, RC).map(|_| ());
        assert_eq!(refused, Err(Error::NotSupported));
        let any = crate::support::world::LOOPBACK;
        let refused = Listener::bind_with(&SOLO, world.net(), any, RC, 1).map(|_| ());
        assert_eq!(refused, Err(Error::NotSupported));
        // Those who leave the choice open do not care.
        let (addr, server) = tcp_echo(1);
        ask(world.net(), addr);
        server.join().expect("no panic");
        world.end();
    });
}

#[test]
fn a_listener_has_one_port_for_all_transports() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(68));
        let (a, b) = (hosts.a.net(), hosts.b.net());
        let listener = listen(b, AUTO);
        for _ in 0..3 {
            let mut program = client(listener.local_addr());
            let mut stream = listener.accept(&SOLO).expect("accepted");
            program.write_all(b"hello").expect("sent");
            let memory = Memory::new(5);
            assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(5));
            stream.close(&SOLO).expect("open");
            drop(program);
            for options in [RC, TCP] {
                let by_rc = goes_by_rc(&hosts.fabric, a, &listener, options, b);
                assert_eq!(by_rc, options == RC);
            }
            goes_by_rc(&hosts.fabric, b, &listener, AUTO, b);
        }
        // TCP holds the port, also of a listener that serves nothing but rc.
        let only = listen(b, RC);
        let program = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let taken = program.expect("a socket").bind(&std_addr(only.local_addr()).into());
        assert_eq!(taken.map_err(|e| e.kind()), Err(std::io::ErrorKind::AddrInUse));
        only.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        hosts.end();
    });
}
