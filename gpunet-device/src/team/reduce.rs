//! Reductions: the sum, the smallest, the largest of what all members have.

use super::element::{Bf16, Element, F16};
use super::{SymmetricPtr, TeamHandle};
use crate::Group;
use gpunet_abi::team::Rank;
use gpunet_abi::{Error, Result};

/// Bytes up to which every member reduces everything itself, with the memory of all as its source.
/// Above, each member reduces one part of it and stores the result into everybody's memory: it then
/// moves less than two times the bytes and not as many times as there are members. From 4 KiB on
/// the second way is the faster one, on two H100s and on CPU blocks (docs/performance.md,
/// "Symmetric memory").
pub const ONE_SHOT: usize = 2 << 10;

/// How two numbers become one.
pub trait Operation: Copy {
    /// Applies it.
    fn apply<N: Number>(a: N, b: N) -> N;
}

/// The sum. Integers wrap around.
#[derive(Clone, Copy, Debug)]
pub struct Sum;
/// The smaller one; of a number and NaN, the number.
#[derive(Clone, Copy, Debug)]
pub struct Minimum;
/// The larger one; of a number and NaN, the number.
#[derive(Clone, Copy, Debug)]
pub struct Maximum;

impl Operation for Sum {
    #[inline(always)]
    fn apply<N: Number>(a: N, b: N) -> N {
        a.plus(b)
    }
}
impl Operation for Minimum {
    #[inline(always)]
    fn apply<N: Number>(a: N, b: N) -> N {
        a.smaller(b)
    }
}
impl Operation for Maximum {
    #[inline(always)]
    fn apply<N: Number>(a: N, b: N) -> N {
        a.larger(b)
    }
}

/// Numbers that are computed with.
pub trait Number: Copy {
    /// Their sum.
    #[must_use]
    fn plus(self, other: Self) -> Self;
    /// The smaller one.
    #[must_use]
    fn smaller(self, other: Self) -> Self;
    /// The larger one.
    #[must_use]
    fn larger(self, other: Self) -> Self;
}

/// Elements that can be reduced.
pub trait Reducible: Element {
    /// The type that is computed in: `f32` for halves, whose sums are rounded once.
    type Wide: Number;
    /// The same number in that type.
    fn widen(self) -> Self::Wide;
    /// The nearest element.
    fn narrow(wide: Self::Wide) -> Self;
}

macro_rules! numbers {
    ($($number:ty: $sum:expr;)*) => {
        $(
            impl Number for $number {
                #[inline(always)]
                fn plus(self, other: Self) -> Self {
                    $sum(self, other)
                }
                #[inline(always)]
                fn smaller(self, other: Self) -> Self {
                    self.min(other)
                }
                #[inline(always)]
                fn larger(self, other: Self) -> Self {
                    self.max(other)
                }
            }
            impl Reducible for $number {
                type Wide = Self;
                #[inline(always)]
                fn widen(self) -> Self {
                    self
                }
                #[inline(always)]
                fn narrow(wide: Self) -> Self {
                    wide
                }
            }
        )*
    };
}
numbers! {
    i32: i32::wrapping_add;
    u32: u32::wrapping_add;
    i64: i64::wrapping_add;
    u64: u64::wrapping_add;
    f32: core::ops::Add::add;
    f64: core::ops::Add::add;
}

macro_rules! halves {
    ($($half:ty),*) => {
        $(
            impl Reducible for $half {
                type Wide = f32;
                #[inline(always)]
                fn widen(self) -> f32 {
                    self.to_f32()
                }
                #[inline(always)]
                fn narrow(wide: f32) -> Self {
                    Self::from_f32(wide)
                }
            }
        )*
    };
}
halves!(F16, Bf16);

