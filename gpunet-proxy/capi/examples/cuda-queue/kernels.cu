// Kernels of the queue example. Only `play_messages` calls gpunet's functions; the others need nothing but the memory.

#include "queue.h"
#include <gpunet.cuh>

static __device__ unsigned char byte_at(unsigned long long round, unsigned long long at) {
    return static_cast<unsigned char>((at * 2654435761u >> 13) + round * 31);
}

// Fills a buffer, which the queue sends in stream order. One block or many.
extern "C" __global__ void fill_buffer(unsigned char *message, unsigned long long bytes, unsigned long long round) {
    const auto threads = gridDim.x * blockDim.x;
    for (unsigned long long at = blockIdx.x * blockDim.x + threadIdx.x; at < bytes; at += threads) message[at] = byte_at(round, at);
}

// Checks every byte of a buffer that the queue has received, and clears it.
extern "C" __global__ void check_buffer(unsigned char *message, unsigned long long bytes, unsigned long long round, queue_result *result) {
    const auto threads = gridDim.x * blockDim.x;
    unsigned int wrong = 0;
    // What has not come need not be looked at.
    if (result->failed != 0) return;
    for (unsigned long long at = blockIdx.x * blockDim.x + threadIdx.x; at < bytes; at += threads) {
        wrong += message[at] != byte_at(round, at);
        message[at] = 0;
    }
    if (wrong > 0) atomicAdd(&result->wrong, wrong);
}

// Fills a prepared message where it lies in the ring. The queue has waited for its room, and posts it behind this kernel.
extern "C" __global__ void fill_span(gpunet_span message, unsigned long long round) {
    const gpunet::ring_span span(message);
    const auto threads = gridDim.x * blockDim.x;
    for (unsigned long long at = blockIdx.x * blockDim.x + threadIdx.x; at < span.size(); at += threads) {
        *span.byte(at) = byte_at(round, at);
    }
}

// Checks a message where it lies in the ring. The queue has waited for it, and gives it back behind this kernel.
extern "C" __global__ void check_span(gpunet_span message, unsigned long long round, queue_result *result) {
    const gpunet::ring_span span(message);
    const auto threads = gridDim.x * blockDim.x;
    unsigned int wrong = 0;
    for (unsigned long long at = blockIdx.x * blockDim.x + threadIdx.x; at < span.size(); at += threads) {
        wrong += *span.byte(at) != byte_at(round, at);
    }
    if (wrong > 0) atomicAdd(&result->wrong, wrong);
}

// Sends and receives `rounds` messages by itself, from the first one that the host has prepared in each direction on. One block.
extern "C" __global__ void play_messages(gpunet_net_t net, gpunet::prepared first_out, unsigned long long ring, gpunet::prepared first_in,
                                unsigned long long rounds, queue_result *result) {
    const auto block = cooperative_groups::this_thread_block();
    int error = 0;
    unsigned int wrong = 0;
    unsigned long long round = 0;
    for (; round < rounds; round++) {
        const auto out = first_out.nth(round), in = first_in.nth(round);
        const auto room = gpunet::wait(block, net, out.room(ring), gpunet::seconds(20));
        const auto to = gpunet::span(block, net, out);
        if (!room || !to) {
            error = static_cast<int>(room ? to.error() : room.error());
            break;
        }
        for (unsigned long long at = block.thread_rank(); at < out.size(); at += block.size()) *to->byte(at) = byte_at(round, at);
        const auto sent = gpunet::release(block, net, out.trigger());
        const auto arrived = gpunet::wait(block, net, in.arrived(), gpunet::seconds(20));
        const auto from = gpunet::span(block, net, in);
        if (!sent || !arrived || !from) {
            error = static_cast<int>(!sent ? sent.error() : !arrived ? arrived.error() : from.error());
            break;
        }
        for (unsigned long long at = block.thread_rank(); at < in.size(); at += block.size()) wrong += *from->byte(at) != byte_at(round, at);
        const auto read = gpunet::release(block, net, in.trigger());
        if (!read) {
            error = static_cast<int>(read.error());
            break;
        }
    }
    if (wrong > 0) atomicAdd(&result->wrong, wrong);
    if (block.thread_rank() == 0) {
        result->error = error;
        result->played = round;
    }
}
