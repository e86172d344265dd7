//! Streams between two programs: one lies, fails or leaves, and the other goes on.

use crate::raw::{AgentAnswer, Raw, ToDaemon, bytes};
use crate::support::daemon::Served;
use crate::support::pair::connect;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, bounded, small};
use gpunet_device::group::{Alone, Lane};
use gpunet_device::{Error, Group, Options, SendHalf, SockAddr, Stream, TransportKind};
use std::cell::Cell;
use std::sync::mpsc;

const PEER: Options = Options::DEFAULT.with_transport(TransportKind::Peer);

fn exchange(from: &mut Stream, to: &mut Stream, seed: u64) {
    let (sent, got) = (Memory::filled(seed, 0, 3000), Memory::new(3000));
    from.send_all(&SOLO, sent.buffer()).expect("sent");
    assert_eq!(to.recv_exact(&SOLO, got.buffer()), Ok(3000));
    assert!(got.holds(0, 3000, seed, 0));
}

/// Has a client connect over peer and its agent answer what it likes to the request to map the
/// arena.
fn lie(served: &Served, to: SockAddr, answer: impl Fn(&Raw, u32)) {
    let raw = Raw::attached(&served.path);
    raw.connect_peer(to);
    let (what, arena) = raw.asked().expect("a request");
    assert_eq!(what, 1, "to map");
    answer(&raw, arena);
}

#[test]
fn an_agent_that_fails_or_lies_ends_nobody_else() {
    bounded(|| {
        let served = Served::new(small());
        let [here, there] = [0, 1].map(|_| served.attached());
        let (one, other) = (here.token().expect("a number"), there.token().expect("a number"));
        let listener = listen(one.net(), PEER);
        let to = listener.local_addr();
        let detach = bytes(&ToDaemon::Detach);
        let failed = |arena| AgentAnswer::Failed { arena, reason: "ulimit -v".to_owned() };
        for _ in 0..5 {
            lie(&served, to, |raw, arena| {
                raw.answer(failed(arena));
                raw.send(&detach);
                raw.expect_closed();
            });
            lie(&served, to, |raw, arena| raw.answer(failed(arena)));
            lie(&served, to, |raw, arena| {
                raw.answer(failed(arena));
                assert_eq!(raw.asked(), Some((3, arena)), "to unmap");
                raw.answer(AgentAnswer::Unmapped { arena });
                raw.send(&detach);
                raw.expect_closed();
            });
            lie(&served, to, |raw, arena| {
                raw.answer(AgentAnswer::Mapped { arena });
                raw.send(&detach);
            });
            // Those that answer what they were not asked are cut.
            lie(&served, to, |raw, arena| {
                raw.answer(AgentAnswer::Mapped { arena });
                raw.answer(AgentAnswer::Mapped { arena });
                raw.expect_closed();
            });
            lie(&served, to, |raw, arena| {
                raw.answer(AgentAnswer::Unmapped { arena });
                raw.expect_closed();
            });
            lie(&served, to, |_, _| {});
        }
        served.expect_clients(2);
        // All answers of the listener's agent have come before this one.
        let [mut client, mut server] = connect(other.net(), &listener, PEER);
        exchange(&mut client, &mut server, 5);
        exchange(&mut server, &mut client, 6);
        served.expect_clients(2);
    });
}

/// A thread that stops where a group of several lanes would meet, the second time.
struct Stopping {
    meetings: Cell<u32>,
    stopped: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

impl Group for Stopping {
    type Warp = gpunet_device::group::Solo;
    type Thread = gpunet_device::group::Solo;
    type Front = Alone;

    fn rank(&self) -> u32 {
        0
    }
    fn size(&self) -> u32 {
        1
    }
    fn index(&self) -> u32 {
        0
    }
    fn count(&self) -> u32 {
        1
    }
    fn sync(&self) {
        self.meetings.set(self.meetings.get() + 1);
        if self.meetings.get() == 2 {
            self.stopped.send(()).expect("somebody listens");
            self.go_on.recv().expect("somebody says so");
        }
    }
    fn broadcast(&self, value: u64) -> u64 {
        value
    }
    fn sum(&self, value: u32) -> u32 {
        value
    }
    fn has_front(&self, _: Lane) -> bool {
        true
    }
    fn front(&self, _: Lane) -> Option<Alone> {
        Some(Alone)
    }
    fn warp(&self) -> Self::Warp {
        SOLO
    }
    fn thread(&self) -> Self::Thread {
        SOLO
    }
}

/// The sender has copied and is about to publish when another thread closes the stream, and the
/// peer leaves.
#[test]
fn a_late_store_does_not_reach_the_next_client() {
    bounded(|| {
        let served = Served::new(small());
        let here = served.attached();
        let token = here.token().expect("a number");
        let net = token.net();
        let listener = listen(net, PEER);
        // Where every peer's arena lies that comes and goes alone.
        for round in 0..3 {
            let there = served.attached();
            let other = there.token().expect("a number");
            let [client, server] = connect(other.net(), &listener, PEER);
            let handle = server.handle();
            let ((stopped, has_stopped), (proceed, go_on)) = (mpsc::channel(), mpsc::channel());
            std::thread::scope(|scope| {
                let late = scope.spawn(move || {
                    let mut send = SendHalf::from_handle(&SOLO, net, handle).expect("open");
                    let message = Memory::filled(9, 0, 64);
                    send.send(&Stopping { meetings: Cell::new(0), stopped, go_on }, message.buffer())
                });
                has_stopped.recv().expect("it has copied");
                server.close(&SOLO).expect("open");
                client.close(&SOLO).expect("open");
                drop(other);
                assert_eq!(there.close().undelivered, 0);
                served.expect_clients(1);
                // The next client's arena is mapped after that of the first is unmapped: one thread
                // does both.
                let next = served.attached();
                let token = next.token().expect("a number");
                let [mut client, mut server] = connect(token.net(), &listener, PEER);
                proceed.send(()).expect("it waits");
                assert_eq!(late.join().expect("no panic"), Ok(64), "{round}");
                let room = Memory::new(64);
                assert_eq!(client.try_recv(&SOLO, room.buffer()), Err(Error::WouldBlock));
                exchange(&mut server, &mut client, 7);
                exchange(&mut client, &mut server, 8);
                server.close(&SOLO).expect("open");
                client.close(&SOLO).expect("open");
            });
            served.expect_clients(1);
        }
    });
}
