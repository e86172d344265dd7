//! What kernels record and print: making rings, and reading them.

use crate::attachment::gpunet_host_attachment_t;
use crate::failure::{Failure, done, returned};
use crate::handle::handles;
use crate::memory::{self, Out};
use gpunet_device::Timeout;
use gpunet_records_host::{Formats, Level, Reader, Record, Records, Rings, Settings, WhenFull};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// Rings in which kernels record and print, and what reads them. Any thread may use it.
pub struct gpunet_host_records_t(());

handles! { gpunet_host_records_t, RECORDS: RecordsObject, 20, "set of rings" }

/// In `flags`: a record that finds its ring full waits for gpunet_host_records_read, for `wait_ns`.
/// Otherwise the oldest is overwritten.
pub const GPUNET_HOST_RECORDS_WAIT: u32 = 1;

/// Which rings to make. All zeros but `rings`: the defaults.
#[repr(C)]
pub struct gpunet_host_records_settings {
    /// How many rings: one for each block, warp or thread that has a recorder at a time; 1 to
    /// 1048576.
    pub rings: u32,
    /// Records that a ring keeps, rounded up to a power of two, at least 64; 0: 1024.
    pub records: u32,
    /// The longest payload in bytes, rounded up to 12, 44, 108, 236 or 492; 0: 44.
    pub payload: u32,
    /// How many texts gprintf may print; each takes 512 bytes. 0: 128.
    pub texts: u32,
    /// The least important level of lines that are printed; 0: GPUNET_INFO.
    pub level: u32,
    /// 0, or GPUNET_HOST_RECORDS_WAIT.
    pub flags: u32,
    /// With GPUNET_HOST_RECORDS_WAIT: nanoseconds. 0: the record is lost at once. Negative: without
    /// limit, until the launch is cancelled.
    pub wait_ns: i64,
}

/// A record, or a printed line.
#[repr(C)]
pub struct gpunet_host_record {
    /// When it was written, in nanoseconds of the device's clock.
    pub time_ns: u64,
    /// Its number in its ring, from 0.
    pub number: u64,
    /// What it says; of a line its arguments.
    pub payload: *const c_void,
    /// The text of a printed line, and the name of a span or a counter; NULL of other records. Of a
    /// line that cannot be put together the reason, with the level 0.
    pub text: *const c_char,
    /// Bytes of the payload.
    pub payload_len: u32,
    /// The ring it comes from.
    pub ring: u32,
    /// The block that wrote it.
    pub block: u32,
    /// Lines of the same text that were left out before this one, because of its limit.
    pub left_out: u32,
    /// The number that the kernel gave; GPUNET_RECORD_BEGIN, GPUNET_RECORD_END and
    /// GPUNET_RECORD_COUNT for spans and counters; from 32768 on a printed line.
    pub kind: u16,
    /// The multiprocessor; 65535 on the CPU.
    pub sm: u16,
    /// The warp in its block; 255 for a record of the block.
    pub warp: u8,
    /// The lane in its warp; 255 for a record of a block or warp.
    pub lane: u8,
    /// The level of a line, GPUNET_ERROR to GPUNET_TRACE; 0 of other records.
    pub level: u8,
    /// 0.
    pub reserved: u8,
}

/// How many records were read and lost.
#[repr(C)]
pub struct gpunet_host_records_counts {
    /// Records that were read.
    pub records: u64,
    /// Records that were overwritten before they were read.
    pub overwritten: u64,
    /// Records for which there was no room in time, no ring, or no number for their text.
    pub refused: u64,
    /// Records that no recorder writes.
    pub malformed: u64,
}

/// Called by gpunet_host_records_read for each record. What `record` points to lives for the call.
/// No C++ exception may leave it.
pub type gpunet_host_record_fn =
    Option<unsafe extern "C" fn(record: *const gpunet_host_record, user: *mut c_void)>;

pub(crate) struct RecordsObject {
    rings: Rings,
    reading: Mutex<Reading>,
}

struct Reading {
    reader: Reader,
    formats: Formats,
}

impl RecordsObject {
    fn reading(&self) -> Result<MutexGuard<'_, Reading>, Failure> {
        match self.reading.try_lock() {
            Ok(reading) => Ok(reading),
            Err(TryLockError::Poisoned(reading)) => Ok(reading.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Failure::new(
                libc::EBUSY,
                "another thread, or the callback of this one, reads these rings",
            )),
        }
    }
}

fn level(raw: u32) -> Result<Level, Failure> {
    Ok(match raw {
        1 => Level::Error,
        2 => Level::Warn,
        0 | 3 => Level::Info,
        4 => Level::Debug,
        5 => Level::Trace,
        _ => return Err(Failure::new(libc::EINVAL, format!("there is no level {raw}; they are 1 to 5"))),
    })
}

