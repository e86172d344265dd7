/* IPv4 and IPv6 addresses with ports. */
#ifndef GPUNET_ADDRESS_CUH
#define GPUNET_ADDRESS_CUH

#include "../gpunet.h"

namespace gpunet {

/* An address and a port. Plain data: the host makes one as well, and passes it as a kernel's parameter. */
class address {
public:
    /* 0.0.0.0:0. */
    __host__ __device__ address() : address(v4(0, 0, 0, 0, 0)) {}
    __host__ __device__ address(const struct sockaddr_in &from) {
        raw_ = storage{};
        raw_.v4 = from;
    }
    __host__ __device__ address(const struct sockaddr_in6 &from) { raw_.v6 = from; }

    /* v4(10, 0, 0, 2, 7777) is 10.0.0.2:7777. */
    __host__ __device__ static address v4(unsigned char a, unsigned char b, unsigned char c, unsigned char d, unsigned short port) {
        struct sockaddr_in raw = {};
        raw.sin_family = AF_INET;
        raw.sin_port = swapped(port);
        raw.sin_addr.s_addr = a | static_cast<unsigned int>(b) << 8 | static_cast<unsigned int>(c) << 16 | static_cast<unsigned int>(d) << 24;
        return address(raw);
    }
    /* The bytes of an IPv6 address, in their order. */
    __host__ __device__ static address v6(const unsigned char (&ip)[16], unsigned short port, unsigned int scope = 0) {
        struct sockaddr_in6 raw = {};
        raw.sin6_family = AF_INET6;
        raw.sin6_port = swapped(port);
        raw.sin6_scope_id = scope;
        for (int i = 0; i < 16; i++) raw.sin6_addr.s6_addr[i] = ip[i];
        return address(raw);
    }

    __host__ __device__ bool is_v4() const { return raw_.v4.sin_family == AF_INET; }
    __host__ __device__ unsigned short port() const { return swapped(is_v4() ? raw_.v4.sin_port : raw_.v6.sin6_port); }
    /* Byte `i` of the address: 0 to 3, or 0 to 15. */
    __host__ __device__ unsigned char ip(int i) const {
        return is_v4() ? static_cast<unsigned char>(raw_.v4.sin_addr.s_addr >> (8 * i)) : raw_.v6.sin6_addr.s6_addr[i];
    }
    __host__ __device__ void set_port(unsigned short port) {
        (is_v4() ? raw_.v4.sin_port : raw_.v6.sin6_port) = swapped(port);
    }

    /* As the C functions take it. */
    __host__ __device__ const struct sockaddr *data() const { return reinterpret_cast<const struct sockaddr *>(&raw_); }
    __host__ __device__ socklen_t size() const { return is_v4() ? sizeof raw_.v4 : sizeof raw_.v6; }

    __host__ __device__ friend bool operator==(const address &a, const address &b) {
        bool same = a.is_v4() == b.is_v4() && a.port() == b.port();
        for (int i = 0; i < (a.is_v4() ? 4 : 16); i++) same = same && a.ip(i) == b.ip(i);
        return same && (a.is_v4() || a.raw_.v6.sin6_scope_id == b.raw_.v6.sin6_scope_id);
    }
    __host__ __device__ friend bool operator!=(const address &a, const address &b) { return !(a == b); }

private:
    __host__ __device__ static constexpr unsigned short swapped(unsigned short port) {
        return static_cast<unsigned short>(port << 8 | port >> 8);
    }
    union storage {
        struct sockaddr_in6 v6;
        struct sockaddr_in v4;
    } raw_;
};

} // namespace gpunet

#endif
