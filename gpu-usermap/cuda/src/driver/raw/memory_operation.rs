//! `CUstreamBatchMemOpParams`: one memory operation of a stream, among several that are enqueued at
//! once.

use std::ffi::c_uint;

use super::constants::{
    MEMORY_OPERATION_WAIT_VALUE_64, MEMORY_OPERATION_WRITE_VALUE_64, STREAM_WAIT_VALUE_GEQ,
    STREAM_WRITE_VALUE_DEFAULT,
};
use super::types::CUdeviceptr;

/// The union's two members for 64-bit words, which have one layout.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryOperation {
    pub(crate) operation: c_uint,
    padding: u32,
    pub(crate) address: CUdeviceptr,
    pub(crate) value: u64,
    pub(crate) flags: c_uint,
    padding_2: u32,
    /// For the driver's own use.
    alias: CUdeviceptr,
    /// The union is larger than these members.
    rest: u64,
}

impl MemoryOperation {
    pub(crate) fn wait_geq(address: CUdeviceptr, value: u64) -> Self {
        Self::new(MEMORY_OPERATION_WAIT_VALUE_64, address, value, STREAM_WAIT_VALUE_GEQ)
    }

    pub(crate) fn write(address: CUdeviceptr, value: u64) -> Self {
        Self::new(MEMORY_OPERATION_WRITE_VALUE_64, address, value, STREAM_WRITE_VALUE_DEFAULT)
    }

    fn new(operation: c_uint, address: CUdeviceptr, value: u64, flags: c_uint) -> Self {
        Self { operation, padding: 0, address, value, flags, padding_2: 0, alias: 0, rest: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of, size_of};

    use cudarc::driver::sys::{
        CUstreamBatchMemOpParams_union as Union,
        CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st as Wait,
        CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st as Write,
    };

    use super::MemoryOperation as Ours;

    #[test]
    fn the_layout_is_that_of_cuda_h() {
        assert_eq!((size_of::<Ours>(), align_of::<Ours>()), (size_of::<Union>(), align_of::<Union>()));
        let ours = [
            offset_of!(Ours, operation),
            offset_of!(Ours, address),
            offset_of!(Ours, value),
            offset_of!(Ours, flags),
            offset_of!(Ours, alias),
        ];
        assert_eq!(
            ours,
            [
                offset_of!(Wait, operation),
                offset_of!(Wait, address),
                offset_of!(Wait, __bindgen_anon_1),
                offset_of!(Wait, flags),
                offset_of!(Wait, alias),
            ]
        );
        assert_eq!(
            ours,
            [
                offset_of!(Write, operation),
                offset_of!(Write, address),
                offset_of!(Write, __bindgen_anon_1),
                offset_of!(Write, flags),
                offset_of!(Write, alias),
            ]
        );
    }
}
