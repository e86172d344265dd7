//! Values into an answer.

use super::text::Text;
use crate::reply::Body;
use gpunet_device::Group;
use gpunet_serve::{Bytes, Digits};

/// Writes a document into the body of an answer ([`crate::Http::answer_with`]), or of a part of
/// one.
///
/// Commas and colons are its own; that what is opened is closed is the caller's.
///
/// # Cooperation
/// All lanes call every method with the same arguments.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Result};
/// # use gpunet_http::{Http, Reply, Status, json};
/// # fn example<G: Group>(g: &G, http: &mut Http<'_, '_>) -> Result<bool> {
/// http.answer_with(g, Reply::new(Status::Ok, b"application/json"), |body| {
///     let mut json = json::Writer::new(g, body);
///     json.object();
///     json.name(b"id").text(b"a \"b\"");
///     json.name(b"counts").array();
///     json.number(1).number(2).end_array();
///     json.end_object();
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct Writer<'w, 'b, 't, G> {
    g: &'w G,
    body: &'w mut Body<'b, 't>,
    /// A value precedes.
    is_behind: bool,
}

impl<'w, 'b, 't, G: Group> Writer<'w, 'b, 't, G> {
    /// A writer into this body.
    pub fn new(g: &'w G, body: &'w mut Body<'b, 't>) -> Self {
        Self { g, body, is_behind: false }
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn put(&mut self, bytes: Bytes<'_>, is_behind: bool) -> &mut Self {
        if self.is_behind {
            self.body.put(self.g, b",");
        }
        self.body.put(self.g, bytes);
        self.is_behind = is_behind;
        self
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn close(&mut self, bytes: Bytes<'_>) -> &mut Self {
        self.is_behind = false;
        self.put(bytes, true)
    }

    /// Opens an object.
    pub fn object(&mut self) -> &mut Self {
        self.put(b"{".into(), false)
    }

    /// Closes it.
    pub fn end_object(&mut self) -> &mut Self {
        self.close(b"}".into())
    }

    /// Opens an array.
    pub fn array(&mut self) -> &mut Self {
        self.put(b"[".into(), false)
    }

    /// Closes it.
    pub fn end_array(&mut self) -> &mut Self {
        self.close(b"]".into())
    }

    /// The name of a member, whose value follows.
    pub fn name<'a>(&mut self, name: impl Into<Bytes<'a>>) -> &mut Self {
        self.string(name.into());
        self.is_behind = false;
        self.put(b":".into(), false)
    }

    /// A string. What has to be escaped is; bytes that are no UTF-8 become U+FFFD, one each.
    pub fn text<'a>(&mut self, text: impl Into<Bytes<'a>>) -> &mut Self {
        self.string(text.into())
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn string(&mut self, text: Bytes<'_>) -> &mut Self {
        self.put(b"\"".into(), true);
        let (mut start, mut at) = (0, 0);
        while at < text.len() {
            let byte = text.get(at);
            let plain = match byte {
                b'"' | b'\\' | 0..0x20 => None,
                0x80.. => super::text::character(text.skip(at)),
                _ => Some(1),
            };
            if let Some(len) = plain {
                at += len;
                continue;
            }
            self.body.put(self.g, text.slice(start, at - start));
            let mut escape = *b"\\u00__";
            let escape: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'\n' => b"\\n",
                b'\r' => b"\\r",
                b'\t' => b"\\t",
                0x80.. => "\u{fffd}".as_bytes(),
                _ => {
                    let low = byte & 15;
                    escape[4] = b'0' + (byte >> 4);
                    escape[5] = if low < 10 { b'0' + low } else { b'a' + low - 10 };
                    &escape
                }
            };
            self.body.put(self.g, escape);
            at += 1;
            start = at;
        }
        self.body.put(self.g, text.skip(start));
        self.body.put(self.g, b"\"");
        self
    }

    /// A string of another document, as it stands there.
    pub fn same(&mut self, text: &Text<'_>) -> &mut Self {
        self.put(b"\"".into(), true);
        self.body.put(self.g, text.raw());
        self.body.put(self.g, b"\"");
        self
    }

    /// A number.
    pub fn number(&mut self, number: i64) -> &mut Self {
        self.put(Digits::of(number).bytes(), true)
    }

    /// True or false.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.put(if value { b"true".into() } else { b"false".into() }, true)
    }

    /// Null.
    pub fn null(&mut self) -> &mut Self {
        self.put(b"null".into(), true)
    }

    /// A value that is JSON already.
    pub fn raw<'a>(&mut self, json: impl Into<Bytes<'a>>) -> &mut Self {
        self.put(json.into(), true)
    }
}
