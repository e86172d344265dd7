//! Blocks that poll for space, and nothing but space comes.

use crate::support::client::narrow_client;
use crate::support::rng::Rng;
use crate::support::world::listen;
use crate::support::{Memory, PollMemory, SOLO, World, pattern, small};
use gpunet_device::poll::{self, POLLOUT};
use gpunet_device::{Error, Net, Options, Stream, Timeout, TransportKind};
use gpunet_proxy::Config;
use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

const BLOCKS: u64 = 3;
/// More than the kernel's buffers hold.
const BYTES: usize = 8 << 20;
/// Bytes of each ring to a client.
const RING: usize = 16 << 10;
/// How often a reader stops, so that all buffers and the ring get full.
const STOPS: usize = 8;

/// Blocks send to clients that stop reading now and then, and send nothing themselves. The ring
/// that gets space again is the only change that a block can hear of.
pub fn play(mut rng: Rng) {
    let world = World::with(Config { data_threads: 2, ..small() });
    let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(RING as u64, 4096);
    let listener = listen(world.net(), tcp);
    std::thread::scope(|scope| {
        for seed in 0..BLOCKS {
            let client = narrow_client(listener.local_addr());
            let stream = listener.accept(&SOLO).expect("accepted").handle();
            let net = world.net();
            let mut rng = Rng::new(rng.next());
            scope.spawn(move || read(client, seed, &mut rng));
            scope.spawn(move || send(net, Stream::from_handle(&SOLO, net, stream).expect("open"), seed));
        }
    });
    listener.close(&SOLO).expect("open");
    world.end();
}

fn send(net: Net, mut stream: Stream, seed: u64) {
    let memory = Memory::filled(seed, 0, BYTES);
    let set = PollMemory::new(&[(stream.handle().raw(), POLLOUT)]);
    // One block sends all that there is room for, another some of it, so that a part of it stays
    // unpublished, and waits for half a ring.
    let low = if seed == 1 { RING / 2 } else { 1 };
    stream.set_options(&SOLO, stream.options().with_low_water(low as u32, 1)).expect("open");
    let mut sent = 0;
    while sent < BYTES {
        let rest = memory.buffer().skip(sent);
        let done = match (seed, stream.sender().free_space(&SOLO)) {
            (0, _) => stream.try_send(&SOLO, rest),
            (_, Ok(0)) => Err(Error::WouldBlock),
            (1, Ok(free)) if free < RING / 2 => Err(Error::WouldBlock),
            (1, Ok(free)) => stream.sender().send_more(&SOLO, rest.first(free - RING / 2 + 700)),
            (_, free) => free.and_then(|free| stream.sender().send_more(&SOLO, rest.first(free))),
        };
        match done {
            Ok(n) => sent += n,
            Err(Error::WouldBlock) => assert_eq!(poll::poll(&SOLO, net, set.set(), Timeout::NEVER), Ok(1)),
            Err(error) => panic!("send: {error}"),
        }
    }
    stream.close(&SOLO).expect("open");
}

fn read(mut client: TcpStream, seed: u64, rng: &mut Rng) {
    let (mut bytes, mut got) = (vec![0; 64 << 10], 0);
    let mut stop_at = 0;
    loop {
        if got >= stop_at {
            std::thread::sleep(Duration::from_micros(rng.below(20_000)));
            stop_at += BYTES / STOPS;
        }
        match client.read(&mut bytes).expect("a block that goes on") {
            0 => break,
            n => {
                // The first and the last byte of each piece: a shift shows.
                assert_eq!((bytes[0], bytes[n - 1]), (pattern(seed, got), pattern(seed, got + n - 1)));
                got += n;
            }
        }
    }
    assert_eq!(got, BYTES);
}
