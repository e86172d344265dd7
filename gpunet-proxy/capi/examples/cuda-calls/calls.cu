// Kernels that call functions of the host program, by blocks, warps and threads: docs/calls.md.
#include <gpunet_calls.cuh>

#include "calls.h"

namespace {

// Far longer than a call takes.
constexpr gpunet::timeout LONG = gpunet::seconds(60);

__device__ void expect(bool good, outcome *all, unsigned int line) {
    if (good) return;
    if (atomicAdd(&all->wrong, 1) == 0) all->first_wrong = line;
}
#define EXPECT(...) expect(__VA_ARGS__, all, __LINE__)

__device__ bool is_row(const row &found, unsigned int number) {
    for (int at = 0; at < 20; at++)
        if (found.values[at] != number + at / 4.0) return false;
    return found.number == number;
}

// One after another, and four in flight.
template <class Group> __device__ void rows(const Group &group, gpunet::caller &caller, unsigned int first, unsigned int rounds, outcome *all) {
    for (unsigned int round = 0; round < rounds; round++) {
        const unsigned int number = first + round;
        const auto found = caller.call<row>(group, "row", number, LONG);
        EXPECT(found && is_row(*found, number));

        gpunet::ticket<row> tickets[4];
        for (unsigned int at = 0; at < 4; at++) {
            auto started = caller.start<row>(group, "row", number + at, LONG);
            EXPECT(started.has_value());
            if (started) tickets[at] = *started;
        }
        // In any order.
        for (unsigned int at = 4; at-- > 0;) {
            const auto later = caller.wait(group, tickets[at], LONG);
            EXPECT(later && is_row(*later, number + at) && tickets[at].is_done());
        }
    }
}

// What fails says why, and the next call is answered.
template <class Group> __device__ void failures(const Group &group, gpunet::caller &caller, outcome *all) {
    const auto nothing = caller.call<unsigned int>(group, "nothing", 1u, LONG);
    EXPECT(!nothing && nothing.error() == gpunet::errc::not_supported);
    const auto negative = caller.call<row>(group, "row", ~0u, LONG);
    EXPECT(!negative && negative.error() == gpunet::errc::invalid_argument);
    const auto small = caller.call<unsigned int>(group, "row", 1u, LONG);
    EXPECT(!small && small.error() == gpunet::errc::message_too_long);
    auto given_up = caller.start<row>(group, "row", 1u, LONG);
    EXPECT(given_up.has_value());
    if (given_up) caller.give_up(*given_up);
    rows(group, caller, 7, 1, all);
}

} // namespace

// Each block, then each of its warps, then one of its threads asks for `rounds` rows.
extern "C" __global__ void calls_work(gpunet_net_t net, gpunet_calls_t calls, unsigned int rounds, outcome *all) {
    const auto block = gpunet::this_block();
    auto caller = gpunet::caller::open(block, net, calls);
    EXPECT(caller.has_value());
    if (!caller) return;
    rows(block, *caller, blockIdx.x, rounds, all);
    failures(block, *caller, all);

    // Bytes in memory that the threads share: each writes some of them, and each reads all.
    __shared__ char text[100], upper[100];
    for (unsigned int length = 1; length <= sizeof text; length += 33) {
        for (unsigned int at = block.thread_rank(); at < length; at += block.size()) text[at] = static_cast<char>('a' + (at + length) % 26);
        const auto count = caller->call_bytes(block, "upper", text, length, upper, sizeof upper, LONG);
        EXPECT(count && *count == length);
        for (unsigned int at = 0; at < length; at++) EXPECT(upper[at] == static_cast<char>('A' + (at + length) % 26));
        block.sync();
    }
    if (blockIdx.x == 0) {
        // It does not answer before it is told to.
        const auto late = caller->call<unsigned int>(block, "late", 0u, gpunet::milliseconds(5));
        EXPECT(!late && late.error() == gpunet::errc::would_block);
        EXPECT(caller->tell(block, "go on", 0u, LONG).has_value());
    }
    // The address of a name, to connect to.
    const auto home = caller->resolve(block, "127.0.0.1", 80, LONG);
    EXPECT(home && home->is_v4() && home->port() == 80 && home->ip(0) == 127 && home->ip(3) == 1);
    const auto nameless = caller->resolve(block, "", 80, LONG);
    EXPECT(!nameless && nameless.error() == gpunet::errc::invalid_argument);
    EXPECT(caller->close(block).has_value());

    const auto warp = gpunet::this_warp();
    auto own = gpunet::caller::open(warp, net, calls);
    EXPECT(own.has_value());
    if (own) {
        rows(warp, *own, threadIdx.x / 32, rounds, all);
        failures(warp, *own, all);
        EXPECT(own->close(warp).has_value());
    }
    block.sync();
    if (block.thread_rank() == 0) {
        const auto thread = gpunet::this_thread();
        auto last = gpunet::caller::open(thread, net, calls);
        EXPECT(last.has_value());
        if (last) {
            rows(thread, *last, 1000, rounds, all);
            failures(thread, *last, all);
            EXPECT(last->close(thread).has_value());
        }
    }
}

// One warp calls one function after another, in C.
extern "C" __global__ void calls_time(gpunet_net_t net, gpunet_calls_t calls, unsigned int count, outcome *all) {
    struct gpunet_caller caller;
    EXPECT(gpunet_caller_open_warp(net, calls, &caller) == 0);
    for (unsigned int at = 0; at < count; at++) {
        unsigned int answer = 0;
        EXPECT(gpunet_call_warp(net, &caller, 1, &at, sizeof at, &answer, sizeof answer, -1) == 4 && answer == at);
    }
    EXPECT(gpunet_caller_close_warp(net, &caller) == 0);
}
