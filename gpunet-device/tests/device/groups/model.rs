//! Random calls and news against what poll groups promise.

use super::proxy::{G, Proxy, events, retire, room};
use crate::world::{SOCKETS as HOST_SLOT, World};
use gpunet_device::abi::entry::SlotState;
use gpunet_device::poll::{POLLIN, POLLOUT};
use gpunet_device::poll_group::Events;
use gpunet_device::{Handle, RecvHalf};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The last two are the host program's.
const SLOTS: [u32; 6] = [0, 1, 2, 3, HOST_SLOT, HOST_SLOT + 1];
/// The slots of the groups.
const GROUPS: [u32; 2] = [20, 21];
/// Each waits for one of the groups.
const BLOCKS: usize = 4;

/// Sockets and groups by their places in the lists above.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many bytes land.
    Land(usize, u64),
    /// The proxy tells of a change that is none.
    Tell(usize),
    /// A block reads everything of a socket.
    Read(usize),
    Add(usize, usize, bool),
    Modify(usize, usize, bool),
    Remove(usize, usize),
    Rearm(usize, usize),
    /// Out of one group, and into another.
    Move(usize, usize),
    /// A block waits, and does not wait.
    Wait(usize),
    /// A block closes the group, or the proxy does for a launch that has ended; and another takes
    /// the slot.
    Close(usize, bool),
    /// The proxy closes the socket, and another takes the slot. The host tells no group of it.
    Replace(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let socket = 0..SLOTS.len();
    let both = (0..SLOTS.len(), 0..GROUPS.len());
    prop_oneof![
        4 => (socket.clone(), 1..40u64).prop_map(|(socket, n)| Step::Land(socket, n)),
        1 => socket.clone().prop_map(Step::Tell),
        3 => socket.clone().prop_map(Step::Read),
        4 => (both.clone(), any::<bool>()).prop_map(|((socket, group), out)| Step::Add(socket, group, out)),
        1 => (both.clone(), any::<bool>()).prop_map(|((socket, group), out)| Step::Modify(socket, group, out)),
        1 => both.clone().prop_map(|(socket, group)| Step::Remove(socket, group)),
        1 => both.clone().prop_map(|(socket, group)| Step::Rearm(socket, group)),
        1 => both.prop_map(|(socket, group)| Step::Move(socket, group)),
        6 => (0..BLOCKS).prop_map(Step::Wait),
        1 => (0..GROUPS.len(), any::<bool>()).prop_map(|(group, by_proxy)| Step::Close(group, by_proxy)),
        1 => (socket, any::<bool>()).prop_map(|(socket, by_host)| Step::Replace(socket, by_host)),
    ]
}

/// What a member of a group is to the model.
#[derive(Clone, Copy)]
struct Member {
    group: usize,
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

