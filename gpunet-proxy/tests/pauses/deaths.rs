//! Blocks that never go on, wherever they are.

use crate::support::client::client;
use crate::support::rng::Rng;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, small};
use gpunet_device::abi::hand_off::Plan;
use gpunet_device::{Error, Listener, Net, Options, Stream, Timeout, TransportKind};
use gpunet_proxy::Config;
use std::io::{Read, Write};

/// Threads of that name stop for good, each after some hundred hand-offs.
const MORTAL: &str = "mortal";
const MORTALS: usize = 4;

pub fn plan(plan: Plan) -> Plan {
    Plan { deaths: vec![(MORTAL, 3000)], ..plan }
}

/// Blocks of one launch die in the middle of whatever they do. Those of another launch, which share
/// slots, control slots, rings and the proxy with them, go on.
pub fn play(mut rng: Rng) {
    let world = World::with(Config { sockets: 64, controls: 16, ..small() });
    let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(4096, 4096);
    let peer = tcp.with_transport(TransportKind::Peer);
    let doomed = world.attachment().token().expect("a number");
    let listeners = [listen(world.net(), tcp), listen(world.net(), peer)];
    for number in 0..MORTALS {
        let (net, seed) = (doomed.net(), rng.next());
        let addrs = listeners.map(|listener| (listener.local_addr(), listener));
        std::thread::Builder::new()
            .name(format!("{MORTAL}-{number}"))
            .spawn(move || live(net, addrs.map(|(addr, _)| addr), [tcp, peer], Rng::new(seed)))
            .expect("a thread");
    }
    // Meanwhile this launch serves whoever comes, and does what it would do alone.
    let net = world.net();
    for _ in 0..15 {
        for listener in &listeners {
            match listener.accept_timeout(&SOLO, Timeout::ms(5)) {
                Ok(stream) => drop(stream.close(&SOLO)),
                Err(Error::TimedOut) => {}
                Err(error) => panic!("accept: {error}"),
            }
        }
        echo(net, tcp);
    }
    // The dead hold what they had in their hands: at most a slot, a control slot and a lock each.
    let usage = world.attachment().usage();
    assert!(usage.requests <= MORTALS, "{usage:?}");
    // Their threads never end, and their launch is never finished: it all stays as it is.
    std::mem::forget((world, doomed));
}

/// Connects, sends and closes until it dies, or for some rounds.
fn live(net: Net, addrs: [gpunet_device::SockAddr; 2], options: [Options; 2], mut rng: Rng) {
    let memory = Memory::new(600);
    for _ in 0..60 {
        let which = rng.below(2) as usize;
        let options = options[which].with_timeouts(Timeout::ms(50), Timeout::ms(50));
        let Ok(mut stream) = Stream::connect_with(&SOLO, net, addrs[which], options) else { continue };
        let _ = stream.send(&SOLO, memory.buffer());
        let _ = stream.recv(&SOLO, memory.buffer());
        let _ = stream.close(&SOLO);
    }
}

/// A listener, a client, an answer, and the end.
fn echo(net: Net, options: Options) {
    let listener: Listener = listen(net, options);
    let mut peer = client(listener.local_addr());
    let mut stream = listener.accept(&SOLO).expect("accepted");
    peer.write_all(b"hello").expect("sent");
    let memory = Memory::new(5);
    assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(5));
    stream.send_all(&SOLO, memory.buffer()).expect("room");
    stream.close(&SOLO).expect("open");
    let mut back = Vec::new();
    peer.read_to_end(&mut back).expect("an end");
    assert_eq!(back, b"hello");
    listener.close(&SOLO).expect("open");
}
