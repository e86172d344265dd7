//! Texts that fit into a register.

/// A text of at most eight bytes, which a GPU keeps in a register: a fixed answer, or the head of
/// one.
///
/// # Examples
///
/// ```
/// use gpunet_serve::Short;
///
/// const OK: Short = Short::of(b"+OK");
/// assert_eq!((OK.len(), OK.get(1)), (3, b'O'));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// The first byte is the lowest one.
    word: u64,
    len: usize,
}

impl Short {
    /// No bytes.
    pub const EMPTY: Self = Self { word: 0, len: 0 };

    /// A text of the program.
    #[must_use]
    pub const fn of<const N: usize>(text: &[u8; N]) -> Self {
        const { assert!(N <= 8, "a short text has eight bytes at most") };
        let (mut short, mut at) = (Self::EMPTY, N);
        while at > 0 {
            at -= 1;
            short = short.behind(text[at]);
        }
        short
    }

    /// The same text behind one more byte; the last of more than eight is lost.
    #[inline(always)]
    #[must_use]
    pub const fn behind(self, first: u8) -> Self {
        Self { word: self.word << 8 | first as u64, len: if self.len < 8 { self.len + 1 } else { 8 } }
    }

    /// How many bytes there are.
    #[inline(always)]
    #[must_use]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The bytes as a number, the first one lowest.
    #[inline(always)]
    #[must_use]
    pub const fn word(self) -> u64 {
        self.word
    }

    /// Byte `at`; 0 past the end.
    #[inline(always)]
    #[must_use]
    pub const fn get(self, at: usize) -> u8 {
        if at < 8 { (self.word >> (8 * at)) as u8 } else { 0 }
    }
}
