// A fetching atomic operation of NVSHMEM.
// refused: no atomic operation crosses between members
#include <gpunet_nvshmem.h>

extern "C" __global__ void count(int *tickets, int *mine) { *mine = nvshmem_int_atomic_fetch_add(tickets, 1, 0); }
