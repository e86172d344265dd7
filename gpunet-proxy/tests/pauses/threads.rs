//! Streams over several data threads that sleep, watch each other's words, and stop in between.

use crate::support::client::client;
use crate::support::rng::Rng;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, small, until};
use gpunet_device::abi::hand_off::Plan;
use gpunet_device::{Listener, Net, Options, Stream, TransportKind};
use gpunet_proxy::Config;
use std::io::{Read, Write};
use std::time::Duration;

/// Blocks poll as a GPU's do, and wake no data thread: one of these watches the words of those that
/// sleep.
pub fn polled(plan: Plan) -> Plan {
    Plan { polls: true, ..plan }
}

const THREADS: usize = 3;
const BLOCKS: usize = 5;
const MESSAGES: u64 = 12;

/// Blocks open streams, speak after silences of all kinds, and close them, again and again. Every
/// message is heard and answered: no sleep ends by itself here.
pub fn play(mut rng: Rng) {
    let world = World::with(Config {
        data_threads: THREADS,
        spin: Duration::from_micros(rng.below(100)),
        latency: Duration::from_millis(2),
        // A heartbeat wakes every data thread.
        heartbeat: Duration::from_secs(300),
        ..small()
    });
    let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(4096, 4096);
    let listener = listen(world.net(), tcp);
    std::thread::scope(|scope| {
        for _ in 0..BLOCKS {
            let mut rng = Rng::new(rng.next());
            let (net, listener) = (world.net(), &listener);
            scope.spawn(move || {
                let any = rng.below(KINDS);
                for kind in [any, KINDS] {
                    talk(net, listener, kind, &mut rng);
                }
            });
        }
    });
    listener.close(&SOLO).expect("open");
    world.expect_all_free();
    until("no thread has a stream left", || {
        world.proxy.snapshot().expect("a snapshot").threads.iter().all(|thread| thread.streams == 0)
    });
    world.end();
}

/// Kinds of short silences.
const KINDS: u64 = 3;

/// What comes between two messages: nothing, always the same, any time, or now and then so long
/// that threads sleep.
fn silence(kind: u64, rng: &mut Rng) -> Duration {
    match kind {
        0 => Duration::ZERO,
        1 => Duration::from_millis(4),
        2 => Duration::from_micros(rng.below(6000)),
        _ => Duration::from_millis(rng.one_of(&[0, 0, 30])),
    }
}

fn talk(net: Net, listener: &Listener, kind: u64, rng: &mut Rng) {
    // Of several blocks that accept, each gets some connection.
    let mut peer = client(listener.local_addr());
    let mut stream: Stream = listener.accept(&SOLO).expect("accepted");
    // The peer that this block's stream belongs to may be another block's: whoever it is, it sends
    // back what comes.
    let echo = std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok(len @ 1..) = peer.read(&mut bytes) {
            peer.write_all(&bytes[..len]).expect("it reads");
        }
    });
    for message in 0..MESSAGES {
        std::thread::sleep(silence(kind, rng));
        let len = 1 + rng.below(300) as usize;
        let (memory, back) = (Memory::filled(message, 0, len), Memory::new(len));
        stream.send_all(&SOLO, memory.buffer()).expect("room");
        assert_eq!(stream.recv_exact(&SOLO, back.buffer()), Ok(len));
        assert!(back.holds(0, len, message, 0), "message {message}");
    }
    // By its handle, as another group would.
    Stream::from_handle(&SOLO, net, stream.handle()).expect("open").close(&SOLO).expect("open");
    echo.join().expect("no panic");
}
