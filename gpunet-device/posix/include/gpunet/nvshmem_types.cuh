/* NVSHMEM's types and constants, and the lists of types over which its names range. */
#ifndef GPUNET_NVSHMEM_TYPES_CUH
#define GPUNET_NVSHMEM_TYPES_CUH

#include "../gpunet_team.h"
#ifndef __CUDACC__
#include "../gpunet_cpu.h"
#endif
#include <gpunet_host.h>

#include <cstddef>
#include <cstdint>

/* X(name, type): those of put, get, p, g and the collectives that move elements. */
#define GPUNET_NVSHMEM_TYPES(X)                                                                                \
    X(float, float)                                                                                            \
    X(double, double)                                                                                          \
    X(char, char)                                                                                              \
    X(schar, signed char)                                                                                      \
    X(short, short)                                                                                            \
    X(int, int)                                                                                                \
    X(long, long)                                                                                              \
    X(longlong, long long)                                                                                     \
    X(uchar, unsigned char)                                                                                    \
    X(ushort, unsigned short)                                                                                  \
    X(uint, unsigned int)                                                                                      \
    X(ulong, unsigned long)                                                                                    \
    X(ulonglong, unsigned long long)                                                                           \
    X(int8, std::int8_t)                                                                                       \
    X(int16, std::int16_t)                                                                                     \
    X(int32, std::int32_t)                                                                                     \
    X(int64, std::int64_t)                                                                                     \
    X(uint8, std::uint8_t)                                                                                     \
    X(uint16, std::uint16_t)                                                                                   \
    X(uint32, std::uint32_t)                                                                                   \
    X(uint64, std::uint64_t)                                                                                   \
    X(size, std::size_t)                                                                                       \
    X(ptrdiff, std::ptrdiff_t)

/* Those that are reduced. */
#define GPUNET_NVSHMEM_NUMBERS(X)                                                                              \
    X(float, float, GPUNET_FLOAT)                                                                              \
    X(double, double, GPUNET_DOUBLE)                                                                           \
    X(int, int, GPUNET_INT32)                                                                                  \
    X(long, long, GPUNET_INT64)                                                                                \
    X(longlong, long long, GPUNET_INT64)                                                                       \
    X(uint, unsigned int, GPUNET_UINT32)                                                                       \
    X(ulong, unsigned long, GPUNET_UINT64)                                                                     \
    X(ulonglong, unsigned long long, GPUNET_UINT64)                                                            \
    X(int32, std::int32_t, GPUNET_INT32)                                                                       \
    X(int64, std::int64_t, GPUNET_INT64)                                                                       \
    X(uint32, std::uint32_t, GPUNET_UINT32)                                                                    \
    X(uint64, std::uint64_t, GPUNET_UINT64)                                                                    \
    X(size, std::size_t, GPUNET_UINT64)

namespace gpunet {
namespace nvshmem {

/* Constants that are types, so that others do not compile. */
struct set {};
struct at_least {};
struct everybody {};

} // namespace nvshmem
} // namespace gpunet

/* The only team. */
using nvshmem_team_t = ::gpunet::nvshmem::everybody;
#define NVSHMEM_TEAM_WORLD (::gpunet::nvshmem::everybody{})
/* All members are on one machine. */
#define NVSHMEM_TEAM_SHARED NVSHMEM_TEAM_WORLD
#define NVSHMEMX_TEAM_NODE NVSHMEM_TEAM_WORLD

#define NVSHMEMX_SUCCESS 0

#define NVSHMEM_SIGNAL_SET (::gpunet::nvshmem::set{})
#define NVSHMEM_CMP_GE (::gpunet::nvshmem::at_least{})

#endif
