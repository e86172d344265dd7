"""An echo server under gpunetd, on a GPU or on the CPU, and a client in another process: they meet through memory.

Run `gpunetd`, `python gpunetd_echo.py serve --device 0` (without --device it is the CPU), `python gpunetd_echo.py ask`.
"""

import argparse
import statistics
import time

import gpunet
from gpunet import cpu

ROOM, BLOCKS = 64 << 10, 4
SOURCE = r"""
#include <gpunet.h>

extern "C" __global__ void echo(gpunet_net_t net, int listener, unsigned char *memory, int room) {
    unsigned char *data = memory + blockIdx.x * (unsigned long long)room;
    for (int socket; (socket = gpunet_accept(net, listener)) > 0; gpunet_close(net, socket))
        for (long long n; (n = gpunet_recv(net, socket, data, room)) > 0;)
            if (gpunet_send(net, socket, data, n, MSG_WAITALL) != n) break;
}
"""


def echo_on_cpu(net: int, listener: int) -> None:
    data = bytearray(ROOM)
    while (socket := cpu.accept(net, listener)) > 0:
        while (n := cpu.recv(net, socket, data)) > 0:
            cpu.send(net, socket, data, n)
        cpu.close(net, socket)


def serve(proxy: gpunet.Proxy, port: int, device: int | None) -> None:
    with proxy.attach_cpu() if device is None else proxy.attach_cuda(device) as attachment:
        number = (listener := attachment.listen(("127.0.0.1", port))).device_number()
        # Kernels are loaded, and memory is taken, before the first of them waits.
        if device is not None:
            import cupy
            import numpy as np

            from gpunet import cupy as compiler

            cupy.cuda.Device(device).use()
            kernel, memory = compiler.compile(SOURCE).get_function("echo"), cupy.zeros(ROOM * BLOCKS, np.uint8)
        with attachment.launch() as net:
            if device is None:
                cpu.run(net, echo_on_cpu, number, blocks=BLOCKS)
            else:
                kernel((BLOCKS,), (128,), (np.uint64(net), np.int32(number), memory, np.int32(ROOM)))
            print(f"listening on {listener.getsockname()[1]}", flush=True)


def ask(proxy: gpunet.Proxy, port: int) -> None:
    with proxy.connect(("127.0.0.1", port), timeout=10) as socket:
        took = []
        for turn in range(1000):
            message = turn.to_bytes(64)
            began = time.perf_counter()
            socket.sendall(message)
            assert socket.recv_exact(64) == message
            took.append(time.perf_counter() - began)
        print(f"{socket.transport}: 64 bytes come back in {statistics.median(took) * 1e6:.0f} us")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["serve", "ask"])
    parser.add_argument("--port", type=int, default=7777)
    parser.add_argument("--device", type=int)
    parser.add_argument("--daemon")
    options = parser.parse_args()
    try:
        with gpunet.attach(options.daemon) as proxy:
            ask(proxy, options.port) if options.what == "ask" else serve(proxy, options.port, options.device)
    except KeyboardInterrupt:
        pass
