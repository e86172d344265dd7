// The host program of the echo example: sockets for the kernels of server.cu, client.cu and readme_client.cu.
//
//     cuda-echo                            server and client kernels in this process, through GPU memory
//     cuda-echo server ADDRESS:PORT        an echo server, until Ctrl-C; `nc` is a client of it, and so is any TCP program
//     cuda-echo client ADDRESS:PORT        clients of any echo server
//
// Options: --blocks N, --threads N (32 to what MAX_THREADS was when it was built), --messages N, --bytes N (of a message),
// --device N. Exit codes: 0 all is well, 1 something failed, 2 there is no GPU.
#include "echo.h"

#include <gpunet.cuh>
#include <gpunet_host.h>

#include <arpa/inet.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
#include <vector>

struct readme_result {
    int echoed;
    int error;
};

extern "C" __global__ void echo_server(gpunet_net_t net, gpunet::address at, unsigned char *buffers,
                                       unsigned long long buffer_bytes, echo_listener *shared, echo_result *results);
extern "C" __global__ void echo_client(gpunet_net_t net, gpunet::address server, int messages, unsigned char *buffers,
                                       unsigned long long bytes, echo_result *results);
extern "C" __global__ void readme_client(struct sockaddr_in server, int messages, readme_result *results);

namespace {

volatile std::sig_atomic_t stopped = 0;

[[noreturn]] void fail(const char *what, const char *why) {
    std::fprintf(stderr, "%s: %s\n", what, why);
    std::exit(1);
}

// A call of libgpunet that must not fail.
void must(const char *what, int result) {
    if (result < 0) fail(what, gpunet_host_last_error());
}

// A call of CUDA that must not fail.
void must(const char *what, cudaError_t result) {
    if (result != cudaSuccess) fail(what, cudaGetErrorString(result));
}

struct Arguments {
    std::string mode;
    sockaddr_in address{};
    int blocks = 4, threads = 128, messages = 1000, bytes = 4096, device = 0;
};

Arguments parse(int argc, char **argv) {
    Arguments arguments;
    arguments.address.sin_family = AF_INET;
    arguments.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int at = 1;
    if (at < argc && argv[at][0] != '-') {
        arguments.mode = argv[at++];
        std::string place = at < argc ? argv[at++] : "";
        auto colon = place.rfind(':');
        bool good = colon != std::string::npos && inet_pton(AF_INET, place.substr(0, colon).c_str(), &arguments.address.sin_addr) == 1;
        if (!good || (arguments.mode != "server" && arguments.mode != "client")) {
            fail("usage", "cuda-echo [server|client ADDRESS:PORT] [OPTIONS]");
        }
        arguments.address.sin_port = htons(static_cast<uint16_t>(std::atoi(place.c_str() + colon + 1)));
    }
    for (; at + 1 < argc; at += 2) {
        std::string option = argv[at];
        int value = std::atoi(argv[at + 1]);
        if (value < 0) fail(argv[at], "a number is expected");
        if (option == "--blocks") arguments.blocks = value;
        else if (option == "--threads") arguments.threads = value;
        else if (option == "--messages") arguments.messages = value;
        else if (option == "--bytes") arguments.bytes = value;
        else if (option == "--device") arguments.device = value;
        else fail(argv[at], "no such option");
    }
    if (at < argc) fail(argv[at], "a value is missing");
    return arguments;
}

// A proxy, and the GPU's sockets in it.
struct Gpu {
    gpunet_host_proxy_t *proxy = nullptr;
    gpunet_host_attachment_t *attachment = nullptr;

    explicit Gpu(int device) {
        int count = 0;
        if (cudaGetDeviceCount(&count) != cudaSuccess || device >= count) {
            std::fprintf(stderr, "NOT RUN: no GPU\n");
            std::exit(2);
        }
        must("cudaSetDevice", cudaSetDevice(device));
        // A gpunetd that runs is used; else the proxy is a few threads of this process.
        must("opening a proxy", gpunet_host_open(nullptr, nullptr, &proxy));
        must("attaching the GPU", gpunet_host_attach_cuda_device(proxy, device, &attachment));
    }

