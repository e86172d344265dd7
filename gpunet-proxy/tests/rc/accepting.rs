//! Clients that go while they wait, accepts and connects that are given up.

use crate::hosts::{Host, Hosts, RC, config, exchange, open};
use crate::raw_peer::stopped;
use crate::support::client::{client, nobody, std_addr};
use crate::support::pair::connect;
use crate::support::world::{LOOPBACK, listen};
use crate::support::{Memory, SOLO, bounded, until};
use gpunet_core::verbs::Verbs;
use gpunet_core::verbs::sim::{Fabric, FabricSettings};
use gpunet_device::{Error, Handle, Listener, Net, SockAddr, Stream, Timeout, TransportKind};
use gpunet_proxy::Config;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// So long takes a message of the connection manager.
fn slow(millis: u64) -> Fabric {
    let delay = Duration::from_millis(millis);
    Fabric::with(FabricSettings { delay: delay..=delay, ..FabricSettings::new(71) })
}

#[test]
fn clients_that_left_during_the_handshake_are_not_accepted() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(72));
        let listener = listen(hosts.b.net(), RC);
        let addr = listener.local_addr();
        let sim = hosts.fabric.host();
        for _ in 0..5 {
            let client = stopped(&sim, std_addr(addr));
            until("it is answered", || hosts.b.usage().queue_pairs == 1);
            drop(client);
            until("nothing is left of it", || hosts.b.usage().queue_pairs == 0);
        }
        assert_eq!(listener.accept_timeout(&SOLO, Timeout::ms(20)).map(|_| ()), Err(Error::TimedOut));
        // The process of another is killed while it is answered.
        let client = stopped(&sim, std_addr(addr));
        until("it is answered", || hosts.b.usage().queue_pairs == 1);
        hosts.fabric.kill(sim.id());
        until("nothing is left of it", || hosts.b.usage().queue_pairs == 0);
        drop(client);
        // Those who stay are served.
        let net = hosts.a.net();
        let [mut near, mut far] = connect(net, &listener, RC);
        exchange(&mut near, &mut far);
        near.close(&SOLO).expect("open");
        far.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        hosts.end();
    });
}

#[test]
fn an_accept_given_up_during_the_handshake_leaves_the_client_to_the_next() {
    bounded(|| {
        let hosts = Hosts::new(slow(15));
        let listener = listen(hosts.b.net(), RC);
        let (addr, net) = (listener.local_addr(), hosts.a.net());
        let connect = move || Stream::connect_with(&SOLO, net, addr, RC).map(|s| s.handle());
        for _ in 0..4 {
            let client = std::thread::spawn(connect);
            // The request takes 15 ms, and its answer, and the client's last message.
            let mut far = loop {
                match listener.accept_timeout(&SOLO, Timeout::ms(5)) {
                    Ok(stream) => break stream,
                    Err(error) => assert_eq!(error, Error::TimedOut),
                }
            };
            let mut near = open(net, client.join().expect("no panic").expect("connected"));
            exchange(&mut near, &mut far);
            near.close(&SOLO).expect("open");
            far.close(&SOLO).expect("open");
        }
        listener.close(&SOLO).expect("open");
        hosts.end();
    });
}

#[test]
fn a_connect_given_up_before_it_is_accepted() {
    bounded(|| {
        let fabric = slow(1);
        let host = Host::new(&fabric);
        let sim = fabric.host();
        let addr = nobody();
        // A listener that never answers.
        let mut silent = sim.listen(std_addr(addr), 64).expect("nobody is there");
        let mut kept = Vec::new();
        for _ in 0..20 {
            let late = RC.with_timeouts(Timeout::ms(3), Timeout::NEVER);
            let gave_up = Stream::connect_with(&SOLO, host.net(), addr, late).map(|_| ());
            assert_eq!(gave_up, Err(Error::TimedOut));
            kept.extend(silent.next());
        }
        host.expect_all_free();
        drop((kept, silent));
        host.end();
    });
}

#[test]
fn a_listener_that_closes_refuses_who_is_not_answered() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(73));
        let listener = Listener::bind_with(&SOLO, hosts.b.net(), LOOPBACK, RC, 1).expect("a free port");
        let (addr, net) = (listener.local_addr(), hosts.a.net());
        // The one connection that may wait for an accept.
        let mut first = Stream::connect_with(&SOLO, net, addr, RC).expect("connected");
        let connect = move || Stream::connect_with(&SOLO, net, addr, RC).map(|_| ());
        let waiting = std::thread::spawn(connect);
        until("one waits", || hosts.a.world.attachment().usage().requests == 1);
        listener.close(&SOLO).expect("open");
        assert_eq!(waiting.join().expect("no panic"), Err(Error::ConnectionRefused));
        assert_eq!(first.recv(&SOLO, Memory::new(1).buffer()), Err(Error::ConnectionReset));
        first.close(&SOLO).expect("open");
        hosts.end();
    });
}

/// A listener to which TCP clients come all the time: who has come over rc is accepted, too.
#[test]
fn clients_over_tcp_let_others_through() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(76));
        let listener = listen(hosts.b.net(), RC.with_transport(TransportKind::Auto));
        let addr = listener.local_addr();
        let mut clients: Vec<_> = (0..4).map(|_| client(addr)).collect();
        let near = Stream::connect_with(&SOLO, hosts.a.net(), addr, RC).expect("connected");
        let mut is_rc = |_| {
            clients.push(client(addr));
            // Time to come ahead, which nothing tells; the later it comes, the less this shows.
            std::thread::sleep(Duration::from_millis(2));
            let far = listener.accept(&SOLO).expect("a connection waits");
            let is_rc = far.transport() == TransportKind::Rc;
            far.close(&SOLO).expect("open");
            is_rc
        };
        assert!((0..32).any(&mut is_rc), "it waits behind clients that came later");
        near.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        drop(clients);
        hosts.end();
    });
}

