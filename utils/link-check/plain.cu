// gpunet.cuh without CUDA's libraries: its own groups, durations and results. Each member once.

#include <gpunet.cuh>

#ifdef GPUNET_SYSTEM_HEADERS
static_assert(static_cast<int>(gpunet::errc::would_block) == EAGAIN && static_cast<int>(gpunet::errc::canceled) == ECANCELED);
static_assert(static_cast<int>(gpunet::errc::busy) == EALREADY && static_cast<int>(gpunet::errc::network_down) == ENETDOWN);
static_assert(static_cast<int>(gpunet::errc::host_unreachable) == EHOSTUNREACH && static_cast<int>(gpunet::errc::no_buffers) == ENOBUFS);
#endif

static_assert(gpunet::timeout().ns() == GPUNET_SOCKET_TIMEOUT);
static_assert(gpunet::timeout(gpunet::milliseconds(3)).ns() == 3000000);
static_assert(gpunet::timeout(gpunet::seconds(-1)).ns() == 0 && gpunet::timeout::no_wait().ns() == 0);
static_assert(gpunet::timeout(gpunet::seconds(1ll << 60)).ns() == 0x7fffffffffffffffll);
static_assert(gpunet::timeout(gpunet::duration<1, 3000000000>(1)).ns() == 1);
static_assert(gpunet::timeout(gpunet::duration<60, 1>(2)).ns() == 120000000000ll);
static_assert(gpunet::timeout::forever().ns() < 0);
static_assert(gpunet::options().with_timeouts(gpunet::timeout::no_wait(), gpunet::timeout()).data()->send_timeout_ns == 1);
static_assert(gpunet::options().with_linger(gpunet::seconds(2)).data()->linger_ms == 2000);
static_assert(gpunet::options().with_nodelay(false).with_keepalive(true).with_keepalive(false).data()->flags == GPUNET_DELAY);

template <class Group>
static __device__ gpunet::result<void> meet(const Group &group, gpunet::team team, gpunet::symmetric<float> box, float *memory) {
    const auto half = box.slice(0, box.size() / 2);
    if (auto put = team.put(group, half, memory, half.size(), team.right()); !put) return put;
    if (auto put = team.put_nbi(group, half, memory, half.size(), team.right()); !put) return put;
    if (auto got = team.get(group, memory, half, half.size(), team.left()); !got) return got;
    if (auto put = team.put_signal(group, half, memory, half.size(), 0, 1, team.right()); !put) return put;
    if (auto told = team.signal(group, 1, 1, team.left()); !told) return told;
    if (auto told = team.signal_add(group, 1, 1, team.left()); !told) return told;
    auto seen = team.wait(group, 0, team.left(), 1, gpunet::milliseconds(5));
    if (!seen || *seen < 1) return gpunet::failure(gpunet::errc::would_block);
    auto is_there = team.test(group, 1, team.right(), 2);
    if (!is_there || !*is_there) return gpunet::failure(gpunet::errc::would_block);
    if (auto ordered = team.fence(group); !ordered) return ordered;
    if (auto done = team.quiet(group); !done) return done;
    if (auto met = team.with_timeout_ns(1000000000).barrier(group); !met) return met;
    if (team.ptr(box, team.rank()) == nullptr) return gpunet::failure(gpunet::errc::invalid_argument);
    if (auto all = team.all_gather(group, box, memory, 4); !all) return all;
    if (auto all = team.broadcast(group, box, memory, 4, team.size() - 1); !all) return all;
    return team.all_to_all(group, box, memory, 1);
}

extern "C" __global__ void plain_team(gpunet::team team, gpunet::symmetric<float> box, float *memory, int *error) {
    auto met = meet(gpunet::this_block(), team, box, memory);
    if (met) met = meet(gpunet::this_warp(), team, box, memory);
    if (met) met = meet(gpunet::this_thread(), team, box, memory);
    if (met) met = team.reduce(gpunet::this_block(), gpunet::reduction::sum, box, box);
    *error = met ? 0 : static_cast<int>(met.error());
}

