/* A program that is linked with the library starts on a machine without a GPU and without CUDA, and is told so. */
#include "test.h"

int main(void) {
    begin();
    gpunet_host_proxy_t *proxy = proxy_new();
    gpunet_host_attachment_t *attachment = NULL;
    int refused = gpunet_host_attach_cuda_device(proxy, 0, &attachment);
    if (refused == 0) {
        OK(gpunet_host_attachment_close(attachment, NULL));
    } else {
        IS(refused == -ENODEV || refused == -EIO, 1);
        printf("no GPU: %s\n", gpunet_host_last_error());
    }
    OK(gpunet_host_proxy_close(proxy));
    return end("start");
}
