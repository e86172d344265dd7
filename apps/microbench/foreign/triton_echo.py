"""Echo servers in Python, for `gpunet-bench servers triton`:

    triton_echo.py kernel N     a Triton kernel on GPU N, which accepts, receives and sends
    triton_echo.py host N       this program, which copies what it receives to GPU N and back

Each prints where it listens, and serves one connection after the other until it is killed.
"""

import socket
import sys

import torch

ROOM = 1 << 16


def listening(port: int) -> None:
    print(f"listening on 127.0.0.1:{port}", flush=True)


if sys.argv[1] == "kernel":
    import triton

    import gpunet
    import gpunet.triton as gt

    @triton.jit(do_not_specialize=["net", "listener"])
    def echo(net, listener, buffer, size):
        stream = gt.accept(net, listener)
        while stream >= 0:
            n = gt.recv(net, stream, buffer, size)
            while n > 0:
                gt.send(net, stream, buffer, n)
                n = gt.recv(net, stream, buffer, size)
            gt.close(net, stream)
            stream = gt.accept(net, listener)

    def kernel(gpu: int) -> None:
        buffer, stream = torch.zeros(ROOM, dtype=torch.uint8, device="cuda"), torch.cuda.Stream()
        with gpunet.open() as proxy, proxy.attach_cuda(gpu) as device, device.listen(("127.0.0.1", 0)) as listener:
            with device.launch(stream) as net, torch.cuda.stream(stream):
                echo[(1,)](net, listener.device_number(), buffer, buffer.numel())
                listening(listener.getsockname()[1])


def host(gpu: int) -> None:
    there = torch.zeros(ROOM, dtype=torch.uint8, device="cuda")
    here = torch.zeros(ROOM, dtype=torch.uint8).pin_memory()
    view = memoryview(here.numpy())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listening(listener.getsockname()[1])
        while True:
            stream, _ = listener.accept()
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with stream:
                while n := stream.recv_into(view):
                    there[:n].copy_(here[:n], non_blocking=True)
                    here[:n].copy_(there[:n], non_blocking=True)
                    torch.cuda.current_stream().synchronize()
                    stream.sendall(view[:n])


if __name__ == "__main__":
    which, gpu = sys.argv[1], int(sys.argv[2])
    torch.cuda.set_device(gpu)
    kernel(gpu) if which == "kernel" else host(gpu)
