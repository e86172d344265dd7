// The kernel of the HTTP example. Each block serves one connection at a time: as many blocks, as many clients at once.
#include <gpunet_http.h>

extern "C" __global__ void hello_http(gpunet_net_t net, int listener) {
    __shared__ char text[1024];
    // The listener's options have the time that a client may be silent. An accept waits until the launch is cancelled.
    for (int client; (client = gpunet_accept_timeout(net, listener, nullptr, nullptr, -1)) > 0; gpunet_close(net, client)) {
        struct gpunet_http_request request = {};
        while (gpunet_http_next(net, client, &request) > 0) {
            if (gpunet_http_is(&request, "GET", "/")) {
                gpunet_http_answer(net, client, &request, 200, "text/plain", "hello\n", 6);
            } else if (gpunet_http_is(&request, "POST", "/echo") && request.body.len <= sizeof text) {
                // Each thread copies its share of the body out of the ring.
                for (unsigned int at = threadIdx.x; at < request.body.len; at += blockDim.x) {
                    text[at] = static_cast<char>(gpunet_http_byte(&request, request.body.at + at));
                }
                gpunet_http_answer(net, client, &request, 200, "application/octet-stream", text, request.body.len);
                // Before the next body goes there, all threads have sent this one.
                __syncthreads();
            } else {
                gpunet_http_answer(net, client, &request, 404, "text/plain", "not found\n", 10);
            }
        }
    }
}
