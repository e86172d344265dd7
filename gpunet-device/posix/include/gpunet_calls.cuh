/* Calls of functions of the host program, for CUDA C++ (C++17 and later), and for the same kernels on the CPU: a layer over
 * gpunet_calls.h, as gpunet.cuh is over gpunet.h.
 *
 *     __global__ void work(gpunet_net_t net, gpunet_calls_t calls) {
 *         auto block = cooperative_groups::this_thread_block();
 *         auto caller = gpunet::caller::open(block, net, calls);
 *         if (!caller) return;
 *         // One after another, or with several in flight:
 *         auto row = caller->call<float4>(block, "look_up", blockIdx.x, gpunet::milliseconds(10));
 *         auto first = caller->start<float4>(block, "look_up", 1u), second = caller->start<float4>(block, "look_up", 2u);
 *         if (first && second) { auto b = caller->wait(block, *second), a = caller->wait(block, *first); }
 *         caller->close(block);
 *     }
 *
 * All threads of a group make each call, with the same arguments, and all get the same result. Requests and answers are values that can
 * be copied byte by byte, or bytes. A caller and a ticket are local variables of each thread, equal in all of them. Failures are those of
 * gpunet_calls.h, as gpunet::errc. Without a timeout, a call waits without limit. */
#ifndef GPUNET_CALLS_CUH
#define GPUNET_CALLS_CUH

#include "gpunet.cuh"
#include "gpunet_calls.h"

namespace gpunet {

/* A function of the host, by the number or by the name with which it is registered. */
class host_function {
public:
    __host__ __device__ constexpr host_function(unsigned int number) : number_(number) {}
    __host__ __device__ constexpr host_function(const char *name) : number_(gpunet_function(name)) {}
    __host__ __device__ constexpr unsigned int number() const { return number_; }

private:
    unsigned int number_;
};

/* A call that was started, and whose answer is an Answer. `void`: its answer is bytes. */
template <class Answer = void> class ticket {
public:
    ticket() = default;
    /* Returns whether its answer was taken or given up. */
    __device__ bool is_done() const { return raw_.slot == ~0u; }

private:
    friend class caller;
    struct gpunet_ticket raw_ = {0, ~0u, 0};
};

/* What the threads of a group call by: a channel of its own, from open() to close(). The destructor does nothing: call close(). */
class caller {
public:
    /* Every call fails with invalid_argument. */
    caller() = default;

    /* Takes a channel that no other caller has. no_buffers: all of them are taken, or there are none. */
    template <class Group> __device__ static result<caller> open(const Group &group, gpunet_net_t net, const gpunet_calls_t &calls) {
        caller opened;
        const int code = GPUNET_BY_GROUP(group, gpunet_caller_open, net, calls, &opened.raw_);
        if (code < 0) return detail::failed(code);
        return opened;
    }

    /* Calls a function with a value, and waits for a value. An answer of another length is message_too_long, or protocol_error. */
    template <class Answer, class Group, class Request>
    __device__ result<Answer> call(const Group &group, host_function which, const Request &request, timeout limit = {}) {
        Answer answer{};
        const auto len = call_bytes(group, which, &request, sizeof(Request), &answer, sizeof(Answer), limit);
        return whole(len, answer);
    }
    /* Calls a function with `len` bytes, and waits for its answer, of which there is room for `room` bytes. Returns how many it has. */
    template <class Group>
    __device__ result<unsigned long long> call_bytes(
        const Group &group, host_function which, const void *request, unsigned long long len, void *answer, unsigned long long room,
        timeout limit = {}) {
        return detail::count(
            GPUNET_BY_GROUP(group, gpunet_call, raw_.net, &raw_, which.number(), request, len, answer, room, limit.ns()));
    }

