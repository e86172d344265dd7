//! Which tests run over which connections.

use crate::args::TestArgs;
use gpunet_rstream_kernel::record::Test;

/// A test and rstream's name for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name in the table.
    pub name: String,
    /// The kernel's work.
    pub test: Test,
}

/// The connections of one run, in order; each is a list of tests.
pub fn plan(args: &TestArgs) -> Vec<Vec<Step>> {
    if !args.all {
        let test = Test { size: args.size, count: args.count, iterations: args.iterations };
        return vec![vec![Step { name: "custom".to_owned(), test }]];
    }
    let sizes = if args.every_size { every_size() } else { DEFAULT_SIZES.to_vec() };
    let latency = |&size: &u64| Step {
        name: format!("{}_lat", size_text(size)),
        test: Test { size, count: 1, iterations: repeats(size) },
    };
    let bandwidth = |&size: &u64| Step {
        name: format!("{}_bw", size_text(size)),
        test: Test { size, count: repeats(size), iterations: 1 },
    };
    vec![sizes.iter().map(latency).collect(), sizes.iter().map(bandwidth).collect()]
}

/// The sizes that rstream tests by default.
const DEFAULT_SIZES: [u64; 4] = [64, 4 << 10, 64 << 10, 1 << 20];

/// The sizes of `rstream -S all`: 64, then each power of two from 128 to 4 MiB and one and a half
/// times as much.
fn every_size() -> Vec<u64> {
    std::iter::once(64).chain((7..=22).flat_map(|log2| [1 << log2, 3 << (log2 - 1)])).collect()
}

/// Returns how often rstream repeats a transfer of this size.
const fn repeats(size: u64) -> u64 {
    match size {
        0..0x400 => 100_000,
        0x400..0x1_0000 => 10_000,
        0x1_0000..0x10_0000 => 1000,
        _ => 100,
    }
}

/// Formats a size as rstream's table does: one digit after the point below ten units, cut off.
pub fn size_text(size: u64) -> String {
    let (log2, unit) = match size {
        0..0x400 => return size.to_string(),
        0x400..0x10_0000 => (10, 'k'),
        0x10_0000..0x4000_0000 => (20, 'm'),
        _ => (30, 'g'),
    };
    let (whole, rest) = (size >> log2, size & ((1 << log2) - 1));
    match (rest * 10) >> log2 {
        tenths @ 1.. if whole < 10 => format!("{whole}.{tenths}{unit}"),
        _ => format!("{whole}{unit}"),
    }
}

/// Formats a count as rstream's table does, in thousands, millions, billions.
pub fn count_text(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..1_000_000 => format!("{}k", count / 1000),
        1_000_000..1_000_000_000 => format!("{}m", count / 1_000_000),
        _ => format!("{}b", count / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(all: bool, every_size: bool) -> TestArgs {
        TestArgs { size: 7, count: 8, iterations: 9, all, every_size, verify: false, json: false }
    }

    #[test]
    fn a_custom_run_is_one_test() {
        let test = Test { size: 7, count: 8, iterations: 9 };
        assert_eq!(plan(&args(false, false)), [[Step { name: "custom".to_owned(), test }]]);
    }

    #[test]
    fn the_default_run_is_four_sizes_over_two_connections() {
        let plan = plan(&args(true, false));
        let names: Vec<Vec<_>> =
            plan.iter().map(|steps| steps.iter().map(|step| step.name.as_str()).collect()).collect();
        assert_eq!(names, [["64_lat", "4k_lat", "64k_lat", "1m_lat"], ["64_bw", "4k_bw", "64k_bw", "1m_bw"]]);
        assert_eq!(plan[0][1].test, Test { size: 4096, count: 1, iterations: 10_000 });
        assert_eq!(plan[1][3].test, Test { size: 1 << 20, count: 100, iterations: 1 });
    }

    #[test]
    fn every_size_is_thirty_three() {
        let sizes: Vec<_> = plan(&args(true, true))[0].iter().map(|step| step.test.size).collect();
        assert_eq!((sizes.len(), &sizes[..4]), (33, &[64, 128, 192, 256][..]));
        assert_eq!(sizes.last(), Some(&(6 << 20)));
        assert!(sizes.is_sorted());
    }

    #[test]
    fn numbers_read_as_rstreams() {
        let sizes = [64, 1000, 1536, 4096, 98_304, 1 << 20, 3 << 19, 12_800_000, 6 << 30].map(size_text);
        assert_eq!(sizes, ["64", "1000", "1.5k", "4k", "96k", "1m", "1.5m", "12m", "6g"]);
        assert_eq!([1, 999, 1000, 100_000, 2_500_000].map(count_text), ["1", "999", "1k", "100k", "2m"]);
    }
}
