//! Members of a team that signal, and leave.

use crate::{G, check, world};
use gpunet_device::abi::team::{BlockLayout, Rank, Signal, TeamState};
use gpunet_device::abi::{MAGIC, VERSION, Word};
use gpunet_device::team::TeamHandle;
use loom::thread;

const MEMBERS: u32 = 2;
const LAYOUT: BlockLayout = BlockLayout::new(MEMBERS, 1);

#[repr(C, align(64))]
struct State {
    state: TeamState,
    blocks: [u64; MEMBERS as usize],
    sent: [u64; MEMBERS as usize],
}

#[repr(C, align(4096))]
struct Block([u64; LAYOUT.len as usize / 8]);

/// Member 1 signals and leaves while member 0 waits for the signal: the wait finds it, whichever of
/// the two it finds first.
///
/// Fails without the last look of `await_slowly`, and without the fence of `failure`.
#[test]
fn a_signal_of_a_member_that_has_left_is_found() {
    let block: &Block = Box::leak(Box::new(Block([0; LAYOUT.len as usize / 8])));
    let at = block.0.as_ptr() as u64;
    let state = TeamState {
        magic: MAGIC,
        version: VERSION,
        rank: 0,
        members: MEMBERS,
        signals: 1,
        is_polled: 0,
        layout: LAYOUT,
        collective_lock: 0,
        signal_lock: 0,
        passed: 0,
        out_of_step: 0,
        reserved: [0; 4],
    };
    let state: &State = Box::leak(Box::new(State { state, blocks: [at; 2], sent: [0; 2] }));
    let state = std::ptr::from_ref(state) as u64;
    check(3, world(), move |world| {
        // SAFETY: the block, which nobody uses now.
        unsafe { (at as *mut Block).write_bytes(0, 1) };
        // SAFETY: aligned words of the block, which lives for ever.
        let [signal, left] = [LAYOUT.signal(Signal(0), Rank(1)), LAYOUT.left]
            .map(|word| unsafe { Word::from_ptr((at + word) as *mut u64) });
        let member = thread::spawn(move || {
            signal.publish(1);
            // By the host program of member 0, which has heard it.
            left.publish(1 << 1);
        });
        // SAFETY: the state lies there, with the blocks behind it.
        let team = unsafe { TeamHandle::from_raw(world.net(), state, 0, MEMBERS) };
        assert_eq!(team.wait_until(&G, Signal(0), Rank(1), 1), Ok(1));
        member.join().unwrap();
    });
}
