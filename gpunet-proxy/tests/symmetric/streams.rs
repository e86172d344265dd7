//! Teams on queues of CUDA streams: on a GPU where there is one, else on a driver that stands in for it, which has no kernels.
