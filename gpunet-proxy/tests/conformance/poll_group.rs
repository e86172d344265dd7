//! Waiting for the sockets of a poll group.

use crate::support::asleep::Tid;
use crate::support::world::listen;
use crate::support::{Case, Memory, Team, World, team};
use gpunet_device::group::Solo;
use gpunet_device::poll::{POLLHUP, POLLIN, POLLOUT};
use gpunet_device::poll_group::{Event, Events};
use gpunet_device::{Error, Group, PollGroup, Shutdown, Stream, Timeout};
use std::sync::{OnceLock, mpsc};

/// A time that is over soon, in nanoseconds.
const SOON: Timeout = Timeout::ms(2);

/// Memory of so many events.
fn room(events: usize) -> Memory {
    Memory::new(8 + events * size_of::<Event>())
}

/// What is in the only event of a wait: its token and what was found.
fn only(events: &Events) -> (u64, i16) {
    assert_eq!(events.len(), 1);
    (events.get(0).token, events.get(0).revents)
}

pub fn a_group_delivers_a_listener_while_a_connection_waits(case: &Case) {
    let world = World::of(case);
    let (net, there) = (world.net(), world.there());
    let options = case.options();
    let listener = listen(net, options);
    let addr = listener.local_addr();
    let memory = room(3);
    let (waits, waiter) = mpsc::channel::<Tid>();
    let client = std::thread::spawn(move || {
        let solo = Solo::new(0, 1);
        waiter.recv().expect("a group").until_asleep();
        Stream::connect_with(&solo, there, addr, options).and_then(|stream| stream.close(&solo))
    });
    let result = team(case.lanes, |g| {
        let group = PollGroup::create(g, net, 4)?;
        let mut events = Events::new(memory.buffer());
        assert_eq!(group.wait(g, &mut events, Timeout::NON_BLOCKING), Ok(0), "an empty group");
        group.add(g, listener.handle(), POLLIN, 77)?;
        assert_eq!(group.add(g, listener.handle(), POLLIN, 78), Err(Error::AlreadyExists));
        if g.is_leader() {
            waits.clone().send(Tid::current()).expect("a client");
        }
        while group.wait(g, &mut events, SOON)? == 0 {}
        assert_eq!(only(&events), (77, POLLIN));
        let stream = listener.try_accept(g)?;
        stream.close(g)?;
        assert_eq!(group.wait(g, &mut events, Timeout::NON_BLOCKING), Ok(0), "nobody else has come");
        group.remove(g, listener.handle())?;
        assert_eq!(group.remove(g, listener.handle()), Err(Error::NotFound));
        group.close(g)?;
        assert_eq!(group.wait(g, &mut events, Timeout::NON_BLOCKING), Err(Error::BadHandle));
        listener.close(g)
    });
    assert_eq!(result, Ok(()));
    assert_eq!(client.join().expect("no panic"), Ok(()));
    world.end();
}

pub fn a_group_delivers_a_stream_until_nothing_is_left(case: &Case) {
    let world = World::of(case);
    let net = world.net();
    let (data, memory) = (Memory::new(8), room(2));
    let server = |g: &Team, mut stream: Stream| {
        let group = PollGroup::create(g, net, 0)?;
        let mut events = Events::new(memory.buffer());
        group.add(g, stream.handle(), POLLIN, 5)?;
        assert_eq!(group.wait(g, &mut events, Timeout::NEVER), Ok(1));
        assert_eq!(only(&events), (5, POLLIN));
        assert_eq!(stream.recv(g, data.buffer().first(3))?, 3);
        // The rest is still there, also for whoever asks without waiting.
        assert_eq!(group.wait(g, &mut events, Timeout::NON_BLOCKING), Ok(1));
        assert_eq!(stream.recv_exact(g, data.buffer().first(2))?, 2);
        assert_eq!(group.wait(g, &mut events, SOON), Ok(0), "nothing more was sent");
        group.modify(g, stream.handle(), POLLIN | POLLOUT, 6)?;
        assert_eq!(group.wait(g, &mut events, Timeout::NEVER), Ok(1));
        assert_eq!(only(&events), (6, POLLOUT));
        group.modify(g, stream.handle(), POLLIN, 7)?;
        assert_eq!(group.wait(g, &mut events, SOON), Ok(0), "space was not asked for");
        stream.send_all(g, b"!")?;
        assert_eq!(group.wait(g, &mut events, Timeout::NEVER), Ok(1));
        assert_eq!((only(&events), stream.recv(g, data.buffer())?), ((7, POLLIN), 0));
        stream.shutdown(g, Shutdown::Write);
        group.modify(g, stream.handle(), 0, 8)?;
        assert_eq!(group.wait(g, &mut events, Timeout::NEVER), Ok(1));
        assert_eq!(only(&events), (8, POLLHUP), "a hang-up is told unasked");
        // A closed socket is in no group.
        stream.close(g)?;
        assert_eq!(group.wait(g, &mut events, SOON), Ok(0));
        group.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        let answer = data.buffer().slice(7, 1);
        stream.send_all(g, b"hello")?;
        assert_eq!(stream.recv_exact(g, answer)?, 1);
        stream.shutdown(g, Shutdown::Write);
        assert_eq!(stream.recv(g, answer)?, 0);
        stream.close(g)
    };
    case.pair(&world, case.options(), server, client);
    world.end();
}

pub fn a_sleeping_group_is_woken(case: &Case) {
    let world = World::of(case);
    let net = world.net();
    let (data, memory) = (Memory::new(2), room(4));
    let (rounds, sleeper) = (case.scaled(16), OnceLock::new());
    let server = |g: &Team, mut stream: Stream| {
        if g.is_leader() {
            sleeper.get_or_init(Tid::current);
        }
        let group = PollGroup::create(g, net, 10)?;
        let mut events = Events::new(memory.buffer());
        group.add(g, stream.handle(), POLLIN, 1)?;
        for _ in 0..rounds {
            assert_eq!(group.wait(g, &mut events, Timeout::NEVER)?, 1);
            assert_eq!(stream.try_recv(g, data.buffer().first(1))?, 1);
            stream.send_all(g, b"x")?;
        }
        group.close(g)?;
        stream.close(g)
    };
    let client = |g: &Team, mut stream: Stream| {
        for _ in 0..rounds {
            if g.is_leader() {
                sleeper.wait().until_asleep();
            }
            stream.send_all(g, b"x")?;
            assert_eq!(stream.recv_exact(g, data.buffer().skip(1))?, 1);
        }
        stream.close(g)
    };
    case.pair(&world, case.options(), server, client);
    world.end();
}

pub fn a_group_that_is_closed_ends_its_waits(case: &Case) {
    let world = World::of(case);
    let net = world.net();
    let (memory, made) = (room(1), OnceLock::new());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            team(case.lanes, |g| {
                let group = PollGroup::create(g, net, 1)?;
                if g.is_leader() {
                    made.get_or_init(|| (group.handle(), Tid::current()));
                }
                group.wait(g, &mut Events::new(memory.buffer()), Timeout::NEVER)
            })
        });
        let &(handle, sleeper) = made.wait();
        sleeper.until_asleep();
        let solo = Solo::new(0, 1);
        let group = PollGroup::from_handle(&solo, net, handle).expect("open");
        group.close(&solo).expect("closed once");
        assert_eq!(waiter.join().expect("no panic"), Err(Error::BadHandle));
    });
    world.end();
}
