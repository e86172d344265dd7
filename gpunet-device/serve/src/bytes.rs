//! Bytes that lie where they were received or stored, in one piece or two.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use gpunet_device::{Group, RingSpan, copy};

/// Bytes in place: in a receive ring (in two pieces, if they wrap around its end), in a
/// [`crate::Heap`], or in the program.
///
/// The lifetime is that of the turn or of the lock during which they stay unchanged.
///
/// # Cooperation
/// Every lane can call every method alone. If all lanes read the same bytes they get the same
/// results, so a request can be parsed by all lanes at once, without a barrier.
///
/// # Examples
///
/// ```
/// use gpunet_serve::Bytes;
///
/// let request = Bytes::from(b"GET key\r\n");
/// let space = request.find(b' ', 0).unwrap();
/// assert!(request.first(space) == b"GET" && request.first(space).eq_ignore_case(b"get"));
/// assert_eq!(request.slice(4, 3).get(0), b'k');
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'t> {
    first: *const u8,
    first_len: usize,
    second: *const u8,
    second_len: usize,
    life: PhantomData<&'t [u8]>,
}

impl<'t> From<&'t [u8]> for Bytes<'t> {
    #[inline(always)]
    fn from(bytes: &'t [u8]) -> Self {
        // SAFETY: borrowed for as long as the value lives.
        unsafe { Self::from_raw_parts(bytes.as_ptr(), bytes.len()) }
    }
}

impl<'t, const N: usize> From<&'t [u8; N]> for Bytes<'t> {
    #[inline(always)]
    fn from(bytes: &'t [u8; N]) -> Self {
        Self::from(&bytes[..])
    }
}

impl PartialEq<Bytes<'_>> for Bytes<'_> {
    #[inline(always)]
    fn eq(&self, other: &Bytes<'_>) -> bool {
        self.equals(*other)
    }
}

impl Eq for Bytes<'_> {}

impl PartialEq<[u8]> for Bytes<'_> {
    #[inline(always)]
    fn eq(&self, other: &[u8]) -> bool {
        self.equals(other.into())
    }
}

