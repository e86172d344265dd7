//! Recorders and a reader, in the memory of a test.

#[allow(unsafe_code)]
mod header;

use crate::test_rings::{TestRings, no_net};
use crate::unit::{HEAD, unit};
use crate::{Kind, Reader, Recorder, Shape, WhenFull, gprintf};
use gpunet_device::group::{Lanes, Solo};
use gpunet_device::{Group, Timeout};
use proptest::prelude::*;

const NUMBER: Kind = Kind::new(1);
const DROP: WhenFull = WhenFull::Wait(Timeout::NON_BLOCKING);

/// The first words of all records that have come, ring by ring.
fn numbers(reader: &mut Reader) -> Vec<u32> {
    let mut found = Vec::new();
    reader.poll(|_, _, _, payload| {
        found.push(payload.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes)));
    });
    found
}

fn open(rings: TestRings, full: WhenFull, index: u32) -> (Solo, Recorder) {
    let g = Solo::new(index, 8);
    let recorder = Recorder::open(&g, no_net(), rings.records(full));
    (g, recorder)
}

#[test]
fn a_record_says_who_wrote_it_and_what() {
    let rings = TestRings::new(2, 64, 44, 0);
    let (g, mut recorder) = open(rings, WhenFull::Overwrite, 1);
    let before = gpunet_device::now_ns();
    assert!(recorder.record(&g, Kind::new(77), [1, 2, 3]));
    let mut reader = rings.reader(WhenFull::Overwrite);
    let mut found = Vec::new();
    reader.poll(|ring, number, head, payload| found.push((ring, number, *head, payload.to_vec())));
    let (ring, number, head, payload) = found.pop().unwrap();
    assert_eq!((ring, number, head.kind, head.len, head.block), (1, 0, Kind::new(77), 12, 1));
    assert!(head.time_ns >= before && head.time_ns <= gpunet_device::now_ns());
    assert_eq!(payload, [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    assert!(found.is_empty());
}

#[test]
fn a_reader_that_starts_late_finds_the_last_records_and_counts_the_others() {
    let rings = TestRings::new(1, 64, 12, 0);
    let (g, mut recorder) = open(rings, WhenFull::Overwrite, 0);
    (0..1000).for_each(|number| _ = recorder.record(&g, NUMBER, [number]));
    // The writer is not closed: it has hung.
    let mut reader = rings.reader(WhenFull::Overwrite);
    assert_eq!(numbers(&mut reader), (936..1000).collect::<Vec<_>>());
    let found = reader.found();
    assert_eq!((found.records, found.overwritten, found.lost()), (64, 936, 936));
    recorder.record(&g, NUMBER, [1000]);
    assert_eq!(numbers(&mut reader), [1000]);
    assert_eq!(reader.found().overwritten, 936);
}

#[test]
fn a_full_ring_keeps_its_records_and_counts_the_others_where_records_wait() {
    let rings = TestRings::new(1, 64, 12, 0);
    let (g, mut recorder) = open(rings, DROP, 0);
    let mut reader = rings.reader(DROP);
    let mut stored: Vec<u32> = (0..100).filter(|&number| recorder.record(&g, NUMBER, [number])).collect();
    assert_eq!(stored.len(), 64);
    assert_eq!((reader.found().refused, reader.found().records), (36, 0));
    let mut read = numbers(&mut reader);
    stored.extend((100..110).filter(|&number| recorder.record(&g, NUMBER, [number])));
    read.extend(numbers(&mut reader));
    assert_eq!((read, stored.len()), (stored, 74));
    // The next group goes on with the count.
    recorder.close(&g);
    let (g, mut next) = open(rings, DROP, 5);
    let stored = (0..100).filter(|&number| next.record(&g, NUMBER, [number])).count();
    assert_eq!((stored, reader.found().refused), (64, 36 + 36));
}

#[test]
fn nobody_waits_for_a_reader_that_is_gone() {
    let rings = TestRings::new(1, 64, 12, 0);
    let (g, mut recorder) = open(rings, DROP, 0);
    drop(rings.reader(DROP));
    assert_eq!((0..1000).filter(|&number| recorder.record(&g, NUMBER, [number])).count(), 1000);
}

#[test]
fn groups_without_a_ring_are_counted() {
    let rings = TestRings::new(2, 64, 12, 0);
    let mut all: Vec<_> = (0..3).map(|index| open(rings, WhenFull::Overwrite, index)).collect();
    for (g, recorder) in &mut all {
        (0..10).for_each(|number| _ = recorder.record(g, NUMBER, [number]));
    }
    let mut reader = rings.reader(WhenFull::Overwrite);
    assert_eq!(numbers(&mut reader).len(), 20);
    assert_eq!(reader.found().refused, 10);
    // A ring that was given back is another group's.
    let (g, recorder) = all.remove(0);
    recorder.close(&g);
    let (g, mut recorder) = open(rings, WhenFull::Overwrite, 7);
    assert!(recorder.record(&g, NUMBER, [10]));
    assert_eq!(numbers(&mut reader), [10]);
}

/// A writer that is killed in the middle of a record: what it and others have said before is read,
/// and the record counts as unfinished.
#[test]
fn a_record_without_its_end_stops_its_own_ring_only() {
    let rings = TestRings::new(2, 64, 44, 0);
    let (g, mut killed) = open(rings, WhenFull::Overwrite, 0);
    let (other, mut alive) = open(rings, WhenFull::Overwrite, 1);
    killed.record(&g, NUMBER, [1, 2, 3]);
    killed.record(&g, NUMBER, [4, 5, 6]);
    for units in 0..8 {
        // Its last units were never stored.
        let lost: Vec<_> = (units..8).map(|at| rings.word(0, 1, at)).collect();
        let kept: Vec<u64> = lost.iter().map(|word| word.peek()).collect();
        lost.iter().for_each(|word| word.set(0));
        let mut reader = rings.reader(WhenFull::Overwrite);
        alive.record(&other, NUMBER, [7]);
        let found = numbers(&mut reader);
        assert_eq!((found.first(), found.len()), (Some(&1), units + 2), "{found:?}");
        assert_eq!(reader.unfinished(), u64::from(units > 0), "{units} units");
        lost.iter().zip(kept).for_each(|(word, kept)| word.set(kept));
        assert_eq!(numbers(&mut reader), [4], "it comes when its rest does");
    }
}

#[test]
fn a_payload_that_is_too_long_is_refused() {
    let rings = TestRings::new(1, 64, 12, 0);
    let (g, mut recorder) = open(rings, WhenFull::Overwrite, 0);
    assert!(!recorder.record(&g, NUMBER, [0; 4]));
    assert!(recorder.record(&g, NUMBER, [0; 3]));
    assert_eq!(rings.reader(WhenFull::Overwrite).poll(|_, _, _, _| {}), 1);
}

#[test]
#[allow(unsafe_code)]
fn bytes_come_back() {
    let rings = TestRings::new(1, 64, Shape::MAX_PAYLOAD, 0);
    let (g, mut recorder) = open(rings, WhenFull::Overwrite, 0);
    let mut reader = rings.reader(WhenFull::Overwrite);
    let bytes: Vec<u8> = (0..=255).cycle().take(Shape::MAX_PAYLOAD + 1).collect();
    for len in [0, 1, 3, 4, 5, 31, 491, 492, 493] {
        // SAFETY: nobody writes the bytes while the buffer is used.
        let buffer = unsafe { gpunet_device::Buffer::from_raw_parts(bytes.as_ptr().cast_mut(), len) };
        let is_short = len <= Shape::MAX_PAYLOAD;
        assert_eq!(recorder.record_bytes(&g, NUMBER, buffer), is_short, "{len}");
        let found = reader.poll(|_, _, _, payload| assert_eq!(payload, &bytes[..len]));
        assert_eq!(found, u64::from(is_short));
    }
}

#[test]
fn nothing_is_written_and_nothing_lost_without_rings() {
    let (g, mut recorder) = (Solo::new(0, 1), Recorder::off());
    assert!(!recorder.record(&g, NUMBER, [1]));
    recorder.close(&g);
}

#[test]
fn each_lane_writes_a_record_and_a_group_writes_one() {
    let rings = TestRings::new(2, 64, 12, 0);
    std::thread::scope(|scope| {
        for g in Lanes::group(0, 1, 32) {
            scope.spawn(move || {
                let mut recorder = Recorder::open(&g, no_net(), rings.records(WhenFull::Overwrite));
                for turn in 0..10 {
                    assert!(recorder.record_each(&g, NUMBER, [turn * 100 + g.rank()]));
                    assert!(recorder.record(&g, NUMBER, [turn * 100 + 99]));
                }
                recorder.close(&g);
            });
        }
    });
    let mut reader = rings.reader(WhenFull::Overwrite);
    let mut last = Vec::new();
    reader.poll(|_, _, head, payload| last.push((payload[0], head.lane)));
    assert_eq!(reader.found().records + reader.found().overwritten, 330);
    let expected = (0..31).map(|lane| (((900 + lane) % 256) as u8, lane as u8));
    assert!(last.iter().rev().skip(2).take(31).rev().copied().eq(expected), "{last:?}");
}

/// Writers and a reader at the same time, the writers as fast as they can: what was read and what
/// was lost is what was written.
#[test]
fn drops_are_counted_exactly() {
    const EACH: u32 = 300_000;
    for full in [WhenFull::Overwrite, DROP] {
        let rings = TestRings::new(3, 64, 12, 0);
        let mut reader = rings.reader(full);
        let mut last = [None; 4];
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|index| {
                    scope.spawn(move || {
                        let (g, mut recorder) = open(rings, full, index);
                        (0..EACH).for_each(|number| _ = recorder.record(&g, NUMBER, [number, index]));
                        recorder.close(&g);
                    })
                })
                .collect();
            loop {
                let all_ended = writers.iter().all(|writer| writer.is_finished());
                let found = reader.poll(|_, _, _, payload| {
                    let (words, _) = payload.as_chunks::<4>();
                    let [number, writer] = [words[0], words[1]].map(u32::from_le_bytes);
                    assert!(last[writer as usize] < Some(number), "twice, or out of order");
                    last[writer as usize] = Some(number);
                });
                if found == 0 && all_ended {
                    break;
                }
            }
        });
        let found = reader.found();
        assert_eq!(found.records + found.lost(), 4 * u64::from(EACH), "{full:?}: {found:?}");
        assert_eq!((found.malformed, reader.unfinished()), (0, 0));
        assert!(found.records > 0 && found.lost() > 0);
    }
}

