/* The results of calls: a value, or an error. */
#ifndef GPUNET_RESULT_CUH
#define GPUNET_RESULT_CUH

#include "../gpunet.h"

#if !defined(GPUNET_NO_LIBCUDACXX) && defined(__has_include)
#if __has_include(<cuda/std/expected>)
#define GPUNET_LIBCUDACXX 1
#include <cuda/std/expected>
#endif
#endif

namespace gpunet {

/* Linux's numbers. Numbers without a name here can occur, too. */
enum class errc : int {
    not_permitted = 1,
    not_found = 2, /* the socket is not in this poll group */
    bad_handle = 9,   /* the socket is closed */
    would_block = 11, /* the call's time is over */
    access_denied = 13,
    bad_address = 14, /* a null pointer */
    already_exists = 17, /* the socket is in a poll group */
    invalid_argument = 22,
    too_many_files = 23,
    too_many_sockets = 24,
    no_space = 28, /* the poll group is full */
    broken_pipe = 32,
    no_data = 61, /* the stream ended before a gate's position */
    protocol_error = 71,
    message_too_long = 90, /* a ring holds no more than was seen */
    no_such_option = 92,
    not_supported = 95,
    family_not_supported = 97,
    address_in_use = 98,
    address_not_available = 99,
    network_down = 100, /* no context, or the proxy has stopped */
    network_unreachable = 101,
    connection_aborted = 103,
    connection_reset = 104,
    no_buffers = 105,
    already_connected = 106,
    not_connected = 107,
    timed_out = 110, /* the connection's own timeout, or a connect's */
    connection_refused = 111,
    host_unreachable = 113,
    busy = 114,    /* another group uses this direction, or the host has taken it */
    canceled = 125 /* the host has cancelled the launch */
};

#ifdef GPUNET_LIBCUDACXX

template <class T> using result = ::cuda::std::expected<T, errc>;
using failure = ::cuda::std::unexpected<errc>;

#else

class failure {
public:
    __host__ __device__ constexpr explicit failure(errc error) : error_(error) {}
    __host__ __device__ constexpr errc error() const { return error_; }

private:
    errc error_;
};

/* The part of std::expected that kernels need. */
template <class T> class result {
public:
    __host__ __device__ constexpr result(T &&value) : value_(static_cast<T &&>(value)), has_value_(true) {}
    __host__ __device__ constexpr result(const T &value) : value_(value), has_value_(true) {}
    __host__ __device__ constexpr result(failure why) : error_(why.error()) {}

    __host__ __device__ constexpr bool has_value() const { return has_value_; }
    __host__ __device__ constexpr explicit operator bool() const { return has_value_; }
    __host__ __device__ constexpr errc error() const { return error_; }
    __host__ __device__ constexpr T &operator*() & { return value_; }
    __host__ __device__ constexpr const T &operator*() const & { return value_; }
    __host__ __device__ constexpr T &&operator*() && { return static_cast<T &&>(value_); }
    __host__ __device__ constexpr T *operator->() { return &value_; }
    __host__ __device__ constexpr const T *operator->() const { return &value_; }
    __host__ __device__ constexpr T value_or(T other) const & { return has_value_ ? value_ : other; }

private:
    T value_{};
    errc error_{};
    bool has_value_ = false;
};

template <> class result<void> {
public:
    constexpr result() = default;
    __host__ __device__ constexpr result(failure why) : error_(why.error()), has_value_(false) {}

    __host__ __device__ constexpr bool has_value() const { return has_value_; }
    __host__ __device__ constexpr explicit operator bool() const { return has_value_; }
    __host__ __device__ constexpr errc error() const { return error_; }

private:
    errc error_{};
    bool has_value_ = true;
};

#endif

namespace detail {

/* The negative result of a C function, as a failure. */
__host__ __device__ constexpr failure failed(long long returned) { return failure(static_cast<errc>(-returned)); }

__host__ __device__ constexpr result<void> nothing(long long returned) {
    if (returned < 0) return failed(returned);
    return result<void>();
}

__host__ __device__ constexpr result<unsigned long long> count(long long returned) {
    if (returned < 0) return failed(returned);
    return static_cast<unsigned long long>(returned);
}

} // namespace detail
} // namespace gpunet

#endif
