/* The calls of gpunet_team.h for the team in the module's variable. */
#ifndef GPUNET_TEAM_NAMES_H
#define GPUNET_TEAM_NAMES_H

#include "../gpunet_team.h"

GPUNET_NAME int gteam_rank(void) { return gpunet_team_rank(gpunet_team); }
GPUNET_NAME int gteam_size(void) { return gpunet_team_size(gpunet_team); }
GPUNET_NAME void *gptr(gpunet_symmetric_t at, unsigned int member) { return gpunet_ptr(gpunet_team, at, member); }
GPUNET_NAME int gput(gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int member) { return gpunet_put(gpunet_team, to, data, len, member); }
GPUNET_NAME int gput_warp(gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int member) { return gpunet_put_warp(gpunet_team, to, data, len, member); }
GPUNET_NAME int gput_thread(gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int member) { return gpunet_put_thread(gpunet_team, to, data, len, member); }
GPUNET_NAME int gput_nbi(gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int member) { return gpunet_put_nbi(gpunet_team, to, data, len, member); }
GPUNET_NAME int gput_nbi_warp(gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int member) { return gpunet_put_nbi_warp(gpunet_team, to, data, len, member); }
GPUNET_NAME int gput_nbi_thread(gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int member) { return gpunet_put_nbi_thread(gpunet_team, to, data, len, member); }
GPUNET_NAME int gget(void *data, gpunet_symmetric_t from, unsigned long long len, unsigned int member) { return gpunet_get(gpunet_team, data, from, len, member); }
GPUNET_NAME int gget_warp(void *data, gpunet_symmetric_t from, unsigned long long len, unsigned int member) { return gpunet_get_warp(gpunet_team, data, from, len, member); }
GPUNET_NAME int gget_thread(void *data, gpunet_symmetric_t from, unsigned long long len, unsigned int member) { return gpunet_get_thread(gpunet_team, data, from, len, member); }
GPUNET_NAME int gput_signal(gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int signal, unsigned long long value, unsigned int member) { return gpunet_put_signal(gpunet_team, to, data, len, signal, value, member); }
GPUNET_NAME int gput_signal_warp(gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int signal, unsigned long long value, unsigned int member) { return gpunet_put_signal_warp(gpunet_team, to, data, len, signal, value, member); }
GPUNET_NAME int gput_signal_thread(gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int signal, unsigned long long value, unsigned int member) { return gpunet_put_signal_thread(gpunet_team, to, data, len, signal, value, member); }
GPUNET_NAME int gsignal_set(unsigned int signal, unsigned long long value, unsigned int member) { return gpunet_signal_set(gpunet_team, signal, value, member); }
GPUNET_NAME int gsignal_set_warp(unsigned int signal, unsigned long long value, unsigned int member) { return gpunet_signal_set_warp(gpunet_team, signal, value, member); }
GPUNET_NAME int gsignal_set_thread(unsigned int signal, unsigned long long value, unsigned int member) { return gpunet_signal_set_thread(gpunet_team, signal, value, member); }
GPUNET_NAME int gsignal_add(unsigned int signal, unsigned long long value, unsigned int member) { return gpunet_signal_add(gpunet_team, signal, value, member); }
GPUNET_NAME int gsignal_add_warp(unsigned int signal, unsigned long long value, unsigned int member) { return gpunet_signal_add_warp(gpunet_team, signal, value, member); }
GPUNET_NAME int gsignal_add_thread(unsigned int signal, unsigned long long value, unsigned int member) { return gpunet_signal_add_thread(gpunet_team, signal, value, member); }
GPUNET_NAME long long gsignal_wait(unsigned int signal, unsigned int source, unsigned long long value, long long timeout_ns GPUNET_OR(GPUNET_TEAM_TIMEOUT)) { return gpunet_signal_wait(gpunet_team, signal, source, value, timeout_ns); }
GPUNET_NAME long long gsignal_wait_warp(unsigned int signal, unsigned int source, unsigned long long value, long long timeout_ns GPUNET_OR(GPUNET_TEAM_TIMEOUT)) { return gpunet_signal_wait_warp(gpunet_team, signal, source, value, timeout_ns); }
GPUNET_NAME long long gsignal_wait_thread(unsigned int signal, unsigned int source, unsigned long long value, long long timeout_ns GPUNET_OR(GPUNET_TEAM_TIMEOUT)) { return gpunet_signal_wait_thread(gpunet_team, signal, source, value, timeout_ns); }
GPUNET_NAME int gsignal_test(unsigned int signal, unsigned int source, unsigned long long value) { return gpunet_signal_test(gpunet_team, signal, source, value); }
GPUNET_NAME int gsignal_test_warp(unsigned int signal, unsigned int source, unsigned long long value) { return gpunet_signal_test_warp(gpunet_team, signal, source, value); }
GPUNET_NAME int gsignal_test_thread(unsigned int signal, unsigned int source, unsigned long long value) { return gpunet_signal_test_thread(gpunet_team, signal, source, value); }
GPUNET_NAME int gword_set(gpunet_symmetric_t to, unsigned long long value, unsigned int member) { return gpunet_word_set(gpunet_team, to, value, member); }
GPUNET_NAME int gword_set_warp(gpunet_symmetric_t to, unsigned long long value, unsigned int member) { return gpunet_word_set_warp(gpunet_team, to, value, member); }
GPUNET_NAME int gword_set_thread(gpunet_symmetric_t to, unsigned long long value, unsigned int member) { return gpunet_word_set_thread(gpunet_team, to, value, member); }
GPUNET_NAME long long gword_wait(gpunet_symmetric_t word, unsigned long long value, long long timeout_ns GPUNET_OR(GPUNET_TEAM_TIMEOUT)) { return gpunet_word_wait(gpunet_team, word, value, timeout_ns); }
GPUNET_NAME long long gword_wait_warp(gpunet_symmetric_t word, unsigned long long value, long long timeout_ns GPUNET_OR(GPUNET_TEAM_TIMEOUT)) { return gpunet_word_wait_warp(gpunet_team, word, value, timeout_ns); }
GPUNET_NAME long long gword_wait_thread(gpunet_symmetric_t word, unsigned long long value, long long timeout_ns GPUNET_OR(GPUNET_TEAM_TIMEOUT)) { return gpunet_word_wait_thread(gpunet_team, word, value, timeout_ns); }
GPUNET_NAME int gfence(void) { return gpunet_fence(gpunet_team); }
GPUNET_NAME int gfence_warp(void) { return gpunet_fence_warp(gpunet_team); }
GPUNET_NAME int gfence_thread(void) { return gpunet_fence_thread(gpunet_team); }
GPUNET_NAME int gquiet(void) { return gpunet_quiet(gpunet_team); }
GPUNET_NAME int gquiet_warp(void) { return gpunet_quiet_warp(gpunet_team); }
GPUNET_NAME int gquiet_thread(void) { return gpunet_quiet_thread(gpunet_team); }
GPUNET_NAME int gbarrier(void) { return gpunet_barrier(gpunet_team); }
GPUNET_NAME int gbarrier_warp(void) { return gpunet_barrier_warp(gpunet_team); }
GPUNET_NAME int gbarrier_thread(void) { return gpunet_barrier_thread(gpunet_team); }
GPUNET_NAME int gall_gather(gpunet_symmetric_t to, const void *data, unsigned long long len) { return gpunet_all_gather(gpunet_team, to, data, len); }
GPUNET_NAME int gall_gather_warp(gpunet_symmetric_t to, const void *data, unsigned long long len) { return gpunet_all_gather_warp(gpunet_team, to, data, len); }
GPUNET_NAME int gall_gather_thread(gpunet_symmetric_t to, const void *data, unsigned long long len) { return gpunet_all_gather_thread(gpunet_team, to, data, len); }
GPUNET_NAME int gbroadcast(gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int root) { return gpunet_broadcast(gpunet_team, to, data, len, root); }
GPUNET_NAME int gbroadcast_warp(gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int root) { return gpunet_broadcast_warp(gpunet_team, to, data, len, root); }
GPUNET_NAME int gbroadcast_thread(gpunet_symmetric_t to, const void *data, unsigned long long len, unsigned int root) { return gpunet_broadcast_thread(gpunet_team, to, data, len, root); }
GPUNET_NAME int gall_to_all(gpunet_symmetric_t to, const void *data, unsigned long long len) { return gpunet_all_to_all(gpunet_team, to, data, len); }
GPUNET_NAME int gall_to_all_warp(gpunet_symmetric_t to, const void *data, unsigned long long len) { return gpunet_all_to_all_warp(gpunet_team, to, data, len); }
GPUNET_NAME int gall_to_all_thread(gpunet_symmetric_t to, const void *data, unsigned long long len) { return gpunet_all_to_all_thread(gpunet_team, to, data, len); }
GPUNET_NAME int greduce(int type, int operation, gpunet_symmetric_t to, gpunet_symmetric_t from) { return gpunet_reduce(gpunet_team, type, operation, to, from); }

#endif
