//! Two programs whose GPUs cannot reach each other's memory get an arena in pinned memory. Their
//! agents are played by hand: no GPU is needed.

use crate::raw::{AgentAnswer, Device, First, Raw, ToDaemon, Want, Wish, bytes, hello, wish};
use crate::support::bounded;
use crate::support::daemon::Served;
use crate::support::small;
use gpunet_device::abi::control::{Op, Request};
use gpunet_device::{Options, SockAddr, TransportKind};
use serde::Deserialize;

/// What a daemon says, as far as this test goes.
#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "the order is the protocol")]
enum Said {
    Refused,
    Ready,
    Welcome,
    Finished,
    UsageIs,
    Reply { number: u32, reply: Vec<u8> },
    Detached,
    Agent(Asked),
}

#[derive(Debug, Deserialize, PartialEq)]
#[allow(dead_code, reason = "the order is the protocol")]
enum Asked {
    Provide { arena: u32, len: u64 },
    Map { arena: u32, near: (u8, Part), far: (u8, Part), silent: bool },
    Clear { arena: u32, line: u64, len: u64, ring: u64 },
    Unmap { arena: u32 },
}

#[derive(Debug, Deserialize, PartialEq)]
#[allow(dead_code, reason = "the order is the protocol")]
enum Part {
    Own,
    Pinned,
    Gpu { len: u64 },
}

fn gpu(served: &Served) -> Raw {
    let device = Device::Cuda { name: "a GPU by hand".to_owned(), uuid: [7; 16], shareable: true };
    let raw = Raw::connect(&served.path);
    raw.send(&hello(&Want::Attach(Wish { device, device_rings: 1 << 20, ..wish() })));
    assert!(matches!(raw.first(), Some(First::Welcome { .. })));
    raw
}

fn next(raw: &Raw) -> Said {
    let packet = raw.next().expect("the daemon goes on");
    postcard::take_from_bytes(&packet).expect("a frame").0
}

fn asked(raw: &Raw) -> Asked {
    match next(raw) {
        Said::Agent(asked) => asked,
        other => panic!("{other:?}"),
    }
}

fn answer(raw: &Raw, answer: AgentAnswer) {
    raw.send(&bytes(&ToDaemon::Agent(answer)));
}

#[test]
fn gpus_that_cannot_map_each_others_memory_meet_in_pinned_memory() {
    bounded(|| {
        let served = Served::new(small());
        let (server, client) = (gpu(&served), gpu(&served));
        let options = Options::DEFAULT.with_transport(TransportKind::Peer);
        let mut bind = Request::new(Op::Bind, 0, 1, 0);
        (bind.flags, bind.options) = (Request::LISTEN, options);
        bind.address = SockAddr::v4([127, 0, 0, 1], 0);
        server.ask(0, &bind);
        let listening = server.reply();
        assert_eq!(listening.errno, 0);
        let mut connect = Request::new(Op::Connect, 0, 1, 0);
        (connect.address, connect.options) = (listening.descriptor.local, options);
        client.ask(0, &connect);
        // Both are asked for memory of their GPU. The server's agent has none to give.
        let Asked::Provide { arena, len } = asked(&server) else { panic!("memory was to be provided") };
        assert_eq!(len % (2 << 20), 0, "GPU memory is mapped in whole pages");
        assert!(matches!(asked(&client), Asked::Provide { .. }));
        answer(&server, AgentAnswer::Failed { arena, reason: "no peer access".to_owned() });
        // The first arena is given up, and the next lies in pinned memory.
        let mut pinned = None;
        for raw in [&server, &client] {
            loop {
                match asked(raw) {
                    Asked::Unmap { arena } => answer(raw, AgentAnswer::Unmapped { arena }),
                    Asked::Map { arena, near, far, silent } => {
                        assert_eq!((&near.1, &far.1, silent), (&Part::Pinned, &Part::Pinned, true));
                        answer(raw, AgentAnswer::Mapped { arena });
                        pinned = Some(arena);
                        break;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_ne!(pinned, Some(arena));
        let mut accept = Request::new(Op::Accept, 0, 1, 0);
        (accept.target, accept.target_generation) = (1, 1);
        server.ask(1, &accept);
        let (accepted, connected) = (server.reply(), client.reply());
        assert_eq!((accepted.errno, connected.errno), (0, 0));
        assert_eq!(accepted.descriptor.transport, TransportKind::Peer as u32);
        let snapshot = served.daemon().snapshot().expect("it answers");
        let streams = snapshot.sockets.iter().filter(|socket| socket.peer.is_some());
        assert_eq!(streams.filter(|s| s.placement == gpunet_proxy::snapshot::Placement::Pinned).count(), 2);
    });
}
