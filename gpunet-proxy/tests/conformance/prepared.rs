//! Directions that the host has taken: kernels play what it has prepared, against an ordinary end.
//! The tests take them as the host does, in the device's table.

use crate::support::{Case, Memory, Team, World};
use gpunet_device::Kernel;
use gpunet_device::abi::Context;
use gpunet_device::abi::Word;
use gpunet_device::abi::entry::{Entry, lock};
use gpunet_device::copy::{copy_into_ring, copy_out_of_ring};
use gpunet_device::trigger::{GateExt, PreparedExt, TriggerExt};
use gpunet_device::{Direction, Error, Group, Net, Prepared, Stream, Timeout};
use gpunet_queue_kernel::{QueueRecv, QueueSend, Record};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of both rings, and of a message: not a divisor, so that messages wrap at every place.
const RING: u64 = 4096;
const LEN: usize = 700;
/// Messages until one begins again where the first did: 4 is the largest common divisor. Lanes meet
/// about ten times for each, and each time one of them may sleep and be woken, which takes long
/// where cores are loaded.
const PLACES: usize = RING as usize / 4;

/// Sets who has a direction of a stream. All lanes.
fn give(g: &Team, net: Net, stream: &Stream, direction: Direction, to: u32) {
    g.sync();
    if g.is_leader() {
        // SAFETY: the context of this attachment, which lives until the test has ended.
        let context = unsafe { (net.raw() as *const Context).read() };
        let entries = (context.device + context.device_layout.entries) as *mut Entry;
        let entry = entries.wrapping_add(stream.handle().slot() as usize);
        let word = match direction {
            // SAFETY: a field of the stream's entry in the table.
            Direction::Send => unsafe { &raw mut (*entry).send_lock },
            // SAFETY: as above.
            Direction::Recv => unsafe { &raw mut (*entry).recv_lock },
        };
        // SAFETY: an aligned word, which everybody accesses atomically.
        unsafe { AtomicU32::from_ptr(word) }
            .store(lock::word(stream.handle().generation(), to), Ordering::SeqCst);
    }
    g.sync();
}

/// How many messages of those that one lane moves.
fn messages(case: &Case, most: usize) -> usize {
    if case.lanes == 1 { most } else { case.scaled(most).min(PLACES) }
}

pub fn prepared_sends_arrive_whole_and_in_order(case: &Case) {
    let world = World::of(case);
    let count = messages(case, 4_000);
    let total = count * LEN;
    let (sent, got) = (Memory::filled(3, 0, total), Memory::new(total + 1));
    let net = world.there();
    let client = |g: &Team, stream: Stream| {
        give(g, net, &stream, Direction::Send, lock::TAKEN);
        let first = Prepared::new(stream.handle(), Direction::Send, 0, LEN as u64);
        let mut last = first;
        for i in 0..count {
            last = first.nth(i as u64).expect("a position");
            last.room(RING).wait(g, net, Timeout::NEVER)?;
            let span = last.span(g, net)?;
            let from = sent.buffer().skip(i * LEN);
            // SAFETY: the ring has room for the message, and the buffer holds it.
            unsafe { copy_into_ring(g, span, from.as_ptr()) };
            // Triggers may be left out, and come late: the next one publishes all before it.
            if i % 3 != 1 || i + 1 == count {
                last.trigger().release(g, net)?;
            }
            first.trigger().release(g, net)?;
        }
        last.done().wait(g, net, Timeout::NEVER)?;
        give(g, net, &stream, Direction::Send, lock::FREE);
        stream.close(g)
    };
    let server = |g: &Team, mut stream: Stream| {
        let n = stream.recv_exact(g, got.buffer().first(total))?;
        // Announces what it has read, for whoever waits until all of it is.
        let end = stream.recv(g, got.buffer().skip(total))?;
        stream.close(g)?;
        Ok((n, end))
    };
    let (received, ()) = case.pair(&world, case.rings(RING), server, client);
    assert_eq!(received, (total, 0));
    assert!(got.holds(0, total, 3, 0));
    world.end();
}

