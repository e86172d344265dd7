//! Random calls and news against what a poll group promises.

use super::proxy::{G, Proxy, events, retire, room};
use crate::world::World;
use gpunet_device::poll::{POLLIN, POLLOUT};
use gpunet_device::poll_group::Events;
use gpunet_device::{Handle, RecvHalf};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SOCKETS: u32 = 6;
const BLOCKS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many bytes land.
    Land(u32, u64),
    /// The proxy tells of a change that is none.
    Tell(u32),
    /// A block reads everything of a socket.
    Read(u32),
    Add(u32, bool),
    Modify(u32, bool),
    Remove(u32),
    Rearm(u32),
    /// A block waits, and does not wait.
    Wait(usize),
    /// The proxy closes the socket, and another takes the slot.
    Replace(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..SOCKETS;
    prop_oneof![
        4 => (slot.clone(), 1..40u64).prop_map(|(slot, n)| Step::Land(slot, n)),
        1 => slot.clone().prop_map(Step::Tell),
        3 => slot.clone().prop_map(Step::Read),
        3 => (slot.clone(), any::<bool>()).prop_map(|(slot, out)| Step::Add(slot, out)),
        1 => (slot.clone(), any::<bool>()).prop_map(|(slot, out)| Step::Modify(slot, out)),
        1 => slot.clone().prop_map(Step::Remove),
        1 => slot.clone().prop_map(Step::Rearm),
        6 => (0..BLOCKS).prop_map(Step::Wait),
        1 => slot.prop_map(Step::Replace),
    ]
}

/// What a member of the group is to the model.
#[derive(Clone, Copy)]
struct Member {
    token: u64,
    asks_for_space: bool,
    /// The block that has its event.
    holder: Option<usize>,
}

fn events_of(asks_for_space: bool) -> i16 {
    if asks_for_space { POLLIN | POLLOUT } else { POLLIN }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// A wait delivers exactly the sockets that are ready and that no other block has: none is lost, none is delivered twice.
    #[test]
    fn a_wait_delivers_what_is_ready_and_no_other_block_has(steps in prop::collection::vec(step(), 1..80)) {
        let world = World::new();
        let net = world.net();
        let mut handles: Vec<Handle> = (0..SOCKETS).map(|slot| world.open_driven(slot)).collect();
        let (mut landed, mut read) = ([0u64; SOCKETS as usize], [0u64; SOCKETS as usize]);
        let mut proxy = Proxy::new(&world, 20, SOCKETS);
        let group = proxy.group;
        let mut memory: Vec<_> = (0..BLOCKS).map(|_| room(SOCKETS as usize)).collect();
        let mut blocks: Vec<Events> = memory.iter_mut().map(|memory| events(memory)).collect();
        let mut members = BTreeMap::<u32, Member>::new();
        let mut tokens = 0;
        for step in steps {
            match step {
                Step::Land(slot, n) => {
                    let at = slot as usize;
                    landed[at] = (landed[at] + n).min(read[at] + 1000);
                    proxy.land(slot, landed[at]);
                }
                Step::Tell(slot) => proxy.tell(slot),
                Step::Read(slot) => {
                    let at = slot as usize;
                    let mut half = RecvHalf::from_handle(&G, net, handles[at]).unwrap();
                    let n = half.available(&G).unwrap();
                    half.release(&G, n);
                    prop_assert_eq!(n as u64, landed[at] - read[at]);
                    read[at] = landed[at];
                }
                Step::Add(slot, asks_for_space) => {
                    tokens += 1;
                    let added = group.add(&G, handles[slot as usize], events_of(asks_for_space), tokens);
                    prop_assert_eq!(added.is_ok(), !members.contains_key(&slot));
                    let token = tokens;
                    members.entry(slot).or_insert(Member { token, asks_for_space, holder: None });
                }
                Step::Modify(slot, asks_for_space) => {
                    tokens += 1;
                    let done = group.modify(&G, handles[slot as usize], events_of(asks_for_space), tokens);
                    prop_assert_eq!(done.is_ok(), members.contains_key(&slot));
                    if let Some(member) = members.get_mut(&slot) {
                        *member = Member { token: tokens, asks_for_space, holder: None };
                    }
                }
                Step::Remove(slot) => {
                    let done = group.remove(&G, handles[slot as usize]);
                    prop_assert_eq!(done.is_ok(), members.remove(&slot).is_some());
                }
                Step::Rearm(slot) => {
                    let done = group.rearm(&G, handles[slot as usize]);
                    prop_assert_eq!(done.is_ok(), members.contains_key(&slot));
                    if let Some(member) = members.get_mut(&slot) {
                        member.holder = None;
                    }
                }
                Step::Wait(block) => {
                    let mut expected = Vec::new();
                    for (slot, member) in &mut members {
                        if member.holder == Some(block) {
                            member.holder = None;
                        }
                        let at = *slot as usize;
                        let is_ready = landed[at] > read[at] || member.asks_for_space;
                        if member.holder.is_none() && is_ready {
                            member.holder = Some(block);
                            expected.push(member.token);
                        }
                    }
                    expected.sort_unstable();
                    prop_assert_eq!(proxy.take(&mut blocks[block]), expected);
                }
                Step::Replace(slot) => {
                    let at = slot as usize;
                    retire(&world, slot);
                    proxy.tell(slot);
                    // As who takes the slot does, before the socket is opened.
                    let _ = group.remove(&G, handles[at]);
                    members.remove(&slot);
                    (landed[at], read[at]) = (0, 0);
                    for word in [world.landed(slot), world.released(slot), world.consumed(slot)] {
                        word.set(0);
                    }
                    handles[at] = world.open_driven(slot);
                }
            }
        }
    }
}