#[test]
fn a_full_backlog_refuses() {
    bounded(|| {
        let fabric = Fabric::new(74);
        let hosts = Hosts::new(fabric);
        let listener = Listener::bind_with(&SOLO, hosts.b.net(), LOOPBACK, RC, 2).expect("a free port");
        let (addr, net) = (listener.local_addr(), hosts.a.net());
        let first = [(); 2].map(|()| Stream::connect_with(&SOLO, net, addr, RC).expect("connected"));
        let connect = move || {
            Stream::connect_with(&SOLO, net, addr, RC.with_timeouts(Timeout::ms(200), Timeout::NEVER))
                .map(|_| ())
        };
        let waiting: Vec<_> = (0..12).map(|_| std::thread::spawn(connect)).collect();
        let ends: Vec<_> = waiting.into_iter().map(|w| w.join().expect("no panic")).collect();
        assert!(ends.contains(&Err(Error::ConnectionRefused)), "{ends:?}");
        assert!(ends.contains(&Err(Error::TimedOut)), "{ends:?}");
        assert!(!ends.contains(&Ok(())), "{ends:?}");
        listener.close(&SOLO).expect("open");
        first.into_iter().for_each(|stream| stream.close(&SOLO).expect("open"));
        hosts.end();
    });
}

/// Rings for a few connections only.
fn tight(fabric: &Fabric) -> Host {
    Host::with(fabric, Config { sockets: 32, shared_rings: 128 << 10, ..config(fabric) })
}

/// One client after the other, most of which give up at once; those that get through send a pattern
/// of their own. Rings of who gave up are used again at once: bytes in the wrong place would show.
fn restless(net: Net, addr: SockAddr, seed: u64, stop: &AtomicBool, survivors: &AtomicUsize) {
    const LEN: usize = 9000;
    let memory = Memory::filled(seed, 0, LEN);
    let back = Memory::new(LEN);
    let mut turn = seed;
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        let timeout = if turn.is_multiple_of(4) { 400_000_000 } else { 100_000 + turn % 7 * 300_000 };
        let options = RC.with_rings(4096, 4096).with_timeouts(Timeout::of_option(timeout), Timeout::NEVER);
        let mut stream = match Stream::connect_with(&SOLO, net, addr, options) {
            Ok(stream) => stream,
            Err(Error::TimedOut | Error::NoBuffers | Error::TooManySockets | Error::ConnectionRefused) => {
                continue;
            }
            Err(error) => panic!("{error:?}"),
        };
        let whole = stream.set_options(&SOLO, RC).is_ok()
            && stream.send_all(&SOLO, memory.buffer().first(4000)).is_ok()
            && stream.recv_exact(&SOLO, back.buffer().first(4000)) == Ok(4000);
        if whole {
            assert!(back.holds(0, 4000, seed, 0), "another stream's bytes");
            survivors.fetch_add(1, Ordering::Relaxed);
        }
        stream.close(&SOLO).expect("open");
    }
}

fn serve(net: Net, listener: Handle, stop: &AtomicBool) {
    let listener = Listener::from_handle(&SOLO, net, listener).expect("open");
    let memory = Memory::new(4000);
    while !stop.load(Ordering::Relaxed) {
        let mut stream = match listener.accept_timeout(&SOLO, Timeout::us(700)) {
            Ok(stream) => stream,
            Err(Error::TimedOut | Error::NoBuffers | Error::TooManySockets) => continue,
            Err(error) => panic!("{error:?}"),
        };
        // It echoes, if the client is still there.
        let mut left = 4000;
        while left > 0 {
            match stream.receiver().recv_timeout(&SOLO, memory.buffer().first(left), Timeout::ms(200)) {
                Ok(n @ 1..) => {
                    left -= n;
                    if stream.send_all(&SOLO, memory.buffer().first(n)).is_err() {
                        break;
                    }
                }
                _ => break,
            }
        }
        stream.close(&SOLO).expect("open");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn rings_are_not_used_again_before_the_card_has_let_go() {
    bounded(|| {
        let delay = Duration::ZERO..=Duration::from_micros(900);
        let fabric = Fabric::with(FabricSettings { delay, ..FabricSettings::new(75) });
        let (a, b) = (tight(&fabric), tight(&fabric));
        let listener = listen(b.net(), RC.with_rings(4096, 4096));
        let addr = listener.local_addr();
        let (stop, closed, survivors) = (AtomicBool::new(false), AtomicBool::new(false), AtomicUsize::new(0));
        let (stop, closed, survivors) = (&stop, &closed, &survivors);
        std::thread::scope(|scope| {
            let (net, handle) = (a.net(), listener.handle());
            let clients: Vec<_> =
                (0..6).map(|seed| scope.spawn(move || restless(net, addr, seed, stop, survivors))).collect();
            for _ in 0..2 {
                let net = b.net();
                scope.spawn(move || serve(net, handle, closed));
            }
            // As long as that, and longer on a busy machine.
            let began = Instant::now();
            until("some clients are served", || {
                began.elapsed() > Duration::from_secs(3) && survivors.load(Ordering::Relaxed) > 5
            });
            stop.store(true, Ordering::Relaxed);
            // The last ones may wait for their echo yet.
            clients.into_iter().for_each(|client| client.join().expect("no panic"));
            closed.store(true, Ordering::Relaxed);
        });
        listener.close(&SOLO).expect("open");
        a.expect_all_free();
        b.expect_all_free();
        // Not everything was delivered: some gave up on an answer.
        a.bury();
        b.bury();
    });
}
