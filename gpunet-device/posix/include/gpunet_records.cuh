/* gpunet: what kernels record and print while they run, for CUDA C++ (C++17 and later; nvcc, clang with -x cuda, NVRTC), and for the
 * same kernels on the CPU (gpunet_cpu.h). docs/telemetry.md leads through it.
 *
 *     __global__ void work(gpunet_net_t net, gpunet_records_t records) {
 *         auto block = cooperative_groups::this_thread_block();
 *         auto recorder = gpunet::recorder::open(block, net, records);
 *         gprintf(recorder, block, "block %u has started", blockIdx.x);
 *         recorder.record(block, 1, 7u, 2.5f);
 *         recorder.close(block);
 *     }
 *
 * All threads of the group call, with the same arguments. open, close and lines with a limit are barriers of the group; the others are
 * none. gpunet's PTX is not needed. */
#ifndef GPUNET_RECORDS_CUH
#define GPUNET_RECORDS_CUH

#include "gpunet.cuh"
#include "gpunet_records.h"

namespace gpunet {
namespace detail {

/* An argument as words of a record. */
template <class T> struct argument {
    static_assert(sizeof(T) == 0, "a record has numbers, bool and pointers: no texts and no structures");
};
#define GPUNET_RECORDS_ARGUMENT(of, number, count)                                              \
    template <> struct argument<of> {                                                           \
        static constexpr unsigned int type = number, words = count;                             \
        __device__ static void put(of value, unsigned int *to) {                                \
            const auto bits = static_cast<unsigned long long>(value);                           \
            to[0] = static_cast<unsigned int>(bits);                                            \
            if constexpr (words == 2) to[1] = static_cast<unsigned int>(bits >> 32);            \
        }                                                                                       \
    };
GPUNET_RECORDS_ARGUMENT(bool, 7, 1)
GPUNET_RECORDS_ARGUMENT(char, 3, 1)
GPUNET_RECORDS_ARGUMENT(signed char, 3, 1)
GPUNET_RECORDS_ARGUMENT(short, 3, 1)
GPUNET_RECORDS_ARGUMENT(int, 3, 1)
GPUNET_RECORDS_ARGUMENT(long, 4, 2)
GPUNET_RECORDS_ARGUMENT(long long, 4, 2)
GPUNET_RECORDS_ARGUMENT(unsigned char, 1, 1)
GPUNET_RECORDS_ARGUMENT(unsigned short, 1, 1)
GPUNET_RECORDS_ARGUMENT(unsigned int, 1, 1)
GPUNET_RECORDS_ARGUMENT(unsigned long, 2, 2)
GPUNET_RECORDS_ARGUMENT(unsigned long long, 2, 2)
#undef GPUNET_RECORDS_ARGUMENT
template <> struct argument<float> {
    static constexpr unsigned int type = 5, words = 1;
    __device__ static void put(float value, unsigned int *to) {
#ifdef __CUDA_ARCH__
        to[0] = __float_as_uint(value);
#elif !defined(__CUDACC__)
        memcpy(to, &value, sizeof value);
#else
        (void)value, (void)to;
#endif
    }
};
template <> struct argument<double> {
    static constexpr unsigned int type = 6, words = 2;
    __device__ static void put(double value, unsigned int *to) {
#ifdef __CUDA_ARCH__
        argument<long long>::put(__double_as_longlong(value), to);
#elif !defined(__CUDACC__)
        memcpy(to, &value, sizeof value);
#else
        (void)value, (void)to;
#endif
    }
};
template <class T> struct argument<T *> {
    static constexpr unsigned int type = 2, words = 2;
    __device__ static void put(const volatile void *value, unsigned int *to) {
        argument<unsigned long long>::put(reinterpret_cast<unsigned long long>(value), to);
    }
};

/* Types of arguments, without the text before them. */
template <class... Arguments> struct arguments {
    static constexpr unsigned int count = sizeof...(Arguments);
    static constexpr unsigned int words = (0 + ... + argument<Arguments>::words);
    __host__ __device__ static constexpr unsigned int types() {
        unsigned int all = 0, at = 0;
        ((all |= argument<Arguments>::type << (4 * at++ % 32)), ...);
        return all;
    }
    __device__ static void put(unsigned int *to, Arguments... values) {
        unsigned int at = 0;
        ((argument<Arguments>::put(values, to + at), at += argument<Arguments>::words), ...);
        (void)to, (void)at;
    }
};
template <unsigned int Length, class... Arguments>
__host__ __device__ arguments<Arguments...> types_of(const char (&)[Length], Arguments...);

/* Returns whether a text has a placeholder for each argument, and each can print its own. */
__host__ __device__ constexpr bool suits(const char *text, unsigned int types, unsigned int count) {
    unsigned int used = 0;
    for (unsigned int at = 0; text[at] != 0; at++) {
        if (text[at] != '%') continue;
        at++;
        if (text[at] == '%') continue;
        while (text[at] == '-' || text[at] == '+' || text[at] == ' ' || text[at] == '#' || text[at] == '0') at++;
        while (text[at] >= '0' && text[at] <= '9') at++;
        if (text[at] == '.') at++;
        while (text[at] >= '0' && text[at] <= '9') at++;
        while (text[at] == 'l' || text[at] == 'h' || text[at] == 'z' || text[at] == 'j' || text[at] == 't') at++;
        if (used == count) return false;
        const unsigned int type = types >> (4 * used++) & 15;
        const bool is_float = type == 5 || type == 6;
        switch (text[at]) {
        case 'd': case 'i': case 'u': case 'x': case 'X': case 'o': case 'c':
            if (is_float) return false;
            break;
        case 'f': case 'F': case 'e': case 'E': case 'g': case 'G':
            if (!is_float) return false;
            break;
        case 'p':
            if (type != 2) return false;
            break;
        default: return false;
        }
    }
    return used == count;
}

__host__ __device__ constexpr unsigned long long hashed(unsigned long long hash, unsigned int value) {
    return (hash ^ value) * 0x100000001b3ull;
}
/* The format of a text with these arguments. `per_second`: 0 for no limit. */
template <class Types, unsigned int Length>
__host__ __device__ constexpr gpunet_format format_of(unsigned int level, unsigned int per_second, const char (&text)[Length]) {
    gpunet_format format = {0xcbf29ce484222325ull, 0, Types::types(), per_second == 0 ? 0 : 1000000000ull / per_second};
    format.head = (Length - 1) | level << 16 | (per_second != 0 ? GPUNET_RECORDS_LIMITED : 0) | GPUNET_RECORDS_PRINTF;
    for (unsigned int at = 0; at + 1 < Length; at++) format.hash = hashed(format.hash, static_cast<unsigned char>(text[at]));
    format.hash = hashed(hashed(format.hash, format.head), format.types);
    return format;
}

/* What the threads of a group agree on. */
struct taken_ring {
    unsigned long long next, refused;
    unsigned int ring, reserved;
};

} // namespace detail

/* What the threads of a group write by: a ring of its own, from open() to close(). A local variable of each thread, equal in all. The
 * destructor does nothing: call close(). */
class recorder {
public:
    /* What it is told goes nowhere, and does not count as lost. */
    recorder() = default;

