//! What kernels and host exchange beside the sockets: rows of 64-bit numbers.

use gpunet_app_kernel::{get, put};
use gpunet_device::{Buffer, SockAddr};

/// What [`crate::RstreamListen`] leaves: [`Listening::NUMBERS`] numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// 0, or the errno.
    pub errno: i32,
    /// The listener's handle.
    pub handle: i32,
    /// Where it listens, with the port it got.
    pub addr: SockAddr,
}

impl Listening {
    /// Length of the record.
    pub const NUMBERS: usize = 6;

    pub(crate) fn store(&self, buffer: Buffer) {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = self.addr.ip;
        put(buffer, 0, self.errno as u64);
        put(buffer, 1, self.handle as u64);
        put(buffer, 2, self.addr.family as u64 | (self.addr.port as u64) << 16);
        put(buffer, 3, u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        put(buffer, 4, u64::from_le_bytes([i, j, k, l, m, n, o, p]));
        put(buffer, 5, self.addr.scope as u64);
    }

    /// Reads the record back.
    #[must_use]
    pub fn from_numbers(numbers: [u64; Self::NUMBERS]) -> Self {
        let mut addr = SockAddr::NONE;
        addr.family = numbers[2] as u16;
        addr.port = (numbers[2] >> 16) as u16;
        addr.ip[..8].copy_from_slice(&numbers[3].to_le_bytes());
        addr.ip[8..].copy_from_slice(&numbers[4].to_le_bytes());
        addr.scope = numbers[5] as u32;
        Self { errno: numbers[0] as i32, handle: numbers[1] as i32, addr }
    }
}

/// One test, as the host hands it over: [`Test::NUMBERS`] numbers.
///
/// In each iteration the client sends `count` transfers, and when the server has received all it
/// sends as many back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Bytes of a transfer.
    pub size: u64,
    /// Transfers in one direction before the other direction.
    pub count: u64,
    /// Iterations, each of them there and back.
    pub iterations: u64,
}

impl Test {
    /// Length of the row.
    pub const NUMBERS: usize = 3;

    /// The row to hand over.
    #[must_use]
    pub const fn numbers(self) -> [u64; Self::NUMBERS] {
        [self.size, self.count, self.iterations]
    }

    /// Row `index`.
    #[inline(always)]
    pub(crate) fn load(rows: Buffer, index: usize) -> Self {
        let first = index * Self::NUMBERS;
        Self { size: get(rows, first), count: get(rows, first + 1), iterations: get(rows, first + 2) }
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum Outcome {
    /// The kernel never got to it.
    #[default]
    NotRun = 0,
    /// All transfers were made, and all checked bytes were right.
    Good = 1,
    /// Nobody was accepted; `detail` is the errno.
    Accept = 2,
    /// No connection; `detail` is the errno.
    Connect = 3,
    /// A send failed; `detail` is the errno.
    Send = 4,
    /// A receive failed; `detail` is the errno.
    Recv = 5,
    /// The peer ended its stream in the middle; `detail` is the position where.
    Ended = 6,
    /// A byte was wrong; `detail` is its position.
    Differs = 7,
    /// Bytes came after the last test; `detail` is how many.
    Extra = 8,
}

impl Outcome {
    /// Reads the number.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        match raw {
            1 => Self::Good,
            2 => Self::Accept,
            3 => Self::Connect,
            4 => Self::Send,
            5 => Self::Recv,
            6 => Self::Ended,
            7 => Self::Differs,
            8 => Self::Extra,
            _ => Self::NotRun,
        }
    }
}

/// What [`crate::Rstream`] leaves of its connection: [`Ended::NUMBERS`] numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub outcome: Outcome,
    /// See [`Outcome`].
    pub detail: u64,
    /// Tests that were done.
    pub tests: u64,
    /// Position of the sending direction: bytes sent, with those of the connections before.
    pub sent: u64,
    /// Position of the receiving direction, likewise.
    pub received: u64,
}

impl Ended {
    /// Length of the record.
    pub const NUMBERS: usize = 5;

    pub(crate) fn store(&self, buffer: Buffer) {
        put(buffer, 0, self.outcome as u64);
        put(buffer, 1, self.detail);
        put(buffer, 2, self.tests);
        put(buffer, 3, self.sent);
        put(buffer, 4, self.received);
    }

    /// Reads the record back.
    #[must_use]
    pub fn from_numbers(numbers: [u64; Self::NUMBERS]) -> Self {
        let [outcome, detail, tests, sent, received] = numbers;
        Self { outcome: Outcome::from_raw(outcome), detail, tests, sent, received }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_app_kernel::NUMBER;

    #[allow(unsafe_code)]
    fn stored<const N: usize>(store: impl FnOnce(Buffer)) -> [u64; N] {
        let mut numbers = [0; N];
        // SAFETY: the array outlives the buffer, which only `store` uses.
        store(unsafe { Buffer::from_raw_parts(numbers.as_mut_ptr().cast(), N * NUMBER) });
        numbers
    }

    #[test]
    fn records_come_back() {
        for text in ["127.0.0.1:80", "[fe80::1%3]:65535"] {
            let addr: std::net::SocketAddr = text.parse().unwrap();
            let record = Listening { errno: 0, handle: i32::MAX, addr: addr.into() };
            assert_eq!(Listening::from_numbers(stored(|b| record.store(b))), record);
        }
        for raw in 0..9 {
            let outcome = Outcome::from_raw(raw);
            assert_eq!(outcome as u64, raw);
            let record = Ended { outcome, detail: 1, tests: 2, sent: 3, received: u64::MAX };
            assert_eq!(Ended::from_numbers(stored(|b| record.store(b))), record);
        }
        assert_eq!(Outcome::from_raw(9), Outcome::NotRun);
    }

    #[test]
    fn rows_of_tests_are_read_and_nothing_past_them() {
        let test = Test { size: 1, count: 2, iterations: 3 };
        let row = stored::<5>(|b| {
            (0..4).for_each(|at| put(b.first(36), at, if at < 3 { test.numbers()[at] } else { 9 }));
            put(b.first(36), 4, 7);
            assert_eq!(Test::load(b.first(36), 0), test);
            assert_eq!(Test::load(b.first(36), 1), Test { size: 9, count: 0, iterations: 0 });
        });
        assert_eq!(row, [1, 2, 3, 9, 0]);
    }
}
