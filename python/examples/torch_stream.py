"""Two torch processes whose Triton kernels exchange a tensor through a stream."""

import torch
import torch.multiprocessing as multiprocessing
import triton
import triton.language as tl

import gpunet
import gpunet.triton as gt

N = 1 << 22
BLOCK = tl.constexpr(1024)


@triton.jit(do_not_specialize=["net", "socket"])
def exchange(net, socket, data, answer, n):
    """One program sends the tensor while another receives what the other kernel makes of it."""
    if tl.program_id(0) == 0:
        gt.send(net, socket, data, n * 4)
        gt.shutdown(net, socket, gt.SHUT_WR)
    else:
        gt.recv_exact(net, socket, answer, n * 4)


@triton.jit(do_not_specialize=["net", "listener"])
def double(net, listener, data):
    """Doubles numbers, a block at a time, until the stream ends."""
    socket = gt.accept(net, listener)
    lanes = tl.arange(0, BLOCK)
    n = gt.recv_exact(net, socket, data, BLOCK * 4)
    while n == BLOCK * 4:
        tl.store(data + lanes, tl.load(data + lanes) * 2)
        gt.send(net, socket, data, BLOCK * 4)
        n = gt.recv_exact(net, socket, data, BLOCK * 4)
    gt.close(net, socket)


def doubler(ports) -> None:
    data = torch.empty(BLOCK.value, device="cuda")
    stream = torch.cuda.Stream()
    with gpunet.open() as proxy, proxy.attach_cuda(0) as device:
        listener = device.listen(("127.0.0.1", 0))
        ports.put(listener.getsockname()[1])
        with device.launch(stream) as net, torch.cuda.stream(stream):
            double[(1,)](net, listener.device_number(), data)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    other = context.Process(target=doubler, args=(ports,))
    other.start()
    data, answer = torch.randn(N, device="cuda"), torch.zeros(N, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpunet.open() as proxy, proxy.attach_cuda(0) as device:
        socket = device.connect(("127.0.0.1", ports.get(timeout=60)))
        with device.launch(stream) as net, torch.cuda.stream(stream):
            exchange[(2,)](net, socket.device_number(), data, answer, N)
    other.join(60)
    print(f"doubled {N} numbers:", torch.equal(answer, data * 2), flush=True)


if __name__ == "__main__":
    main()
