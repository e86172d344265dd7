//! A trace for Perfetto and chrome://tracing: the JSON array of the [Trace Event Format].
//!
//! Events are written as they come, one in each line; nothing of them is kept but the spans that
//! are open. So a trace is as long as one likes, and one whose program was killed lacks only its
//! last bracket, which readers do without.
//!
//! Nothing that a record says is trusted: times of a track never decrease, every span that begins
//! ends, and there are bounds for tracks and open spans. What had to be left out or moved for that
//! is counted, and the trace says so.
//!
//! [Trace Event Format]:
//! https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

use crate::line::Line;
use crate::reader::Found;
use crate::record::Record;
use crate::span::Mark;
use crate::text::FormatText;
use crate::unit::{NONE_BYTE, NONE_SM};
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::{self, Write};

/// Tracks at most: groups that have written.
const TRACKS: usize = 65_536;
/// Open spans of a ring at most.
const DEPTH: usize = 256;
/// The track of what belongs to no group.
const PROGRAM: u32 = 0;
/// Times are told from a week before the first record on, so that the digits of a nanosecond are
/// left in a reader's floating point, and records that come late are not before the beginning.
const EARLIER_NS: u64 = 7 * 86_400 * 1_000_000_000;

/// What a trace has, and what it lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// Events that records have become.
    pub events: u64,
    /// Ends of spans whose beginning is missing, and spans that lie too deep inside others.
    pub unpaired: u64,
    /// Spans that were ended by the trace, because their ends are missing.
    pub unfinished: u64,
    /// Records that name a format without a text, or whose length is not the format's.
    pub unnamed: u64,
    /// Records of groups for which there was no track any more.
    pub untracked: u64,
    /// Records with a time before that of an earlier record of the group.
    pub moved: u64,
}

/// A group that has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Group {
    ring: u32,
    block: u32,
    warp: u8,
    lane: u8,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.block)?;
        if self.warp != NONE_BYTE {
            write!(f, ", warp {}", self.warp)?;
        }
        if self.lane != NONE_BYTE {
            write!(f, ", lane {}", self.lane)?;
        }
        Ok(())
    }
}

/// The spans of a ring that have begun. A ring has one group at a time.
#[derive(Debug, Default)]
struct Open {
    track: u32,
    spans: Vec<(u16, String)>,
    /// Spans inside these that were left out.
    deeper: u64,
}

/// Writes a trace of one program.
///
/// # Examples
///
/// ```
/// use gpunet_records::{ChromeTrace, Found};
///
/// let mut file = Vec::new();
/// let mut trace = ChromeTrace::begin(&mut file, 4711, "server (cpu)");
/// trace.missing(Found { overwritten: 3, ..Found::default() });
/// trace.finish()?;
/// assert!(String::from_utf8(file)?.contains(r#""overwritten":3"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ChromeTrace<W: Write> {
    out: W,
    pid: u32,
    others: bool,
    /// The time that is 0 in the trace.
    origin: Option<u64>,
    /// The latest time that a record has had.
    last: u64,
    tracks: HashMap<Group, u32>,
    /// The latest time of each track but the program's.
    times: Vec<u64>,
    open: HashMap<u32, Open>,
    counts: TraceCounts,
    missing: Found,
    /// The event that is being written.
    event: String,
    failed: Option<io::Error>,
}

impl<W: Write> ChromeTrace<W> {
    /// Begins the trace of a process.
    pub fn begin(out: W, pid: u32, name: &str) -> Self {
        let mut trace = Self {
            out,
            pid,
            others: false,
            origin: None,
            last: 0,
            tracks: HashMap::new(),
            times: Vec::new(),
            open: HashMap::new(),
            counts: TraceCounts::default(),
            missing: Found::default(),
            event: String::new(),
            failed: None,
        };
        trace.write("[");
        trace.start("M", "process_name", PROGRAM, None);
        trace.args(&format!("\"name\":{}", Json(name)));
        trace.put_event("\n");
        trace.name_track(PROGRAM, "gpunet", 0);
        trace
    }

    /// Whether records that are no lines, spans or counters become events, with their payload. They
    /// do not unless it is set.
    pub const fn with_others(mut self, others: bool) -> Self {
        self.others = others;
        self
    }

