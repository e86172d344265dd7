//! The copy routine on the CPU, beside `copy_nonoverlapping`.
//!
//! One lane takes the CPU's shortcut. 32 lanes run one after another on one thread: what that costs
//! is the price of the chunk, shift and edge loops that a warp shares on a GPU, not a GPU's speed.

use criterion::{BenchmarkId, Criterion, Throughput};
use gpunet_device::copy::copy;
use std::hint::black_box;

/// Name, and how many bytes source and destination lie past a 16-byte boundary.
const ALIGNMENTS: [(&str, usize, usize); 3] =
    [("aligned", 0, 0), ("alike, off by 3", 3, 3), ("shifted by 5", 8, 3)];

fn copies(c: &mut Criterion) {
    for (name, from, to) in ALIGNMENTS {
        let mut group = c.benchmark_group(format!("copy, {name}"));
        for len in [64, 1024, 16 * 1024, 128 * 1024, 1 << 20] {
            let (source, mut target) = (vec![7u128; len / 16 + 1], vec![0u128; len / 16 + 1]);
            let src = source.as_ptr().cast::<u8>().wrapping_add(from);
            let dst = target.as_mut_ptr().cast::<u8>().wrapping_add(to);
            group.throughput(Throughput::Bytes(len as u64));
            group.bench_function(BenchmarkId::new("copy_nonoverlapping", len), |b| {
                // SAFETY: both vectors hold `len + 16` bytes and are used by this thread alone.
                b.iter(|| unsafe { black_box(src).copy_to_nonoverlapping(black_box(dst), black_box(len)) });
            });
            for lanes in [1, 32] {
                group.bench_function(BenchmarkId::new(format!("lanes: {lanes}"), len), |b| {
                    b.iter(|| {
                        for lane in 0..lanes {
                            // SAFETY: as above.
                            unsafe { copy(lane, lanes, black_box(dst), black_box(src), black_box(len)) };
                        }
                    });
                });
            }
        }
        group.finish();
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    copies(&mut criterion);
    criterion.final_summary();
}
