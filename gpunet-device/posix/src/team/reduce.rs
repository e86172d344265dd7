//! `greduce`: types and operations are numbers.

use super::{Symmetric, in_time};
use crate::unless;
use gpunet_abi::{Error, Result};
use gpunet_device::Group;
use gpunet_device::team::{Bf16, F16, Maximum, Minimum, ONE_SHOT, Reducible, Sum, TeamHandle};

macro_rules! numbers {
    ($($name:ident = $value:literal, $doc:literal;)*) => {$(
        #[doc = $doc]
        pub const $name: i32 = $value;
    )*};
}
numbers! {
    SUM = 1, "The operation of [`reduce`] that adds.";
    MIN = 2, "The operation that takes the smallest.";
    MAX = 3, "The operation that takes the largest.";
    INT32 = 1, "The type of elements of [`reduce`]: `int`.";
    UINT32 = 2, "`unsigned int`.";
    INT64 = 3, "`long long`.";
    UINT64 = 4, "`unsigned long long`.";
    FLOAT = 5, "`float`.";
    DOUBLE = 6, "`double`.";
    HALF = 7, "`__half`.";
    BFLOAT16 = 8, "`__nv_bfloat16`.";
}

/// As [`TeamHandle::reduce`], of all elements of `from`. Returns 0.
///
/// # Errors
/// As [`TeamHandle::reduce`]; InvalidArgument for another type or operation, or memory that is not
/// of whole elements; WouldBlock when the team's timeout is over.
#[inline(always)]
pub fn reduce<G: Group>(
    g: &G,
    team: TeamHandle,
    kind: i32,
    operation: i32,
    to: Symmetric,
    from: Symmetric,
) -> Result<i64> {
    let element = match kind {
        HALF | BFLOAT16 => 2,
        INT32 | UINT32 | FLOAT => 4,
        INT64 | UINT64 | DOUBLE => 8,
        _ => return Err(Error::InvalidArgument),
    };
    unless((SUM..=MAX).contains(&operation), Error::InvalidArgument)?;
    match element {
        2 => to.cast::<u16>().and(from.cast::<u16>()).map(drop)?,
        4 => to.cast::<u32>().and(from.cast::<u32>()).map(drop)?,
        _ => to.cast::<u64>().and(from.cast::<u64>()).map(drop)?,
    }
    team.check_reduction(to, from)?;
    // One collective around all types: its barriers are much code.
    in_time(team.collectively(g, || match kind {
        INT32 => reduce_as::<G, i32>(g, team, operation, to, from),
        UINT32 => reduce_as::<G, u32>(g, team, operation, to, from),
        INT64 => reduce_as::<G, i64>(g, team, operation, to, from),
        UINT64 => reduce_as::<G, u64>(g, team, operation, to, from),
        FLOAT => reduce_as::<G, f32>(g, team, operation, to, from),
        DOUBLE => reduce_as::<G, f64>(g, team, operation, to, from),
        HALF => reduce_as::<G, F16>(g, team, operation, to, from),
        _ => reduce_as::<G, Bf16>(g, team, operation, to, from),
    }))
}

/// Reduces this member's share. The arguments were checked.
fn reduce_as<G: Group, T: Reducible>(
    g: &G,
    team: TeamHandle,
    operation: i32,
    to: Symmetric,
    from: Symmetric,
) {
    let (Ok(to), Ok(from)) = (to.cast::<T>(), from.cast::<T>()) else { return };
    match operation {
        SUM => team.reduce_share(g, Sum, to, from, ONE_SHOT),
        MIN => team.reduce_share(g, Minimum, to, from, ONE_SHOT),
        _ => team.reduce_share(g, Maximum, to, from, ONE_SHOT),
    }
}
