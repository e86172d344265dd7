//! Every interleaving of what recorders and a reader do together, by loom
//! ([`gpunet_device::abi::atomic`]).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-records --lib --release models`. Each
//! model names a change of the code by which it fails.
#![allow(unsafe_code)]

use crate::test_rings::TestRings;
use crate::{Kind, Reader, Recorder, WhenFull};
use gpunet_device::Timeout;
use gpunet_device::abi::atomic::{model, yield_now};
use gpunet_device::group::Solo;
use loom::thread;

const NUMBER: Kind = Kind::new(1);

/// The words of a record are its number, the same in each.
fn check(reader: &mut Reader, taken: &mut Vec<u32>) {
    reader.poll(|_, _, head, payload| {
        assert_eq!(head.len, 8, "a length that was never written");
        let (words, _) = payload.as_chunks::<4>();
        let [low, high] = [words[0], words[1]].map(u32::from_le_bytes);
        assert_eq!(low, high, "a record of parts of two");
        taken.push(low);
    });
}

/// A writer overwrites what a reader reads: the reader takes no record of parts of two, none twice
/// and none out of order, and what it takes and what it counts as lost is what was written.
///
/// Fails if `Reader::look` does not compare the tags of the payload, if a recorder stores them
/// without, if a tag does not change with the lap, or if a reader that was passed goes on at
/// another place than it counts.
#[test]
fn a_reader_takes_whole_records_and_counts_the_others() {
    let rings = TestRings::new(1, 2, 8, 0);
    model(2, move || {
        rings.clear();
        let records = rings.records(WhenFull::Overwrite);
        let writer = thread::spawn(move || {
            let g = Solo::new(0, 1);
            let mut recorder = Recorder::open(&g, crate::test_rings::no_net(), records);
            for number in 1..=3 {
                assert!(recorder.record(&g, NUMBER, [number, number]));
            }
            recorder.close(&g);
        });
        let (mut reader, mut taken) = (rings.reader(WhenFull::Overwrite), Vec::new());
        check(&mut reader, &mut taken);
        writer.join().unwrap();
        check(&mut reader, &mut taken);
        check(&mut reader, &mut taken);
        assert!(taken.is_sorted_by(|a, b| a < b), "{taken:?}");
        assert_eq!(taken.last(), Some(&3));
        let found = reader.found();
        assert_eq!((found.records + found.overwritten, found.refused, found.malformed), (3, 0, 0));
        assert_eq!(reader.unfinished(), 0);
    });
}

/// Two groups have one ring, one after the other: the second goes on where the first has stopped,
/// and nothing of the first's comes over it.
///
/// Fails if `take` does not acquire, or `close` does not release; if two recorders take the same
/// ring; or if a recorder without a ring is not counted.
#[test]
fn a_ring_goes_from_one_group_to_the_next() {
    let rings = TestRings::new(1, 2, 8, 0);
    model(2, move || {
        rings.clear();
        let records = rings.records(WhenFull::Overwrite);
        let write = move |index: u32| {
            let g = Solo::new(index, 2);
            let mut recorder = Recorder::open(&g, crate::test_rings::no_net(), records);
            let stored = (0..2).filter(|_| recorder.record(&g, NUMBER, [index, index])).count();
            recorder.close(&g);
            stored as u64
        };
        let other = thread::spawn(move || write(1));
        let stored = write(0) + other.join().unwrap();
        let (mut reader, mut taken) = (rings.reader(WhenFull::Overwrite), Vec::new());
        check(&mut reader, &mut taken);
        let found = reader.found();
        assert_eq!((found.records + found.overwritten, found.refused), (stored, 4 - stored));
        assert_eq!(found.records, 2, "the last two are there");
    });
}

/// A writer that does not overwrite: what it was told to have stored is read, and nothing else.
///
/// Fails if a reader gives room before it has read, or a recorder stores beyond its room.
#[test]
fn what_was_stored_is_read_where_nothing_is_overwritten() {
    let (rings, full) = (TestRings::new(1, 2, 8, 0), WhenFull::Wait(Timeout::NON_BLOCKING));
    model(2, move || {
        rings.clear();
        let records = rings.records(full);
        let writer = thread::spawn(move || {
            let g = Solo::new(0, 1);
            let mut recorder = Recorder::open(&g, crate::test_rings::no_net(), records);
            let stored: Vec<u32> =
                (1..=4).filter(|&number| recorder.record(&g, NUMBER, [number, number])).collect();
            recorder.close(&g);
            stored
        });
        let (mut reader, mut taken) = (rings.reader(full), Vec::new());
        check(&mut reader, &mut taken);
        yield_now();
        check(&mut reader, &mut taken);
        let stored = writer.join().unwrap();
        check(&mut reader, &mut taken);
        assert_eq!(taken, stored);
        let found = reader.found();
        assert_eq!((found.overwritten, found.refused), (0, 4 - stored.len() as u64));
    });
}
