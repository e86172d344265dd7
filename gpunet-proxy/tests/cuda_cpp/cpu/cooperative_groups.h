/* Cooperative groups of one CPU thread each. */
#ifndef COOPERATIVE_GROUPS_ON_CPU_H
#define COOPERATIVE_GROUPS_ON_CPU_H

namespace cooperative_groups {

struct one_thread {
    static unsigned int thread_rank() { return 0; }
    static unsigned int size() { return 1; }
    static void sync() {}
};
struct thread_block : one_thread {};
struct coalesced_group : one_thread {};
template <unsigned int Size, class Parent = void> struct thread_block_tile : one_thread {};

inline thread_block this_thread_block() { return {}; }
inline coalesced_group coalesced_threads() { return {}; }
inline thread_block_tile<1> this_thread() { return {}; }
template <unsigned int Size, class Parent> thread_block_tile<Size, Parent> tiled_partition(const Parent &) { return {}; }

} // namespace cooperative_groups

#endif
