//! What client kernels and their host exchange beside the sockets: rows of 64-bit numbers.

use gpunet_app_kernel::put;
use gpunet_device::Buffer;

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
        for raw in 0..8 {
            let outcome = Outcome::from_raw(raw);
            assert_eq!(outcome as u64, raw);
            let record = Driven { outcome, detail: 1, messages: 2, started_ns: 3, ended_ns: u64::MAX };
            assert_eq!(Driven::from_numbers(stored(|b| record.store(b))), record);
        }
    }
}
