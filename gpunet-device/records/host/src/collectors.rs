//! Programs that connect and are sent what comes. None of them is waited for, and what they send is
//! nothing to anybody.

use crate::wire::{self, Frame, Reason};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Collectors of one address at most.
const MOST: usize = 64;
/// Bytes that wait for a collector at most: a second of the fastest kernel is too much to keep.
const BACKLOG: usize = 64 << 20;
/// Bytes that are given on at once: at a high rate a system call for each so many.
const BATCH: usize = 256 << 10;

/// How often the listener is asked: each time the system makes a socket, and throws it away.
const ASKS: Duration = Duration::from_millis(1);
/// Bytes that a collector has sent, and that are taken at its end, at most.
const UNREAD: usize = 1 << 20;

/// The first line of a stream of lines: what is printed from now on follows it.
const WELCOME: &[u8] = b"-- lines from now on\n";

/// What collectors of an address are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// All records, as frames.
    Frames,
    /// Printed lines, as text.
    Lines,
}

/// A program that has connected.
#[derive(Debug)]
struct Collector {
    stream: TcpStream,
    /// Bytes that it has not taken yet, from `sent` on.
    backlog: Vec<u8>,
    sent: usize,
    /// Records or lines that it was not given, because it did not read.
    left_out: u64,
    /// How many of these it was told of.
    told: u64,
    /// How many records it was told of that were lost before they were read.
    told_lost: u64,
}

impl Collector {
    fn waiting(&self) -> usize {
        self.backlog.len() - self.sent
    }

    /// Adds what it is missing, and does not know, to what waits for it.
    fn tell(&mut self, content: Content, lost: u64) {
        let (left_out, told) = (self.left_out, std::mem::replace(&mut self.told, self.left_out));
        let told_lost = std::mem::replace(&mut self.told_lost, lost);
        let out = &mut self.backlog;
        let notices = [
            (Reason::Rings, lost, told_lost, "records lost"),
            (Reason::Collector, left_out, told, "lines left out"),
        ];
        for (reason, total, told, what) in notices {
            match content {
                _ if total == told => {}
                Content::Frames => wire::put(&Frame::Missing { reason, total }, out),
                Content::Lines => out.extend_from_slice(format!("-- {} {what}\n", total - told).as_bytes()),
            }
        }
    }

    /// Returns whether it has been sent all, and told what it is missing.
    fn has_all(&self, lost: u64) -> bool {
        self.waiting() == 0 && self.told == self.left_out && self.told_lost == lost
    }

    /// Sends what it takes now. One that has caught up is told what it is missing. Returns whether
    /// it still takes any.
    fn turn(&mut self, content: Content, lost: u64) -> bool {
        if !self.send() {
            return false;
        }
        if self.waiting() > 0 || self.has_all(lost) {
            return true;
        }
        self.tell(content, lost);
        self.send()
    }

    /// Gives it a batch of so many records. Returns whether it still takes any.
    fn give(&mut self, (content, lost): (Content, u64), batch: &[u8], records: u64) -> bool {
        if self.waiting() + batch.len() > BACKLOG {
            self.left_out += records;
            return self.send();
        }
        self.tell(content, lost);
        // What the system takes at once is not copied.
        let taken = if self.waiting() == 0 { self.write(batch) } else { Some(0) };
        let Some(taken) = taken else { return false };
        if taken == batch.len() {
            return true;
        }
        self.backlog.extend_from_slice(&batch[taken..]);
        self.send()
    }

    /// Writes as much as is taken now. `None`: it takes no more.
    fn write(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut written = 0;
        while written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Ok(0) => return None,
                Ok(len) => written += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        Some(written)
    }

    /// Sends what it takes now. Returns whether it still takes any.
    fn send(&mut self) -> bool {
        let backlog = std::mem::take(&mut self.backlog);
        let written = self.write(&backlog[self.sent..]);
        self.backlog = backlog;
        let Some(written) = written else { return false };
        self.sent += written;
        if self.sent == self.backlog.len() {
            self.backlog.clear();
            self.sent = 0;
        } else if self.sent > self.backlog.len() / 2 {
            self.backlog.drain(..self.sent);
            self.sent = 0;
        }
        true
    }
}

impl Drop for Collector {
    /// Ends its stream in order. The system resets a stream that is closed while something lies
    /// there unread, and its reader would get an error in place of the end.
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut unread = [0; 4096];
        for _ in 0..UNREAD / unread.len() {
            if !matches!(self.stream.read(&mut unread), Ok(1..)) {
                break;
            }
        }
    }
}

