//! The messages of the protocol: 32 bits, the operation in the top three.

use super::violation::Violation;

/// Control messages (grants, credits, ends, signs of life) that may be under way at a time, in work
/// requests: a peer keeps this many receives beyond its credits.
pub const CONTROL_LIMIT: u32 = 4;

const DATA: u32 = 0;
const SGL: u32 = 4;
const IOMAP: u32 = 6;
const CTRL: u32 = 7;
/// Marks bytes that were written without a message; a receiver ignores it.
const WRITE_TAG: u32 = 2;
const DISCONNECT: u32 = 0;
const KEEPALIVE: u32 = 1;
const SHUTDOWN: u32 = 2;
/// Between gpunet ends only, see [`super::Capabilities`].
const RESET: u32 = 3;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// This many bytes were written, by the same request.
    Data(u32),
    /// The sender of this accepts data messages up to that number; perhaps it has published a
    /// buffer.
    Credits(u16),
    /// The end of both directions.
    Disconnect,
    /// The end of this direction.
    Shutdown,
    /// The connection is given up (gpunet ends only).
    Reset,
    /// Nothing for us: a sign of life, or an entry of a table that we do not have.
    Ignored {
        /// It used up one of the credits.
        counted: bool,
    },
}

impl Message {
    /// The 32 bits.
    #[must_use]
    pub const fn encode(self) -> u32 {
        match self {
            Self::Data(len) => DATA << 29 | len,
            Self::Credits(limit) => SGL << 29 | limit as u32,
            Self::Disconnect => CTRL << 29 | DISCONNECT,
            Self::Shutdown => CTRL << 29 | SHUTDOWN,
            Self::Reset => CTRL << 29 | RESET,
            Self::Ignored { .. } => CTRL << 29 | KEEPALIVE,
        }
    }

    /// Reads 32 bits.
    ///
    /// # Errors
    /// [`Violation`], for reserved operations and for data of 0 bytes (which an rsocket reader
    /// would take for the end of the stream).
    pub const fn decode(bits: u32) -> Result<Self, Violation> {
        let argument = bits & 0x1fff_ffff;
        Ok(match (bits >> 29, argument) {
            (DATA, 0) => return Err(Violation::Empty),
            (DATA, len) => Self::Data(len),
            (SGL, limit) => Self::Credits(limit as u16),
            (CTRL, DISCONNECT) => Self::Disconnect,
            (CTRL, SHUTDOWN) => Self::Shutdown,
            (CTRL, RESET) => Self::Reset,
            (CTRL | WRITE_TAG, _) => Self::Ignored { counted: false },
            (IOMAP, _) => Self::Ignored { counted: true },
            (op, _) => return Err(Violation::Reserved(op)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_wire() {
        for (message, bits) in [
            (Message::Data(16), 0x0000_0010),
            (Message::Credits(0x180), 0x8000_0180),
            (Message::Disconnect, 0xe000_0000),
            (Message::Shutdown, 0xe000_0002),
            (Message::Reset, 0xe000_0003),
            (Message::Ignored { counted: false }, 0xe000_0001),
        ] {
            assert_eq!(message.encode(), bits);
            assert_eq!(Message::decode(bits), Ok(message));
        }
        assert_eq!(Message::decode(0xe000_0001), Ok(Message::Ignored { counted: false }));
        assert_eq!(Message::decode(0xc000_0005), Ok(Message::Ignored { counted: true }));
        assert_eq!(Message::decode(0x8001_0180), Ok(Message::Credits(0x180)), "17 bits may appear");
        assert_eq!(Message::decode(0), Err(Violation::Empty));
        for op in [1, 3, 5] {
            assert_eq!(Message::decode(op << 29 | 7), Err(Violation::Reserved(op)));
        }
    }
}
