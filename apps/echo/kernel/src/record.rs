//! What kernels and host exchange beside the sockets: rows of 64-bit numbers.

use gpunet_device::abi::Word;
use gpunet_device::{Buffer, SockAddr};

/// Bytes of a number.
pub const NUMBER: usize = 8;

/// Writes number `index` of a buffer; nothing past its end. One lane.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn put(buffer: Buffer, index: usize, value: u64) {
    let cell = buffer.skip(index * NUMBER);
    if cell.len() >= NUMBER {
        // SAFETY: eight bytes inside the buffer, which is writable by its constructor's contract;
        // the host makes buffers of numbers 8-aligned.
        let word = unsafe { Word::from_ptr(cell.as_ptr().cast()) };
        // A host may be watching; it uses nothing but the number, so nothing is ordered by it.
        word.set(value);
    }
}

/// What [`crate::EchoListen`] leaves: [`Listening::NUMBERS`] numbers.
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
        put(buffer, 1, self.handle as u64);
        put(buffer, 2, self.addr.family as u64 | (self.addr.port as u64) << 16);
        put(buffer, 3, u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        put(buffer, 4, u64::from_le_bytes([i, j, k, l, m, n, o, p]));
        put(buffer, 5, self.addr.scope as u64);
        put(buffer, 0, self.errno as u64);
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

/// What each block of [`crate::EchoServer`] leaves: [`Served::NUMBERS`] numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Connections accepted.
    pub connections: u64,
    /// Bytes sent back.
    pub bytes: u64,
    /// Connections that ended in an error.
    pub errors: u64,
    /// The errno of the last of them.
    pub last_errno: i32,
    /// Why the block stopped: ECANCELED is the normal end.
    pub stopped: i32,
}

impl Served {
    /// Length of the record.
    pub const NUMBERS: usize = 5;

    pub(crate) fn store(&self, buffer: Buffer) {
        put(buffer, 0, self.connections);
        put(buffer, 1, self.bytes);
        put(buffer, 2, self.errors);
        put(buffer, 3, self.last_errno as u64);
        put(buffer, 4, self.stopped as u64);
    }

    /// Reads the record back.
    #[must_use]
    pub fn from_numbers(numbers: [u64; Self::NUMBERS]) -> Self {
        Self {
            connections: numbers[0],
            bytes: numbers[1],
            errors: numbers[2],
            last_errno: numbers[3] as i32,
            stopped: numbers[4] as i32,
        }
    }
}

/// How a client's connection ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum Outcome {
    /// The block never got to it.
    #[default]
    NotRun = 0,
    /// All messages came back.
    Good = 1,
    /// No connection.
    Connect = 2,
    /// A send failed.
    Send = 3,
    /// A receive failed.
    Recv = 4,
    /// The server ended the stream in the middle.
    Ended = 5,
    /// A byte came back changed; `detail` is its offset in the message.
    Differs = 6,
    /// Bytes came back that were never sent.
    Extra = 7,
}

impl Outcome {
    /// Reads the number.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        match raw {
            1 => Self::Good,
            2 => Self::Connect,
            3 => Self::Send,
            4 => Self::Recv,
            5 => Self::Ended,
            6 => Self::Differs,
            7 => Self::Extra,
            _ => Self::NotRun,
        }
    }
}

/// What [`crate::EchoClient`] leaves of each connection: [`Driven::NUMBERS`] numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Driven {
    /// How it ended.
    pub outcome: Outcome,
    /// The errno of a failed call, or the offset of a changed byte.
    pub detail: u64,
    /// Messages that came back intact.
    pub messages: u64,
    /// When it was connected, by the device's clock.
    pub started_ns: u64,
    /// When the last message was back.
    pub ended_ns: u64,
}

impl Driven {
    /// Length of the record.
    pub const NUMBERS: usize = 5;

    pub(crate) fn store(&self, buffer: Buffer) {
        put(buffer, 1, self.detail);
        put(buffer, 2, self.messages);
        put(buffer, 3, self.started_ns);
        put(buffer, 4, self.ended_ns);
        put(buffer, 0, self.outcome as u64);
    }

    /// Reads the record back.
    #[must_use]
    pub fn from_numbers(numbers: [u64; Self::NUMBERS]) -> Self {
        Self {
            outcome: Outcome::from_raw(numbers[0]),
            detail: numbers[1],
            messages: numbers[2],
            started_ns: numbers[3],
            ended_ns: numbers[4],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let record = Served { connections: 1, bytes: 2, errors: 3, last_errno: 104, stopped: 125 };
        assert_eq!(Served::from_numbers(stored(|b| record.store(b))), record);
        for raw in 0..8 {
            let outcome = Outcome::from_raw(raw);
            assert_eq!(outcome as u64, raw);
            let record = Driven { outcome, detail: 1, messages: 2, started_ns: 3, ended_ns: u64::MAX };
            assert_eq!(Driven::from_numbers(stored(|b| record.store(b))), record);
        }
    }

    #[test]
    fn nothing_is_written_past_a_buffer() {
        let numbers: [u64; 2] = stored(|b| (0..4).for_each(|at| put(b.first(12), at, 7)));
        assert_eq!(numbers, [7, 0]);
    }
}
