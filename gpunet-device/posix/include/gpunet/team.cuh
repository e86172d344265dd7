/* Teams: kernels of several devices store into each other's memory. */
#ifndef GPUNET_TEAM_CUH
#define GPUNET_TEAM_CUH

#include "../gpunet_team.h"
#include "group.cuh"
#include "result.cuh"
#include "timeout.cuh"

namespace gpunet {

/* How a reduction combines two numbers. */
enum class reduction : int { sum = GPUNET_SUM, min = GPUNET_MIN, max = GPUNET_MAX };

namespace detail {

/* The type of elements as gpunet_reduce takes it; 0: the type is not supported. */
template <class T> struct number { static constexpr int value = 0; };
template <> struct number<int> { static constexpr int value = GPUNET_INT32; };
template <> struct number<unsigned int> { static constexpr int value = GPUNET_UINT32; };
template <> struct number<long> { static constexpr int value = GPUNET_INT64; };
template <> struct number<long long> { static constexpr int value = GPUNET_INT64; };
template <> struct number<unsigned long> { static constexpr int value = GPUNET_UINT64; };
template <> struct number<unsigned long long> { static constexpr int value = GPUNET_UINT64; };
template <> struct number<float> { static constexpr int value = GPUNET_FLOAT; };
template <> struct number<double> { static constexpr int value = GPUNET_DOUBLE; };

} // namespace detail

/* Elements in symmetric memory: the same place in the part of every member. Kernels get it as a parameter, by value; the host makes
 * it from the value of gpunet_host_symmetric_value. */
template <class T> class symmetric {
public:
    symmetric() = default;
    __host__ __device__ explicit symmetric(const gpunet_symmetric_t &raw) : raw_(raw) {}

    __host__ __device__ unsigned long long size() const { return raw_.len / sizeof(T); }
    /* The `count` elements from `start` on, as far as the memory reaches. */
    __device__ symmetric slice(unsigned long long start, unsigned long long count) const {
        const unsigned long long whole = size(), first = start < whole ? start : whole;
        const unsigned long long rest = whole - first;
        return symmetric(gpunet_symmetric_at(raw_, first * sizeof(T), (count < rest ? count : rest) * sizeof(T)));
    }
    /* As the C functions take it. */
    __host__ __device__ const gpunet_symmetric_t &raw() const { return raw_; }

private:
    gpunet_symmetric_t raw_ = {};
};

/* A member of a team. Kernels get it as a parameter, by value; the host makes it from the value of gpunet_host_team_value. Members
 * and signals are numbers from 0. Lengths are in elements. */
class team {
public:
    team() = default;
    __host__ __device__ explicit team(const gpunet_team_t &raw) : raw_(raw) {}

    __host__ __device__ unsigned int rank() const { return raw_.rank; }
    __host__ __device__ unsigned int size() const { return raw_.size; }
    /* The neighbours in a ring. */
    __host__ __device__ unsigned int right() const { return raw_.rank + 1 < raw_.size ? raw_.rank + 1 : 0; }
    __host__ __device__ unsigned int left() const { return (raw_.rank > 0 ? raw_.rank : raw_.size) - 1; }
    /* The same team with a timeout in nanoseconds. When it is over, barriers, collectives, and waits without a timeout of their own
     * fail with would_block. 0, the default: they never time out. */
    __device__ team with_timeout_ns(unsigned long long ns) const { return team(gpunet_team_timeout(raw_, ns)); }
    /* As the C functions take it. */
    __host__ __device__ const gpunet_team_t &raw() const { return raw_; }

    /* The address of memory in the part of a member, for plain loads and stores; null if there is none. By any thread. */
    template <class T> __device__ T *ptr(const symmetric<T> &at, unsigned int member) const {
        return static_cast<T *>(gpunet_ptr(raw_, at.raw(), member));
    }

