//! Collectives against plain loops, with lengths and elements that a seed decides.

use crate::support::bounded;
use crate::support::rng::Rng;
use crate::world::{Member, lanes, members};
use gpunet_device::team::reduce::ONE_SHOT;
use gpunet_device::team::{Bf16, Element, F16, Maximum, Minimum, Number, Operation, Rank, Reducible, Sum};
use gpunet_device::{Error, Group, Timeout};
use gpunet_proxy::team::Symmetric;
use proptest::prelude::*;
use std::fmt::Debug;

/// Elements of a member's source: all members can tell those of all.
fn source<T>(rank: Rank, seed: u64, len: usize, draw: &impl Fn(&mut Rng) -> T) -> Vec<T> {
    let mut rng = Rng::new(seed * 64 + u64::from(rank.0));
    (0..len).map(|_| draw(&mut rng)).collect()
}

fn read<T: Element + Default>(x: &Symmetric<'_, T>, len: usize) -> Vec<T> {
    let mut all = vec![T::default(); len];
    x.read(0, &mut all).expect("read");
    all
}

/// Lengths: none, few, not a multiple of anything, and enough for the second way of reducing.
const LENGTHS: [usize; 5] = [0, 1, 5, 1003, 9001];

fn moves(member: &Member, g: &impl Group, seed: u64) {
    let (team, size) = (member.handle(), member.team.size() as usize);
    for len in LENGTHS {
        let draw = |rng: &mut Rng| rng.next() as u16;
        let mut x = member.team.alloc::<u16>(len * size).expect("memory");
        let y = member.team.alloc::<u16>(len * size).expect("memory");
        let sources: Vec<_> =
            (0..size as u32).map(|rank| source(Rank(rank), seed, len * size, &draw)).collect();
        let own = &sources[team.rank().0 as usize];
        x.write(0, own).expect("written");
        // SAFETY: the group ends first.
        let (from, to) = unsafe { (x.ptr(), y.ptr()) };
        let buffer = from.buffer(team).expect("own part");

        team.all_gather(g, to, buffer.first(len * 2)).expect("gathered");
        let expected: Vec<u16> = sources.iter().flat_map(|source| source[..len].to_vec()).collect();
        assert_eq!(read(&y, len * size), expected, "all_gather of {len}");

        let root = Rank(seed as u32 % team.size());
        team.broadcast(g, to, buffer, root).expect("broadcast");
        assert_eq!(read(&y, len * size), sources[root.0 as usize], "broadcast of {len}");

        team.all_to_all(g, to, buffer).expect("exchanged");
        let at = team.rank().0 as usize * len;
        let expected: Vec<u16> = sources.iter().flat_map(|source| source[at..at + len].to_vec()).collect();
        assert_eq!(read(&y, len * size), expected, "all_to_all of {len}");
        assert_eq!(read(&x, len * size), *own, "sources stay");
    }
}

