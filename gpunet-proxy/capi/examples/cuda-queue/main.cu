// Sockets in the order of a CUDA stream. The program connects a socket of the GPU to a plain TCP echo server, which is a thread of
// its own:
//
//     buffers     a kernel fills a buffer, the queue sends it and receives the echo, a kernel checks every byte
//     at once     the same, but the queue begins to receive the echo while it sends, and tells the checking kernel how that went
//     messages    the same in place: a kernel fills a prepared message in the ring, and the queue posts it
//     a kernel    one kernel fills, releases and checks all the messages by itself
//
// Options: --rounds N, --bytes N (of a message), --short N (bytes up to which a kernel copies a message; longer ones go by the copy
// engine), --threads N (up to what MAX_THREADS was when it was built), --device N.
// Exit codes: 0 all is well, 1 something failed, 2 there is no GPU, or its streams cannot wait for words.
#include "queue.h"

#include <gpunet.cuh>
#include <gpunet_host.h>

#include <arpa/inet.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" __global__ void fill_buffer(unsigned char *message, unsigned long long bytes, unsigned long long round);
extern "C" __global__ void check_buffer(unsigned char *message, unsigned long long bytes, unsigned long long round, queue_result *result);
extern "C" __global__ void fill_span(gpunet_span message, unsigned long long round);
extern "C" __global__ void check_span(gpunet_span message, unsigned long long round, queue_result *result);
extern "C" __global__ void play_messages(gpunet_net_t net, gpunet::prepared first_out, unsigned long long ring, gpunet::prepared first_in,
                                unsigned long long rounds, queue_result *result);

namespace {

// A stream takes about a thousand operations: so many rounds are enqueued ahead.
constexpr unsigned long long rounds_ahead = 32;
constexpr int64_t a_minute_ns = 60000000000;

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
    unsigned long long rounds = 1000, bytes = 16384;
    unsigned int threads = 128;
    int device = 0;
    gpunet_host_queue_settings settings{};
};

Arguments parse(int argc, char **argv) {
    Arguments arguments;
    for (int at = 1; at < argc; at += 2) {
        std::string option = argv[at];
        int value = at + 1 < argc ? std::atoi(argv[at + 1]) : -1;
        if (value < 0) fail(argv[at], "a number is expected");
        if (option == "--rounds") arguments.rounds = static_cast<unsigned long long>(value);
        else if (option == "--bytes") arguments.bytes = static_cast<unsigned long long>(value);
        else if (option == "--threads") arguments.threads = static_cast<unsigned int>(value);
        else if (option == "--short") {
            arguments.settings.short_bytes = static_cast<size_t>(value);
            arguments.settings.flags = value == 0 ? GPUNET_HOST_QUEUE_NO_SHORT : 0;
        } else if (option == "--device") arguments.device = value;
        else fail(argv[at], "no such option");
    }
    return arguments;
}

// A TCP server that knows nothing of gpunet: sends back what comes on its first connection, until the end.
class EchoServer {
public:
    EchoServer() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
        address_.sin_family = AF_INET;
        address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t len = sizeof address_;
        auto *address = reinterpret_cast<sockaddr *>(&address_);
        if (listener_ < 0 || bind(listener_, address, len) != 0 || listen(listener_, 1) != 0 || getsockname(listener_, address, &len) != 0) {
            fail("the echo server", std::strerror(errno));
        }
        thread_ = std::thread([this] { serve(); });
    }
    void join() { thread_.join(); }
    const sockaddr_in &address() const { return address_; }
    unsigned long long bytes() const { return bytes_; }

private:
    void serve() {
        std::vector<char> buffer(1 << 16);
        int stream = accept(listener_, nullptr, nullptr);
        ssize_t n;
        while ((n = recv(stream, buffer.data(), buffer.size(), 0)) > 0) {
            for (ssize_t done = 0; done < n;) {
                ssize_t sent = send(stream, buffer.data() + done, static_cast<size_t>(n - done), MSG_NOSIGNAL);
                if (sent <= 0) break;
                done += sent;
            }
            bytes_ += static_cast<unsigned long long>(n);
        }
        close(stream);
        close(listener_);
    }

    int listener_;
    sockaddr_in address_{};
    std::thread thread_;
    std::atomic<unsigned long long> bytes_{0};
};

