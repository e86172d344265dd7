//! Making rings, and reading them.
#![allow(unsafe_code)]

use crate::Error;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::Registration;
use gpunet_proxy::{Attachment, DeviceBuffer};
use gpunet_records::{FormatInfo, FormatText, Found, Level, Record, Records, Shape, WhenFull};
use std::sync::Arc;

/// Which rings to make.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many rings: one for each group (block, warp or thread) that has a recorder at a time.
    pub rings: u32,
    /// How many records a ring keeps at least.
    pub records: u32,
    /// The longest payload of a record, in bytes: of a printed line, what its arguments take.
    pub payload: usize,
    /// What happens to a record that finds its ring full.
    pub full: WhenFull,
    /// The least important level of lines that are printed.
    pub level: Level,
    /// The kernel's formats: `TABLE` of its [`gpunet_records::formats!`].
    pub formats: &'static [FormatInfo],
    /// How many formats `gprintf` of C and C++ has: each text that a kernel prints is one. A line
    /// of one more is lost, and counted. Each takes 512 bytes.
    pub texts: u32,
}

impl Settings {
    /// For so many groups that write at a time: a ring keeps 1024 records of at most 44 bytes (128
    /// KiB), and the oldest are overwritten.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_records_host::{Level, Settings};
    /// let settings = Settings { records: 4096, level: Level::Debug, ..Settings::new(132) };
    /// ```
    #[must_use]
    pub const fn new(rings: u32) -> Self {
        Self {
            rings,
            records: 1024,
            payload: 44,
            full: WhenFull::Overwrite,
            level: Level::Info,
            formats: &[],
            texts: 0,
        }
    }
}

/// The rings of a device's kernels, and their memory. Kernels that run one after another or at the
/// same time may use the same.
#[derive(Debug)]
pub struct Rings {
    // Dropped in this order: the registration before its region.
    registration: Option<Registration>,
    region: Arc<PinnedRegion>,
    device: DeviceBuffer,
    shape: Shape,
    settings: Settings,
}

impl Rings {
    /// Makes rings for kernels of a device, and what reads them.
    ///
    /// # Errors
    /// [`Error`].
    ///
    /// # Examples
    ///
    /// A kernel of two blocks, and what it says:
    ///
    /// ```
    /// use gpunet_proxy::device::{Group, Kernel, Net};
    /// use gpunet_proxy::{Config, FinishPolicy, embed};
    /// use gpunet_records::{Kind, Recorder, Records};
    /// use gpunet_records_host::{Rings, Settings};
    ///
    /// const NUMBER: Kind = Kind::new(1);
    ///
    /// #[derive(Clone, Copy)]
    /// #[repr(C)]
    /// struct Count {
    ///     net: Net,
    ///     records: Records,
    /// }
    ///
    /// impl Kernel for Count {
    ///     const ENTRY: &'static str = "count";
    ///     fn run<G: Group>(self, g: &G) {
    ///         let mut recorder = Recorder::open(g, self.net, self.records);
    ///         for number in 0..10 {
    ///             recorder.record(g, NUMBER, [number]);
    ///         }
    ///         recorder.close(g);
    ///     }
    /// }
    ///
    /// let attachment = embed(Config::small())?.attach_cpu()?;
    /// let (rings, mut reader) = Rings::create(&attachment, Settings::new(2))?;
    /// let program = attachment.load("", 1)?;
    /// // SAFETY: `rings` is dropped after the launch.
    /// let launch =
    ///     unsafe { attachment.launch(&program, 2, 1, |net| Count { net, records: rings.records() }) }?;
    /// let mut sum = 0;
    /// while reader.found().records < 20 {
    ///     reader.poll(|record| sum += record.word(0));
    /// }
    /// assert_eq!(sum, 2 * 45);
    /// launch.finish(FinishPolicy::Close)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create(attachment: &Attachment, settings: Settings) -> Result<(Self, Reader), Error> {
        let Settings { rings, records, payload, texts, .. } = settings;
        let formats = settings.formats.len();
        let shape = Shape::new(rings, records, payload, formats).ok_or(Error::Shape { records, payload })?;
        let shape = shape.with_texts(texts).ok_or(Error::Texts { formats, texts })?;
        let region = attachment.records_memory(shape.bytes())?;
        let registration = attachment.cuda().map(|device| device.register(region.clone())).transpose()?;
        let device = attachment.alloc(shape.device_bytes())?;
        // SAFETY: the region is so large, page-aligned, new and therefore zero, and `Reader` keeps
        // it. A reader uses no memory of the device.
        let records = unsafe {
            Records::new(region.base().as_ptr(), std::ptr::null_mut(), shape, settings.full, settings.level)
        };
        records.tell_formats(settings.formats);
        records.tell_shape();
        // SAFETY: as above.
        let reader = unsafe { gpunet_records::Reader::new(records) };
        let reader = Reader { reader, records, region: region.clone() };
        Ok((Self { registration, region, device, shape, settings }, reader))
    }

    /// What a kernel is given: a parameter of it.
    ///
    /// # Safety
    /// The kernel ends before this value is dropped.
    #[must_use]
    pub unsafe fn records(&self) -> Records {
        let memory = match &self.registration {
            Some(registration) => registration.device_ptr() as *mut u8,
            None => self.region.base().as_ptr(),
        };
        // SAFETY: the caller keeps the memory, as `DeviceBuffer::buffer` and `Records::new` ask.
        let device = unsafe { self.device.buffer() };
        // SAFETY: both memories are so large, aligned to pages, and were zero; recorders and the
        // reader alone access them.
        unsafe {
            Records::new(memory, device.as_ptr().cast(), self.shape, self.settings.full, self.settings.level)
        }
    }

    /// The settings they were made with.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// Reads what kernels say, also after they have ended, hung or were killed, and after [`Rings`] is
/// gone.
///
/// If recorders wait for room, they wait for this; once it is dropped, they overwrite.
#[derive(Debug)]
pub struct Reader {
    reader: gpunet_records::Reader,
    records: Records,
    /// The memory behind the reader's addresses.
    region: Arc<PinnedRegion>,
}

impl Reader {
    /// Gives `each` the records that have come since the last call, those of each ring in order.
    /// Returns how many there were. It waits for nothing.
    ///
    /// Of each ring about as many as it keeps at most: more may be there already.
    pub fn poll(&mut self, mut each: impl FnMut(&Record<'_>)) -> u64 {
        self.reader.poll(|ring, number, head, payload| {
            each(&Record { ring, number, head: *head, payload });
        })
    }

    /// How many records were read, and how many were lost, and why.
    #[must_use]
    pub fn found(&self) -> Found {
        self.reader.found()
    }

    /// How many rings end with the beginning of a record whose rest has not come: of writers that
    /// were killed in the middle, once all have ended.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.reader.unfinished()
    }

    /// The formats that lie in the rings' memory.
    pub(crate) fn texts(&self) -> Texts {
        Texts { records: self.records, _region: self.region.clone() }
    }

    /// The longest payload of a record.
    #[must_use]
    pub const fn longest(&self) -> usize {
        self.reader.shape().payload()
    }
}

/// The formats that lie in the memory of rings.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    records: Records,
    /// The memory behind the addresses.
    _region: Arc<PinnedRegion>,
}

impl Texts {
    /// Returns whether there is a place for a format of that number.
    pub(crate) fn has_place(&self, number: u16) -> bool {
        let shape = self.records.shape();
        u32::from(number) < shape.formats() + shape.texts()
    }

    /// The format; `None`: its text has not come, or is none.
    pub(crate) fn get(&self, number: u16) -> Option<FormatText> {
        self.records.format(number)
    }
}
