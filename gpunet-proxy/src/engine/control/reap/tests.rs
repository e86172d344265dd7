//! Ends that take several turns.

use super::*;
use crate::engine::control::plane::{Plane, run};
use crate::engine::control::tables::slots::Slot;
use gpunet_abi::control::{Op, Request};
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::SHARED;
use gpunet_abi::{Options, SockAddr};
use gpunet_core::connection::Counts;
use gpunet_core::ids::{AttachmentId, HostRequestId};
use std::sync::mpsc;

const SOCKETS: u32 = 2 * SWEEP_BATCH as u32 + 20;
const PEER: Options = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(4096, 4096);
const MANY: AttachmentId = AttachmentId(1);
const OTHER: AttachmentId = AttachmentId(2);

/// An attachment with many bound sockets, and accepts that wait at one more, and another
/// attachment.
fn crowded() -> (Plane, Vec<mpsc::Receiver<gpunet_abi::control::Reply>>) {
    let mut plane = Plane::new();
    for id in [MANY, OTHER] {
        plane.attach(id, false);
    }
    let mut ask = |slot, control, request| (slot, plane.ask(MANY, HostRequestId::new(control), request));
    for slot in 0..SOCKETS {
        let mut bind = Request::new(Op::Bind, slot, 1, 0);
        (bind.address, bind.options) = (SockAddr::v4([127, 0, 0, 1], 0), PEER);
        bind.flags = if slot == 0 { Request::LISTEN } else { 0 };
        let (slot, bound) = ask(slot, 0, bind);
        assert_eq!(bound.try_recv().expect("an answer at once").errno, 0, "{slot}");
    }
    let accept = |n: u32| {
        let mut accept = Request::new(Op::Accept, 0, 1, 0);
        (accept.target, accept.target_generation) = (SOCKETS + n, 1);
        accept
    };
    let waiting = (0..SWEEP_BATCH as u32 + 20).map(|n| ask(0, 1 + n, accept(n)).1).collect();
    (plane, waiting)
}

/// Takes messages until the one that `is_last`; returns how many there were.
async fn until(plane: &mut Plane, mut is_last: impl FnMut(&mut Plane) -> bool) -> usize {
    let mut turns = 0;
    while !is_last(plane) {
        let message = plane.inbox.recv().await;
        plane.control.handle(message);
        turns += 1;
    }
    turns
}

#[test]
fn the_end_of_an_attachment_with_many_sockets_takes_several_turns() {
    for gone in [false, true] {
        run(async {
            let (mut plane, waiting) = crowded();
            let (done, ended) = mpsc::channel();
            let done: Done<()> = Box::new(move |()| done.send(()).expect("somebody listens"));
            let why = Error::NetworkDown;
            plane.control.handle(match gone {
                true => Message::Gone { attachment: MANY, done },
                false => Message::Detach { attachment: MANY, why, done },
            });
            assert!(plane.control.attachments.get(MANY).is_some(), "all at once");
            // It can no longer open sockets.
            let bind = Request::new(Op::Bind, SOCKETS + 1, 1, 0);
            let refused =
                plane.ask(MANY, HostRequestId::new(4000), bind).try_recv().expect("an answer at once");
            assert_eq!(refused.errno, why.errno() as u32);
            let turns = until(&mut plane, |plane| plane.control.attachments.get(MANY).is_none()).await;
            assert!(turns >= (SOCKETS as usize + waiting.len()) / SWEEP_BATCH);
            assert!(waiting.iter().all(|reply| reply.try_recv().is_ok()));
            assert!(plane.control.attachments.get(OTHER).is_some());
            while ended.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
        });
    }
}

#[test]
fn a_launch_with_many_sockets_is_finished_in_several_calls() {
    run(async {
        let (mut plane, waiting) = crowded();
        let (mut closed, mut calls) = (0, 0);
        loop {
            let finished = plane.at(MANY).finish_launch(LaunchId(0), FinishPolicy::Close, &[]);
            closed += finished.closed.len();
            calls += 1;
            if !finished.more {
                break;
            }
        }
        assert_eq!(closed, SOCKETS as usize);
        assert_eq!(calls, 1 + (SOCKETS as usize + waiting.len()) / SWEEP_BATCH);
        assert!(waiting.iter().all(|reply| reply.try_recv().is_ok()));
    });
}

#[test]
fn a_failed_launch_with_many_sockets_can_be_finished_at_once() {
    run(async {
        let (mut plane, waiting) = crowded();
        plane.control.handle(Message::AbortLaunch { attachment: MANY, launch: LaunchId(0) });
        let mut closed = Vec::new();
        loop {
            let finished = plane.at(MANY).finish_launch(LaunchId(0), FinishPolicy::Close, &[]);
            closed.extend(finished.closed);
            if !finished.more {
                break;
            }
        }
        assert_eq!(closed.len(), SOCKETS as usize);
        plane.control.handle(Message::Release { attachment: MANY, handles: closed });
        until(&mut plane, |plane| plane.inbox.is_empty()).await;
        assert_eq!(plane.at(MANY).slots.used().count(), 0);
        assert!(waiting.iter().all(|reply| reply.try_recv().is_ok()));
    });
}

