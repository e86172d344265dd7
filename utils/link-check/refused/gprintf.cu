// A line whose text does not suit its arguments.
// refused: the placeholders do not suit the arguments
#include <gpunet_records.cuh>
__global__ void refused(gpunet::recorder recorder) {
    const auto block = gpunet::this_block();
    gprintf(recorder, block, "%d steps", 1.5);
}
