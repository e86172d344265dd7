"""A Numba kernel that streams numbers:  python numba_numbers.py  and  nc 127.0.0.1 7777 | head"""

import sys

import numpy as np

import gpunet
from gpunet.numba import accept, close, cuda, send

LINES, WIDTH = 128, 12


@cuda.jit
def numbers(net, listener, text):
    """Sends lines of increasing numbers to one client after the other."""
    thread = cuda.threadIdx.x
    socket = accept(net, listener)
    while socket >= 0:
        first = 0
        sent = 1
        while sent > 0:
            # Each thread writes one line.
            value = first + thread
            for at in range(WIDTH - 1):
                text[thread * WIDTH + WIDTH - 2 - at] = 48 + value % 10
                value //= 10
            text[thread * WIDTH + WIDTH - 1] = 10
            sent = send(net, socket, text)
            first += LINES
        close(net, socket)
        socket = accept(net, listener)


def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 7777
    text = cuda.device_array(LINES * WIDTH, np.uint8)
    stream = cuda.stream()
    with gpunet.open() as proxy, proxy.attach_cuda(0) as device:
        listener = device.listen(("127.0.0.1", port))
        print(f"listening on {listener.getsockname()[1]}", flush=True)
        with device.launch(stream) as net:
            numbers[1, LINES, stream](net, listener.device_number(), text)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
