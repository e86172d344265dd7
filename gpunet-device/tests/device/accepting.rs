//! Connections that the proxy accepts before a group asks; the test plays the proxy.

use crate::world::{LAUNCH, World};
use gpunet_device::abi::accept::{PREPARED, prepared_of};
use gpunet_device::abi::control::{Descriptor, Op, Reply, Request};
use gpunet_device::abi::entry::SlotState;
use gpunet_device::group::Solo;
use gpunet_device::poll::POLLIN;
use gpunet_device::{
    Error, Handle, Listener, Options, PollFd, PollSet, SockAddr, Stream, Timeout, TransportKind, poll,
};
use gpunet_posix as posix;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

const G: Solo = Solo::new(0, 1);
const ADDR: SockAddr = SockAddr::v4([10, 0, 0, 1], 99);

/// A listener in slot 1, and what the proxy has seen of the control slots.
struct Listening {
    world: World,
    listener: Listener,
    seen: [u64; 4],
}

impl Listening {
    fn new(slots: &[u32], options: Options) -> Self {
        let world = World::new();
        world.give_slots(slots);
        let (net, mut seen) = (world.net(), [0; 4]);
        let listener = std::thread::scope(|scope| {
            let bind = scope.spawn(move || Listener::bind_with(&G, net, ADDR, options, 1).unwrap());
            world.serve(&mut seen, |_| Some(Reply::new(0, 0)));
            bind.join().unwrap()
        });
        Self { world, listener, seen }
    }

    /// Answers requests while `call` runs and until each that it has posted was seen; returns them.
    fn serve<R: Send>(&mut self, call: impl FnOnce(Listener) -> R + Send) -> (R, Vec<Request>) {
        let (world, listener, seen) = (&self.world, self.listener, &mut self.seen);
        let mut requests = Vec::new();
        let mut answer_all = || {
            while let Some(posted) = world.request(seen) {
                let mut reply = Reply::new(0, 0);
                reply.descriptor = world.driven(posted.request.target % 64);
                world.reply(&posted, reply);
                requests.push(posted.request);
            }
        };
        let result = std::thread::scope(|scope| {
            let call = scope.spawn(move || call(listener));
            while !call.is_finished() {
                answer_all();
                std::thread::yield_now();
            }
            call.join().unwrap()
        });
        answer_all();
        (result, requests)
    }

    /// The proxy hands over the stream in that slot, the `count`th connection.
    fn hand_over(&self, slot: u32, count: u64) {
        self.world.describe(slot, self.world.driven(slot));
        self.world.accepted_ahead(self.listener.handle().slot()).publish(count);
    }

    fn is_readable(&self) -> bool {
        let mut fds = [PollFd { handle: self.listener.handle().raw(), events: POLLIN, revents: 0 }];
        // SAFETY: the entry outlives the call.
        let set = unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), 1) };
        poll(&G, self.world.net(), set, Timeout::NON_BLOCKING).unwrap();
        fds[0].revents == POLLIN
    }
}

fn slot_of(accepted: Result<Stream, Error>) -> Result<u32, Error> {
    accepted.map(|stream| stream.handle().slot())
}

/// The handles that a request names.
fn named(request: &Request) -> Vec<u32> {
    assert_eq!(request.op, Op::Prepare as u32);
    let handles = request.slots.iter().take_while(|&&raw| raw != 0);
    handles.map(|&raw| Handle::from_raw(raw).unwrap().slot()).collect()
}

