//! On the CPU, where only tests call the C functions, each thread is a block, a warp and a thread.

use gpunet_device::group::Solo;

pub(in crate::capi) const fn block() -> Solo {
    Solo::new(0, 1)
}

pub(in crate::capi) const fn block_after_sync() -> Solo {
    block()
}

pub(in crate::capi) const fn warp() -> Solo {
    block()
}

pub(in crate::capi) const fn thread() -> Solo {
    block()
}
