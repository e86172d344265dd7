// The echo client of GPUnet's README under GPUnet's names (gconnect_in, gsend, grecv): its sockets are those of the launch whose
// net value the host wrote to the module, by gpunet_host_bind_kernel.
#include <gpunet.h>

static const int MESSAGE_BYTES = 1024;

struct readme_result {
    int echoed;
    int error;
};

extern "C" __global__ void readme_client(struct sockaddr_in server, int messages, readme_result *results) {
    __shared__ struct sockaddr_in address;
    __shared__ unsigned char out[MESSAGE_BYTES], back[MESSAGE_BYTES];
    BEGIN_SINGLE_THREAD_PART {
        address = server;
    } END_SINGLE_THREAD_PART;

    // All threads of the block make every call, and all of them get the socket.
    int socket = gconnect_in(&address);
    int error = socket < 0 ? socket : 0, echoed = 0;
    for (int message = 0; error == 0 && message < messages; message++) {
        for (int i = threadIdx.x; i < MESSAGE_BYTES; i += blockDim.x) out[i] = (unsigned char)(blockIdx.x * 31 + message * 7 + i);
        // A send may take less than all of it.
        for (long long sent = 0; error == 0 && sent < MESSAGE_BYTES;) {
            long long n = gsend(socket, out + sent, MESSAGE_BYTES - sent);
            if (n < 0) error = (int)n;
            else sent += n;
        }
        for (long long received = 0; error == 0 && received < MESSAGE_BYTES;) {
            long long n = grecv(socket, back + received, MESSAGE_BYTES - received);
            if (n <= 0) error = n < 0 ? (int)n : -ECONNRESET;
            else received += n;
        }
        int wrong = 0;
        for (int i = threadIdx.x; i < MESSAGE_BYTES; i += blockDim.x) wrong |= out[i] != back[i];
        if (!__syncthreads_or(wrong) && error == 0) echoed++;
    }
    BEGIN_SINGLE_THREAD_PART {
        if (socket >= 0) {
            single_thread_gshutdown(socket);
            single_thread_gclose(socket);
        }
        results[blockIdx.x].echoed = echoed;
        results[blockIdx.x].error = error;
    } END_SINGLE_THREAD_PART;
}
