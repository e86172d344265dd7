//! The macros that export calls.

/// Exports calls: `fn name(group = who(), net, argument: type, ...) -> type { body }`.
///
/// The body sees the calling group, the context, which is there, and the arguments; it returns a
/// `Result<i64>`.
macro_rules! exports {
    ($(fn $name:ident(
        $g:ident = $caller:expr, $net:ident $(, $argument:ident: $kind:ty)* $(,)?
    ) -> $returned:ty $body:block)*) => {$(
        /// See `include/gpunet.h`.
        ///
        /// # Safety
        /// `net` is 0 or the address of a context, and each pointer points to what the header says.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub unsafe extern "C" fn $name(net: u64 $(, $argument: $kind)*) -> $returned {
            let $g = &$caller;
            let body = |$net| $body;
            // SAFETY: the caller's contract.
            (unsafe { $crate::capi::callers::with_net(net, body) }) as $returned
        }
    )*};
}

/// Exports calls that are others with some arguments fixed:
/// `fn name(net, argument: type, ...) -> type = other(net, ...);`.
macro_rules! forwards {
    ($(fn $name:ident(
        $net:ident $(, $argument:ident: $kind:ty)* $(,)?
    ) -> $returned:ty = $other:ident($($given:expr),* $(,)?);)*) => {$(
        /// See `include/gpunet.h`.
        ///
        /// # Safety
        /// `net` is 0 or the address of a context, and each pointer points to what the header says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($net: u64 $(, $argument: $kind)*) -> $returned {
            // SAFETY: the caller's contract.
            unsafe { $other($($given),*) }
        }
    )*};
}
