/* NVSHMEM's host calls: set-up, the symmetric heap, the barrier. */
#ifndef GPUNET_NVSHMEM_HOST_CUH
#define GPUNET_NVSHMEM_HOST_CUH

#include "nvshmem_failure.cuh"
#include "nvshmem_types.cuh"

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <netinet/in.h>

namespace gpunet {
namespace nvshmem {

/* The team of the calls without one, in device memory. */
template <class Team> __global__ void bind(Team team, gpunet_symmetric_t heap) {
    gpunet_team = team;
    gpunet_heap = heap;
}

/* The first failure of a barrier on a stream. It lies in device memory, because no host call waits for it. */
static __device__ int met_badly;

/* For a stream. */
template <class Result> __global__ void meet(Result *) {
    const int failed = gbarrier();
    if (failed != 0 && met_badly == 0) met_badly = failed;
}

/* Members wait for each other for an hour, since NVSHMEM's wait for ever and programs do not look at results. A death or a leave ends
 * the wait at once. */
inline const gpunet_host_team_options *patient() {
    static const gpunet_host_team_options options = {0, 0, 3600000000000};
    return &options;
}

/* This program as a member. From init on it has its rank; it joins when it first needs the others or their memory, since programs
 * choose their GPU after init. */
struct member {
    int rank = -1, size = 0;
    /* The text of a unique id; empty if a launcher says where members meet. */
    char id[128] = "";
    gpunet_host_proxy_t *proxy = nullptr;
    gpunet_host_attachment_t *attachment = nullptr;
    gpunet_host_team_listener_t *listener = nullptr;
    gpunet_host_team_t *team = nullptr;
    gpunet_host_token_t *token = nullptr;
    gpunet_host_symmetric_t *heap = nullptr;
    /* Where this member's device has its own part of the heap. */
    std::uint64_t base = 0;
    std::size_t capacity = 0;
    /* How many of its bytes exist. */
    std::size_t committed = 0;
    /* The allocations: lengths by places. They are equal on all members, because all members make the same calls. */
    std::map<std::size_t, std::size_t> used;
    int inits = 0;
    /* Why it could not join, also in words. */
    int failed = 0;
    char why[256] = "";
};

inline member &self() {
    static member only;
    return only;
}

/* A failure that is not the library's. gpunet_host_last_error has its reason, too. */
inline int failed_for(const char *why, int result) {
    gpunet_host_set_last_error(why);
    return result;
}

/* A result that a kernel has left, if it is a failure. */
inline int of_kernel(int result) { return result < 0 ? failed_for(std::strerror(-result), result) : result; }

/* The result of a call of CUDA: 0, or `result` with CUDA's reason. */
inline int of_cuda(cudaError_t error, int result = -EIO) { return error == cudaSuccess ? 0 : failed_for(cudaGetErrorString(error), result); }

/* Ends the program after a failure of the host's calls, unless it looks at results itself. */
inline int checked(const char *call, int result) {
    if (result < 0 && ENDS_PROGRAM) fail(call, result, self().rank, gpunet_host_last_error());
    return result;
}

/* The heap's length: NVSHMEM_SYMMETRIC_SIZE, a number of bytes with K, M, G or T behind it, or 1 GiB; and room for what allocations are
 * rounded up by. 0 if the variable says something else. */
inline std::size_t heap_capacity() {
    const char *text = std::getenv("NVSHMEM_SYMMETRIC_SIZE");
    double bytes = double(1 << 30);
    if (text != nullptr && *text != 0) {
        char *end = nullptr;
        bytes = std::strtod(text, &end);
        const char *units = "KMGT";
        const char *unit = *end == 0 ? nullptr : std::strchr(units, std::toupper(static_cast<unsigned char>(*end)));
        if (unit != nullptr) bytes *= double(1ull << 10 * (unit - units + 1)), end++;
        if (end == text || *end != 0 || !(bytes >= 1 && bytes < double(1ull << 62))) {
            std::fprintf(stderr, "gpunet_nvshmem: NVSHMEM_SYMMETRIC_SIZE is `%s`, and not a number of bytes with K, M, G or T behind it\n", text);
            return 0;
        }
    }
    const std::size_t granularity = std::size_t(2) << 20, room = std::size_t(1) << 20;
    return (static_cast<std::size_t>(bytes) + room + granularity - 1) / granularity * granularity;
}

/* Waits for this member's kernels; returns 0, -EIO, or the first failure of a barrier on a stream. */
inline int drain() {
    int failed = 0;
    if (const int result = of_cuda(cudaDeviceSynchronize())) return result;
#ifdef __CUDACC__
    if (const int result = of_cuda(cudaMemcpyFromSymbol(&failed, met_badly, sizeof failed))) return result;
#else
    failed = met_badly;
#endif
    return of_kernel(failed);
}

inline int open_device(member &me) {
    if (me.attachment != nullptr) return 0;
    if (me.proxy == nullptr) {
        if (const int opened = gpunet_host_open(nullptr, nullptr, &me.proxy)) return opened;
    }
    int device = 0;
    if (const int failed = of_cuda(cudaGetDevice(&device), -ENODEV)) return failed;
    return gpunet_host_attach_cuda_device(me.proxy, device, &me.attachment);
}

/* Stores team and heap in the module's variables. */
inline int bind_module(member &me) {
    gpunet_team_t team;
    gpunet_symmetric_t heap;
    if (const int failed = gpunet_host_token(me.attachment, &me.token)) return failed;
    if (const int failed = gpunet_host_team_value(me.team, me.token, &team)) return failed;
    if (const int failed = gpunet_host_symmetric_value(me.heap, &heap)) return failed;
#ifndef __CUDACC__
    bind(team, heap);
#else
    void *arguments[] = {&team, &heap};
    const void *kernel = reinterpret_cast<const void *>(&bind<gpunet_team_t>);
    if (const int failed = of_cuda(cudaLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, nullptr))) return failed;
#endif
    return drain();
}

/* Gives everything back, in order; returns the first failure. */
inline int stop(member &me) {
    int first = drain();
    const auto note = [&first](int result) { first = first != 0 ? first : result; };
    if (me.heap != nullptr) note(gpunet_host_symmetric_free(me.heap));
    if (me.team != nullptr) note(gpunet_host_team_leave(me.team));
    if (me.listener != nullptr) note(gpunet_host_team_listener_close(me.listener));
    if (me.token != nullptr) note(gpunet_host_token_finish(me.token, GPUNET_HOST_CLOSE, nullptr));
    if (me.attachment != nullptr) note(gpunet_host_attachment_close(me.attachment, nullptr));
    if (me.proxy != nullptr) note(gpunet_host_proxy_close(me.proxy));
    me = member();
    return first;
}

inline int join(member &me) {
    if (me.id[0] == 0) return gpunet_host_team_launched(me.attachment, patient(), &me.team);
    const auto rank = static_cast<std::uint32_t>(me.rank), size = static_cast<std::uint32_t>(me.size);
    if (rank > 0 || me.listener == nullptr) return gpunet_host_team_join(me.attachment, me.id, rank, size, patient(), &me.team);
    gpunet_host_team_listener_t *listener = me.listener;
    me.listener = nullptr;
    return gpunet_host_team_lead(me.attachment, listener, size, patient(), &me.team);
}

inline int not_begun() { return failed_for("nvshmem_init comes first", -EBADF); }

/* Joins by the current GPU, if this program has not; all members do. */
inline int joined() {
    member &me = self();
    if (me.inits == 0) return not_begun();
    if (me.failed != 0) return failed_for(me.why, me.failed);
    if (me.team != nullptr) return 0;
    me.failed = open_device(me);
    if (me.failed == 0) me.failed = join(me);
    if (me.failed == 0) me.failed = gpunet_host_symmetric_reserve(me.team, me.capacity, &me.heap);
    if (me.failed == 0) me.failed = gpunet_host_symmetric_address(me.heap, static_cast<std::uint32_t>(me.rank), &me.base);
    if (me.failed == 0) me.failed = bind_module(me);
    if (me.failed != 0) std::strncpy(me.why, gpunet_host_last_error(), sizeof me.why - 1);
    return me.failed;
}

/* Returns whether there is only one GPU. Then this program need not wait until it has chosen one. */
inline bool has_no_choice() {
#ifndef __CUDACC__
    return false;
#else
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count == 1;
#endif
}

/* Becomes a member, of that rank. */
inline int start(int rank, int size, const char *id) {
    member &me = self();
    if (me.inits > 0) return me.inits++, 0;
    me.capacity = heap_capacity();
    if (me.capacity == 0) return failed_for("NVSHMEM_SYMMETRIC_SIZE is not a number of bytes", -EINVAL);
    me.rank = rank;
    me.size = size;
    std::strncpy(me.id, id, sizeof me.id - 1);
    me.inits = 1;
    const int failed = has_no_choice() ? joined() : 0;
    if (failed != 0) (void)stop(me);
    return failed;
}

/* The first gap that is long enough; all members find the same one. */
inline void *allocate(std::size_t alignment, std::size_t size) {
    member &me = self();
    if (me.inits == 0 || alignment == 0 || (alignment & (alignment - 1)) != 0 || size == 0) return nullptr;
    if (checked("nvshmem_malloc", joined()) != 0) return nullptr;
    std::size_t at = 0;
    for (const auto &[place, len] : me.used) {
        if (place >= at && place - at >= size) break;
        at = (place + len + alignment - 1) & ~(alignment - 1);
    }
    const bool has_room = at <= me.capacity && me.capacity - at >= size;
    if (has_room && at + size > me.committed) {
        /* In steps, so that few calls have to commit. */
        const std::size_t step = std::size_t(64) << 20, wanted = (at + size + step - 1) / step * step;
        const std::size_t len = wanted < me.capacity ? wanted : me.capacity;
        if (checked("nvshmem_malloc", gpunet_host_symmetric_commit(me.heap, len)) != 0) return nullptr;
        me.committed = len;
    }
    if (has_room) me.used[at] = size;
    /* No member puts into memory that another member still uses for its previous content. */
    if (checked("nvshmem_malloc", gpunet_host_team_barrier(me.team)) != 0 || !has_room) return nullptr;
    return reinterpret_cast<void *>(me.base + at);
}

} // namespace nvshmem
} // namespace gpunet

