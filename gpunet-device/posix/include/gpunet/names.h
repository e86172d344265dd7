/* GPUnet's names: the calls of gpunet.h for the context in the module's variable. */
#ifndef GPUNET_NAMES_H
#define GPUNET_NAMES_H

#include "../gpunet.h"

GPUNET_NAME int gsocket(int domain, int type, int protocol) { return gpunet_socket(gpunet_attachment, domain, type, protocol); }
GPUNET_NAME int gbind(int socket, const struct sockaddr *addr, socklen_t len) { return gpunet_bind(gpunet_attachment, socket, addr, len); }
GPUNET_NAME int glisten(int socket, int backlog) { return gpunet_listen(gpunet_attachment, socket, backlog); }
GPUNET_NAME int gaccept(int socket, struct sockaddr *addr GPUNET_OR(0), socklen_t *len GPUNET_OR(0)) { return gpunet_accept(gpunet_attachment, socket, addr, len); }
GPUNET_NAME int gaccept_nb(int socket, struct sockaddr *addr GPUNET_OR(0), socklen_t *len GPUNET_OR(0)) { return gpunet_accept_nb(gpunet_attachment, socket, addr, len); }
GPUNET_NAME int gconnect(int socket, const struct sockaddr *addr, socklen_t len) { return gpunet_connect(gpunet_attachment, socket, addr, len); }
GPUNET_NAME int gshutdown(int socket, int how GPUNET_OR(SHUT_RDWR)) { return gpunet_shutdown(gpunet_attachment, socket, how); }
GPUNET_NAME int gclose(int socket) { return gpunet_close(gpunet_attachment, socket); }
GPUNET_NAME int gconnect_to(const struct sockaddr *addr, socklen_t len, const struct gpunet_options *options GPUNET_OR(0), long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_connect_to(gpunet_attachment, addr, len, options, timeout_ns); }
GPUNET_NAME int glisten_at(const struct sockaddr *addr, socklen_t len, int backlog GPUNET_OR(128), const struct gpunet_options *options GPUNET_OR(0)) { return gpunet_listen_at(gpunet_attachment, addr, len, backlog, options); }
GPUNET_NAME int gaccept_timeout(int socket, struct sockaddr *addr, socklen_t *len, long long timeout_ns) { return gpunet_accept_timeout(gpunet_attachment, socket, addr, len, timeout_ns); }
GPUNET_NAME int gconnect_in(const struct sockaddr_in *addr) { return gpunet_connect_in(gpunet_attachment, addr); }
GPUNET_NAME int gbind_in(const struct sockaddr_in *addr) { return gpunet_bind_in(gpunet_attachment, addr); }
GPUNET_NAME int gconnect_in6(const struct sockaddr_in6 *addr) { return gpunet_connect_in6(gpunet_attachment, addr); }
GPUNET_NAME int gbind_in6(const struct sockaddr_in6 *addr) { return gpunet_bind_in6(gpunet_attachment, addr); }
GPUNET_NAME int gconnect_to_thread(const struct sockaddr *addr, socklen_t len, const struct gpunet_options *options GPUNET_OR(0), long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_connect_to_thread(gpunet_attachment, addr, len, options, timeout_ns); }
GPUNET_NAME int glisten_at_thread(const struct sockaddr *addr, socklen_t len, int backlog GPUNET_OR(128), const struct gpunet_options *options GPUNET_OR(0)) { return gpunet_listen_at_thread(gpunet_attachment, addr, len, backlog, options); }
GPUNET_NAME int gaccept_timeout_thread(int socket, struct sockaddr *addr, socklen_t *len, long long timeout_ns) { return gpunet_accept_timeout_thread(gpunet_attachment, socket, addr, len, timeout_ns); }
GPUNET_NAME int single_thread_gbind_in(const struct sockaddr_in *addr) { return gpunet_bind_in_thread(gpunet_attachment, addr); }
GPUNET_NAME int single_thread_gconnect_in(const struct sockaddr_in *addr) { return gpunet_connect_in_thread(gpunet_attachment, addr); }
GPUNET_NAME int single_thread_gaccept(int socket, struct sockaddr *addr GPUNET_OR(0), socklen_t *len GPUNET_OR(0)) { return gpunet_accept_thread(gpunet_attachment, socket, addr, len); }
GPUNET_NAME int single_thread_gshutdown(int socket, int how GPUNET_OR(SHUT_RDWR)) { return gpunet_shutdown_thread(gpunet_attachment, socket, how); }
GPUNET_NAME int single_thread_gclose(int socket) { return gpunet_close_thread(gpunet_attachment, socket); }
GPUNET_NAME long long gsend(int socket, const void *data, unsigned long long len, int flags GPUNET_OR(0)) { return gpunet_send(gpunet_attachment, socket, data, len, flags); }
GPUNET_NAME long long gsend_nb(int socket, const void *data, unsigned long long len, int flags GPUNET_OR(0)) { return gpunet_send_nb(gpunet_attachment, socket, data, len, flags); }
GPUNET_NAME long long gsend_warp(int socket, const void *data, unsigned long long len, int flags GPUNET_OR(0)) { return gpunet_send_warp(gpunet_attachment, socket, data, len, flags); }
GPUNET_NAME long long gsend_thread(int socket, const void *data, unsigned long long len, int flags GPUNET_OR(0)) { return gpunet_send_thread(gpunet_attachment, socket, data, len, flags); }
GPUNET_NAME long long grecv(int socket, void *data, unsigned long long len, int flags GPUNET_OR(0)) { return gpunet_recv(gpunet_attachment, socket, data, len, flags); }
GPUNET_NAME long long grecv_nb(int socket, void *data, unsigned long long len, int flags GPUNET_OR(0)) { return gpunet_recv_nb(gpunet_attachment, socket, data, len, flags); }
GPUNET_NAME long long grecv_warp(int socket, void *data, unsigned long long len, int flags GPUNET_OR(0)) { return gpunet_recv_warp(gpunet_attachment, socket, data, len, flags); }
GPUNET_NAME long long grecv_thread(int socket, void *data, unsigned long long len, int flags GPUNET_OR(0)) { return gpunet_recv_thread(gpunet_attachment, socket, data, len, flags); }
GPUNET_NAME long long gsend_timeout(int socket, const void *data, unsigned long long len, int flags, long long timeout_ns) { return gpunet_send_timeout(gpunet_attachment, socket, data, len, flags, timeout_ns); }
GPUNET_NAME long long gsend_timeout_warp(int socket, const void *data, unsigned long long len, int flags, long long timeout_ns) { return gpunet_send_timeout_warp(gpunet_attachment, socket, data, len, flags, timeout_ns); }
GPUNET_NAME long long gsend_timeout_thread(int socket, const void *data, unsigned long long len, int flags, long long timeout_ns) { return gpunet_send_timeout_thread(gpunet_attachment, socket, data, len, flags, timeout_ns); }
GPUNET_NAME long long grecv_timeout(int socket, void *data, unsigned long long len, int flags, long long timeout_ns) { return gpunet_recv_timeout(gpunet_attachment, socket, data, len, flags, timeout_ns); }
GPUNET_NAME long long grecv_timeout_warp(int socket, void *data, unsigned long long len, int flags, long long timeout_ns) { return gpunet_recv_timeout_warp(gpunet_attachment, socket, data, len, flags, timeout_ns); }
GPUNET_NAME long long grecv_timeout_thread(int socket, void *data, unsigned long long len, int flags, long long timeout_ns) { return gpunet_recv_timeout_thread(gpunet_attachment, socket, data, len, flags, timeout_ns); }
GPUNET_NAME long long greserve(int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_reserve(gpunet_attachment, socket, len, span, timeout_ns); }
GPUNET_NAME long long greserve_warp(int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_reserve_warp(gpunet_attachment, socket, len, span, timeout_ns); }
GPUNET_NAME long long greserve_thread(int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_reserve_thread(gpunet_attachment, socket, len, span, timeout_ns); }
GPUNET_NAME int gcommit(int socket, unsigned long long len) { return gpunet_commit(gpunet_attachment, socket, len); }
GPUNET_NAME int gcommit_warp(int socket, unsigned long long len) { return gpunet_commit_warp(gpunet_attachment, socket, len); }
GPUNET_NAME int gcommit_thread(int socket, unsigned long long len) { return gpunet_commit_thread(gpunet_attachment, socket, len); }
GPUNET_NAME long long gpeek(int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_peek(gpunet_attachment, socket, len, span, timeout_ns); }
GPUNET_NAME long long gpeek_warp(int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_peek_warp(gpunet_attachment, socket, len, span, timeout_ns); }
GPUNET_NAME long long gpeek_thread(int socket, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_peek_thread(gpunet_attachment, socket, len, span, timeout_ns); }
GPUNET_NAME long long gpeek_more(int socket, unsigned long long have, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_peek_more(gpunet_attachment, socket, have, len, span, timeout_ns); }
GPUNET_NAME long long gpeek_more_warp(int socket, unsigned long long have, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_peek_more_warp(gpunet_attachment, socket, have, len, span, timeout_ns); }
GPUNET_NAME long long gpeek_more_thread(int socket, unsigned long long have, unsigned long long len, struct gpunet_span *span, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_peek_more_thread(gpunet_attachment, socket, have, len, span, timeout_ns); }
GPUNET_NAME int grelease(int socket, unsigned long long len) { return gpunet_release(gpunet_attachment, socket, len); }
GPUNET_NAME int grelease_warp(int socket, unsigned long long len) { return gpunet_release_warp(gpunet_attachment, socket, len); }
GPUNET_NAME int grelease_thread(int socket, unsigned long long len) { return gpunet_release_thread(gpunet_attachment, socket, len); }
GPUNET_NAME int gtrigger_release(gpunet_trigger_t trigger) { return gpunet_trigger_release(gpunet_attachment, trigger); }
GPUNET_NAME int gtrigger_release_warp(gpunet_trigger_t trigger) { return gpunet_trigger_release_warp(gpunet_attachment, trigger); }
GPUNET_NAME int gtrigger_release_thread(gpunet_trigger_t trigger) { return gpunet_trigger_release_thread(gpunet_attachment, trigger); }
GPUNET_NAME int gwait(gpunet_gate_t gate, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_wait(gpunet_attachment, gate, timeout_ns); }
GPUNET_NAME int gwait_warp(gpunet_gate_t gate, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_wait_warp(gpunet_attachment, gate, timeout_ns); }
GPUNET_NAME int gwait_thread(gpunet_gate_t gate, long long timeout_ns GPUNET_OR(GPUNET_SOCKET_TIMEOUT)) { return gpunet_wait_thread(gpunet_attachment, gate, timeout_ns); }
GPUNET_NAME int gtest(gpunet_gate_t gate) { return gpunet_test(gpunet_attachment, gate); }
GPUNET_NAME int gtest_warp(gpunet_gate_t gate) { return gpunet_test_warp(gpunet_attachment, gate); }
GPUNET_NAME int gtest_thread(gpunet_gate_t gate) { return gpunet_test_thread(gpunet_attachment, gate); }
GPUNET_NAME long long gprepared_span(gpunet_prepared_t message, struct gpunet_span *span) { return gpunet_prepared_span(gpunet_attachment, message, span); }
GPUNET_NAME long long gprepared_span_warp(gpunet_prepared_t message, struct gpunet_span *span) { return gpunet_prepared_span_warp(gpunet_attachment, message, span); }
GPUNET_NAME long long gprepared_span_thread(gpunet_prepared_t message, struct gpunet_span *span) { return gpunet_prepared_span_thread(gpunet_attachment, message, span); }
GPUNET_NAME int gpoll(struct pollfd *fds, unsigned long long count, long long timeout_ns) { return gpunet_poll(gpunet_attachment, fds, count, timeout_ns); }
GPUNET_NAME int gpoll_warp(struct pollfd *fds, unsigned long long count, long long timeout_ns) { return gpunet_poll_warp(gpunet_attachment, fds, count, timeout_ns); }
GPUNET_NAME int gpoll_thread(struct pollfd *fds, unsigned long long count, long long timeout_ns) { return gpunet_poll_thread(gpunet_attachment, fds, count, timeout_ns); }
GPUNET_NAME int gepoll_create(unsigned int capacity GPUNET_OR(0)) { return gpunet_epoll_create(gpunet_attachment, capacity); }
GPUNET_NAME int gepoll_create_thread(unsigned int capacity GPUNET_OR(0)) { return gpunet_epoll_create_thread(gpunet_attachment, capacity); }
GPUNET_NAME int gepoll_ctl(int group, int op, int socket, int events, unsigned long long token) { return gpunet_epoll_ctl(gpunet_attachment, group, op, socket, events, token); }
GPUNET_NAME int gepoll_ctl_warp(int group, int op, int socket, int events, unsigned long long token) { return gpunet_epoll_ctl_warp(gpunet_attachment, group, op, socket, events, token); }
GPUNET_NAME int gepoll_ctl_thread(int group, int op, int socket, int events, unsigned long long token) { return gpunet_epoll_ctl_thread(gpunet_attachment, group, op, socket, events, token); }
GPUNET_NAME int gepoll_wait(int group, struct gpunet_event *events, unsigned int max, unsigned int last, long long timeout_ns) { return gpunet_epoll_wait(gpunet_attachment, group, events, max, last, timeout_ns); }
GPUNET_NAME int gepoll_wait_warp(int group, struct gpunet_event *events, unsigned int max, unsigned int last, long long timeout_ns) { return gpunet_epoll_wait_warp(gpunet_attachment, group, events, max, last, timeout_ns); }
GPUNET_NAME int gepoll_wait_thread(int group, struct gpunet_event *events, unsigned int max, unsigned int last, long long timeout_ns) { return gpunet_epoll_wait_thread(gpunet_attachment, group, events, max, last, timeout_ns); }
GPUNET_NAME int gepoll_close(int group) { return gpunet_epoll_close(gpunet_attachment, group); }
GPUNET_NAME int gepoll_close_thread(int group) { return gpunet_epoll_close_thread(gpunet_attachment, group); }
GPUNET_NAME int ggetsockname(int socket, struct sockaddr *addr, socklen_t *len) { return gpunet_getsockname(gpunet_attachment, socket, addr, len); }
GPUNET_NAME int ggetsockname_thread(int socket, struct sockaddr *addr, socklen_t *len) { return gpunet_getsockname_thread(gpunet_attachment, socket, addr, len); }
GPUNET_NAME int ggetpeername(int socket, struct sockaddr *addr, socklen_t *len) { return gpunet_getpeername(gpunet_attachment, socket, addr, len); }
GPUNET_NAME int ggetpeername_thread(int socket, struct sockaddr *addr, socklen_t *len) { return gpunet_getpeername_thread(gpunet_attachment, socket, addr, len); }
GPUNET_NAME int gsetsockopt(int socket, int level, int name, const void *value, socklen_t len) { return gpunet_setsockopt(gpunet_attachment, socket, level, name, value, len); }
GPUNET_NAME int gsetsockopt_thread(int socket, int level, int name, const void *value, socklen_t len) { return gpunet_setsockopt_thread(gpunet_attachment, socket, level, name, value, len); }
GPUNET_NAME int ggetsockopt(int socket, int level, int name, void *value, socklen_t *len) { return gpunet_getsockopt(gpunet_attachment, socket, level, name, value, len); }
GPUNET_NAME int ggetsockopt_thread(int socket, int level, int name, void *value, socklen_t *len) { return gpunet_getsockopt_thread(gpunet_attachment, socket, level, name, value, len); }
GPUNET_NAME int gioctl(int socket, unsigned int request, int *value) { return gpunet_ioctl(gpunet_attachment, socket, request, value); }
GPUNET_NAME int gioctl_thread(int socket, unsigned int request, int *value) { return gpunet_ioctl_thread(gpunet_attachment, socket, request, value); }
GPUNET_NAME int gsetnonblock(int socket, int on) { return gpunet_setnonblock(gpunet_attachment, socket, on); }

#endif
