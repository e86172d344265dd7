//! What a block waits for: the word in which it shows that.
//!
//! ```text
//! bits 63-59  call
//! bit  58     the call is on a socket
//! bits 57-42  its slot
//! bits 41-34  the block's number, from bit 8 on
//! bits 33-0   how long it has waited, in units of 2^16 nanoseconds
//! ```
//!
//! A launch has [`BLOCKS`] words. Blocks whose numbers have the same lowest eight bits share one,
//! and the groups of a block do: it shows who stored last. Zero: nobody waits. A hint for
//! operators, on which nothing depends.

/// Words of a launch.
pub const BLOCKS: u32 = 256;
/// log2 of the nanoseconds in a unit of the time.
const UNIT_LOG2: u32 = 16;
const WAITED: u64 = (1 << 34) - 1;

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// What a group has called.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Call {
            $($(#[$doc])* $name = $code),*
        }

        impl Call {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name in tables.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text),*
                }
            }

            /// The call of that code; [`Call::Other`] if there is none.
            const fn from_raw(raw: u64) -> Self {
                match raw {
                    $($code => Self::$name,)*
                    _ => Self::Other,
                }
            }
        }
    };
}

calls! {
    /// Something else: another group, a lock.
    Other = 1, "other";
    /// Space to send.
    Send = 2, "send";
    /// Data to receive.
    Recv = 3, "recv";
    /// A connect.
    Connect = 4, "connect";
    /// An accept.
    Accept = 5, "accept";
    /// Another request to the proxy: a bind, a listen, options.
    Request = 6, "request";
    /// A close.
    Close = 7, "close";
    /// One of several sockets.
    Poll = 8, "poll";
    /// The sockets of a poll group.
    PollGroup = 9, "poll group";
    /// A word of the program's own.
    Word = 10, "word";
    /// Members of a team.
    Team = 11, "team";
    /// Room for a record.
    Record = 12, "record";
    /// A function of the host.
    Host = 13, "host call";
}

/// A call that waits, and the slot of its socket, in one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited(u32);

impl Awaited {
    /// A call on no single socket.
    #[must_use]
    #[inline(always)]
    pub const fn new(call: Call) -> Self {
        Self((call as u32) << 17)
    }

    /// A call on the socket of a slot.
    #[must_use]
    #[inline(always)]
    pub const fn on(call: Call, slot: u32) -> Self {
        // There are at most 2^16 slots; another number is none.
        if slot >> 16 == 0 { Self(Self::new(call).0 | 1 << 16 | slot) } else { Self::new(call) }
    }
}

/// What a block waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The block.
    pub block: u32,
    /// What it has called.
    pub call: Call,
    /// The slot of the socket, if it is on one.
    pub slot: Option<u32>,
    /// How long it had waited when it showed that.
    pub waited_ns: u64,
}

/// The word that shows what a block waits for.
#[must_use]
#[inline(always)]
pub const fn pack(awaited: Awaited, block: u32, waited_ns: u64) -> u64 {
    let waited = waited_ns >> UNIT_LOG2;
    let waited = if waited < WAITED { waited } else { WAITED };
    (awaited.0 as u64) << 42 | ((block / BLOCKS) as u64 & 0xff) << 34 | waited
}

/// What the word of that number shows; `None`: nobody waits.
#[must_use]
pub const fn unpack(word: u64, number: u32) -> Option<Waiting> {
    if word == 0 {
        return None;
    }
    let slot = if word >> 58 & 1 == 1 { Some((word >> 42) as u32 & 0xffff) } else { None };
    Some(Waiting {
        block: (word >> 34) as u32 % 256 * BLOCKS + number,
        call: Call::from_raw(word >> 59),
        slot,
        waited_ns: (word & WAITED) << UNIT_LOG2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_comes_back() {
        for &call in Call::ALL {
            for (block, slot) in [(0, None), (255, Some(0)), (256, Some(65_535)), (65_535, Some(7))] {
                let awaited = slot.map_or(Awaited::new(call), |slot| Awaited::on(call, slot));
                let word = pack(awaited, block, 3_600_000_000_000);
                let waiting = unpack(word, block % BLOCKS).unwrap();
                assert_eq!((waiting.block, waiting.call, waiting.slot), (block, call, slot));
                assert!(3_600_000_000_000 - waiting.waited_ns < 1 << UNIT_LOG2);
            }
        }
        assert_eq!(unpack(0, 1), None);
        assert_eq!(Awaited::on(Call::Send, u32::MAX), Awaited::new(Call::Send));
    }

    #[test]
    fn whatever_a_kernel_stores_is_something() {
        let waiting = unpack(u64::MAX, 255).unwrap();
        assert_eq!((waiting.call, waiting.slot, waiting.block), (Call::Other, Some(65_535), 65_535));
        assert_eq!(pack(Awaited::new(Call::Other), 0, u64::MAX) & WAITED, WAITED);
    }
}