template <class Group>
static __device__ gpunet::result<void> play(const Group &group, gpunet_net_t net, gpunet::prepared first, unsigned char *memory) {
    const auto message = first.nth(3);
    if (auto room = gpunet::wait(group, net, message.room(4096)); !room) return room;
    if (auto come = gpunet::wait(group, net, message.arrived(), gpunet::milliseconds(5)); !come) return come;
    auto span = gpunet::span(group, net, message);
    if (!span) return gpunet::failure(span.error());
    span->write(group, 0, memory, message.size());
    auto free = gpunet::test(group, net, message.done());
    if (!free || !*free) return gpunet::failure(gpunet::errc::would_block);
    return gpunet::release(group, net, message.trigger());
}

template <class Group>
static __device__ gpunet::result<void> talk(const Group &group, gpunet::stream &stream, unsigned char *memory, struct pollfd *fds) {
    auto got = stream.recv(group, memory, 4096, gpunet::milliseconds(5));
    if (!got) return gpunet::failure(got.error());
    if (got.value_or(0) == 0) return {};
    if (auto sent = stream.send_all(group, memory, *got); !sent) return sent;
    auto space = stream.reserve(group, 100);
    if (space.has_value()) {
        space->write(group, 0, memory, space->size());
        if (auto committed = stream.commit(group, space->size()); !committed) return committed;
    }
    auto span = stream.peek(group, 100, gpunet::timeout::forever());
    if (span) {
        span->read(group, 0, memory, span->size());
        if (auto released = stream.release(group, span->size()); !released) return released;
    }
    if (group.thread_rank() == 0) fds[0] = gpunet::watch(stream, POLLIN | POLLOUT);
    auto ready = gpunet::poll(group, stream.net(), fds, 1, gpunet::microseconds(10));
    auto waiting = stream.available(group);
    auto nodelay = stream.template get_option<int>(group, IPPROTO_TCP, TCP_NODELAY);
    auto carrier = stream.carrier(group);
    auto here = stream.local_address(group), there = stream.peer_address(group);
    if (!ready || !waiting || !nodelay || !carrier || !here || !there) return gpunet::failure(gpunet::errc::not_connected);
    return *here == *there && *carrier == gpunet::transport::rc ? gpunet::failure(gpunet::errc::protocol_error)
                                                                : stream.set_option(group, IPPROTO_TCP, TCP_NODELAY, *nodelay);
}

extern "C" __global__ void plain(gpunet_net_t net, gpunet::address at, unsigned char *memory, struct pollfd *fds, int *error,
                                 gpunet::prepared first) {
    const auto block = gpunet::this_block();
    if (auto played = play(block, net, first, memory); !played) *error = static_cast<int>(played.error());
    if (threadIdx.x < 32 && !play(gpunet::this_warp(), net, first, memory)) *error = 1;
    if (threadIdx.x == 0 && !play(gpunet::this_thread(), net, first, memory)) *error = 1;
    const auto with = gpunet::options().with_rings(1 << 20, 1 << 20).with_transport(gpunet::transport::tcp);
    auto listener = gpunet::listener::bind(block, net, at, with);
    if (!listener) {
        *error = static_cast<int>(listener.error());
        return;
    }
    while (auto accepted = listener->accept(block, gpunet::seconds(5))) {
        gpunet::stream stream = static_cast<gpunet::stream &&>(*accepted);
        auto done = talk(block, stream, memory, fds);
        if (threadIdx.x < 32) done = talk(gpunet::this_warp(), stream, memory, fds);
        if (threadIdx.x == 0) done = talk(gpunet::this_thread(), stream, memory, fds);
        if (!done) *error = static_cast<int>(done.error());
        auto halves = static_cast<gpunet::stream &&>(stream).split();
        (void)halves.send.shutdown_write(block);
        (void)halves.recv.shutdown_read(gpunet::this_warp());
        auto joined = gpunet::stream::join(static_cast<gpunet::send_half &&>(halves.send), static_cast<gpunet::recv_half &&>(halves.recv));
        if (joined) (void)joined->close(block);
    }
    const unsigned char loopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    auto other = gpunet::stream::connect(gpunet::this_thread(), net, gpunet::address::v6(loopback, at.port()));
    if (other) *error = other->leave();
    (void)listener->close(block);
}
