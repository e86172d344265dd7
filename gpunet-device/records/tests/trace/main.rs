//! Traces of whatever records say, read by a reader of the format.

mod check;
mod engine;

use check::{Checked, check};
use gpunet_records::{
    ChromeTrace, FormatText, Found, Head, Kind, Level, NONE_BYTE, NONE_SM, Record, TraceCounts, Type,
};
use proptest::prelude::*;
use std::io::{self, Write};

fn text(text: &str, types: &[Type]) -> FormatText {
    FormatText {
        level: Level::Info,
        types: types.to_vec(),
        is_limited: false,
        is_printf: false,
        text: text.to_owned(),
    }
}

/// The texts of the formats: "a" and "b" of spans, a line with a number, none of others.
fn known(number: u16) -> Option<FormatText> {
    match number {
        0 => Some(text("a", &[])),
        1 => Some(text("b \"quoted\"\n", &[])),
        2 => Some(text("line {}", &[Type::U32])),
        _ => None,
    }
}

#[derive(Clone, Debug)]
struct Said {
    ring: u32,
    block: u32,
    time_ns: u64,
    kind: u16,
    payload: Vec<u8>,
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn said(kind: Kind, time_ns: u64, payload: &[u32]) -> Said {
    Said { ring: 0, block: 3, time_ns, kind: kind.raw(), payload: words(payload) }
}

fn put(trace: &mut ChromeTrace<impl Write>, said: &Said, number: u64) {
    let Said { ring, block, time_ns, kind, ref payload } = *said;
    let (kind, len) = (Kind::from_raw(kind), payload.len() as u16);
    let head = Head { kind, len, time_ns, block, sm: NONE_SM, warp: NONE_BYTE, lane: NONE_BYTE };
    let record = Record { ring, number, head, payload };
    trace.put(&record, record.format().and_then(known).as_ref());
}

fn trace(all: &[Said]) -> (Checked, TraceCounts) {
    let (text, counts) = traced(all);
    (check(&text), counts)
}

fn trace_text(all: &[Said]) -> String {
    traced(all).0
}

fn traced(all: &[Said]) -> (String, TraceCounts) {
    let mut file = Vec::new();
    let mut trace = ChromeTrace::begin(&mut file, 7, "program \"x\"\t(cpu)").with_others(true);
    all.iter().zip(0..).for_each(|(said, number)| put(&mut trace, said, number));
    let counts = trace.finish().unwrap();
    (String::from_utf8(file).unwrap(), counts)
}

#[test]
fn spans_counters_and_lines_become_events() {
    let line = Kind::from_raw(1 << 15 | 2);
    let (trace, counts) = trace(&[
        said(Kind::BEGIN, 1_000, &[0]),
        said(line, 1_001, &[5]),
        said(Kind::COUNTER, 1_500, &[1, u32::MAX, u32::MAX]),
        said(Kind::BEGIN, 2_000, &[1]),
        said(Kind::END, 2_000, &[1]),
        said(Kind::END, 3_007, &[0]),
        said(Kind::new(9), 4_000, &[1]),
    ]);
    assert_eq!(counts, TraceCounts { events: 7, ..TraceCounts::default() });
    assert_eq!(trace.names("B"), ["a", "b \"quoted\"\n"]);
    assert_eq!(trace.names("i"), ["line 5", "record of kind 9"]);
    let counter = trace.of("C")[0];
    assert_eq!((&counter["args"]["value"], &counter["id"]), (&(-1).into(), &"block 3".into()));
    let (begins, ends) = (trace.of("B"), trace.of("E"));
    let micros = ends[1]["ts"].as_f64().unwrap() - begins[0]["ts"].as_f64().unwrap();
    assert!((micros - 2.007).abs() < 1e-6, "{micros}");
    assert_eq!(trace.threads.values().filter(|name| *name == "block 3").count(), 1);
    let process = trace.of("M")[0];
    assert_eq!(process["args"]["name"], "program \"x\"\t(cpu)");
}

#[test]
fn spans_without_a_beginning_or_an_end_are_counted() {
    let (trace, counts) = trace(&[
        said(Kind::END, 1, &[0]),
        said(Kind::BEGIN, 2, &[0]),
        said(Kind::BEGIN, 3, &[1]),
        // The end of the inner one is missing, and so is that of the next.
        said(Kind::END, 4, &[0]),
        said(Kind::BEGIN, 5, &[1]),
    ]);
    assert_eq!((counts.unpaired, counts.unfinished, counts.events), (1, 2, 6));
    assert_eq!(trace.names("E"), ["b \"quoted\"\n", "a", "b \"quoted\"\n"]);
}

/// A ring that another group has taken, and groups with the same number at the same time.
#[test]
fn groups_of_one_number_and_of_one_ring_are_kept_apart() {
    let at = |ring, block, said: Said| Said { ring, block, ..said };
    let (trace, counts) = trace(&[
        at(0, 1, said(Kind::BEGIN, 1, &[0])),
        at(5, 1, said(Kind::BEGIN, 2, &[1])),
        at(0, 1, said(Kind::END, 3, &[0])),
        at(0, 1, said(Kind::BEGIN, 4, &[0])),
        at(0, 2, said(Kind::BEGIN, 9, &[0])),
        at(0, 2, said(Kind::END, 10, &[0])),
        at(5, 1, said(Kind::END, 11, &[1])),
    ]);
    assert_eq!((counts.unpaired, counts.unfinished, counts.moved), (0, 1, 0));
    // The end that the trace has made is where the group has said something last.
    let made = trace.of("E").into_iter().find(|event| event.contains_key("args")).unwrap().clone();
    let last = trace.of("B").into_iter().rfind(|event| event["tid"] == made["tid"]).unwrap();
    assert_eq!(made["ts"], last["ts"]);
}

#[test]
fn what_is_wrong_with_a_record_is_counted() {
    let line = |number: u16| Kind::from_raw(1 << 15 | number);
    let (trace, counts) = trace(&[
        said(line(9), 1, &[]),            // no such format
        said(line(2), 2, &[1, 2]),        // another length
        said(Kind::BEGIN, 3, &[]),        // no number
        said(Kind::COUNTER, 4, &[0, 1]),  // half a value
        said(Kind::BEGIN, 5, &[1 << 15]), // no number of a format
        said(Kind::BEGIN, 6, &[8]),       // no such format: a span all the same
        said(Kind::END, 7, &[8]),
        said(Kind::from_raw(32_760), 8, &[1]), // a kind of another version
        said(Kind::new(1), 0, &[1]),           // a time before
    ]);
    assert_eq!((counts.unnamed, counts.moved, counts.events), (8, 1, 3));
    assert_eq!((trace.names("B"), trace.names("i")), (vec!["format 8"], vec!["record of kind 1"]));
}

#[test]
fn missing_records_are_in_the_trace() {
    let mut file = Vec::new();
    let mut trace = ChromeTrace::begin(&mut file, 7, "x");
    let found = |overwritten| Found { records: 9, overwritten, refused: 2, malformed: 1 };
    [found(0), found(0), found(5)].into_iter().for_each(|found| trace.missing(found));
    trace.finish().unwrap();
    let trace = check(&String::from_utf8(file).unwrap());
    let overwritten: Vec<_> =
        trace.of("C").iter().map(|event| event["args"]["overwritten"].as_u64()).collect();
    assert_eq!(overwritten, [Some(0), Some(5), Some(5)]);
}

/// Spans that nobody ends, and groups without end, take bounded memory.
#[test]
fn depth_and_tracks_have_bounds() {
    let mut all: Vec<_> = (0..300).map(|at| said(Kind::BEGIN, at, &[0])).collect();
    all.extend((0..300).map(|at| said(Kind::END, 300 + at, &[0])));
    let (_, counts) = trace(&all);
    assert_eq!((counts.events, counts.unpaired, counts.unfinished), (512, 44, 0));

    let mut trace = ChromeTrace::begin(io::sink(), 7, "x");
    for block in 0..70_000 {
        put(&mut trace, &Said { block, ..said(Kind::COUNTER, 1, &[0, 1, 0]) }, 0);
    }
    let counts = trace.finish().unwrap();
    assert_eq!((counts.events, counts.untracked), (65_536, 70_000 - 65_536));
}

/// What has come is written at once: nothing waits for the end but a bracket.
#[test]
fn events_are_written_as_they_come() {
    struct Counted(u64);
    impl Write for Counted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counted = Counted(0);
    let mut trace = ChromeTrace::begin(&mut counted, 7, "x");
    for at in 0..50_000 {
        put(&mut trace, &said(Kind::BEGIN, at, &[0]), 0);
        put(&mut trace, &said(Kind::END, at, &[0]), 0);
    }
    drop(trace);
    assert!(counted.0 > 100_000 * 40, "{}", counted.0);

    // A program that was killed: all but the bracket.
    let mut file = Vec::new();
    let mut trace = ChromeTrace::begin(&mut file, 7, "x");
    put(&mut trace, &said(Kind::new(1), 1, &[0]), 0);
    put(&mut trace, &said(Kind::COUNTER, 1, &[0, 1, 0]), 0);
    drop(trace);
    assert_eq!(check(&(String::from_utf8(file).unwrap() + "]")).of("C").len(), 1);
}

#[test]
fn a_writer_that_fails_ends_the_trace() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut trace = ChromeTrace::begin(Full, 7, "x");
    assert_eq!(trace.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(trace.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
}

fn anything() -> impl Strategy<Value = Said> {
    let kind = prop_oneof![
        4 => Just(Kind::BEGIN.raw()),
        4 => Just(Kind::END.raw()),
        2 => Just(Kind::COUNTER.raw()),
        1 => any::<u16>(),
        1 => (0..4_u16).prop_map(|number| 1 << 15 | number),
    ];
    let payload = prop_oneof![
        8 => (0..4_u32).prop_map(|number| words(&[number])),
        2 => (0..4_u32, any::<i64>()).prop_map(|(number, value)| {
            words(&[number, value as u32, (value >> 32) as u32])
        }),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    let time = prop_oneof![8 => 1_000_u64..2_000, 1 => any::<u64>()];
    (0..3_u32, 0..3_u32, time, kind, payload).prop_map(|(ring, block, time_ns, kind, payload)| Said {
        ring,
        block,
        time_ns,
        kind,
        payload,
    })
}

proptest! {
    /// Whatever records say, the trace is one.
    #[test]
    fn any_records_make_a_trace(all in prop::collection::vec(anything(), 0..60)) {
        let (checked, counts) = trace(&all);
        let written = ["B", "E", "C", "i"].iter().map(|phase| checked.of(phase).len() as u64).sum::<u64>();
        // One more says what is missing.
        prop_assert_eq!(written, counts.events + 1);
    }
}
