//! What the host sees while the kernel runs: where it listens, counters, a log. It lies in memory
//! that host and device share.

use crate::Bytes;
use crate::memory::{Carve, Memory};
use gpunet_device::{Group, SockAddr};

/// Where things are in the head of the board: words of 64 bits.
mod word {
    /// 0 while it is not known whether the server listens, 1 if it does, else 2.
    pub const STATE: usize = 0;
    pub const HANDLE: usize = 8;
    pub const ERRNO: usize = 16;
    pub const ADDR: usize = 24;
    /// Not 0: the host wants the server to end. The host alone writes it.
    pub const STOP: usize = 64;
    pub const LEN: usize = 128;
}

/// Counters of a block.
pub const COUNTERS: usize = 16;
/// Counters that the server does not use: a service's own.
pub const OWN_COUNTERS: usize = 8;
/// Lines of a block's log that are kept.
pub const LOG_LINES: usize = 32;
/// The longest line of a log, in bytes.
pub const LOG_TEXT: usize = 104;
/// Sequence, time, length, text.
const LOG_LINE: usize = 24 + LOG_TEXT;

/// What a block has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that are open.
    pub open: u64,
    /// Bytes consumed.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Turns of connections.
    pub turns: u64,
    /// Connections that failed.
    pub failed: u64,
    /// Connections closed by a limit.
    pub limited: u64,
    /// Why the block ended, an errno; 0 while it runs or when it was asked to.
    pub ended: u64,
    /// The service's own.
    pub own: [u64; OWN_COUNTERS],
}

impl Counters {
    /// Takes over what another one counts, field by field: a GPU would move the whole structure
    /// byte by byte.
    pub(crate) const fn catch_up(&mut self, now: &Self) {
        (self.accepted, self.open, self.received) = (now.accepted, now.open, now.received);
        (self.sent, self.turns, self.failed) = (now.sent, now.turns, now.failed);
        (self.limited, self.ended, self.own) = (now.limited, now.ended, now.own);
    }

    fn words(&self) -> [u64; COUNTERS] {
        let [a, b, c, d, e, f, g, h] = self.own;
        [
            self.accepted,
            self.open,
            self.received,
            self.sent,
            self.turns,
            self.failed,
            self.limited,
            self.ended,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
        ]
    }

    fn of(
        [accepted, open, received, sent, turns, failed, limited, ended, own @ ..]: [u64; COUNTERS],
    ) -> Self {
        Self { accepted, open, received, sent, turns, failed, limited, ended, own }
    }
}

/// The state of the server as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// It has not started yet.
    NotYet,
    /// It listens there.
    At(SockAddr),
    /// It cannot, for that errno.
    Failed(i32),
}

/// The board, as both sides see it.
#[derive(Clone, Copy, Debug)]
pub struct Board {
    memory: Memory,
}

impl Board {
    /// Bytes of a board for so many blocks.
    #[must_use]
    pub const fn bytes(blocks: usize) -> usize {
        word::LEN + blocks * Self::BLOCK
    }

    const BLOCK: usize = COUNTERS * 8 + LOG_LINES * LOG_LINE;

    /// The board in that memory, which host and device share.
    #[must_use]
    pub const fn new(memory: Memory) -> Self {
        Self { memory }
    }

    fn block(self, block: usize) -> Memory {
        self.memory.part(word::LEN + block * Self::BLOCK, Self::BLOCK)
    }

