//! A kernel that writes where it must not: the socket it hits gets EPROTO, the others run on.

use crate::support::client::{client, read_all};
use crate::support::pair::connect;
use crate::support::raw::{ControlWords, consumed, context, landed, own_published, park_flags, published};
use crate::support::world::{Home, listen};
use crate::support::{Case, Memory, SOLO, World, bounded, small, until, with};
use gpunet_device::abi::Word;
use gpunet_device::abi::control::{Op, Request};
use gpunet_device::abi::position::{END, ERR};
use gpunet_device::{Error, Handle, Listener, Net, Options, Stream, Timeout, TransportKind};
use gpunet_posix as posix;
use gpunet_proxy::Config;
use gpunet_proxy::config::Lines;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);

/// A position before the ten bytes that were sent.
const GOES_BACK: u64 = 1;

/// What no word of a young stream can be: too far, gone back, given up by the device, nonsense.
const GARBAGE: [u64; 9] = [
    1 << 40,
    GOES_BACK,
    1 << 63,
    u64::MAX,
    0x4242_4242_4242_4242,
    END | 1,
    ERR | 10,
    END | ERR | 10,
    1 << 63 | END | 10,
];

/// A connection that has nothing to do with what happens to others.
struct Bystander {
    stream: Stream,
    peer: TcpStream,
    memory: Memory,
}

impl Bystander {
    fn new(listener: &Listener) -> Self {
        let peer = client(listener.local_addr());
        Self { stream: listener.accept(&SOLO).expect("accepted"), peer, memory: Memory::new(64) }
    }

    fn echo(&mut self) {
        self.peer.write_all(b"still here").expect("sent");
        assert_eq!(self.stream.recv_exact(&SOLO, self.memory.buffer().first(10)), Ok(10));
        self.stream.send_all(&SOLO, self.memory.buffer().first(10)).expect("room");
        let mut back = [0; 10];
        self.peer.read_exact(&mut back).expect("an answer");
        assert_eq!(&back, b"still here");
    }

    fn leave(self) {
        drop(self.peer);
        self.stream.close(&SOLO).expect("open");
    }
}

fn scribble_tcp(which: fn(Net, u32) -> Word) {
    let world = World::new();
    let net = world.net();
    let listener = listen(net, TCP);
    let mut bystander = Bystander::new(&listener);
    for garbage in GARBAGE {
        let mut peer = client(listener.local_addr());
        let mut victim = listener.accept(&SOLO).expect("accepted");
        // Ten bytes each way, so that 1 means "gone back".
        victim.send_all(&SOLO, b"ten bytes.").expect("room");
        peer.write_all(b"ten bytes.").expect("sent");
        let memory = Memory::new(10);
        assert_eq!(victim.recv_exact(&SOLO, memory.buffer()), Ok(10));
        assert_eq!(victim.try_recv(&SOLO, memory.buffer()), Err(Error::WouldBlock));
        peer.read_exact(&mut [0; 10]).expect("an answer");
        // The proxy is to have seen the true words before: an echo ends a turn at the earliest in
        // the turn that saw them, a second one in the next.
        bystander.echo();
        bystander.echo();
        which(net, victim.handle().slot()).publish(garbage);
        bystander.echo();
        assert_eq!(victim.recv(&SOLO, memory.buffer()), Err(Error::Protocol), "{garbage:#x}");
        // Its peer is not left in the dark until the kernel ends.
        let end = read_all(&mut peer).1.expect_err("no orderly end");
        assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{garbage:#x}");
        bystander.echo();
        assert_eq!(victim.close(&SOLO), Ok(()));
    }
    bystander.leave();
    listener.close(&SOLO).expect("open");
    world.expect_all_free();
}

#[test]
fn a_published_word_of_a_tcp_stream() {
    bounded(|| scribble_tcp(published));
}

#[test]
fn a_consumed_word_of_a_tcp_stream() {
    bounded(|| scribble_tcp(consumed));
}

/// The word that the proxy writes: the device does not believe it either.
#[test]
fn a_landed_word_of_a_tcp_stream() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), TCP);
        let mut bystander = Bystander::new(&listener);
        let _peer = client(listener.local_addr());
        let mut victim = listener.accept(&SOLO).expect("accepted");
        landed(world.net(), victim.handle().slot()).publish(1 << 40);
        let memory = Memory::new(10);
        assert_eq!(victim.recv(&SOLO, memory.buffer()), Err(Error::Protocol));
        bystander.echo();
        victim.close(&SOLO).expect("open");
        bystander.leave();
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
    });
}

