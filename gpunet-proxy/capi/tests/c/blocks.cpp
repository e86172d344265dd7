// Kernels in CUDA C++ on CPU blocks: what gpunet_cpu.h has, each thing once, in blocks of as many threads as the argument says.

#include <gpunet.cuh>

#include "test.h"

#include <csignal>

namespace cg = cooperative_groups;

static int threads = 0;
static const int BLOCKS = 3;

// Counts the checks that fail, by any thread.
static int failed = 0;
#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition) && atomicAdd(&failed, 1) < 5) std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
    } while (0)

__shared__ int of_file;

// Threads see each other's shared memory, of their block alone; barriers order it.
__global__ void shares(unsigned int *sums, dim3 shape) {
    __shared__ unsigned int parts[1024], total;
    const unsigned int own = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z), count = blockDim.x * blockDim.y * blockDim.z;
    CHECK(blockDim.x == shape.x && blockDim.y == shape.y && blockDim.z == shape.z && gridDim.x == BLOCKS);
    for (unsigned int round = 1; round <= 20; round++) {
        parts[own] = (own + 1) * round * (blockIdx.x + 1);
        if (own == 0) of_file = static_cast<int>(round * 10 + blockIdx.x);
        __syncthreads();
        if (own == count - 1) {
            total = 0;
            for (unsigned int i = 0; i < count; i++) total += parts[i];
        }
        __syncthreads();
        CHECK(total == count * (count + 1) / 2 * round * (blockIdx.x + 1));
        CHECK(of_file == static_cast<int>(round * 10 + blockIdx.x));
        CHECK(__syncthreads_count(own % 3 == 0) == static_cast<int>((count + 2) / 3));
        CHECK(__syncthreads_or(own == count - 1) == 1 && __syncthreads_or(0) == 0);
        CHECK(__syncthreads_and(1) == 1 && __syncthreads_and(own != 0) == 0);
    }
    if (own == 0) sums[blockIdx.x] = total;
}

// Warps, of which the last may have fewer lanes.
__global__ void warps() {
    const unsigned int lane = threadIdx.x % warpSize, first = threadIdx.x - lane, mask = __activemask();
    const unsigned int count = blockDim.x - first < 32 ? blockDim.x - first : 32;
    CHECK(__shfl_sync(mask, threadIdx.x * 3, 0) == first * 3);
    CHECK(__shfl_sync(mask, threadIdx.x + 0.5, static_cast<int>(count) - 1) == first + count - 1 + 0.5);
    CHECK(__shfl_up_sync(mask, threadIdx.x, 1) == (lane > 0 ? threadIdx.x - 1 : threadIdx.x));
    CHECK(__shfl_down_sync(mask, threadIdx.x, 1) == (lane + 1 < count ? threadIdx.x + 1 : threadIdx.x));
    CHECK(__shfl_xor_sync(mask, threadIdx.x, 1) == ((lane ^ 1) < count ? threadIdx.x ^ 1 : threadIdx.x));
    CHECK(__shfl_sync(mask, lane, 5, 8) == ((lane & ~7u) + 5 < count ? (lane & ~7u) + 5 : lane));
    CHECK(__ballot_sync(mask, lane % 2 == 0) == (mask & 0x55555555u));
    CHECK(__any_sync(mask, lane == count - 1) && !__any_sync(mask, 0));
    CHECK(__all_sync(mask, 1) && !__all_sync(mask, lane != 0));
    const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    CHECK(tile.thread_rank() == lane && tile.meta_group_rank() == threadIdx.x / 32);
    tile.sync();
    CHECK(tile.shfl_up(threadIdx.x, 1) == (lane > 0 ? threadIdx.x - 1 : threadIdx.x));
    CHECK(tile.shfl_down(threadIdx.x, 1) == (lane + 1 < count ? threadIdx.x + 1 : threadIdx.x));
    CHECK(tile.shfl_xor(threadIdx.x, 1) == ((lane ^ 1) < count ? threadIdx.x ^ 1 : threadIdx.x));
    CHECK(tile.ballot(lane % 2 == 0) == (mask & 0x55555555u));
    CHECK(tile.any(lane == count - 1) && !tile.any(0) && tile.all(1) && !tile.all(lane != 0));
}

// What kernels calculate with.
__global__ void numbers() {
    CHECK(min(3, 4) == 3 && max(3.0f, 4.0f) == 4.0f && fmaxf(sqrtf(4.0f), 1.0f) == 2.0f && rsqrtf(4.0f) == 0.5f);
    CHECK(__popc(0xf0u) == 4 && __popcll(~0ull) == 64 && __clz(1) == 31 && __clz(0) == 32 && __clzll(0) == 64);
    CHECK(__ffs(0) == 0 && __ffs(8) == 4 && __ffsll(1ll << 40) == 41);
    const float4 four = make_float4(1, 2, 3, 4);
    const int2 two = make_int2(5, 6);
    CHECK(four.w == 4 && two.y == 6 && alignof(float4) == 16 && alignof(int2) == 8 && alignof(uchar4) == 4);
}

// A barrier waits for threads that have not ended; a lock and a flag are waited for by memory.
__global__ void loops(int *lock, int *held) {
    __shared__ int flag;
    if (threadIdx.x == blockDim.x - 1 && blockDim.x > 1) return;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    while (atomicCAS(lock, 0, 1) != 0) {}
    ++*held;
    __threadfence();
    atomicExch(lock, 0);
    if (threadIdx.x == 0) flag = 7;
    while (*static_cast<volatile int *>(&flag) != 7) __nanosleep(100);
}