    /// Adds a record. `text` is the text of the format that [`Record::format`] names.
    pub fn put(&mut self, record: &Record<'_>, text: Option<&FormatText>) {
        let mark = record.mark();
        let (name, line) = match (mark, text) {
            (Some(_), Some(text)) if text.types.is_empty() => (text.text.clone(), None),
            (None, Some(text)) => match Line::by_text(record, text) {
                Ok(line) => (line.text.clone(), Some(line)),
                Err(_) => return self.counts.unnamed += 1,
            },
            (None, None) if !record.head.kind.has_meaning() => {
                if !self.others {
                    return;
                }
                (format!("record of kind {}", record.head.kind.raw()), None)
            }
            // Without a name a span is still one.
            (Some(mark), _) => {
                self.counts.unnamed += 1;
                (format!("format {}", mark.format()), None)
            }
            (None, None) => return self.counts.unnamed += 1,
        };
        let Some((track, time)) = self.place(record) else { return self.counts.untracked += 1 };
        match mark {
            Some(Mark::Begin(span)) => self.begin_span(record.ring, track, time, span, name),
            Some(Mark::End(span)) => self.end_span(record.ring, track, time, span),
            Some(Mark::Counter(_, value)) => {
                let Group { ring: _, block, warp, lane } = group(record);
                self.start("C", &name, track, Some(time));
                // Readers make a counter of each name and id.
                let id = Group { ring: 0, block, warp, lane }.to_string();
                let _ = write!(self.event, ",\"id\":{}", Json(&id));
                self.args(&format!("\"value\":{value}"));
                self.put_event(",\n");
                self.counts.events += 1;
            }
            None => {
                self.start("i", &name, track, Some(time));
                self.event.push_str(",\"s\":\"t\"");
                let mut args = match line {
                    Some(line) => {
                        format!("\"level\":\"{:?}\",\"left_out\":{}", line.level, line.left_out)
                    }
                    None => {
                        let mut hex = String::with_capacity(record.payload.len() * 2);
                        // Writing to a string does not fail.
                        record.payload.iter().for_each(|byte| _ = write!(hex, "{byte:02x}"));
                        format!("\"payload\":\"{hex}\"")
                    }
                };
                if record.head.sm != NONE_SM {
                    let _ = write!(args, ",\"sm\":{}", record.head.sm);
                }
                self.args(&args);
                self.put_event(",\n");
                self.counts.events += 1;
            }
        }
    }

    /// Tells how many records are missing by now. The trace says so where the numbers change.
    pub fn missing(&mut self, found: Found) {
        if found.lost() != self.missing.lost() {
            self.missing = found;
            self.put_missing();
        }
    }

