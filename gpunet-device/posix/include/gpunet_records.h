/* gpunet: what kernels record and print while they run, for C11, C++17 and CUDA C++ (also NVRTC). docs/telemetry.md leads through it.
 *
 * A kernel writes into rings in pinned host memory. The host reads them without the kernel's help, while the kernel runs and after it
 * has hung or was killed. Nothing of gpunet's PTX is linked for it. The rings are a parameter of the kernel (gpunet_records_t).
 *
 * The functions of this file are for one thread: a kernel in C on the CPU, or one thread of a GPU. Blocks and warps write by
 * gpunet_records.cuh, which has `gprintf` for C++.
 *
 *     void work(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
 *         struct gpunet_recorder recorder = gpunet_recorder_open(net, *(const gpunet_records_t *)argument, block);
 *         unsigned int words[] = {1, 2, 3};
 *         gprintf(&recorder, "block %u of %u has started", block, blocks);
 *         gpunet_record(&recorder, 1, words, 3);
 *         gpunet_recorder_close(&recorder);
 *     }
 *
 * On the CPU the program links with libgpunet, for the clock. */
#ifndef GPUNET_RECORDS_H
#define GPUNET_RECORDS_H

#include "gpunet_types.h"

#ifndef __CUDACC__
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
/* As gpunet_host.h declares them, which kernels do not need. */
#ifdef __cplusplus
extern "C" {
#endif
uint64_t gpunet_host_now_ns(void);
int gpunet_host_take_turns(void);
#ifdef __cplusplus
} /* extern "C" */
#endif
#define GPUNET_RECORDS_CALL static inline
#else
#define GPUNET_RECORDS_CALL static __device__ __forceinline__
#endif

/* Words of four bytes of a record of gpunet_record, and arguments of a line, at most. */
#define GPUNET_RECORD_WORDS 27
#define GPUNET_PRINT_ARGUMENTS 8
/* The longest text of a format, in bytes. */
#define GPUNET_PRINT_TEXT 248

/* What a thread, warp or block writes by. It belongs to those that have opened it. */
struct gpunet_recorder {
    gpunet_records_t records;
    gpunet_net_t net;           /* its cancel ends waits for room; 0: a record does not wait */
    unsigned long long next;    /* the number of the next record */
    unsigned long long end;     /* the first number for which no room was seen; all ones: it does not ask */
    unsigned long long refused; /* records for which there was no room in time */
    unsigned int ring;          /* GPUNET_NO_RING: all rings were taken, and records are counted as lost */
    unsigned int block;
    unsigned int place; /* bits 31-24 lane, 23-16 warp, 15-0 multiprocessor; all ones: none */
    unsigned int reserved;
};
#define GPUNET_NO_RING 0xffffffffu

/* The rest of this part is the format of the rings: docs/telemetry.md. */
#define GPUNET_RECORDS_HEAD 5u                    /* words of a record before its payload */
#define GPUNET_RECORDS_TAKEN 0x8000000000000000ull /* of a ring's word: a recorder has it */
#define GPUNET_RECORDS_OVERWRITE 0xffffffffffffffffull
#define GPUNET_RECORDS_NO_WAIT 0x4000000000000000ull
#define GPUNET_RECORDS_CANCEL 1408u /* where the launches' cancel words are in the shared region */