    /// Publishes where the server listens, and the listener's handle for the other blocks. By one
    /// lane.
    pub(crate) fn listens(self, handle: i32, addr: SockAddr) {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = addr.ip;
        self.memory.host_u64(word::HANDLE).set(handle as u64);
        self.memory.host_u64(word::ADDR).set(addr.family as u64 | (addr.port as u64) << 16);
        self.memory.host_u64(word::ADDR + 8).set(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        self.memory.host_u64(word::ADDR + 16).set(u64::from_le_bytes([i, j, k, l, m, n, o, p]));
        self.memory.host_u64(word::ADDR + 24).set(addr.scope as u64);
        self.memory.host_u64(word::STATE).publish(1);
    }

    /// Publishes that the server cannot listen. By one lane.
    pub(crate) fn cannot_listen(self, errno: i32) {
        self.memory.host_u64(word::ERRNO).set(errno as u64);
        self.memory.host_u64(word::STATE).publish(2);
    }

    /// The listener's handle once there is one; an errno if there will be none. By one lane.
    pub(crate) fn listener(self) -> Option<Result<i32, i32>> {
        match self.memory.host_u64(word::STATE).observe() {
            0 => None,
            1 => Some(Ok(self.memory.host_u64(word::HANDLE).get() as i32)),
            _ => Some(Err(self.memory.host_u64(word::ERRNO).get() as i32)),
        }
    }

    /// Where the server listens.
    #[must_use]
    pub fn listening(self) -> Listening {
        match self.listener() {
            None => Listening::NotYet,
            Some(Err(errno)) => Listening::Failed(errno),
            Some(Ok(_)) => {
                let word = |at| self.memory.host_u64(word::ADDR + at).get();
                let mut addr = SockAddr::NONE;
                (addr.family, addr.port) = (word(0) as u16, (word(0) >> 16) as u16);
                addr.ip[..8].copy_from_slice(&word(8).to_le_bytes());
                addr.ip[8..].copy_from_slice(&word(16).to_le_bytes());
                addr.scope = word(24) as u32;
                Listening::At(addr)
            }
        }
    }

    /// Asks the server to end: it accepts no more, answers what has come, and closes its
    /// connections. The host calls it.
    pub fn stop(self) {
        self.memory.host_u64(word::STOP).set(1);
    }

    pub(crate) fn is_stopping(self) -> bool {
        self.memory.host_u64(word::STOP).get() != 0
    }

    /// The counters of a block, as it has published them last. The host calls it.
    #[must_use]
    pub fn counters(self, block: usize) -> Counters {
        let memory = self.block(block);
        let mut words = [0; COUNTERS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = memory.host_u64(at * 8).get();
        }
        Counters::of(words)
    }

    /// Publishes those counters that have changed. All lanes call it; one writes.
    pub(crate) fn publish<G: Group>(self, g: &G, before: &Counters, now: &Counters) {
        if g.is_leader() {
            let memory = self.block(g.index() as usize);
            // By number: iterators of arrays would be moved byte by byte.
            let (before, now) = (before.words(), now.words());
            for at in 0..COUNTERS {
                if before[at] != now[at] {
                    memory.host_u64(at * 8).set(now[at]);
                }
            }
        }
    }

    /// The log of a block, as the block writes it.
    pub(crate) fn log(self, block: usize) -> Log {
        Log { lines: self.block(block).part(COUNTERS * 8, LOG_LINES * LOG_LINE), next: 0 }
    }

    /// Line `number` of a block's log: when it was written, by the device's clock, and its text.
    /// `None` while it is not written, or when a later one has taken its place: see
    /// [`Board::lines`]. The host calls it.
    #[must_use]
    pub fn line(self, block: usize, number: u64) -> Option<(u64, [u8; LOG_TEXT], usize)> {
        let lines = self.block(block).part(COUNTERS * 8, LOG_LINES * LOG_LINE);
        let line = lines.part(number as usize % LOG_LINES * LOG_LINE, LOG_LINE);
        if line.host_u64(0).observe() != number + 1 {
            return None;
        }
        let (time, len) = (line.host_u64(8).get(), line.host_u64(16).get() as usize);
        let mut text = [0; LOG_TEXT];
        for (at, word) in text.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&line.host_u64(24 + at * 8).get().to_le_bytes());
        }
        // Ordering: Acquire fence before the second look: words that a later line has overwritten
        // are found out by it.
        core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
        if line.host_u64(0).get() == number + 1 { Some((time, text, len.min(LOG_TEXT))) } else { None }
    }

    /// How many lines a block has written, at least: the number of the last one that is there, and
    /// one. The host calls it.
    #[must_use]
    pub fn lines(self, block: usize) -> u64 {
        let lines = self.block(block).part(COUNTERS * 8, LOG_LINES * LOG_LINE);
        (0..LOG_LINES).map(|at| lines.host_u64(at * LOG_LINE).observe()).max().unwrap_or(0)
    }
}

/// A block's log: lines of text for the host, of which the last [`LOG_LINES`] are kept.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    lines: Memory,
    next: u64,
}