    /// Hands on what was written so far.
    ///
    /// # Errors
    /// The first error of the writer since the trace began. Nothing is written after it.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.failed.is_none() {
            self.failed = self.out.flush().err();
        }
        self.check()
    }

    /// Returns whether all could be written so far.
    ///
    /// # Errors
    /// As [`ChromeTrace::flush`].
    pub fn check(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), |error| {
            let kind = error.kind();
            // It stays failed.
            self.failed = Some(kind.into());
            Err(error)
        })
    }

    /// Ends all spans that are open and the trace.
    ///
    /// # Errors
    /// As [`ChromeTrace::flush`].
    pub fn finish(mut self) -> io::Result<TraceCounts> {
        let mut rings: Vec<u32> = self.open.keys().copied().collect();
        rings.sort_unstable();
        for ring in rings {
            self.end_all(ring, self.last);
        }
        self.put_missing();
        let TraceCounts { events, unpaired, unfinished, unnamed, untracked, moved } = self.counts;
        let origin = self.origin.unwrap_or(0);
        self.start("M", "gpunet_trace", PROGRAM, None);
        self.args(&format!(
            "\"origin_ns\":\"{origin}\",\"events\":{events},\"unpaired\":{unpaired},\"unfinished\":{unfinished},\
             \"unnamed\":{unnamed},\"untracked\":{untracked},\"moved\":{moved}"
        ));
        self.put_event(",\n");
        self.write("\n]\n");
        self.flush()?;
        Ok(self.counts)
    }

    /// The track of a record, and its time there.
    fn place(&mut self, record: &Record<'_>) -> Option<(u32, u64)> {
        let group = group(record);
        let track = match self.tracks.get(&group) {
            Some(track) => *track,
            None if self.times.len() == TRACKS => return None,
            None => {
                self.times.push(0);
                let track = self.times.len() as u32;
                self.tracks.insert(group, track);
                self.name_track(track, &group.to_string(), group.block);
                track
            }
        };
        let time = record.head.time_ns;
        let origin = *self.origin.get_or_insert(time.saturating_sub(EARLIER_NS));
        let latest = self.times.get_mut(track as usize - 1)?;
        let at = time.max(*latest).max(origin);
        *latest = at;
        self.last = self.last.max(at);
        self.counts.moved += u64::from(at != time);
        Some((track, at))
    }

    fn begin_span(&mut self, ring: u32, track: u32, time: u64, span: u16, name: String) {
        if self.open.get(&ring).is_some_and(|open| open.track != track) {
            // The group that had the ring before has ended.
            self.end_all(ring, 0);
        }
        let open = self.open.entry(ring).or_insert_with(|| Open { track, ..Open::default() });
        if open.spans.len() == DEPTH {
            open.deeper += 1;
            self.counts.unpaired += 1;
            return;
        }
        open.spans.push((span, name.clone()));
        self.start("B", &name, track, Some(time));
        self.put_event(",\n");
        self.counts.events += 1;
    }

    fn end_span(&mut self, ring: u32, track: u32, time: u64, span: u16) {
        let Some(open) = self.open.get_mut(&ring).filter(|open| open.track == track) else {
            return self.counts.unpaired += 1;
        };
        if open.deeper > 0 {
            open.deeper -= 1;
            return;
        }
        let Some(at) = open.spans.iter().rposition(|(begun, _)| *begun == span) else {
            return self.counts.unpaired += 1;
        };
        // The ends of those inside it are missing.
        let ended = open.spans.split_off(at);
        for (inside, (_, name)) in ended.iter().enumerate().rev() {
            self.put_end(name, track, time, inside > 0);
        }
    }

    /// Ends all spans of a ring that are open, not before the last time of their track.
    fn end_all(&mut self, ring: u32, time: u64) {
        let Some(Open { track, spans, .. }) = self.open.remove(&ring) else { return };
        let latest = self.times.get(track as usize - 1).copied().unwrap_or(0);
        for (_, name) in spans.iter().rev() {
            self.put_end(name, track, time.max(latest), true);
        }
    }

    fn put_end(&mut self, name: &str, track: u32, time: u64, is_unfinished: bool) {
        self.start("E", name, track, Some(time));
        if is_unfinished {
            self.args("\"unfinished\":true");
            self.counts.unfinished += 1;
        }
        self.put_event(",\n");
        self.counts.events += 1;
    }

    fn put_missing(&mut self) {
        let Found { overwritten, refused, malformed, .. } = self.missing;
        self.start("C", "missing records", PROGRAM, Some(self.last));
        self.args(&format!("\"overwritten\":{overwritten},\"refused\":{refused},\"malformed\":{malformed}"));
        self.put_event(",\n");
    }

    fn name_track(&mut self, track: u32, name: &str, order: u32) {
        self.start("M", "thread_name", track, None);
        self.args(&format!("\"name\":{}", Json(name)));
        self.put_event(",\n");
        self.start("M", "thread_sort_index", track, None);
        self.args(&format!("\"sort_index\":{order}"));
        self.put_event(",\n");
    }

    /// Begins an event.
    fn start(&mut self, phase: &str, name: &str, track: u32, time: Option<u64>) {
        let (pid, event) = (self.pid, &mut self.event);
        event.clear();
        // Writing to a string does not fail.
        let _ = write!(event, "{{\"ph\":\"{phase}\",\"name\":{},\"pid\":{pid},\"tid\":{track}", Json(name));
        if let Some(time) = time {
            let ns = time.saturating_sub(self.origin.unwrap_or(time));
            let _ = write!(event, ",\"ts\":{}.{:03}", ns / 1000, ns % 1000);
        }
    }

    fn args(&mut self, args: &str) {
        let _ = write!(self.event, ",\"args\":{{{args}}}");
    }

    /// Writes the event that has begun, after what separates it from the one before.
    fn put_event(&mut self, before: &str) {
        self.event.push('}');
        let event = std::mem::take(&mut self.event);
        self.write(before);
        self.write(&event);
        self.event = event;
    }

    fn write(&mut self, text: &str) {
        if self.failed.is_none() {
            self.failed = self.out.write_all(text.as_bytes()).err();
        }
    }
}

const fn group(record: &Record<'_>) -> Group {
    let head = record.head;
    Group { ring: record.ring, block: head.block, warp: head.warp, lane: head.lane }
}

/// A string of JSON.
struct Json<'a>(&'a str);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for char in self.0.chars() {
            match char {
                '"' | '\\' => write!(f, "\\{char}")?,
                '\0'..' ' | '\u{7f}' => write!(f, "\\u{:04x}", char as u32)?,
                char => f.write_char(char)?,
            }
        }
        f.write_char('"')
    }
}
