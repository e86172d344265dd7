// Exercises gpunet.cuh on a GPU: block 0 serves, block 1 calls, in blocks of 32 to 1,024 threads. Each check that fails
// leaves its line number; run by main.rs with --cuh.

#include <gpunet.cuh>

namespace cg = cooperative_groups;
using gpunet::errc;

struct CheckResult {
    int line;
    int value;
};

// By all threads of the block, with the same values.
#define CHECK(found, wanted)                                                                                   \
    do {                                                                                                       \
        const long long gpunet_found = static_cast<long long>(found);                                          \
        if (gpunet_found != static_cast<long long>(wanted)) {                                                  \
            result->line = __LINE__;                                                                           \
            result->value = static_cast<int>(gpunet_found);                                                    \
            return;                                                                                            \
        }                                                                                                      \
    } while (0)

// The errno of a result; 0: it has a value.
template <class Result> static __device__ int error_of(const Result &result) {
    return result ? 0 : static_cast<int>(result.error());
}
static __device__ constexpr int number(errc error) { return static_cast<int>(error); }

// Where block 0 tells block 1 its port; negative: it has none.
__device__ volatile int check_port;
// Memory that is no context.
__device__ alignas(64) unsigned char check_zeros[512];

static constexpr int most = 3000;
__shared__ unsigned char out[most];
__shared__ unsigned char back[most + 8];
__shared__ struct pollfd fds[2];
__shared__ gpunet::event found_events[4];
__shared__ int broken;

static __device__ unsigned long long now_ns() {
#ifndef __CUDACC__ /* on CPU blocks */
    return static_cast<unsigned long long>(clock64());
#else
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#endif
}

template <class Group> static __device__ void fill(const Group &group, int round, int len) {
    for (int i = group.thread_rank(); i < len; i += group.size()) out[i] = static_cast<unsigned char>(i * 3 + round);
}
template <class Group> static __device__ bool differs(const Group &group, int len) {
    bool wrong = false;
    for (int i = group.thread_rank(); i < len; i += group.size()) wrong |= out[i] != back[i];
    return wrong;
}

