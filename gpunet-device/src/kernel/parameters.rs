//! The checks that `kernel_entry!` makes when it is compiled. Only the macro uses them.

use core::mem::MaybeUninit;

/// Returns whether two names are equal.
#[must_use]
pub const fn same_name(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Returns whether the compiler knows a parameter that is never zero, such as a reference.
///
/// It does unless another parameter has more unused values (a `bool`); then [`zero`] finds it, in
/// other words.
///
/// # Safety
/// As for [`zero`].
#[must_use]
pub const unsafe fn is_never_zero<K: Copy>() -> bool {
    // An `Option` without a tag of its own stores `None` as a value that its content never has.
    let has_no_tag = size_of::<Option<K>>() == size_of::<K>();
    // SAFETY: the caller's promise.
    has_no_tag && unsafe { zero::<Option<K>>() }.is_none()
}

/// Returns a value with all bytes zero.
///
/// # Safety
/// Called for the value of a constant, so by the compiler only. It checks such a value, and rejects
/// a reference or a function pointer that is zero.
#[must_use]
pub const unsafe fn zero<T: Copy>() -> T {
    // SAFETY: the caller's promise.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Reads every byte of `parameters`. The compiler rejects a read of an uninitialised one.
///
/// # Safety
/// As for [`zero`].
pub const unsafe fn read_every_byte<K: Copy>(parameters: K) {
    let parameters = MaybeUninit::new(parameters);
    let bytes = (&raw const parameters).cast::<u8>();
    let mut offset = 0;
    while offset < size_of::<K>() {
        // SAFETY: inside `parameters`, and by the caller's promise in the compiler only.
        let _ = unsafe { bytes.add(offset).read() }; // A failure here means padding: make it a field.
        offset += 1;
    }
}
