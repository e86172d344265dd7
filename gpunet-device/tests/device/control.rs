//! Requests to the proxy, which the test plays.

use crate::world::{CONTROLS, LAUNCH, World, buffer};
use gpunet_device::abi::control::{Descriptor, Op, Reply, Request};
use gpunet_device::abi::region::{RegionOffset, SHARED};
use gpunet_device::group::Solo;
use gpunet_device::{Error, Listener, Net, Options, SendHalf, SockAddr, Stream, Timeout};
use std::sync::atomic::{AtomicU32, Ordering};

const G: Solo = Solo::new(0, 1);
const ADDR: SockAddr = SockAddr::v4([10, 0, 0, 1], 99);

/// Runs `body` against a proxy that gives each request the next of `answers` and returns them all.
fn against<R: Send>(
    world: &World,
    answers: Vec<Option<Reply>>,
    body: impl FnOnce(Net) -> R + Send,
) -> (R, Vec<Request>) {
    let net = world.net();
    std::thread::scope(|scope| {
        let kernel = scope.spawn(move || body(net));
        let mut seen = [0; 4];
        let requests = answers.into_iter().map(|answer| world.serve(&mut seen, |_| answer)).collect();
        (kernel.join().unwrap(), requests)
    })
}

fn opened(descriptor: Descriptor) -> Option<Reply> {
    let mut reply = Reply::new(0, 0);
    reply.descriptor = descriptor;
    Some(reply)
}

fn failed(error: Error) -> Option<Reply> {
    Some(Reply::new(error.errno() as u32, 0))
}

#[test]
fn a_connect_opens_the_slot_that_it_named() {
    let world = World::new();
    world.give_slots(&[9, 4]);
    let (addr, requests) = against(&world, vec![opened(world.driven(9))], |net| {
        let mut stream = Stream::connect_with(&G, net, ADDR, Options::DEFAULT.with_linger_ms(5)).unwrap();
        stream.send_all(&G, b"hello").unwrap();
        let addr = stream.peer_addr();
        stream.close(&G).unwrap();
        addr
    });
    assert_eq!(addr.port, 2000);
    let [connect] = requests[..] else { panic!() };
    assert_eq!((connect.op, connect.slot, connect.generation, connect.launch), (Op::Connect as u32, 9, 1, 3));
    assert_eq!((connect.address, connect.options.linger_ms), (ADDR, 5));
    assert_eq!(world.users(9).load(Ordering::SeqCst), 1 << LAUNCH, "it is noted who took the slot");
    // The stream's data thread finds the close, and what was sent before it, without a request.
    assert_eq!((world.closed(9).observe(), world.published(9).observe()), (1, 5));
}

#[test]
fn a_failed_connect_leaves_its_slot_to_the_next() {
    let world = World::new();
    // The proxy gives slot 2 back at once.
    world.give_slots(&[2, 2]);
    let answers = vec![failed(Error::ConnectionRefused), opened(world.driven(2))];
    let (handles, requests) = against(&world, answers, |net| {
        assert_eq!(Stream::connect(&G, net, ADDR).err(), Some(Error::ConnectionRefused));
        let handle = Stream::connect(&G, net, ADDR).unwrap().handle();
        assert_eq!(Stream::connect(&G, net, ADDR).err(), Some(Error::TooManySockets));
        handle
    });
    assert_eq!((handles.slot(), handles.generation()), (2, 2));
    assert_eq!((requests[0].generation, requests[1].generation), (1, 2));
}

#[test]
fn a_descriptor_outside_the_regions_is_refused() {
    let world = World::new();
    world.give_slots(&[1, 2, 3]);
    let outside =
        Descriptor { recv_ring: RegionOffset::new(SHARED, world.layout.len - 4095), ..world.driven(1) };
    let nowhere = Descriptor { published: RegionOffset::new(7, 0), ..world.driven(2) };
    let odd = Descriptor { landed: RegionOffset::new(SHARED, 4), ..world.driven(3) };
    against(&world, vec![opened(outside), opened(nowhere), opened(odd)], |net| {
        for _ in 0..3 {
            assert_eq!(Stream::connect(&G, net, ADDR).err(), Some(Error::Protocol));
        }
    });
}

#[test]
fn a_wait_that_is_given_up_is_abandoned() {
    let world = World::new();
    world.give_slots(&[1, 2]);
    let (late, _) =
        against(&world, vec![None], |net| Stream::connect_timeout(&G, net, ADDR, Timeout::ms(5)).err());
    assert_eq!(late, Some(Error::TimedOut));
}

