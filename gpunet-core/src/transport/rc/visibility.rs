//! When bytes that a network card wrote may be announced to their reader.

/// Called after a completion was polled and before the bytes it covers are announced (`landed`).
///
/// The reader of a ring in host memory, be it a CPU or a GPU that reads over the bus, needs nothing
/// more: the card writes the data before the completion, to the same memory; polling the completion
/// is an acquire; and the publish of `landed` is a release that the reader acquires.
///
/// A ring in GPU memory is written over another path than the completion, so the completion alone
/// orders nothing for a kernel. There the GPU must order writes of third parties before what its
/// kernels see next. Such a ring is used only where the driver reports that it does
/// (`CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING` of at least "owner", as on Hopper, see
/// `gpu_usermap::placement`); where it does not, rings stay in host memory.
#[inline]
pub(super) fn before_landed() {
    // Ordering: Acquire, pairs with the card's write of the completion. The verbs providers have
    // one of their own in poll; this one stands where it is relied upon, and costs nothing on x86.
    std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
}
