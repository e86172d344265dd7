//! A request, where it was received or collected.

use crate::head::{Head, flag};
use crate::method::Method;
use crate::syntax;
use gpunet_serve::{Bytes, Heap, Spill};

/// A whole request: its parts lie where it was received or, if it is long or came in chunks, where
/// it was collected.
#[derive(Clone, Copy, Debug)]
pub struct Request<'t> {
    pub(crate) head: Head,
    /// It, and perhaps more.
    pub(crate) received: Bytes<'t>,
    pub(crate) collected: Spill,
    pub(crate) heap: Option<Heap>,
}

impl Request<'_> {
    fn bytes(&self) -> Bytes<'_> {
        match &self.heap {
            Some(heap) if !self.collected.is_empty() => self.collected.bytes(heap),
            _ => self.received,
        }
    }

    fn part(&self, from: u16, to: u16) -> Bytes<'_> {
        self.bytes().slice(from as usize, (to - from) as usize)
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.head.method.unwrap_or_default()
    }

    /// The path, as it was sent: `%20` is three bytes. `*` of `OPTIONS *`.
    #[must_use]
    pub fn path(&self) -> Bytes<'_> {
        self.part(self.head.path, self.head.query)
    }

    /// What follows the question mark behind the path.
    #[must_use]
    pub fn query(&self) -> Bytes<'_> {
        self.part(self.head.query, self.head.target_end).skip(1)
    }

    /// The value of the first field of this name, which is given in lower case, without blanks at
    /// both ends.
    #[must_use]
    pub fn field(&self, lower: &[u8]) -> Option<Bytes<'_>> {
        let mut rest = self.part(self.head.fields, self.head.at);
        loop {
            let line = rest.first(rest.find(b'\r', 0)?);
            let (name, value) = syntax::field(line)?;
            if name.eq_ignore_case(lower) {
                return Some(value);
            }
            rest = rest.skip(line.len() + 2);
        }
    }

    /// The body, whole, and no more in chunks.
    #[must_use]
    pub fn body(&self) -> Bytes<'_> {
        let (bytes, at) = (self.bytes(), self.head.at as usize);
        if self.head.has(flag::CHUNKED) { bytes.skip(at) } else { bytes.slice(at, self.head.length as usize) }
    }
}