#[test]
fn a_connection_that_was_accepted_ahead_is_taken_without_a_request() {
    let mut bench = Listening::new(&[1, 2, 3, 4, 5, 6, 7], Options::DEFAULT);
    assert_eq!(prepared_of(64), 2);
    // The first one is asked for. Then slots are prepared.
    let (first, requests) = bench.serve(|listener| slot_of(listener.accept(&G)));
    assert_eq!(first, Ok(2));
    let [accept, prepare] = requests[..] else { panic!("{requests:?}") };
    assert_eq!((accept.op, accept.value), (Op::Accept as u32, 0));
    assert_eq!((prepare.slot, prepare.value, named(&prepare)), (1, 0, vec![3, 4]));
    assert!(!bench.is_readable());
    // A slot that is prepared is no socket.
    assert_eq!(posix::close::close(&G, bench.world.net(), prepare.slots[0]), Err(Error::BadHandle));

    bench.hand_over(3, 1);
    assert!(bench.is_readable());
    let (taken, requests) = bench.serve(|listener| slot_of(listener.try_accept(&G)));
    assert_eq!(taken, Ok(3));
    assert_eq!((bench.world.taker(3).peek(), bench.world.taker(4).peek()), (u64::from(LAUNCH) + 1, 0));
    assert_eq!(bench.world.users(3).load(Ordering::SeqCst), 1 << LAUNCH);
    assert!(!bench.is_readable());
    // One of two was left, which is half: one more is prepared.
    let [prepare] = requests[..] else { panic!("{requests:?}") };
    assert_eq!((prepare.value, named(&prepare)), (2, vec![5]));

    // None is there: no request for nothing. And the connection that is asked for tells how many
    // were taken.
    let (nothing, requests) = bench.serve(|listener| slot_of(listener.try_accept(&G)));
    assert_eq!((nothing, requests.len()), (Err(Error::WouldBlock), 0));
    let (asked, requests) = bench.serve(|listener| slot_of(listener.accept(&G)));
    assert_eq!((asked, requests[0].value, requests.len()), (Ok(6), 1, 1));

    bench.hand_over(4, 2);
    bench.hand_over(5, 3);
    let (taken, _) = bench.serve(|listener| slot_of(listener.accept(&G)));
    assert_eq!(taken, Ok(4), "in order");
    let (closed, requests) = bench.serve(|listener| listener.close(&G));
    assert_eq!(closed, Ok(()));
    let close = requests.iter().find(|request| request.op == Op::Close as u32).unwrap();
    assert_eq!(close.recv_position, 2, "the third is the proxy's to close");
}

/// The queue has sixteen cells, and lies in the listener's own entry.
#[test]
fn cells_are_used_again_in_turn() {
    const CELLS: u64 = PREPARED as u64;
    let slots: Vec<u32> = (1..64).collect();
    let mut bench = Listening::new(&slots, Options::DEFAULT);
    let (_, mut requests) = bench.serve(|listener| slot_of(listener.accept(&G)).unwrap());
    let (mut expected, mut cells, mut reused) = (VecDeque::new(), [0; PREPARED], false);
    for count in 1..=2 * CELLS + 1 {
        for prepare in &requests[requests.len() - 1..] {
            for (position, raw) in (prepare.value..).zip(prepare.slots).take(named(prepare).len()) {
                reused |= position >= 2 * CELLS;
                cells[(position % CELLS) as usize] = raw;
                expected.push_back(Handle::from_raw(raw).unwrap().slot());
            }
        }
        assert_eq!(bench.world.prepared_cells(1), cells, "at connection {count}");
        let next = expected.pop_front().expect("one is prepared");
        bench.hand_over(next, count);
        let taken;
        (taken, requests) = bench.serve(|listener| slot_of(listener.try_accept(&G)));
        assert_eq!((taken, requests.len()), (Ok(next), 1));
    }
    assert!(reused, "all cells were used twice");
}

