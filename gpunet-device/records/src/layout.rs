//! Where rings lie, and what a kernel is given of them.
//!
//! ```text
//! pinned memory:  | head, 64 B | a line of 64 B for each ring | 512 B for each text | .. | the rings, from a page on |
//! device memory:  | a word for each ring | two words for each format and text | a word for each text |
//! ```
//!
//! Formats are numbered: first those of the host's table, then those whose text a kernel writes.
//! The head has the shape, so that a program that is given the memory alone can read it
//! ([`Shape::found_in`]).

use crate::format::Level;
use crate::unit;
use gpunet_device::Timeout;
use gpunet_device::abi::Word;

/// The head's and a ring's line, in pinned memory.
const LINE: usize = 64;
/// Where the rings begin is a multiple of this.
const PAGE: usize = 4096;
/// The place of a text, in pinned memory.
pub(crate) const TEXT: usize = 512;
/// The first words of the head that tell the shape. Word 0 counts records without a ring.
#[cfg(not(target_arch = "nvptx64"))]
const SHAPE: usize = 8;
/// Marks pinned memory that has rings, and the version of their format.
#[cfg(not(target_arch = "nvptx64"))]
const MAGIC: u64 = u64::from_le_bytes(*b"gpunetP1");
/// Marks a ring that a recorder has, in its word; the other bits count the records of the ring.
pub(crate) const TAKEN: u64 = 1 << 63;
/// In place of a timeout: the oldest record is overwritten.
const OVERWRITE: u64 = u64::MAX;

/// What happens to a record that finds its ring full of records that nobody has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It takes the place of the oldest, which is lost. A writer never waits, and never looks.
    #[default]
    Overwrite,
    /// It waits for the reader for so long, and is lost after that. A wait that is cancelled loses
    /// it, too. [`Timeout::NON_BLOCKING`]: it is lost at once.
    Wait(Timeout),
}

/// How many rings there are, and how large they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    rings: u32,
    records_log2: u32,
    bytes_log2: u32,
    formats: u32,
    texts: u32,
}

impl Shape {
    /// So many rings (at least one; each group that writes at the same time needs one) for
    /// `records` records each, with payloads of at most `payload` bytes, and `formats` formats of
    /// printed lines. Records and payloads are rounded up.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_records::Shape;
    /// let shape = Shape::new(132, 1000, 24, 0).unwrap();
    /// assert_eq!((shape.records(), shape.payload()), (1024, 44));
    /// assert_eq!(shape.bytes(), 12 * 1024 + 132 * 1024 * 128);
    /// assert_eq!(Shape::new(1, 64, 1000, 0), None, "such a payload is too long");
    /// ```
    #[must_use]
    pub const fn new(rings: u32, records: u32, payload: usize, formats: usize) -> Option<Self> {
        if payload > Self::MAX_PAYLOAD || records > 1 << 20 || rings > 1 << 20 || formats > 1 << 15 {
            return None;
        }
        let records = if records < 64 { 64 } else { records.next_power_of_two() };
        let bytes = unit::units(payload) * 8;
        let bytes = if bytes < 64 { 64 } else { bytes.next_power_of_two() };
        Some(Self {
            rings: if rings == 0 { 1 } else { rings },
            records_log2: records.trailing_zeros(),
            bytes_log2: bytes.trailing_zeros(),
            formats: formats as u32,
            texts: 0,
        })
    }

    /// The same with room for so many texts that kernels write: those of `gprintf` in C and C++,
    /// whose formats no table of the host has. `None`: more than 32768 formats and texts.
    #[must_use]
    pub const fn with_texts(self, texts: u32) -> Option<Self> {
        if texts > 1 << 15 || self.formats + texts > 1 << 15 {
            return None;
        }
        Some(Self { texts, ..self })
    }

    /// Rings for exactly so many records: a power of two.
    #[cfg(test)]
    pub(crate) const fn for_test(rings: u32, records: u32, payload: usize, formats: usize) -> Self {
        match Self::new(rings, records, payload, formats) {
            Some(shape) => Self { records_log2: records.trailing_zeros(), ..shape },
            None => panic!("no shape"),
        }
    }

    /// The longest payload of any record: 492 bytes.
    pub const MAX_PAYLOAD: usize = 128 * 4 - unit::HEAD * 4;

    /// The formats of the host's table.
    #[must_use]
    pub const fn formats(self) -> u32 {
        self.formats
    }

    /// Texts that kernels can write.
    #[must_use]
    pub const fn texts(self) -> u32 {
        self.texts
    }

    /// How many rings there are.
    #[must_use]
    #[inline(always)]
    pub const fn rings(self) -> u32 {
        self.rings
    }

    /// How many records a ring keeps.
    #[must_use]
    #[inline(always)]
    pub const fn records(self) -> u64 {
        1 << self.records_log2
    }

    /// The longest payload, in bytes.
    #[must_use]
    #[inline(always)]
    pub const fn payload(self) -> usize {
        (1 << (self.bytes_log2 - 1)) - unit::HEAD * 4
    }

