// A program for NVSHMEM: blocks put their shares of an array to the right neighbour, each with a signal; then all members sum up
// and gather.
//
//     torchrun --no-python --nproc-per-node 2 put_block    # or mpirun -n 2 put_block

#include <gpunet_nvshmem.h>

#include <cstdio>
#include <cstdlib>

static const int BLOCKS = 16, THREADS = 256;
static const size_t LENGTH = 1 << 16;
static const uint64_t ROUNDS = 5;

__global__ void put_block(float *to, const float *from, uint64_t *signals, uint64_t round) {
    const int right = (nvshmem_my_pe() + 1) % nvshmem_n_pes();
    const size_t share = LENGTH / gridDim.x, first = blockIdx.x * share;
    nvshmemx_float_put_signal_block(to + first, from + first, share, signals + blockIdx.x, round, NVSHMEM_SIGNAL_SET, right);
    if (threadIdx.x == 0) nvshmem_signal_wait_until(signals + blockIdx.x, NVSHMEM_CMP_GE, round);
    __syncthreads();
}

__global__ void sum_and_gather(float *sum, const float *from, int *all, const int *mine) {
    nvshmemx_float_sum_reduce_block(NVSHMEM_TEAM_WORLD, sum, from, LENGTH);
    nvshmemx_int_fcollect_block(NVSHMEM_TEAM_WORLD, all, mine, 4);
    nvshmemx_barrier_all_block();
}

static float value(int member, size_t i, uint64_t round) { return (float)((member + 1) * 1000 + i % 100 + 7 * round); }

int main() {
    // Set-up: a GPU for each member.
    nvshmem_init();
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) return 2;
    if (cudaSetDevice(nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE) % gpus) != cudaSuccess) return 2;

    const int me = nvshmem_my_pe(), count = nvshmem_n_pes(), left = (me + count - 1) % count;
    const size_t bytes = LENGTH * sizeof(float);
    float *from = (float *)nvshmem_malloc(bytes), *to = (float *)nvshmem_malloc(bytes);
    uint64_t *signals = (uint64_t *)nvshmem_calloc(BLOCKS, sizeof(uint64_t));
    int *mine = (int *)nvshmem_malloc(4 * sizeof(int)), *all = (int *)nvshmem_malloc(4 * sizeof(int) * count);
    if (!from || !to || !signals || !mine || !all) return 1;

    static float values[LENGTH];
    size_t wrong = 0;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        for (size_t i = 0; i < LENGTH; i++) values[i] = value(me, i, round);
        cudaMemcpy(from, values, bytes, cudaMemcpyHostToDevice);
        put_block<<<BLOCKS, THREADS>>>(to, from, signals, round);
        cudaMemcpy(values, to, bytes, cudaMemcpyDeviceToHost);
        for (size_t i = 0; i < LENGTH; i++) wrong += values[i] != value(left, i, round);
        nvshmem_barrier_all();
    }

    const int numbers[4] = {me, me * me, -me, 3};
    cudaMemcpy(mine, numbers, sizeof numbers, cudaMemcpyHostToDevice);
    sum_and_gather<<<1, THREADS>>>(to, from, all, mine);
    cudaMemcpy(values, to, bytes, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < LENGTH; i++) {
        float sum = 0;
        for (int member = 0; member < count; member++) sum += value(member, i, ROUNDS);
        wrong += values[i] != sum;
    }
    static int gathered[4 * 64];
    cudaMemcpy(gathered, all, 4 * sizeof(int) * count, cudaMemcpyDeviceToHost);
    for (int member = 0; member < count; member++) {
        const int *its = gathered + 4 * member;
        wrong += its[0] != member || its[1] != member * member || its[2] != -member || its[3] != 3;
    }
    printf("member %d of %d: %zu wrong\n", me, count, wrong);

    nvshmem_free(all);
    nvshmem_free(mine);
    nvshmem_free(signals);
    nvshmem_free(to);
    nvshmem_free(from);
    nvshmem_finalize();
    return wrong != 0;
}