// One thread waits in a call for what another one of its block sends; then all warps have connections of their own.
__global__ void threads_talk(gpunet_net_t net, struct sockaddr_in *address) {
    __shared__ int listener;
    __shared__ char came;
    const auto block = cg::this_thread_block();
    socklen_t len = sizeof *address;
    if (block.thread_rank() == 0) {
        listener = gpunet_listen_at_thread(net, reinterpret_cast<struct sockaddr *>(address), len);
        CHECK(gpunet_getsockname_thread(net, listener, reinterpret_cast<struct sockaddr *>(address), &len) == 0);
    }
    block.sync();
    if (block.size() >= 2 && block.thread_rank() == 0) {
        const int stream = gpunet_accept_thread(net, listener);
        CHECK(gpunet_recv_thread(net, stream, &came, 1) == 1 && came == 'x');
        CHECK(gpunet_close_thread(net, stream) == 0);
    }
    if (block.thread_rank() == 1) {
        const int stream = gpunet_connect_in_thread(net, address);
        CHECK(stream > 0 && gpunet_send_thread(net, stream, "x", 1) == 1 && gpunet_close_thread(net, stream) == 0);
    }
    block.sync();
    // Even warps accept, odd ones connect: each waits until another one of its block has come.
    const unsigned int number = block.thread_rank() / 32, count = block.size() / 64 * 2;
    const auto warp = gpunet::this_warp();
    __shared__ unsigned char bytes[1024];
    if (number < count && number % 2 == 0) {
        auto server = gpunet::listener::from_handle(net, listener).accept(warp);
        CHECK(server && server->recv_exact(warp, bytes + 32 * number, 32) && server->send_all(warp, bytes + 32 * number, 32));
        CHECK(server && server->close(warp));
    } else if (number < count) {
        auto client = gpunet::stream::connect(warp, net, gpunet::address(*address));
        bytes[block.thread_rank()] = static_cast<unsigned char>(block.thread_rank() % 32);
        CHECK(client && client->send_all(warp, bytes + 32 * number, 32));
        bytes[block.thread_rank()] = 0;
        CHECK(client && client->recv_exact(warp, bytes + 32 * number, 32) && bytes[block.thread_rank()] == block.thread_rank() % 32);
        CHECK(client && client->close(warp));
    }
    block.sync();
    CHECK(gpunet_close(net, listener) == 0);
}

// The program's signals reach its own threads.
__global__ void signals() {
    sigset_t blocked;
    CHECK(pthread_sigmask(SIG_BLOCK, nullptr, &blocked) == 0);
    CHECK(sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGSEGV) == 0);
}

__global__ void goes_apart() {
    if (threadIdx.x == 0) __syncthreads();
    else __syncwarp();
}

template <class Kernel, class... Arguments> static void run(Kernel kernel, unsigned int blocks, dim3 shape, Arguments... arguments) {
    cudaStream_t stream;
    IS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    gpunet::cpu::launch(kernel, blocks, shape, 0, stream)(arguments...);
    IS(cudaStreamSynchronize(stream), cudaSuccess);
    IS(cudaStreamDestroy(stream), cudaSuccess);
}

int main(int argc, char **argv) {
    begin();
    if (argc > 1 && std::strcmp(argv[1], "apart") == 0) run(goes_apart, 1, 2);
    threads = argc > 1 ? std::atoi(argv[1]) : 64;
    unsigned int sums[BLOCKS] = {};
    const unsigned int whole = static_cast<unsigned int>(threads);
    run(signals, 1, whole);
    const dim3 shape = whole % 8 == 0 ? dim3(whole / 8, 4, 2) : dim3(whole);
    run(shares, BLOCKS, shape, sums, shape);
    for (unsigned int block = 0; block < BLOCKS; block++) IS(sums[block], whole * (whole + 1) / 2 * 20 * (block + 1));
    run(warps, 2, whole);
    run(numbers, 1, whole);
    // No kernel runs in such a shape, and the program is told at once.
    for (const unsigned int blocks : {0u, 1u}) {
        gpunet::cpu::launch(numbers, blocks, blocks == 0 ? 1 : 1025)();
        IS(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
        IS(cudaGetLastError(), cudaErrorInvalidConfiguration);
        IS(cudaGetLastError(), cudaSuccess);
    }
    int lock = 0, held = 0;
    run(loops, 2, whole, &lock, &held);
    IS(held, 2 * (threads > 1 ? threads - 1 : 1));

    gpunet_host_proxy_t *proxy = proxy_new();
    gpunet_host_attachment_t *attachment = attachment_new(proxy);
    gpunet_host_token_t *token = NULL;
    uint64_t left_open = 9;
    OK(gpunet_host_token(attachment, &token));
    struct sockaddr_in address = loopback(0);
    run(threads_talk, 1, whole, gpunet_host_token_net(token), &address);
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, &left_open));
    IS(left_open, 0);
    OK(gpunet_host_attachment_close(attachment, NULL));
    OK(gpunet_host_proxy_close(proxy));
    IS(failed, 0);
    return end("blocks");
}
