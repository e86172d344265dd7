//! The cost of one scan of all words of an attachment by a data thread: `WordArray::scan`.
//!
//! Two arrays stand for two moments and differ in none, every hundredth or all of their words; each
//! iteration scans the other one with the same shadow, so it finds exactly those changed.

use criterion::{BenchmarkId, Criterion, Throughput};
use gpunet_abi::Word;
use gpunet_core::memory::WordArray;
use std::hint::black_box;

fn array(words: &mut [u64]) -> WordArray {
    // SAFETY: aligned, and `words` outlives the array in `scan`, which owns both and in which
    // nobody else touches them.
    let first = unsafe { Word::from_ptr(words.as_mut_ptr()) };
    // SAFETY: as above: so many words lie there.
    unsafe { WordArray::new(first, words.len()) }
}

fn scan(c: &mut Criterion) {
    let mut group = c.benchmark_group("scan");
    for len in [1_000, 10_000] {
        for (name, every) in [("none changed", usize::MAX), ("1 % changed", 100), ("all changed", 1)] {
            let mut before = vec![0; len];
            let mut after: Vec<u64> = (0..len).map(|i| u64::from(i % every == every - 1)).collect();
            let moments = [array(&mut before), array(&mut after)];
            let mut shadow = vec![0; len];
            let which: Vec<u32> = (0..len as u32).collect();
            let mut now = 0;
            group.throughput(Throughput::Elements(len as u64));
            group.bench_function(BenchmarkId::new(name, len), |b| {
                b.iter(|| {
                    now ^= 1;
                    let mut changed = 0;
                    black_box(moments[now]).scan(&which, &mut shadow, |index, value| {
                        changed += 1;
                        black_box((index, value));
                    });
                    changed
                });
            });
        }
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    scan(&mut criterion);
    criterion.final_summary();
}
