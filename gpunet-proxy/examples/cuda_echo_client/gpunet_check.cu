// Exercises the C functions on a GPU: two blocks of one kernel talk to each other. Each check that
// fails leaves its line number; run by main.rs with --check.

#include <gpunet.h>

struct CheckResult {
    int line;
    int value;
};

#define CHECK(result, found, wanted)                                                                           \
    do {                                                                                                       \
        long long gpunet_found = (long long)(found);                                                           \
        if (gpunet_found != (long long)(wanted)) {                                                             \
            (result)->line = __LINE__;                                                                         \
            (result)->value = (int)gpunet_found;                                                               \
            return;                                                                                            \
        }                                                                                                      \
    } while (0)

// Where block 0 tells block 1 its port.
__device__ volatile int check_port;

static __device__ void serve(CheckResult *result) {
    __shared__ struct sockaddr_in addr;
    __shared__ socklen_t len;
    __shared__ unsigned char data[4096];
    __shared__ struct pollfd fds[2];
    __shared__ int value;
    BEGIN_SINGLE_THREAD_PART {
        addr.sin_family = AF_INET;
        addr.sin_port = 0;
        addr.sin_addr.s_addr = gpunet_htonl(0x7f000001);
        len = sizeof addr;
        value = 8192;
    } END_SINGLE_THREAD_PART;

    int listener = gsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(result, listener > 0, 1);
    CHECK(result, gsetsockopt(listener, SOL_SOCKET, SO_RCVBUF, &value, sizeof value), 0);
    CHECK(result, gbind(listener, (struct sockaddr *)&addr, sizeof addr), 0);
    CHECK(result, glisten(listener, 4), 0);
    CHECK(result, ggetsockname(listener, (struct sockaddr *)&addr, &len), 0);
    CHECK(result, gaccept_nb(listener), -EAGAIN);
    BEGIN_SINGLE_THREAD_PART {
        check_port = addr.sin_port;
        fds[0].fd = listener;
        fds[0].events = POLLIN;
        fds[1].fd = -1;
    } END_SINGLE_THREAD_PART;

    CHECK(result, gpoll(fds, 2, 10000000000ll), 1);
    CHECK(result, fds[0].revents, POLLIN);
    int socket = gaccept(listener, (struct sockaddr *)&addr, &len);
    CHECK(result, socket > 0, 1);
    CHECK(result, addr.sin_addr.s_addr, gpunet_htonl(0x7f000001));
    BEGIN_SINGLE_THREAD_PART {
        fds[1].fd = socket;
        fds[1].events = POLLIN | POLLOUT;
    } END_SINGLE_THREAD_PART;
    CHECK(result, gpoll(fds + 1, 1, -1) > 0, 1);

    // An echo until the end of the stream, by odd lengths.
    for (;;) {
        long long n = grecv(socket, data + 3, 4001);
        CHECK(result, n >= 0, 1);
        if (n == 0) break;
        for (long long sent = 0; sent < n;) {
            long long k = gsend(socket, data + 3 + sent, n - sent);
            CHECK(result, k > 0, 1);
            sent += k;
        }
    }
    CHECK(result, gclose(socket), 0);
    CHECK(result, gclose(socket), -EBADF);
    CHECK(result, gclose(listener), 0);
    CHECK(result, gsend(socket, data, 1), -EBADF);
}

static __device__ void call(CheckResult *result) {
    __shared__ struct sockaddr_in addr;
    __shared__ unsigned char out[3000];
    __shared__ unsigned char back[3000];
    __shared__ int value;
    BEGIN_SINGLE_THREAD_PART {
        while (check_port == 0) {}
        addr.sin_family = AF_INET;
        addr.sin_port = (unsigned short)check_port;
        addr.sin_addr.s_addr = gpunet_htonl(0x7f000001);
    } END_SINGLE_THREAD_PART;

    int socket = gsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(result, gconnect(socket, (struct sockaddr *)&addr, sizeof addr), 0);
    CHECK(result, gconnect(socket, (struct sockaddr *)&addr, sizeof addr) < 0, 1);
    CHECK(result, grecv_nb(socket, back, 1), -EAGAIN);
    for (int round = 0; round < 200; round++) {
        int len = 1 + (round * 97) % 2999;
        for (int i = threadIdx.x; i < len; i += blockDim.x) out[i] = (unsigned char)(i * 3 + round);
        CHECK(result, gsend(socket, out, len, MSG_WAITALL), len);
        CHECK(result, grecv(socket, back, 1, MSG_PEEK), 1);
        CHECK(result, grecv(socket, back, len, MSG_WAITALL), len);
        int wrong = 0;
        for (int i = threadIdx.x; i < len; i += blockDim.x) wrong |= out[i] != back[i];
        CHECK(result, __syncthreads_or(wrong), 0);
    }

    // One warp, then one thread, on the same socket.
    long long n = 0;
    if (threadIdx.x / 32 == 1) {
        n = gsend_warp(socket, out, 100);
        if (n == 100) n = grecv_warp(socket, back, 100, MSG_WAITALL);
    }
    CHECK(result, __syncthreads_or(threadIdx.x / 32 == 1 && n != 100), 0);
    if (threadIdx.x == 7) {
        n = gsend_thread(socket, out, 77);
        if (n == 77) n = grecv_thread(socket, back, 77, MSG_WAITALL);
    }
    CHECK(result, __syncthreads_or(threadIdx.x == 7 && n != 77), 0);

    // A divergent loop in which one warp waits longer than the others, and then the block again.
    if (threadIdx.x / 32 == 2) {
        for (int i = 0; i < 1000; i++) __nanosleep(100);
    }
    CHECK(result, gshutdown(socket, SHUT_WR), 0);
    CHECK(result, gsend(socket, out, 1), -EPIPE);
    CHECK(result, grecv(socket, back, 1), 0);
    value = 1;
    CHECK(result, gioctl(socket, FIONREAD, &value), 0);
    CHECK(result, value, 0);
    CHECK(result, gclose(socket), 0);
}

extern "C" __global__ void gpunet_check(CheckResult *results) {
    CheckResult *result = &results[blockIdx.x];
    result->line = -1;
    if (blockIdx.x == 0) serve(result);
    else call(result);
    if (threadIdx.x == 0 && result->line == -1) result->line = 0;
}