    void close() {
        gpunet_host_close_report report{};
        must("closing", gpunet_host_attachment_close(attachment, &report));
        must("closing", gpunet_host_proxy_close(proxy));
        if (report.undelivered > 0) fail("closing", "bytes were not delivered");
    }
};

// Zeroed memory of the host that kernels use under the same address.
template <class T> T *mapped(int count) {
    void *memory = nullptr;
    size_t len = sizeof(T) * static_cast<size_t>(count);
    must("cudaHostAlloc", cudaHostAlloc(&memory, len, cudaHostAllocMapped));
    return static_cast<T *>(std::memset(memory, 0, len));
}

// A launch and what its kernel needs. CUDA may wait for running kernels to allocate: all is made before the first runs.
template <class Result> struct Launch {
    gpunet_host_token_t *token = nullptr;
    cudaStream_t stream{};
    unsigned char *buffers = nullptr;
    Result *results = nullptr;
    int blocks, threads;

    Launch(Gpu &gpu, const Arguments &arguments) : blocks(arguments.blocks), threads(arguments.threads) {
        must("taking a token", gpunet_host_token(gpu.attachment, &token));
        must("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        must("cudaMalloc", cudaMalloc(&buffers, static_cast<size_t>(blocks) * static_cast<size_t>(arguments.bytes)));
        results = mapped<Result>(blocks);
    }

    gpunet_net_t net() const { return gpunet_host_token_net(token); }

    // Waits for the kernel's end; returns whether no block failed.
    bool finish(const char *what) {
        must(what, cudaStreamSynchronize(stream));
        must("finishing", gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, nullptr));
        bool good = true;
        for (int block = 0; block < blocks; block++) {
            if (results[block].error == 0) continue;
            std::fprintf(stderr, "%s, block %d: %s\n", what, block, std::strerror(std::abs(results[block].error)));
            good = false;
        }
        return good;
    }
};

struct Server {
    Launch<echo_result> launch;
    echo_listener *listener;

    Server(Gpu &gpu, const Arguments &arguments) : launch(gpu, arguments), listener(mapped<echo_listener>(1)) {}

    // Returns the address once the kernel listens there.
    sockaddr_in start(const Arguments &arguments) {
        echo_server<<<launch.blocks, launch.threads, 0, launch.stream>>>(launch.net(), gpunet::address(arguments.address), launch.buffers,
                                                                         arguments.bytes, listener, launch.results);
        must("launching the server", cudaGetLastError());
        auto *shared = const_cast<volatile echo_listener *>(listener);
        while (shared->handle == 0 && cudaStreamQuery(launch.stream) == cudaErrorNotReady) usleep(1000);
        if (shared->handle <= 0) fail("listening", std::strerror(-shared->handle));
        sockaddr_in address = arguments.address;
        address.sin_port = htons(shared->port);
        return address;
    }