impl PartialEq<&[u8]> for Bytes<'_> {
    #[inline(always)]
    fn eq(&self, other: &&[u8]) -> bool {
        self.equals((*other).into())
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Bytes<'_> {
    #[inline(always)]
    fn eq(&self, other: &[u8; N]) -> bool {
        self.equals(other.into())
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Bytes<'_> {
    #[inline(always)]
    fn eq(&self, other: &&[u8; N]) -> bool {
        self.equals((*other).into())
    }
}

impl<'t> Bytes<'t> {
    /// No bytes.
    pub const EMPTY: Self = Self {
        first: core::ptr::null(),
        first_len: 0,
        second: core::ptr::null(),
        second_len: 0,
        life: PhantomData,
    };

    /// Bytes in one piece.
    ///
    /// # Safety
    /// They are readable and nobody writes them for as long as the value lives.
    #[inline(always)]
    pub(crate) const unsafe fn from_raw_parts(ptr: *const u8, len: usize) -> Self {
        Self { first: ptr, first_len: len, ..Self::EMPTY }
    }

    /// Received bytes.
    ///
    /// # Safety
    /// They are readable and not released for as long as the value lives.
    #[inline(always)]
    #[must_use]
    pub const unsafe fn of_span(span: RingSpan) -> Self {
        Self {
            first: span.first.ptr,
            first_len: span.first.len,
            second: span.second.ptr,
            second_len: span.second.len,
            life: PhantomData,
        }
    }

    /// How many there are.
    #[inline(always)]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.first_len + self.second_len
    }

    /// Returns whether there are none.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Byte `at`; 0 past the end.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, at: usize) -> u8 {
        let ptr = if at < self.first_len {
            self.first.wrapping_add(at)
        } else if at < self.len() {
            self.second.wrapping_add(at - self.first_len)
        } else {
            return 0;
        };
        // SAFETY: inside one of the pieces (checked), by the constructor's contract.
        unsafe { ptr.read() }
    }

    /// Eight bytes from `at` on, the first one lowest; 0 past the end.
    ///
    /// A GPU waits once for all of them, and not for one after the other.
    #[inline(always)]
    #[must_use]
    pub fn word(&self, at: usize) -> u64 {
        if at < self.first_len && self.first_len - at >= 8 {
            // SAFETY: inside the first piece (checked), by the constructor's contract.
            return u64::from_le(unsafe { self.first.wrapping_add(at).cast::<u64>().read_unaligned() });
        }
        if self.second_len > 0 {
            return split_word(*self, at);
        }
        // SAFETY: so many bytes are left of the piece, by the constructor's contract.
        unsafe { short_word(self.first.wrapping_add(at), self.first_len.saturating_sub(at)) }
    }

    /// What follows the first `len` bytes.
    #[inline(always)]
    #[must_use]
    pub const fn skip(&self, len: usize) -> Self {
        if len < self.first_len {
            Self { first: self.first.wrapping_add(len), first_len: self.first_len - len, ..*self }
        } else {
            let len = len - self.first_len;
            let len = if len < self.second_len { len } else { self.second_len };
            Self { first: self.second.wrapping_add(len), first_len: self.second_len - len, ..Self::EMPTY }
        }
    }

    /// The first `len` bytes, or all if there are fewer.
    #[inline(always)]
    #[must_use]
    pub const fn first(&self, len: usize) -> Self {
        if len <= self.first_len {
            return Self { first_len: len, second_len: 0, ..*self };
        }
        let rest = len - self.first_len;
        Self { second_len: if rest < self.second_len { rest } else { self.second_len }, ..*self }
    }

    /// `len` bytes from `start`, cut to what is there.
    #[inline(always)]
    #[must_use]
    pub const fn slice(&self, start: usize, len: usize) -> Self {
        self.skip(start).first(len)
    }

    /// Where `byte` is for the first time at or after `from`.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn find(&self, byte: u8, from: usize) -> Option<usize> {
        let mut at = from;
        while at < self.len() {
            // The lowest bit that is set is that of the first zero, above which there may be wrong
            // ones.
            let word = self.word(at) ^ (EACH * byte as u64);
            let zeros = word.wrapping_sub(EACH) & !word & EACH << 7;
            if zeros != 0 {
                let found = at + zeros.trailing_zeros() as usize / 8;
                return if found < self.len() { Some(found) } else { None };
            }
            at += 8;
        }
        None
    }

    #[inline(always)]
    pub(crate) fn equals_inline(&self, other: Bytes<'_>) -> bool {
        if self.len() != other.len() {
            return false;
        }
        let mut at = 0;
        while at < self.len() {
            if self.word(at) != other.word(at) {
                return false;
            }
            at += 8;
        }
        true
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn equals(&self, other: Bytes<'_>) -> bool {
        self.equals_inline(other)
    }

    /// Returns whether they are equal to `lower`, a text in lower case, without regard to the case
    /// of ASCII letters.
    #[inline(always)]
    #[must_use]
    pub fn eq_ignore_case<'o>(&self, lower: impl Into<Bytes<'o>>) -> bool {
        self.is_lower(lower.into())
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn is_lower(&self, lower: Bytes<'_>) -> bool {
        if self.len() != lower.len() {
            return false;
        }
        let mut at = 0;
        while at < lower.len() {
            if self.get(at).to_ascii_lowercase() != lower.get(at) {
                return false;
            }
            at += 1;
        }
        true
    }

    /// The decimal number that they spell, with nothing before or behind it: `-?[0-9]+`, no leading
    /// zeros.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn number(&self) -> Option<i64> {
        let mut word = self.word(0);
        let negative = word as u8 == b'-';
        let mut at = usize::from(negative);
        // 19 digits fit; one more is found by the checked multiplication.
        if self.len() == at || self.len() > at + 19 {
            return None;
        }
        word >>= 8 * at;
        if word as u8 == b'0' {
            return if self.len() == 1 { Some(0) } else { None };
        }
        let mut value: i64 = 0;
        while at < self.len() {
            if at > 0 && at.is_multiple_of(8) {
                word = self.word(at);
            }
            let digit = (word as u8).wrapping_sub(b'0');
            word >>= 8;
            if digit > 9 {
                return None;
            }
            let digit = if negative { -(digit as i64) } else { digit as i64 };
            value = value.checked_mul(10)?.checked_add(digit)?;
            at += 1;
        }
        Some(value)
    }

    /// A number that depends on all bytes and on a seed, for hash tables: SipHash-1-3. Who does not
    /// know the seed finds no bytes with the same number.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn hash(&self, [k0, k1]: [u64; 2]) -> u64 {
        let mut state = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        let mut at = 0;
        loop {
            // The last word has fewer than 8 bytes, and the length.
            let is_last = self.len() - at < 8;
            let word = self.word(at) | if is_last { (self.len() as u64) << 56 } else { 0 };
            at += 8;
            state[3] ^= word;
            state = sip_round(state);
            state[0] ^= word;
            if is_last {
                break;
            }
        }
        state[2] ^= 0xff;
        let [a, b, c, d] = sip_round(sip_round(sip_round(state)));
        a ^ b ^ c ^ d
    }

    /// Where they lie, if there are some and they are in one piece, as the data of a server is: for
    /// a structure of its own that reads them.
    #[inline(always)]
    #[must_use]
    pub const fn as_ptr(&self) -> Option<*const u8> {
        if self.second_len == 0 && self.first_len > 0 { Some(self.first) } else { None }
    }

    /// The piece before the end of the ring, or all.
    #[inline(always)]
    pub(crate) const fn first_piece(&self) -> (*const u8, usize) {
        if self.first_len > 0 { (self.first, self.first_len) } else { (self.second, self.second_len) }
    }

    /// Copies them to `to`, by one lane.
    ///
    /// # Safety
    /// As [`Bytes::copy_to`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) unsafe fn copy_alone(&self, to: *mut u8) {
        if self.len() > SHORT {
            // SAFETY: the caller's contract, and the constructor's.
            unsafe { copy::copy(0, 1, to, self.first, self.first_len) };
            let to = to.wrapping_add(self.first_len);
            // SAFETY: as above.
            return unsafe { copy::copy(0, 1, to, self.second, self.second_len) };
        }
        let mut at = 0;
        while at < self.len() {
            // SAFETY: the caller's contract.
            unsafe { to.wrapping_add(at).write(self.get(at)) };
            at += 1;
        }
    }

    /// Copies them to `to`, lanes side by side, without a barrier.
    ///
    /// # Safety
    /// `to` is writable for `self.len()` bytes, which overlap none of them and which nobody else
    /// uses.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) unsafe fn copy_to<G: Group>(&self, g: &G, to: *mut u8) {
        if self.first_len > 0 {
            // SAFETY: the caller's contract, and the constructor's.
            unsafe { copy::copy(g.rank(), g.size(), to, self.first, self.first_len) };
        }
        if self.second_len > 0 {
            let to = to.wrapping_add(self.first_len);
            // SAFETY: the caller's contract, and the constructor's.
            unsafe { copy::copy(g.rank(), g.size(), to, self.second, self.second_len) };
        }
    }
}

