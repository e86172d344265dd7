// An echo client: every block connects, sends messages, and checks what comes back.

#include "echo.h"
#include <gpunet.cuh>

// Byte `i` of a block's message.
static __device__ unsigned char pattern(int message, unsigned long long i) {
    return static_cast<unsigned char>(blockIdx.x * 31 + message * 7 + i);
}

// Connects, waits 10 s at most for each answer, and counts the bytes that came back.
static __device__ gpunet::result<void> talk(cooperative_groups::thread_block block, gpunet_net_t net,
                                            const gpunet::address &server, int messages, unsigned char *buffer,
                                            unsigned long long bytes, echo_result &own) {
    auto stream = gpunet::stream::connect(block, net, server, gpunet::options(), gpunet::seconds(10));
    if (!stream) return gpunet::failure(stream.error());
    own.connections = 1;

    for (int message = 0; message < messages; message++) {
        for (auto i = block.thread_rank() + 0ull; i < bytes; i += block.size()) buffer[i] = pattern(message, i);
        if (auto sent = stream->send_all(block, buffer, bytes); !sent) return sent;

        // Read in the ring, without a copy. Each thread looks at its share of what has come.
        for (unsigned long long have = 0; have < bytes;) {
            auto span = stream->peek(block, bytes - have, gpunet::seconds(10));
            if (!span) return gpunet::failure(span.error());
            if (span->empty()) return gpunet::failure(gpunet::errc::connection_reset);
            int wrong = 0;
            for (auto i = block.thread_rank() + 0ull; i < span->size(); i += block.size()) {
                wrong |= *span->byte(i) != pattern(message, have + i);
            }
            const auto size = span->size();
            if (auto released = stream->release(block, size); !released) return released;
            if (__syncthreads_or(wrong)) return gpunet::failure(gpunet::errc::protocol_error);
            have += size;
        }
        own.bytes += bytes;
    }
    return stream->close(block);
}

// `buffers` has `bytes` for each block: the size of a message, at most that of a ring (256 KiB), because a message is sent
// before its answer is read. `results` has one for each block.
extern "C" __global__ void echo_client(gpunet_net_t net, gpunet::address server, int messages, unsigned char *buffers,
                                       unsigned long long bytes, echo_result *results) {
    const auto block = cooperative_groups::this_thread_block();
    echo_result own = {};
    const auto done = talk(block, net, server, messages, buffers + blockIdx.x * bytes, bytes, own);
    if (!done) own.error = static_cast<int>(done.error());
    if (block.thread_rank() == 0) results[blockIdx.x] = own;
}
