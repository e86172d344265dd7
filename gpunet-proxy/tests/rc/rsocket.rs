//! Peers that are plain rsockets, with immediate data and as iWARP has it.

use crate::hosts::{Host, Hosts, RC, close, exchange, open, receive, send_error, sending};
use crate::raw_peer::{RawPeer, Shape, accept_with, connect_with};
use crate::rsocket_peer::{Rsocket, shape};
use crate::support::client::{nobody, std_addr};
use crate::support::world::listen;
use crate::support::{Memory, PollMemory, SOLO, bounded, pattern, until};
use gpunet_core::verbs::Verbs;
use gpunet_core::verbs::sim::{Fabric, FabricSettings};
use gpunet_device::poll::{POLLRDHUP, poll};
use gpunet_device::{Error, Options, Shutdown, Stream, Timeout};
use std::time::Duration;

const DEPTH: u16 = 384;

fn fabric(iwarp: bool) -> Fabric {
    let delay = Duration::ZERO..=Duration::from_micros(30);
    Fabric::with(FabricSettings { iwarp, delay, ..FabricSettings::new(41) })
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| pattern(seed, i)).collect()
}

/// Runs an rsocket, connected to or by a device's stream, against what the device does with that.
fn against(
    host: &Host,
    fabric: &Fabric,
    connects: bool,
    options: Options,
    shape: Shape,
    device: impl FnOnce(Stream) + Send,
    rsocket: impl FnOnce(Rsocket),
) {
    let (net, sim) = (host.net(), fabric.host());
    let new = |raw: RawPeer| Rsocket::new(raw, shape.credits);
    std::thread::scope(|scope| {
        if connects {
            let listener = listen(net, options);
            let handle = listener.handle();
            let kernel = scope.spawn(move || {
                let listener = gpunet_device::Listener::from_handle(&SOLO, net, handle).expect("open");
                device(listener.accept(&SOLO).expect("accepted"));
            });
            let addr = std_addr(listener.local_addr());
            rsocket(new(connect_with(&sim, addr, shape, |_| {}).expect("connected")));
            kernel.join().expect("no panic");
            listener.close(&SOLO).expect("open");
        } else {
            let addr = nobody();
            let mut listening = sim.listen(std_addr(addr), 1).expect("nobody is there");
            let connect = move || Stream::connect_with(&SOLO, net, addr, options).expect("connected");
            let kernel = scope.spawn(move || device(connect()));
            rsocket(new(accept_with(&mut *listening, shape, |_| {}).expect("accepted")));
            kernel.join().expect("no panic");
        }
    });
    host.expect_all_free();
}

/// Every kind of network, and both ways to connect.
fn everywhere(test: impl Fn(&Host, &Fabric, bool)) {
    for iwarp in [false, true] {
        let fabric = fabric(iwarp);
        let host = Host::new(&fabric);
        for connects in [false, true] {
            test(&host, &fabric, connects);
        }
        host.bury();
    }
}

/// Sends back what comes, to the end.
fn echo(mut stream: Stream) {
    let memory = Memory::new(10_000);
    while let n @ 1.. = stream.recv(&SOLO, memory.buffer()).expect("no failure") {
        stream.send_all(&SOLO, memory.buffer().first(n)).expect("room");
    }
    stream.close(&SOLO).expect("open");
}

#[test]
fn an_echo_of_every_size() {
    bounded(|| {
        everywhere(|host, fabric, connects| {
            let client = |mut peer: Rsocket| {
                for (seed, len) in (0..).zip([1, 2, 100, 4095, 4096, 4097, 65_536, 200_000, 1]) {
                    let sent = bytes(seed, len);
                    let (mut done, mut back) = (0, Vec::new());
                    until("the echo is complete", || {
                        done += peer.send(&sent[done..]);
                        back.extend(peer.read(usize::MAX));
                        assert_eq!(peer.failed, None);
                        back.len() >= len
                    });
                    assert!(back == sent, "{len} bytes");
                }
                peer.disconnect();
                assert_eq!(peer.failed, None);
            };
            let (small, large) = (shape(8192, 16), shape(131_072, DEPTH));
            against(host, fabric, connects, RC, large, echo, client);
            against(host, fabric, connects, RC.with_rings(4096, 4096), small, echo, client);
        });
    });
}

#[test]
fn a_big_transfer_each_way_at_a_time() {
    const LEN: usize = 2 << 20;
    bounded(|| {
        everywhere(|host, fabric, connects| {
            let net = host.net();
            let device = |mut stream: Stream| {
                let sender = sending(net, &stream, 1, LEN);
                assert_eq!(receive(&mut stream, 2, 0, LEN), (LEN, None));
                assert_eq!(sender.join().expect("no panic"), Ok(()));
                let mut stream = open(net, stream.handle());
                stream.shutdown(&SOLO, Shutdown::Write);
                assert_eq!(stream.recv(&SOLO, Memory::new(1).buffer()), Ok(0));
                stream.close(&SOLO).expect("open");
            };
            let rsocket = |mut peer: Rsocket| {
                let (out, mut done, mut back) = (bytes(2, LEN), 0, Vec::new());
                until("all is done", || {
                    done += peer.send(&out[done..]);
                    back.extend(peer.read(usize::MAX));
                    assert_eq!(peer.failed, None);
                    done == LEN && back.len() == LEN && peer.peer_shut
                });
                assert!(back == bytes(1, LEN));
                peer.disconnect();
                assert_eq!(peer.failed, None);
            };
            against(host, fabric, connects, RC, shape(131_072, DEPTH), device, rsocket);
        });
    });
}