static __device__ void serve(const cg::thread_block &block, gpunet_net_t net, CheckResult *result) {
    auto options = gpunet::options().with_rings(1 << 16, 1 << 14).with_linger(gpunet::seconds(5));
    auto listener = gpunet::listener::bind(block, net, gpunet::address::v4(127, 0, 0, 1, 0), options, 4);
    CHECK(error_of(listener), 0);
    auto at = listener->local_address(block);
    CHECK(error_of(at), 0);
    CHECK(at->port() != 0 && at->is_v4() && at->ip(0) == 127 && at->ip(3) == 1, 1);
    CHECK(error_of(listener->accept(block, gpunet::timeout::no_wait())), number(errc::would_block));
    const auto start = now_ns();
    CHECK(error_of(listener->accept(block, gpunet::milliseconds(2))), number(errc::would_block));
    CHECK(now_ns() - start >= 2000000, 1);
    if (block.thread_rank() == 0) {
        check_port = at->port();
        fds[0] = gpunet::watch(*listener, POLLIN);
        fds[1] = {};
        fds[1].fd = -1;
    }
    block.sync();

    auto ready = gpunet::poll(block, net, fds, 2, gpunet::seconds(20));
    CHECK(error_of(ready), 0);
    CHECK(*ready, 1);

    // The same by a poll group.
    auto watched = gpunet::poll_group::create(block, net, 8);
    CHECK(error_of(watched), 0);
    gpunet::events found(found_events);
    CHECK(error_of(watched->add(block, *listener, POLLIN, 7)), 0);
    CHECK(error_of(watched->add(block, *listener, POLLIN, 7)), number(errc::already_exists));
    for (int turn = 0; turn < 2; turn++) {
        auto count = watched->wait(block, found, gpunet::seconds(20));
        CHECK(error_of(count), 0);
        CHECK(*count, 1);
        CHECK(found.size(), 1);
        CHECK(found[0].token, 7 + turn);
        CHECK(found[0].socket, listener->handle());
        CHECK(found[0].revents, POLLIN);
        // Nobody has accepted: the next wait delivers it again, with its new token.
        if (turn == 0) CHECK(error_of(watched->modify(block, *listener, POLLIN, 8)), 0);
    }
    CHECK(error_of(watched->rearm(block, *listener)), 0);
    auto stream = listener->accept(block);
    CHECK(error_of(stream), 0);
    CHECK(error_of(watched->add(block, *stream, POLLOUT, 9)), 0);
    auto count = watched->wait(block, found, gpunet::seconds(20));
    CHECK(error_of(count), 0);
    CHECK(*count, 1);
    CHECK(found.begin()->token, 9);
    CHECK(found.end() - found.begin(), 1);
    CHECK(error_of(watched->remove(block, *stream)), 0);
    CHECK(error_of(watched->remove(block, *stream)), number(errc::not_found));
    CHECK(error_of(watched->wait(block, found, gpunet::timeout::no_wait())), 0);
    CHECK(found.size(), 0);
    CHECK(error_of(watched->close(block)), 0);
    CHECK(error_of(watched->wait(block, found)), number(errc::bad_handle));

    auto size = stream->get_option<int>(block, SOL_SOCKET, SO_RCVBUF);
    CHECK(error_of(size), 0);
    CHECK(*size, 1 << 14);
    CHECK(error_of(stream->peer_address(block)), 0);

    // An echo until the end of the stream, by odd lengths, with copies and without by turns.
    for (int turn = 0;; turn++) {
        if (turn % 2 == 0) {
            auto n = stream->recv(block, back + 3, most - 1);
            CHECK(error_of(n), 0);
            if (*n == 0) break;
            CHECK(error_of(stream->send_all(block, back + 3, *n)), 0);
        } else {
            auto in = stream->peek(block, 1 << 20);
            CHECK(error_of(in), 0);
            if (in->empty()) break;
            // All of it has been seen: there is no more for now.
            CHECK(error_of(stream->peek_more(block, 1 << 20, 1, gpunet::timeout::no_wait())), number(errc::message_too_long));
            auto space = stream->reserve(block, in->size());
            CHECK(error_of(space), 0);
            const auto n = space->size();
            for (unsigned long long i = block.thread_rank(); i < n; i += block.size()) *space->byte(i) = *in->byte(i);
            CHECK(error_of(stream->commit(block, n)), 0);
            CHECK(error_of(stream->release(block, n)), 0);
        }
    }
    const int handle = stream->handle();
    CHECK(error_of(stream->close(block)), 0);
    CHECK(static_cast<bool>(*stream), 0);
    auto stale = gpunet::stream::from_handle(net, handle);
    CHECK(error_of(stale.send(block, out, 1)), number(errc::bad_handle));
    CHECK(error_of(stale.close(block)), number(errc::bad_handle));
    CHECK(error_of(listener->close(block)), 0);
}

// One echo with copies and one in place, by any group.
template <class Group> static __device__ int echo_by(const Group &group, gpunet::stream &stream, int round, int len) {
    fill(group, round, len);
    group.sync();
    if (!stream.send_all(group, out, len)) return __LINE__;
    auto got = stream.recv_exact(group, back, len, gpunet::seconds(20));
    if (!got || *got != static_cast<unsigned long long>(len)) return __LINE__;
    if (differs(group, len)) return __LINE__;
    fill(group, round + 1, len);
    group.sync();
    for (int done = 0; done < len;) {
        auto space = stream.reserve(group, len - done, gpunet::seconds(20));
        if (!space || space->empty()) return __LINE__;
        space->write(group, 0, out + done, space->size());
        if (!stream.commit(group, space->size())) return __LINE__;
        done += static_cast<int>(space->size());
    }
    for (int done = 0; done < len;) {
        auto span = stream.peek(group, len - done, gpunet::seconds(20));
        if (!span || span->empty()) return __LINE__;
        span->read(group, 0, back + done, span->size());
        const auto size = span->size();
        if (!stream.release(group, size)) return __LINE__;
        done += static_cast<int>(size);
    }
    group.sync();
    return differs(group, len) ? __LINE__ : 0;
}

