// The host program of the HTTP example: an HTTP server, until Ctrl-C.
//
//     hello-http [PORT [BLOCKS [THREADS]]]      port 0 takes a free one; by default 8080, 64 blocks of 32 threads
//
// Exit codes: 0 all is well, 1 something failed, 2 there is no GPU.
#include <gpunet_host.h>
#include <gpunet_http.h>

#include <arpa/inet.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

extern "C" __global__ void hello_http(gpunet_net_t net, int listener);

namespace {

volatile std::sig_atomic_t stopped = 0;

void must(const char *what, int result) {
    if (result >= 0) return;
    std::fprintf(stderr, "%s: %s\n", what, gpunet_host_last_error());
    std::exit(1);
}

} // namespace

int main(int argc, char **argv) {
    auto number = [&](int at, int otherwise) { return argc > at ? std::atoi(argv[at]) : otherwise; };
    const int port = number(1, 8080), blocks = number(2, 64), threads = number(3, 32);
    if (port < 0 || port > 65535 || blocks < 1 || threads < 1) {
        std::fprintf(stderr, "usage: hello-http [PORT [BLOCKS [THREADS]]]\n");
        return 1;
    }
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        std::fprintf(stderr, "NOT RUN: no GPU\n");
        return 2;
    }
    gpunet_host_proxy_t *proxy = nullptr;
    gpunet_host_attachment_t *attachment = nullptr;
    gpunet_host_device_socket_t *listener = nullptr;
    gpunet_host_token_t *token = nullptr;
    must("opening a proxy", gpunet_host_open(nullptr, nullptr, &proxy));
    must("attaching the GPU", gpunet_host_attach_cuda_device(proxy, 0, &attachment));

    // A client may be silent, or not read, for five seconds.
    struct gpunet_options options = {};
    options.send_timeout_ns = options.recv_timeout_ns = 5000000000;
    struct sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<unsigned short>(port));
    socklen_t len = sizeof address;
    must("listening", gpunet_host_device_listen(attachment, reinterpret_cast<sockaddr *>(&address), len, &options, 1024, &listener));
    must("listening", gpunet_host_device_getsockname(listener, reinterpret_cast<sockaddr *>(&address), &len));

    must("taking a token", gpunet_host_token(attachment, &token));
    cudaStream_t stream{};
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    hello_http<<<blocks, threads, 0, stream>>>(gpunet_host_token_net(token), gpunet_host_device_number(listener));
    if (cudaGetLastError() != cudaSuccess) {
        std::fprintf(stderr, "the launch failed\n");
        return 1;
    }
    std::signal(SIGINT, [](int) { stopped = 1; });
    std::signal(SIGTERM, [](int) { stopped = 1; });
    std::printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    std::fflush(stdout);
    while (!stopped && cudaStreamQuery(stream) == cudaErrorNotReady) usleep(20000);

    must("cancelling", gpunet_host_token_cancel(token));
    const bool good = cudaStreamSynchronize(stream) == cudaSuccess;
    must("finishing", gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, nullptr));
    must("closing", gpunet_host_attachment_close(attachment, nullptr));
    must("closing", gpunet_host_proxy_close(proxy));
    return good ? 0 : 1;
}