impl Log {
    /// Writes a line.
    ///
    /// # Cooperation
    /// All lanes call it with the same line.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::Group;
    /// # use gpunet_serve::{Line, Log};
    /// # fn example<G: Group>(g: &G, log: &mut Log, now: u64, len: usize) {
    /// log.line(g, now, &Line::new().text(b"a request of ").number(len as i64).text(b" bytes"));
    /// # }
    /// ```
    pub fn line<G: Group>(&mut self, g: &G, now: u64, text: &Line) {
        self.next += 1;
        if !g.is_leader() {
            return;
        }
        let line = self.lines.part((self.next - 1) as usize % LOG_LINES * LOG_LINE, LOG_LINE);
        // A reader of the old line finds by this that it is gone, before any word of it changes.
        line.host_u64(0).set(0);
        // Ordering: Release fence, pairs with the Acquire fence in `Board::line`.
        core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
        line.host_u64(8).set(now);
        line.host_u64(16).set(text.len as u64);
        let (words, _) = text.text.as_chunks::<8>();
        for (at, word) in words.iter().enumerate() {
            line.host_u64(24 + at * 8).set(u64::from_le_bytes(*word));
        }
        line.host_u64(0).publish(self.next);
    }
}

/// A text that is put together, of at most [`LOG_TEXT`] bytes: for a log, or as a key. What is more
/// is cut.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    text: [u8; LOG_TEXT],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl Line {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self { text: [0; LOG_TEXT], len: 0 }
    }

    /// Appends text.
    #[must_use]
    pub const fn text(mut self, text: &[u8]) -> Self {
        let mut at = 0;
        while at < text.len() && self.len < LOG_TEXT {
            self.text[self.len] = text[at];
            self.len += 1;
            at += 1;
        }
        self
    }

    /// Appends bytes from elsewhere.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn bytes_of(mut self, bytes: Bytes<'_>) -> Self {
        let mut at = 0;
        while at < bytes.len() && self.len < LOG_TEXT {
            self.text[self.len] = bytes.get(at);
            self.len += 1;
            at += 1;
        }
        self
    }

    /// The text.
    #[must_use]
    pub fn bytes(&self) -> Bytes<'_> {
        Bytes::from(&self.text).first(self.len)
    }

    /// Appends a number.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn number(self, number: i64) -> Self {
        let digits = crate::Digits::of(number);
        let (mut line, bytes, mut at) = (self, digits.bytes(), 0);
        while at < bytes.len() {
            line = line.text(&[bytes.get(at)]);
            at += 1;
        }
        line
    }
}

/// How many connections each block has, for the balance between them.
#[derive(Clone, Copy, Debug)]
pub struct Connections {
    memory: Memory,
    /// Until when a block without connections watches the listener for all, by the device's clock;
    /// 0: none does.
    watched_until: Memory,
    blocks: usize,
}

impl Connections {
    pub(crate) fn carve(carve: &mut Carve, blocks: usize) -> Self {
        Self { memory: carve.take(blocks * 8), watched_until: carve.take(8), blocks }
    }

    /// Publishes how many this block has. All lanes call it; one writes.
    pub(crate) fn set<G: Group>(self, g: &G, connections: u64) {
        if g.is_leader() {
            self.memory.u64(g.index() as usize * 8).set(connections);
        }
    }

    /// The connections of all blocks, as far as is known.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    #[must_use]
    pub fn count<G: Group>(self, g: &G) -> u64 {
        g.broadcast((0..self.blocks).map(|block| self.memory.u64(block * 8).get()).sum())
    }

    /// Until when some block without connections watches the listener; it may be over. By one lane.
    pub(crate) fn watched_until(self) -> u64 {
        self.watched_until.u64(0).get()
    }

    /// Tries to become the block without connections that watches the listener, or to remain it:
    /// `mine` is until when it does as far as it knows, 0 if it does not. Returns that for now on.
    /// By one lane.
    pub(crate) fn try_watch(self, now: u64, until: u64, mine: u64) -> u64 {
        let word = self.watched_until.u64(0);
        let before = word.get();
        let is_free = before <= now || before == mine;
        // Ordering: Relaxed; it brings no data. One that is late may watch beside the next one,
        // which costs time only.
        if is_free && word.replace(before, until) { until } else { 0 }
    }

    /// Leaves the listener to another block. By one lane.
    pub(crate) fn unwatch(self, mine: u64) {
        self.watched_until.u64(0).replace(mine, 0);
    }

