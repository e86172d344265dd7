//! Answers, as RESP2 and RESP3 write them.

use gpunet_device::{Group, Result};
use gpunet_kv_vectors::Map;
use gpunet_serve::{Bytes, Digits, Text, Writer};

/// Room in the writer that every command has before it starts: for any answer without a value in
/// it.
pub(crate) const ROOM: usize = 2048;

/// The end of a line.
pub(crate) const LINE_END: &[u8; 2] = b"\r\n";

/// Answers of one connection. Who calls has made room for them.
pub(crate) struct Reply<'a, 't, G: Group> {
    pub(crate) g: &'a G,
    pub(crate) out: &'a mut Writer<'t>,
    /// What RESP2 does not have is written as RESP3 does.
    pub(crate) is_resp3: bool,
    /// The client wants no answer.
    pub(crate) is_muted: bool,
}

impl<G: Group> Reply<'_, '_, G> {
    /// One function for texts of all lengths: a kernel has hundreds of them.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn raw(&mut self, text: &[u8]) {
        self.all([text.into()]);
    }

    /// Parts, one behind the other.
    pub(crate) fn all<const N: usize>(&mut self, parts: [Bytes<'_>; N]) {
        let fits = self.is_muted || self.out.put_all(self.g, parts);
        debug_assert!(fits, "a command made too little room");
    }

    pub(crate) fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    pub(crate) fn nil(&mut self) {
        match self.is_resp3 {
            true => self.raw(b"_\r\n"),
            false => self.raw(b"$-1\r\n"),
        }
    }

    /// A truth, which RESP2 has as a number.
    pub(crate) fn boolean(&mut self, is_true: bool) {
        match (self.is_resp3, is_true) {
            (true, true) => self.raw(b"#t\r\n"),
            (true, false) => self.raw(b"#f\r\n"),
            (false, _) => self.integer(i64::from(is_true)),
        }
    }

    /// The head of a map of `len` keys with their values, which RESP2 has as an array.
    pub(crate) fn map(&mut self, len: usize) {
        match self.is_resp3 {
            true => self.head(b"%", len as i64),
            false => self.array(2 * len),
        }
    }

    /// The head of a text of `len` bytes for people.
    pub(crate) fn text_head(&mut self, len: usize) {
        match self.is_resp3 {
            true => {
                self.head(b"=", len as i64 + 4);
                self.raw(b"txt:");
            }
            false => self.bulk_head(len),
        }
    }

    /// `-ERR `, a text, and the line's end.
    pub(crate) fn error(&mut self, text: &'static [u8]) {
        self.all([b"-ERR ".into(), text.into(), b"\r\n".into()]);
    }

    pub(crate) fn no_memory(&mut self) {
        self.raw(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n");
    }

    pub(crate) fn wrong_type(&mut self) {
        self.raw(b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n");
    }

    /// A number in a text.
    pub(crate) fn number(&mut self, number: i64) {
        let fits = self.is_muted || self.out.put_number(self.g, number);
        debug_assert!(fits, "a command made too little room");
    }

    pub(crate) fn no_integer(&mut self) {
        self.error(b"value is not an integer or out of range");
    }

    /// A number beyond 32 bits, where Redis has an int.
    pub(crate) fn no_int32(&mut self) {
        self.error(b"value is out of range, value must between -2147483648 and 2147483647");
    }

    /// A time that is over, or too far away, for a command named as its client named it.
    pub(crate) fn invalid_expiry(&mut self, name: Bytes<'_>) {
        self.raw(b"-ERR invalid expire time in '");
        self.quoted(name, 64, true);
        self.raw(b"' command\r\n");
    }

    pub(crate) fn syntax(&mut self) {
        self.error(b"syntax error");
    }

    pub(crate) fn integer(&mut self, number: i64) {
        self.head(b":", number);
    }

    pub(crate) fn array(&mut self, len: usize) {
        self.head(b"*", len as i64);
    }

    /// A bulk string that is known to fit.
    pub(crate) fn bulk(&mut self, bytes: Bytes<'_>) {
        let len = Digits::of(bytes.len() as i64);
        self.all([b"$".into(), len.bytes(), b"\r\n".into(), bytes, b"\r\n".into()]);
    }

    /// Bytes of any length behind the head of their string, and the line's end: copied, and dropped
    /// with the connection if there is no room.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn long(&mut self, bytes: Bytes<'_>) -> Result<()> {
        self.force(bytes)?;
        self.force(LINE_END.into())
    }

    /// A part of an answer, of any length, as [`Reply::long`] puts it.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn force(&mut self, bytes: Bytes<'_>) -> Result<()> {
        if self.is_muted { Ok(()) } else { self.out.force(self.g, bytes) }
    }

    pub(crate) fn bulk_head(&mut self, len: usize) {
        self.head(b"$", len as i64);
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn head(&mut self, sign: &'static [u8; 1], number: i64) {
        self.all([sign.into(), Digits::of(number).bytes(), b"\r\n".into()]);
    }

    /// Text of a client's, quoted in an error: line ends would end the error, so they become
    /// spaces, as Redis has it.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn quoted(&mut self, text: Bytes<'_>, most: usize, lower: bool) {
        let text = text.first(most);
        let mut at = 0;
        while at < text.len() {
            let byte = match text.get(at) {
                b'\r' | b'\n' => b' ',
                byte if lower => byte.to_ascii_lowercase(),
                byte => byte,
            };
            self.raw(&[byte]);
            at += 1;
        }
    }

    /// The wrong number of arguments for a command, named as its client named it.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn wrong_count(&mut self, name: Bytes<'_>, sub: Option<Bytes<'_>>) {
        self.raw(b"-ERR wrong number of arguments for '");
        self.quoted(name, 64, true);
        if let Some(sub) = sub {
            self.raw(b"|");
            self.quoted(sub, 64, true);
        }
        self.raw(b"' command\r\n");
    }
}

/// [`Writer::send_from`], which is a thousand instructions in each place where it is called.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(crate) fn send_from<G: Group>(g: &G, out: &mut Writer<'_>, bytes: Bytes<'_>) -> Result<usize> {
    out.send_from(g, bytes)
}

/// The first line of an array or of a map, in a text that is sent later.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(crate) fn text_head<G: Group>(g: &G, map: &Map, text: &mut Text, sign: &'static [u8; 1], len: usize) {
    map.append_all(g, text, [sign.into(), Digits::of(len as i64).bytes(), LINE_END.into()]);
}

/// A number that has been spelt, in a text that is sent later: RESP2 has it as a bulk string. The
/// last one without its line end.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(crate) fn text_double<G: Group>(
    g: &G,
    map: &Map,
    text: &mut Text,
    bytes: Bytes<'_>,
    is_last: bool,
    is_resp3: bool,
) {
    let end = if is_last { Bytes::EMPTY } else { LINE_END.into() };
    if is_resp3 {
        map.append_all(g, text, [b",".into(), bytes, end]);
        return;
    }
    map.append_all(
        g,
        text,
        [b"$".into(), Digits::of(bytes.len() as i64).bytes(), LINE_END.into(), bytes, end],
    );
}