struct World {
    Arguments arguments;
    gpunet_host_proxy_t *proxy = nullptr;
    gpunet_host_attachment_t *attachment = nullptr;
    gpunet_host_device_socket_t *socket = nullptr;
    gpunet_host_sender_t *sender = nullptr;
    gpunet_host_receiver_t *receiver = nullptr;
    gpunet_host_queue_t *queue = nullptr;
    cudaStream_t stream{};
    unsigned char *out = nullptr, *back = nullptr;
    queue_result *result = nullptr;

    // All is allocated before the first kernel runs: CUDA may wait for running kernels to allocate.
    World(const Arguments &given, const EchoServer &server) : arguments(given) {
        must("opening a proxy", gpunet_host_open(nullptr, nullptr, &proxy));
        must("attaching the GPU", gpunet_host_attach_cuda_device(proxy, arguments.device, &attachment));
        must("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        must("cudaMalloc", cudaMalloc(&out, arguments.bytes));
        must("cudaMalloc", cudaMalloc(&back, arguments.bytes));
        void *memory = nullptr;
        must("cudaHostAlloc", cudaHostAlloc(&memory, sizeof *result, cudaHostAllocMapped));
        result = static_cast<queue_result *>(std::memset(memory, 0, sizeof *result));

        int made = gpunet_host_queue_cuda_with(attachment, stream, &arguments.settings, &queue);
        if (made == -EOPNOTSUPP) {
            std::fprintf(stderr, "NOT RUN: %s\n", gpunet_host_last_error());
            std::exit(2);
        }
        must("making a queue", made);
        gpunet_options options{};
        options.transport = GPUNET_HOST_TRANSPORT_TCP;
        const auto *address = reinterpret_cast<const sockaddr *>(&server.address());
        must("connecting", gpunet_host_device_connect(attachment, address, sizeof server.address(), &options, a_minute_ns, &socket));
        must("taking the sending direction", gpunet_host_device_take_send(socket, &sender));
        must("taking the receiving direction", gpunet_host_device_take_recv(socket, &receiver));
        size_t send_ring = 0, recv_ring = 0;
        must("the ring", gpunet_host_sender_capacity(sender, &send_ring));
        must("the ring", gpunet_host_receiver_capacity(receiver, &recv_ring));
        if (arguments.bytes == 0 || arguments.bytes > send_ring || arguments.bytes > recv_ring) fail("--bytes", "more than a ring, or none");
    }

    void close() {
        must("ending the queue", gpunet_host_queue_destroy(queue));
        must("giving back", gpunet_host_sender_give_back(sender));
        must("giving back", gpunet_host_receiver_give_back(receiver));
        must("closing", gpunet_host_device_close(socket));
        gpunet_host_close_report report{};
        must("closing", gpunet_host_attachment_close(attachment, &report));
        must("closing", gpunet_host_proxy_close(proxy));
        if (report.undelivered > 0) fail("closing", "bytes were not delivered");
    }

    void launched() { must("launching", cudaGetLastError()); }
    void synchronize() { must("the queue", gpunet_host_queue_synchronize(queue, a_minute_ns)); }

    // What the kernels found since the last time.
    bool good(const char *what, unsigned long long played) {
        must("cudaStreamSynchronize", cudaStreamSynchronize(stream));
        if (result->error == 0) result->error = static_cast<int>(result->failed);
        bool good = result->wrong == 0 && result->error == 0 && played == arguments.rounds;
        std::printf("%s: %llu rounds of %llu bytes, %u wrong bytes, errno %d%s\n", what, played, arguments.bytes, result->wrong,
                    result->error, good ? "" : ": FAILED");
        std::memset(result, 0, sizeof *result);
        return good;
    }

    bool by_buffers() {
        const auto bytes = arguments.bytes;
        for (unsigned long long round = 0; round < arguments.rounds; round++) {
            fill_buffer<<<4, arguments.threads, 0, stream>>>(out, bytes, round);
            launched();
            must("sending", gpunet_host_queue_send(queue, sender, out, bytes));
            must("receiving", gpunet_host_queue_recv(queue, receiver, back, bytes));
            check_buffer<<<4, arguments.threads, 0, stream>>>(back, bytes, round, result);
            launched();
            if (round % rounds_ahead == rounds_ahead - 1) synchronize();
        }
        synchronize();
        return good("buffers", arguments.rounds);
    }

    bool at_once() {
        const auto bytes = arguments.bytes;
        for (unsigned long long round = 0; round < arguments.rounds; round++) {
            gpunet_host_started both[2];
            fill_buffer<<<4, arguments.threads, 0, stream>>>(out, bytes, round);
            launched();
            int started = gpunet_host_queue_start_send(queue, sender, out, bytes, &both[0]);
            if (started == -EOPNOTSUPP) {
                std::printf("at once: not on this GPU (%s)\n", gpunet_host_last_error());
                return by_buffers();
            }
            must("starting to send", started);
            must("starting to receive", gpunet_host_queue_start_recv(queue, receiver, back, bytes, &both[1]));
            // Kernels that need neither of the two would be here.
            must("waiting for both", gpunet_host_queue_finish(queue, both, 2));
            must("asking how they went", gpunet_host_queue_check(queue, &result->failed));
            check_buffer<<<4, arguments.threads, 0, stream>>>(back, bytes, round, result);
            launched();
            if (round % rounds_ahead == rounds_ahead - 1) synchronize();
        }
        synchronize();
        return good("at once", arguments.rounds);
    }

    bool by_messages() {
        for (unsigned long long round = 0; round < arguments.rounds; round++) {
            gpunet_host_send_message message;
            gpunet_host_recv_message echo;
            must("preparing", gpunet_host_sender_prepare(sender, arguments.bytes, &message));
            must("preparing", gpunet_host_receiver_prepare(receiver, arguments.bytes, &echo));
            must("waiting", gpunet_host_queue_wait(queue, &message.room, 1));
            fill_span<<<4, arguments.threads, 0, stream>>>(message.span, round);
            launched();
            must("posting", gpunet_host_queue_post(queue, &message.post, 1));
            must("waiting", gpunet_host_queue_wait(queue, &echo.arrived, 1));
            check_span<<<4, arguments.threads, 0, stream>>>(echo.span, round, result);
            launched();
            must("giving back", gpunet_host_queue_post(queue, &echo.consume, 1));
            if (round % rounds_ahead == rounds_ahead - 1) synchronize();
        }
        synchronize();
        return good("messages", arguments.rounds);
    }

    bool by_a_kernel() {
        gpunet_host_token_t *token = nullptr;
        gpunet_host_send_message message;
        gpunet_host_recv_message echo;
        size_t ring = 0;
        must("preparing", gpunet_host_sender_prepare(sender, arguments.bytes, &message));
        must("preparing", gpunet_host_receiver_prepare(receiver, arguments.bytes, &echo));
        must("the ring", gpunet_host_sender_capacity(sender, &ring));
        must("taking a token", gpunet_host_token(attachment, &token));
        play_messages<<<1, arguments.threads, 0, stream>>>(gpunet_host_token_net(token), message.prepared, ring, echo.prepared, arguments.rounds,
                                                  result);
        launched();
        must("the kernel", cudaStreamSynchronize(stream));
        must("finishing", gpunet_host_token_finish(token, GPUNET_HOST_KEEP, nullptr));
        return good("a kernel", result->played);
    }
};

} // namespace

int main(int argc, char **argv) {
    // Else the first launch of a kernel may wait for one that runs.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    Arguments arguments = parse(argc, argv);
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || arguments.device >= count) {
        std::fprintf(stderr, "NOT RUN: no GPU\n");
        return 2;
    }
    must("cudaSetDevice", cudaSetDevice(arguments.device));
    // It is there as long as the process: a failure exits with its thread running.
    EchoServer &server = *new EchoServer;
    World world(arguments, server);
    bool good = world.by_buffers();
    good = world.at_once() && good;
    good = world.by_messages() && good;
    good = world.by_a_kernel() && good;
    world.close();
    server.join();
    if (server.bytes() != 4 * arguments.rounds * arguments.bytes) fail("the echo server", "other bytes than were sent");
    return good ? 0 : 1;
}
