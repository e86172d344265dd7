//! The table of data threads.

use crate::rates;
use crate::table::{Align, Table, duration};
use gpunet_proxy::snapshot::{Snapshot, Thread};

/// The data threads of a snapshot, with their loads since the one before it or since the daemon's
/// start.
pub fn table(before: Option<&Snapshot>, now: &Snapshot) -> Table {
    let mut table = Table::new(vec![
        ("Thread", Align::Right),
        ("Streams", Align::Right),
        ("Busy", Align::Right),
        ("Load", Align::Right),
    ]);
    for thread in &now.threads {
        table.push(vec![
            thread.index.to_string(),
            thread.streams.to_string(),
            duration(thread.busy_ns / 1_000_000),
            format!("{:.1}%", 100.0 * load(before, now, thread)),
        ]);
    }
    table
}

/// The share of the time that a thread has worked.
fn load(before: Option<&Snapshot>, now: &Snapshot, thread: &Thread) -> f64 {
    let before = rates::earlier(before, now);
    let old = before.and_then(|before| before.threads.iter().find(|old| old.index == thread.index));
    let ms = now.uptime_ms - before.map_or(0, |before| before.uptime_ms);
    let busy_ns = thread.busy_ns.saturating_sub(old.map_or(0, |old| old.busy_ns));
    busy_ns as f64 / 1e6 / ms.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ss::tests::snapshot;

    #[test]
    fn a_thread_is_a_line_with_its_load() {
        let at = |pid, uptime_ms, busy_ms: [u64; 2]| {
            let thread = |index, ms| Thread { index, streams: 5 - index, busy_ns: ms * 1_000_000 };
            let threads = vec![thread(0, busy_ms[0]), thread(1, busy_ms[1])];
            Snapshot { threads, ..snapshot(pid, uptime_ms, Vec::new()) }
        };
        let (before, now) = (at(1, 10_000, [1_000, 0]), at(1, 20_000, [3_500, 0]));
        let cells = |before: Option<&Snapshot>| {
            let text = table(before, &now).to_string();
            text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let headings = ["Thread", "Streams", "Busy", "Load"];
        assert_eq!(cells(None), [&headings[..], &["0", "5", "3s", "17.5%", "1", "4", "0s", "0.0%"]].concat());
        assert_eq!(cells(Some(&before))[7], "25.0%");
        assert_eq!(cells(Some(&at(2, 10_000, [1_000, 0])))[7], "17.5%", "another daemon");
    }
}