    /* Copies. The caller may change the data when put has returned; after put_nbi, when quiet has returned. */
    template <class Group, class T>
    __device__ result<void> put(const Group &group, const symmetric<T> &to, const T *data, unsigned long long count, unsigned int member) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_put, raw_, to.raw(), data, count * sizeof(T), member));
    }
    template <class Group, class T>
    __device__ result<void> put_nbi(const Group &group, const symmetric<T> &to, const T *data, unsigned long long count, unsigned int member) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_put_nbi, raw_, to.raw(), data, count * sizeof(T), member));
    }
    template <class Group, class T>
    __device__ result<void> get(const Group &group, T *data, const symmetric<T> &from, unsigned long long count, unsigned int member) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_get, raw_, data, from.raw(), count * sizeof(T), member));
    }
    /* Puts elements, and then sets a signal. A member that sees the value sees the elements. */
    template <class Group, class T>
    __device__ result<void> put_signal(const Group &group, const symmetric<T> &to, const T *data, unsigned long long count,
                                       unsigned int signal, unsigned long long value, unsigned int member) const {
        return detail::nothing(
            GPUNET_BY_GROUP(group, gpunet_put_signal, raw_, to.raw(), data, count * sizeof(T), signal, value, member));
    }

    /* Sets this member's word of a signal at a member, or adds to it. Values grow. */
    template <class Group>
    __device__ result<void> signal(const Group &group, unsigned int signal, unsigned long long value, unsigned int member) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_signal_set, raw_, signal, value, member));
    }
    template <class Group>
    __device__ result<void> signal_add(const Group &group, unsigned int signal, unsigned long long value, unsigned int member) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_signal_add, raw_, signal, value, member));
    }
    /* Waits until the word that `source` writes is at least `value`. Returns the word. */
    template <class Group>
    __device__ result<unsigned long long> wait(const Group &group, unsigned int signal, unsigned int source, unsigned long long value,
                                               timeout limit = {}) const {
        return detail::count(GPUNET_BY_GROUP(group, gpunet_signal_wait, raw_, signal, source, value, limit.ns()));
    }
    /* Returns whether it is, without waiting. */
    template <class Group>
    __device__ result<bool> test(const Group &group, unsigned int signal, unsigned int source, unsigned long long value) const {
        const int is_there = GPUNET_BY_GROUP(group, gpunet_signal_test, raw_, signal, source, value);
        if (is_there < 0) return detail::failed(is_there);
        return is_there > 0;
    }

    /* fence orders the group's earlier stores into other members' memory before later ones; quiet waits until they have arrived. */
    template <class Group> __device__ result<void> fence(const Group &group) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_fence, raw_));
    }
    template <class Group> __device__ result<void> quiet(const Group &group) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_quiet, raw_));
    }

    /* All members take part, with one group of each device. */
    template <class Group> __device__ result<void> barrier(const Group &group) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_barrier, raw_));
    }
    /* Copies the data of member i to element i * count of every member's `to`. */
    template <class Group, class T>
    __device__ result<void> all_gather(const Group &group, const symmetric<T> &to, const T *data, unsigned long long count) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_all_gather, raw_, to.raw(), data, count * sizeof(T)));
    }
    /* Copies the root's data to the beginning of every member's `to`. */
    template <class Group, class T>
    __device__ result<void> broadcast(const Group &group, const symmetric<T> &to, const T *data, unsigned long long count, unsigned int root) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_broadcast, raw_, to.raw(), data, count * sizeof(T), root));
    }
    /* Copies `count` elements from each member to each member. */
    template <class Group, class T>
    __device__ result<void> all_to_all(const Group &group, const symmetric<T> &to, const T *data, unsigned long long count) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_all_to_all, raw_, to.raw(), data, count * sizeof(T)));
    }
    /* Reduces all elements of `from` into every member's `to`, which may be `from`. A block calls. */
    template <class Group, class T>
    __device__ result<void> reduce(const Group &, reduction operation, const symmetric<T> &to, const symmetric<T> &from) const {
        static_assert(detail::scope_for<Group>() == detail::scope::block, "a team reduces by whole thread blocks: call it with a thread_block");
        static_assert(detail::number<T>::value != 0, "a team reduces int, long, long long, unsigned ones, float and double; gpunet_reduce halves, too");
        return detail::nothing(gpunet_reduce(raw_, detail::number<T>::value, static_cast<int>(operation), to.raw(), from.raw()));
    }

private:
    gpunet_team_t raw_ = {};
};

} // namespace gpunet

#endif