    /* Calls a function and returns at once. The ticket is for wait(). no_buffers: all tickets are in use. */
    template <class Answer, class Group, class Request>
    __device__ result<ticket<Answer>> start(const Group &group, host_function which, const Request &request, timeout limit = {}) {
        return begin<Answer>(group, which, &request, sizeof(Request), sizeof(Answer), limit);
    }
    template <class Group>
    __device__ result<ticket<>> start_bytes(
        const Group &group, host_function which, const void *request, unsigned long long len, unsigned long long room, timeout limit = {}) {
        return begin<void>(group, which, request, len, room, limit);
    }

    /* Waits for an answer. After would_block, which is the end of the time, the ticket is still valid. */
    template <class Group, class Answer> __device__ result<Answer> wait(const Group &group, ticket<Answer> &started, timeout limit = {}) {
        Answer answer{};
        const auto len = take(group, started.raw_, &answer, sizeof(Answer), limit);
        return whole(len, answer);
    }
    template <class Group>
    __device__ result<unsigned long long> wait_bytes(
        const Group &group, ticket<> &started, void *answer, unsigned long long room, timeout limit = {}) {
        return take(group, started.raw_, answer, room, limit);
    }

    /* Gives an answer up: its ticket is free for another call. */
    template <class Answer> __device__ void give_up(ticket<Answer> &started) { gpunet_call_give_up(&raw_, &started.raw_); }

    /* Calls a function whose answer nobody wants. Nothing says whether it ran. */
    template <class Group, class Request>
    __device__ result<void> tell(const Group &group, host_function which, const Request &request, timeout limit = {}) {
        return tell_bytes(group, which, &request, sizeof(Request), limit);
    }
    template <class Group>
    __device__ result<void> tell_bytes(
        const Group &group, host_function which, const void *request, unsigned long long len, timeout limit = {}) {
        return detail::nothing(
            GPUNET_BY_GROUP(group, gpunet_call_tell, raw_.net, &raw_, which.number(), request, len, limit.ns()));
    }

    /* Asks the host's resolver for the first address of a name, such as "localhost", or of an address in words; stream::connect takes
     * it. address_not_available: no address has that name. not_supported or message_too_long: the host resolves no names. */
    template <class Group>
    __device__ result<address> resolve(const Group &group, const char *name, unsigned short port, timeout limit = {}) {
        struct sockaddr_in6 found = {};
        socklen_t len = 0;
        const int code = GPUNET_BY_GROUP(group, gpunet_resolve, raw_.net, &raw_, name, port, &found, &len, limit.ns());
        if (code < 0) return detail::failed(code);
        if (len == sizeof found) return address(found);
        struct sockaddr_in v4 = {};
        for (unsigned int at = 0; at < sizeof v4; at++)
            reinterpret_cast<unsigned char *>(&v4)[at] = reinterpret_cast<const unsigned char *>(&found)[at];
        return address(v4);
    }

    /* Gives the channel back, for another group. Answers that have not come are given up. */
    template <class Group> __device__ result<void> close(const Group &group) {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_caller_close, raw_.net, &raw_));
    }

private:
    template <class Answer> __device__ static result<Answer> whole(const result<unsigned long long> &len, const Answer &answer) {
        static_assert(__is_trivially_copyable(Answer), "an answer is copied byte by byte");
        if (!len) return failure(len.error());
        if (*len != sizeof(Answer)) return failure(errc::protocol_error);
        return answer;
    }
    template <class Answer, class Group>
    __device__ result<ticket<Answer>> begin(
        const Group &group, host_function which, const void *request, unsigned long long len, unsigned long long room, timeout limit) {
        ticket<Answer> started;
        const int code = GPUNET_BY_GROUP(
            group, gpunet_call_start, raw_.net, &raw_, which.number(), request, len, room, &started.raw_, limit.ns());
        if (code < 0) return detail::failed(code);
        return started;
    }
    template <class Group>
    __device__ result<unsigned long long> take(
        const Group &group, struct gpunet_ticket &started, void *answer, unsigned long long room, timeout limit) {
        return detail::count(GPUNET_BY_GROUP(group, gpunet_call_wait, raw_.net, &raw_, &started, answer, room, limit.ns()));
    }

    struct gpunet_caller raw_ = {};
};

} // namespace gpunet

#endif
