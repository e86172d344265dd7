//! The two ends of a ring against a plain byte queue, by random sequences of operations.

use gpunet_abi::Word;
use gpunet_abi::position::{END, StreamWord};
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
        let end = |mine, theirs| RingEnd { base, capacity: CAPACITY, mine, theirs, link: gpunet_abi::Link::DRIVEN };
        // SAFETY: as above; each end writes its own word only.
        let mut producer = unsafe { Producer::new(end(published, consumed), StreamWord(0), StreamWord(0)) };
        // SAFETY: as above.
        let mut consumer = unsafe { Consumer::new(end(consumed, published), StreamWord(0), StreamWord(0)) };
        let mut model = VecDeque::new();
        let mut next = 0u8;
        let mut wants_no_more = None;
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
                    prop_assert_eq!(producer.free(), 0);
                }
                Step::ReceiverEnds => {
                    consumer.finish();
                    consumer.announce();
                    prop_assert_eq!(consumer.available(), 0);
                    wants_no_more.get_or_insert(consumer.position());
                }
                Step::Send(len) => {
                    let span = producer.span(len);
                    prop_assert!(span.len() as u64 <= producer.free());
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
                    for piece in span.pieces() {
                        for i in 0..piece.len {
                            // SAFETY: the span is filled ring memory of this test.
                            let byte = unsafe { piece.ptr.add(i).read() };
                            prop_assert_eq!(Some(byte), model.pop_front());
                        }
                    }
                    consumer.advance(span.len() as u64);
                }
                Step::SenderLooks => { let seen = producer.look(); prop_assert_eq!(producer.accept(seen), Ok(())); }
                Step::ReceiverLooks => { let seen = consumer.look(); prop_assert_eq!(consumer.accept(seen), Ok(())); }
                Step::ReceiverAnnounces => consumer.announce(),
            }
            prop_assert!(producer.free() <= CAPACITY && consumer.available() <= CAPACITY);
            prop_assert!(!consumer.ended() || producer.finished());
            prop_assert!(!producer.reader_left() || consumer.finished());
        }
    }

    #[test]
    fn no_word_makes_an_end_step_outside_the_ring(words in prop::collection::vec(any::<u64>(), 1..100)) {
        let mut memory = vec![0u8; CAPACITY as usize];
        let mut shared = [0u64; 4];
        let (base, first) = (memory.as_mut_ptr(), shared.as_mut_ptr());
        // SAFETY: four words on this stack frame.
        let word = |i: usize| unsafe { Word::from_ptr(first.wrapping_add(i)) };
        let end = |mine, theirs| RingEnd { base, capacity: CAPACITY, mine, theirs, link: gpunet_abi::Link::DRIVEN };
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
