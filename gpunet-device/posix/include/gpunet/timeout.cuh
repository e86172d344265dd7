/* How long a call waits. */
#ifndef GPUNET_TIMEOUT_CUH
#define GPUNET_TIMEOUT_CUH

#include "../gpunet.h"

namespace gpunet {

/* A length of time with the members of a chrono duration that `timeout` uses. */
template <long long Num, long long Den> class duration {
public:
    struct period {
        static constexpr long long num = Num;
        static constexpr long long den = Den;
    };
    __host__ __device__ constexpr explicit duration(long long count) : count_(count) {}
    __host__ __device__ constexpr long long count() const { return count_; }

private:
    long long count_;
};
using nanoseconds = duration<1, 1000000000>;
using microseconds = duration<1, 1000000>;
using milliseconds = duration<1, 1000>;
using seconds = duration<1, 1>;

namespace detail {

/* The nanoseconds of `count` times Num / Den seconds: 0 only for 0 or less, and at most what 63 bits hold. */
template <long long Num, long long Den, class Count> __host__ __device__ constexpr long long nanoseconds_of(Count count) {
    constexpr long long most = 0x7fffffffffffffffll;
    constexpr long long second = 1000000000;
    if (!(count > Count(0))) return 0;
    if (Count(1) / Count(2) != Count(0)) {
        const double ns = static_cast<double>(count) * Num * second / Den;
        return ns >= 9.2e18 ? most : ns < 1 ? 1 : static_cast<long long>(ns);
    }
    const auto whole = static_cast<unsigned long long>(count);
    if (Den <= second && second % Den == 0) {
        constexpr unsigned long long each = Den <= second ? Num * (second / Den) : 1;
        return whole > static_cast<unsigned long long>(most) / each ? most : static_cast<long long>(whole * each);
    }
    const double ns = static_cast<double>(whole) * Num * second / Den;
    return ns >= 9.2e18 ? most : ns < 1 ? 1 : static_cast<long long>(ns);
}

} // namespace detail

/* How long a call waits: a duration from a chrono library or from above, not at all, or without limit. A call with a duration of 0
 * or less does not wait. The default asks the options of the socket. */
class timeout {
public:
    __host__ __device__ constexpr timeout() : ns_(GPUNET_SOCKET_TIMEOUT) {}

#ifdef __NVCC__
#pragma nv_exec_check_disable
#endif
    template <class Duration, long long Num = Duration::period::num, long long Den = Duration::period::den>
    __host__ __device__ constexpr timeout(const Duration &length) : ns_(detail::nanoseconds_of<Num, Den>(length.count())) {}

    __host__ __device__ static constexpr timeout no_wait() { return timeout(nanoseconds(0)); }
    __host__ __device__ static constexpr timeout forever() {
        timeout forever;
        forever.ns_ = -1;
        return forever;
    }

    /* As the C functions take it. */
    __host__ __device__ constexpr long long ns() const { return ns_; }

private:
    long long ns_;
};

} // namespace gpunet

#endif
