//! Groups that announce what they have consumed of a stream whose slot is another socket's by then.

use crate::world::{GENERATION, LAUNCH, World, buffer};
use crate::{G, check, world};
use gpunet_device::abi::atomic::Ordering;
use gpunet_device::abi::entry::{Kind, SlotState, lock};
use gpunet_device::{Error, Handle, PollFd, PollSet, RecvHalf, Timeout, poll};
use gpunet_posix as posix;
use loom::thread;

const NEXT: Handle = Handle::new(1, GENERATION + 1);

/// What `free_slots` and `entry::open` leave of a slot that is taken anew: nothing of the socket
/// before.
fn reopen(world: &World) {
    world.set_state(1, SlotState::retired(GENERATION));
    // In place of stores: loom would let a late exchange, which reads what was there before, come
    // after them.
    world.recv_lock(1).swap(lock::word(NEXT.generation(), lock::FREE), Ordering::AcqRel);
    // SAFETY: the entry of a slot that no group uses.
    let entry = unsafe { &mut *world.entry(1) };
    (entry.recv.position, entry.recv.seen, entry.announced, entry.receiver) = (0, 0, 0, 0);
    world.set_state(1, SlotState::new(Kind::Stream, NEXT.generation(), LAUNCH));
}

/// A group is about to announce, in a poll, when its socket is closed in a cancelled launch and the
/// slot taken anew: two groups that receive from the next socket do not get the same byte.
///
/// Fails if `platform::unlock` is a store, and not an exchange of what the group has stored.
#[test]
fn a_late_announcement_frees_no_half_of_the_slots_next_socket() {
    let world = world();
    let old = world.open_driven(1);
    let mut recv = RecvHalf::from_handle(&G, world.net(), old).unwrap();
    world.fill(1, 0, b"ab");
    world.landed(1).publish(2);
    assert_eq!(recv.recv(&G, buffer(&mut [0; 2])), Ok(2));
    check(2, world, move |world| {
        let net = world.net();
        let late = thread::spawn(move || {
            let mut entry = [PollFd { handle: old.raw(), events: 0, revents: 0 }];
            // SAFETY: the entry outlives the call.
            let set = unsafe { PollSet::from_raw_parts(entry.as_mut_ptr(), 1) };
            // It announces, and finds nothing, or that the handle is stale.
            let _ = poll(&G, net, set, Timeout::NON_BLOCKING);
        });
        reopen(world);
        let receive = move || {
            let mut byte = [0];
            // SAFETY: the byte outlives the call.
            let got = unsafe {
                posix::recv::recv(&G, net, NEXT.raw(), byte.as_mut_ptr(), 1, posix::send::MSG_DONTWAIT)
            };
            got.map(|n| (n, byte[0]))
        };
        let other = thread::spawn(receive);
        let mut got = vec![receive(), other.join().unwrap()];
        late.join().unwrap();
        got.retain(|got| *got != Err(Error::Busy));
        while got.len() < 2 {
            got.push(receive());
        }
        got.sort_unstable_by_key(|got| got.map_or(0, |got| got.1));
        assert_eq!(got, [Ok((1, b'a')), Ok((1, b'b'))]);
        assert_eq!(receive(), Err(Error::WouldBlock));
    });
}
