/* Bytes in place in a ring. */
#ifndef GPUNET_SPAN_CUH
#define GPUNET_SPAN_CUH

#include "../gpunet.h"

namespace gpunet {

/* Contiguous bytes of a ring. */
struct ring_piece {
    unsigned char *data;
    unsigned long long size;
};

/* Free space of a ring to be written and committed, or received bytes to be read and released. It has one piece, or two if the
 * ring's end lies between. It is void after the commit or release, and after another send or receive on the socket. The span of a
 * prepared message is void after the release of its trigger.
 *
 * The memory may be the host's or another GPU's. Use plain or volatile loads and stores, not __ldg, `const __restrict__` or TMA. */
class ring_span {
public:
    ring_span() = default;
    __device__ explicit ring_span(const struct gpunet_span &raw) : raw_(raw) {}

    __device__ unsigned long long size() const { return raw_.piece[0].len + raw_.piece[1].len; }
    __device__ bool empty() const { return size() == 0; }
    /* Piece 0, and piece 1, which is empty unless the span wraps. */
    __device__ ring_piece piece(int number) const {
        return {static_cast<unsigned char *>(raw_.piece[number].data), raw_.piece[number].len};
    }
    /* The address of byte `at`. The bytes behind it are contiguous up to the end of its piece. */
    __device__ unsigned char *byte(unsigned long long at) const {
        const ring_piece first = piece(0);
        return at < first.size ? first.data + at : piece(1).data + (at - first.size);
    }

    /* Copies `size` bytes into the span from `at` on, each thread of the group a share. Bytes that do not fit are not
     * copied. The commit is the barrier. */
    template <class Group>
    __device__ void write(const Group &group, unsigned long long at, const void *from, unsigned long long size) const {
        const auto *source = static_cast<const unsigned char *>(from);
        each_piece(at, size, [&](unsigned char *ring, unsigned long long done, unsigned long long part) {
            copy(group, ring, source + done, part);
        });
    }
    /* Copies `size` bytes out of the span from `at` on, each thread of the group a share. The release is the barrier. */
    template <class Group>
    __device__ void read(const Group &group, unsigned long long at, void *to, unsigned long long size) const {
        auto *target = static_cast<unsigned char *>(to);
        each_piece(at, size, [&](unsigned char *ring, unsigned long long done, unsigned long long part) {
            copy(group, target + done, ring, part);
        });
    }

private:
    template <class Body>
    __device__ void each_piece(unsigned long long at, unsigned long long size, Body body) const {
        unsigned long long done = 0;
        for (int number = 0; number < 2; number++) {
            const ring_piece one = piece(number);
            if (at < one.size) {
                const unsigned long long rest = one.size - at;
                const unsigned long long part = size - done < rest ? size - done : rest;
                body(one.data + at, done, part);
                done += part;
                at = 0;
            } else {
                at -= one.size;
            }
        }
    }

    /* 16 bytes at a time where both addresses allow it. */
    template <class Group>
    __device__ static void copy(const Group &group, unsigned char *to, const unsigned char *from, unsigned long long size) {
        const unsigned long long rank = group.thread_rank(), threads = group.size();
        const auto to_at = reinterpret_cast<unsigned long long>(to), from_at = reinterpret_cast<unsigned long long>(from);
        unsigned long long begin = size, end = size;
        if ((to_at & 15) == (from_at & 15) && size >= 64) {
            begin = (16 - (to_at & 15)) & 15;
            end = begin + ((size - begin) & ~15ull);
        }
        for (unsigned long long i = rank; i < begin; i += threads) to[i] = from[i];
        for (unsigned long long i = begin + 16 * rank; i < end; i += 16 * threads) {
            *reinterpret_cast<uint4 *>(to + i) = *reinterpret_cast<const uint4 *>(from + i);
        }
        for (unsigned long long i = end + rank; i < size; i += threads) to[i] = from[i];
    }

    struct gpunet_span raw_ = {};
};

} // namespace gpunet

#endif