#[test]
fn a_published_word_of_a_direct_stream() {
    bounded(|| {
        let world = World::with(Config { lines: Lines::On, ..small() });
        let net = world.net();
        let listener = listen(net, TCP);
        let mut bystander = Bystander::new(&listener);
        // Who takes a message from a line is ahead of the word, and one that goes back is to it one
        // that has not come yet.
        let with_lines = GARBAGE.into_iter().filter(|&word| word != GOES_BACK).map(|word| (word, true));
        for (garbage, has_lines) in GARBAGE.into_iter().map(|word| (word, false)).chain(with_lines) {
            let case = Case {
                transport: TransportKind::Peer,
                lanes: 1,
                placement: Default::default(),
                home: Home::Embedded,
                apart: false,
            };
            let memory = Memory::new(10);
            let server = |g: &_, mut stream: Stream| {
                assert_eq!(stream.recv_exact(g, memory.buffer())?, 10);
                // From here on nobody knows what the other end sends.
                let end = stream.recv(g, memory.buffer());
                stream.close(g)?;
                Ok(end)
            };
            let client = |g: &_, mut stream: Stream| {
                stream.send_all(g, b"ten bytes.")?;
                while stream.out_queue(g)? > 0 {}
                own_published(net, stream.handle().slot()).publish(garbage);
                Ok(stream.handle())
            };
            let options = case.rings(1 << 16).with_flag(Options::LINES, has_lines);
            let (end, handle) = case.pair(&world, options, server, client);
            // That one a sender may write: it has given up where it is.
            let gave_up = garbage == END | ERR | 10;
            let expected = if gave_up { Error::ConnectionReset } else { Error::Protocol };
            assert_eq!(end, Err(expected), "{garbage:#x}, lines: {has_lines}");
            bystander.echo();
            Stream::from_handle(&SOLO, net, handle).and_then(|s| s.close(&SOLO)).expect("open");
        }
        bystander.leave();
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
    });
}

