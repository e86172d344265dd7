//! Plain accesses to numbers, and how lanes share the items of a phase.
#![allow(unsafe_code)]

use gpunet_device::Group;

/// A lane's part of a phase: the items `rank`, `rank + size`, and so on. A GPU's divisions of 32
/// bits are much shorter than those of 64.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

impl Lane {
    #[inline(always)]
    pub(crate) fn of<G: Group>(g: &G) -> Self {
        Self { rank: g.rank(), size: g.size() }
    }
}

/// A number that items are divided by, without the hundred cycles of a GPU's division.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    number: u32,
    /// 2^31 divided by the number, and up to 1 more.
    inverse: u32,
}

impl Divisor {
    /// Of numbers from 1 to 2^12.
    pub(crate) const fn new(number: u32) -> Self {
        let number = if number == 0 { 1 } else { number };
        Self { number, inverse: (1 << 31) / number + 1 }
    }

    pub(crate) const fn get(self) -> u32 {
        self.number
    }

    /// Quotient and remainder of a number below 2^19.
    #[inline(always)]
    pub(crate) const fn divide(self, number: u32) -> (u32, u32) {
        // What the inverse is too large makes the product too large by less than 1 / 2^12, which
        // does not reach the next quotient.
        let quotient = ((number as u64 * self.inverse as u64) >> 31) as u32;
        (quotient, number - quotient * self.number)
    }
}

/// Numbers side by side that a lane of attention has: few on a GPU, so that many lanes have some;
/// on a CPU a vector.
pub(crate) const SIDE: usize = if cfg!(target_arch = "nvptx64") { 2 } else { 4 };

#[cfg_attr(target_arch = "nvptx64", repr(C, align(8)))]
#[cfg_attr(not(target_arch = "nvptx64"), repr(C, align(16)))]
#[derive(Clone, Copy)]
struct Side([f32; SIDE]);

/// # Safety
/// `from` is readable for [`SIDE`] numbers, which nobody writes meanwhile, and aligned to them.
#[inline(always)]
pub(crate) unsafe fn load_side(from: *const f32) -> [f32; SIDE] {
    // SAFETY: the caller's contract.
    unsafe { from.cast::<Side>().read() }.0
}

/// # Safety
/// `to` is writable for [`SIDE`] numbers, which nobody else uses meanwhile, and aligned to them.
#[inline(always)]
pub(crate) unsafe fn store_side(to: *mut f32, numbers: [f32; SIDE]) {
    // SAFETY: the caller's contract.
    unsafe { to.cast::<Side>().write(Side(numbers)) };
}

/// Four numbers, loaded at once.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Four([f32; 4]);

/// # Safety
/// `from` is readable for four numbers, which nobody writes meanwhile, and aligned to 16 bytes.
#[inline(always)]
pub(crate) unsafe fn load_four(from: *const f32) -> [f32; 4] {
    // SAFETY: the caller's contract.
    unsafe { from.cast::<Four>().read() }.0
}

/// # Safety
/// `to` is writable for four numbers, which nobody else uses meanwhile, and aligned to 16 bytes.
#[inline(always)]
pub(crate) unsafe fn store_four(to: *mut f32, numbers: [f32; 4]) {
    // SAFETY: the caller's contract.
    unsafe { to.cast::<Four>().write(Four(numbers)) };
}

/// # Safety
/// `from` is a readable number, which nobody writes meanwhile.
#[inline(always)]
pub(crate) unsafe fn load(from: *const f32) -> f32 {
    // SAFETY: the caller's contract.
    unsafe { from.read() }
}

/// # Safety
/// `to` is a writable number, which nobody else uses meanwhile.
#[inline(always)]
pub(crate) unsafe fn store(to: *mut f32, number: f32) {
    // SAFETY: the caller's contract.
    unsafe { to.write(number) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisors_divide() {
        for divisor in (1..=400).chain([1 << 11, (1 << 12) - 1, 1 << 12]) {
            let (is, end) = (Divisor::new(divisor), 1 << 19);
            // Where a quotient changes.
            let numbers = (0..end).step_by(divisor as usize).flat_map(|at| [at, at + divisor - 1]);
            for number in numbers.filter(|&number| number < end) {
                assert_eq!(is.divide(number), (number / divisor, number % divisor), "{number} / {divisor}");
            }
        }
    }
}