    /* Takes a ring that no other recorder has. If there is none, the records of this recorder are counted as lost. */
    template <class Group> __device__ static recorder open(const Group &group, gpunet_net_t net, const gpunet_records_t &records) {
        constexpr detail::scope who = detail::scope_for<Group>();
        recorder opened;
        if (records.memory == 0) return opened;
        const unsigned int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), thread = detail::block_rank();
        const unsigned int warps = (detail::block_size() + 31) / 32;
        const unsigned int number = who == detail::scope::block  ? block
                                    : who == detail::scope::warp ? block * warps + thread / 32
                                                                 : block * detail::block_size() + thread;
        const auto found = detail::ask<detail::taken_ring>(group, [&](detail::taken_ring *to) {
            to->ring = gpunet_records_take(&records, number, &to->next);
            if (to->ring != GPUNET_NO_RING) to->refused = gpunet_records_load(gpunet_records_line(&records, to->ring) + 8);
            return 0;
        });
        if (found.code != 0) return opened;
        gpunet_recorder &raw = opened.raw_;
        raw.records = records, raw.net = net, raw.next = found.value.next, raw.ring = found.value.ring, raw.refused = found.value.refused;
        raw.end = records.wait == GPUNET_RECORDS_OVERWRITE ? ~0ull : raw.next;
        raw.block = block;
        unsigned int sm = 0xffff;
#ifdef __CUDA_ARCH__
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
#endif
        const unsigned int warp = who == detail::scope::block ? 0xff : thread / 32 & 0xff;
        const unsigned int lane = who == detail::scope::thread ? thread & 31 : 0xff;
        raw.place = lane << 24 | warp << 16 | (sm & 0xffff);
        return opened;
    }

