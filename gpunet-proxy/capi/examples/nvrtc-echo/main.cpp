// An echo server whose kernels are compiled when the program runs: NVRTC makes PTX of ../cuda-echo/server.cu, the driver links it
// with gpunet's. Clients are plain TCP sockets of this program; every byte is checked.
//
//     nvrtc-echo [KERNELS.cu]
//
// Exit codes: 0 all is well, 1 something failed, 2 there is no GPU.
#include "../cuda-echo/echo.h"

#include <gpunet_host.h>

#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <fstream>
#include <netinet/in.h>
#include <nvrtc.h>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr int BLOCKS = 4, THREADS = 128, MESSAGES = 1000;
constexpr unsigned long long BYTES = 16384; // of a block's buffer
constexpr unsigned REGISTERS = 255; // for blocks of 256 threads; 64 for 1,024

[[noreturn]] void fail(const char *what, const char *why) {
    std::fprintf(stderr, "%s: %s\n", what, why);
    std::exit(1);
}

void must(const char *what, int result) {
    if (result < 0) fail(what, gpunet_host_last_error());
}

void must(const char *what, CUresult result) {
    const char *name = "an unknown error";
    if (result == CUDA_SUCCESS) return;
    cuGetErrorName(result, &name);
    fail(what, name);
}

void must(const char *what, nvrtcResult result) {
    if (result != NVRTC_SUCCESS) fail(what, nvrtcGetErrorString(result));
}

std::string read(const std::string &path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    if (!file || text.str().empty()) fail(path.c_str(), "cannot be read");
    return text.str();
}

// Kernels in CUDA C++ to PTX for this GPU.
std::string compile(const std::string &path, int major, int minor) {
    std::string source = read(path), architecture = "--gpu-architecture=compute_" + std::to_string(major * 10 + minor);
    // gpunet's headers, those beside the kernels, and CUDA's: its cooperative groups, and libcu++.
    const char *options[] = {architecture.c_str(), "--relocatable-device-code=true", "--std=c++17", "-I" GPUNET_INCLUDE, "-I" KERNELS,
                             "-I" CUDA_INCLUDE, "-I" CUDA_INCLUDE "/cccl"};
    nvrtcProgram program{};
    must("nvrtcCreateProgram", nvrtcCreateProgram(&program, source.c_str(), path.c_str(), 0, nullptr, nullptr));
    nvrtcResult compiled = nvrtcCompileProgram(program, sizeof options / sizeof *options, options);
    if (compiled != NVRTC_SUCCESS) {
        size_t len = 0;
        must("nvrtcGetProgramLogSize", nvrtcGetProgramLogSize(program, &len));
        std::string log(len, '\0');
        must("nvrtcGetProgramLog", nvrtcGetProgramLog(program, log.data()));
        fail(path.c_str(), log.c_str());
    }
    size_t len = 0;
    must("nvrtcGetPTXSize", nvrtcGetPTXSize(program, &len));
    std::string ptx(len, '\0');
    must("nvrtcGetPTX", nvrtcGetPTX(program, ptx.data()));
    must("nvrtcDestroyProgram", nvrtcDestroyProgram(&program));
    return ptx;
}

// The kernels' PTX and gpunet's, as one module.
CUmodule link(std::string kernels) {
    std::string gpunet = read(GPUNET_PTX);
    std::vector<char> log(8192);
    CUjit_option options[] = {CU_JIT_MAX_REGISTERS, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {reinterpret_cast<void *>(static_cast<uintptr_t>(REGISTERS)), log.data(),
                      reinterpret_cast<void *>(static_cast<uintptr_t>(log.size()))};
    CUlinkState state{};
    CUmodule module{};
    void *image = nullptr;
    size_t len = 0;
    must("cuLinkCreate", cuLinkCreate(3, options, values, &state));
    // With the NUL at the end of each text.
    CUresult added = cuLinkAddData(state, CU_JIT_INPUT_PTX, kernels.data(), kernels.size() + 1, "kernels", 0, nullptr, nullptr);
    if (added == CUDA_SUCCESS)
        added = cuLinkAddData(state, CU_JIT_INPUT_PTX, gpunet.data(), gpunet.size() + 1, "gpunet", 0, nullptr, nullptr);
    if (added != CUDA_SUCCESS || cuLinkComplete(state, &image, &len) != CUDA_SUCCESS) fail("linking", log.data());
    must("cuModuleLoadData", cuModuleLoadData(&module, image));
    must("cuLinkDestroy", cuLinkDestroy(state));
    return module;
}

// A plain TCP client: sends messages and compares what comes back.
bool ask(sockaddr_in server, int number) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool good = connect(fd, reinterpret_cast<sockaddr *>(&server), sizeof server) == 0;
    std::vector<unsigned char> sent(1024), back(1024);
    for (int message = 0; good && message < MESSAGES; message++) {
        for (size_t at = 0; at < sent.size(); at++) sent[at] = static_cast<unsigned char>(number * 31 + message * 7 + static_cast<int>(at));
        good = send(fd, sent.data(), sent.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(sent.size()) &&
               recv(fd, back.data(), back.size(), MSG_WAITALL) == static_cast<ssize_t>(back.size()) && sent == back;
    }
    close(fd);
    return good;
}

// Memory of the host that kernels use, too.
template <class T> T *mapped(size_t count) {
    void *memory = nullptr;
    must("cuMemHostAlloc", cuMemHostAlloc(&memory, sizeof(T) * count, CU_MEMHOSTALLOC_DEVICEMAP));
    return static_cast<T *>(std::memset(memory, 0, sizeof(T) * count));
}

} // namespace