/// A one in each byte.
const EACH: u64 = u64::MAX / 255;

/// Fewer than eight bytes, the first one lowest, and zeros: [`Bytes::word`] at the end of a piece.
///
/// # Safety
/// `left` bytes, if they are fewer than eight, are readable at `ptr`.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
unsafe fn short_word(ptr: *const u8, left: usize) -> u64 {
    if left == 0 {
        return 0;
    }
    let (mut word, mut at) = (0, 0);
    while at < 7 {
        // Not by a branch: then the loads wait for each other.
        let (inside, mask) = if at < left { (at, 0xff) } else { (0, 0) };
        // SAFETY: the caller's contract.
        let byte = unsafe { ptr.wrapping_add(inside).read() };
        word |= (byte & mask) as u64 * (1 << (8 * at));
        at += 1;
    }
    word
}

/// [`Bytes::word`] across the end of a ring.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn split_word(bytes: Bytes<'_>, at: usize) -> u64 {
    let (mut word, mut inside) = (0, 0);
    while inside < 8 {
        word |= (bytes.get(at + inside) as u64) << (8 * inside);
        inside += 1;
    }
    word
}

/// Bytes up to which parts are copied by one look at each byte: more calls for whole chunks.
const SHORT: usize = 256;

/// How many bytes parts have together.
#[inline(always)]
pub(crate) fn total<const N: usize>(parts: &[Bytes<'_>; N]) -> usize {
    let (mut total, mut at) = (0, 0);
    while at < N {
        total += parts[at].len();
        at += 1;
    }
    total
}

/// Copies parts one behind the other to `to`, lanes side by side, without a barrier. A few short
/// parts take a group of many lanes no longer than one byte.
///
/// # Safety
/// As [`Bytes::copy_to`], for all parts together.
#[inline(always)]
pub(crate) unsafe fn copy_all<G: Group, const N: usize>(g: &G, parts: &[Bytes<'_>; N], to: *mut u8) {
    let total = total(parts);
    if total > SHORT || total > 4 * g.size() as usize {
        let (mut to, mut at) = (to, 0);
        while at < N {
            // SAFETY: the caller's contract.
            unsafe { parts[at].copy_to(g, to) };
            to = to.wrapping_add(parts[at].len());
            at += 1;
        }
        return;
    }
    let mut at = g.rank() as usize;
    while at < total {
        let (mut part, mut inside) = (0, at);
        while part < N && inside >= parts[part].len() {
            inside -= parts[part].len();
            part += 1;
        }
        // There is one: `at` is before the end of all.
        if let Some(bytes) = parts.get(part) {
            // SAFETY: the caller's contract.
            unsafe { to.wrapping_add(at).write(bytes.get(inside)) };
        }
        at += g.size() as usize;
    }
}

/// Bytes in two pieces.
#[cfg(test)]
pub(crate) fn in_two<'t>(whole: &'t [u8], cut: usize) -> Bytes<'t> {
    let (a, b) = whole.split_at(cut.min(whole.len()));
    Bytes {
        first: a.as_ptr(),
        first_len: a.len(),
        second: b.as_ptr(),
        second_len: b.len(),
        life: PhantomData,
    }
}