    /* Writes a record of numbers, of 27 words at most: numbers of eight bytes take two. `kind` is from 1 to 32751. Returns whether it was
     * written: a payload that is longer than the rings' is not; nor is a record for which there is no room in time, which is counted. */
    template <class Group, class... Values> __device__ bool record(const Group &group, unsigned int kind, Values... values) {
        using types = detail::arguments<Values...>;
        static_assert(types::words <= GPUNET_RECORD_WORDS, "at most 27 words; a longer record is one of bytes: record_bytes");
        if (kind - 1 >= GPUNET_RECORD_BEGIN - 1 || 4 * types::words > gpunet_records_payload(&raw_.records)) return false;
        unsigned int words[GPUNET_RECORD_WORDS + 1] = {};
        types::put(words, values...);
        return put<types::words>(group, kind, words);
    }

    /* Writes a record of bytes in memory, at most as many as the rings' longest payload has. */
    template <class Group>
    __device__ bool record_bytes(const Group &group, unsigned int kind, const void *data, unsigned long long len) {
        if (kind - 1 >= GPUNET_RECORD_BEGIN - 1 || len > gpunet_records_payload(&raw_.records) || !has_room(group, 1)) return false;
        if (group.thread_rank() < 32) {
            gpunet_records_put_bytes(&raw_, group.thread_rank(), lanes(group), kind, data, static_cast<unsigned int>(len));
        }
        raw_.next++;
        return true;
    }

    /* Writes a record of each thread of a warp or of one thread, with numbers of its own. It is a barrier of the warp. */
    template <class Group, class... Values> __device__ bool record_each(const Group &group, unsigned int kind, Values... values) {
        using types = detail::arguments<Values...>;
        static_assert(detail::scope_for<Group>() != detail::scope::block, "a warp or a thread records for each lane");
        static_assert(types::words <= GPUNET_RECORD_WORDS, "at most 27 words");
        if (kind - 1 >= GPUNET_RECORD_BEGIN - 1 || 4 * types::words > gpunet_records_payload(&raw_.records) || !has_room(group, group.size())) return false;
        unsigned int words[GPUNET_RECORD_WORDS + 1] = {};
        types::put(words, values...);
        gpunet_recorder own = raw_;
        own.next += group.thread_rank();
        own.place = (own.place & 0xffffff) | (detail::block_rank() & 31) << 24;
        gpunet_records_put(&own, 0, 1, kind, words, types::words);
        raw_.next += group.size();
        group.sync();
        return true;
    }

