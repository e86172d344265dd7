//! The two ends of a ring against a plain byte queue, by random sequences of operations.

use gpunet_abi::Word;
use gpunet_abi::position::{END, StreamWord, Violation};
use gpunet_abi::ring::{Consumer, Producer, RingEnd};
use proptest::prelude::*;
use std::collections::VecDeque;

const CAPACITY: u64 = 64;

#[derive(Clone, Debug)]
enum Step {
    Send(u64),
    Receive(u64),
    SenderLooks,
    ReceiverLooks,
    ReceiverAnnounces,
    SenderEnds,
    ReceiverEnds,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..100u64).prop_map(Step::Send),
        20 => (0..100u64).prop_map(Step::Receive),
        20 => Just(Step::SenderLooks),
        20 => Just(Step::ReceiverLooks),
        20 => Just(Step::ReceiverAnnounces),
        1 => Just(Step::SenderEnds),
        1 => Just(Step::ReceiverEnds),
    ]
}

proptest! {
    #[test]
    fn bytes_come_out_in_order_and_once(steps in prop::collection::vec(step(), 1..300)) {
        let mut memory = vec![0u8; CAPACITY as usize];
        let mut words = [0u64; 2];
        let base = memory.as_mut_ptr();
        let published = words.as_mut_ptr();
        let consumed = published.wrapping_add(1);
        // SAFETY: both words and the ring live on this stack frame and outlive the two ends.
        let (published, consumed) = unsafe { (Word::from_ptr(published), Word::from_ptr(consumed)) };
        let end = |mine, theirs| RingEnd { base, capacity: CAPACITY, line: std::ptr::null_mut(), mine, theirs, link: gpunet_abi::Link::driven(0), units: false };
        // SAFETY: as above; each end writes its own word only.
        let mut producer = unsafe { Producer::new(end(published, consumed), StreamWord(0), StreamWord(0)) };
        // SAFETY: as above.
        let mut consumer = unsafe { Consumer::new(end(consumed, published), StreamWord(0), StreamWord(0)) };
        let mut model = VecDeque::new();
        let mut next = 0u8;
        let mut wants_no_more = None;
        // What each end knows: bytes sent, consumed, seen to be released, seen to have landed.
        let (mut sent, mut taken, mut announced, mut released, mut landed) = (0, 0, 0, 0, 0);
        let (mut ended, mut left, mut says_left, mut sees_end) = (false, false, false, false);
        for step in steps {
            match step {
                // The position is frozen, and of what lands after it nothing can be read.
                Step::Receive(len) if wants_no_more.is_some() => {
                    prop_assert_eq!(consumer.span(len).len(), 0);
                    consumer.advance(len);
                    prop_assert_eq!(Some(consumer.position()), wants_no_more);
                }
                Step::SenderEnds => {
                    producer.finish();
                    producer.announce();
                    ended = true;
                    prop_assert_eq!(producer.free(), 0);
                }
                Step::ReceiverEnds => {
                    if !says_left {
                        // What has landed and was not read counts as read.
                        taken = landed;
                    }
                    consumer.finish();
                    consumer.announce();
                    (announced, says_left) = (taken, true);
                    prop_assert_eq!(consumer.available(), 0);
                    wants_no_more.get_or_insert(consumer.position());
                }
                Step::Send(len) => {
                    let span = producer.span(len);
                    let free = if ended { 0 } else { CAPACITY - (sent - released) };
                    prop_assert_eq!((span.len() as u64, span.is_empty()), (len.min(free), len.min(free) == 0));
                    sent += span.len() as u64;
                    for piece in span.pieces() {
                        for i in 0..piece.len {
                            // SAFETY: the span is free ring memory of this test.
                            unsafe { piece.ptr.add(i).write(next) };
                            model.push_back(next);
                            next = next.wrapping_add(1);
                        }
                    }
                    producer.advance(span.len() as u64);
                    producer.announce();
                }
                Step::Receive(len) => {
                    let span = consumer.span(len);
                    prop_assert_eq!(span.len() as u64, len.min(landed - taken));
                    taken += span.len() as u64;
                    for piece in span.pieces() {
                        for i in 0..piece.len {
                            // SAFETY: the span is filled ring memory of this test.
                            let byte = unsafe { piece.ptr.add(i).read() };
                            prop_assert_eq!(Some(byte), model.pop_front());
                        }
                    }
                    consumer.advance(span.len() as u64);
                }
                Step::SenderLooks => {
                    let seen = producer.poll();
                    prop_assert_eq!(producer.accept(seen), Ok(()));
                    (released, left) = (announced, says_left);
                }
                Step::ReceiverLooks => {
                    let seen = consumer.poll();
                    prop_assert_eq!(consumer.accept(seen), Ok(()));
                    (landed, sees_end) = (sent, ended);
                }
                Step::ReceiverAnnounces => {
                    consumer.announce();
                    announced = taken;
                }
            }
            prop_assert_eq!((producer.position(), consumer.position()), (sent, taken));
            prop_assert_eq!((producer.capacity(), consumer.capacity()), (CAPACITY, CAPACITY));
            prop_assert_eq!(producer.free(), if ended { 0 } else { CAPACITY - (sent - released) });
            prop_assert_eq!(consumer.available(), if says_left { 0 } else { landed - taken });
            prop_assert_eq!((producer.finished(), consumer.finished()), (ended, says_left));
            prop_assert_eq!((producer.reader_left(), consumer.ended()), (left, sees_end));
            prop_assert_eq!(producer.is_open(), !ended && !left);
            prop_assert_eq!(consumer.is_open(), !says_left && !sees_end);
            prop_assert!(!producer.failed() && !consumer.failed() && !consumer.broken());
        }
    }

    #[test]
    fn no_word_makes_an_end_step_outside_the_ring(words in prop::collection::vec(any::<u64>(), 1..100)) {
        let mut memory = vec![0u8; CAPACITY as usize];
        let mut shared = [0u64; 4];
        let (base, first) = (memory.as_mut_ptr(), shared.as_mut_ptr());
        // SAFETY: four words on this stack frame.
        let word = |i: usize| unsafe { Word::from_ptr(first.wrapping_add(i)) };
        let end = |mine, theirs| RingEnd { base, capacity: CAPACITY, line: std::ptr::null_mut(), mine, theirs, link: gpunet_abi::Link::driven(0), units: false };
        // SAFETY: as above.
        let mut producer = unsafe { Producer::new(end(word(0), word(1)), StreamWord(0), StreamWord(0)) };
        // SAFETY: as above.
        let mut consumer = unsafe { Consumer::new(end(word(2), word(3)), StreamWord(0), StreamWord(0)) };
        for raw in words {
            for value in [raw, raw % 130, (raw % 130) | END] {
                // Once the other end has finished, its word stands still but for a further mark.
                let (released, landed) = (producer.released(), consumer.landed());
                let word = StreamWord(value);
                for (before, accepted) in [(released, producer.accept(word)), (landed, consumer.accept(word))] {
                    prop_assert!(accepted.is_err() || word.is_well_formed());
                    let moved = word.position() != before.position() || !word.end();
                    prop_assert!(!before.end() || !moved || accepted.is_err());
                }
                prop_assert!(producer.free() <= CAPACITY && consumer.available() <= CAPACITY);
                producer.advance(raw % 7);
                consumer.advance(raw % 5);
            }
        }
    }
}