#define NVSHMEMX_INIT_WITH_UNIQUEID 1u

typedef struct {
    char text[128];
} nvshmemx_uniqueid_t;
#define NVSHMEMX_UNIQUEID_INITIALIZER {}

typedef struct {
    int rank;
    int size;
    nvshmemx_uniqueid_t id;
} nvshmemx_init_attr_t;
#define NVSHMEMX_INIT_ATTR_INITIALIZER {}

/* Takes the rank that a launcher has given this program. */
inline int nvshmem_init() {
    std::uint32_t rank = 0, size = 0;
    int failed = gpunet_host_team_environment(&rank, &size);
    if (failed == 0) failed = ::gpunet::nvshmem::start(static_cast<int>(rank), static_cast<int>(size), "");
    return ::gpunet::nvshmem::checked("nvshmem_init", failed);
}

/* Member 0 makes the id, and its program is the one that joins as rank 0. */
inline int nvshmemx_get_uniqueid(nvshmemx_uniqueid_t *id) {
    ::gpunet::nvshmem::member &me = ::gpunet::nvshmem::self();
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (me.listener == nullptr) {
        if (const int failed = gpunet_host_team_listen(reinterpret_cast<sockaddr *>(&place), sizeof place, &me.listener)) return failed;
    }
    char *text = nullptr;
    if (const int failed = gpunet_host_team_id(me.listener, &text)) return failed;
    std::strncpy(id->text, text, sizeof id->text - 1);
    id->text[sizeof id->text - 1] = 0;
    gpunet_host_free_string(text);
    return 0;
}
inline int nvshmemx_set_attr_uniqueid_args(int rank, int size, const nvshmemx_uniqueid_t *id, nvshmemx_init_attr_t *attr) {
    *attr = {rank, size, *id};
    return 0;
}
inline int nvshmemx_init_attr(unsigned int flags, nvshmemx_init_attr_t *attr) {
    if (flags != NVSHMEMX_INIT_WITH_UNIQUEID || attr == nullptr || attr->rank < 0 || attr->size < 1) {
        return ::gpunet::nvshmem::failed_for("the attributes are not those of a unique id", -EINVAL);
    }
    return ::gpunet::nvshmem::start(attr->rank, attr->size, attr->id.text);
}

