// The kernels of the examples and of the check of gpunet.cuh on CPU blocks, in blocks of as many threads as the argument says.

#include <gpunet.cuh>

#include "test.h"

#include "queue.h"
namespace queue {
#include "kernels.cu"
}
namespace check {
#include "gpunet_cuh_check.cu"
}

// Calls a function of gpunet.h or gpunet_team.h with a context, and for the rest with zeros.
template <class Returned, class... Arguments>
static Returned with_zeros(gpunet_net_t net, Returned (*call)(gpunet_net_t, Arguments...)) {
    return call(net, Arguments{}...);
}
template <class Returned, class... Arguments> static Returned with_zeros(gpunet_net_t, Returned (*call)(gpunet_team_t, Arguments...)) {
    return call(gpunet_team_t{}, Arguments{}...);
}
template <class Returned, class... Arguments> static Returned with_zeros(Returned (*call)(Arguments...)) { return call(Arguments{}...); }
static bool is_down(long long returned) { return returned == -ENETDOWN; }
static bool is_down(const void *found) { return found == nullptr; }

// Without a context and without a team every call says so, under both names.
static void without_network() {
    static const struct alignas(64) { unsigned char bytes[512]; } nowhere = {};
    const auto at = reinterpret_cast<gpunet_net_t>(&nowhere);
    for (const gpunet_net_t net : {gpunet_net_t(0), at, at + 4}) {
#define CALL(name) TRUE(is_down(with_zeros(net, name)));
#define NAME(name) TRUE(is_down(with_zeros(name)));
#include "calls.inc"
#undef CALL
#undef NAME
    }
}

template <class Kernel, class... Arguments> static void run(Kernel kernel, unsigned int blocks, unsigned int threads, Arguments... arguments) {
    gpunet::cpu::launch(kernel, blocks, threads)(arguments...);
    IS(cudaDeviceSynchronize(), cudaSuccess);
}

// A TCP program that sends back what comes.
static void *echo_plainly(void *argument) {
    const int listener = *static_cast<int *>(argument), stream = accept(listener, NULL, NULL);
    char bytes[4096];
    for (ssize_t n; (n = recv(stream, bytes, sizeof bytes, 0)) > 0;) {
        for (ssize_t sent = 0; sent < n;) {
            const ssize_t more = send(stream, bytes + sent, static_cast<size_t>(n - sent), MSG_NOSIGNAL);
            if (more <= 0) return NULL;
            sent += more;
        }
    }
    close(stream);
    return NULL;
}

// Kernels play messages that the host has prepared.
static void play(const gpunet_host_attachment_t *attachment, unsigned int threads) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(0);
    socklen_t len = sizeof address;
    OK(bind(listener, ADDRESS(address)));
    OK(listen(listener, 1));
    OK(getsockname(listener, reinterpret_cast<struct sockaddr *>(&address), &len));
    pthread_t peer;
    start(&peer, echo_plainly, &listener);

    gpunet_options options = {};
    options.send_ring = options.recv_ring = 4096;
    gpunet_host_device_socket_t *stream = NULL;
    gpunet_host_sender_t *sender = NULL;
    gpunet_host_receiver_t *receiver = NULL;
    gpunet_host_token_t *token = NULL;
    gpunet_host_send_message out;
    gpunet_host_recv_message back;
    size_t ring = 0;
    OK(gpunet_host_device_connect(attachment, ADDRESS(address), &options, 20000000000, &stream));
    OK(gpunet_host_device_take_send(stream, &sender));
    OK(gpunet_host_device_take_recv(stream, &receiver));
    OK(gpunet_host_sender_capacity(sender, &ring));
    OK(gpunet_host_sender_prepare(sender, 1000, &out));
    OK(gpunet_host_receiver_prepare(receiver, 1000, &back));
    OK(gpunet_host_token(attachment, &token));
    queue_result result = {};
    static unsigned char buffer[1000];
    run(queue::fill_buffer, 2, threads, buffer, sizeof buffer, 3ull);
    run(queue::check_buffer, 2, threads, buffer, sizeof buffer, 3ull, &result);
    run(queue::fill_span, 2, threads, out.span, 4ull);
    run(queue::check_span, 2, threads, out.span, 4ull, &result);
    run(queue::play_messages, 1, threads, gpunet_host_token_net(token), gpunet::prepared(out.prepared), ring, gpunet::prepared(back.prepared), 200ull,
        &result);
    IS(result.wrong, 0);
    IS(result.error, 0);
    IS(result.played, 200);
    OK(gpunet_host_token_finish(token, GPUNET_HOST_KEEP, NULL));
    OK(gpunet_host_sender_give_back(sender));
    OK(gpunet_host_receiver_give_back(receiver));
    OK(gpunet_host_device_close(stream));
    OK(pthread_join(peer, NULL));
    close(listener);
}

int main(int argc, char **argv) {
    begin();
    const auto threads = static_cast<unsigned int>(argc > 1 ? std::atoi(argv[1]) : 64);
    without_network();
    gpunet_host_proxy_t *proxy = proxy_new();
    gpunet_host_attachment_t *attachment = attachment_new(proxy);
    gpunet_host_token_t *token = NULL;
    uint64_t left_open = 9;
    OK(gpunet_host_token(attachment, &token));
    without_network();
    check::CheckResult results[2] = {};
    run(check::gpunet_cuh_check, 2, threads, gpunet_host_token_net(token), results);
    for (const auto &result : results) {
        if (result.line != 0) fail("gpunet_cuh_check.cu", result.line, "the value", result.value, 0);
    }
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, &left_open));
    IS(left_open, 0);
    play(attachment, threads);
    OK(gpunet_host_attachment_close(attachment, NULL));
    OK(gpunet_host_proxy_close(proxy));
    return end("cuda");
}
