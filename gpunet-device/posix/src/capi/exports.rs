//! The macros that export each call twice: with the context as its first argument, and for the module's.

/// Exports calls: `fn explicit | implicit(group = who(), net, argument: type, ...) -> type { body }`.
///
/// The body sees the calling group, the context, which is there, and the arguments; it returns a `Result<i64>`.
macro_rules! exports {
    ($(fn $explicit:ident | $implicit:ident(
        $g:ident = $caller:expr, $net:ident $(, $argument:ident: $kind:ty)* $(,)?
    ) -> $returned:ty $body:block)*) => {$(
        /// See `include/gpunet.h`.
        ///
        /// # Safety
        /// `net` is 0 or the address of a context, and each pointer points to what the header says.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub unsafe extern "C" fn $explicit(net: u64 $(, $argument: $kind)*) -> $returned {
            let $g = &$caller;
            let body = |$net| $body;
            // SAFETY: the caller's contract.
            (unsafe { $crate::capi::call(net, body) }) as $returned
        }

        implicit! { $explicit | $implicit($($argument: $kind),*) -> $returned }
    )*};
}

/// Exports calls that are others with some arguments fixed:
/// `fn explicit | implicit(net, argument: type, ...) -> type = other(net, ...);`.
macro_rules! forwards {
    ($(fn $explicit:ident | $implicit:ident(
        $net:ident $(, $argument:ident: $kind:ty)* $(,)?
    ) -> $returned:ty = $other:ident($($given:expr),* $(,)?);)*) => {$(
        /// See `include/gpunet.h`.
        ///
        /// # Safety
        /// `net` is 0 or the address of a context, and each pointer points to what the header says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $explicit($net: u64 $(, $argument: $kind)*) -> $returned {
            // SAFETY: the caller's contract.
            unsafe { $other($($given),*) }
        }

        implicit! { $explicit | $implicit($($argument: $kind),*) -> $returned }
    )*};
}

/// Exports the second name of a call: it calls the first one with the context of the module.
macro_rules! implicit {
    ($explicit:ident | $implicit:ident($($argument:ident: $kind:ty),*) -> $returned:ty) => {
        /// See `include/gpunet.h`.
        ///
        /// # Safety
        /// Each pointer points to what the header says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $implicit($($argument: $kind),*) -> $returned {
            // SAFETY: the host put the address of a context into the variable, or nothing; the pointers are
            // as the caller promises.
            unsafe { $explicit($crate::capi::attachment() $(, $argument)*) }
        }
    };
}