    // Ends the kernel's waits, and with them the kernel.
    bool finish() {
        must("cancelling", gpunet_host_token_cancel(launch.token));
        bool good = launch.finish("the server");
        unsigned long long connections = 0, bytes = 0;
        for (int block = 0; block < launch.blocks; block++) {
            connections += launch.results[block].connections;
            bytes += launch.results[block].bytes;
        }
        std::printf("server: %llu connections, %llu bytes echoed\n", connections, bytes);
        return good;
    }
};

bool run_clients(Launch<echo_result> &launch, const Arguments &arguments, sockaddr_in server) {
    echo_client<<<launch.blocks, launch.threads, 0, launch.stream>>>(launch.net(), gpunet::address(server), arguments.messages,
                                                                     launch.buffers, arguments.bytes, launch.results);
    must("launching the clients", cudaGetLastError());
    bool good = launch.finish("the clients");
    unsigned long long bytes = 0, expected = static_cast<unsigned long long>(launch.blocks) * arguments.messages * arguments.bytes;
    for (int block = 0; block < launch.blocks; block++) bytes += launch.results[block].bytes;
    good = good && bytes == expected;
    std::printf("clients: %llu of %llu bytes came back unchanged%s\n", bytes, expected, good ? "" : ": FAILED");
    return good;
}

// The kernel of a program that nvcc linked, as the driver knows it.
cudaFunction_t function_of(const void *kernel) {
    cudaFunction_t function{};
    must("cudaGetFuncBySymbol", cudaGetFuncBySymbol(&function, kernel));
    return function;
}

bool run_readme_clients(Launch<readme_result> &launch, const Arguments &arguments, sockaddr_in server) {
    readme_client<<<launch.blocks, launch.threads, 0, launch.stream>>>(server, arguments.messages, launch.results);
    must("launching the README's clients", cudaGetLastError());
    bool good = launch.finish("the README's clients");
    for (int block = 0; block < launch.blocks; block++) good = good && launch.results[block].echoed == arguments.messages;
    std::printf("README's clients: %d blocks, %d messages each%s\n", launch.blocks, arguments.messages, good ? "" : ": FAILED");
    return good;
}

// Server and clients wait for each other, so they must fit on the GPU together; this also loads their code before one of them
// runs.
void check_that_they_fit(Gpu &gpu, const Arguments &arguments) {
    const auto blocks = static_cast<uint64_t>(arguments.blocks);
    const auto threads = static_cast<uint32_t>(arguments.threads);
    const void *clients[] = {reinterpret_cast<const void *>(echo_client), reinterpret_cast<const void *>(readme_client)};
    for (const void *client : clients) {
        gpunet_host_kernel shapes[] = {
            {function_of(reinterpret_cast<const void *>(echo_server)), "echo_server", blocks, threads, 0},
            {function_of(client), "the client", blocks, threads, 0},
        };
        must("checking that server and clients fit", gpunet_host_check_co_resident(gpu.attachment, shapes, 2));
    }
}

bool run(Gpu &gpu, const Arguments &arguments) {
    check_that_they_fit(gpu, arguments);
    if (arguments.mode == "client") {
        Launch<echo_result> clients(gpu, arguments);
        return run_clients(clients, arguments, arguments.address);
    }
    Server server(gpu, arguments);
    if (arguments.mode == "server") {
        sockaddr_in address = server.start(arguments);
        char text[INET_ADDRSTRLEN];
        inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
        std::printf("listening on %s:%d\n", text, ntohs(address.sin_port));
        std::fflush(stdout);
        std::signal(SIGINT, [](int) { stopped = 1; });
        std::signal(SIGTERM, [](int) { stopped = 1; });
        while (!stopped && cudaStreamQuery(server.launch.stream) == cudaErrorNotReady) usleep(20000);
        return server.finish();
    }
    Launch<echo_result> clients(gpu, arguments);
    Launch<readme_result> readme_clients(gpu, arguments);
    // Before any kernel of the module runs: its calls without an explicit net use the sockets of this launch.
    must("binding the module", gpunet_host_bind_kernel(readme_clients.token, function_of(reinterpret_cast<const void *>(readme_client))));
    sockaddr_in address = server.start(arguments);
    bool good = run_clients(clients, arguments, address);
    good = run_readme_clients(readme_clients, arguments, address) && good;
    return server.finish() && good;
}

} // namespace

int main(int argc, char **argv) {
    // Else the first launch of a kernel may wait for one that runs.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    Arguments arguments = parse(argc, argv);
    Gpu gpu(arguments.device);
    bool good = run(gpu, arguments);
    gpu.close();
    return good ? 0 : 1;
}