/// Words of both ends and a ring.
struct Memory {
    words: [u64; 2],
    ring: [u8; CAPACITY as usize],
}

/// Both ends, and their memory on the heap.
fn ends() -> (Producer, Consumer, Box<Memory>) {
    let mut memory = Box::new(Memory { words: [0; 2], ring: [0; CAPACITY as usize] });
    let (first, base) = (memory.words.as_mut_ptr(), memory.ring.as_mut_ptr());
    // SAFETY: two words on the heap, kept by the caller while it uses the ends.
    let word = |i: usize| unsafe { Word::from_ptr(first.wrapping_add(i)) };
    let end = |mine, theirs| RingEnd {
        base,
        capacity: CAPACITY,
        line: std::ptr::null_mut(),
        mine,
        theirs,
        link: gpunet_abi::Link::driven(0),
        units: false,
    };
    // SAFETY: as above; each end writes its own word only.
    let producer = unsafe { Producer::new(end(word(0), word(1)), StreamWord(0), StreamWord(0)) };
    // SAFETY: as above.
    let consumer = unsafe { Consumer::new(end(word(1), word(0)), StreamWord(0), StreamWord(0)) };
    (producer, consumer, memory)
}

#[test]
fn an_end_that_gives_up_says_so_and_moves_no_more() {
    let (mut producer, mut consumer, _memory) = ends();
    producer.advance(10);
    producer.fail();
    producer.announce();
    assert!(producer.failed() && producer.finished() && !producer.is_open());
    assert_eq!((producer.free(), producer.position()), (0, 10));
    assert_eq!(consumer.accept(consumer.poll()), Ok(()));
    assert!(consumer.broken() && !consumer.ended() && !consumer.is_open(), "{:?}", consumer.landed());
    assert_eq!(consumer.available(), 10, "what came before comes first");

    let (mut producer, mut consumer, _memory) = ends();
    consumer.fail();
    consumer.announce();
    assert!(consumer.failed() && consumer.finished() && !consumer.is_open());
    assert_eq!(consumer.available(), 0);
    assert_eq!(producer.accept(producer.poll()), Ok(()));
    assert!(producer.reader_left() && !producer.is_open() && !producer.failed() && !producer.finished());
}

