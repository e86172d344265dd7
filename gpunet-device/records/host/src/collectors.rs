//! Programs that connect and are sent what comes. None of them is waited for, and nothing is read
//! from them.

use crate::wire::{self, Frame, Reason};
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};

/// Collectors of one address at most.
const MOST: usize = 64;
/// Bytes that wait for a collector at most: a second of the fastest kernel is too much to keep.
const BACKLOG: usize = 64 << 20;
/// Bytes that are given on at once: at a high rate a system call for each so many.
const BATCH: usize = 256 << 10;

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
}

impl Collector {
    fn waiting(&self) -> usize {
        self.backlog.len() - self.sent
    }

    /// Gives it a batch of so many records. Returns whether it still takes any.
    fn give(&mut self, content: Content, batch: &[u8], records: u64) -> bool {
        if self.waiting() + batch.len() > BACKLOG {
            self.left_out += records;
            return self.send();
        }
        if self.left_out != self.told {
            let total = self.left_out;
            match content {
                Content::Frames => {
                    wire::put(&Frame::Missing { reason: Reason::Collector, total }, &mut self.backlog);
                }
                Content::Lines => {
                    let missing = total - self.told;
                    self.backlog.extend_from_slice(format!("-- {missing} lines left out\n").as_bytes());
                }
            }
            self.told = total;
        }
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

/// The collectors of an address.
#[derive(Debug)]
pub(crate) struct Collectors {
    listener: TcpListener,
    content: Content,
    collectors: Vec<Collector>,
    batch: Vec<u8>,
    records: u64,
}

impl Collectors {
    pub(crate) fn bind(addr: impl ToSocketAddrs, content: Content) -> io::Result<Self> {
        let listener = TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, content, collectors: Vec::new(), batch: Vec::new(), records: 0 })
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

    /// Takes those who have connected, and gives all what was put.
    pub(crate) fn turn(&mut self) {
        self.flush();
        self.collectors.retain_mut(Collector::send);
        while let Ok((stream, _)) = self.listener.accept() {
            // One who cannot be served is let go.
            if self.collectors.len() < MOST && stream.set_nonblocking(true).is_ok() {
                let _ = stream.set_nodelay(true);
                let backlog = match self.content {
                    Content::Frames => wire::MAGIC.to_vec(),
                    Content::Lines => WELCOME.to_vec(),
                };
                self.collectors.push(Collector { stream, backlog, sent: 0, left_out: 0, told: 0 });
            }
        }
    }

    /// Returns whether nothing waits for anybody.
    pub(crate) fn is_done(&self) -> bool {
        self.batch.is_empty() && self.collectors.iter().all(|collector| collector.waiting() == 0)
    }

    fn flush(&mut self) {
        if !self.batch.is_empty() {
            let (content, batch, records) = (self.content, &self.batch, self.records);
            self.collectors.retain_mut(|collector| collector.give(content, batch, records));
            self.batch.clear();
            self.records = 0;
        }
    }
}