impl TeamHandle {
    /// Reduces the parts of `from` of all members, element by element in the order of ranks, into
    /// everybody's `to`. All get the same bits.
    ///
    /// One group of each device takes part. `to` may be `from`; otherwise they do not overlap.
    ///
    /// # Cooperation
    /// All lanes call it together; after it, every lane sees the result.
    ///
    /// # Errors
    /// InvalidArgument: a pointer is of another team, `to` is shorter, or they overlap in part.
    /// Else as [`TeamHandle::all_gather`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Result, team::{Sum, SymmetricPtr, TeamHandle}};
    /// # fn example<G: Group>(g: &G, team: TeamHandle, x: SymmetricPtr<f32>) -> Result<()> {
    /// team.reduce(g, Sum, x, x)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reduce<G: Group, T: Reducible, O: Operation>(
        self,
        g: &G,
        operation: O,
        to: SymmetricPtr<T>,
        from: SymmetricPtr<T>,
    ) -> Result<()> {
        self.check_reduction(to, from)?;
        self.collectively(g, || self.reduce_share(g, operation, to, from, ONE_SHOT))
    }

    /// Checks the arguments of a reduction.
    ///
    /// # Errors
    /// InvalidArgument, as [`TeamHandle::reduce`].
    #[inline(always)]
    #[doc(hidden)]
    pub fn check_reduction<T: Element>(self, to: SymmetricPtr<T>, from: SymmetricPtr<T>) -> Result<()> {
        to.check(self)?;
        from.check(self)?;
        let ((to_parts, to_offset), (from_parts, from_offset)) = (to.place(), from.place());
        let len = from.bytes() as u64;
        let overlaps =
            to_parts == from_parts && to_offset < from_offset + len && from_offset < to_offset + len;
        let is_in_place = to.place() == from.place();
        if to.len() < from.len() || (overlaps && !is_in_place) { Err(Error::InvalidArgument) } else { Ok(()) }
    }

    /// Reduces what this member has to: between the two barriers of the collective. Up to
    /// `one_shot` bytes every member reduces everything; [`ONE_SHOT`] was measured.
    #[inline(always)]
    #[doc(hidden)]
    pub fn reduce_share<G: Group, T: Reducible, O: Operation>(
        self,
        g: &G,
        operation: O,
        to: SymmetricPtr<T>,
        from: SymmetricPtr<T>,
        one_shot: usize,
    ) {
        let is_in_place = to.place() == from.place();
        // Where everybody reads all of it, nobody may write it meanwhile.
        let (start, end, first, count) = if from.bytes() <= one_shot && !is_in_place {
            (0, from.len(), self.rank, 1)
        } else {
            let part = from.len().div_ceil(self.size as usize);
            let start = (part * self.rank as usize).min(from.len());
            (start, (start + part).min(from.len()), 0, self.size)
        };
        self.reduce_run(g, operation, to, from, start, end, first, count);
    }

    /// Reduces the elements from `start` to `end`, each lane its share, and stores them into the
    /// parts of `count` members from `first` on.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "the two ways of reducing differ in the last four")]
    fn reduce_run<G: Group, T: Reducible, O: Operation>(
        self,
        g: &G,
        _operation: O,
        to: SymmetricPtr<T>,
        from: SymmetricPtr<T>,
        start: usize,
        end: usize,
        first: u32,
        count: u32,
    ) {
        let (mut at, lanes) = (start + g.rank() as usize, g.size() as usize);
        while at < end {
            let mut value = Self::element(from, Rank(0), at).widen();
            let mut member = 1;
            while member < self.size {
                value = O::apply(value, Self::element(from, Rank(member), at).widen());
                member += 1;
            }
            let value = T::narrow(value);
            let mut member = first;
            while member < first + count {
                let place = to.address(Rank(member)) as *mut T;
                // SAFETY: an element of that part: `to` is at least as long. Between the two
                // barriers this lane alone writes it.
                unsafe { place.wrapping_add(at).write(value) };
                member += 1;
            }
            at += lanes;
        }
    }

    #[inline(always)]
    fn element<T: Element>(from: SymmetricPtr<T>, member: Rank, at: usize) -> T {
        let place = from.address(member) as *const T;
        // SAFETY: an element of that part. Between the two barriers nobody writes it before this
        // lane has loaded it.
        unsafe { place.wrapping_add(at).read() }
    }
}
