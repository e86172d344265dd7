//! Finds references in a kernel's parameters, wherever they are, in the PTX build.

use core::marker::PhantomData;

/// A type that holds no reference: an auto trait, so the compiler looks into every field.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is a reference, and a kernel's parameters hold none",
    label = "a parameter of this kernel is or holds `{Self}`",
    note = "the host's memory is not the device's, and the compiler takes what a reference points to as unchanging",
    note = "pass a `Buffer` or a raw pointer instead"
)]
pub auto trait NoReferences {}

impl<T: ?Sized> !NoReferences for &T {}
impl<T: ?Sized> !NoReferences for &mut T {}
// The target of a raw pointer is not part of the parameters.
impl<T: ?Sized> NoReferences for *const T {}
impl<T: ?Sized> NoReferences for *mut T {}
impl<T: ?Sized> NoReferences for PhantomData<T> {}

/// Fails to compile if the parameters `K` hold a reference.
pub const fn absent_from<K: NoReferences>() {}
