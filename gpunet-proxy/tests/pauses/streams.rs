//! Bytes both ways, halves that close, launches that are cancelled.

use crate::support::pair::connect;
use crate::support::rng::Rng;
use crate::support::world::{Case, Home, listen};
use crate::support::{Memory, SOLO, World, until};
use gpunet_device::{Error, Group, Options, Shutdown, Stream, Timeout, TransportKind, poll};
use gpunet_proxy::FinishPolicy;

/// A pair of streams of each kind that moves bytes both ways, and a launch that is cancelled while
/// it waits everywhere.
pub fn play(mut rng: Rng) {
    let case = Case {
        transport: rng.one_of(&[TransportKind::Tcp, TransportKind::Peer, TransportKind::Rc]),
        lanes: rng.one_of(&[1, 1, 2, 3]),
        placement: Default::default(),
        home: rng.one_of(&[Home::Embedded, Home::Daemon]),
        apart: rng.below(2) == 0,
    };
    duplex(&case, &mut rng);
    cancelled(rng.one_of(&[TransportKind::Tcp, TransportKind::Peer]));
}

fn duplex(case: &Case, rng: &mut Rng) {
    let world = World::of(case);
    let bytes = 20_000 + rng.below(60_000) as usize;
    let piece = 1 + rng.below(5000) as usize;
    let polls = rng.below(2) == 0;
    let options = case.rings(1 << (12 + rng.below(4)));
    let memory =
        [Memory::filled(1, 0, bytes), Memory::new(bytes), Memory::filled(2, 0, bytes), Memory::new(bytes)];
    let [up, upped, down, downed] = &memory;
    let both = |g: &crate::support::Team, mut stream: Stream, out: &Memory, back: &Memory, net| {
        let (out, back) = (out.buffer(), back.buffer());
        let (mut sent, mut got) = (0, 0);
        while sent < bytes || got < bytes {
            if sent < bytes {
                match stream.try_send(g, out.slice(sent, piece.min(bytes - sent))) {
                    Ok(n) => sent += n,
                    Err(Error::WouldBlock) => {}
                    Err(error) => return Err(error),
                }
                if sent == bytes {
                    stream.shutdown(g, Shutdown::Write);
                }
            }
            if got < bytes {
                match stream.try_recv(g, back.skip(got)) {
                    Ok(0) => break,
                    Ok(n) => got += n,
                    Err(Error::WouldBlock) if polls && sent == bytes => {
                        let set = crate::support::PollMemory::new(&[(stream.handle().raw(), poll::POLLIN)]);
                        // One set for all lanes would need memory of the group: each lane of a lone
                        // group has its own.
                        if g.size() == 1 {
                            poll(g, net, set.set(), Timeout::ms(50))?;
                        }
                    }
                    Err(Error::WouldBlock) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        // The end, and nothing more.
        assert_eq!(stream.recv(g, back.first(1))?, 0);
        stream.close(g)?;
        Ok(got)
    };
    let (here, there) = (world.net(), world.there());
    let server = |g: &_, stream: Stream| both(g, stream, down, upped, here);
    let client = |g: &_, stream: Stream| both(g, stream, up, downed, there);
    let (served, got) = case.pair(&world, options, server, client);
    assert_eq!((served, got), (bytes, bytes), "{case:?}");
    assert!(upped.holds(0, bytes, 1, 0) && downed.holds(0, bytes, 2, 0), "{case:?}: wrong bytes");
    world.end();
}

/// Groups that wait in every kind of call hear of a cancel, and nothing is left.
fn cancelled(transport: TransportKind) {
    let world = World::new();
    let options = Options::DEFAULT.with_transport(transport).with_rings(4096, 4096);
    let listener = listen(world.net(), options);
    let waiter = world.attachment().token().expect("a number");
    let net = waiter.net();
    let [connected, kept] = connect(net, &listener, options);
    let handle = connected.handle();
    std::thread::scope(|scope| {
        let receives = scope.spawn(move || {
            let mut stream = Stream::from_handle(&SOLO, net, handle)?;
            stream.recv(&SOLO, Memory::new(1).buffer())
        });
        let polls = scope.spawn(move || {
            let set = crate::support::PollMemory::new(&[(handle.raw(), poll::POLLIN)]);
            poll(&SOLO, net, set.set(), Timeout::NEVER)
        });
        let accepts = scope.spawn(move || {
            let mine = listen(net, options);
            mine.accept(&SOLO).map(|_| 0)
        });
        until("the accept waits", || world.attachment().usage().requests == 1);
        waiter.cancel();
        for waits in [receives, polls, accepts] {
            assert_eq!(waits.join().expect("no panic"), Err(Error::Canceled));
        }
    });
    assert_eq!(waiter.finish(FinishPolicy::Reset).left_open, 2);
    kept.close(&SOLO).expect("open");
    listener.close(&SOLO).expect("open");
    world.end();
}