/// A round of SipHash.
#[inline(always)]
const fn sip_round([mut a, mut b, mut c, mut d]: [u64; 4]) -> [u64; 4] {
    a = a.wrapping_add(b);
    b = b.rotate_left(13) ^ a;
    a = a.rotate_left(32);
    c = c.wrapping_add(d);
    d = d.rotate_left(16) ^ c;
    a = a.wrapping_add(d);
    d = d.rotate_left(21) ^ a;
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_device::group::{Lanes, Solo};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn all(bytes: Bytes<'_>) -> Vec<u8> {
        (0..bytes.len()).map(|at| bytes.get(at)).collect()
    }

    proptest! {
        #[test]
        fn two_pieces_are_as_one(whole: Vec<u8>, cut in 0usize..40, start in 0usize..40, len in 0usize..40, byte: u8) {
            let (one, two) = (Bytes::from(&whole[..]), in_two(&whole, cut));
            prop_assert_eq!(all(two), whole.clone());
            prop_assert_eq!(all(two.slice(start, len)), all(one.slice(start, len)));
            prop_assert_eq!(two.find(byte, start), one.find(byte, start));
            let position = whole.iter().skip(start).position(|other| *other == byte);
            prop_assert_eq!(one.find(byte, start), position.map(|found| start + found));
            let mut word = [0; 8];
            word.iter_mut().zip(whole.iter().skip(start)).for_each(|(to, from)| *to = *from);
            prop_assert_eq!((one.word(start), two.word(start)), (u64::from_le_bytes(word), u64::from_le_bytes(word)));
            prop_assert!(two == one && two == whole[..] && two.hash([1, 2]) == one.hash([1, 2]));
            prop_assert_eq!(two.number(), one.number());
            let mut copy = std::vec![0; whole.len()];
            // SAFETY: as long as the bytes.
            unsafe { two.copy_to(&Solo::new(0, 1), copy.as_mut_ptr()) };
            prop_assert_eq!(copy, whole);
        }

        /// The standard library's hasher is SipHash-1-3, too, with the seed 0.
        #[test]
        fn the_hash_is_siphash(whole: Vec<u8>) {
            use std::hash::Hasher;
            let mut hasher = std::hash::DefaultHasher::new();
            hasher.write(&whole);
            prop_assert_eq!(Bytes::from(&whole[..]).hash([0, 0]), hasher.finish());
        }

        #[test]
        fn parts_are_copied_one_behind_the_other(a: Vec<u8>, b: Vec<u8>, cut in 0usize..40, lanes in 1u32..300) {
            let parts = [in_two(&a, cut), Bytes::EMPTY, Bytes::from(&b[..])];
            let mut copy = std::vec![0; total(&parts)];
            for lane in Lanes::group(0, 1, lanes) {
                // SAFETY: as long as the parts.
                unsafe { copy_all(&lane, &parts, copy.as_mut_ptr()) };
            }
            prop_assert_eq!(copy, [a, b].concat());
        }

        #[test]
        fn numbers_are_read_as_they_are_written(number: i64) {
            let text = std::format!("{number}");
            prop_assert_eq!(Bytes::from(text.as_bytes()).number(), Some(number));
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in
            ["", "-", "+1", "1 ", " 1", "01", "-0", "1.5", "9223372036854775808", "99999999999999999999"]
        {
            assert_eq!(Bytes::from(text.as_bytes()).number(), None, "{text}");
        }
    }
}