#[test]
fn accepts_name_a_fresh_slot() {
    let world = World::new();
    world.give_slots(&[1, 2, 3]);
    let mut bound = Reply::new(0, 0);
    bound.descriptor.local = SockAddr::v4([0; 4], 4242);
    // The listener's group prepares a slot, too; see `accepting`.
    let answers = vec![Some(bound), opened(world.driven(2)), Some(Reply::new(0, 0)), Some(Reply::new(0, 0))];
    let (port, requests) = against(&world, answers, |net| {
        let listener = Listener::bind(&G, net, ADDR).unwrap();
        assert_eq!(listener.try_accept(&G).err(), Some(Error::WouldBlock));
        let stream = listener.accept(&G).unwrap();
        assert_eq!(stream.handle().slot(), 2);
        let port = listener.local_addr().port;
        listener.close(&G).unwrap();
        assert_eq!(listener.accept(&G).err(), Some(Error::BadHandle));
        port
    });
    assert_eq!(port, 4242);
    assert_eq!((requests[1].slot, requests[1].target, requests[1].target_generation), (1, 2, 1));
}

/// Blocks that wait in accept while the proxy stands still for longer than the heartbeat: each call
/// returns ENETDOWN, and nothing is lost when the proxy resumes.
#[test]
fn a_proxy_that_stood_still_finds_requests_given_up_and_the_device_its_control_slots() {
    let world = World::with_heartbeat_timeout(50_000_000);
    world.give_slots(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let net = world.net();
    let mut seen = [0; 4];
    let mut bound = Reply::new(0, 0);
    bound.descriptor.local = ADDR;
    let listener = std::thread::scope(|scope| {
        let bind = scope.spawn(move || Listener::bind(&G, net, ADDR).unwrap());
        world.serve(&mut seen, |_| Some(bound));
        bind.join().unwrap()
    });
    // One control slot is kept for calls that do not wait.
    let waiting = CONTROLS - 1;
    let accepts: Vec<_> = std::thread::scope(|scope| {
        let accepts: Vec<_> = (0..waiting).map(|_| scope.spawn(|| listener.accept(&G).err())).collect();
        let posted = accepts.iter().map(|_| world.next_request(&mut seen)).collect();
        for accept in accepts {
            assert_eq!(accept.join().unwrap(), Some(Error::NetworkDown));
        }
        posted
    });
    // The proxy sees with its first scan what nobody waits for.
    assert!(accepts.iter().all(|posted| world.is_abandoned(posted)));
    // It resumes: one of them has got a connection after all, the others have not.
    let target = accepts[0].request.target;
    world.reply(&accepts[0], opened(world.driven(target)).unwrap());
    accepts[1..].iter().for_each(|posted| world.reply(posted, failed(Error::Canceled).unwrap()));

    // As many can wait again, and the connection that nobody has is closed.
    let (closed, requests) = std::thread::scope(|scope| {
        let beats = scope.spawn(|| {
            let mut requests = Vec::new();
            let mut closed = None;
            let mut beat = 10;
            while requests.len() < waiting as usize || closed.is_none() {
                beat += 1;
                world.heartbeat().publish(beat);
                let Some(posted) = world.request(&mut seen) else {
                    std::thread::yield_now();
                    continue;
                };
                if posted.request.op == Op::Close as u32 {
                    closed = Some(posted.request);
                    world.reply(&posted, Reply::new(0, 0));
                } else {
                    requests.push(posted);
                }
            }
            for posted in &requests {
                world.reply(posted, opened(world.driven(posted.request.target)).unwrap());
            }
            (closed, requests.len())
        });
        let again: Vec<_> = (0..waiting).map(|_| scope.spawn(|| listener.accept(&G).map(|_| ()))).collect();
        let result = beats.join().unwrap();
        again.into_iter().for_each(|accept| assert_eq!(accept.join().unwrap(), Ok(())));
        result
    });
    let closed = closed.expect("the late connection is closed");
    assert_eq!((closed.slot, closed.generation), (target, accepts[0].request.target_generation));
    assert_eq!(requests, waiting as usize);
}

/// A late success of a request that its group has left is closed even if nobody needs that control
/// slot for anything else than the next request.
#[test]
fn the_last_control_slot_is_adopted_too() {
    let world = World::with_heartbeat_timeout(50_000_000);
    world.give_slots(&[1, 2, 3, 4, 5, 6, 7]);
    let net = world.net();
    let mut seen = [0; 4];
    // All control slots have been left by connects.
    let posted: Vec<_> = std::thread::scope(|scope| {
        let connects: Vec<_> =
            (0..CONTROLS - 1).map(|_| scope.spawn(move || Stream::connect(&G, net, ADDR).err())).collect();
        let posted = connects.iter().map(|_| world.next_request(&mut seen)).collect();
        for connect in connects {
            assert_eq!(connect.join().unwrap(), Some(Error::NetworkDown));
        }
        posted
    });
    for late in &posted {
        world.reply(late, opened(world.driven(late.request.slot)).unwrap());
    }
    std::thread::scope(|scope| {
        let connect = scope.spawn(move || Stream::connect(&G, net, ADDR).map(|stream| stream.handle()));
        let mut beat = 10;
        let mut closed = Vec::new();
        loop {
            beat += 1;
            world.heartbeat().publish(beat);
            let Some(posted) = world.request(&mut seen) else {
                std::thread::yield_now();
                continue;
            };
            if posted.request.op == Op::Close as u32 {
                closed.push(posted.request.slot);
                world.reply(&posted, Reply::new(0, 0));
                continue;
            }
            world.reply(&posted, opened(world.driven(posted.request.slot)).unwrap());
            break;
        }
        assert!(connect.join().unwrap().is_ok());
        assert!(!closed.is_empty());
        assert!(closed.iter().all(|slot| posted.iter().any(|late| late.request.slot == *slot)));
    });
}

/// A connect waits for a control slot, and then for the answer: together no longer than it may.
#[test]
fn the_two_waits_of_a_connect_share_its_limit() {
    let world = World::new();
    world.give_slots(&[1, 2, 3, 4, 5, 6, 7]);
    let net = world.net();
    let mut seen = [0; 4];
    std::thread::scope(|scope| {
        // Three take all control slots that may wait.
        for _ in 0..CONTROLS - 1 {
            scope.spawn(move || Stream::connect(&G, net, ADDR).err());
        }
        let waiting: Vec<_> = (1..CONTROLS).map(|_| world.next_request(&mut seen)).collect();
        let late = scope.spawn(move || {
            let start = std::time::Instant::now();
            (Stream::connect_timeout(&G, net, ADDR, Timeout::secs(2)).err(), start.elapsed())
        });
        // The larger part of the limit, spent on the wait for a control slot.
        std::thread::sleep(std::time::Duration::from_millis(1500));
        world.reply(&waiting[0], failed(Error::ConnectionRefused).unwrap());
        let posted = world.next_request(&mut seen);
        while !world.is_abandoned(&posted) {
            std::thread::yield_now();
        }
        world.reply(&posted, failed(Error::Canceled).unwrap());
        let (error, waited) = late.join().unwrap();
        assert_eq!(error, Some(Error::TimedOut));
        // Not the limit once more.
        assert!(waited < std::time::Duration::from_millis(3400), "{waited:?}");
        waiting[1..].iter().for_each(|posted| world.reply(posted, failed(Error::ConnectionRefused).unwrap()));
    });
}

/// What the host has retired for a launch that has ended is dead for every kind of call.
#[test]
fn a_socket_that_the_host_retires_is_dead_for_every_call() {
    use gpunet_device::RecvHalf;
    use gpunet_device::abi::entry::SlotState;
    use gpunet_posix as posix;
    let world = World::new();
    let net = world.net();
    let handle = world.open_driven(3);
    // It is noted who used it.
    assert_eq!(world.users(3).load(Ordering::SeqCst), 0);
    let mut kept = Stream::from_handle(&G, net, handle).unwrap();
    assert_eq!(world.users(3).load(Ordering::SeqCst), 1 << LAUNCH);
    world.set_state(3, SlotState::retired(handle.generation()));
    let bad = Some(Error::BadHandle);
    assert_eq!(Stream::from_handle(&G, net, handle).err(), bad);
    assert_eq!(SendHalf::from_handle(&G, net, handle).err(), bad);
    assert_eq!(RecvHalf::from_handle(&G, net, handle).err(), bad);
    assert_eq!(kept.recv(&G, buffer(&mut [0; 4])).err(), bad);
    assert_eq!(kept.send(&G, buffer(&mut [0; 9000])), Ok(4096));
    assert_eq!(kept.send(&G, b"x").err(), bad, "the ring is full, so it looks");
    // SAFETY: bytes of this stack.
    let sent = unsafe { posix::send::send(&G, net, handle.raw(), b"x".as_ptr(), 1, 0) };
    assert_eq!(sent.err(), bad);
    let mut byte = 0u8;
    // SAFETY: as above.
    let received = unsafe { posix::recv::recv(&G, net, handle.raw(), &raw mut byte, 1, 0) };
    assert_eq!(received.err(), bad);
    assert_eq!(posix::close::close(&G, net, handle.raw()).err(), bad);
    assert_eq!(kept.close(&G).err(), bad);
}

/// A close that cannot be posted leaves the socket as it was.
#[test]
fn a_close_that_finds_no_proxy_can_be_made_again() {
    use gpunet_device::abi::layout::HEARTBEAT_DOWN;
    use gpunet_posix as posix;
    let world = World::new();
    world.give_slots(&[1]);
    let net = world.net();
    let socket = posix::socket::socket(&G, net, 2, posix::socket::SOCK_STREAM, 0).unwrap() as i32;
    world.heartbeat().publish(HEARTBEAT_DOWN);
    assert_eq!(posix::close::close(&G, net, socket).err(), Some(Error::NetworkDown));
    world.heartbeat().publish(2);
    let (closed, _) =
        against(&world, vec![Some(Reply::new(0, 0))], move |net| posix::close::close(&G, net, socket));
    assert_eq!(closed, Ok(0));
    assert_eq!(posix::close::close(&G, net, socket).err(), Some(Error::BadHandle));
}

#[test]
fn a_proxy_that_sleeps_is_rung_for_a_request_and_when_that_is_given_up() {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    let world = World::new();
    world.give_slots(&[1]);
    let (mut rung, doorbell) = std::os::unix::net::UnixStream::pair().unwrap();
    world.sleep_until(doorbell.as_raw_fd());
    let net = world.net();
    std::thread::scope(|scope| {
        let connect = scope.spawn(move || Stream::connect_timeout(&G, net, ADDR, Timeout::ms(5)).err());
        rung.read_exact(&mut [0; 8]).unwrap();
        let posted = world.next_request(&mut [0; 4]);
        rung.read_exact(&mut [0; 8]).unwrap();
        assert!(world.is_abandoned(&posted));
        world.reply(&posted, failed(Error::Canceled).unwrap());
        assert_eq!(connect.join().unwrap(), Some(Error::TimedOut));
    });
}

/// There are more groups than control slots.
#[test]
fn a_group_of_any_number_finds_a_control_slot() {
    let world = World::new();
    world.give_slots(&[1, 2]);
    let refused = [(); 2].map(|()| failed(Error::ConnectionRefused)).to_vec();
    let (errors, _) = against(&world, refused, |net| {
        [CONTROLS, 1000].map(|index| Stream::connect(&Solo::new(index, index + 1), net, ADDR).err())
    });
    assert_eq!(errors, [Some(Error::ConnectionRefused); 2]);
}

/// Groups of one launch that find a stream at the same moment note the launch, and neither takes
/// the note back.
#[test]
fn groups_that_begin_to_use_a_stream_together_are_noted() {
    const ROUNDS: u32 = 20_000;
    let world = World::new();
    let (net, handle) = (world.net(), world.open_driven(3));
    let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
    let find = || SendHalf::from_handle(&G, net, handle).unwrap();
    let wait_for = |rounds: &AtomicU32, round| {
        let mut spins = 0;
        while rounds.load(Ordering::Acquire) < round {
            spins += 1;
            // Both begin at once only where both run.
            if spins < 1000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                wait_for(&begun, round);
                find();
                ended.store(round, Ordering::Release);
            }
        });
        let lost = (1..=ROUNDS).find(|&round| {
            world.users(3).store(0, Ordering::SeqCst);
            begun.store(round, Ordering::Release);
            // The other thread is at another place of its call each time.
            (0..round % 32).for_each(|_| std::hint::spin_loop());
            find();
            wait_for(&ended, round);
            world.users(3).load(Ordering::SeqCst) != 1 << LAUNCH
        });
        // The other thread ends in any case.
        begun.store(ROUNDS, Ordering::Release);
        assert_eq!(lost, None, "a round after which the launch is not noted");
    });
}
