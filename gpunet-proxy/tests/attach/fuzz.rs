//! Any bytes, in any order: a live daemon goes on serving who keeps to the rules.

use crate::raw::{AgentAnswer, Device, Raw, ToDaemon, Want, Wish, bytes, hello, wish};
use crate::support::daemon::Served;
use crate::support::{small, until};
use gpunet_proxy::{Attachment, Proxy};
use proptest::prelude::*;
use std::sync::LazyLock;

/// One daemon for all cases, and a client that is served throughout.
static DAEMON: LazyLock<(Served, Proxy, Attachment)> = LazyLock::new(|| {
    let served = Served::new(small());
    let proxy = served.attach(small());
    let attachment = proxy.attach_cpu().expect("attached");
    (served, proxy, attachment)
});

fn frames() -> impl Strategy<Value = ToDaemon> {
    let number = prop_oneof![any::<u32>(), (1u32 << 31)..(1 << 31) + 4, 0u32..4];
    let request = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 192),
        // Near what is valid: an operation, a slot, a generation, a launch.
        4 => (0u32..9, 0u32..18, 0u32..4, 0u32..3, proptest::collection::vec(0u8..3, 176)).prop_map(
            |(op, slot, generation, launch, rest)| {
                let head = [op, slot, generation, launch].map(u32::to_le_bytes);
                head.into_iter().flatten().chain(rest).collect()
            }
        ),
        1 => proptest::collection::vec(any::<u8>(), 0..400),
    ];
    let arena = 0u32..3;
    let agent = prop_oneof![
        (arena.clone(), any::<u64>()).prop_map(|(arena, len)| AgentAnswer::Provided { arena, len }),
        arena.clone().prop_map(|arena| AgentAnswer::Mapped { arena }),
        (arena.clone(), ".{0,40}").prop_map(|(arena, reason)| AgentAnswer::Failed { arena, reason }),
        arena.prop_map(|arena| AgentAnswer::Unmapped { arena }),
    ];
    prop_oneof![
        2 => (number.clone(), prop_oneof![0u32..4, any::<u32>()], 0u8..4, handles())
            .prop_map(|(call, launch, policy, fresh)| ToDaemon::FinishLaunch { call, launch, policy, fresh }),
        1 => prop_oneof![0u32..4, any::<u32>()].prop_map(|launch| ToDaemon::AbortLaunch { launch }),
        2 => handles().prop_map(|handles| ToDaemon::Release { handles }),
        2 => Just(ToDaemon::ResetAll),
        2 => number.clone().prop_map(|call| ToDaemon::Usage { call }),
        8 => (number.clone(), request).prop_map(|(number, request)| ToDaemon::Ask { number, request }),
        2 => number.prop_map(|number| ToDaemon::Abandon { number }),
        1 => Just(ToDaemon::Detach),
        1 => agent.prop_map(ToDaemon::Agent),
        1 => Just(ToDaemon::Snapshot),
    ]
}

/// Handles of sockets that may be, and of some that cannot.
fn handles() -> impl Strategy<Value = Vec<i32>> {
    let likely = (0i32..20, 1i32..4).prop_map(|(slot, generation)| generation << 16 | slot);
    prop_oneof![
        20 => proptest::collection::vec(prop_oneof![3 => likely, 1 => any::<i32>()], 0..20),
        1 => proptest::collection::vec(any::<i32>(), 4000..5000),
    ]
}

fn wishes() -> impl Strategy<Value = Want> {
    let card = proptest::option::of((any::<u64>(), any::<u64>(), any::<u64>()));
    let sizes = (0u32..40, 0u32..8, 0u64..1 << 17, 0u64..1 << 17);
    prop_oneof![
        1 => Just(Want::Probe),
        1 => Just(Want::Admin),
        6 => Just(Want::Attach(wish())),
        2 => (sizes, card, ".{0,80}", any::<bool>()).prop_map(|(sizes, card, command, gpu)| {
            let (sockets, controls, shared_rings, device_rings) = sizes;
            let gpu_device = Device::Cuda { name: command.clone(), uuid: [1; 16], shareable: true };
            let device = if gpu { gpu_device } else { Device::Cpu };
            Want::Attach(Wish { sockets, controls, shared_rings, device_rings, device, command, card })
        }),
    ]
}

/// What a program says: whole frames, damaged ones, garbage; with descriptors or without.
#[derive(Clone, Debug)]
struct Said {
    bytes: Vec<u8>,
    fds: usize,
}

fn said() -> impl Strategy<Value = Said> {
    let damaged = (frames(), any::<prop::sample::Index>(), any::<u8>(), any::<bool>()).prop_map(
        |(frame, at, byte, cut)| {
            let mut all = bytes(&frame);
            let at = at.index(all.len());
            if cut {
                all.truncate(at.max(1))
            } else {
                all[at] ^= byte
            }
            all
        },
    );
    let bytes = prop_oneof![
        8 => frames().prop_map(|frame| bytes(&frame)),
        2 => damaged,
        1 => proptest::collection::vec(any::<u8>(), 1..300),
    ];
    (bytes, prop_oneof![9 => Just(0usize), 1 => 1usize..20]).prop_map(|(bytes, fds)| Said { bytes, fds })
}

/// How many cases; `GPUNET_FUZZ_CASES` for a longer run.
fn cases() -> u32 {
    std::env::var("GPUNET_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_conversation_leaves_the_daemon_serving(
        first in prop_oneof![8 => wishes().prop_map(|want| hello(&want)), 1 => proptest::collection::vec(any::<u8>(), 1..100)],
        then in proptest::collection::vec(said(), 0..40),
    ) {
        let (served, _, attachment) = &*DAEMON;
        let raw = Raw::connect(&served.path);
        raw.try_send(&first);
        // Most of it is of interest once the attachment is there.
        if first.starts_with(b"gpnd") {
            let _ = raw.next();
        }
        for Said { bytes, fds } in then {
            let fds = vec![raw.fd(); fds];
            let _ = raw.send_with(&bytes, &fds);
        }
        drop(raw);
        prop_assert!(attachment.usage().ring_bytes > 0, "the good client is not served any more");
        prop_assert!(served.daemon().is_alive());
    }
}

#[test]
fn nothing_is_left_of_them() {
    let (served, ..) = &*DAEMON;
    // The other test may run meanwhile: what stays is bounded.
    until("strangers are gone", || {
        served.daemon().snapshot().is_some_and(|snapshot| snapshot.clients.len() <= 4)
    });
}