/* Leaves the team, with all members, when it has been called as often as init. */
inline int nvshmem_finalize() {
    ::gpunet::nvshmem::member &me = ::gpunet::nvshmem::self();
    if (me.inits == 0) return ::gpunet::nvshmem::not_begun();
    if (me.inits > 1) return --me.inits, 0;
    const int failed = ::gpunet::nvshmem::joined(), stopped = ::gpunet::nvshmem::stop(me);
    return ::gpunet::nvshmem::checked("nvshmem_finalize", failed != 0 ? failed : stopped);
}
inline int nvshmemx_hostlib_finalize() { return nvshmem_finalize(); }

/* Collective, as in NVSHMEM: all members call with the same size, in the same order. */
inline void *nvshmem_align(std::size_t alignment, std::size_t size) { return ::gpunet::nvshmem::allocate(alignment < 512 ? 512 : alignment, size); }
inline void *nvshmem_malloc(std::size_t size) { return ::gpunet::nvshmem::allocate(512, size); }
inline int nvshmem_free(void *memory) {
    ::gpunet::nvshmem::member &me = ::gpunet::nvshmem::self();
    if (memory == nullptr || me.team == nullptr) return 0;
    /* After it, no member's kernel puts into the memory. */
    int failed = ::gpunet::nvshmem::drain();
    if (failed == 0) failed = gpunet_host_team_barrier(me.team);
    if (failed == 0 && me.used.erase(reinterpret_cast<std::uint64_t>(memory) - me.base) != 1) {
        failed = ::gpunet::nvshmem::failed_for("nvshmem_malloc has not returned this pointer", -EINVAL);
    }
    return ::gpunet::nvshmem::checked("nvshmem_free", failed);
}
inline void *nvshmem_calloc(std::size_t count, std::size_t size) {
    ::gpunet::nvshmem::member &me = ::gpunet::nvshmem::self();
    if (size != 0 && count > ~std::size_t(0) / size) return nullptr;
    void *memory = nvshmem_malloc(count * size);
    if (memory == nullptr) return nullptr;
    std::size_t at = reinterpret_cast<std::uint64_t>(memory) - me.base, rest = count * size;
    int failed = 0;
    for (static const char zeros[65536] = {}; failed == 0 && rest > 0;) {
        const std::size_t len = rest < sizeof zeros ? rest : sizeof zeros;
        failed = gpunet_host_symmetric_write(me.heap, at, zeros, len);
        at += len, rest -= len;
    }
    const int met = gpunet_host_team_barrier(me.team);
    return ::gpunet::nvshmem::checked("nvshmem_calloc", failed != 0 ? failed : met) == 0 ? memory : nullptr;
}

