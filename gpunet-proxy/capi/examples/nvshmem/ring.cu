// A program for NVSHMEM: every member gives its number to the right neighbour, and then a message goes round.
//
//     torchrun --no-python --nproc-per-node 2 ring        # or mpirun -n 2 ring

#include <gpunet_nvshmem.h>

#include <cstdio>
#include <cstdlib>

static const size_t LENGTH = 4096;

__global__ void give_number(int *number) {
    const int me = nvshmem_my_pe();
    nvshmem_int_p(number, me, (me + 1) % nvshmem_n_pes());
}

// The root's message goes from neighbour to neighbour.
__global__ void pass_on(int *message, size_t n, int root, uint64_t *signal) {
    const int me = nvshmem_my_pe(), right = (me + 1) % nvshmem_n_pes();
    if (me != root) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, 1);
    if (right == root) return;
    nvshmem_int_put(message, message, n, right);
    nvshmem_fence();
    nvshmemx_signal_op(signal, 1, NVSHMEM_SIGNAL_SET, right);
}

int main() {
    // Set-up: a GPU for each member.
    nvshmem_init();
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) return 2;
    if (cudaSetDevice(nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE) % gpus) != cudaSuccess) return 2;

    const int me = nvshmem_my_pe(), count = nvshmem_n_pes();
    int *number = (int *)nvshmem_malloc(sizeof(int));
    int *message = (int *)nvshmem_malloc(LENGTH * sizeof(int));
    uint64_t *signal = (uint64_t *)nvshmem_calloc(1, sizeof(uint64_t));
    if (!number || !message || !signal) return 1;

    cudaStream_t stream;
    cudaStreamCreate(&stream);
    int got = -1;
    give_number<<<1, 1, 0, stream>>>(number);
    nvshmemx_barrier_all_on_stream(stream);
    cudaMemcpyAsync(&got, number, sizeof got, cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);

    static int values[LENGTH];
    for (size_t i = 0; i < LENGTH; i++) values[i] = me == 0 ? (int)(i * 7 + 1) : 0;
    cudaMemcpy(message, values, sizeof values, cudaMemcpyHostToDevice);
    nvshmem_barrier_all();
    pass_on<<<1, 1, 0, stream>>>(message, LENGTH, 0, signal);
    nvshmemx_barrier_all_on_stream(stream);
    cudaStreamSynchronize(stream);
    cudaMemcpy(values, message, sizeof values, cudaMemcpyDeviceToHost);
    size_t wrong = got != (me + count - 1) % count;
    for (size_t i = 0; i < LENGTH; i++) wrong += values[i] != (int)(i * 7 + 1);
    printf("member %d of %d: got %d, %zu wrong\n", me, count, got, wrong);

    cudaStreamDestroy(stream);
    nvshmem_free(signal);
    nvshmem_free(message);
    nvshmem_free(number);
    nvshmem_finalize();
    return wrong != 0;
}
