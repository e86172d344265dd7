//! Arenas that were made for connects which nobody has accepted.

use super::*;
use crate::control::plane::{Plane, run};
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
    /// A connect of the client to the server's listener, which waits there; the arena for it is ready.
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

/// Once nobody waits for it.
fn taken_back(shareable: bool) {
    run(async {
        let mut plane = Plane::new();
        let [server, client] = [SERVER, CLIENT].map(|id| plane.attach(id, shareable));
        let mut bind = Request::new(Op::Bind, 0, 1, 0);
        (bind.flags, bind.backlog, bind.options) = (Request::LISTEN, 1, PEER);
        bind.address = SockAddr::v4([127, 0, 0, 1], 0);
        let bound = plane.ask(SERVER, HostRequestId::new(0), bind).try_recv().expect("an answer at once");
        assert_eq!(bound.errno, 0);
        let reply = plane.connect(bound.descriptor.local).await;
        // A GPU's memory is its owner's own.
        assert_eq!(client.usage().ring_memory >= 2 * FIRST_RINGS, !shareable);
        // Its connect waits for an accept, for as long as it likes.
        for _ in 0..3 {
            plane.let_time_pass().await;
        }
        assert_eq!(plane.states(), [ArenaState::Ready]);
        assert!(reply.try_recv().is_err());
        // It gives up. Another connect, which came before the time is over, would find the arena.
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