#[test]
fn requests_made_of_garbage() {
    bounded(|| {
        let world = World::new();
        let net = world.net();
        let listener = listen(net, TCP);
        let mut bystander = Bystander::new(&listener);
        let (open, stream) = (listener.handle(), bystander.stream.handle());
        // The last control slot: groups look for a free one from the first on.
        let slot = ControlWords::new(net, context(net).controls - 1);
        let request = |op: Op, slot, generation| Request::new(op, slot, generation, 0);
        let mut wrong = Vec::new();
        for op in [Op::Bind, Op::Listen, Op::Connect, Op::Accept, Op::Close, Op::SetOptions, Op::Query] {
            for (slot, generation) in [(40, 17), (u32::MAX, 1), (64, 1), (40, 0), (40, u32::MAX)] {
                wrong.push(request(op, slot, generation));
            }
            wrong.push(request(op, open.slot(), open.generation() + 1));
            wrong.push(request(op, stream.slot(), stream.generation() + 1));
            wrong.push(with(request(op, stream.slot(), stream.generation()), |r| r.launch = 64));
        }
        let accept = request(Op::Accept, open.slot(), open.generation());
        wrong.push(with(accept, |r| (r.target, r.target_generation) = (stream.slot(), stream.generation())));
        wrong.push(with(accept, |r| (r.target, r.target_generation) = (u32::MAX, 3)));
        wrong.push(with(request(Op::Query, stream.slot(), stream.generation()), |r| r.value = 99));
        wrong.push(with(accept, |r| r.op = 0));
        wrong.push(with(accept, |r| r.op = u32::MAX));
        let mut seq = 1 << 50;
        for request in wrong {
            slot.post(seq, request);
            bystander.echo();
            assert_ne!(slot.answer(seq), 0, "{request:?}");
            // Back and forth: nothing is assumed of the numbers.
            seq = if seq % 2 == 0 { seq / 3 + 1 } else { seq.wrapping_mul(5) };
        }
        bystander.leave();
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn the_control_slot_of_a_waiting_accept() {
    bounded(|| {
        let world = World::new();
        let net = world.net();
        let listener = listen(net, TCP);
        let mut bystander = Bystander::new(&listener);
        let handle = listener.handle();
        let slots: Vec<_> =
            (0..context(net).controls).map(|index| ControlWords::new(net, index).request).collect();
        let before: Vec<u64> = slots.iter().map(|request| request.observe()).collect();
        let waiting = std::thread::spawn(move || {
            Listener::from_handle(&SOLO, net, handle).and_then(|l| l.accept(&SOLO)).map(|_| ())
        });
        until("it waits", || world.attachment().usage().requests == 1);
        // Nobody else asks for anything: it has the slot whose word has changed.
        let slot = slots.iter().zip(before).find(|(request, before)| request.observe() != *before);
        slot.expect("a request").0.publish(0x6161_6161_6161_6161);
        bystander.echo();
        assert_eq!(waiting.join().expect("no panic"), Err(Error::Protocol));
        world.expect_requests(0);
        // The listener itself is as good as before.
        let next = client(listener.local_addr());
        listener.accept(&SOLO).and_then(|stream| stream.close(&SOLO)).expect("accepted");
        drop(next);
        bystander.leave();
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

/// A request about a bound socket that is refused closes the socket, as one that fails does.
#[test]
fn a_refused_request_on_a_bound_socket_gives_its_slot_back() {
    bounded(|| {
        for op in [Op::Connect, Op::Listen] {
            let world = World::new();
            let net = world.net();
            let socket = posix::socket::socket(&SOLO, net, 2, posix::socket::SOCK_STREAM, 0).expect("a slot");
            let mut addr = [2, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
            // SAFETY: sixteen bytes of this stack.
            unsafe { posix::bind::bind(&SOLO, net, socket as i32, addr.as_mut_ptr(), 16) }.expect("a port");
            assert_eq!(world.attachment().usage().sockets, 1);
            let handle = Handle::from_raw(socket as i32).expect("a handle");
            // Of a launch that cannot be.
            let request = Request::new(op, handle.slot(), handle.generation(), 99);
            let control = ControlWords::new(net, context(net).controls - 1);
            control.post(1 << 20, request);
            assert_eq!(control.answer(1 << 20), Error::Protocol.errno() as u32);
            assert_eq!(world.attachment().usage().sockets, 0);
            let _ = posix::close::close(&SOLO, net, socket as i32);
            world.end();
        }
    });
}

/// A kernel that closes streams and claims any number of bytes: the proxy, which adds them up, goes
/// on.
#[test]
fn what_a_close_claims_to_have_sent() {
    bounded(|| {
        let world = World::new();
        let net = world.net();
        let listener = listen(net, TCP);
        let mut bystander = Bystander::new(&listener);
        let control = ControlWords::new(net, context(net).controls - 1);
        let options = Options::DEFAULT.with_transport(TransportKind::Peer);
        let mut numbers = 1 << 20..;
        for _ in 0..2 {
            let near = listen(net, options);
            let [client, server] = connect(net, &near, options);
            for end in [server.handle(), client.handle()] {
                let request = Request::new(Op::Close, end.slot(), end.generation(), 0);
                let at = numbers.next().expect("many");
                let claim = |r: &mut Request| (r.send_position, r.recv_position) = (u64::MAX, u64::MAX);
                control.post(at, with(request, claim));
                assert_eq!(control.answer(at), 0);
            }
            bystander.echo();
            near.close(&SOLO).expect("open");
        }
        assert_eq!(world.attachment().usage().sockets, 2);
        bystander.leave();
        listener.close(&SOLO).expect("open");
    });
}

/// Whoever sleeps until there is room, or data, is woken by the proxy, and need not wake by
/// himself.
#[test]
fn the_proxy_wakes_who_is_parked() {
    bounded(|| {
        let world = World::new();
        let net = world.net();
        let listener = listen(net, TCP);
        let mut peer = client(listener.local_addr());
        let mut stream = listener.accept(&SOLO).expect("accepted");
        let [send_park, recv_park] = park_flags(net, stream.handle().slot());
        // Nobody sleeps there: only the one that wakes takes the flag back.
        recv_park.store(1, Ordering::SeqCst);
        peer.write_all(b"x").expect("sent");
        until("the receiver is woken", || recv_park.load(Ordering::SeqCst) == 0);
        assert_eq!(stream.recv(&SOLO, Memory::new(1).buffer()), Ok(1));
        // More than ring and kernel hold.
        let memory = Memory::new(1 << 20);
        while stream.sender().send_timeout(&SOLO, memory.buffer(), Timeout::ms(300)).is_ok() {}
        send_park.store(1, Ordering::SeqCst);
        let reader = std::thread::spawn(move || read_all(&mut peer).0.len());
        until("the sender is woken", || send_park.load(Ordering::SeqCst) == 0);
        stream.close(&SOLO).expect("open");
        assert!(reader.join().expect("no panic") > 1 << 20);
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn a_kernel_that_floods_control_slots() {
    bounded(|| {
        // Groups look for a control slot from their socket's number on: the upper ones are spare.
        let world = World::with(Config { sockets: 8, ..small() });
        let net = world.net();
        let listener = listen(net, TCP);
        let mut bystander = Bystander::new(&listener);
        flooded(net, 8, || {
            for _ in 0..50 {
                bystander.echo();
                // Requests of others are answered meanwhile, too.
                listen(net, TCP).close(&SOLO).expect("open");
            }
        });
        bystander.leave();
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

/// Whose request is drowned gets no answer, but the call ends.
#[test]
fn a_request_in_a_flooded_control_slot() {
    bounded(|| {
        let world = World::with(Config { heartbeat: Duration::from_millis(500), ..small() });
        let net = world.net();
        let listener = listen(net, TCP);
        let mut bystander = Bystander::new(&listener);
        flooded(net, 0, || {
            for _ in 0..3 {
                bystander.echo();
                let drowned = listener.accept_timeout(&SOLO, Timeout::ms(1)).map(|_| ());
                assert!(drowned.is_err(), "{drowned:?}");
            }
        });
    });
}

/// Runs `body` while all control slots from `first` on are scribbled over again and again.
fn flooded(net: Net, first: u32, body: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let slots: Vec<ControlWords> =
                (first..context(net).controls).map(|index| ControlWords::new(net, index)).collect();
            let mut seq = 1 << 40;
            while !stop.load(Ordering::Relaxed) {
                seq += 1;
                slots.iter().for_each(|slot| slot.request.publish(seq));
                std::thread::yield_now();
            }
        });
        body();
        stop.store(true, Ordering::Relaxed);
    });
}