/// The collectors of an address.
#[derive(Debug)]
pub(crate) struct Collectors {
    listener: TcpListener,
    content: Content,
    collectors: Vec<Collector>,
    batch: Vec<u8>,
    records: u64,
    /// Records that were lost before they were read, as the collectors know.
    lost: u64,
    /// When the listener was asked last who has connected.
    asked: Option<Instant>,
}

impl Collectors {
    pub(crate) fn bind(addr: impl ToSocketAddrs, content: Content) -> io::Result<Self> {
        let listener = TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            content,
            collectors: Vec::new(),
            batch: Vec::new(),
            records: 0,
            lost: 0,
            asked: None,
        })
    }

    pub(crate) fn addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(crate) const fn content(&self) -> Content {
        self.content
    }

    /// Returns whether anybody is there.
    pub(crate) const fn is_empty(&self) -> bool {
        self.collectors.is_empty()
    }

    /// Adds a record or a line to what is given on next.
    pub(crate) fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.collectors.is_empty() {
            return;
        }
        write(&mut self.batch);
        self.records += 1;
        if self.batch.len() >= BATCH {
            self.flush();
        }
    }

    /// Says how many records were lost by now. All are told, and those who come.
    pub(crate) const fn set_lost(&mut self, lost: u64) {
        self.lost = lost;
    }

    /// Takes those who have connected, and gives all what was put.
    pub(crate) fn turn(&mut self) {
        self.flush();
        let (content, lost) = (self.content, self.lost);
        self.collectors.retain_mut(|collector| collector.turn(content, lost));
        if self.asked.is_some_and(|asked| asked.elapsed() < ASKS) {
            return;
        }
        self.asked = Some(Instant::now());
        while let Ok((stream, _)) = self.listener.accept() {
            // One who cannot be served is let go.
            if self.collectors.len() < MOST && stream.set_nonblocking(true).is_ok() {
                let _ = stream.set_nodelay(true);
                // A stream of frames begins with what was lost before.
                let (backlog, told_lost) = match content {
                    Content::Frames => (wire::MAGIC.to_vec(), 0),
                    Content::Lines => (WELCOME.to_vec(), lost),
                };
                self.collectors.push(Collector { stream, backlog, sent: 0, left_out: 0, told: 0, told_lost });
            }
        }
    }

    /// Returns whether nothing waits for anybody, and nobody waits to be told something.
    pub(crate) fn is_done(&self) -> bool {
        self.batch.is_empty() && self.collectors.iter().all(|collector| collector.has_all(self.lost))
    }

    fn flush(&mut self) {
        if !self.batch.is_empty() {
            let (about, batch, records) = ((self.content, self.lost), &self.batch, self.records);
            self.collectors.retain_mut(|collector| collector.give(about, batch, records));
            self.batch.clear();
            self.records = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Decoder;

    /// A collector that reads late is told how many records it does not get, although none come
    /// after them.
    #[test]
    fn one_that_reads_late_is_told_what_it_has_missed() {
        let mut collectors = Collectors::bind("127.0.0.1:0", Content::Frames).unwrap();
        let mut reader = TcpStream::connect(collectors.addr().unwrap()).unwrap();
        while collectors.is_empty() {
            collectors.turn();
        }
        // More than may wait, and more than the system keeps.
        let (piece, count) = (vec![0; 1 << 20], 100);
        for _ in 0..count {
            collectors.put(|out| out.extend_from_slice(&piece));
        }
        collectors.set_lost(7);
        let left_out = collectors.collectors[0].left_out;
        assert!(left_out > 0 && left_out < count && !collectors.is_done());
        let taken = (count - left_out) << 20;
        let reading = std::thread::spawn(move || {
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).unwrap();
            rest
        });
        while !collectors.is_done() {
            collectors.turn();
        }
        drop(collectors);
        let all = reading.join().unwrap();
        assert_eq!(all[..8], wire::MAGIC);
        let mut decoder = Decoder::new();
        decoder.push(&wire::MAGIC);
        decoder.push(&all[8 + taken as usize..]);
        for (reason, total) in [(Reason::Rings, 7), (Reason::Collector, left_out)] {
            assert_eq!(decoder.next(), Ok(Some(Frame::Missing { reason, total })));
        }
        assert_eq!(decoder.next(), Ok(None));
    }
}
