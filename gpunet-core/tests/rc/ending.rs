//! Every order of shutdowns, disconnects, resets and deaths.

use crate::shape::Shape;
use crate::size::Size;
use crate::transfer::{against_itself, against_reference, shape, size, steps};
use crate::wire::World;
use gpunet_core::rc::Failure;
use proptest::prelude::*;

/// A connection of a machine (end 0) to an rsocket or to another machine.
#[derive(Debug)]
struct Plan {
    rsocket: bool,
    sizes: [Size; 2],
    shape: Shape,
    wanted: [u64; 2],
}

fn plan() -> impl Strategy<Value = Plan> {
    let wanted = [0u64..60_000, 0u64..60_000];
    (any::<bool>(), [size(), size()], shape(), wanted).prop_map(|(rsocket, sizes, shape, wanted)| Plan {
        rsocket,
        sizes,
        shape,
        wanted,
    })
}

impl Plan {
    fn world(&self) -> World {
        if self.rsocket {
            against_reference(&self.sizes[0], self.shape, self.wanted)
        } else {
            against_itself([&self.sizes[0], &self.sizes[1]], self.wanted)
        }
    }
}

/// What an application does at some step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Shut,
    Close,
    Reset,
    Die,
}

impl World {
    fn end(&mut self, side: usize, end: End) {
        self.tasks[side].wanted = self.tasks[side].written;
        match end {
            End::Shut => self.nodes[side].shut(),
            End::Close => self.nodes[side].close(),
            End::Reset => self.nodes[side].reset(),
            End::Die => self.nodes[side].nic().dead = true,
        }
    }

    /// Tells an end that the other's queue pair is gone, after all that came before.
    fn hang_up(&mut self, side: usize) {
        if self.nodes[1 - side].nic().dead {
            self.nodes[side].enter(usize::MAX);
            self.nodes[side].disconnected();
        }
    }

    /// Runs the steps, with what both ends do at theirs.
    fn run(&mut self, steps: &[(u8, u16)], ends: &[(usize, usize, End)]) {
        for (at, step) in steps.iter().enumerate() {
            ends.iter().filter(|end| end.0 == at).for_each(|(_, side, end)| self.end(*side, *end));
            self.step(*step);
        }
        ends.iter().filter(|end| end.0 >= steps.len()).for_each(|(_, side, end)| self.end(*side, *end));
    }

    fn failures(&self) -> [Option<Failure>; 2] {
        [self.nodes[0].failure(), self.nodes[1].failure()]
    }

    /// Returns whether nothing has failed but data that was under way to an end that had closed.
    fn is_orderly(&self) -> bool {
        self.nodes.iter().all(|node| match node.failure() {
            None => true,
            Some(failure) => failure == Failure::Closed && !node.has_told_all(),
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    /// Each end writes, shuts, reads to the end, and closes as soon as it has; nothing is lost
    /// however the two cross.
    #[test]
    fn half_closes_in_every_order_lose_nothing(
        plan in plan(), steps in steps(), at in [0usize..700, 0usize..700], mut slow in any::<u64>(),
    ) {
        let mut world = plan.world();
        world.run(&steps, &[(at[0], 0, End::Shut), (at[1], 1, End::Shut)]);
        let mut closed = [false; 2];
        for _ in 0..100_000 {
            slow = slow.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            world.step(((slow >> 40) as u8, (slow >> 48) as u16));
            for (side, closed) in closed.iter_mut().enumerate() {
                let node = &mut world.nodes[side];
                if !*closed && node.is_at_end() && node.has_shut() {
                    *closed = true;
                    node.close();
                }
                if (slow >> 32) % 16 == side as u64 {
                    world.hang_up(side);
                }
            }
            if closed == [true; 2] {
                break;
            }
        }
        world.drain(1 << 16);
        world.assert_delivered();
        (0..2).for_each(|side| world.hang_up(side));
        prop_assert_eq!(closed, [true; 2], "an end was not seen");
        prop_assert_eq!(world.failures(), [None, None]);
        prop_assert!(world.nodes.iter().all(|node| node.is_settled()));
    }

    #[test]
    fn who_closes_is_settled_and_the_other_reads_what_came(
        plan in plan(), steps in steps(), at in 0usize..700, closer in 0usize..2, shuts in any::<bool>(),
    ) {
        let mut world = plan.world();
        let shut = (at / 2, closer, End::Shut);
        let ends = [shut, (at, closer, End::Close)];
        world.run(&steps, if shuts { &ends } else { &ends[1..] });
        world.drain_one(1 - closer);
        prop_assert!(world.nodes[closer].is_settled(), "the last message has not arrived");
        prop_assert!(world.nodes[1 - closer].is_at_end());
        if world.nodes[closer].has_told_all() {
            prop_assert_eq!(world.tasks[1 - closer].read, world.tasks[closer].written);
        }
        (0..2).for_each(|side| world.hang_up(side));
        prop_assert_eq!(world.failures()[closer], None);
        prop_assert!(world.is_orderly(), "{:?}", world.failures());
    }

    #[test]
    fn both_may_close_at_any_time(plan in plan(), steps in steps(), at in [0usize..700, 0usize..700]) {
        let mut world = plan.world();
        world.run(&steps, &[(at[0], 0, End::Close), (at[1], 1, End::Close)]);
        world.settle();
        (0..2).for_each(|side| world.hang_up(side));
        prop_assert!(world.nodes.iter().all(|node| node.is_settled()));
        prop_assert!(world.is_orderly(), "{:?}", world.failures());
    }

    #[test]
    fn a_machine_that_gives_up_is_understood_by_another(
        sizes in [size(), size()], steps in steps(), at in 0usize..700,
    ) {
        let mut world = against_itself([&sizes[0], &sizes[1]], [60_000, 60_000]);
        world.run(&steps, &[(at, 0, End::Reset)]);
        world.settle();
        prop_assert!(world.nodes[0].is_settled());
        prop_assert_eq!(world.failures(), [None, Some(Failure::Reset)]);
    }

    #[test]
    fn a_machine_that_gives_up_says_nothing_to_an_rsocket(
        size in size(), shape in shape(), steps in steps(), at in 0usize..700,
    ) {
        let mut world = against_reference(&size, shape, [0, 60_000]);
        world.run(&steps, &[(at, 0, End::Reset)]);
        world.drain(1 << 16);
        prop_assert!(world.nodes[0].is_settled());
        prop_assert_eq!(world.failures(), [None, None]);
    }

    #[test]
    fn a_death_is_no_orderly_end(
        plan in plan(), steps in steps(), at in 0usize..700,
    ) {
        let mut world = plan.world();
        world.run(&steps, &[(at, 1, End::Die)]);
        world.drain_one(0);
        world.hang_up(0);
        prop_assert!(world.failures()[0].is_some());
        prop_assert!(world.nodes[0].is_settled());
    }
}