    /// The bytes of pinned memory.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.heads() + ((self.rings as usize) << (self.records_log2 + self.bytes_log2))
    }

    /// The bytes of device memory.
    #[must_use]
    pub const fn device_bytes(self) -> usize {
        self.rings as usize * 8 + self.formats as usize * 16 + self.texts as usize * 24
    }

    const fn heads(self) -> usize {
        self.text(self.formats + self.texts).next_multiple_of(PAGE)
    }

    /// Where the text of a format is in pinned memory.
    const fn text(self, format: u32) -> usize {
        LINE + self.rings as usize * LINE + format as usize * TEXT
    }

    /// The shape as words of the head, and whether records wait.
    #[cfg(not(target_arch = "nvptx64"))]
    const fn words(self, waits: bool) -> [u64; 4] {
        let logs = self.records_log2 as u64 | (self.bytes_log2 as u64) << 8 | (waits as u64) << 16;
        [MAGIC, self.rings as u64, logs, self.formats as u64 | (self.texts as u64) << 32]
    }

    /// The shape that pinned memory of `len` bytes tells, and whether its records wait for a
    /// reader. `None`: no such rings lie there.
    ///
    /// # Safety
    /// `memory` is a page's beginning and mapped for `len` bytes.
    #[cfg(not(target_arch = "nvptx64"))]
    #[allow(unsafe_code)]
    #[must_use]
    pub unsafe fn found_in(memory: *mut u8, len: usize) -> Option<(Self, bool)> {
        if len < PAGE {
            return None;
        }
        let word = |at: usize| {
            // SAFETY: an aligned word of the first page.
            unsafe { Word::from_ptr(memory.wrapping_add(SHAPE + at * 8).cast()) }.peek()
        };
        let [magic, rings, logs, formats] = [word(0), word(1), word(2), word(3)];
        let (records_log2, bytes_log2) = (logs as u8 as u32, (logs >> 8) as u8 as u32);
        let (formats, texts) = (formats as u32, (formats >> 32) as u32);
        let is_known = magic == MAGIC
            && (1..=1 << 20).contains(&rings)
            && (6..=20).contains(&records_log2)
            && (6..=10).contains(&bytes_log2)
            && formats <= 1 << 15
            && texts <= 1 << 15
            && formats + texts <= 1 << 15;
        let shape = Self { rings: rings as u32, records_log2, bytes_log2, formats, texts };
        (is_known && shape.bytes() <= len).then_some((shape, logs >> 16 & 1 == 1))
    }

    /// The lap of record `number`.
    #[inline(always)]
    pub(crate) const fn lap(self, number: u64) -> u64 {
        number >> self.records_log2
    }

    /// The number of the record of that lap at the place of another.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) const fn in_lap(self, number: u64, lap: u64) -> u64 {
        lap << self.records_log2 | number & (self.records() - 1)
    }

    /// Where the place of record `number` of a ring is in pinned memory.
    #[inline(always)]
    pub(crate) const fn record(self, ring: u32, number: u64) -> usize {
        let ring = self.heads() + ((ring as usize) << (self.records_log2 + self.bytes_log2));
        ring + ((number & (self.records() - 1)) << self.bytes_log2) as usize
    }
}

/// The kernel's way to the rings: a parameter of the kernel, as [`gpunet_device::Net`] is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Records {
    /// Null: there are no rings.
    memory: *mut u8,
    device: *mut u64,
    wait: u64,
    rings: u32,
    records_log2: u32,
    bytes_log2: u32,
    formats: u32,
    level: u32,
    texts: u32,
}

// SAFETY: addresses and numbers; the contract of `new` covers all threads.
#[allow(unsafe_code)]
unsafe impl Send for Records {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Records {}

impl Records {
    /// No rings: nothing is written, and no record counts as lost.
    pub const OFF: Self = Self {
        memory: core::ptr::null_mut(),
        device: core::ptr::null_mut(),
        wait: 0,
        rings: 1,
        records_log2: 6,
        bytes_log2: 6,
        formats: 0,
        level: 0,
        texts: 0,
    };

    /// Rings of a shape in memory at these addresses, as the device has them.
    ///
    /// # Safety
    /// [`Shape::bytes`] of pinned memory from `memory` on, a page's beginning, and
    /// [`Shape::device_bytes`] of the device's memory from `device` on, aligned to 8, stay mapped
    /// while kernels use the value. They were zero at first. Recorders of one device and readers
    /// alone access them.
    #[must_use]
    #[allow(unsafe_code)]
    pub const unsafe fn new(
        memory: *mut u8,
        device: *mut u64,
        shape: Shape,
        full: WhenFull,
        level: Level,
    ) -> Self {
        let wait = match full {
            WhenFull::Overwrite => OVERWRITE,
            WhenFull::Wait(timeout) => timeout.packed(),
        };
        let Shape { rings, records_log2, bytes_log2, formats, texts } = shape;
        Self { memory, device, wait, rings, records_log2, bytes_log2, formats, level: level as u32, texts }
    }

