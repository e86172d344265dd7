"""An echo server under gpunetd, on a GPU or on the CPU, and a client in another process: they meet through memory.

Run `gpunetd`, `python gpunetd_echo.py serve --device 0` (without --device it is the CPU), `python gpunetd_echo.py ask`.
"""

import argparse
import contextlib
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


def echo(net: int, listener: int) -> None:
    data = bytearray(ROOM)
    while (socket := cpu.accept(net, listener)) > 0:
        while (n := cpu.recv(net, socket, data)) > 0:
            cpu.send(net, socket, data, n)
        cpu.close(net, socket)


def serve_on_cpu(attachment: gpunet.Attachment, listener: int) -> None:
    with attachment.launch() as net:
        cpu.run(net, echo, listener, blocks=BLOCKS)


def serve_on_gpu(attachment: gpunet.Attachment, listener: int) -> None:
    import cupy
    import numpy as np

    import gpunet.cupy

    cupy.cuda.Device(attachment.device_id).use()
    # The kernel is loaded and its memory is taken before it waits.
    kernel, memory = gpunet.cupy.compile(SOURCE).get_function("echo"), cupy.zeros(ROOM * BLOCKS, np.uint8)
    stream = cupy.cuda.Stream(non_blocking=True)
    with attachment.launch(stream) as net, stream:
        kernel((BLOCKS,), (128,), (np.uint64(net), np.int32(listener), memory, np.int32(ROOM)))


def ask(proxy: gpunet.Proxy, port: int) -> None:
    with proxy.connect(("127.0.0.1", port), timeout=10) as socket:
        took = []
        for turn in range(1000):
            began = time.perf_counter()
            socket.sendall(turn.to_bytes(64))
            assert int.from_bytes(socket.recv_exact(64)) == turn
            took.append(time.perf_counter() - began)
        print(f"{socket.transport}: 64 bytes come back in {statistics.median(took) * 1e6:.0f} us")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["serve", "ask"])
    for option, kind in (("--port", int), ("--device", int), ("--daemon", str)):
        parser.add_argument(option, type=kind)
    options = parser.parse_args()
    port = 7777 if options.port is None else options.port
    with contextlib.suppress(KeyboardInterrupt), gpunet.attach(options.daemon) as proxy:
        if options.what == "ask":
            ask(proxy, port)
        else:
            with proxy.attach_cpu() if options.device is None else proxy.attach_cuda(options.device) as attachment:
                listener = attachment.listen(("127.0.0.1", port))
                print(f"listening on {listener.getsockname()[1]}", flush=True)
                (serve_on_cpu if options.device is None else serve_on_gpu)(attachment, listener.device_number())
