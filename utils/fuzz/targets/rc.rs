//! The rc protocol: private data, messages and buffer descriptors of a lying peer. The audit of
//! gpunet-core/tests/rc decides what is a lie, and checks each request that the machine posts.
#![no_main]

#[path = "../../../gpunet-core/tests/rc/audit.rs"]
#[allow(dead_code, reason = "the tests of gpunet-core use all of it")]
mod audit;
#[path = "../../../gpunet-core/tests/rc/nic.rs"]
#[allow(dead_code, reason = "the tests of gpunet-core use all of it")]
mod nic;
#[path = "../../../gpunet-core/tests/rc/size.rs"]
#[allow(dead_code, reason = "the tests of gpunet-core use all of it")]
mod size;
#[path = "../../../gpunet-core/tests/rc/victim.rs"]
mod victim;

use gpunet_core::rc::{HELLO_LEN, Hello, Variant};
use libfuzzer_sys::fuzz_target;
use size::Size;
use victim::Victim;

/// The private data that a connection on InfiniBand brings.
const PRIVATE: usize = HELLO_LEN + 16;

fuzz_target!(|data: &[u8]| {
    let Some((&[sizes @ .., receives], data)) = data.split_first_chunk::<5>() else { return };
    let [variant, send, recv, sends] = sizes;
    let size = Size {
        variant: if variant & 1 == 0 { Variant::Immediate } else { Variant::Send },
        send_ring: 64 << (send % 10),
        recv_ring: 64 << (recv % 12),
        sends: 2 + u32::from(sends % 38),
        receives: 1 + u16::from(receives % 70),
    };
    let (hello, steps) = data.split_at(PRIVATE.min(data.len()));
    let Ok(peer) = Hello::decode(hello) else { return };
    assert_eq!(Hello::decode(&peer.encode()), Ok(peer));
    // The account has an entry for each of the table.
    if peer.table.len > 1 << 12 {
        return;
    }
    let (steps, _) = steps.as_chunks::<5>();
    let step = |&[what, a, b, c, d]: &[u8; 5]| (what, u32::from_le_bytes([a, b, c, d]));
    Victim::new(size.config(0), peer).play(&steps.iter().map(step).collect::<Vec<_>>());
});