// What `body` returns of the threads that run it; all threads of the block get it.
template <class Body> static __device__ int by_some(const cg::thread_block &block, bool mine, Body body) {
    if (block.thread_rank() == 0) broken = 0;
    block.sync();
    if (mine) {
        const int line = body();
        if (line != 0) broken = line;
    }
    block.sync();
    const int line = broken;
    block.sync();
    return line;
}

static __device__ void without_a_context(const cg::thread_block &block, CheckResult *result) {
    const auto nowhere = reinterpret_cast<gpunet_net_t>(check_zeros);
    const gpunet_net_t none[] = {0, nowhere, nowhere + 1};
    for (const gpunet_net_t net : none) {
        CHECK(gpunet_send(net, 1, out, 1), -ENETDOWN);
        CHECK(gpunet_recv_warp(net, 1, out, 1), -ENETDOWN);
        CHECK(gpunet_socket(net, AF_INET, SOCK_STREAM, 0), -ENETDOWN);
        CHECK(gpunet_close_thread(net, 1), -ENETDOWN);
        CHECK(gpunet_poll(net, fds, 0, 0), -ENETDOWN);
        CHECK(error_of(gpunet::stream::connect(block, net, gpunet::address())), number(errc::network_down));
    }
    // Nothing was bound to this module.
    CHECK(gsend(1, out, 1), -ENETDOWN);
    CHECK(gsocket(AF_INET, SOCK_STREAM, 0), -ENETDOWN);
}