namespace gpunet {
namespace nvshmem {

/* All members meet on the host, after this one's kernels. */
inline int meet_on_host(const char *call) {
    int failed = joined();
    if (failed == 0) failed = drain();
    return checked(call, failed != 0 ? failed : gpunet_host_team_barrier(self().team));
}

} // namespace nvshmem
} // namespace gpunet

#ifndef __CUDACC__
/* In the order of a stream. */
inline int nvshmemx_barrier_all_on_stream(cudaStream_t stream) {
    if (const int failed = ::gpunet::nvshmem::checked(__func__, ::gpunet::nvshmem::joined())) return failed;
    ::gpunet::cpu::launch([](int *nothing) { ::gpunet::nvshmem::meet(nothing); }, 1, 1, 0, stream)(static_cast<int *>(nullptr));
    return 0;
}
#else
/* In the order of a stream: all members do it on one of theirs. */
inline int nvshmemx_barrier_all_on_stream(cudaStream_t stream) {
    if (const int failed = ::gpunet::nvshmem::checked(__func__, ::gpunet::nvshmem::joined())) return failed;
    int *nothing = nullptr;
    void *arguments[] = {&nothing};
    const void *kernel = reinterpret_cast<const void *>(&::gpunet::nvshmem::meet<int>);
    const cudaError_t launched = cudaLaunchKernel(kernel, dim3(1), dim3(32), arguments, 0, stream);
    return ::gpunet::nvshmem::checked(__func__, ::gpunet::nvshmem::of_cuda(launched));
}
/* Starts a kernel whose blocks are all on the GPU at the same time. */
inline int nvshmemx_collective_launch(const void *kernel, dim3 blocks, dim3 threads, void **arguments, std::size_t shared, cudaStream_t stream) {
    if (const int failed = ::gpunet::nvshmem::joined()) return failed;
    return ::gpunet::nvshmem::of_cuda(cudaLaunchCooperativeKernel(kernel, blocks, threads, arguments, shared, stream));
}
#endif

#endif
