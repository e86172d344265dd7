// A whole program, linked by nvcc alone: its kernel calls gpunet's functions. Without a GPU it ends with 1.

#include <cstdio>
#include <gpunet.cuh>

__global__ void send(gpunet_net_t net, int *result) {
    static __device__ unsigned char data[64];
    const auto sent = gpunet::stream::from_handle(net, 1).send(gpunet::this_block(), data, sizeof data);
    *result = sent ? 0 : static_cast<int>(sent.error());
}

int main() {
    int *result = nullptr;
    if (cudaMallocManaged(&result, sizeof *result) != cudaSuccess) return 1;
    send<<<1, 128>>>(0, result);
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    std::printf("%d\n", *result);
    return *result == ENETDOWN ? 0 : 2;
}
