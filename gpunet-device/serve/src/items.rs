//! Items of different lengths that lanes put one behind the other.

use crate::bytes::{Bytes, total};
use crate::memory::Memory;
use gpunet_device::Group;

/// Puts `count` items one behind the other to the start of `to`, each by one lane: `make` makes an
/// item, `parts` tells its bytes. Returns how long all are; `None` if there is no room for them,
/// and for 4 bytes of each item or lane, aligned, behind them. All lanes; begins and ends with a
/// barrier.
#[inline(always)]
pub(crate) fn put_each<G: Group, T, const N: usize>(
    g: &G,
    to: Memory,
    count: usize,
    make: impl Fn(usize) -> T,
    parts: impl for<'p> Fn(&'p T) -> [Bytes<'p>; N],
) -> Option<usize> {
    let lanes = (g.size() as usize).min(count);
    // The lengths lie behind the items, aligned.
    let room = to.len().checked_sub(4 * lanes)?;
    let room = room.checked_sub((to.as_ptr() as usize + room) % 4)?;
    let lens = to.part(room, 4 * lanes);
    let (mut end, mut first) = (0, 0);
    while first < count {
        let (rank, lanes) = (g.rank() as usize, lanes.min(count - first));
        let item = if rank < lanes { Some(make(first + rank)) } else { None };
        // All lanes have read the lengths of the last round, and who called is done with the
        // memory.
        g.sync();
        if let Some(item) = &item {
            lens.u32(4 * rank).set(total(&parts(item)) as u32);
        }
        g.sync();
        let (mut all, mut before, mut lane) = (0, 0, 0);
        while lane < lanes {
            if lane == rank {
                before = all;
            }
            all += lens.u32(4 * lane).get() as usize;
            lane += 1;
        }
        if room - end < all {
            return None;
        }
        if let Some(item) = &item {
            let (parts, mut at, mut part) = (parts(item), end + before, 0);
            while part < N {
                to.part(at, parts[part].len()).fill_alone(parts[part]);
                at += parts[part].len();
                part += 1;
            }
        }
        (end, first) = (end + all, first + lanes);
    }
    g.sync();
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::in_two;
    use crate::memory::for_test;
    use gpunet_device::group::Lanes;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn all(bytes: Bytes<'_>) -> Vec<u8> {
        (0..bytes.len()).map(|at| bytes.get(at)).collect()
    }

    proptest! {
        #[test]
        fn items_are_put_one_behind_the_other(
            items in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12),
            cut in 0usize..40,
            skew in 0usize..8,
            spare in 0usize..8,
            lanes in 1u32..6,
        ) {
            let whole = items.concat();
            let room = whole.len() + 4 * items.len().min(lanes as usize) + spare;
            let to = for_test(1024).part(skew, room);
            let ends: Vec<_> = std::thread::scope(|scope| {
                let run = |lane: Lanes| {
                    put_each(&lane, to, items.len(), |at| in_two(&items[at], cut), |item| [Bytes::EMPTY, *item])
                };
                let threads: Vec<_> =
                    Lanes::group(0, 1, lanes).into_iter().map(|lane| scope.spawn(move || run(lane))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            for end in ends {
                match end {
                    Some(end) => prop_assert_eq!(all(to.part(0, end).stable_bytes()), whole.clone()),
                    None => prop_assert!(spare < 3),
                }
            }
        }
    }
}
