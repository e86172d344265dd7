//! The weights that are in the repository.

/// Aligned as a kernel needs it.
#[repr(C, align(64))]
struct Aligned<Bytes: ?Sized>(Bytes);

static FILE: &Aligned<[u8]> = &Aligned(*include_bytes!("../weights.safetensors"));

/// The weights that `train.py` has made: a safetensors file of halves, for
/// [`Weights::check`](crate::Weights::check). It is 64-aligned. The host copies it into memory that
/// a GPU reads; CPU blocks can use it where it lies.
pub static WEIGHTS: &[u8] = &FILE.0;
