//! Who talks to whom: IPv4, IPv6, wildcards.

use crate::support::{Case, Memory, Team, World, not_run, team};
use gpunet_device::group::Solo;
use gpunet_device::{Error, Listener, Options, SockAddr, Stream};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};

/// Connects to a listener bound to `bind`, by its port at `reach`; returns both ends' view of both
/// addresses: server's local and peer, client's local and peer.
fn meet(world: &World, case: &Case, bind: SockAddr, reach: IpAddr, options: Options) -> [SocketAddr; 4] {
    let (net, there) = (world.net(), world.there());
    let solo = Solo::new(0, 1);
    let listener = Listener::bind_with(&solo, net, bind, options, 8).expect("a free port");
    let bound = listener.local_addr().to_std().expect("an address");
    assert_ne!(bound.port(), 0);
    let to = SockAddr::from_std(SocketAddr::new(reach, bound.port()));
    let handle = listener.handle();
    let addresses = |stream: &Stream| {
        (stream.local_addr().to_std().expect("an address"), stream.peer_addr().to_std().expect("an address"))
    };
    let memory = Memory::new(1);
    let server = |g: &Team| {
        let mut stream = Listener::from_handle(g, net, handle)?.accept(g)?;
        let seen = addresses(&stream);
        stream.send_all(g, b"x")?;
        stream.close(g)?;
        Ok::<_, Error>(seen)
    };
    let client = |g: &Team| {
        let mut stream = Stream::connect_with(g, there, to, options)?;
        assert_eq!(stream.recv_exact(g, memory.buffer())?, 1);
        let seen = addresses(&stream);
        stream.close(g)?;
        Ok::<_, Error>(seen)
    };
    let (served, done) = std::thread::scope(|scope| {
        let served = scope.spawn(|| team(case.lanes, server));
        let done = team(case.lanes, client);
        (served.join().expect("no panic"), done)
    });
    listener.close(&solo).expect("open");
    let ((a, b), (c, d)) = (served.expect("served"), done.expect("connected"));
    [a, b, c, d]
}

fn check(addresses: [SocketAddr; 4], reach: IpAddr) {
    let [server, its_peer, client, its_server] = addresses;
    assert_eq!(server, its_server);
    assert_eq!(client, its_peer);
    assert_eq!(its_server.ip(), reach);
    assert!(client.port() != 0 && client.port() != server.port());
    assert!(client.ip().is_loopback() || client.ip() == reach);
}

pub fn both_ends_know_both_addresses(case: &Case) {
    let world = World::of(case);
    let home = case.address().to_std().expect("an address");
    check(meet(&world, case, case.address(), home.ip(), case.options()), home.ip());
    world.end();
}

pub fn ipv6_works_as_ipv4_does(case: &Case) {
    if case.has_one_address() {
        return not_run("ipv6_works_as_ipv4_does", "RDMA devices have no loopback address");
    }
    let reach = IpAddr::from(Ipv6Addr::LOCALHOST);
    if TcpListener::bind((reach, 0)).is_err() {
        return not_run("ipv6_works_as_ipv4_does", "this machine has no IPv6 loopback");
    }
    let world = World::of(case);
    let bind = SockAddr::from_std(SocketAddr::new(reach, 0));
    check(meet(&world, case, bind, reach, case.options()), reach);
    world.end();
}

pub fn a_wildcard_listener_is_reached_by_loopback(case: &Case) {
    if case.has_one_address() {
        return not_run(
            "a_wildcard_listener_is_reached_by_loopback",
            "RDMA devices have no loopback address",
        );
    }
    let world = World::of(case);
    let any = SockAddr::v4([0, 0, 0, 0], 0);
    // Any address of 127/8 is this host.
    for reach in [[127, 0, 0, 1], [127, 0, 0, 9]] {
        let reach = IpAddr::from(reach);
        check(meet(&world, case, any, reach, case.options()), reach);
    }
    world.end();
}

pub fn an_ipv6_wildcard_serves_ipv4_too_unless_told_not_to(case: &Case) {
    if case.has_one_address() {
        return not_run(
            "an_ipv6_wildcard_serves_ipv4_too_unless_told_not_to",
            "RDMA devices have no loopback address",
        );
    }
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        let test = "an_ipv6_wildcard_serves_ipv4_too_unless_told_not_to";
        return not_run(test, "this machine has no IPv6 loopback");
    }
    let world = World::of(case);
    let any = SockAddr::v6([0; 16], 0);
    for reach in [IpAddr::from(Ipv6Addr::LOCALHOST), IpAddr::from([127, 0, 0, 1])] {
        let [_, _, client, its_server] = meet(&world, case, any, reach, case.options());
        assert_eq!((client.ip(), its_server.ip()), (reach, reach));
    }
    let solo = Solo::new(0, 1);
    let only = case.options().with_flag(Options::V6ONLY, true);
    let refused = (0..20).any(|_| {
        let listener = Listener::bind_with(&solo, world.net(), any, only, 8).expect("a free port");
        let port = listener.local_addr().to_std().expect("an address").port();
        let connected = team(case.lanes, |g| {
            Stream::connect_with(g, world.net(), SockAddr::v4([127, 0, 0, 1], port), only).map(|_| ())
        });
        listener.close(&solo).expect("open");
        // The port is free for IPv4, and another program may have it there.
        connected == Err(Error::ConnectionRefused)
    });
    assert!(refused);
    world.end();
}
