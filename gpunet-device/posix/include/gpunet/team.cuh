/* Teams: kernels of several devices that store into each other's memory. */
#ifndef GPUNET_TEAM_CUH
#define GPUNET_TEAM_CUH

#include "../gpunet_team.h"
#include "group.cuh"
#include "result.cuh"
#include "timeout.cuh"

namespace gpunet {

/* How two numbers become one. */
enum class reduction : int { sum = GPUNET_SUM, min = GPUNET_MIN, max = GPUNET_MAX };

namespace detail {

/* The type of elements as gpunet_reduce takes it; 0: none. */
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

/* Elements in symmetric memory: the same place in the part of every member. A parameter of kernels, by value, made from what
 * gpunet_host_symmetric_value leaves. */
template <class T> class symmetric {
public:
    symmetric() = default;
    __host__ __device__ explicit symmetric(const gpunet_symmetric_t &raw) : raw_(raw) {}

    __host__ __device__ unsigned long long size() const { return raw_.len / sizeof(T); }
    /* `count` elements from `start`, cut to what is there. */
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

/* A member of a team: a parameter of kernels, by value, made from what gpunet_host_team_value leaves. Members are numbers from
 * 0, and so are signals. Lengths are in elements. */
class team {
public:
    team() = default;
    __host__ __device__ explicit team(const gpunet_team_t &raw) : raw_(raw) {}

    __host__ __device__ unsigned int rank() const { return raw_.rank; }
    __host__ __device__ unsigned int size() const { return raw_.size; }
    /* The neighbours in a ring. */
    __host__ __device__ unsigned int right() const { return raw_.rank + 1 < raw_.size ? raw_.rank + 1 : 0; }
    __host__ __device__ unsigned int left() const { return (raw_.rank > 0 ? raw_.rank : raw_.size) - 1; }
    /* The same team whose barriers and collectives, and waits without a timeout of their own, fail with would_block after so
     * many nanoseconds; 0: never, as it is at first. */
    __device__ team with_timeout_ns(unsigned long long ns) const { return team(gpunet_team_timeout(raw_, ns)); }
    /* As the C functions take it. */
    __host__ __device__ const gpunet_team_t &raw() const { return raw_; }

    /* The address of memory in the part of a member, for plain loads and stores; null if there is none. By any thread. */
    template <class T> __device__ T *ptr(const symmetric<T> &at, unsigned int member) const {
        return static_cast<T *>(gpunet_ptr(raw_, at.raw(), member));
    }

    /* Copies. After put the data may be changed, after put_nbi once quiet has returned. */
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
    /* Puts, and then sets a signal: who sees the value sees the elements. */
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
    /* Waits until the word that `source` writes is at least `value`; what it is then. */
    template <class Group>
    __device__ result<unsigned long long> wait(const Group &group, unsigned int signal, unsigned int source, unsigned long long value,
                                               timeout limit = {}) const {
        return detail::count(GPUNET_BY_GROUP(group, gpunet_signal_wait, raw_, signal, source, value, limit.ns()));
    }
    /* Whether it is, without waiting. */
    template <class Group>
    __device__ result<bool> test(const Group &group, unsigned int signal, unsigned int source, unsigned long long value) const {
        const int is_there = GPUNET_BY_GROUP(group, gpunet_signal_test, raw_, signal, source, value);
        if (is_there < 0) return detail::failed(is_there);
        return is_there > 0;
    }

    /* Orders what the group has stored into other members' memory; waits until it is there. */
    template <class Group> __device__ result<void> fence(const Group &group) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_fence, raw_));
    }
    template <class Group> __device__ result<void> quiet(const Group &group) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_quiet, raw_));
    }

    /* All members, one group of each device. */
    template <class Group> __device__ result<void> barrier(const Group &group) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_barrier, raw_));
    }
    /* The data of member i lie at element i * count of everybody's `to`. */
    template <class Group, class T>
    __device__ result<void> all_gather(const Group &group, const symmetric<T> &to, const T *data, unsigned long long count) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_all_gather, raw_, to.raw(), data, count * sizeof(T)));
    }
    /* The root's data lie at the beginning of everybody's `to`. */
    template <class Group, class T>
    __device__ result<void> broadcast(const Group &group, const symmetric<T> &to, const T *data, unsigned long long count, unsigned int root) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_broadcast, raw_, to.raw(), data, count * sizeof(T), root));
    }
    /* `count` elements for each member. */
    template <class Group, class T>
    __device__ result<void> all_to_all(const Group &group, const symmetric<T> &to, const T *data, unsigned long long count) const {
        return detail::nothing(GPUNET_BY_GROUP(group, gpunet_all_to_all, raw_, to.raw(), data, count * sizeof(T)));
    }
    /* Reduces all elements of `from` into everybody's `to`, which may be `from`. By a block. */
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
