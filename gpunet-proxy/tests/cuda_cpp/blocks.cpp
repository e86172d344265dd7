// The kernels of the examples, each with a function that runs one block of it.

#include "cuda_on_cpu.h"
#include <gpunet.cuh>

#include "echo.h"
#include "queue.h"
namespace server {
#include "server.cu"
}
namespace client {
#include "client.cu"
}
namespace queue {
#include "kernels.cu"
}
namespace check {
#include "gpunet_cuh_check.cu"
}

extern "C" void check_block(unsigned int block, gpunet_net_t net, int *results) {
    blockIdx.x = block;
    check::gpunet_cuh_check(net, reinterpret_cast<check::CheckResult *>(results));
}

extern "C" void server_block(unsigned int block, gpunet_net_t net, unsigned char *buffers, echo_listener *shared, echo_result *results) {
    blockIdx.x = block;
    server::echo_server(net, gpunet::address::v4(127, 0, 0, 1, 0), buffers, 5000, shared, results);
}

extern "C" void client_block(unsigned int block, gpunet_net_t net, unsigned short port, unsigned char *buffers, echo_result *results) {
    blockIdx.x = block;
    client::echo_client(net, gpunet::address::v4(127, 0, 0, 1, port), 50, buffers, 7000, results);
}

// A message of 1,000 bytes in each direction, from the first ones on. Fills, sends, receives and checks.
extern "C" void play_block(gpunet_net_t net, const gpunet_prepared_t *out, unsigned long long ring, const gpunet_prepared_t *in,
                           unsigned long long rounds, queue_result *result) {
    queue::play_messages(net, *out, ring, *in, rounds, result);
}

// The kernels that know no socket, in place and in a buffer of 1,000 bytes. Returns how many bytes are wrong.
extern "C" unsigned int fill_and_check_block(const gpunet_span *span) {
    queue_result result = {};
    unsigned char buffer[1000];
    queue::fill_buffer(buffer, sizeof buffer, 3);
    queue::check_buffer(buffer, sizeof buffer, 3, &result);
    queue::fill_span(*span, 4);
    queue::check_span(*span, 4, &result);
    return result.wrong;
}

// Calls a function of gpunet.h with a context and, for the rest, with zeros.
template <class Returned, class... Arguments>
static long long with_context(Returned (*call)(gpunet_net_t, Arguments...), gpunet_net_t net) {
    return call(net, Arguments{}...);
}
template <class Returned, class... Arguments> static long long without_context(Returned (*call)(Arguments...)) {
    return call(Arguments{}...);
}

static bool is_down(long long returned) { return returned == -ENETDOWN; }
static bool is_down(const void *found) { return found == nullptr; }
// Calls a function of gpunet_team.h with zeros.
template <class Returned, class... Arguments> static bool is_down_without_team(Returned (*call)(Arguments...)) {
    return is_down(call(Arguments{}...));
}

// Returns the name of a call that returns something else than -ENETDOWN for `net`, for the module's context, or for no team.
extern "C" const char *without_network(gpunet_net_t net) {
#define GPUNET_CALL(explicit_name, name)                                                                       \
    if (with_context(explicit_name, net) != -ENETDOWN) return #explicit_name;                                  \
    if (without_context(name) != -ENETDOWN) return #name;
#define GPUNET_TEAM_CALL(explicit_name, name)                                                                  \
    if (!is_down_without_team(explicit_name)) return #explicit_name;                                           \
    if (!is_down_without_team(name)) return #name;
#include "calls.inc"
    return nullptr;
}
