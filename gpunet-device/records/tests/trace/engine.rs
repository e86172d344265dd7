//! A trace is read by the trace engine of Chrome's developer tools, a program that is not ours.

use super::{Said, said, trace_text};
use crate::check::check;
use gpunet_records::Kind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// Names the folder of the npm package @paulirish/trace_engine.
const ENGINE: &str = "GPUNET_TRACE_ENGINE";

/// A span: its name, and its beginning and length in nanoseconds.
type Span = (String, i64, i64);
type Threads = BTreeMap<String, (String, Vec<Span>)>;

/// Groups of three rings whose spans lie inside each other, with lines and counters between them,
/// and some whose beginning or end is missing.
fn records() -> Vec<Said> {
    let mut all = Vec::new();
    let mut put = |ring, block, time_ns, kind: Kind, payload: &[u32]| {
        all.push(Said { ring, block, ..said(kind, time_ns, payload) });
    };
    for step in 0..50_u64 {
        for ring in 0..3_u32 {
            let (block, at) = (ring / 2, 1_000_000 + step * 10_000 + u64::from(ring));
            put(ring, block, at, Kind::BEGIN, &[0]);
            put(ring, block, at + 1_003, Kind::from_raw(1 << 15 | 2), &[step as u32]);
            put(ring, block, at + 2_000, Kind::BEGIN, &[1]);
            put(ring, block, at + 2_500, Kind::COUNTER, &[1, step as u32, 0]);
            if step % 10 != 9 {
                put(ring, block, at + 3_007, Kind::END, &[1]);
            }
            put(ring, block, at + 9_000, Kind::END, &[0]);
            if step % 10 == 3 {
                put(ring, block, at + 9_100, Kind::END, &[1]);
            }
        }
    }
    all
}

/// The spans of our own reader.
fn ours(text: &str) -> Threads {
    let checked = check(text);
    let mut open: BTreeMap<u64, Vec<(String, f64)>> = BTreeMap::new();
    let mut threads = Threads::new();
    for event in &checked.events {
        let (Some(tid), Some(ts)) = (event["tid"].as_u64(), event.get("ts").and_then(Value::as_f64)) else {
            continue;
        };
        if event["ph"] == "B" {
            let name = event["name"].as_str().expect("a name").to_owned();
            open.entry(tid).or_default().push((name, ts));
        } else if event["ph"] == "E" {
            let (name, began) = open.get_mut(&tid).and_then(Vec::pop).expect("checked");
            let thread = checked.threads.get(&tid).cloned().unwrap_or_default();
            let (_, spans) = threads.entry(tid.to_string()).or_insert((thread, Vec::new()));
            spans.push((name, ns(began), ns(ts - began)));
        }
    }
    threads.values_mut().for_each(|(_, spans)| spans.sort());
    threads
}

fn ns(us: f64) -> i64 {
    (us * 1e3).round() as i64
}

#[test]
fn chromes_developer_tools_find_the_same_spans() {
    let Ok(engine) = std::env::var(ENGINE) else {
        println!("NOT RUN: {ENGINE} names no folder of the npm package @paulirish/trace_engine");
        return;
    };
    let text = trace_text(&records());
    let folder = std::env::temp_dir().join(format!("gpunet-trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("trace.json");
    std::fs::write(&file, &text).expect("written");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trace/engine.mjs");
    let output = Command::new("node").arg(script).arg(engine).arg(&file).output().expect("node");
    std::fs::remove_dir_all(&folder).expect("removed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: BTreeMap<String, Value> = serde_json::from_slice(&output.stdout).expect("its threads");
    let found: Threads = found
        .into_iter()
        .filter(|(_, thread)| thread["spans"].as_array().is_some_and(|spans| !spans.is_empty()))
        .map(|(tid, thread)| {
            let span = |span: &Value| {
                let number = |at: usize| ns(span[at].as_f64().expect("a number"));
                (span[0].as_str().expect("a name").to_owned(), number(1), number(2))
            };
            let mut spans: Vec<_> = thread["spans"].as_array().expect("spans").iter().map(span).collect();
            spans.sort();
            (tid, (thread["name"].as_str().unwrap_or_default().to_owned(), spans))
        })
        .collect();
    assert_eq!(found.values().map(|(_, spans)| spans.len()).sum::<usize>(), 300);
    assert_eq!(found, ours(&text));
}
