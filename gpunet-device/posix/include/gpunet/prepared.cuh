/* Messages, triggers and gates that the host has prepared in a direction that it has taken. */
#ifndef GPUNET_PREPARED_CUH
#define GPUNET_PREPARED_CUH

#include "../gpunet.h"
#include "group.cuh"
#include "result.cuh"
#include "span.cuh"
#include "timeout.cuh"

namespace gpunet {

/* Publishes the bytes of a direction up to a position: those that were filled, or those that were read. */
using trigger = ::gpunet_trigger_t;
/* Passes when the other end has released the bytes of a send up to a position, or when those of a receive have landed. */
using gate = ::gpunet_gate_t;

/* A message of a direction that the host has taken. Kernels get it as a parameter, by value, and derive from it its trigger, its
 * gates, and the following messages of the same length. */
class prepared {
public:
    prepared() = default;
    __host__ __device__ prepared(const gpunet_prepared_t &raw) : raw_(raw) {}

    __host__ __device__ unsigned long long size() const { return raw_.len; }
    /* As the C functions take it. */
    __host__ __device__ const gpunet_prepared_t &raw() const { return raw_; }

    /* Publishes the message and all before it; of a receive, gives its bytes back. */
    __device__ gpunet::trigger trigger() const { return gpunet_prepared_trigger(raw_); }
    /* Of a send: passes when a ring of `ring` bytes has room for the message, which may then be written. */
    __device__ gate room(unsigned long long ring) const { return gpunet_prepared_room(raw_, ring); }
    /* Of a send: passes when the message is released and its place is free. */
    __device__ gate done() const { return gpunet_prepared_done(raw_); }
    /* Of a receive: passes when the whole message has landed. */
    __device__ gate arrived() const { return gpunet_prepared_arrived(raw_); }
    /* The i-th message after this one. */
    __device__ prepared nth(unsigned long long i) const { return gpunet_prepared_nth(raw_, i); }

private:
    gpunet_prepared_t raw_ = {};
};

/* Releases a trigger, after all that the threads of the group have written or read. Triggers of a direction take effect in order:
 * a later one publishes all before it, and one that comes too late does nothing. */
template <class Group> __device__ result<void> release(const Group &group, gpunet_net_t net, const trigger &what) {
    return detail::nothing(GPUNET_BY_GROUP(group, gpunet_trigger_release, net, what));
}

/* Waits until a gate has passed. All threads then see what has landed, and may use the space that was released. When the time is
 * over, it fails with would_block. When the gate can no longer pass, it fails with no_data, broken_pipe or the socket's failure. */
template <class Group>
__device__ result<void> wait(const Group &group, gpunet_net_t net, const gate &where, timeout limit = {}) {
    return detail::nothing(GPUNET_BY_GROUP(group, gpunet_wait, net, where, limit.ns()));
}

/* Returns whether a gate has passed, without waiting. If it has, the threads see what they see after a wait. */
template <class Group> __device__ result<bool> test(const Group &group, gpunet_net_t net, const gate &where) {
    const int passed = GPUNET_BY_GROUP(group, gpunet_test, net, where);
    if (passed < 0) return detail::failed(passed);
    return passed > 0;
}

/* Returns where a message lies in the ring. The message may be written once its room has passed, or read once it has arrived, until
 * its trigger is released. The call does not check that. */
template <class Group> __device__ result<ring_span> span(const Group &group, gpunet_net_t net, const prepared &message) {
    struct gpunet_span found = {};
    const long long size = GPUNET_BY_GROUP(group, gpunet_prepared_span, net, message.raw(), &found);
    if (size < 0) return detail::failed(size);
    return ring_span(found);
}

} // namespace gpunet

#endif