    /// A wait delivers exactly the sockets that are ready and that no other block has: none is
    /// lost, none is delivered twice.
    #[test]
    fn a_wait_delivers_what_is_ready_and_no_other_block_has(steps in prop::collection::vec(step(), 1..80)) {
        let world = World::new();
        let net = world.net();
        let mut handles: Vec<Handle> = SLOTS.map(|slot| world.open_driven(slot)).into();
        let (mut landed, mut read) = ([0u64; SLOTS.len()], [0u64; SLOTS.len()]);
        let new = |group: usize| Proxy::new(&world, GROUPS[group], SLOTS.len() as u32);
        let mut proxies = [0, 1].map(|group| Some(new(group)));
        let mut memory: Vec<_> = (0..BLOCKS).map(|_| room(SLOTS.len())).collect();
        let mut blocks: Vec<Events> = memory.iter_mut().map(|memory| events(memory)).collect();
        let mut members = BTreeMap::<usize, Member>::new();
        let mut tokens = 0;
        for step in steps {
            let groups = [0, 1].map(|at| proxies[at].as_ref().unwrap().group);
            let is_in = |members: &BTreeMap<usize, Member>, socket, group| {
                members.get(&socket).is_some_and(|member: &Member| member.group == group)
            };
            tokens += 1;
            match step {
                Step::Land(at, n) => {
                    landed[at] = (landed[at] + n).min(read[at] + 1000);
                    world.landed(SLOTS[at]).publish(landed[at]);
                    proxies.iter_mut().flatten().for_each(|proxy| proxy.tell(SLOTS[at]));
                }
                Step::Tell(at) => proxies.iter_mut().flatten().for_each(|proxy| proxy.tell(SLOTS[at])),
                Step::Read(at) => {
                    let mut half = RecvHalf::from_handle(&G, net, handles[at]).unwrap();
                    let n = half.available(&G).unwrap();
                    half.release(&G, n);
                    prop_assert_eq!(n as u64, landed[at] - read[at]);
                    read[at] = landed[at];
                }
                Step::Add(at, group, asks_for_space) => {
                    let added = groups[group].add(&G, handles[at], events_of(asks_for_space), tokens);
                    prop_assert_eq!(added.is_ok(), !members.contains_key(&at));
                    members.entry(at).or_insert(Member { group, token: tokens, asks_for_space, holder: None });
                }
                Step::Modify(at, group, asks_for_space) => {
                    let done = groups[group].modify(&G, handles[at], events_of(asks_for_space), tokens);
                    prop_assert_eq!(done.is_ok(), is_in(&members, at, group));
                    if done.is_ok() {
                        members.insert(at, Member { group, token: tokens, asks_for_space, holder: None });
                    }
                }
                Step::Remove(at, group) => {
                    let done = groups[group].remove(&G, handles[at]);
                    prop_assert_eq!(done.is_ok(), is_in(&members, at, group));
                    members.retain(|member, _| done.is_err() || *member != at);
                }
                Step::Rearm(at, group) => {
                    let done = groups[group].rearm(&G, handles[at]);
                    prop_assert_eq!(done.is_ok(), is_in(&members, at, group));
                    if let (Ok(()), Some(member)) = (done, members.get_mut(&at)) {
                        member.holder = None;
                    }
                }
                Step::Move(at, group) => {
                    if let Some(Member { group: from, .. }) = members.get(&at) {
                        groups[*from].remove(&G, handles[at]).unwrap();
                    }
                    groups[group].add(&G, handles[at], POLLIN, tokens).unwrap();
                    members.insert(at, Member { group, token: tokens, asks_for_space: false, holder: None });
                }
                Step::Wait(block) => {
                    let group = block % GROUPS.len();
                    let mut expected = Vec::new();
                    for (at, member) in members.iter_mut().filter(|(_, member)| member.group == group) {
                        if member.holder == Some(block) {
                            member.holder = None;
                        }
                        let is_ready = landed[*at] > read[*at] || member.asks_for_space;
                        if member.holder.is_none() && is_ready {
                            member.holder = Some(block);
                            expected.push(member.token);
                        }
                    }
                    expected.sort_unstable();
                    prop_assert_eq!(proxies[group].as_ref().unwrap().take(&mut blocks[block]), expected);
                }
                Step::Close(group, by_proxy) => {
                    let closed = proxies[group].take().unwrap();
                    let handle = closed.group.handle();
                    if by_proxy {
                        world.set_state(handle.slot(), SlotState::retired(handle.generation()));
                    } else {
                        closed.close();
                    }
                    members.retain(|_, member| member.group != group);
                    proxies[group] = Some(new(group));
                }
                Step::Replace(at, by_host) => {
                    let slot = SLOTS[at];
                    let generation = handles[at].generation() + u32::from(by_host);
                    if !by_host {
                        retire(&world, slot);
                        proxies.iter_mut().flatten().for_each(|proxy| proxy.tell(slot));
                        // As who takes the slot does, before the socket is opened.
                        groups.iter().for_each(|group| _ = group.remove(&G, handles[at]));
                    }
                    members.remove(&at);
                    (landed[at], read[at]) = (0, 0);
                    for word in [world.landed(slot), world.released(slot), world.consumed(slot)] {
                        word.set(0);
                    }
                    handles[at] = world.open_driven_as(generation, slot);
                }
            }
        }
    }
}
