//! Members of a team that signal, meet, and leave.

use crate::world::World;
use crate::{G, check, world};
use gpunet_device::abi::team::{BlockLayout, Rank, Signal, TeamState};
use gpunet_device::abi::{MAGIC, VERSION, Word};
use gpunet_device::team::TeamHandle;
use loom::thread;

/// The third plays a part by its words alone.
const MEMBERS: u32 = 3;
const LAYOUT: BlockLayout = BlockLayout::new(MEMBERS, 1);

#[repr(C, align(64))]
struct State {
    state: TeamState,
    blocks: [u64; MEMBERS as usize],
    sent: [u64; MEMBERS as usize],
}

#[repr(C, align(4096))]
struct Block([u64; LAYOUT.len as usize / 8]);

/// What the members know, in memory that lives for ever.
#[derive(Clone, Copy)]
struct Team {
    blocks: [u64; MEMBERS as usize],
    states: [u64; MEMBERS as usize],
    /// A word for each member that it stores before it tells of that.
    data: [Word; MEMBERS as usize],
}

impl Team {
    fn new() -> Self {
        let block = |_| Box::leak(Box::new(Block([0; LAYOUT.len as usize / 8]))).0.as_mut_ptr() as u64;
        let (blocks, zeros) = ([0, 1, 2].map(block), || Box::leak(Box::new([0; MEMBERS as usize])));
        let state = |rank| {
            let state = TeamState {
                magic: MAGIC,
                version: VERSION,
                rank,
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
            std::ptr::from_ref(Box::leak(Box::new(State { state, blocks, sent: [0; MEMBERS as usize] })))
                as u64
        };
        let data = zeros().each_mut().map(|word: &mut u64| {
            // SAFETY: an aligned word that lives for ever.
            unsafe { Word::from_ptr(word) }
        });
        Self { blocks, states: [0, 1, 2].map(state), data }
    }

    /// A team that has done nothing yet, for the next execution.
    fn begin(self) {
        for rank in 0..MEMBERS as usize {
            // SAFETY: nobody uses them now.
            unsafe { (self.blocks[rank] as *mut Block).write_bytes(0, 1) };
            let state = self.states[rank] as *mut State;
            // SAFETY: as above.
            let state = unsafe { &mut *state };
            (state.sent, state.state.passed) = ([0; MEMBERS as usize], 0);
            // SAFETY: as above.
            unsafe { self.data[rank].as_ptr().write(0) };
        }
    }

    fn member(self, world: &World, rank: u32) -> TeamHandle {
        // SAFETY: the state lies there, with the blocks behind it.
        unsafe { TeamHandle::from_raw(world.net(), self.states[rank as usize], rank, MEMBERS) }
    }

    /// A word of a member's block.
    fn word(self, member: u32, at: u64) -> Word {
        // SAFETY: an aligned word of the block, which lives for ever.
        unsafe { Word::from_ptr((self.blocks[member as usize] + at) as *mut u64) }
    }
}

/// Member 1 stores, signals and leaves while member 0 waits for the signal: the wait finds it,
/// whichever of the two it finds first, and what was stored before. Another has left before.
///
/// Fails without the last look of `await_slowly`, without the fence of `failure`, if a signal is
/// stored or loaded without order, and if the wait ends because another has left.
#[test]
fn a_signal_of_a_member_that_has_left_is_found() {
    let team = Team::new();
    check(3, world(), move |world| {
        team.begin();
        let left = team.word(0, LAYOUT.left);
        left.publish(1 << 2);
        let member = thread::spawn(move || {
            team.data[1].set(7);
            team.member(world, 1).signal(&G, Signal(0), 1, Rank(0)).unwrap();
            // By the host program of member 0, which has heard it.
            left.publish(1 << 1 | 1 << 2);
        });
        assert_eq!(team.member(world, 0).wait_until(&G, Signal(0), Rank(1), 1), Ok(1));
        assert_eq!(team.data[1].peek(), 7);
        member.join().unwrap();
    });
}

/// Two groups of member 1 add to a signal: the word has the sum in the end.
///
/// Fails if the sum is stored after the lock was given back, or if the lock is taken or given back
/// without order.
#[test]
fn additions_of_two_groups_are_both_in_the_word() {
    let team = Team::new();
    check(3, world(), move |world| {
        team.begin();
        let adding = move || team.member(world, 1).signal_add(&G, Signal(0), 1, Rank(0)).unwrap();
        let other = thread::spawn(adding);
        adding();
        other.join().unwrap();
        assert_eq!(team.word(0, LAYOUT.signal(Signal(0), Rank(1))).observe(), 2);
    });
}

/// Two members store a word and meet, and member 1 then leaves: each finds the other's word. The
/// third has come before them.
///
/// Fails if the arrival is stored or loaded without order, or without the last look of
/// `await_slowly`.
#[test]
fn members_that_have_met_find_what_was_stored_before() {
    let team = Team::new();
    check(2, world(), move |world| {
        team.begin();
        let left = team.word(0, LAYOUT.left);
        let meet = move |rank: u32| {
            team.word(rank, LAYOUT.arrived_of(Rank(2))).publish(1);
            team.data[rank as usize].set(7);
            assert_eq!(team.member(world, rank).barrier(&G), Ok(()));
            assert_eq!(team.data[1 - rank as usize].peek(), 7);
        };
        let other = thread::spawn(move || {
            meet(1);
            left.publish(1 << 1);
        });
        meet(0);
        other.join().unwrap();
    });
}

/// Member 1 has met all and left; member 0 waits for the third, which comes.
///
/// Fails if `meet` takes one who has left for one who has not come.
#[test]
fn one_who_has_come_and_left_ends_no_barrier() {
    let team = Team::new();
    check(2, world(), move |world| {
        team.begin();
        team.word(0, LAYOUT.arrived_of(Rank(1))).publish(1);
        team.word(0, LAYOUT.left).publish(1 << 1);
        let third = thread::spawn(move || team.word(0, LAYOUT.arrived_of(Rank(2))).publish(1));
        assert_eq!(team.member(world, 0).barrier(&G), Ok(()));
        third.join().unwrap();
    });
}