/* A word that others access, too. */
GPUNET_RECORDS_CALL unsigned long long gpunet_records_load(unsigned long long at) {
#ifdef __CUDA_ARCH__
    unsigned long long value;
    asm volatile("ld.relaxed.sys.b64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
#elif !defined(__CUDACC__)
    return __atomic_load_n((unsigned long long *)at, __ATOMIC_RELAXED);
#else
    return at;
#endif
}
GPUNET_RECORDS_CALL void gpunet_records_store(unsigned long long at, unsigned long long value) {
#ifdef __CUDA_ARCH__
    asm volatile("st.relaxed.sys.b64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
#elif !defined(__CUDACC__)
    __atomic_store_n((unsigned long long *)at, value, __ATOMIC_RELAXED);
#else
    (void)at, (void)value;
#endif
}
/* Two units of a record, each at once: the tag comes with its bytes, and nothing else is ordered. */
GPUNET_RECORDS_CALL void gpunet_records_store_units(unsigned long long at, unsigned long long first, unsigned long long second) {
#ifdef __CUDA_ARCH__
    asm volatile("st.relaxed.sys.v2.b64 [%0], {%1, %2};" ::"l"(at), "l"(first), "l"(second) : "memory");
#else
    gpunet_records_store(at, first);
    gpunet_records_store(at + 8, second);
#endif
}
/* Replaces `from` by `to`; returns what was there. Acquires what the ring's last recorder has released. */
GPUNET_RECORDS_CALL unsigned long long gpunet_records_swap(unsigned long long at, unsigned long long from, unsigned long long to) {
#ifdef __CUDA_ARCH__
    unsigned long long found;
    asm volatile("atom.acquire.gpu.cas.b64 %0, [%1], %2, %3;" : "=l"(found) : "l"(at), "l"(from), "l"(to) : "memory");
    return found;
#elif !defined(__CUDACC__)
    unsigned long long found = from;
    __atomic_compare_exchange_n((unsigned long long *)at, &found, to, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
    return found;
#else
    return at + from + to;
#endif
}
/* Gives a ring back: pairs with the acquire of gpunet_records_swap by its next recorder. */
GPUNET_RECORDS_CALL void gpunet_records_release(unsigned long long at, unsigned long long value) {
#ifdef __CUDA_ARCH__
    asm volatile("st.release.gpu.b64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
#elif !defined(__CUDACC__)
    __atomic_store_n((unsigned long long *)at, value, __ATOMIC_RELEASE);
#else
    (void)at, (void)value;
#endif
}
/* Adds to a count; orders nothing. Only this device writes it. */
GPUNET_RECORDS_CALL void gpunet_records_add(unsigned long long at, unsigned long long more) {
#ifdef __CUDA_ARCH__
    asm volatile("red.relaxed.sys.add.u64 [%0], %1;" ::"l"(at), "l"(more) : "memory");
#elif !defined(__CUDACC__)
    __atomic_fetch_add((unsigned long long *)at, more, __ATOMIC_RELAXED);
#else
    (void)at, (void)more;
#endif
}
GPUNET_RECORDS_CALL unsigned long long gpunet_records_take_count(unsigned long long at) {
#ifdef __CUDA_ARCH__
    unsigned long long found;
    asm volatile("atom.relaxed.gpu.exch.b64 %0, [%1], %2;" : "=l"(found) : "l"(at), "l"(0ull) : "memory");
    return found;
#elif !defined(__CUDACC__)
    return __atomic_exchange_n((unsigned long long *)at, 0ull, __ATOMIC_RELAXED);
#else
    return at;
#endif
}
/* The device's clock in nanoseconds. */
GPUNET_RECORDS_CALL unsigned long long gpunet_records_now(void) {
#ifdef __CUDA_ARCH__
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#elif !defined(__CUDACC__)
    return gpunet_host_now_ns();
#else
    return 0;
#endif
}
/* Waits a little: for a thread that waits for the host. */
GPUNET_RECORDS_CALL void gpunet_records_pause(void) {
#ifdef __CUDA_ARCH__
    __nanosleep(100);
#elif !defined(__CUDACC__)
    if (!gpunet_host_take_turns()) (void)sched_yield();
#endif
}

/* Where things lie. */
GPUNET_RECORDS_CALL unsigned long long gpunet_records_line(const gpunet_records_t *records, unsigned int ring) {
    return records->memory + 64 + 64ull * ring;
}
GPUNET_RECORDS_CALL unsigned long long gpunet_records_text(const gpunet_records_t *records, unsigned int format) {
    return records->memory + 64 + 64ull * records->rings + 512ull * format;
}
GPUNET_RECORDS_CALL unsigned long long gpunet_records_place(const gpunet_records_t *records, unsigned int ring, unsigned long long number) {
    const unsigned long long heads = (64 + 64ull * records->rings + 512ull * (records->formats + records->texts) + 4095) & ~4095ull;
    const unsigned long long at = number & ((1ull << records->records_log2) - 1);
    return records->memory + heads + ((unsigned long long)ring << (records->records_log2 + records->bytes_log2)) + (at << records->bytes_log2);
}
GPUNET_RECORDS_CALL unsigned long long gpunet_records_unit(unsigned long long tag, unsigned int word) { return tag << 32 | word; }
GPUNET_RECORDS_CALL unsigned long long gpunet_records_tag(const gpunet_records_t *records, unsigned long long number) {
    return ((number >> records->records_log2) + 1) & 0xffffffffull;
}
/* The longest payload of a record, in bytes. */
GPUNET_RECORDS_CALL unsigned int gpunet_records_payload(const gpunet_records_t *records) {
    return (1u << (records->bytes_log2 - 1)) - 4 * GPUNET_RECORDS_HEAD;
}

/* Takes a ring that no recorder has: that of the group if it is free. By one thread. Stores the number of its next record. */
GPUNET_RECORDS_CALL unsigned int gpunet_records_take(const gpunet_records_t *records, unsigned int group, unsigned long long *next) {
    unsigned int ring = group % records->rings;
    for (unsigned int tried = 0; tried < records->rings; tried++) {
        const unsigned long long at = records->device + 8ull * ring, found = gpunet_records_load(at);
        if (!(found & GPUNET_RECORDS_TAKEN) && gpunet_records_swap(at, found, found | GPUNET_RECORDS_TAKEN) == found) {
            *next = found;
            return ring;
        }
        ring = ring + 1 == records->rings ? 0 : ring + 1;
    }
    *next = 0;
    return GPUNET_NO_RING;
}

/* Returns whether the launch was cancelled. */
GPUNET_RECORDS_CALL int gpunet_records_is_cancelled(gpunet_net_t net) {
    /* The context: the launch's number is its third word, the shared region's address its fifth pair of words. */
    const unsigned int *context = (const unsigned int *)net;
    const unsigned long long shared = *(const unsigned long long *)(net + 32);
    return gpunet_records_load(shared + GPUNET_RECORDS_CANCEL + 8ull * context[2]) != 0;
}

/* Waits for room for the records before `end`, as the rings' settings say. Returns up to where there is room; 0: none. By one thread. */
GPUNET_RECORDS_CALL unsigned long long gpunet_records_room(const struct gpunet_recorder *recorder, unsigned long long end) {
    const gpunet_records_t *records = &recorder->records;
    const unsigned long long line = gpunet_records_line(records, recorder->ring), wait = records->wait;
    const unsigned long long ring = 1ull << records->records_log2;
    unsigned long long began = 0;
    for (;;) {
        const unsigned long long read = gpunet_records_load(line), room = read > ~0ull - ring ? ~0ull : read + ring;
        if (room >= end) return room;
        if (wait == GPUNET_RECORDS_NO_WAIT || recorder->net == 0 || gpunet_records_is_cancelled(recorder->net)) return 0;
        const unsigned long long now = gpunet_records_now();
        if (began == 0) began = now;
        if (wait != 0 && now - began >= wait) return 0;
        gpunet_records_pause();
    }
}

/* Counts records that are lost because there is no ring for them, or no number for their format. */
GPUNET_RECORDS_CALL void gpunet_records_lose(const gpunet_records_t *records, unsigned long long count) {
    gpunet_records_add(records->memory, count);
}

/* Word `at` of a record; a constant `at` where this is inlined into a loop that is unrolled. */
GPUNET_RECORDS_CALL unsigned int gpunet_records_word(
    const struct gpunet_recorder *recorder, unsigned int kind, unsigned long long now, const unsigned int *words, unsigned int count,
    unsigned int at) {
    return at == 0   ? (kind & 0xffff) | count << 18
           : at == 1 ? recorder->block
           : at == 2 ? (unsigned int)now
           : at == 3 ? (unsigned int)(now >> 32)
           : at == 4 ? recorder->place
           : at < GPUNET_RECORDS_HEAD + count ? words[at - GPUNET_RECORDS_HEAD]
                                              : 0;
}

/* Stores a record for which there is room: thread `rank` of `lanes` that store it together. With 16 lanes or more each stores one pair
 * of units, all at the same time. */
GPUNET_RECORDS_CALL void gpunet_records_put(
    const struct gpunet_recorder *recorder, unsigned int rank, unsigned int lanes, unsigned int kind, const unsigned int *words,
    unsigned int count) {
    const unsigned long long place = gpunet_records_place(&recorder->records, recorder->ring, recorder->next);
    const unsigned long long tag = gpunet_records_tag(&recorder->records, recorder->next), now = gpunet_records_now();
    const unsigned int pairs = (GPUNET_RECORDS_HEAD + count + 1) / 2;
    if (lanes >= 16) {
        unsigned int first = 0, second = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (unsigned int pair = 0; pair < pairs; pair++) {
            if (rank == pair) {
                first = gpunet_records_word(recorder, kind, now, words, count, 2 * pair);
                second = gpunet_records_word(recorder, kind, now, words, count, 2 * pair + 1);
            }
        }
        if (rank < pairs) gpunet_records_store_units(place + 16 * rank, gpunet_records_unit(tag, first), gpunet_records_unit(tag, second));
    } else if (rank == 0) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (unsigned int pair = 0; pair < pairs; pair++) {
            gpunet_records_store_units(
                place + 16 * pair, gpunet_records_unit(tag, gpunet_records_word(recorder, kind, now, words, count, 2 * pair)),
                gpunet_records_unit(tag, gpunet_records_word(recorder, kind, now, words, count, 2 * pair + 1)));
        }
    }
}

/* Four bytes of `data` as a number; zeros behind its end. */
GPUNET_RECORDS_CALL unsigned int gpunet_records_bytes(const void *data, unsigned int len, unsigned int word) {
    const unsigned char *bytes = (const unsigned char *)data;
    unsigned int value = 0;
    for (unsigned int at = 0; at < 4 && 4 * word + at < len; at++) value |= (unsigned int)bytes[4 * word + at] << (8 * at);
    return value;
}

/* The same as gpunet_records_put, for bytes in memory. */
GPUNET_RECORDS_CALL void gpunet_records_put_bytes(
    const struct gpunet_recorder *recorder, unsigned int rank, unsigned int lanes, unsigned int kind, const void *data, unsigned int len) {
    const unsigned long long place = gpunet_records_place(&recorder->records, recorder->ring, recorder->next);
    const unsigned long long tag = gpunet_records_tag(&recorder->records, recorder->next), now = gpunet_records_now();
    const unsigned int units = GPUNET_RECORDS_HEAD + (len + 3) / 4;
    for (unsigned int pair = rank; 2 * pair < units; pair += lanes) {
        unsigned int both[2];
        for (unsigned int half = 0; half < 2; half++) {
            const unsigned int at = 2 * pair + half;
            both[half] = at == 0                     ? (kind & 0xffff) | len << 16
                         : at < GPUNET_RECORDS_HEAD ? gpunet_records_word(recorder, kind, now, 0, 0, at)
                                                    : gpunet_records_bytes(data, len, at - GPUNET_RECORDS_HEAD);
        }
        gpunet_records_store_units(place + 16 * pair, gpunet_records_unit(tag, both[0]), gpunet_records_unit(tag, both[1]));
    }
}

/* What a line consists of beside its arguments. */
struct gpunet_format {
    unsigned long long hash; /* of the text and all that follows */
    unsigned int head;       /* bits 0-15 length, 16-23 level, 24 a limit, 25: as printf has it */
    unsigned int types;      /* four bits for each argument */
    unsigned long long interval_ns;
};
#define GPUNET_RECORDS_PRINTF (1u << 25)
#define GPUNET_RECORDS_LIMITED (1u << 24)

/* The number of a format whose text is sent once; -1: all numbers are in use. All threads of a group get the same number: a number is
 * never given up, and each of them looks at the same numbers in the same order. `writes`: this thread sends the text if nobody has. */
GPUNET_RECORDS_CALL int gpunet_records_number(
    const gpunet_records_t *records, const struct gpunet_format *format, const char *text, int writes) {
    if (records->texts == 0) return -1;
    const unsigned long long claimed = (format->hash & ~3ull) | 1, sent = (format->hash & ~3ull) | 2;
    const unsigned long long names = records->device + 8ull * records->rings + 16ull * (records->formats + records->texts);
    unsigned int at = (unsigned int)(format->hash >> 32) % records->texts;
    for (unsigned int tried = 0; tried < records->texts; tried++) {
        unsigned long long found = gpunet_records_load(names + 8ull * at);
        if (found == 0) {
            found = gpunet_records_swap(names + 8ull * at, 0, claimed);
            if (found == 0) found = claimed;
        }
        if (found == claimed && writes) {
            /* Whoever comes before the text is sent sends it, too: nobody waits for another. */
            const unsigned long long place = gpunet_records_text(records, records->formats + at), tag = (format->hash >> 32 & 0xffffffff) | 1;
            const unsigned int len = format->head & 0xffff;
            for (unsigned int pair = 1; 8 * (pair - 1) < len; pair++) {
                gpunet_records_store_units(
                    place + 16 * pair, gpunet_records_unit(tag, gpunet_records_bytes(text, len, 2 * pair - 2)),
                    gpunet_records_unit(tag, gpunet_records_bytes(text, len, 2 * pair - 1)));
            }
            gpunet_records_store_units(place, gpunet_records_unit(tag, format->head), gpunet_records_unit(tag, format->types));
            gpunet_records_store(names + 8ull * at, sent);
        }
        if (found == claimed || found == sent) return (int)(records->formats + at);
        at = at + 1 == records->texts ? 0 : at + 1;
    }
    return -1;
}

/* Returns whether a format with a limit may print now, and stores how many lines were left out before. By one thread. */
GPUNET_RECORDS_CALL int gpunet_records_may_print(
    const gpunet_records_t *records, unsigned int number, unsigned long long interval_ns, unsigned int *left_out) {
    const unsigned long long at = records->device + 8ull * records->rings + 16ull * number;
    const unsigned long long now = gpunet_records_now(), from = gpunet_records_load(at);
    if (now < from || gpunet_records_swap(at, from, now + interval_ns) != from) {
        gpunet_records_add(at + 8, 1);
        return 0;
    }
    const unsigned long long count = gpunet_records_take_count(at + 8);
    *left_out = count > 0xffffffffull ? 0xffffffffu : (unsigned int)count;
    return 1;
}

/* Opens a recorder for the calling thread. `group` is a number of its own, as a block's: recorders of different numbers look for a free
 * ring from different places on. Without rings, or with records that are all zeros, what it is told goes nowhere. */
GPUNET_RECORDS_CALL struct gpunet_recorder gpunet_recorder_open(gpunet_net_t net, gpunet_records_t records, unsigned int group) {
    struct gpunet_recorder recorder = {records, net, 0, ~0ull, 0, GPUNET_NO_RING, group, 0xffffffffu, 0};
    if (records.memory == 0) return recorder;
#ifdef __CUDA_ARCH__
    const unsigned int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned int sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    recorder.block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    recorder.place = (thread & 31) << 24 | (thread / 32 & 0xff) << 16 | (sm & 0xffff);
#endif
    recorder.ring = gpunet_records_take(&records, group, &recorder.next);
    if (records.wait != GPUNET_RECORDS_OVERWRITE && recorder.ring != GPUNET_NO_RING) {
        recorder.end = recorder.next;
        recorder.refused = gpunet_records_load(gpunet_records_line(&records, recorder.ring) + 8);
    }
    return recorder;
}

/* Gives the ring back, for another recorder. */
GPUNET_RECORDS_CALL void gpunet_recorder_close(struct gpunet_recorder *recorder) {
    if (recorder->ring != GPUNET_NO_RING) gpunet_records_release(recorder->records.device + 8ull * recorder->ring, recorder->next);
    recorder->ring = GPUNET_NO_RING;
    recorder->records.memory = 0;
}

/* Returns whether there is room for a record. Counts it as lost if not. */
GPUNET_RECORDS_CALL bool gpunet_records_has_room(struct gpunet_recorder *recorder) {
    if (recorder->records.memory == 0) return false;
    if (recorder->ring == GPUNET_NO_RING) return gpunet_records_lose(&recorder->records, 1), false;
    if (recorder->next < recorder->end) return true;
    const unsigned long long end = gpunet_records_room(recorder, recorder->next + 1);
    if (end == 0) {
        recorder->refused++;
        gpunet_records_store(gpunet_records_line(&recorder->records, recorder->ring) + 8, recorder->refused);
        return false;
    }
    recorder->end = end;
    return true;
}

/* Writes a record of `count` words, at most GPUNET_RECORD_WORDS. `kind` is a number from 1 to 32751 that kernel and host agree on.
 * Returns whether it was written: a payload that is longer than the rings' is not; nor is a record for which there is no room in time,
 * which is counted. */
GPUNET_RECORDS_CALL bool gpunet_record(struct gpunet_recorder *recorder, unsigned int kind, const unsigned int *words, unsigned int count) {
    if (kind - 1 >= GPUNET_RECORD_BEGIN - 1 || count > GPUNET_RECORD_WORDS || 4 * count > gpunet_records_payload(&recorder->records)) return false;
    if (!gpunet_records_has_room(recorder)) return false;
    gpunet_records_put(recorder, 0, 1, kind, words, count);
    recorder->next++;
    return true;
}

/* Writes a record of `len` bytes. As gpunet_record; the longest payload is the rings'. */
GPUNET_RECORDS_CALL bool gpunet_record_bytes(struct gpunet_recorder *recorder, unsigned int kind, const void *data, unsigned long long len) {
    if (kind - 1 >= GPUNET_RECORD_BEGIN - 1 || len > gpunet_records_payload(&recorder->records)) return false;
    if (!gpunet_records_has_room(recorder)) return false;
    gpunet_records_put_bytes(recorder, 0, 1, kind, data, (unsigned int)len);
    recorder->next++;
    return true;
}

/* Lines of a level that is less important are not compiled. */
#ifndef GPUNET_RECORDS_LEVEL
#define GPUNET_RECORDS_LEVEL GPUNET_TRACE
#endif

#ifndef __cplusplus
/* Note that a span begins, that it ends, and which value a counter has now: `gpunet_record_begin(&recorder, "step")`. The name is sent
 * once, as the text of a line without arguments is, and has at most 248 bytes; a span ends by the name by which it has begun. Spans of a
 * recorder lie inside each other: the one that has begun last ends first. They have the level GPUNET_INFO. Each returns whether it was
 * noted. */
static inline bool gpunet_records_mark(
    struct gpunet_recorder *recorder, unsigned int kind, const char *name, unsigned long long value, unsigned int count) {
    const size_t len = strlen(name);
    struct gpunet_format format = {0xcbf29ce484222325ull, 0, 0, 0};
    if (recorder->records.memory == 0 || GPUNET_INFO > GPUNET_RECORDS_LEVEL || GPUNET_INFO > recorder->records.level) return false;
    format.head = (unsigned int)len | GPUNET_INFO << 16 | GPUNET_RECORDS_PRINTF;
    for (size_t at = 0; at < len; at++) format.hash = (format.hash ^ (unsigned char)name[at]) * 0x100000001b3ull;
    format.hash = (format.hash ^ format.head) * 0x100000001b3ull;
    format.hash = (format.hash ^ format.types) * 0x100000001b3ull;
    const int number = len > GPUNET_PRINT_TEXT ? -1 : gpunet_records_number(&recorder->records, &format, name, 1);
    if (number < 0) return gpunet_records_lose(&recorder->records, 1), false;
    const unsigned int words[3] = {(unsigned int)number, (unsigned int)value, (unsigned int)(value >> 32)};
    if (!gpunet_records_has_room(recorder)) return false;
    gpunet_records_put(recorder, 0, 1, kind, words, count);
    recorder->next++;
    return true;
}
static inline bool gpunet_record_begin(struct gpunet_recorder *recorder, const char *name) {
    return gpunet_records_mark(recorder, GPUNET_RECORD_BEGIN, name, 0, 1);
}
static inline bool gpunet_record_end(struct gpunet_recorder *recorder, const char *name) {
    return gpunet_records_mark(recorder, GPUNET_RECORD_END, name, 0, 1);
}
static inline bool gpunet_record_count(struct gpunet_recorder *recorder, const char *name, long long value) {
    return gpunet_records_mark(recorder, GPUNET_RECORD_COUNT, name, (unsigned long long)value, 3);
}

/* `gprintf(&recorder, "step %u took %.1f us", step, us)` prints a line with up to 8 arguments: numbers, bool and pointers. `%s` and
 * `*` cannot be printed. The text is sent once, and its number and the arguments travel. gprintf_at prints with another level than
 * GPUNET_INFO; lines below GPUNET_RECORDS_LEVEL are not compiled. gprintf_limit prints at most `per_second` lines of the text a
 * second, and the next one says how many were left out. Each returns whether the line was written. */
#define gprintf(recorder, ...) gprintf_at(recorder, GPUNET_INFO, __VA_ARGS__)
#define gprintf_at(recorder, level, ...) GPUNET_RECORDS_GPRINTF(recorder, level, 0, __VA_ARGS__)
#define gprintf_limit(recorder, level, per_second, ...) GPUNET_RECORDS_GPRINTF(recorder, level, 1000000000ull / (per_second), __VA_ARGS__)

struct gpunet_records_argument {
    unsigned long long bits;
    unsigned int type; /* 1 u32, 2 u64, 3 i32, 4 i64, 5 f32, 6 f64, 7 bool */
};
static inline struct gpunet_records_argument gpunet_records_u32(unsigned int value) { return (struct gpunet_records_argument){value, 1}; }
static inline struct gpunet_records_argument gpunet_records_u64(unsigned long long value) { return (struct gpunet_records_argument){value, 2}; }
static inline struct gpunet_records_argument gpunet_records_i32(int value) { return (struct gpunet_records_argument){(unsigned int)value, 3}; }
static inline struct gpunet_records_argument gpunet_records_i64(long long value) {
    return (struct gpunet_records_argument){(unsigned long long)value, 4};
}
static inline struct gpunet_records_argument gpunet_records_bool(bool value) { return (struct gpunet_records_argument){value, 7}; }
static inline struct gpunet_records_argument gpunet_records_pointer(const void *value) {
    return (struct gpunet_records_argument){(unsigned long long)value, 2};
}
static inline struct gpunet_records_argument gpunet_records_f32(float value) {
    unsigned int bits;
    memcpy(&bits, &value, sizeof bits);
    return (struct gpunet_records_argument){bits, 5};
}
static inline struct gpunet_records_argument gpunet_records_f64(double value) {
    unsigned long long bits;
    memcpy(&bits, &value, sizeof bits);
    return (struct gpunet_records_argument){bits, 6};
}
#define GPUNET_RECORDS_ARGUMENT(value)                                                                             \
    _Generic((value), bool: gpunet_records_bool, float: gpunet_records_f32, double: gpunet_records_f64,            \
        char: gpunet_records_i32, signed char: gpunet_records_i32, short: gpunet_records_i32,                      \
        int: gpunet_records_i32, long: gpunet_records_i64, long long: gpunet_records_i64,                          \
        unsigned char: gpunet_records_u32, unsigned short: gpunet_records_u32, unsigned int: gpunet_records_u32,   \
        unsigned long: gpunet_records_u64, unsigned long long: gpunet_records_u64, default: gpunet_records_pointer)(value)

static inline bool gpunet_records_print(
    struct gpunet_recorder *recorder, unsigned int level, unsigned long long interval_ns, const char *text,
    const struct gpunet_records_argument *arguments, unsigned int count) {
    const size_t len = strlen(text);
    struct gpunet_format format = {0xcbf29ce484222325ull, 0, 0, interval_ns};
    unsigned int words[GPUNET_RECORD_WORDS], used = interval_ns != 0, left_out = 0;
    if (recorder->records.memory == 0) return false;
    for (unsigned int at = 0; at < count; at++) {
        format.types |= arguments[at].type << (4 * at);
        words[used++] = (unsigned int)arguments[at].bits;
        if (arguments[at].type == 2 || arguments[at].type == 4 || arguments[at].type == 6) words[used++] = (unsigned int)(arguments[at].bits >> 32);
    }
    format.head = (unsigned int)len | level << 16 | (interval_ns != 0 ? GPUNET_RECORDS_LIMITED : 0) | GPUNET_RECORDS_PRINTF;
    for (size_t at = 0; at < len; at++) format.hash = (format.hash ^ (unsigned char)text[at]) * 0x100000001b3ull;
    format.hash = (format.hash ^ format.head) * 0x100000001b3ull;
    format.hash = (format.hash ^ format.types) * 0x100000001b3ull;
    const int number = len > GPUNET_PRINT_TEXT ? -1 : gpunet_records_number(&recorder->records, &format, text, 1);
    if (number < 0 || 4 * used > gpunet_records_payload(&recorder->records)) return gpunet_records_lose(&recorder->records, 1), false;
    if (interval_ns != 0) {
        if (!gpunet_records_may_print(&recorder->records, (unsigned int)number, interval_ns, &left_out)) return false;
        words[0] = left_out;
    }
    if (!gpunet_records_has_room(recorder)) return false;
    gpunet_records_put(recorder, 0, 1, 0x8000u | (unsigned int)number, words, used);
    recorder->next++;
    return true;
}

/* The result of a line, which nobody need look at. */
static inline bool gpunet_records_said(bool said) { return said; }
/* The compiler checks the arguments by this. */
__attribute__((format(printf, 1, 2))) static inline void gpunet_records_check(const char *text, ...) { (void)text; }

#define GPUNET_RECORDS_GPRINTF(recorder, importance, interval, ...)                                                         \
    (0 ? gpunet_records_check(__VA_ARGS__) : (void)0, gpunet_records_said(                                                  \
     (importance) <= GPUNET_RECORDS_LEVEL && (unsigned int)(importance) <= (recorder)->records.level &&                     \
         GPUNET_RECORDS_PICK(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0)(recorder, importance, interval, __VA_ARGS__)))
#define GPUNET_RECORDS_PICK(text, a, b, c, d, e, f, g, h, count, ...) GPUNET_RECORDS_PRINT##count
#define GPUNET_RECORDS_A GPUNET_RECORDS_ARGUMENT
#define GPUNET_RECORDS_PRINT_(recorder, level, interval, text, ...)                                                         \
    gpunet_records_print(                                                                                                   \
        recorder, level, interval, text, (const struct gpunet_records_argument[]){__VA_ARGS__},                             \
        (unsigned int)(sizeof((const struct gpunet_records_argument[]){__VA_ARGS__}) / sizeof(struct gpunet_records_argument)))
#define GPUNET_RECORDS_PRINT0(r, l, i, t) gpunet_records_print(r, l, i, t, NULL, 0)
#define GPUNET_RECORDS_PRINT1(r, l, i, t, a) GPUNET_RECORDS_PRINT_(r, l, i, t, GPUNET_RECORDS_A(a))
#define GPUNET_RECORDS_PRINT2(r, l, i, t, a, b) GPUNET_RECORDS_PRINT_(r, l, i, t, GPUNET_RECORDS_A(a), GPUNET_RECORDS_A(b))
#define GPUNET_RECORDS_PRINT3(r, l, i, t, a, b, c)                                                                          \
    GPUNET_RECORDS_PRINT_(r, l, i, t, GPUNET_RECORDS_A(a), GPUNET_RECORDS_A(b), GPUNET_RECORDS_A(c))
#define GPUNET_RECORDS_PRINT4(r, l, i, t, a, b, c, d)                                                                       \
    GPUNET_RECORDS_PRINT_(r, l, i, t, GPUNET_RECORDS_A(a), GPUNET_RECORDS_A(b), GPUNET_RECORDS_A(c), GPUNET_RECORDS_A(d))
#define GPUNET_RECORDS_PRINT5(r, l, i, t, a, b, c, d, e)                                                                    \
    GPUNET_RECORDS_PRINT_(r, l, i, t, GPUNET_RECORDS_A(a), GPUNET_RECORDS_A(b), GPUNET_RECORDS_A(c), GPUNET_RECORDS_A(d), GPUNET_RECORDS_A(e))
#define GPUNET_RECORDS_PRINT6(r, l, i, t, a, b, c, d, e, f)                                                                 \
    GPUNET_RECORDS_PRINT_(r, l, i, t, GPUNET_RECORDS_A(a), GPUNET_RECORDS_A(b), GPUNET_RECORDS_A(c), GPUNET_RECORDS_A(d), GPUNET_RECORDS_A(e), \
                          GPUNET_RECORDS_A(f))
#define GPUNET_RECORDS_PRINT7(r, l, i, t, a, b, c, d, e, f, g)                                                              \
    GPUNET_RECORDS_PRINT_(r, l, i, t, GPUNET_RECORDS_A(a), GPUNET_RECORDS_A(b), GPUNET_RECORDS_A(c), GPUNET_RECORDS_A(d), GPUNET_RECORDS_A(e), \
                          GPUNET_RECORDS_A(f), GPUNET_RECORDS_A(g))
#define GPUNET_RECORDS_PRINT8(r, l, i, t, a, b, c, d, e, f, g, h)                                                           \
    GPUNET_RECORDS_PRINT_(r, l, i, t, GPUNET_RECORDS_A(a), GPUNET_RECORDS_A(b), GPUNET_RECORDS_A(c), GPUNET_RECORDS_A(d), GPUNET_RECORDS_A(e), \
                          GPUNET_RECORDS_A(f), GPUNET_RECORDS_A(g), GPUNET_RECORDS_A(h))
#endif

#endif