#[test]
fn elements_go_where_a_plain_loop_would_put_them() {
    bounded(|| {
        for size in 1..=4 {
            members(size, |member| moves(member, &member.solo(), 7 + u64::from(size)));
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn collectives_of_any_shape_come_to_what_a_plain_loop_comes_to(
        size in 1u32..6,
        lane_count in prop_oneof![Just(1u32), 2u32..6],
        lens in proptest::collection::vec(0usize..3000, 1..4),
        seed in 0u64..1 << 40,
    ) {
        members(size, |member| {
            let team = member.handle();
            for &len in &lens {
                let draw = |rng: &mut Rng| rng.next() as u32;
                let all = (0..size).map(|rank| source(Rank(rank), seed, len, &draw));
                let all: Vec<u32> = all.flatten().collect();
                let own = team.rank().0 as usize * len;
                let mut x = member.team.alloc::<u32>(len).expect("memory");
                let y = member.team.alloc::<u32>(len * size as usize + 3).expect("memory");
                x.write(0, &all[own..own + len]).expect("written");
                // SAFETY: the group ends first.
                let (from, to) = unsafe { (x.ptr(), y.ptr()) };
                lanes(lane_count, |g| team.all_gather(g, to.at(3), from.buffer(team)?)).expect("gathered");
                assert_eq!(read(&y, all.len() + 3)[3..], all, "not aligned as the source is");
                lanes(lane_count, |g| team.reduce(g, Maximum, from, from)).expect("reduced");
                let largest = |at: usize| (0..size as usize).map(|rank| all[rank * len + at]).max();
                assert_eq!(read(&x, len), (0..len).filter_map(largest).collect::<Vec<_>>());
            }
        });
    }
}

/// Reduces by the team and by a plain loop.
fn reduces<T, O>(member: &Member, lane_count: u32, operation: O, seed: u64, draw: impl Fn(&mut Rng) -> T)
where
    T: Reducible + Default + Debug + PartialEq,
    O: Operation + Sync,
{
    let (team, size) = (member.handle(), member.team.size());
    for len in LENGTHS {
        let sources: Vec<_> = (0..size).map(|rank| source(Rank(rank), seed, len, &draw)).collect();
        let expected: Vec<T> = (0..len)
            .map(|at| {
                let all = sources.iter().map(|source| source[at].widen());
                T::narrow(all.reduce(O::apply).expect("a member"))
            })
            .collect();
        let mut x = member.team.alloc::<T>(len).expect("memory");
        let y = member.team.alloc::<T>(len).expect("memory");
        x.write(0, &sources[team.rank().0 as usize]).expect("written");
        // SAFETY: the group ends first.
        let (from, to) = unsafe { (x.ptr(), y.ptr()) };
        lanes(lane_count, |g| team.reduce(g, operation, to, from)).expect("reduced");
        assert_eq!(read(&y, len), expected, "{len} of {}", std::any::type_name::<T>());
        lanes(lane_count, |g| team.reduce(g, operation, from, from)).expect("reduced in place");
        assert_eq!(read(&x, len), expected, "in place: {len} of {}", std::any::type_name::<T>());
    }
}

#[test]
fn reductions_come_to_what_a_plain_loop_comes_to() {
    assert!(LENGTHS.iter().any(|len| len * 2 > ONE_SHOT), "both ways of reducing");
    // Of all bits, those of no number are left out: no such one equals itself.
    let float = |rng: &mut Rng| (rng.range(0, 2_000_001) as f32 - 1e6) / 64.0;
    bounded(move || {
        for size in [1, 2, 3] {
            members(size, |member| {
                reduces(member, 1, Sum, 1, |rng| rng.next() as i32);
                reduces(member, 3, Maximum, 2, |rng| rng.next() as i32);
                reduces(member, 1, Sum, 3, Rng::next);
                reduces(member, 1, Minimum, 4, Rng::next);
                reduces(member, 3, Sum, 5, float);
                reduces(member, 1, Minimum, 6, |rng| f64::from(float(rng)));
                reduces(member, 1, Sum, 7, |rng| F16::from_f32(float(rng) / 1024.0));
                reduces(member, 1, Maximum, 8, |rng| Bf16::from_f32(float(rng)));
            });
        }
    });
}

#[test]
fn lanes_share_the_work_of_a_collective() {
    bounded(|| {
        members(3, |member| {
            let team = member.handle();
            let mut x = member.team.alloc::<u64>(1000).expect("memory");
            let y = member.team.alloc::<u64>(3000).expect("memory");
            x.write(0, &vec![u64::from(team.rank().0) + 1; 1000]).expect("written");
            // SAFETY: the groups end first.
            let (from, to) = unsafe { (x.ptr(), y.ptr()) };
            lanes(40, |g| {
                for _ in 0..3 {
                    team.all_gather(g, to, from.buffer(team).expect("own part")).expect("gathered");
                }
            });
            let expected: Vec<u64> = (1..4).flat_map(|value| vec![value; 1000]).collect();
            assert_eq!(read(&y, 3000), expected);
        });
    });
}

#[test]
fn a_collective_without_room_is_refused_and_the_next_one_works() {
    bounded(|| {
        members(2, |member| {
            let (team, g) = (member.handle(), &member.solo());
            let x = member.team.alloc::<u32>(9).expect("memory");
            // SAFETY: the group ends first.
            let x = unsafe { x.ptr() };
            let own = x.buffer(team).expect("own part");
            let refused = Err(Error::InvalidArgument);
            assert_eq!(team.all_gather(g, x, own), refused, "twice as much as there is room for");
            assert_eq!(team.all_to_all(g, x, own), refused, "no whole part for each");
            assert_eq!(team.broadcast(g, x, own.first(3), Rank(0)), refused, "no whole element");
            assert_eq!(team.broadcast(g, x, own, Rank(2)), refused, "no such member");
            assert_eq!(team.reduce(g, Sum, x.slice(0, 4), x.slice(1, 4)), refused, "overlapping");
            assert_eq!(team.reduce(g, Sum, x.slice(0, 4), x.slice(4, 5)), refused, "longer than the result");
            team.all_gather(g, x, own.first(16)).expect("four for each");
        });
    });
}

#[test]
fn two_groups_of_a_device_cannot_be_in_a_collective_at_a_time() {
    bounded(|| {
        members(2, |member| {
            let (team, g) = (member.handle(), &member.solo());
            if team.rank() == Rank(1) {
                member.team.barrier().expect("the host's barrier");
                team.barrier(g).expect("all are there");
                return;
            }
            std::thread::scope(|scope| {
                // Whoever of the two comes first refuses the other.
                let first = scope.spawn(|| {
                    loop {
                        match team.barrier(g) {
                            Err(Error::Busy) => {}
                            result => return result,
                        }
                    }
                });
                while team.timeout(Timeout::ms(1)).barrier(g) != Err(Error::Busy) {}
                member.team.barrier().expect("the host's barrier");
                assert_eq!(first.join().expect("no panic"), Ok(()));
            });
        });
    });
}

/// The compiler need not know what is compared.
#[test]
fn no_number_loses_against_a_number() {
    assert_eq!(Minimum::apply(f32::NAN, 1.0), 1.0);
    assert_eq!(1.0_f64.larger(f64::NAN), 1.0);
}
