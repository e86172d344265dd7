//! Calls that end in the very moment in which what they waited for comes: nothing hangs, and
//! nothing is lost in between.

use crate::support::raw::{ControlWords, context};
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, bounded};
use gpunet_device::abi::control::{Op, Request};
use gpunet_device::{Error, Listener, Options, SockAddr, Stream, Timeout, TransportKind};
use gpunet_proxy::FinishPolicy;
use std::time::{Duration, Instant};

const KINDS: [TransportKind; 2] = [TransportKind::Tcp, TransportKind::Peer];

/// Lets some microseconds pass, without giving the core away.
fn spin(micros: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
}

#[test]
fn cancel_and_a_request_just_posted() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), Options::DEFAULT);
        let handle = listener.handle();
        for round in 0..200 {
            let token = world.attachment().token().expect("a number");
            let net = token.net();
            let waiting = std::thread::spawn(move || {
                Listener::from_handle(&SOLO, net, handle).and_then(|l| l.accept(&SOLO)).map(|_| ())
            });
            spin(round);
            token.cancel();
            assert_eq!(waiting.join().expect("no panic"), Err(Error::Canceled));
            assert_eq!(token.finish(FinishPolicy::Close).left_open, 0);
        }
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

/// The proxy sees a request and its abandon in one look: whichever order it sees them in, the
/// request is answered.
#[test]
fn a_request_and_its_abandon_seen_together() {
    bounded(|| {
        let world = World::new();
        let net = world.net();
        let listener = listen(net, Options::DEFAULT);
        let handle = listener.handle();
        let control = ControlWords::new(net, context(net).controls - 1);
        for round in 1..=4 {
            // A slot that was never used, so that its first generation is the next.
            let mut accept = Request::new(Op::Accept, handle.slot(), handle.generation(), 0);
            (accept.target, accept.target_generation) = (20 + round, 1);
            control.post(u64::from(round), accept);
            control.abandon.publish(u64::from(round));
            assert_eq!(control.answer(u64::from(round)), Error::Canceled.errno() as u32);
        }
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn an_accept_that_gives_up_and_a_connection_that_comes() {
    const CLIENTS: u64 = 100;
    bounded(|| {
        for kind in KINDS {
            let world = World::new();
            let net = world.net();
            let options = Options::DEFAULT.with_transport(kind).with_rings(4096, 4096);
            let listener = listen(net, options);
            let addr = listener.local_addr();
            let clients = std::thread::spawn(move || {
                let memory = Memory::new(1);
                for _ in 0..CLIENTS {
                    let mut stream = Stream::connect_with(&SOLO, net, addr, options)?;
                    // Every connection is served.
                    stream.send_all(&SOLO, b"x")?;
                    assert_eq!(stream.recv(&SOLO, memory.buffer())?, 1);
                    stream.close(&SOLO)?;
                }
                Ok::<(), Error>(())
            });
            let memory = Memory::new(1);
            let (mut served, mut round) = (0, 0);
            while served < CLIENTS {
                round += 1;
                match listener.accept_timeout(&SOLO, Timeout::ns(round % 97 * 1000 + 1)) {
                    Ok(mut stream) => {
                        served += 1;
                        assert_eq!(stream.recv(&SOLO, memory.buffer()), Ok(1));
                        stream.send_all(&SOLO, memory.buffer()).expect("room");
                        stream.close(&SOLO).expect("open");
                    }
                    Err(error) => assert_eq!(error, Error::TimedOut),
                }
            }
            assert_eq!(clients.join().expect("no panic"), Ok(()));
            listener.close(&SOLO).expect("open");
            world.end();
        }
    });
}

/// Of a direct connection both ends are there or neither.
#[test]
fn a_connect_that_gives_up_and_an_accept_that_comes() {
    bounded(|| {
        let world = World::new();
        let net = world.net();
        let options = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(4096, 4096);
        let listener = listen(net, options);
        let (addr, handle) = (listener.local_addr(), listener.handle());
        let clients = std::thread::spawn(move || {
            let mut connected = 0;
            for round in 0..300u64 {
                let hasty = options.with_timeouts(Timeout::ns(round % 61 * 1000 + 1), Timeout::NEVER);
                match Stream::connect_with(&SOLO, net, addr, hasty) {
                    Ok(stream) => {
                        connected += 1;
                        stream.close(&SOLO)?;
                    }
                    Err(Error::TimedOut) => {}
                    Err(error) => return Err(error),
                }
            }
            // The last word: whoever accepts it stops.
            let mut stream = Stream::connect_with(&SOLO, net, addr, options)?;
            stream.send_all(&SOLO, b"!")?;
            stream.close(&SOLO)?;
            Ok(connected)
        });
        let memory = Memory::new(1);
        let mut accepted = 0;
        loop {
            let mut stream = Listener::from_handle(&SOLO, net, handle)
                .and_then(|listener| listener.accept(&SOLO))
                .expect("a connection");
            let last = stream.recv(&SOLO, memory.buffer()).expect("an orderly end") == 1;
            stream.close(&SOLO).expect("open");
            if last {
                break;
            }
            accepted += 1;
        }
        assert_eq!(clients.join().expect("no panic"), Ok(accepted));
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn a_listener_that_closes_and_connects_that_come() {
    bounded(|| {
        for kind in KINDS {
            let world = World::new();
            let net = world.net();
            let options = Options::DEFAULT.with_transport(kind).with_rings(4096, 4096);
            for round in 0..50 {
                let listener = listen(net, options);
                let addr: SockAddr = listener.local_addr();
                let client = std::thread::spawn(move || {
                    // Connected, refused or reset: all are answers.
                    let connected = Stream::connect_with(&SOLO, net, addr, options);
                    connected.map(|stream| stream.close(&SOLO).expect("open"))
                });
                spin(round * 4);
                listener.close(&SOLO).expect("open");
                let result = client.join().expect("no panic");
                let answers = [Ok(()), Err(Error::ConnectionRefused), Err(Error::ConnectionReset)];
                assert!(answers.contains(&result), "{result:?}");
            }
            world.expect_all_free();
        }
    });
}