crate::formats! {
    mod lines: Debug {
        PLAIN: Info(u32, i64) = "{} and {}";
        DETAIL: Debug(u32) = "{}";
        OFF: Trace(u32) = "{}";
        LIMITED: Warn(u32) limit 20 = "{}";
    }
}

/// The argument of a line that is not printed.
fn unwanted() -> u32 {
    panic!("it is evaluated");
}

#[test]
fn lines_travel_by_number() {
    let rings = TestRings::new(1, 64, 24, lines::TABLE.len());
    let (g, mut recorder) = open(rings, WhenFull::Overwrite, 0);
    gprintf!(recorder, &g, lines::PLAIN, 7, -1);
    // The host wants lines down to Info.
    gprintf!(recorder, &g, lines::DETAIL, unwanted());
    gprintf!(recorder, &g, lines::OFF, unwanted());
    let mut found = Vec::new();
    rings
        .reader(WhenFull::Overwrite)
        .poll(|_, _, head, payload| found.push((head.kind.format(), payload.to_vec())));
    let mut payload = 7_u32.to_le_bytes().to_vec();
    payload.extend((-1_i64).to_le_bytes());
    assert_eq!(found, [(Some(0), payload)]);
}

/// A limit leaves lines out, and the next line that is printed says how many: none is unaccounted.
#[test]
fn what_a_limit_leaves_out_is_counted() {
    let rings = TestRings::new(1, 64, 24, lines::TABLE.len());
    let (g, mut recorder) = open(rings, WhenFull::Overwrite, 0);
    let mut reader = rings.reader(WhenFull::Overwrite);
    let (mut printed, mut left_out, mut tried) = (0, 0, 0);
    while printed < 3 {
        gprintf!(recorder, &g, lines::LIMITED, tried);
        tried += 1;
        reader.poll(|_, _, _, payload| {
            let (words, _) = payload.as_chunks::<4>();
            let [before, number] = [words[0], words[1]].map(u32::from_le_bytes);
            left_out += before;
            printed += 1;
            assert_eq!(left_out + printed, number + 1, "all before this one are printed or counted");
        });
    }
    assert!(left_out > 0, "three lines take a tenth of a second at least");
}

