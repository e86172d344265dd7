//! What a message costs through a ring when nobody waits: both ends on one thread.
//!
//! "words" moves positions only; the others also copy the bytes in and out.

use criterion::{BenchmarkId, Criterion, Throughput};
use gpunet_abi::ring::{Consumer, Producer, RingEnd};
use gpunet_abi::{StreamWord, Word};
use std::hint::black_box;

const CAPACITY: usize = 256 * 1024;

/// A ring with its two words, and both of its ends.
struct Ring {
    producer: Producer,
    consumer: Consumer,
    _memory: Vec<u8>,
    _words: Box<[u64; 2]>,
}

impl Ring {
    fn new() -> Self {
        let mut memory = vec![0u8; CAPACITY];
        let mut words = Box::new([0u64; 2]);
        let (base, first) = (memory.as_mut_ptr(), words.as_mut_ptr());
        // SAFETY: the two words lie on the heap and live as long as the ends do (same structure).
        let (published, consumed) = unsafe { (Word::from_ptr(first), Word::from_ptr(first.wrapping_add(1))) };
        let end = |mine, theirs| RingEnd {
            base,
            capacity: CAPACITY as u64,
            line: std::ptr::null_mut(),
            mine,
            theirs,
            link: gpunet_abi::Link::driven(0),
            units: false,
        };
        // SAFETY: as above; each end writes its own word only.
        let producer = unsafe { Producer::new(end(published, consumed), StreamWord(0), StreamWord(0)) };
        // SAFETY: as above.
        let consumer = unsafe { Consumer::new(end(consumed, published), StreamWord(0), StreamWord(0)) };
        Self { producer, consumer, _memory: memory, _words: words }
    }

    /// One message through the ring. `bytes`: the sender's and the receiver's memory.
    fn message(&mut self, len: u64, mut bytes: Option<(&[u8], &mut [u8])>) {
        let Self { producer, consumer, .. } = self;
        if producer.free() < len {
            let word = producer.poll();
            producer.accept(word).expect("a valid word");
        }
        let span = producer.span(len);
        if let Some((from, _)) = &bytes {
            let mut at = from.as_ptr();
            for piece in span.pieces() {
                // SAFETY: the pieces are free ring memory, together `len` bytes, as `from` is.
                unsafe { piece.ptr.copy_from_nonoverlapping(at, piece.len) };
                at = at.wrapping_add(piece.len);
            }
        }
        producer.advance(span.len() as u64);
        producer.announce();

        let word = consumer.poll();
        consumer.accept(word).expect("a valid word");
        let span = consumer.span(len);
        if let Some((_, to)) = &mut bytes {
            let mut at = to.as_mut_ptr();
            for piece in span.pieces() {
                // SAFETY: the pieces are filled ring memory, together `len` bytes, as `to` is.
                unsafe { piece.ptr.copy_to_nonoverlapping(at, piece.len) };
                at = at.wrapping_add(piece.len);
            }
        }
        consumer.advance(span.len() as u64);
        consumer.announce();
    }
}

fn ring(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring");
    let mut ring = Ring::new();
    group.throughput(Throughput::Elements(1));
    group.bench_function("words", |b| b.iter(|| ring.message(black_box(64), None)));
    for len in [64, 1024, 16 * 1024, 128 * 1024] {
        let (from, mut to) = (vec![7u8; len], vec![0u8; len]);
        let mut ring = Ring::new();
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(BenchmarkId::new("copied in and out", len), |b| {
            b.iter(|| ring.message(len as u64, Some((black_box(&from), black_box(&mut to)))));
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    ring(&mut criterion);
    criterion.final_summary();
}
