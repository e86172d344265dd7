//! What kernels record, and what collectors are sent: rings in which anything may stand, and
//! streams of any bytes.
#![no_main]

use gpunet_records::{Kind, Level, Line, Reader, Record, Records, Shape, WhenFull};
use gpunet_records_host::wire::{self, Decoder, Frame, WireError};
use libfuzzer_sys::fuzz_target;
use std::ptr::null_mut;

fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((&first, rest)) if first % 2 == 0 => stream(rest, usize::from(first) + 1),
        Some((_, rest)) => rings(rest),
        None => {}
    }
});

/// Frames as bytes, and what ends the stream.
fn frames(pieces: std::slice::Chunks<'_, u8>) -> (Vec<u8>, Vec<(u32, u64)>, Option<WireError>) {
    let (mut decoder, mut records, mut missing) = (Decoder::new(), Vec::new(), Vec::new());
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(frame @ Frame::Record { .. })) => wire::put(&frame, &mut records),
                Ok(Some(Frame::Missing { total, .. })) => missing.push((records.len() as u32, total)),
                Ok(None) => break,
                Err(error) => return (records, missing, Some(error)),
            }
        }
    }
    (records, missing, None)
}

/// A stream is the same however it is cut, and its records encode to bytes that it has.
fn stream(bytes: &[u8], piece: usize) {
    let whole = frames(bytes.chunks(bytes.len().max(1)));
    assert_eq!(frames(bytes.chunks(piece)), whole, "pieces change what is found");
    let (records, missing, _) = whole;
    if missing.is_empty() && !records.is_empty() {
        assert_eq!(bytes[wire::MAGIC.len()..][..records.len()], records);
    }
}

/// Steps of twelve bytes: a word of a ring or of a format's text is written, or the rings are read,
/// and lines are put together.
fn rings(steps: &[u8]) {
    let shape = Shape::new(2, 64, 12, 1).and_then(|shape| shape.with_texts(2)).expect("such rings can be");
    let mut memory = vec![0_u64; shape.bytes() / 8];
    let base = memory.as_mut_ptr();
    // SAFETY: the memory is so long, zero, aligned to its words, and accessed by the reader and by
    // `write` below only, one after the other. A reader uses no memory of the device.
    let mut reader = unsafe {
        let full = WhenFull::Wait(gpunet_device::Timeout::NON_BLOCKING);
        Reader::new(Records::new(base.cast(), null_mut(), shape, full, Level::Info))
    };
    // The rings lie at the memory's end: eight words for each record.
    let words = 2 * 64 * 8;
    let first = shape.bytes() / 8 - words;
    // Before them, behind a line for the head and each ring, the texts of three formats.
    let (texts, text_words) = (3 * 8, 3 * 64);
    let (mut taken, mut looks, mut last) = (0, 0, None);
    for step in steps.as_chunks::<12>().0 {
        let at = usize::from(u16::from_le_bytes([step[0], step[1]])) % words;
        let word =
            u64::from_le_bytes([step[2], step[3], step[4], step[5], step[6], step[7], step[8], step[9]]);
        let at = if step[11] % 4 == 3 { texts + at % text_words } else { first + at };
        // SAFETY: a word of the memory.
        unsafe { base.wrapping_add(at).write_volatile(word) };
        if step[10] % 8 == 0 {
            looks += 1;
            reader.poll(|ring, _, head, payload| {
                assert!(ring < 2 && payload.len() <= 12 && payload.len() == usize::from(head.len));
                taken += 1;
                last = Some((*head, payload.to_vec()));
            });
            for format in 0..4 {
                let (Some(text), Some((head, payload))) = (reader.format(format), &last) else { continue };
                assert!(format < 3 && text.types.len() <= 8 && text.text.chars().count() <= 248);
                let head = gpunet_records::Head { kind: Kind::from_raw(format | 1 << 15), ..*head };
                let record = Record { ring: 0, number: 0, head, payload };
                if let Ok(line) = Line::by_text(&record, &text) {
                    assert!(line.text.len() < 248 * 1000);
                }
            }
            assert!(reader.unfinished() <= 2);
        }
    }
    assert!(taken <= looks * 2 * 66, "{taken} records by {looks} looks");
    assert_eq!(reader.found().records, taken);
}