#[test]
fn a_slot_that_the_proxy_has_refused_is_passed_over() {
    let mut bench = Listening::new(&[1, 2, 3, 4, 5, 6], Options::DEFAULT);
    let (_, requests) = bench.serve(|listener| slot_of(listener.accept(&G)));
    assert_eq!(named(&requests[1]), [3, 4]);
    bench.world.describe(3, Descriptor::default());
    // The proxy gives the slot out again.
    bench.world.give_slot(3);
    bench.hand_over(4, 2);
    let (taken, requests) = bench.serve(|listener| slot_of(listener.accept(&G)));
    assert_eq!((taken, bench.world.users(3).load(Ordering::SeqCst)), (Ok(4), 0));
    // Nothing is left, so two more are prepared.
    assert_eq!((requests.last().unwrap().value, named(requests.last().unwrap())), (2, vec![5, 6]));
    bench.world.describe(5, Descriptor::default());
    bench.world.describe(6, Descriptor::default());
    bench.world.accepted_ahead(1).publish(4);
    let (nothing, requests) = bench.serve(|listener| slot_of(listener.try_accept(&G)));
    assert_eq!((nothing, requests.len()), (Err(Error::WouldBlock), 0));
    assert!(!bench.is_readable());
}

#[test]
fn an_accept_that_is_told_to_look_again_finds_what_was_accepted_ahead() {
    let mut bench = Listening::new(&[1, 2, 3, 4, 5], Options::DEFAULT);
    bench.serve(|listener| slot_of(listener.accept(&G)).unwrap());
    let (net, listener, world) = (bench.world.net(), bench.listener, &bench.world);
    let taken = std::thread::scope(|scope| {
        let accept = scope.spawn(move || {
            assert!(net.is_attached());
            slot_of(listener.accept(&G))
        });
        let posted = world.next_request(&mut bench.seen);
        assert_eq!((posted.request.op, posted.request.value), (Op::Accept as u32, 0));
        // The proxy had accepted one before it saw the request.
        world.describe(3, world.driven(3));
        world.accepted_ahead(1).publish(1);
        world.reply(&posted, Reply::new(Error::WouldBlock.errno() as u32, 0));
        accept.join().unwrap()
    });
    assert_eq!(taken, Ok(3));
}

/// A group that prepares slots does not come to an end for a second: the listener can be closed
/// later.
#[test]
fn a_close_that_fails_leaves_the_listener_open() {
    let mut bench = Listening::new(&[1, 2, 3, 4, 5], Options::DEFAULT);
    let lock = bench.world.prepare_lock(1);
    lock.store(bench.listener.handle().generation(), Ordering::SeqCst);
    let (closed, requests) = bench.serve(|listener| listener.close(&G));
    assert_eq!((closed, requests.len()), (Err(Error::TimedOut), 0));
    let (accepted, _) = bench.serve(|listener| slot_of(listener.accept(&G)));
    assert_eq!(accepted, Ok(2));
    bench.world.prepare_lock(1).store(0, Ordering::SeqCst);
    let (closed, requests) = bench.serve(|listener| listener.close(&G));
    assert_eq!((closed, requests[0].op), (Ok(()), Op::Close as u32));
    let (closed, requests) = bench.serve(|listener| listener.close(&G));
    assert_eq!((closed, requests.len()), (Err(Error::BadHandle), 0));
}

#[test]
fn what_the_proxy_has_closed_for_a_launch_is_passed_over() {
    let mut bench = Listening::new(&[1, 2, 3, 4, 5], Options::DEFAULT);
    let (_, requests) = bench.serve(|listener| slot_of(listener.accept(&G)));
    let first = Handle::from_raw(requests[1].slots[0]).unwrap();
    bench.hand_over(3, 1);
    bench.hand_over(4, 2);
    bench.world.set_state(3, SlotState::retired(first.generation()));
    let (taken, _) = bench.serve(|listener| slot_of(listener.try_accept(&G)));
    assert_eq!(taken, Ok(4));
    assert_eq!(bench.world.taker(3).peek(), 0);
}

#[test]
fn a_descriptor_of_another_place_is_refused() {
    let mut bench = Listening::new(&[1, 2, 3, 4, 5], Options::DEFAULT);
    bench.serve(|listener| slot_of(listener.accept(&G)).unwrap());
    bench.world.describe(3, Descriptor { transport: 1, ..Descriptor::default() });
    bench.world.accepted_ahead(1).publish(1);
    let (taken, _) = bench.serve(|listener| slot_of(listener.try_accept(&G)));
    assert_eq!(taken, Err(Error::Protocol));
}