static __device__ void call(const cg::thread_block &block, gpunet_net_t net, CheckResult *result) {
    without_a_context(block, result);
    if (result->line > 0) return;

    if (block.thread_rank() == 0) {
        while (check_port == 0) {}
    }
    block.sync();
    CHECK(check_port > 0, 1);
    const auto server = gpunet::address::v4(127, 0, 0, 1, static_cast<unsigned short>(check_port));
    auto nobody = gpunet::address::v4(127, 0, 0, 1, 1);
    CHECK(error_of(gpunet::stream::connect(block, net, nobody)), number(errc::connection_refused));
    CHECK(error_of(gpunet::stream::connect(block, net, server, gpunet::options(), gpunet::timeout::no_wait())),
          number(errc::invalid_argument));
    auto opened = gpunet::stream::connect(block, net, server, gpunet::options().with_transport(gpunet::transport::tcp), gpunet::seconds(20));
    CHECK(error_of(opened), 0);
    gpunet::stream stream = static_cast<gpunet::stream &&>(*opened);
    auto carrier = stream.carrier(block);
    CHECK(error_of(carrier), 0);
    CHECK(*carrier == gpunet::transport::tcp, 1);
    auto peer = stream.peer_address(block);
    CHECK(error_of(peer), 0);
    CHECK(*peer == server, 1);

    // Nothing has come: the call's time is over, whatever the socket's options say.
    CHECK(error_of(stream.recv(block, back, 1, gpunet::timeout::no_wait())), number(errc::would_block));
    const auto start = now_ns();
    CHECK(error_of(stream.recv_exact(block, back, 9, gpunet::milliseconds(2))), number(errc::would_block));
    CHECK(now_ns() - start >= 2000000, 1);
    CHECK(error_of(stream.peek(block, 0)), number(errc::invalid_argument));
    CHECK(error_of(stream.commit(block, 1 << 30)), number(errc::invalid_argument));
    CHECK(error_of(stream.release(block, 1)), number(errc::invalid_argument));
    CHECK(error_of(stream.set_option(block, SOL_SOCKET, 999, 1)), number(errc::no_such_option));
    CHECK(error_of(stream.set_option(block, IPPROTO_TCP, TCP_NODELAY, 1)), 0);

    const auto warp = cg::tiled_partition<32>(block);
    const unsigned int last = block.size() - 1;
    for (int round = 0; round < 40; round++) {
        const int len = 1 + (round * 197) % (most - 1);
        CHECK(by_some(block, true, [&] { return echo_by(block, stream, round, len); }), 0);
        const bool in_last_warp = block.thread_rank() / 32 == last / 32;
        CHECK(by_some(block, in_last_warp, [&] { return echo_by(warp, stream, round, len); }), 0);
        CHECK(by_some(block, in_last_warp, [&] { return echo_by(cg::coalesced_threads(), stream, round, len); }), 0);
        CHECK(by_some(block, block.thread_rank() < 32, [&] { return echo_by(gpunet::this_warp(), stream, round, len); }), 0);
        CHECK(by_some(block, block.thread_rank() == last, [&] { return echo_by(cg::this_thread(), stream, round, len); }), 0);
        CHECK(by_some(block, true, [&] { return echo_by(gpunet::this_block(), stream, round, len); }), 0);
    }

#ifdef __CUDACC__
    // Half a warp is no group. (On the CPU nobody knows which threads are coalesced.)
    CHECK(by_some(block, block.size() >= 32 && block.thread_rank() < 16, [&] {
        return error_of(stream.send(cg::coalesced_threads(), out, 1)) == number(errc::invalid_argument) ? 0 : __LINE__;
    }), 0);
#endif

    // Room to send, by each kind of group; nothing to receive.
    if (block.thread_rank() == 0) fds[0] = gpunet::watch(stream, POLLIN | POLLOUT);
    block.sync();
    CHECK(*gpunet::poll(block, net, fds, 1, gpunet::seconds(20)), 1);
    CHECK(fds[0].revents, POLLOUT);
    CHECK(by_some(block, block.thread_rank() < 32, [&] { return *gpunet::poll(warp, net, fds, 1, gpunet::seconds(20)) == 1 ? 0 : __LINE__; }), 0);
    CHECK(by_some(block, block.thread_rank() == last, [&] {
        struct pollfd own = gpunet::watch(stream, POLLIN);
        auto ready = gpunet::poll(gpunet::this_thread(), net, &own, 1, gpunet::milliseconds(1));
        return ready && *ready == 0 ? 0 : __LINE__;
    }), 0);

    // One warp sends and another receives (one after the other in a block of one warp).
    auto halves = static_cast<gpunet::stream &&>(stream).split();
    CHECK(static_cast<bool>(stream), 0);
    for (int round = 0; round < 20; round++) {
        fill(block, round, most);
        block.sync();
        CHECK(by_some(block, true, [&]() -> int {
            const bool one_warp = last < 32;
            if (block.thread_rank() < 32 && !halves.send.send_all(warp, out, most)) return __LINE__;
            if (!one_warp && block.thread_rank() / 32 != 1) return 0;
            auto got = halves.recv.recv_exact(warp, back, most);
            return got && *got == most ? 0 : __LINE__;
        }), 0);
        CHECK(__syncthreads_or(differs(block, most)), 0);
    }
    auto joined = gpunet::stream::join(static_cast<gpunet::send_half &&>(halves.send), static_cast<gpunet::recv_half &&>(halves.recv));
    CHECK(error_of(joined), 0);

    // The end, and what comes after it.
    CHECK(error_of(joined->shutdown_write(block)), 0);
    CHECK(error_of(joined->send(block, out, 1)), number(errc::broken_pipe));
    auto rest = joined->recv(block, back, 1);
    CHECK(error_of(rest), 0);
    CHECK(*rest, 0);
    auto none = joined->available(block);
    CHECK(error_of(none), 0);
    CHECK(*none, 0);
    CHECK(error_of(joined->close(block)), 0);
    CHECK(error_of(joined->close(block)), number(errc::bad_handle));
}

extern "C" __global__ void gpunet_cuh_check(gpunet_net_t net, CheckResult *results) {
    const auto block = cg::this_thread_block();
    CheckResult *result = &results[blockIdx.x];
    if (block.thread_rank() == 0) result->line = -1;
    block.sync();
    if (blockIdx.x == 0) {
        serve(block, net, result);
    } else {
        call(block, net, result);
    }
    block.sync();
    if (block.thread_rank() == 0) {
        if (result->line == -1) result->line = 0;
        if (blockIdx.x == 0 && result->line != 0) check_port = -1;
    }
}