    /// Returns whether another block has fewer than `connections`, as far as is known. All lanes
    /// share the work; also a barrier.
    pub(crate) fn someone_has_fewer<G: Group>(self, g: &G, connections: u64) -> bool {
        let mut fewer = 0;
        let mut block = g.rank() as usize;
        while block < self.blocks {
            fewer += u32::from(self.memory.u64(block * 8).get() < connections);
            block += g.size() as usize;
        }
        g.sum(fewer) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::for_test;
    use gpunet_device::group::Solo;

    fn text(board: Board, block: usize, number: u64) -> Option<std::string::String> {
        board
            .line(block, number)
            .map(|(_, text, len)| std::string::String::from_utf8_lossy(&text[..len]).into())
    }

    #[test]
    fn the_host_reads_the_last_lines() {
        let board = Board::new(for_test(Board::bytes(2)));
        let mut log = board.log(1);
        assert_eq!((board.lines(1), text(board, 1, 0)), (0, None));
        for number in 0..LOG_LINES as i64 + 3 {
            log.line(&Solo::new(1, 2), 5, &Line::new().text(b"line ").number(number));
        }
        assert_eq!(board.lines(1), LOG_LINES as u64 + 3);
        assert_eq!((text(board, 1, 2), text(board, 1, 3).as_deref()), (None, Some("line 3")));
        assert_eq!(text(board, 1, LOG_LINES as u64 + 2).unwrap(), std::format!("line {}", LOG_LINES + 2));
        assert_eq!(board.lines(0), 0);
    }

    #[test]
    fn lines_are_cut_and_never_torn() {
        let board = Board::new(for_test(Board::bytes(1)));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut log = board.log(0);
                for number in 0..20_000u32 {
                    log.line(&Solo::new(0, 1), 0, &Line::new().text(&[b'a' + (number % 26) as u8; 200]));
                }
            });
            let mut seen = 0;
            while seen < 20_000 {
                seen = board.lines(0);
                if let Some(line) = seen.checked_sub(1).and_then(|last| text(board, 0, last)) {
                    assert!(
                        line.len() == LOG_TEXT && line.bytes().all(|byte| byte == line.as_bytes()[0]),
                        "{line}"
                    );
                }
            }
        });
    }

    #[test]
    fn counters_and_address_come_back() {
        let board = Board::new(for_test(Board::bytes(2)));
        assert_eq!(board.listening(), Listening::NotYet);
        let addr: std::net::SocketAddr = "[fe80::1%3]:65535".parse().unwrap();
        board.listens(7, addr.into());
        assert_eq!((board.listening(), board.listener()), (Listening::At(addr.into()), Some(Ok(7))));
        let counters = Counters { accepted: 3, own: [1, 2, 3, 4, 5, 6, 7, 8], ..Counters::default() };
        board.publish(&Solo::new(1, 2), &Counters::default(), &counters);
        assert_eq!((board.counters(1), board.counters(0)), (counters, Counters::default()));
    }

    #[test]
    fn idler_blocks_are_seen() {
        let mut measure = Carve::measure_for(3);
        let _ = Connections::carve(&mut measure, 3);
        let loads = Connections::carve(&mut Carve::new(for_test(measure.used()), 3), 3);
        let blocks = [0, 1, 2].map(|index| Solo::new(index, 3));
        loads.set(&blocks[0], 2);
        loads.set(&blocks[1], 1);
        assert!(loads.someone_has_fewer(&blocks[0], 2) && !loads.someone_has_fewer(&blocks[2], 0));
        loads.set(&blocks[2], 1);
        assert!(!loads.someone_has_fewer(&blocks[1], 1));
    }

    #[test]
    fn one_block_without_connections_watches_until_its_time_is_over() {
        let mut measure = Carve::measure();
        let _ = Connections::carve(&mut measure, 1);
        let connections = Connections::carve(&mut Carve::new(for_test(measure.used()), 1), 1);
        assert_eq!(connections.try_watch(10, 20, 0), 20);
        assert_eq!(connections.try_watch(11, 21, 0), 0, "another one has it");
        assert_eq!(connections.try_watch(15, 25, 20), 25, "its own is prolonged");
        assert_eq!(connections.try_watch(25, 35, 0), 35, "it is over");
        assert_eq!(connections.try_watch(26, 36, 25), 0, "the first one has lost it");
        connections.unwatch(25);
        assert_eq!(connections.watched_until(), 35);
        connections.unwatch(35);
        assert_eq!(connections.watched_until(), 0);
    }
}
