//! The kernels between blocks of CPU threads, with one lane and with several.

use gpunet_device::cpu;
use gpunet_diagnose_kernel::{FIRST, Order, Results, Ring, SECOND, Words, failed};

const LIMIT_NS: u64 = 20_000_000_000;
/// Mirrors the errno of [`gpunet_device::Error::TimedOut`].
const TIMED_OUT: i32 = 110;

/// Memory for a launch: words, bytes, results.
struct Memory {
    words: Vec<u64>,
}

impl Memory {
    fn new(words: usize) -> Self {
        Self { words: vec![0; words] }
    }

    fn at(&mut self, word: usize) -> *mut u64 {
        self.words[word..].as_mut_ptr()
    }

    fn results(&mut self) -> Results {
        // SAFETY: the first four words, kept until the launch has ended.
        unsafe { Results::new(self.at(0), 4) }
    }
}

fn ring(memory: &mut Memory, total: usize, limit_ns: u64, roles: u32) -> Ring {
    Ring {
        src: memory.at(1024).cast(),
        dst: memory.at(1024 + total).cast(),
        base: memory.at(256).cast(),
        capacity: 4096,
        published: memory.at(16),
        consumed: memory.at(32),
        total: total as u64,
        seed: 7,
        roles,
        near: 1,
        limit_ns,
        results: memory.results(),
    }
}

#[test]
fn every_byte_crosses_a_ring_whatever_the_number_of_lanes() {
    const TOTAL: usize = 20_011;
    for lanes in [1, 2, 5, 33] {
        let mut memory = Memory::new(1024 + 2 * TOTAL);
        let bytes: Vec<u8> = (0..TOTAL).map(|i| (i * 7 + i / 251) as u8).collect();
        // SAFETY: room for all of them, as `ring` lays it out.
        unsafe { memory.at(1024).cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), TOTAL) };
        let kernel = ring(&mut memory, TOTAL, LIMIT_NS, FIRST | SECOND);
        cpu::launch(2, lanes, kernel).expect("threads").wait().expect("no panic");
        let crc = u64::from(crc32fast::hash(&bytes));
        assert_eq!(memory.words[..2], [crc, crc], "{lanes} lanes");
        // SAFETY: as above.
        let arrived = unsafe { std::slice::from_raw_parts(memory.at(1024 + TOTAL).cast::<u8>(), TOTAL) };
        assert_eq!(arrived, bytes, "{lanes} lanes");
    }
}

fn order(memory: &mut Memory, rounds: u64, broken: u32) -> Order {
    Order {
        data: memory.at(256).cast(),
        own: memory.at(512).cast(),
        flag: memory.at(16),
        ack: memory.at(32),
        words: 200,
        rounds,
        broken,
        near: 1,
        roles: FIRST | SECOND,
        reserved: 0,
        limit_ns: LIMIT_NS,
        results: memory.results(),
    }
}

#[test]
fn a_writer_that_keeps_the_rules_leaves_no_stale_word_and_one_that_does_not_only_stale_ones() {
    for lanes in [1, 5, 33] {
        for (broken, stale) in [(0, 0), (1, 200 * 50)] {
            let mut memory = Memory::new(2048);
            let kernel = order(&mut memory, 50, broken);
            cpu::launch(2, lanes, kernel).expect("threads").wait().expect("no panic");
            assert_eq!(memory.words[..2], [50, stale], "{lanes} lanes, broken: {broken}");
        }
    }
}

#[test]
fn a_kernel_whose_partner_is_gone_ends_with_a_timeout() {
    let mut memory = Memory::new(1024 + 2 * 20_000);
    let kernel = ring(&mut memory, 20_000, 50_000_000, SECOND);
    cpu::launch(1, 1, kernel).expect("threads").wait().expect("no panic");
    assert_eq!(failed(memory.words[1]), Some(TIMED_OUT));

    let (ping, pong) = (memory.at(64), memory.at(80));
    let words = Words { ping, pong, rounds: 3, limit_ns: 50_000_000, results: memory.results() };
    cpu::launch(1, 3, words).expect("threads").wait().expect("no panic");
    assert_eq!(failed(memory.words[0]), Some(TIMED_OUT));
    assert_eq!(memory.words[64], 1, "the first word was published");
}
