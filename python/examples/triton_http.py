"""A web server that is a Triton kernel:  python triton_http.py  and  curl http://127.0.0.1:8080"""

import sys

import torch
import triton
import triton.language as tl

import gpunet
import gpunet.triton as gt

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 24\r\nConnection: close\r\n\r\n"
BODY = b"hello, request 00000000\n"
DIGITS = tl.constexpr(len(HEAD) + BODY.index(b"0"))
ROOM = tl.constexpr(8192)


@triton.jit
def ends_with_blank_line(request, size):
    """Whether the bytes end with CR LF CR LF."""
    last = tl.load(request + size - 4).to(tl.int32)
    for at in tl.static_range(1, 4):
        last = last * 256 + tl.load(request + size - 4 + at).to(tl.int32)
    return last == 0x0D0A0D0A


@triton.jit(do_not_specialize=["net", "listener"])
def serve(net, listener, request, reply, reply_size):
    """Answers one request after the other until the launch is cancelled."""
    served = 0
    socket = gt.accept(net, listener)
    while socket >= 0:
        size = tl.zeros((), tl.int64)
        n = gt.recv(net, socket, request, ROOM)
        whole = False
        while (n > 0) & (not whole):
            size += n
            if size >= 4:
                whole = ends_with_blank_line(request, size)
            if not whole:
                n = gt.recv(net, socket, request + size, ROOM - size)
        if whole:
            served += 1
            rest = served
            for at in tl.static_range(8):
                tl.store(reply + DIGITS + 7 - at, (48 + rest % 10).to(tl.uint8))
                rest = rest // 10
            gt.send(net, socket, reply, reply_size)
        gt.close(net, socket)
        socket = gt.accept(net, listener)


def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    request = torch.zeros(ROOM.value, dtype=torch.uint8, device="cuda")
    reply = torch.tensor(list(HEAD + BODY), dtype=torch.uint8, device="cuda")
    stream = torch.cuda.Stream()
    with gpunet.open() as proxy, proxy.attach_cuda(torch.cuda.current_device()) as device:
        listener = device.listen(("127.0.0.1", port))
        print(f"listening on {listener.getsockname()[1]}", flush=True)
        with device.launch(stream) as net, torch.cuda.stream(stream):
            serve[(1,)](net, listener.device_number(), request, reply, reply.numel())


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