    /// Returns whether there are rings.
    #[must_use]
    #[inline(always)]
    pub const fn is_on(self) -> bool {
        !self.memory.is_null()
    }

    /// Returns whether lines of that level are printed.
    #[must_use]
    #[inline(always)]
    pub const fn prints(self, level: Level) -> bool {
        level as u32 <= self.level
    }

    /// The rings' shape.
    #[must_use]
    #[inline(always)]
    pub const fn shape(self) -> Shape {
        Shape {
            rings: self.rings,
            records_log2: self.records_log2,
            bytes_log2: self.bytes_log2,
            formats: self.formats,
            texts: self.texts,
        }
    }

    /// For how long a record waits; `None`: it overwrites.
    #[inline(always)]
    pub(crate) const fn wait(self) -> Option<Timeout> {
        if self.wait == OVERWRITE { None } else { Some(Timeout::unpacked(self.wait)) }
    }

    /// The address of the place of record `number`.
    #[inline(always)]
    pub(crate) const fn record(self, ring: u32, number: u64) -> *mut u64 {
        self.memory.wrapping_add(self.shape().record(ring, number)).cast()
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    const fn pinned(self, at: usize) -> Word {
        // SAFETY: an aligned word of the heads, by the contract of `new`.
        unsafe { Word::from_ptr(self.memory.wrapping_add(at).cast()) }
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    const fn in_device(self, at: usize) -> Word {
        // SAFETY: an aligned word of the device's memory, by the contract of `new`.
        unsafe { Word::from_ptr(self.device.wrapping_add(at)) }
    }

    /// Writes the shape into the head, for [`Shape::found_in`]. The host does so once, before any
    /// other program has the memory.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn tell_shape(self) {
        for (at, word) in self.shape().words(self.wait().is_some()).into_iter().enumerate() {
            self.pinned(SHAPE + at * 8).set(word);
        }
    }

    /// Unit `at` of the text of a format, which is below [`Shape::formats`] and
    /// [`Shape::texts`] together.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) const fn text(self, format: u32, at: usize) -> Word {
        self.pinned(self.shape().text(format) + at * 8)
    }

    /// How many records were lost because their groups had no ring, or their format no number.
    /// Written by the device, by additions; read by the host.
    #[inline(always)]
    pub(crate) const fn homeless(self) -> Word {
        self.pinned(0)
    }

    /// How many records of a ring the reader has read. Written by the host.
    #[inline(always)]
    pub(crate) const fn consumed(self, ring: u32) -> Word {
        self.pinned(LINE + ring as usize * LINE)
    }

    /// How many records did not get into a ring in time. Written by the recorder that has the ring.
    #[inline(always)]
    pub(crate) const fn refused(self, ring: u32) -> Word {
        self.pinned(LINE + ring as usize * LINE + 8)
    }

    /// Whether a recorder has the ring, and how many records its last one had written.
    #[inline(always)]
    pub(crate) const fn holder(self, ring: u32) -> Word {
        self.in_device(ring as usize)
    }

    /// From when on a format may print again, and how many of its lines were left out; `None`: the
    /// host knows of no such format.
    #[inline(always)]
    pub(crate) const fn limit(self, format: u16) -> Option<[Word; 2]> {
        if format as u32 >= self.formats {
            return None;
        }
        let at = self.rings as usize + format as usize * 2;
        Some([self.in_device(at), self.in_device(at + 1)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Places of different records do not overlap, and lie in the memory.
        #[test]
        fn records_have_places_of_their_own(
            (rings, records, payload) in (1u32..5, 1u32..200, 0usize..=Shape::MAX_PAYLOAD),
            (ring, other_ring) in (0u32..5, 0u32..5),
            (number, other) in (0u64..256, 0u64..256),
        ) {
            let shape = Shape::new(rings, records, payload, 0).unwrap();
            prop_assert!(shape.payload() >= payload && shape.records() >= u64::from(records));
            let (a, b) = ((ring % rings, number % shape.records()), (other_ring % rings, other % shape.records()));
            let place = |(ring, number)| shape.record(ring, number);
            let len = unit::units(shape.payload()) * 8;
            prop_assert!(place(a) >= shape.heads() && place(a) + len <= shape.bytes());
            prop_assert!(a == b || place(a).abs_diff(place(b)) >= len);
            prop_assert_eq!(place(a), shape.record(a.0, a.1 + shape.records()));
        }
    }

    #[test]
    fn what_cannot_be_is_no_shape() {
        assert!(Shape::new(1, 64, Shape::MAX_PAYLOAD, 0).is_some());
        assert_eq!(Shape::new(1, 64, Shape::MAX_PAYLOAD + 1, 0), None);
        assert_eq!(Shape::new(1, (1 << 20) + 1, 0, 0), None);
    }
}
