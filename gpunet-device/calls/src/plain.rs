//! Data that kernels and the host have in the same form.
#![allow(unsafe_code)]

use gpunet_device::SockAddr;

/// Data that can be copied byte by byte between a kernel and the host.
///
/// Implemented for integers, floats, `()`, arrays of these, and [`SockAddr`].
/// [`plain!`](crate::plain) declares structures of such fields.
///
/// # Safety
/// The type has no padding, every pattern of bits is a value of it, and its fields lie at the same
/// offsets in the kernel and on the host (`#[repr(C)]`). It holds no address of either.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain_types {
    ($($type:ty),*) => {
        $(
            // SAFETY: no padding, and every pattern of bits is a value.
            unsafe impl Plain for $type {}
        )*
    };
}
plain_types!((), u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

// SAFETY: elements lie one after another, without padding between them.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

// SAFETY: numbers and bytes at fixed offsets (`#[repr(C)]`), 32 bytes without padding.
unsafe impl Plain for SockAddr {}

/// Declares structures that are requests and answers: `#[repr(C)]`, with [`Plain`] fields and
/// without padding. A structure with padding does not compile.
///
/// # Examples
///
/// ```
/// gpunet_calls::plain! {
///     /// What to look for.
///     #[derive(Debug, PartialEq)]
///     pub struct Key {
///         pub table: u32,
///         pub row: u32,
///     }
/// }
/// assert_eq!(size_of::<Key>(), 8);
/// ```
///
/// ```compile_fail
/// gpunet_calls::plain! {
///     struct Padded {
///         small: u32,
///         large: u64,
///     }
/// }
/// ```
#[macro_export]
macro_rules! plain {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),* $(,)?
    })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy)]
            #[repr(C)]
            $vis struct $name {
                $($(#[$field_meta])* $field_vis $field: $type),*
            }

            const _: () = {
                const fn is_plain<T: $crate::Plain>() -> usize {
                    size_of::<T>()
                }
                assert!(size_of::<$name>() == 0 $(+ is_plain::<$type>())*, "a field is missing: there is padding");
            };

            // SAFETY: `#[repr(C)]`, all fields are plain, and there is no padding between them.
            #[allow(unsafe_code)]
            unsafe impl $crate::Plain for $name {}
        )*
    };
}

#[cfg(test)]
mod tests {
    plain! {
        #[derive(Debug, PartialEq)]
        struct Both {
            a: u64,
            b: [u16; 2],
            c: f32,
        }
    }

    #[test]
    fn structures_keep_their_fields() {
        let both = Both { a: 1, b: [2, 3], c: 4.0 };
        assert_eq!((size_of::<Both>(), both), (16, both));
    }
}
