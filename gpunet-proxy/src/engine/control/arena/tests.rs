//! Arenas that were made for connects which were not accepted, and the requests to agents about
//! them.

use super::*;
use crate::engine::control::plane::{Plane, run};
use crate::model::agent::{FromAgent, ToAgent};
use crate::model::message::Message;
use gpunet_abi::control::{Op, Reply, Request};
use gpunet_abi::options::TransportKind;
use gpunet_abi::{Options, SockAddr};
use gpunet_core::ids::{AttachmentId, HostRequestId, RequestId};
use std::sync::mpsc;

const SERVER: AttachmentId = AttachmentId(0);
const CLIENT: AttachmentId = AttachmentId(1);
const PEER: Options = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(4096, 4096);

impl Plane {
    /// Has the server listen; returns the address.
    fn listen(&mut self) -> SockAddr {
        let mut bind = Request::new(Op::Bind, 0, 1, 0);
        (bind.flags, bind.backlog, bind.options) = (Request::LISTEN, 1, PEER);
        bind.address = SockAddr::v4([127, 0, 0, 1], 0);
        let bound = self.ask(SERVER, HostRequestId::new(0), bind).try_recv().expect("an answer at once");
        assert_eq!(bound.errno, 0);
        bound.descriptor.local
    }

    /// A connect of the client to the server's listener, which waits there; the arena for it is
    /// ready.
    async fn connect(&mut self, to: SockAddr) -> mpsc::Receiver<Reply> {
        let mut connect = Request::new(Op::Connect, 1, 1, 0);
        (connect.address, connect.options) = (to, PEER);
        let reply = self.ask(CLIENT, HostRequestId::new(0), connect);
        while self.states() != [ArenaState::Ready] {
            let message = self.inbox.recv().await;
            self.control.handle(message);
        }
        reply
    }

    /// Lets as much time pass as agents have, and does what is to be done then.
    async fn let_time_pass(&mut self) {
        tokio::time::sleep(TIMEOUT + Duration::from_millis(1)).await;
        while let Some(message) = self.inbox.try_recv() {
            self.control.handle(message);
        }
    }

    fn states(&self) -> Vec<ArenaState> {
        self.control.arenas.arenas.values().map(|arena| arena.state).collect()
    }
}

#[test]
fn pinned_memory_for_a_connect_that_nobody_accepts_is_taken_back() {
    taken_back(false);
}

#[test]
fn gpu_memory_for_a_connect_that_nobody_accepts_is_taken_back() {
    taken_back(true);
}

/// Once no connect waits for it.
fn taken_back(shareable: bool) {
    run(async {
        let mut plane = Plane::new();
        let [server, client] = [SERVER, CLIENT].map(|id| plane.attach(id, shareable));
        let listener = plane.listen();
        let reply = plane.connect(listener).await;
        // A GPU's memory is its owner's own.
        assert_eq!(client.usage().ring_memory >= 2 * FIRST_RINGS, !shareable);
        // Its connect waits for an accept without a limit.
        for _ in 0..3 {
            plane.let_time_pass().await;
        }
        assert_eq!(plane.states(), [ArenaState::Ready]);
        assert!(reply.try_recv().is_err());
        // It gives up. Another connect that arrives before the time has expired would find the
        // arena.
        plane
            .control
            .handle(Message::Abandon { attachment: CLIENT, id: RequestId::Host(HostRequestId::new(0)) });
        assert_ne!(reply.try_recv().expect("an answer at once").errno, 0);
        assert_eq!(plane.states(), [ArenaState::Ready]);
        plane.let_time_pass().await;
        assert_eq!(plane.states(), []);
        assert_eq!((client.usage().ring_memory, server.usage().ring_memory), (0, 0));
    });
}

/// How the client's agent answers the request to map an arena.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientMaps {
    Yes,
    No,
    /// It does not answer.
    Never,
}

#[test]
fn an_agent_is_asked_once_to_unmap_an_arena_that_the_other_could_not_map() {
    asked_once(ClientMaps::No);
}

#[test]
fn an_agent_is_asked_once_to_unmap_an_arena_that_the_other_did_not_map_in_time() {
    asked_once(ClientMaps::Never);
}

#[test]
fn an_agent_is_asked_once_to_unmap_an_arena_that_nobody_used() {
    asked_once(ClientMaps::Yes);
}

/// The server's agent does not answer before the client is gone.
fn asked_once(maps: ClientMaps) {
    run(async move {
        let mut plane = Plane::new();
        let [(server, _), (client, account)] = [SERVER, CLIENT].map(|id| plane.attach_passive(id));
        let listener = plane.listen();
        let mut connect = Request::new(Op::Connect, 1, 1, 0);
        (connect.address, connect.options) = (listener, PEER);
        let _reply = plane.ask(CLIENT, HostRequestId::new(0), connect);
        let arena = loop {
            if let Ok(ToAgent::Map(map)) = client.try_recv() {
                break map.arena;
            }
            let message = plane.inbox.recv().await;
            plane.control.handle(message);
        };
        let mut answer = |attachment, answer| plane.control.handle(Message::Agent { attachment, answer });
        assert!(matches!(server.try_recv(), Ok(ToAgent::Map(_))));
        answer(SERVER, FromAgent::Mapped { arena });
        match maps {
            ClientMaps::Yes => answer(CLIENT, FromAgent::Mapped { arena }),
            ClientMaps::No => answer(CLIENT, FromAgent::Failed { arena, reason: "no memory".into() }),
            ClientMaps::Never => {}
        }
        let request = HostRequestId::new(0);
        plane.control.handle(Message::Abandon { attachment: CLIENT, id: RequestId::Host(request) });
        plane.let_time_pass().await;
        assert_eq!(plane.states(), [ArenaState::Dead]);
        if maps != ClientMaps::Never {
            assert!(matches!(client.try_recv(), Ok(ToAgent::Unmap { .. })));
            let answer = FromAgent::Unmapped { arena };
            plane.control.handle(Message::Agent { attachment: CLIENT, answer });
            assert_eq!(plane.states(), [ArenaState::Dead]);
            // Given back once, whatever else ends.
            assert_eq!(account.usage().ring_memory, 0);
        }
        plane.control.forget_arenas(CLIENT, Some(&account));
        assert_eq!(account.usage().ring_memory, 0);
        assert!(matches!(server.try_recv(), Ok(ToAgent::Unmap { arena: asked }) if asked == arena));
        assert!(server.try_recv().is_err(), "asked twice");
        // The late answer frees the arena; it may come again.
        for _ in 0..2 {
            let answer = FromAgent::Unmapped { arena };
            plane.control.handle(Message::Agent { attachment: SERVER, answer });
            assert_eq!(plane.states(), []);
        }
    });
}
