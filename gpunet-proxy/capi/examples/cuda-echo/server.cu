// An echo server: every block accepts connections and sends back what it receives, until the host cancels the launch.

#include "echo.h"
#include <gpunet.cuh>

// Block 0 listens; the other blocks wait for its listener. All blocks of the grid must run at the same time.
static __device__ int shared_listener(cooperative_groups::thread_block block, gpunet_net_t net, const gpunet::address &at,
                                      echo_listener *shared) {
    __shared__ int handle;
    auto *there = reinterpret_cast<volatile echo_listener *>(shared);
    if (blockIdx.x == 0) {
        auto bound = gpunet::listener::bind(block, net, at);
        auto local = bound ? bound->local_address(block) : gpunet::result<gpunet::address>(gpunet::address());
        if (block.thread_rank() == 0) {
            there->port = local ? local->port() : 0;
            __threadfence_system();
            there->handle = bound ? bound->handle() : -static_cast<int>(bound.error());
        }
    }
    if (block.thread_rank() == 0) {
        while ((handle = there->handle) == 0) __nanosleep(1000);
    }
    block.sync();
    return handle;
}

// `buffers` has `buffer_bytes` for each block, `results` one for each block.
extern "C" __global__ void echo_server(gpunet_net_t net, gpunet::address at, unsigned char *buffers,
                                       unsigned long long buffer_bytes, echo_listener *shared, echo_result *results) {
    const auto block = cooperative_groups::this_thread_block();
    unsigned char *buffer = buffers + blockIdx.x * buffer_bytes;
    echo_result own = {};

    const int handle = shared_listener(block, net, at, shared);
    if (handle < 0) own.error = -handle;
    auto listener = gpunet::listener::from_handle(net, handle);

    while (own.error == 0) {
        auto stream = listener.accept(block);
        if (!stream) {
            // The host has cancelled the launch; block 0 may have closed the listener then.
            const auto why = stream.error();
            if (why != gpunet::errc::canceled && why != gpunet::errc::bad_handle) own.error = static_cast<int>(why);
            break;
        }
        own.connections++;
        // A connection that fails ends; the server goes on.
        while (auto n = stream->recv(block, buffer, buffer_bytes)) {
            if (*n == 0 || !stream->send_all(block, buffer, *n)) break;
            own.bytes += *n;
        }
        (void)stream->close(block);
    }

    if (blockIdx.x == 0 && handle > 0) (void)listener.close(block);
    if (block.thread_rank() == 0) results[blockIdx.x] = own;
}