#[test]
fn a_socket_that_is_opened_while_others_are_reset_stays() {
    run(async {
        let (mut plane, _waiting) = crowded();
        plane.control.handle(Message::ResetAll { attachment: MANY });
        // The sockets at the end have not had their turn. One is closed, and its slot is used
        // again.
        let last = SOCKETS - 1;
        assert_eq!(
            plane
                .ask(MANY, HostRequestId::new(0), Request::new(Op::Close, last, 1, 0))
                .try_recv()
                .unwrap()
                .errno,
            0
        );
        let mut bind = Request::new(Op::Bind, last, 2, 0);
        (bind.address, bind.options) = (SockAddr::v4([127, 0, 0, 1], 0), PEER);
        assert_eq!(plane.ask(MANY, HostRequestId::new(0), bind).try_recv().unwrap().errno, 0);
        until(&mut plane, |plane| plane.inbox.is_empty()).await;
        let left: Vec<u32> = plane.at(MANY).slots.used().collect();
        assert_eq!(left, [last]);
    });
}

#[test]
fn a_connection_that_comes_while_its_listener_is_swept_does_not_outlive_it() {
    const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(4096, 4096);
    const LISTENER: u32 = SWEEP_BATCH as u32 + 20;
    for end in [
        Message::AbortLaunch { attachment: MANY, launch: LaunchId(0) },
        Message::ResetAll { attachment: MANY },
    ] {
        run(async {
            let mut plane = Plane::new();
            plane.attach(MANY, false);
            let mut address = None;
            for slot in 0..=LISTENER {
                let mut bind = Request::new(Op::Bind, slot, 1, 0);
                (bind.address, bind.options) = (SockAddr::v4([127, 0, 0, 1], 0), TCP);
                (bind.flags, bind.backlog) = (if slot == LISTENER { Request::LISTEN } else { 0 }, 8);
                let bound =
                    plane.ask(MANY, HostRequestId::new(0), bind).try_recv().expect("an answer at once");
                assert_eq!(bound.errno, 0, "{slot}");
                address = bound.descriptor.local.to_std();
            }
            let mut prepare = Request::new(Op::Prepare, LISTENER, 1, 0);
            prepare.slots[..2].copy_from_slice(&[1, 2].map(|at| Handle::new(LISTENER + at, 1).raw()));
            assert_eq!(plane.ask(MANY, HostRequestId::new(0), prepare).try_recv().unwrap().errno, 0);
            let connect = |plane: &mut Plane| {
                let client = std::net::TcpStream::connect(address.expect("bound")).expect("it listens");
                let socket = SocketId { slot: LISTENER, generation: 1 };
                plane.control.handle(Message::ListenerReady { attachment: MANY, socket });
                client
            };
            let is_open = |plane: &mut Plane| {
                let is_open =
                    |entry: &Slot| matches!(entry.role, Role::Stream(StreamEntry { closed: false, .. }));
                plane.at(MANY).slots.iter().filter(|(_, entry)| is_open(entry)).count()
            };
            let _first = connect(&mut plane);
            assert_eq!(is_open(&mut plane), 1, "accepted ahead");
            plane.control.handle(end);
            assert!(plane.at(MANY).slots.listener(LISTENER).is_some(), "it has not had its turn");
            let _second = connect(&mut plane);
            until(&mut plane, |plane| plane.at(MANY).slots.listener(LISTENER).is_none()).await;
            until(&mut plane, |plane| plane.inbox.is_empty()).await;
            assert_eq!(is_open(&mut plane), 0, "nobody would close it");
        });
    }
}

/// A plane with streams in slots 0 to 4 of two attachments each, and their threads' counts.
async fn with_streams() -> Plane {
    let mut plane = Plane::new();
    for id in [MANY, OTHER] {
        plane.attach(id, false);
        for slot in 0..5 {
            let mut rings = None;
            until(&mut plane, |plane| {
                rings = plane.at(id).take_rings(SHARED, 12, 12);
                rings.is_some()
            })
            .await;
            let client = 1000 * id.0 as u16 + slot as u16;
            let addrs = (([127, 0, 0, 1], 80).into(), ([127, 0, 0, 1], client).into());
            let thread = plane.control.threads.assign(TransportKind::Tcp, addrs);
            let entry = &mut plane.at(id).slots[slot];
            entry.generation = 1;
            entry.role = Role::Stream(StreamEntry {
                memory: StreamMemory::Own(rings.expect("taken")),
                linger_ms: 0,
                closed: false,
                thread: Some(thread),
                partner: None,
                final_positions: None,
                addrs,
                transport: TransportKind::Tcp,
            });
        }
    }
    assert_eq!((plane.control.threads.open(), plane.control.threads.singles()), (&[4, 3, 3][..], 10));
    plane
}

fn finished(attachment: AttachmentId, slot: u32, generation: u32) -> Message {
    let socket = SocketId { slot, generation };
    Message::Finished { attachment, socket, undelivered: 0, counts: Counts::default() }
}

