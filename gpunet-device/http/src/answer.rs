//! Answers: whole ones, those that go on for several turns, and server-sent events.

use crate::connection::{Http, Phase};
use crate::method::Method;
use crate::reply::{Body, Framing, LINE_END, Reply, connection_field, head_parts};
use crate::router::Router;
use crate::status::Status;
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Digits};

/// Bytes beside the data of a chunk.
const CHUNK_ROOM: usize = 12;

impl Http<'_, '_> {
    /// Answers the request. Returns whether there was room for it: if not, the service returns
    /// [`gpunet_serve::Next::Output`], and is given the request again. A body that does not fit
    /// into [`gpunet_serve::Writer::capacity`] with its head is answered with 500:
    /// [`Http::begin`] is for those.
    ///
    /// # Errors
    /// The connection has failed, or the launch is over.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn answer<'b, G: Group>(
        &mut self,
        g: &G,
        reply: Reply<'b>,
        body: impl Into<Bytes<'b>>,
    ) -> Result<bool> {
        let body = body.into();
        self.answer_with(g, reply, |to| to.put(g, body))
    }

    /// As [`Http::answer`], with a body that is made by `put`, which is called twice and does the
    /// same: if the second one is shorter, the connection is closed behind it.
    ///
    /// # Errors
    /// As [`Http::answer`].
    pub fn answer_with<G: Group>(
        &mut self,
        g: &G,
        reply: Reply<'_>,
        put: impl Fn(&mut Body<'_, '_>),
    ) -> Result<bool> {
        if self.connection.phase != Phase::Ready {
            return Ok(true);
        }
        let len = Body::measure(&put);
        let is_silent = self.is_head() || reply.status.is_bodiless();
        match self.start(g, reply, Framing::Length, len, if is_silent { 0 } else { len })? {
            Some(true) => {}
            other => return Ok(other.is_none()),
        }
        if !is_silent && !Body::make(self.output, &put, len) {
            self.connection.closes = true;
        }
        self.finish(g)?;
        Ok(true)
    }

    /// Puts a head if there is room for it and for `room` bytes behind it. Returns whether there
    /// is;
    /// `None`: there never will be, and 500 was answered.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn start<G: Group>(
        &mut self,
        g: &G,
        reply: Reply<'_>,
        framing: Framing,
        len: usize,
        room: usize,
    ) -> Result<Option<bool>> {
        let digits = Digits::of(len as i64);
        let parts = head_parts(&reply, framing, &digits, self.closes(), self.is_11());
        let (mut total, mut at) = (room, 0);
        while at < parts.len() {
            total += parts[at].len();
            at += 1;
        }
        if self.output.make_room(g, total)? {
            self.output.put_all(g, parts);
            return Ok(Some(true));
        }
        if total <= self.output.capacity() {
            return Ok(Some(false));
        }
        // There was room for this before the request was given.
        let text: &[u8] = if self.is_head() { b"" } else { b"too long\n" };
        let length: &[u8] = b"Content-Length: 9\r\n";
        let line = Status::InternalServerError.line();
        let connection = connection_field(self.closes(), self.is_11());
        self.output.put_all(g, [line.into(), length.into(), connection.into(), LINE_END.into(), text.into()]);
        self.finish(g)?;
        Ok(None)
    }

    /// Answers a request that no route has: 204 with the methods for OPTIONS, 405 with them if the
    /// path has others, 404 if it has none.
    ///
    /// # Errors
    /// As [`Http::answer`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn answer_other<G: Group>(&mut self, g: &G, route: &Router<'_>) -> Result<bool> {
        let is_options = route.method() == Method::Options;
        if is_options && route.is_for_all() {
            return self.answer(g, Reply::new(Status::NoContent, Bytes::EMPTY), Bytes::EMPTY);
        }
        if route.methods().is_empty() {
            return self.answer(g, Reply::new(Status::NotFound, b"text/plain"), b"not found\n");
        }
        let status = if is_options { Status::NoContent } else { Status::MethodNotAllowed };
        let (mut allow, mut len) = ([0; 80], 0);
        for text in [Bytes::from(b"Allow: ")]
            .into_iter()
            .chain(route.methods().with(Method::Options).names())
            .chain([LINE_END.into()])
        {
            let mut at = 0;
            while at < text.len() {
                if let Some(place) = allow.get_mut(len) {
                    *place = text.get(at);
                }
                (at, len) = (at + 1, len + 1);
            }
        }
        let reply = Reply::new(status, Bytes::EMPTY).with_fields(Bytes::from(&allow).first(len));
        self.answer(g, reply, Bytes::EMPTY)
    }

    /// Begins an answer that goes on: [`Http::write`] and [`Http::end`] follow, in this turn or in
    /// later ones, in which [`Http::next`] returns [`crate::Step::Open`]. An answer to HEAD ends at
    /// once, and what is written to it is dropped. With a length the body has as many bytes;
    /// without one it comes in chunks. Returns whether there was room, as [`Http::answer`].
    ///
    /// # Errors
    /// As [`Http::answer`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn begin<G: Group>(&mut self, g: &G, reply: Reply<'_>, length: Option<u64>) -> Result<bool> {
        if self.connection.phase != Phase::Ready {
            return Ok(true);
        }
        let framing = match length {
            Some(_) => Framing::Length,
            None if self.is_11() => Framing::Chunks,
            None => {
                self.connection.closes = true;
                Framing::Close
            }
        };
        match self.start(g, reply, framing, length.unwrap_or(0) as usize, 0)? {
            Some(true) => {}
            other => return Ok(other.is_none()),
        }
        if self.is_head() || reply.status.is_bodiless() {
            self.finish(g)?;
            return Ok(true);
        }
        self.connection.framing = framing;
        self.connection.left = length.unwrap_or(u64::MAX);
        self.connection.phase = Phase::Open;
        self.consume();
        Ok(true)
    }

    /// Begins a stream of server-sent events: [`Http::event`] follows. It ends when the client's
    /// stream does.
    ///
    /// # Errors
    /// As [`Http::answer`].
    pub fn begin_events<G: Group>(&mut self, g: &G) -> Result<bool> {
        let reply = Reply::new(Status::Ok, b"text/event-stream").with_fields(b"Cache-Control: no-cache\r\n");
        let has_begun = self.begin(g, reply, None)?;
        self.connection.is_events = self.connection.phase == Phase::Open;
        Ok(has_begun)
    }

    /// Writes bytes of the body of an answer that has begun. Returns how many there was room for.
    ///
    /// # Errors
    /// The connection has failed.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn write<'b, G: Group>(&mut self, g: &G, bytes: impl Into<Bytes<'b>>) -> Result<usize> {
        let bytes = bytes.into();
        let bytes = bytes.first(usize::try_from(self.connection.left).unwrap_or(usize::MAX));
        if self.connection.phase != Phase::Open {
            return Ok(bytes.len());
        }
        let extra = if self.connection.framing == Framing::Chunks { CHUNK_ROOM } else { 0 };
        self.output.make_room(g, (bytes.len() + extra).min(self.output.capacity()))?;
        let piece = bytes.first(self.output.room().saturating_sub(extra));
        if !piece.is_empty() {
            if extra > 0 {
                let size = hex(piece.len());
                self.output.put_all(g, [Bytes::from(&size), piece, LINE_END.into()]);
            } else {
                self.output.put(g, piece);
            }
            if self.connection.framing == Framing::Length {
                self.connection.left -= piece.len() as u64;
            }
        }
        Ok(piece.len())
    }

    /// Sends an event, all or nothing: its name if it has one, and its data. Each line of the data
    /// becomes one of the event. Returns whether there was room; if not, the service returns
    /// [`gpunet_serve::Next::Output`].
    ///
    /// # Errors
    /// The connection has failed.
    pub fn event<'b, G: Group>(&mut self, g: &G, name: &[u8], data: impl Into<Bytes<'b>>) -> Result<bool> {
        let data = data.into();
        self.write_with(g, |to| {
            if !name.is_empty() {
                to.put(g, b"event: ");
                to.put(g, name);
                to.put(g, b"\n");
            }
            let mut rest = data;
            loop {
                let end = line_end(rest);
                to.put(g, b"data: ");
                to.put(g, rest.first(end));
                to.put(g, b"\n");
                if end == rest.len() {
                    break;
                }
                let is_pair = rest.get(end) == b'\r' && rest.get(end + 1) == b'\n';
                rest = rest.skip(end + if is_pair { 2 } else { 1 });
            }
            to.put(g, b"\n");
        })
    }

    /// As [`Http::write`], all or nothing, with bytes that are made by `put`, which is called twice
    /// and does the same. Returns whether there was room: there never is for more than
    /// [`gpunet_serve::Writer::capacity`].
    ///
    /// # Errors
    /// The connection has failed.
    pub fn write_with<G: Group>(&mut self, g: &G, put: impl Fn(&mut Body<'_, '_>)) -> Result<bool> {
        if self.connection.phase != Phase::Open {
            return Ok(true);
        }
        let is_chunk = self.connection.framing == Framing::Chunks;
        let len = Body::measure(&put);
        if len == 0 {
            return Ok(true);
        }
        if len as u64 > self.connection.left || !self.output.make_room(g, len + CHUNK_ROOM)? {
            return Ok(false);
        }
        if is_chunk {
            let size = hex(len);
            self.output.put(g, &size);
        }
        if !Body::make(self.output, &put, len) {
            self.connection.phase = Phase::Closed;
        } else if is_chunk {
            self.output.put(g, LINE_END);
        }
        if self.connection.framing == Framing::Length {
            self.connection.left -= len as u64;
        }
        Ok(true)
    }

    /// Ends the answer. Returns whether there was room for the end; if not, the service returns
    /// [`gpunet_serve::Next::Output`]. If bytes of its length are missing, the connection is
    /// closed.
    ///
    /// # Errors
    /// As [`Http::answer`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn end<G: Group>(&mut self, g: &G) -> Result<bool> {
        if self.connection.phase != Phase::Open {
            return Ok(true);
        }
        match self.connection.framing {
            Framing::Chunks => {
                const END: &[u8] = b"0\r\n\r\n";
                if !self.output.make_room(g, END.len())? {
                    return Ok(false);
                }
                self.output.put(g, END);
            }
            Framing::Length if self.connection.left > 0 => self.connection.closes = true,
            Framing::Length | Framing::Close => {}
        }
        self.finish(g)?;
        Ok(true)
    }
}

/// A chunk's first line, of ten bytes.
fn hex(len: usize) -> [u8; 10] {
    let (mut text, mut at) = (*b"00000000\r\n", 8);
    let mut rest = len;
    while at > 0 {
        at -= 1;
        let digit = (rest & 15) as u8;
        text[at] = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
        rest >>= 4;
    }
    text
}

/// Where the first line of it ends.
fn line_end(text: Bytes<'_>) -> usize {
    let end = text.find(b'\n', 0).unwrap_or(text.len());
    text.first(end).find(b'\r', 0).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_says_its_size() {
        assert_eq!(&hex(0), b"00000000\r\n");
        assert_eq!(&hex(0x1234_abcd), b"1234abcd\r\n");
    }

    #[test]
    fn lines_of_events_end_in_three_ways() {
        for (text, end) in [("a\nb", 1), ("a\rb", 1), ("a\r\nb", 1), ("ab", 2), ("", 0), ("\n", 0)] {
            assert_eq!(line_end(Bytes::from(text.as_bytes())), end, "{text:?}");
        }
    }
}