int main(int argc, char **argv) {
    CUdevice device{};
    CUcontext context{};
    int major = 0, minor = 0;
    // Else the first launch of a kernel may wait for one that runs.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) {
        std::fprintf(stderr, "NOT RUN: no GPU\n");
        return 2;
    }
    must("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, device));
    must("cuCtxSetCurrent", cuCtxSetCurrent(context));
    cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    CUmodule module = link(compile(argc > 1 ? argv[1] : KERNELS "/server.cu", major, minor));
    CUfunction serve{};
    must("echo_server", cuModuleGetFunction(&serve, module, "echo_server"));

    gpunet_host_proxy_t *proxy = nullptr;
    gpunet_host_attachment_t *attachment = nullptr;
    gpunet_host_token_t *token = nullptr;
    must("opening a proxy", gpunet_host_open(nullptr, nullptr, &proxy));
    must("attaching the GPU", gpunet_host_attach_cuda(proxy, context, &attachment));
    must("taking a token", gpunet_host_token(attachment, &token));
    // Calls under GPUnet's names find their sockets by this; those with an explicit net need only the parameter below.
    must("binding the module", gpunet_host_bind_module(token, module));
    gpunet_host_kernel shape{serve, "echo_server", BLOCKS, THREADS, 0};
    must("checking that the server fits", gpunet_host_check_co_resident(attachment, &shape, 1));

    CUstream stream{};
    must("cuStreamCreate", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr buffers{};
    must("cuMemAlloc", cuMemAlloc(&buffers, BLOCKS * BYTES));
    auto *listener = mapped<echo_listener>(1);
    auto *results = mapped<echo_result>(BLOCKS);
    uint64_t net = gpunet_host_token_net(token);
    // As gpunet::address lies in memory.
    union {
        sockaddr_in6 v6;
        sockaddr_in v4;
    } at{};
    at.v4.sin_family = AF_INET;
    at.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    unsigned long long bytes = BYTES;
    void *arguments[] = {&net, &at, &buffers, &bytes, &listener, &results};
    must("launching", cuLaunchKernel(serve, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, arguments, nullptr));
    auto *shared = static_cast<volatile echo_listener *>(listener);
    while (shared->handle == 0 && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) usleep(1000);
    if (shared->handle <= 0) fail("listening", std::strerror(-shared->handle));
    sockaddr_in address = at.v4;
    address.sin_port = htons(shared->port);

    std::vector<std::thread> clients;
    bool good[BLOCKS] = {};
    for (int client = 0; client < BLOCKS; client++)
        clients.emplace_back([client, address, &good] { good[client] = ask(address, client); });
    bool all = true;
    for (int client = 0; client < BLOCKS; client++) {
        clients[static_cast<size_t>(client)].join();
        all = all && good[client];
    }

    must("cancelling", gpunet_host_token_cancel(token));
    must("the server", cuStreamSynchronize(stream));
    must("finishing", gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, nullptr));
    for (int block = 0; block < BLOCKS; block++) {
        if (results[block].error == 0) continue;
        std::fprintf(stderr, "block %d: %s\n", block, std::strerror(results[block].error));
        all = false;
    }
    must("closing", gpunet_host_attachment_close(attachment, nullptr));
    must("closing", gpunet_host_proxy_close(proxy));
    must("cuModuleUnload", cuModuleUnload(module));
    must("cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease(device));
    std::printf("%d TCP clients, %d messages each, %s\n", BLOCKS, MESSAGES, all ? "every byte checked" : "FAILED");
    return all ? 0 : 1;
}