#[test]
fn a_stream_that_has_ended_no_longer_counts_on_its_thread() {
    run(async {
        let mut plane = with_streams().await;
        // One that is only closed does.
        plane.at(MANY).close_stream(3, None);
        assert_eq!(plane.control.threads.open(), [4, 3, 3]);
        // Slots 0 and 3 are on thread 0. Each counts once, and an earlier stream of the slot not at
        // all.
        for (slot, generation) in [(0, 9), (0, 1), (0, 1), (3, 1)] {
            plane.control.handle(finished(MANY, slot, generation));
        }
        assert_eq!(plane.control.threads.open(), [2, 3, 3]);
        for (attachment, slots) in [(MANY, [1, 2, 4].iter()), (OTHER, [0, 1, 2, 3, 4].iter())] {
            slots.for_each(|&slot| plane.control.handle(finished(attachment, slot, 1)));
        }
        assert_eq!(plane.control.threads.open(), [0, 0, 0]);
        assert_eq!(plane.control.threads.singles(), 0);
    });
}

#[test]
fn a_reset_or_retired_stream_counts_until_its_thread_is_done_with_it() {
    run(async {
        let mut plane = with_streams().await;
        plane.control.handle(Message::ResetAll { attachment: MANY });
        let launch = LaunchId(0);
        for slot in 0..5 {
            plane.at(OTHER).slots[slot].launch = Some(launch);
        }
        let left = plane.at(OTHER).finish_launch(launch, FinishPolicy::Reset, &[]).closed;
        until(&mut plane, |plane| plane.inbox.is_empty()).await;
        assert_eq!((left.len(), plane.control.threads.open()), (5, &[4, 3, 3][..]));
        for attachment in [MANY, OTHER] {
            (0..5).for_each(|slot| plane.control.handle(finished(attachment, slot, 1)));
        }
        assert_eq!(plane.control.threads.open(), [0, 0, 0]);
        // The release of what is retired changes nothing.
        plane.control.handle(Message::Release { attachment: OTHER, handles: left });
        assert_eq!(plane.control.threads.open(), [0, 0, 0]);
        assert_eq!(plane.control.threads.singles(), 0);
    });
}

#[test]
fn the_streams_of_an_attachment_that_is_forgotten_no_longer_count() {
    for gone in [false, true] {
        run(async {
            let mut plane = with_streams().await;
            let done: Done<()> = Box::new(|()| {});
            plane.control.handle(match gone {
                true => Message::Gone { attachment: MANY, done },
                false => Message::Detach { attachment: MANY, why: Error::NetworkDown, done },
            });
            // One ends by itself; the end of the others is not reported.
            plane.control.handle(finished(MANY, 0, 1));
            until(&mut plane, |plane| plane.control.attachments.get(MANY).is_none()).await;
            assert_eq!(plane.control.threads.open(), [2, 1, 2]);
            plane.control.handle(finished(MANY, 1, 1));
            assert_eq!(plane.control.threads.open(), [2, 1, 2]);
            assert_eq!(plane.control.threads.singles(), 5);
        });
    }
}

/// Closes come by words, and launches end by messages: a launch has not left what its kernel has
/// closed, although the data thread has not found the close yet.
#[test]
fn a_stream_that_a_kernel_has_closed_is_not_left_by_its_launch() {
    const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(4096, 4096);
    let (listener, launch, slots) = (1, LaunchId(3), [10, 11]);
    run(async {
        let mut plane = Plane::new();
        plane.attach(MANY, false);
        let mut bind = Request::new(Op::Bind, listener, 1, 0);
        (bind.address, bind.options) = (SockAddr::v4([127, 0, 0, 1], 0), TCP);
        (bind.flags, bind.backlog) = (Request::LISTEN, 8);
        let bound = plane.ask(MANY, HostRequestId::new(0), bind).try_recv().expect("an answer at once");
        let address = bound.descriptor.local.to_std().expect("bound");
        let mut clients = Vec::new();
        for slot in slots {
            clients.push(std::net::TcpStream::connect(address).expect("it listens"));
            let mut accept = Request::new(Op::Accept, listener, 1, launch.0);
            (accept.target, accept.target_generation, accept.value) = (slot, 1, Request::UNCOUNTED);
            let accepted = plane.ask(MANY, HostRequestId::new(slot), accept);
            let socket = SocketId { slot: listener, generation: 1 };
            plane.control.handle(Message::ListenerReady { attachment: MANY, socket });
            assert_eq!(accepted.try_recv().expect("a connection waits").errno, 0);
        }
        let memory = plane.at(MANY).state.memory.clone();
        memory.closed_words().get(10).publish(1);
        // Of the socket that had the slot before.
        memory.closed_words().get(11).publish(2);
        let finished = plane.at(MANY).finish_launch(launch, FinishPolicy::Close, &[]);
        assert_eq!(finished.closed, [Handle::new(11, 1)]);
        assert!(!plane.at(MANY).slots[10].retiring && plane.at(MANY).slots[11].retiring);
    });
}
