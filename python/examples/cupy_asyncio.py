"""A persistent kernel behind asyncio: 32 clients at once talk to 8 thread blocks of CUDA C++."""

import asyncio

import cupy
import numpy as np

import gpunet
import gpunet.cupy

SOURCE = r"""
#include <gpunet.h>

// Each block serves one connection after the other: it answers in capitals.
extern "C" __global__ void shout(gpunet_net_t net, int listener, unsigned char *memory, int room) {
    unsigned char *data = memory + blockIdx.x * room;
    for (;;) {
        const int socket = gpunet_accept(net, listener);
        if (socket < 0) return;  // the launch was cancelled
        for (;;) {
            const long long n = gpunet_recv(net, socket, data, room);
            if (n <= 0) break;
            for (long long i = threadIdx.x; i < n; i += blockDim.x)
                if (data[i] >= 'a' && data[i] <= 'z') data[i] -= 32;
            if (gpunet_send(net, socket, data, n, MSG_WAITALL) != n) break;
        }
        gpunet_close(net, socket);
    }
}
"""
BLOCKS, ROOM, CLIENTS = 8, 4096, 32


async def client(port: int, name: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for turn in range(100):
        line = f"{name} says {turn}\n".encode()
        writer.write(line)
        answer = await reader.readline()
        if answer != line.upper():
            raise ValueError(f"{answer!r} is no answer to {line!r}")
    writer.close()
    await writer.wait_closed()


async def clients(port: int) -> None:
    await asyncio.gather(*(client(port, f"client {n}") for n in range(CLIENTS)))
    print(f"{CLIENTS} clients were answered", flush=True)


def main() -> None:
    kernel = gpunet.cupy.compile(SOURCE).get_function("shout")
    memory = cupy.zeros(BLOCKS * ROOM, cupy.uint8)
    stream = cupy.cuda.Stream(non_blocking=True)
    with gpunet.open() as proxy, proxy.attach_cuda(0) as device:
        listener = device.listen(("127.0.0.1", 0))
        number, port = listener.device_number(), listener.getsockname()[1]
        launch = device.launch(stream)
        with stream:
            kernel((BLOCKS,), (128,), (np.uint64(launch.net), np.int32(number), memory, np.int32(ROOM)))
        try:
            asyncio.run(asyncio.wait_for(clients(port), 60))
        finally:
            launch.cancel()
            launch.finish()


if __name__ == "__main__":
    main()