#[test]
fn a_stream_whose_writer_is_gone_ends_where_it_is() {
    let (mut producer, mut consumer, _memory) = ends();
    producer.advance(10);
    producer.announce();
    assert_eq!(consumer.accept(consumer.poll()), Ok(()));
    consumer.end_here();
    assert!(consumer.ended() && !consumer.is_open() && !consumer.broken() && !consumer.finished());
    assert_eq!(consumer.available(), 10);
}

#[test]
fn an_end_goes_on_where_its_words_say() {
    let (producer, consumer, _memory) = ends();
    let (position, seen) = (StreamWord::at(30).with_end(), StreamWord::at(20));
    // SAFETY: the first ends are used no more.
    let again = unsafe { Producer::new(producer.end(), position, seen) };
    assert_eq!(
        (again.word(), again.released(), again.finished(), again.failed()),
        (position, seen, true, false)
    );
    // SAFETY: as above.
    let again = unsafe { Consumer::new(consumer.end(), seen.with_err(), StreamWord::at(40)) };
    assert_eq!((again.word(), again.landed()), (seen.with_err(), StreamWord::at(40)));
    assert!(again.finished() && again.failed());
}

/// A consumer that is ten bytes ahead: a line has brought them, and nothing has landed.
fn ahead() -> (Producer, Consumer, Box<Memory>) {
    let (producer, mut consumer, memory) = ends();
    consumer.take(10);
    (producer, consumer, memory)
}

#[test]
fn a_receiver_that_is_ahead_has_nothing_to_read() {
    let (_producer, mut consumer, _memory) = ahead();
    assert_eq!((consumer.position(), consumer.ahead(), consumer.available()), (10, 10, 0));
    for (landed, ahead, available) in [(4, 6, 0), (10, 0, 0), (13, 0, 3)] {
        assert_eq!(consumer.accept(StreamWord::at(landed)), Ok(()));
        assert_eq!((consumer.ahead(), consumer.available()), (ahead, available), "{landed}");
    }
    assert_eq!(consumer.span(100).len(), 3);
}

#[test]
fn a_line_brings_what_the_buffer_and_the_ring_can_hold() {
    let (_producer, mut consumer, _memory) = ahead();
    assert_eq!([3, 54, 55, 100].map(|len| consumer.line_room(len)), [3, 54, 54, 54]);
    consumer.take(54);
    assert_eq!((consumer.ahead(), consumer.line_room(100)), (CAPACITY, 0));
    assert_eq!(consumer.accept(StreamWord::at(64)), Ok(()));
    assert_eq!(consumer.line_room(100), CAPACITY as usize);
}

#[test]
fn an_end_before_what_a_line_has_brought_is_refused() {
    let (_producer, mut consumer, _memory) = ahead();
    assert!(matches!(consumer.accept(StreamWord::at(9).with_end()), Err(Violation::MovedAfterEnd { .. })));
    let (_producer, mut consumer, _memory) = ahead();
    assert_eq!(consumer.accept(StreamWord::at(10).with_end()), Ok(()));
    assert!(consumer.ended() && consumer.available() == 0);
    // Who has stopped does not mind.
    let (_producer, mut consumer, _memory) = ahead();
    consumer.finish();
    assert_eq!(consumer.word(), StreamWord::at(10).with_end());
    assert_eq!(consumer.accept(StreamWord::at(4).with_end()), Ok(()));
}

#[test]
fn who_stops_has_read_what_has_landed_and_what_lines_have_brought() {
    let (_producer, mut consumer, _memory) = ahead();
    assert_eq!(consumer.accept(StreamWord::at(4)), Ok(()));
    consumer.finish();
    assert_eq!((consumer.position(), consumer.available()), (10, 0));
    let (_producer, mut consumer, _memory) = ends();
    assert_eq!(consumer.accept(StreamWord::at(4)), Ok(()));
    consumer.finish();
    assert_eq!(consumer.position(), 4);
}

#[test]
fn a_ring_has_a_line_or_none() {
    let (producer, _consumer, mut memory) = ends();
    assert!(!producer.end().has_line());
    let line = memory.ring.as_mut_ptr();
    let end = RingEnd { line, ..producer.end() };
    assert!(end.has_line());
    assert_eq!(end.line().header().as_ptr(), line.cast());
}
