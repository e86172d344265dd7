// An echo client in CUDA C++: every block connects, sends messages, and counts those that come back
// unchanged. The program of GPUnet's README, told again against gpunet.h.
//
// A host program (Rust: gpunet with cudarc; `apps/echo` shows the parts) links this file's PTX with
// gpunet's, binds the attachment to the module, and launches `gpunet_echo_client`:
//
//     nvcc -arch=compute_80 -rdc=true -ptx -I gpunet-device/posix/include gpunet_echo_client.cu
//     cuLinkAddData(gpunet_echo_client.ptx), cuLinkAddData(gpunet-device/ptx/gpunet_device.ptx),
//     cuLinkComplete, cuModuleLoadData, attachment.bind(module)
//
// or at build time:
//
//     ptxas -arch=sm_90 -c gpunet_device.ptx -o gpunet_device.o
//     nvcc -arch=sm_90 -dc -I gpunet-device/posix/include gpunet_echo_client.cu
//     nvlink -arch=sm_90 gpunet_echo_client.o gpunet_device.o -o client.cubin

#include <gpunet.h>

static const int MESSAGE_BYTES = 1024;

// What went wrong, if anything: the first negative errno of a block.
struct EchoResult {
    int echoed;
    int error;
};

extern "C" __global__ void gpunet_echo_client(struct sockaddr_in server, int messages, EchoResult *results) {
    __shared__ unsigned char out[MESSAGE_BYTES];
    __shared__ unsigned char back[MESSAGE_BYTES];
    EchoResult *result = &results[blockIdx.x];

    // All threads of the block make every call, and all of them get the socket.
    int socket = gconnect_in(&server);
    int error = socket < 0 ? socket : 0;
    int echoed = 0;

    for (int message = 0; error == 0 && message < messages; message++) {
        for (int i = threadIdx.x; i < MESSAGE_BYTES; i += blockDim.x) {
            out[i] = (unsigned char)(blockIdx.x * 31 + message * 7 + i);
        }

        // A send may take less than all of it, like send(2): so a loop.
        for (long long sent = 0; error == 0 && sent < MESSAGE_BYTES;) {
            long long n = gsend(socket, out + sent, MESSAGE_BYTES - sent);
            if (n < 0) error = (int)n;
            else sent += n;
        }
        // Or all at once: grecv with MSG_WAITALL returns less only when the stream ends.
        if (error == 0) {
            long long n = grecv(socket, back, MESSAGE_BYTES, MSG_WAITALL);
            if (n != MESSAGE_BYTES) error = n < 0 ? (int)n : -ECONNRESET;
        }
        if (error == 0) {
            int wrong = 0;
            for (int i = threadIdx.x; i < MESSAGE_BYTES; i += blockDim.x) wrong |= out[i] != back[i];
            if (!__syncthreads_or(wrong)) echoed++;
        }
    }

    BEGIN_SINGLE_THREAD_PART {
        if (socket >= 0) single_thread_gclose(socket);
        result->echoed = echoed;
        result->error = error;
    } END_SINGLE_THREAD_PART;
}