#[test]
fn an_rsocket_ends_its_half_first() {
    const LEN: usize = 300_000;
    bounded(|| {
        everywhere(|host, fabric, connects| {
            let device = |mut stream: Stream| {
                assert_eq!(receive(&mut stream, 1, 0, usize::MAX), (5000, None));
                stream.send_all(&SOLO, Memory::filled(2, 0, LEN).buffer()).expect("the other half is open");
                stream.shutdown(&SOLO, Shutdown::Write);
                assert_eq!(stream.recv(&SOLO, Memory::new(1).buffer()), Ok(0));
                stream.close(&SOLO).expect("open");
            };
            let rsocket = |mut peer: Rsocket| {
                peer.send_all(&bytes(1, 5000));
                peer.shutdown();
                assert!(peer.read_exact(LEN) == bytes(2, LEN));
                until("the second half takes both along", || {
                    peer.turn();
                    peer.disconnected
                });
                assert_eq!(peer.failed, None);
            };
            against(host, fabric, connects, RC, shape(16_384, 32), device, rsocket);
        });
    });
}

#[test]
fn a_device_ends_its_half_first() {
    const LEN: usize = 300_000;
    bounded(|| {
        everywhere(|host, fabric, connects| {
            let device = |mut stream: Stream| {
                stream.send_all(&SOLO, Memory::filled(1, 0, 5000).buffer()).expect("room");
                stream.shutdown(&SOLO, Shutdown::Write);
                assert_eq!(stream.send(&SOLO, b"more"), Err(Error::BrokenPipe));
                assert_eq!(receive(&mut stream, 2, 0, usize::MAX), (LEN, None));
                stream.close(&SOLO).expect("open");
            };
            let rsocket = |mut peer: Rsocket| {
                assert!(peer.read_exact(5000) == bytes(1, 5000));
                until("the end", || {
                    peer.turn();
                    peer.peer_shut
                });
                assert!(!peer.disconnected);
                peer.send_all(&bytes(2, LEN));
                peer.shutdown();
                assert_eq!(peer.failed, None);
            };
            against(host, fabric, connects, RC, shape(16_384, 32), device, rsocket);
        });
    });
}

#[test]
fn what_was_sent_before_a_disconnect_is_read_after_it() {
    const LEN: usize = 100_000;
    bounded(|| {
        everywhere(|host, fabric, connects| {
            let device = |mut stream: Stream| {
                let ended = PollMemory::new(&[(stream.handle().raw(), POLLRDHUP)]);
                assert_eq!(poll(&SOLO, host.net(), ended.set(), Timeout::NEVER), Ok(1));
                assert_eq!(receive(&mut stream, 1, 0, usize::MAX), (LEN, None));
                assert_eq!(send_error(&mut stream), Error::BrokenPipe);
                stream.close(&SOLO).expect("open");
            };
            let rsocket = |mut peer: Rsocket| {
                peer.send_all(&bytes(1, LEN));
                // And gone at once.
                peer.disconnect();
            };
            against(host, fabric, connects, RC, shape(131_072, DEPTH), device, rsocket);
        });
    });
}

#[test]
fn a_close_delivers_everything_to_an_rsocket_that_reads_slowly() {
    const LEN: usize = 200_000;
    bounded(|| {
        everywhere(|host, fabric, connects| {
            let device = |mut stream: Stream| {
                stream.send_all(&SOLO, Memory::filled(1, 0, LEN).buffer()).expect("room");
                stream.close(&SOLO).expect("open");
            };
            let rsocket = |mut peer: Rsocket| {
                let all = bytes(1, LEN);
                for part in all.chunks(4000) {
                    assert!(peer.read_exact(part.len()) == part);
                    std::thread::sleep(Duration::from_millis(1));
                }
                until("the end", || {
                    peer.turn();
                    peer.peer_shut
                });
                peer.disconnect();
            };
            against(host, fabric, connects, RC, shape(8192, 16), device, rsocket);
            assert_eq!(host.world.attachment().stats().undelivered, 0);
        });
    });
}

#[test]
fn two_of_ours_on_iwarp() {
    const LEN: usize = 4 << 20;
    bounded(|| {
        let hosts = Hosts::new(fabric(true));
        for rings in [4096, 65_536, 1 << 18] {
            let (mut a, mut b) = hosts.pair(RC.with_rings(rings, rings));
            exchange(&mut a, &mut b);
            let len = if rings == 4096 { LEN / 16 } else { LEN };
            let there = sending(hosts.a.net(), &a, 1, len);
            let (net, handle) = (hosts.b.net(), b.handle());
            let reader = std::thread::spawn(move || receive(&mut open(net, handle), 1, 0, len));
            assert_eq!(there.join().expect("no panic"), Ok(()));
            assert_eq!(reader.join().expect("no panic"), (len, None));
            close(hosts.a.net(), a);
            let mut b = open(net, handle);
            assert_eq!(b.recv(&SOLO, Memory::new(1).buffer()), Ok(0));
            b.close(&SOLO).expect("open");
        }
        assert_eq!(hosts.fabric.counters().rnr, 0);
        hosts.end();
    });
}