proptest! {
    /// Whatever a kernel writes into the rings: a look ends, and what was taken fits.
    #[test]
    fn hostile_words_are_judged(
        words in prop::collection::vec((0u32..2, 0u64..64, 0usize..16, any::<u32>(), 0u32..4), 0..300),
        looks in 1usize..50,
    ) {
        let rings = TestRings::new(2, 64, 44, 0);
        let mut reader = rings.reader(DROP);
        for words in words.chunks(words.len() / looks + 1) {
            for &(ring, number, at, data, tag) in words {
                // The tags of the first laps, of one far away, and of none.
                let tag = [1, 2, data, 1 << 31][tag as usize];
                rings.word(ring, number, at).set(unit(data, tag));
            }
            let mut taken = 0;
            reader.poll(|_, _, head, payload| {
                assert_eq!(usize::from(head.len), payload.len());
                assert!(payload.len() <= rings.shape().payload());
                taken += 1;
            });
            prop_assert!(taken <= 2 * (rings.shape().records() + 2));
        }
    }

    /// A whole record with a length that cannot be is passed over, and the next is read.
    #[test]
    fn a_length_that_cannot_be_is_counted(len in 45u32..=u32::from(u16::MAX)) {
        let rings = TestRings::new(1, 64, 44, 0);
        let (g, mut recorder) = open(rings, WhenFull::Overwrite, 0);
        (0..2).for_each(|number| _ = recorder.record(&g, NUMBER, [number]));
        rings.word(0, 0, 0).set(unit(1 | len << 16, 1));
        let mut reader = rings.reader(WhenFull::Overwrite);
        prop_assert_eq!(numbers(&mut reader), [1]);
        prop_assert_eq!(reader.found().malformed, 1);
        prop_assert!(HEAD == 5);
    }
}
