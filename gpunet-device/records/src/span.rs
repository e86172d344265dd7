//! Spans and counters: records whose payload begins with the number of a format, which names them.
//!
//! ```text
//! kind        payload, in words
//! BEGIN, END  0: number of the format
//! COUNTER     0: number of the format, 1 and 2: the value, lower half first
//! ```

use crate::format::Format;
use crate::recorder::Recorder;
use crate::unit::Kind;
use gpunet_device::Group;

impl Recorder {
    /// Notes that a span begins. Its name is the text of a format without arguments. Returns
    /// whether it was noted: a span of a level that the host does not want is not.
    ///
    /// Spans of a group lie inside each other: the one that has begun last ends first.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::Group;
    /// # use gpunet_records::Recorder;
    /// gpunet_records::formats! {
    ///     pub mod spans: Info {
    ///         STEP: Info() = "step";
    ///         WAITING: Info() = "requests that wait";
    ///     }
    /// }
    ///
    /// fn step<G: Group>(g: &G, recorder: &mut Recorder, waiting: u32) {
    ///     recorder.begin(g, spans::STEP);
    ///     recorder.count(g, spans::WAITING, waiting.into());
    ///     // The step.
    ///     recorder.end(g, spans::STEP);
    /// }
    /// ```
    #[inline(always)]
    pub fn begin<G: Group>(&mut self, g: &G, span: Format<()>) -> bool {
        self.mark(g, Kind::BEGIN, span, [span.number().into()])
    }

    /// Notes that a span ends, as [`Recorder::begin`] does.
    #[inline(always)]
    pub fn end<G: Group>(&mut self, g: &G, span: Format<()>) -> bool {
        self.mark(g, Kind::END, span, [span.number().into()])
    }

    /// Notes the value that a counter has now, as [`Recorder::begin`] does. Each group has counters
    /// of its own.
    #[inline(always)]
    pub fn count<G: Group>(&mut self, g: &G, counter: Format<()>, value: i64) -> bool {
        self.mark(g, Kind::COUNTER, counter, [counter.number().into(), value as u32, (value >> 32) as u32])
    }

    #[inline(always)]
    fn mark<G: Group, const N: usize>(
        &mut self,
        g: &G,
        kind: Kind,
        format: Format<()>,
        words: [u32; N],
    ) -> bool {
        format.is_compiled() && self.prints(format.level()) && self.record(g, kind, words)
    }
}

/// What a record says of a span or a counter. The numbers are those of the formats that name them.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A span begins.
    Begin(u16),
    /// A span ends.
    End(u16),
    /// A counter has a value.
    Counter(u16, i64),
}

#[cfg(not(target_arch = "nvptx64"))]
impl Mark {
    /// What a record of that kind says by its payload. `None`: it is of another kind, or its length
    /// or its number cannot be.
    #[must_use]
    pub fn of(kind: Kind, payload: &[u8]) -> Option<Self> {
        let (number, value) = payload.split_first_chunk::<4>()?;
        let format = u16::try_from(u32::from_le_bytes(*number)).ok().filter(|number| *number < 1 << 15)?;
        match kind {
            Kind::BEGIN if value.is_empty() => Some(Self::Begin(format)),
            Kind::END if value.is_empty() => Some(Self::End(format)),
            Kind::COUNTER => Some(Self::Counter(format, i64::from_le_bytes(value.try_into().ok()?))),
            _ => None,
        }
    }

    /// The number of the format that names it.
    #[must_use]
    pub const fn format(self) -> u16 {
        match self {
            Self::Begin(format) | Self::End(format) | Self::Counter(format, _) => format,
        }
    }
}
