//! Plain structures as bytes, and back.

use gpunet_abi::control::{Reply, Request};
use gpunet_device::team::Element;

/// A structure of plain integers.
///
/// # Safety
/// `#[repr(C)]`, integers only and no padding between them: all its bytes are initialised, and any
/// bytes are a valid value.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: `repr(C)`: eight u32, `Options` and `SockAddr` (32 bytes each, without padding), twelve
// u64; 192 bytes, as asserted next to it.
unsafe impl Plain for Request {}
// SAFETY: `repr(C)`: u64, two u32, u64, and a `Descriptor` of 144 bytes without padding.
unsafe impl Plain for Reply {}

const _: () = assert!(size_of::<Request>() == 8 * 4 + 2 * 32 + 12 * 8);
const _: () = assert!(size_of::<Reply>() == 8 + 4 + 4 + 8 + 144);

/// The bytes of a structure.
pub(crate) fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: the bytes of a live value, all of them initialised (`Plain`).
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// A structure of these bytes; `None` when there are more or fewer than it has.
pub(crate) fn from_bytes<T: Plain>(bytes: &[u8]) -> Option<T> {
    // SAFETY: as many readable bytes as the value has (checked), and any bytes are one (`Plain`).
    (bytes.len() == size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The bytes of elements.
pub(crate) fn bytes_of_slice<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: the bytes of live values without padding (`Element`).
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The bytes of elements, to be written.
pub(crate) fn bytes_of_slice_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as above; any bytes are values (`Element`).
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_abi::control::Op;

    #[test]
    fn a_request_survives_the_way() {
        let mut request = Request::new(Op::Connect, 7, 3, 1);
        request.value = u64::MAX;
        let bytes = bytes_of(&request).to_vec();
        let back: Request = from_bytes(&bytes).expect("as many bytes");
        assert_eq!((back.slot, back.generation, back.value), (7, 3, u64::MAX));
        assert!(from_bytes::<Request>(&bytes[1..]).is_none());
        assert!(from_bytes::<Reply>(&[]).is_none());
    }
}
