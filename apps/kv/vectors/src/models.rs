//! Every interleaving of a desk's hand-offs, by loom ([`gpunet_device::abi::atomic`]).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-kv-vectors --lib --release models`.

use crate::desk::{Desk, Search};
use crate::tests::for_test;
use gpunet_device::abi::atomic::{model, yield_now};
use gpunet_device::group::Solo;
use loom::thread;
use std::vec::Vec;

const BLOCKS: usize = 2;

/// The search of a number, of as many shares.
const fn search(number: u32) -> Search {
    Search { set: number, query: number, lists: 0, first: 0, end: number, most: 1, shares: number, share: 1 }
}

/// A block puts one search out after the other while another helps: each share is one block's, and
/// a helper that has a share knows the search that it is of.
///
/// Fails if `open` stores the ticket without publishing it, and if `claim` does not compare the
/// number of the shares with that of the ticket.
#[test]
fn a_share_is_one_blocks_who_knows_what_it_is_of() {
    let memory = for_test(Desk::bytes(BLOCKS));
    model(2, move || {
        (0..memory.len()).step_by(8).for_each(|at| memory.u64(at).set(0));
        let desk = Desk::at(memory, 0, BLOCKS);
        // How much the helper has done; no desk uses the word.
        let helped = memory.u64(56);
        let helper = thread::spawn(move || {
            let (g, mut shares) = (Solo::new(1, BLOCKS as u32), Vec::new());
            for _ in 0..2 {
                yield_now();
                let Some((number, first)) = desk.claim(&g) else { continue };
                let (search, before) = (desk.search(), shares.len());
                assert_eq!((search.set, search.shares), (number, number));
                shares.push((number, first));
                while let Some(next) = desk.claim_more(&g, &search) {
                    shares.push((number, next));
                }
                helped.set(shares.len() as u64);
                desk.done(1, number, (shares.len() - before) as u32);
            }
            shares
        });
        let (g, mut shares, mut by_helper) = (Solo::new(0, BLOCKS as u32), Vec::new(), 0);
        for number in 1..=2 {
            let search = search(number);
            assert_eq!(desk.open(&g, search), number);
            let before = shares.len();
            while let Some(which) = desk.claim_more(&g, &search) {
                shares.push((number, which));
            }
            let mine = (shares.len() - before) as u32;
            while mine + desk.done_by(1, number) < search.shares {
                yield_now();
            }
            by_helper += u64::from(search.shares - mine);
            assert!(helped.get() >= by_helper, "a share of search {number} is not done");
            desk.close(number);
        }
        shares.extend(helper.join().unwrap());
        shares.sort_unstable();
        assert_eq!(shares, [(1, 0), (2, 0), (2, 1)]);
    });
}
