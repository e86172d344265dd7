/* Options of a socket that is opened. */
#ifndef GPUNET_OPTIONS_CUH
#define GPUNET_OPTIONS_CUH

#include "../gpunet.h"
#include "timeout.cuh"

namespace gpunet {

enum class transport : int { automatic = 0, tcp = 1, peer = 2, rc = 3 };

/* Options of a socket, each changed by a call:
 *     gpunet::options().with_rings(1 << 20, 1 << 20).with_transport(gpunet::transport::tcp) */
class options {
public:
    constexpr options() = default;

    /* Ring sizes in bytes, rounded up to a power of two from 4 KiB to 16 MiB; 0: the proxy chooses. */
    __host__ __device__ constexpr options with_rings(unsigned long long send, unsigned long long recv) const {
        options changed = *this;
        changed.raw_.send_ring = send;
        changed.raw_.recv_ring = recv;
        return changed;
    }
    __host__ __device__ constexpr options with_transport(transport kind) const {
        options changed = *this;
        changed.raw_.transport = static_cast<int>(kind);
        return changed;
    }
    /* How long sends and connects, and receives and accepts, wait unless a call is given a timeout. */
    __host__ __device__ constexpr options with_timeouts(timeout send, timeout recv) const {
        options changed = *this;
        changed.raw_.send_timeout_ns = limit(send);
        changed.raw_.recv_timeout_ns = limit(recv);
        return changed;
    }
    /* How long a close continues to send; 0: it resets the connection. */
    __host__ __device__ constexpr options with_linger(timeout length) const {
        options changed = with(GPUNET_LINGER, length.ns() >= 0);
        const long long ms = length.ns() / 1000000;
        changed.raw_.linger_ms = ms < 0 ? 0 : ms > 0x7fffffff ? 0x7fffffff : static_cast<int>(ms);
        return changed;
    }
    __host__ __device__ constexpr options with_nodelay(bool on) const { return with(GPUNET_DELAY, !on); }
    __host__ __device__ constexpr options with_reuse_address(bool on) const { return with(GPUNET_EXCLUSIVE, !on); }
    __host__ __device__ constexpr options with_keepalive(bool on) const { return with(GPUNET_KEEPALIVE, on); }
    __host__ __device__ constexpr options with_v6only(bool on) const { return with(GPUNET_V6ONLY, on); }
    __host__ __device__ constexpr options with_nonblocking(bool on) const { return with(GPUNET_NO_WAIT, on); }

    __host__ __device__ constexpr options with_lines(bool on) const { return with(GPUNET_NO_LINES, !on); }

    /* As the C functions take them. */
    __host__ __device__ constexpr const struct gpunet_options *data() const { return &raw_; }

private:
    __host__ __device__ constexpr options with(unsigned int flag, bool on) const {
        options changed = *this;
        changed.raw_.flags = on ? raw_.flags | flag : raw_.flags & ~flag;
        return changed;
    }
    /* 0 means no limit in the C structure. */
    __host__ __device__ static constexpr unsigned long long limit(timeout length) {
        return length.ns() < 0 ? 0 : length.ns() == 0 ? 1 : static_cast<unsigned long long>(length.ns());
    }
    struct gpunet_options raw_ = {};
};

} // namespace gpunet

#endif