fn settings(raw: &gpunet_host_records_settings) -> Result<Settings, Failure> {
    let or = |value: u32, default: u32| if value == 0 { default } else { value };
    let full = match raw.flags {
        0 => WhenFull::Overwrite,
        GPUNET_HOST_RECORDS_WAIT => WhenFull::Wait(match u64::try_from(raw.wait_ns) {
            Ok(ns) => Timeout::ns(ns),
            Err(_) => Timeout::NEVER,
        }),
        flags => return Err(Failure::new(libc::EINVAL, format!("flags is {flags}; it is 0 or 1"))),
    };
    if raw.rings == 0 {
        return Err(Failure::new(libc::EINVAL, "rings is 0: give one for each block that writes at a time"));
    }
    Ok(Settings {
        records: or(raw.records, 1024),
        payload: or(raw.payload, 44) as usize,
        texts: or(raw.texts, 128),
        level: level(raw.level)?,
        full,
        ..Settings::new(raw.rings)
    })
}

/// Makes rings for kernels of the attachment's device.
///
/// On success `*records` is a handle that gpunet_host_records_close ends. Errors: -EBADF; -EINVAL
/// for settings that cannot be; -ENOMEM when there is no memory for the rings; -EIO with CUDA's
/// error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_records(
    attachment: *const gpunet_host_attachment_t,
    settings: *const gpunet_host_records_settings,
    records: *mut *mut gpunet_host_records_t,
) -> c_int {
    done(|| {
        let out = Out::new(records, "records")?;
        let given = memory::slice(settings, 1)?.first().ok_or_else(|| Failure::of(libc::EFAULT))?;
        let settings = self::settings(given)?;
        let attachment = gpunet_host_attachment_t::of(attachment)?;
        let (rings, reader) = attachment.with(|attachment| Ok(Rings::create(attachment, settings)?))?;
        let formats = Formats::new(&reader, &[]);
        let reading = Mutex::new(Reading { reader, formats });
        out.put(gpunet_host_records_t::new(Arc::new(RecordsObject { rings, reading }))?);
        Ok(())
    })
}

/// Stores what kernels are given: a parameter of type gpunet_records_t, by value. It is valid until
/// gpunet_host_records_close.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_records_value(
    records: *const gpunet_host_records_t,
    value: *mut Records,
) -> c_int {
    done(|| {
        let out = Out::new(value, "value")?;
        let object = gpunet_host_records_t::of(records)?;
        // SAFETY: the caller ends its kernels before it closes the rings: the promise of that call.
        out.put(unsafe { object.rings.records() });
        Ok(())
    })
}

/// Calls `each` with the records that have come since the last call: those of each ring in order,
/// one ring after another. Returns how many there were. It does not wait; of each ring it reads
/// about as many as it keeps at most.
///
/// It may be called while kernels run, and after they have ended, hung or were killed. Errors:
/// -EBADF; -EFAULT without a function; -EBUSY when another thread reads, and from within `each`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_records_read(
    records: *const gpunet_host_records_t,
    each: gpunet_host_record_fn,
    user: *mut c_void,
) -> i64 {
    returned(|| {
        let object = gpunet_host_records_t::of(records)?;
        let each = each.ok_or_else(|| Failure::new(libc::EFAULT, "each is null"))?;
        let mut reading = object.reading()?;
        let Reading { reader, formats } = &mut *reading;
        let count = reader.poll(|record| {
            give(record, formats, |given| {
                // SAFETY: the caller's function, which takes what it gave.
                unsafe { each(given, user) };
            });
        });
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    })
}

/// Gives a record as C has it.
fn give(record: &Record<'_>, formats: &mut Formats, each: impl FnOnce(&gpunet_host_record)) {
    let (text, level, left_out) = match record.head.kind.format().map(|_| formats.line(record)) {
        None if record.mark().is_some() => (formats.name(record).ok().map(str::to_owned), 0, 0),
        None => (None, 0, 0),
        Some(Ok(line)) => (Some(line.text), line.level as u8, line.left_out),
        Some(Err(error)) => (Some(error.to_string()), 0, 0),
    };
    let text = text.map(|text| CString::new(text.replace('\0', "?")).unwrap_or_default());
    each(&gpunet_host_record {
        time_ns: record.head.time_ns,
        number: record.number,
        payload: record.payload.as_ptr().cast(),
        text: text.as_ref().map_or(null(), |text| text.as_ptr()),
        payload_len: record.payload.len() as u32,
        ring: record.ring,
        block: record.head.block,
        left_out,
        kind: record.head.kind.raw(),
        sm: record.head.sm,
        warp: record.head.warp,
        lane: record.head.lane,
        level,
        reserved: 0,
    });
}

/// Stores how many records were read and lost so far.
///
/// Errors: -EBADF; -EBUSY when another thread reads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_records_count(
    records: *const gpunet_host_records_t,
    counts: *mut gpunet_host_records_counts,
) -> c_int {
    done(|| {
        let out = Out::new(counts, "counts")?;
        let object = gpunet_host_records_t::of(records)?;
        let found = object.reading()?.reader.found();
        out.put(gpunet_host_records_counts {
            records: found.records,
            overwritten: found.overwritten,
            refused: found.refused,
            malformed: found.malformed,
        });
        Ok(())
    })
}

/// Frees the rings. No kernel uses them any more; what was not read is lost.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_records_close(records: *mut gpunet_host_records_t) -> c_int {
    done(|| gpunet_host_records_t::take(records).map(drop))
}

/// Returns the clock of kernels on the CPU, in nanoseconds: that of their records.
#[unsafe(no_mangle)]
pub extern "C" fn gpunet_host_now_ns() -> u64 {
    gpunet_device::now_ns()
}
