// A wait of NVSHMEM for another comparison.
// refused: use NVSHMEM_CMP_GE
#include <gpunet_nvshmem.h>

extern "C" __global__ void wait(uint64_t *signal) { nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, 1); }