pub fn prepared_receives_are_read_in_the_ring_up_to_the_end(case: &Case) {
    let world = World::of(case);
    let count = messages(case, 2_000);
    let total = count * LEN;
    let (sent, got) = (Memory::filled(4, 0, total), Memory::new(total));
    let net = world.net();
    let client = |g: &Team, mut stream: Stream| {
        stream.send_all(g, sent.buffer())?;
        stream.close(g)
    };
    let server = |g: &Team, stream: Stream| {
        give(g, net, &stream, Direction::Recv, lock::TAKEN);
        let first = Prepared::new(stream.handle(), Direction::Recv, 0, LEN as u64);
        for i in 0..count {
            let message = first.nth(i as u64).expect("a position");
            message.arrived().wait(g, net, Timeout::NEVER)?;
            let span = message.span(g, net)?;
            let to = got.buffer().skip(i * LEN);
            // SAFETY: the message has landed, and the buffer has room for it.
            unsafe { copy_out_of_ring(g, to.as_ptr(), span) };
            message.trigger().release(g, net)?;
        }
        let beyond = first.nth(count as u64).expect("a position");
        let ended = beyond.arrived().wait(g, net, Timeout::NEVER);
        give(g, net, &stream, Direction::Recv, lock::FREE);
        stream.close(g)?;
        Ok(ended)
    };
    let (ended, ()) = case.pair(&world, case.rings(RING), server, client);
    assert_eq!(ended, Err(Error::NoData));
    assert!(got.holds(0, total, 4, 0));
    world.end();
}

/// The kernels by which a queue on a CUDA stream carries messages, at both ends.
pub fn kernels_of_queues_move_messages_and_tell_how_far_they_came(case: &Case) {
    const LONG: usize = 20_000;
    const REST: usize = 1000;
    let world = World::of(case);
    let (sent, got) = (Memory::filled(5, 0, LONG + REST), Memory::new(LONG + 2 * REST));
    let pages: [[AtomicU64; 16]; 2] = Default::default();
    // SAFETY: the page's first word, which all access atomically.
    let word = |page: &[AtomicU64; 16]| unsafe { Word::from_ptr(page[0].as_ptr()) };
    let words = pages.each_ref().map(word);
    let (net, there) = (world.net(), world.there());
    let client = |g: &Team, stream: Stream| {
        give(g, there, &stream, Direction::Send, lock::TAKEN);
        let from = sent.buffer();
        for (nth, from) in [from.first(LONG), from.skip(LONG)].into_iter().enumerate() {
            let (socket, record) = (stream.handle().raw(), Record { page: words[0], number: nth as u64 + 1 });
            QueueSend { net: there, socket, reserved: 0, capacity: RING, from, record }.run(g);
        }
        give(g, there, &stream, Direction::Send, lock::FREE);
        stream.close(g)
    };
    let server = |g: &Team, stream: Stream| {
        give(g, net, &stream, Direction::Recv, lock::TAKEN);
        let to = got.buffer();
        for (nth, to) in [to.first(LONG), to.skip(LONG)].into_iter().enumerate() {
            let (socket, record) = (stream.handle().raw(), Record { page: words[1], number: nth as u64 + 1 });
            QueueRecv { net, socket, reserved: 0, capacity: RING, to, record }.run(g);
        }
        give(g, net, &stream, Direction::Recv, lock::FREE);
        stream.close(g)
    };
    case.pair(&world, case.rings(RING), server, client);
    let told = |page: usize, index: usize| pages[page][index].load(Ordering::SeqCst);
    assert_eq!((told(0, 0), told(0, Record::ERRNO)), (2, 0), "all was sent");
    let failure = [Record::ERRNO, Record::OPERATION, Record::BYTES].map(|index| told(1, index));
    assert_eq!((told(1, 0), failure), (2, [Error::NoData.errno() as u64, 2, REST as u64]));
    assert!(got.holds(0, LONG + REST, 5, 0));
    world.end();
}
