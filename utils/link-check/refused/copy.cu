// A socket that two values would stand for.
// refused: deleted function
#include <gpunet.cuh>

extern "C" __global__ void copied(gpunet_net_t net, int handle) {
    auto stream = gpunet::stream::from_handle(net, handle);
    gpunet::stream other = stream;
    (void)other;
}