    /* Notes that a span begins, that it ends, and which value a counter of this group has now: `recorder.begin(block, "step")`. The name is
     * sent once, as the text of a line without arguments is, and has at most 248 bytes; a span ends by the name and level by which it has
     * begun. Spans of a group lie inside each other: the one that has begun last ends first. Each returns whether it was noted: a level
     * that the host does not want is not. */
    template <class Group, unsigned int Length>
    __device__ bool begin(const Group &group, const char (&name)[Length], unsigned int level = GPUNET_INFO) {
        return mark<1>(group, GPUNET_RECORD_BEGIN, name, level, 0);
    }
    template <class Group, unsigned int Length>
    __device__ bool end(const Group &group, const char (&name)[Length], unsigned int level = GPUNET_INFO) {
        return mark<1>(group, GPUNET_RECORD_END, name, level, 0);
    }
    template <class Group, unsigned int Length>
    __device__ bool count(const Group &group, const char (&name)[Length], long long value, unsigned int level = GPUNET_INFO) {
        return mark<3>(group, GPUNET_RECORD_COUNT, name, level, value);
    }

    /* Returns whether the host wants lines of that level. */
    __device__ bool prints(unsigned int level) const { return level <= raw_.records.level; }

    /* gprintf calls it. */
    template <class Types, class Group, class... Values>
    __device__ bool print(const Group &group, const gpunet_format &format, const char *text, Values... values) {
        if (raw_.records.memory == 0) return false;
        const bool is_limited = format.interval_ns != 0;
        const bool leads = group.thread_rank() == 0;
        const int number = gpunet_records_number(&raw_.records, &format, text, leads);
        constexpr unsigned int most = Types::words + 1;
        if (number < 0 || 4 * (Types::words + is_limited) > gpunet_records_payload(&raw_.records)) {
            if (leads) gpunet_records_lose(&raw_.records, 1);
            return false;
        }
        const unsigned int kind = 0x8000u | static_cast<unsigned int>(number);
        unsigned int words[most + 1] = {};
        if (!is_limited) {
            Types::put(words, values...);
            return put<Types::words>(group, kind, words);
        }
        const auto left_out = detail::ask<unsigned int>(group, [&](unsigned int *to) {
            return gpunet_records_may_print(&raw_.records, static_cast<unsigned int>(number), format.interval_ns, to);
        });
        if (left_out.code <= 0) return false;
        words[0] = left_out.value;
        Types::put(words + 1, values...);
        return put<most>(group, kind, words);
    }

    /* Gives the ring back, for another group. */
    template <class Group> __device__ void close(const Group &group) {
        if (raw_.records.memory == 0) return;
        group.sync();
        if (group.thread_rank() == 0) gpunet_recorder_close(&raw_);
        raw_ = {};
        raw_.ring = GPUNET_NO_RING;
    }

private:
    template <class Group> __device__ static unsigned int lanes(const Group &group) { return group.size() < 32 ? group.size() : 32; }

    template <unsigned int Count, class Group, unsigned int Length>
    __device__ bool mark(const Group &group, unsigned int kind, const char (&name)[Length], unsigned int level, long long value) {
        static_assert(Length <= GPUNET_PRINT_TEXT + 1, "a name has at most 248 bytes");
        if (level > GPUNET_RECORDS_LEVEL || raw_.records.memory == 0 || !prints(level)) return false;
        const gpunet_format format = detail::format_of<detail::arguments<>>(level, 0, name);
        const bool leads = group.thread_rank() == 0;
        const int number = gpunet_records_number(&raw_.records, &format, name, leads);
        if (number < 0) {
            if (leads) gpunet_records_lose(&raw_.records, 1);
            return false;
        }
        const auto bits = static_cast<unsigned long long>(value);
        const unsigned int words[3] = {
            static_cast<unsigned int>(number), static_cast<unsigned int>(bits), static_cast<unsigned int>(bits >> 32)};
        return put<Count>(group, kind, words);
    }

    template <unsigned int Count, class Group> __device__ bool put(const Group &group, unsigned int kind, const unsigned int *words) {
        if (!has_room(group, 1)) return false;
        if (group.thread_rank() < 32) gpunet_records_put(&raw_, group.thread_rank(), lanes(group), kind, words, Count);
        raw_.next++;
        return true;
    }

