// A tile that is neither a warp nor a thread.
// refused: with another group let its thread 0 call
#include <gpunet.cuh>

extern "C" __global__ void half_a_warp(gpunet_net_t net, int handle, unsigned char *data) {
    auto tile = cooperative_groups::tiled_partition<16>(cooperative_groups::this_thread_block());
    (void)gpunet::stream::from_handle(net, handle).send(tile, data, 1);
}
