//! Poll groups with a real proxy: many clients and several blocks, ends of launches, words that a
//! kernel overwrites.

#[path = "../support/mod.rs"]
mod support;

use gpunet_device::abi::Word;
use gpunet_device::abi::context::Context;
use gpunet_device::poll::POLLIN;
use gpunet_device::poll_group::{Event, Events};
use gpunet_device::{
    Error, Handle, Listener, Net, Options, PollGroup, RecvHalf, Result, SendHalf, Stream, Timeout,
    TransportKind,
};
use gpunet_proxy::{Config, FinishPolicy};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::client::client;
use support::world::{LOOPBACK, listen};
use support::{Memory, SOLO, World, bounded, small};

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);
const LISTENER: u64 = u64::MAX;

/// Memory of so many events.
fn room(events: usize) -> Memory {
    Memory::new(8 + events * size_of::<Event>())
}

/// One of several blocks that accept and echo, until all clients have gone.
fn serve(net: Net, group: PollGroup, listener: Listener, clients: &AtomicUsize) -> Result<usize> {
    let (memory, data) = (room(4), Memory::new(256));
    let (mut events, mut served) = (Events::new(memory.buffer()), 0);
    while clients.load(Ordering::Acquire) > 0 {
        group.wait(&SOLO, &mut events, Timeout::ms(5))?;
        for event in (0..events.len()).map(|index| events.get(index)) {
            let Some(handle) = Handle::from_raw(event.handle) else { panic!("an event of nothing") };
            if event.token == LISTENER {
                match listener.try_accept(&SOLO) {
                    Ok(stream) => group.add(&SOLO, stream.handle(), POLLIN, 1)?,
                    Err(Error::WouldBlock) => {}
                    Err(error) => return Err(error),
                }
                continue;
            }
            match RecvHalf::from_handle(&SOLO, net, handle)?.try_recv(&SOLO, data.buffer()) {
                Ok(0) => {
                    Stream::from_handle(&SOLO, net, handle)?.close(&SOLO)?;
                    clients.fetch_sub(1, Ordering::AcqRel);
                }
                Ok(n) => {
                    SendHalf::from_handle(&SOLO, net, handle)?.send_all(&SOLO, data.buffer().first(n))?;
                    served += 1;
                }
                Err(Error::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(served)
}

#[test]
fn several_blocks_serve_hundreds_of_clients_of_one_group() {
    const CLIENTS: usize = 200;
    const ROUNDS: usize = 5;
    bounded(|| {
        for data_threads in [1, 3] {
            let world = World::with(Config { sockets: 512, data_threads, ..small() });
            let net = world.net();
            let options = TCP.with_rings(4096, 4096);
            let listener = Listener::bind_with(&SOLO, net, LOOPBACK, options, 1024).expect("a free port");
            let addr = listener.local_addr();
            let group = PollGroup::create(&SOLO, net, 0).expect("a group");
            group.add(&SOLO, listener.handle(), POLLIN, LISTENER).expect("added");
            let left = AtomicUsize::new(CLIENTS);
            std::thread::scope(|scope| {
                let blocks: Vec<_> =
                    (0..3).map(|_| scope.spawn(|| serve(net, group, listener, &left))).collect();
                let mut peers: Vec<_> = (0..CLIENTS).map(|_| client(addr)).collect();
                for round in 0..ROUNDS {
                    for (i, peer) in peers.iter_mut().enumerate() {
                        peer.write_all(&[i as u8, round as u8]).expect("sent");
                    }
                    for (i, peer) in peers.iter_mut().enumerate() {
                        let mut back = [0; 2];
                        peer.read_exact(&mut back).expect("an answer");
                        assert_eq!(back, [i as u8, round as u8]);
                    }
                }
                drop(peers);
                let served: usize = blocks.into_iter().map(|block| block.join().unwrap().unwrap()).sum();
                assert!(served >= CLIENTS * ROUNDS, "{served}");
            });
            group.close(&SOLO).expect("open");
            listener.close(&SOLO).expect("open");
            world.expect_all_free();
        }
    });
}

#[test]
fn a_groups_memory_comes_back_when_it_is_closed_and_when_its_launch_ends() {
    bounded(|| {
        let mut world = World::new();
        let group = PollGroup::create(&SOLO, world.net(), 0).expect("a group");
        let usage = world.attachment().usage();
        assert!(usage.free_ring_bytes < usage.ring_bytes && usage.sockets == 1);
        group.close(&SOLO).expect("open");
        assert_eq!(group.close(&SOLO), Err(Error::BadHandle));
        for policy in [FinishPolicy::Close, FinishPolicy::Reset] {
            let group = PollGroup::create(&SOLO, world.net(), 0).expect("a group");
            assert_eq!(world.relaunch(policy).left_open, 1);
            let found = PollGroup::from_handle(&SOLO, world.net(), group.handle());
            assert_eq!(found.err(), Some(Error::BadHandle));
        }
        world.expect_all_free();
    });
}

#[test]
fn what_a_launch_had_got_when_it_ended_is_the_next_ones() {
    bounded(|| {
        let mut world = World::new();
        let listener = listen(world.net(), TCP);
        let mut peer = client(listener.local_addr());
        let stream = listener.accept(&SOLO).expect("accepted").handle();
        let group = PollGroup::create(&SOLO, world.net(), 0).expect("a group");
        group.add(&SOLO, stream, POLLIN, 5).expect("added");
        peer.write_all(b"hello").expect("sent");
        let memory = [room(1), room(1)];
        let mut events = memory.each_ref().map(|memory| Events::new(memory.buffer()));
        assert_eq!(group.wait(&SOLO, &mut events[0], Timeout::NEVER), Ok(1));
        assert_eq!(world.relaunch(FinishPolicy::Keep).left_open, 3);
        let group = PollGroup::from_handle(&SOLO, world.net(), group.handle()).expect("kept");
        assert_eq!(group.wait(&SOLO, &mut events[1], Timeout::NEVER), Ok(1));
        assert_eq!((events[1].get(0).handle, events[1].get(0).token), (stream.raw(), 5));
        assert_eq!(world.relaunch(FinishPolicy::Keep).left_open, 0);
        group.close(&SOLO).expect("open");
        Stream::from_handle(&SOLO, world.net(), stream).expect("kept").close(&SOLO).expect("open");
        let kept = Listener::from_handle(&SOLO, world.net(), listener.handle()).expect("kept");
        kept.close(&SOLO).expect("open");
        drop(peer);
        world.expect_all_free();
    });
}

/// The host opens sockets, and kernels wait for them; the last of each slot does not keep the next
/// one out.
#[test]
fn sockets_that_the_host_opened_are_heard_like_all_others() {
    bounded(|| {
        let mut world = World::new();
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = world.attachment().listen_blocking(any, TCP, 8).expect("listening");
        let group = PollGroup::create(&SOLO, world.net(), 2).expect("a group");
        group.add(&SOLO, listener.handle(), POLLIN, LISTENER).expect("added");
        let memory = room(2);
        let mut events = Events::new(memory.buffer());
        for round in 0..3 {
            let group = PollGroup::from_handle(&SOLO, world.net(), group.handle()).expect("kept");
            assert_eq!(group.wait(&SOLO, &mut events, Timeout::NON_BLOCKING), Ok(0), "armed");
            let mut peer = TcpStream::connect(listener.local_addr()).expect("connected");
            assert_eq!(group.wait(&SOLO, &mut events, Timeout::NEVER), Ok(1));
            assert_eq!(events.get(0).token, LISTENER);
            let socket = listener.accept_blocking().expect("a connection");
            // The place of the last round's socket is free once the group has been told that it is
            // closed.
            loop {
                match group.add(&SOLO, socket.handle(), POLLIN, round) {
                    Ok(()) => break,
                    Err(Error::NoSpace) => assert_eq!(group.wait(&SOLO, &mut events, Timeout::ms(1)), Ok(0)),
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!(group.wait(&SOLO, &mut events, Timeout::NON_BLOCKING), Ok(0), "armed");
            peer.write_all(b"x").expect("sent");
            assert_eq!(group.wait(&SOLO, &mut events, Timeout::NEVER), Ok(1));
            assert_eq!((events.get(0).handle, events.get(0).token), (socket.handle().raw(), round));
            // The host closes it when no launch knows it any more.
            drop(socket);
            assert_eq!(world.relaunch(FinishPolicy::Keep).left_open, u64::from(round == 0) as usize);
        }
        // A group that is closed lets them go.
        let group = PollGroup::from_handle(&SOLO, world.net(), group.handle()).expect("kept");
        group.close(&SOLO).expect("open");
        let next = PollGroup::create(&SOLO, world.net(), 2).expect("a group");
        next.add(&SOLO, listener.handle(), POLLIN, LISTENER).expect("added");
        assert_eq!(next.wait(&SOLO, &mut events, Timeout::NON_BLOCKING), Ok(0), "armed");
        let _peer = TcpStream::connect(listener.local_addr()).expect("connected");
        assert_eq!(next.wait(&SOLO, &mut events, Timeout::NEVER), Ok(1));
        next.close(&SOLO).expect("open");
    });
}

/// The word in which the device says which group watches a socket.
fn watch(net: Net, slot: u32) -> Word {
    // SAFETY: the launch's context, which lives as long as the attachment.
    let context = unsafe { (net.raw() as *const Context).read_volatile() };
    let at = context.shared + context.shared_layout.watches + u64::from(slot) * 8;
    // SAFETY: one of the region's words.
    unsafe { Word::from_ptr(at as *mut u64) }
}

#[test]
fn watch_words_that_a_kernel_overwrites_harm_no_other_attachment() {
    bounded(|| {
        let (world, other) = {
            let world = World::new();
            let other = World::beside(&world);
            (world, other)
        };
        let echo = |world: &World| {
            let listener = listen(world.net(), TCP);
            let peer = client(listener.local_addr());
            let stream = listener.accept(&SOLO).expect("accepted").handle();
            let group = PollGroup::create(&SOLO, world.net(), 8).expect("a group");
            group.add(&SOLO, stream, POLLIN, 5).expect("added");
            (peer, stream, group)
        };
        let (mut ours, socket, group) = echo(&world);
        let (mut theirs, stream, theirs_group) = echo(&other);
        let (memory, data) = ([room(2), room(2)], Memory::new(1));
        let mut events = memory.each_ref().map(|memory| Events::new(memory.buffer()));
        let mut random = 1u64;
        for _ in 0..500 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Any group, and the right one with any arm.
            let own =
                (u64::from(group.handle().slot()) << 48) | (u64::from(group.handle().generation()) << 33);
            let word = watch(world.net(), socket.slot());
            word.publish(if random >> 63 == 0 { random } else { own | random >> 31 });
            ours.write_all(b"x").expect("sent");
            match group.wait(&SOLO, &mut events[0], Timeout::NON_BLOCKING) {
                Ok(_) | Err(Error::Protocol) => {}
                Err(error) => panic!("{error}"),
            }
            theirs.write_all(b"y").expect("sent");
            assert_eq!(theirs_group.wait(&SOLO, &mut events[1], Timeout::NEVER), Ok(1));
            let mut half = RecvHalf::from_handle(&SOLO, other.net(), stream).expect("open");
            assert_eq!(half.recv(&SOLO, data.buffer()), Ok(1));
        }
        for mut world in [world, other] {
            assert_eq!(world.relaunch(FinishPolicy::Reset).left_open, 3);
            world.expect_all_free();
        }
    });
}