    /* Returns whether there is room for `count` records: at once, unless the rings are such that records wait. */
    template <class Group> __device__ bool has_room(const Group &group, unsigned int count) {
        if (raw_.records.memory == 0) return false;
        if (raw_.ring == GPUNET_NO_RING) {
            if (group.thread_rank() == 0) gpunet_records_lose(&raw_.records, count);
            return false;
        }
        if (raw_.end == ~0ull || raw_.next + count <= raw_.end) return true;
        const auto room = detail::ask<unsigned long long>(group, [&](unsigned long long *to) {
            *to = gpunet_records_room(&raw_, raw_.next + count);
            return 0;
        });
        if (room.value == 0) {
            raw_.refused += count;
            if (group.thread_rank() == 0) gpunet_records_store(gpunet_records_line(&raw_.records, raw_.ring) + 8, raw_.refused);
            return false;
        }
        raw_.end = room.value;
        return true;
    }

    gpunet_recorder raw_ = {{0, 0, 0, 1, 6, 6, 0, 0, 0}, 0, 0, ~0ull, 0, GPUNET_NO_RING, 0, ~0u, 0};
};

} // namespace gpunet

/* Prints a line: `gprintf(recorder, group, "step %u took %.1f us", step, us)`. The text and its arguments are checked when it is
 * compiled: conversions are d i u x X o c of integers, f F e E g G of floats, p of pointers. There are at most 8 arguments, and the text
 * has at most 248 bytes. The text is sent once, when a block prints it first; after that its number and the arguments travel.
 *
 * gprintf_at prints with another level than GPUNET_INFO, gprintf_limit at most `per_second` lines of that text a second: the next one
 * says how many were left out. Arguments of lines that are not printed are not evaluated. */
#define gprintf(recorder, group, ...) GPUNET_RECORDS_GPRINTF(recorder, group, GPUNET_INFO, 0, __VA_ARGS__)
#define gprintf_at(recorder, group, level, ...) GPUNET_RECORDS_GPRINTF(recorder, group, level, 0, __VA_ARGS__)
#define gprintf_limit(recorder, group, level, per_second, ...) GPUNET_RECORDS_GPRINTF(recorder, group, level, per_second, __VA_ARGS__)

#define GPUNET_RECORDS_FIRST(...) GPUNET_RECORDS_FIRST_(__VA_ARGS__, 0)
#define GPUNET_RECORDS_FIRST_(first, ...) first
#define GPUNET_RECORDS_GPRINTF(recorder, group, level, per_second, ...)                                                       \
    do {                                                                                                                      \
        if constexpr ((level) <= GPUNET_RECORDS_LEVEL) {                                                                      \
            using gpunet_types_ = decltype(::gpunet::detail::types_of(__VA_ARGS__));                                          \
            static_assert(gpunet_types_::count <= GPUNET_PRINT_ARGUMENTS, "a line has at most 8 arguments");                  \
            static_assert(sizeof(GPUNET_RECORDS_FIRST(__VA_ARGS__)) <= GPUNET_PRINT_TEXT + 1, "a text has at most 248 bytes"); \
            static_assert(                                                                                                    \
                ::gpunet::detail::suits(GPUNET_RECORDS_FIRST(__VA_ARGS__), gpunet_types_::types(), gpunet_types_::count),     \
                "gprintf: the placeholders do not suit the arguments");                                                       \
            constexpr gpunet_format gpunet_format_ =                                                                          \
                ::gpunet::detail::format_of<gpunet_types_>(level, per_second, GPUNET_RECORDS_FIRST(__VA_ARGS__));             \
            if ((recorder).prints(level)) (void)(recorder).print<gpunet_types_>(group, gpunet_format_, __VA_ARGS__);          \
        }                                                                                                                     \
    } while (0)

#endif