#[test]
fn nothing_is_prepared_for_a_listener_that_peers_alone_reach_nor_without_slots() {
    let peer = Options::DEFAULT.with_transport(TransportKind::Peer);
    for (slots, options) in [(&[1, 2, 3, 4][..], peer), (&[1, 2], Options::DEFAULT)] {
        let mut bench = Listening::new(slots, options);
        let (accepted, requests) = bench.serve(|listener| slot_of(listener.accept(&G)));
        assert_eq!((accepted, requests.len()), (Ok(2), 1));
    }
}

/// Many groups accept, prepare and close at the same time; the proxy hands over what is prepared,
/// in order. Nobody takes a connection twice, and every prepared slot is known to the proxy.
#[test]
fn groups_share_a_queue_while_one_of_them_closes_it() {
    const GROUPS: u32 = 4;
    let slots: Vec<u32> = (1..60).collect();
    for takes in [0, 1, 5, 17] {
        let mut bench = Listening::new(&slots, Options::DEFAULT);
        bench.serve(|listener| slot_of(listener.accept(&G)).unwrap());
        let (net, listener) = (bench.world.net(), bench.listener);
        let world = &bench.world;
        let mut prepared = BTreeMap::from([(0, 3), (1, 4)]);
        let mut accepted = 0;
        let mut taken = Vec::new();
        // Nothing is prepared: no slot is left, or who accepted last found another group at it.
        let is_dry = &AtomicBool::new(false);
        let closed = std::thread::scope(|scope| {
            let groups: Vec<_> = (0..GROUPS)
                .map(|group| {
                    scope.spawn(move || {
                        let g = Solo::new(group, GROUPS);
                        let mut taken = Vec::new();
                        loop {
                            match slot_of(listener.try_accept(&g)) {
                                Ok(slot) => taken.push(slot),
                                Err(Error::WouldBlock) => std::thread::yield_now(),
                                Err(error) => break (taken, error),
                            }
                            if group == 0 && (taken.len() > takes || is_dry.load(Ordering::Relaxed)) {
                                assert!(net.is_attached());
                                break (
                                    taken,
                                    listener.close(&g).map_or_else(|error| error, |()| Error::BadHandle),
                                );
                            }
                        }
                    })
                })
                .collect();
            let mut closed = None;
            while closed.is_none() || groups.iter().any(|group| !group.is_finished()) {
                if let Some(posted) = world.request(&mut bench.seen) {
                    if posted.request.op == Op::Close as u32 {
                        closed = Some(posted.request.recv_position);
                    } else if closed.is_none() {
                        for (position, slot) in (posted.request.value..).zip(named(&posted.request)) {
                            assert!(position - accepted < PREPARED as u64);
                            assert_eq!(prepared.insert(position, slot), None);
                        }
                    }
                    world.reply(&posted, Reply::new(0, 0));
                } else if let (Some(&slot), None) = (prepared.get(&accepted), closed) {
                    accepted += 1;
                    world.describe(slot, world.driven(slot));
                    world.accepted_ahead(1).publish(accepted);
                } else {
                    is_dry.store(accepted == prepared.len() as u64, Ordering::Relaxed);
                    std::thread::yield_now();
                }
            }
            for group in groups {
                let (slots, error) = group.join().unwrap();
                assert_eq!(error, Error::BadHandle);
                taken.extend(slots);
            }
            closed
        });
        assert_eq!(closed, Some(taken.len() as u64));
        taken.sort_unstable();
        let mut expected: Vec<_> = prepared.into_values().take(taken.len()).collect();
        expected.sort_unstable();
        assert_eq!(taken, expected);
    }
}
