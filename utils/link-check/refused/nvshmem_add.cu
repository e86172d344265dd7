// A signal of NVSHMEM to which several members add.
// refused: give each source a word
#include <gpunet_nvshmem.h>

extern "C" __global__ void add(uint64_t *signal) { nvshmemx_signal_op(signal, 1, NVSHMEM_SIGNAL_ADD, 0); }
