//! What an answer is made of.

use crate::status::Status;
use gpunet_device::Group;
use gpunet_serve::{Bytes, Digits, Writer};

/// Bytes of the longest answer that this crate gives by itself.
pub(crate) const ERROR_ROOM: usize = 512;
pub(crate) const LINE_END: &[u8] = b"\r\n";

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By its length.
    #[default]
    Length,
    /// It comes in chunks.
    Chunks,
    /// The connection ends with it: for clients of HTTP/1.0.
    Close,
}

/// What an answer has before its body.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'b> {
    pub(crate) status: Status,
    pub(crate) content_type: Bytes<'b>,
    pub(crate) fields: Bytes<'b>,
}

impl<'b> Reply<'b> {
    /// An answer of this status and type.
    #[must_use]
    pub fn new(status: Status, content_type: impl Into<Bytes<'b>>) -> Self {
        Self { status, content_type: content_type.into(), fields: Bytes::EMPTY }
    }

    /// Returns whether an answer of this status never has a body.
    #[must_use]
    pub const fn is_bodiless(&self) -> bool {
        self.status.is_bodiless()
    }

    /// The same with further fields: lines, each with CR LF behind it.
    #[must_use]
    pub fn with_fields(self, fields: impl Into<Bytes<'b>>) -> Self {
        Self { fields: fields.into(), ..self }
    }
}

/// The head of an answer, in pieces. `digits` are those of the body's length.
#[inline(always)]
pub(crate) fn head_parts<'p>(
    reply: &Reply<'p>,
    framing: Framing,
    digits: &'p Digits,
    closes: bool,
    is_11: bool,
) -> [Bytes<'p>; 10] {
    let none = Bytes::EMPTY;
    let has_type = !reply.content_type.is_empty();
    let (name, value, end) = match framing {
        _ if reply.status.is_bodiless() => (none, none, none),
        Framing::Length => (b"Content-Length: ".into(), digits.bytes(), LINE_END.into()),
        Framing::Chunks => (b"Transfer-Encoding: chunked\r\n".into(), none, none),
        Framing::Close => (none, none, none),
    };
    [
        reply.status.line().into(),
        if has_type { b"Content-Type: ".into() } else { none },
        reply.content_type,
        if has_type { LINE_END.into() } else { none },
        name,
        value,
        end,
        reply.fields,
        connection_field(closes, is_11).into(),
        LINE_END.into(),
    ]
}

/// What an answer says of the connection, if it is not what the client expects.
pub(crate) const fn connection_field(closes: bool, is_11: bool) -> &'static [u8] {
    match (closes, is_11) {
        (true, _) => b"Connection: close\r\n",
        (false, true) => b"",
        (false, false) => b"Connection: keep-alive\r\n",
    }
}

/// What the body of an answer is put into. It is made twice: once it is only measured.
#[derive(Debug)]
pub struct Body<'b, 't> {
    output: Option<&'b mut Writer<'t>>,
    len: usize,
    /// Bytes that it has at most.
    most: usize,
}

impl<'b, 't> Body<'b, 't> {
    pub(crate) fn measure(put: &impl Fn(&mut Body<'_, '_>)) -> usize {
        Body { output: None, len: 0, most: usize::MAX }.run(put)
    }

    /// Returns whether it has as many bytes as it was measured to have: what shared memory says may
    /// have changed meanwhile.
    pub(crate) fn make(output: &'b mut Writer<'t>, put: &impl Fn(&mut Body<'_, '_>), most: usize) -> bool {
        Body { output: Some(output), len: 0, most }.run(put) == most
    }

    // The one place: once in a kernel, however often it is called.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn run(mut self, put: &impl Fn(&mut Body<'_, '_>)) -> usize {
        put(&mut self);
        self.len
    }

    /// Appends bytes.
    ///
    /// # Cooperation
    /// All lanes call it with the same bytes.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn put<'a, G: Group>(&mut self, g: &G, bytes: impl Into<Bytes<'a>>) {
        let bytes = bytes.into().first(self.most - self.len);
        self.len += bytes.len();
        if let Some(output) = &mut self.output {
            output.put(g, bytes);
        }
    }

    /// Appends a decimal number.
    ///
    /// # Cooperation
    /// As [`Body::put`].
    pub fn put_number<G: Group>(&mut self, g: &G, number: i64) {
        self.put(g, Digits::of(number).bytes());
    }
}
