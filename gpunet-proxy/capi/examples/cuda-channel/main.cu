/* Arrays from a GPU in one process to a GPU in another: kernels fill them on a stream, behind which they are sent, and kernels of
 * the other process check every byte. The memory is filled anew for each round.
 *
 *     cuda-channel [--gpus FROM TO] [--bytes N] [--rounds N] [--connections]
 *
 * --connections: not by a copy from memory to memory. It ends with 2 where there is no such GPU. */
#include <gpunet_host.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

static constexpr long long SECOND = 1000000000, MINUTE = 60 * SECOND;

static int gpus[2] = {0, 0}, rounds = 5;
static long long bytes = 256ll << 20;
static unsigned flags = 0;

static void must(const char *what, int result) {
    if (result >= 0) return;
    fprintf(stderr, "%s: %s (%d)\n", what, gpunet_host_last_error(), result);
    exit(1);
}

static void must(const char *what, cudaError_t error) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver || error == cudaErrorInvalidDevice ? 2 : 1);
}

__device__ static unsigned char byte_at(unsigned long long at, int round) {
    return (unsigned char)((at + 77ull * (unsigned)round) * 2654435761u >> 13);
}

__global__ void fill(unsigned char *data, unsigned long long len, int round) {
    for (unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; at < len; at += (unsigned long long)gridDim.x * blockDim.x)
        data[at] = byte_at(at, round);
}

__global__ void check(const unsigned char *data, unsigned long long len, int round, unsigned long long *wrong) {
    for (unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; at < len; at += (unsigned long long)gridDim.x * blockDim.x)
        if (data[at] != byte_at(at, round)) atomicAdd(wrong, 1ull);
}

static gpunet_host_array array_on(int gpu, void *data, int64_t *shape) {
    gpunet_host_array array = {};
    array.data = data;
    array.shape = shape;
    array.rank = 1;
    array.dtype = {GPUNET_HOST_UINT, 8, 1};
    array.device_type = GPUNET_HOST_CUDA;
    array.device_id = gpu;
    return array;
}

/* The GPU that a process uses, memory of it, and a stream. */
struct gpu_memory {
    unsigned char *data;
    cudaStream_t stream;
};

static gpu_memory memory_on(int gpu) {
    gpu_memory memory = {};
    must("choosing a GPU", cudaSetDevice(gpu));
    must("allocating", cudaMalloc((void **)&memory.data, (size_t)bytes));
    must("making a stream", cudaStreamCreateWithFlags(&memory.stream, cudaStreamNonBlocking));
    return memory;
}

/* Accepts the other process's channel; ends with it, if it ends before. */
static gpunet_host_channel_t *accept_from(pid_t child, gpunet_host_channel_listener_t *listener) {
    gpunet_host_channel_t *channel = nullptr;
    int status = 0, accepted;
    while ((accepted = gpunet_host_channel_accept(listener, SECOND, &channel)) == -EAGAIN)
        if (waitpid(child, &status, WNOHANG) == child) exit(WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1);
    must("accepting", accepted);
    return channel;
}

static void send_all(int port, pid_t child) {
    gpu_memory memory = memory_on(gpus[0]);
    gpunet_host_channel_settings settings = {};
    settings.flags = flags;
    gpunet_host_channel_listener_t *listener = nullptr;
    sockaddr_in address = {};
    socklen_t len = sizeof address;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must("listening", gpunet_host_channel_listen((sockaddr *)&address, len, &settings, &listener));
    must("the port", gpunet_host_channel_getsockname(listener, (sockaddr *)&address, &len));
    if (write(port, &address.sin_port, sizeof address.sin_port) != sizeof address.sin_port) exit(1);
    gpunet_host_channel_t *channel = accept_from(child, listener);
    int64_t shape[1] = {bytes};
    gpunet_host_array array = array_on(gpus[0], memory.data, shape);
    for (int round = 0; round < rounds; round++) {
        fill<<<256, 256, 0, memory.stream>>>(memory.data, (unsigned long long)bytes, round);
        must("filling", cudaGetLastError());
        gpunet_host_transfer_options options = {};
        options.custream = memory.stream; /* the transfer begins when the kernel is done */
        options.custream_device = gpus[0];
        options.timeout_ns = MINUTE;
        gpunet_host_outcome outcome;
        must("sending", gpunet_host_channel_send(channel, &array, 1, &options, &outcome));
        printf("sent %llu bytes by %s\n", (unsigned long long)outcome.moved, outcome.text);
    }
    must("closing", gpunet_host_channel_close(channel));
    must("closing", gpunet_host_channel_listener_close(listener));
    cudaStreamDestroy(memory.stream);
    cudaFree(memory.data);
}

static int receive_all(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    /* The other process has no GPU, and says why. */
    if (read(port, &address.sin_port, sizeof address.sin_port) != sizeof address.sin_port) return 2;
    gpu_memory memory = memory_on(gpus[1]);
    unsigned long long *wrong = nullptr, found = 0;
    must("allocating", cudaMalloc((void **)&wrong, sizeof *wrong));
    must("clearing", cudaMemset(wrong, 0, sizeof *wrong));
    must("clearing", cudaDeviceSynchronize());
    gpunet_host_channel_settings settings = {};
    settings.flags = flags;
    gpunet_host_channel_t *channel = nullptr;
    must("connecting", gpunet_host_channel_connect((sockaddr *)&address, sizeof address, &settings, MINUTE, &channel));
    int64_t shape[1] = {bytes};
    gpunet_host_array array = array_on(gpus[1], memory.data, shape);
    for (int round = 0; round < rounds; round++) {
        gpunet_host_transfer_options options = {};
        options.timeout_ns = MINUTE;
        /* The kernel before it has read the memory: it begins behind it. */
        options.custream = memory.stream;
        options.custream_device = gpus[1];
        must("receiving", gpunet_host_channel_recv(channel, &array, 1, &options, nullptr));
        check<<<256, 256, 0, memory.stream>>>(memory.data, (unsigned long long)bytes, round, wrong);
        must("checking", cudaGetLastError());
    }
    must("checking", cudaStreamSynchronize(memory.stream));
    must("reading", cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost));
    int result = gpunet_host_channel_recv(channel, &array, 1, nullptr, nullptr);
    if (result != -ENODATA) return fprintf(stderr, "the end: %d, and no transfer was to come\n", result), 1;
    must("closing", gpunet_host_channel_close(channel));
    printf("%d times %lld bytes, %llu of them wrong\n", rounds, bytes, found);
    return found == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--gpus") == 0 && i + 2 < argc) gpus[0] = atoi(argv[i + 1]), gpus[1] = atoi(argv[i + 2]), i += 2;
        else if (strcmp(argv[i], "--bytes") == 0 && i + 1 < argc) bytes = atoll(argv[++i]);
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) rounds = atoi(argv[++i]);
        else if (strcmp(argv[i], "--connections") == 0) flags = GPUNET_HOST_CHANNEL_NO_COPY;
        else return fprintf(stderr, "cuda-channel [--gpus FROM TO] [--bytes N] [--rounds N] [--connections]\n"), 64;
    }
    if (bytes <= 0 || rounds <= 0) return fprintf(stderr, "--bytes and --rounds are numbers above 0\n"), 64;
    int ports[2], status = 0;
    if (pipe(ports) != 0) return 1;
    /* Before CUDA and gpunet begin: a child has nothing of its parent's. */
    pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
        close(ports[1]);
        return receive_all(ports[0]);
    }
    close(ports[0]);
    send_all(ports[1], child);
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 1;
    return WEXITSTATUS(status);
}
