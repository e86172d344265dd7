"""One member of a team whose kernels exchange an array: `gpu_team.py triton|numba`, under torchrun's environment."""

import os
import sys

import numpy as np

import gpunet

N = 1 << 20
SIGNAL = 5


def check(condition, *words):
    if not condition:
        raise SystemExit(" ".join(map(str, words)))


def by_triton(device, team, box, other):
    import torch
    import triton
    import triton.language as tl

    import gpunet.triton as gt

    @triton.jit(do_not_specialize=["net", "team", "memory", "other"])
    def exchange(net, team, memory, data, n, other, out, SIGNAL: tl.constexpr):
        half = n // 2
        tl.store(out, gt.put(net, team, memory, 0, data, half, other))
        tl.store(out + 1, gt.put_signal(net, team, memory, half, data + half // 4, half, SIGNAL, 7, other))
        tl.store(out + 2, gt.signal_wait(net, team, SIGNAL, other, 7, 30_000_000_000))
        tl.store(out + 3, gt.barrier(net, team, 30_000_000_000))
        tl.store(out + 4, gt.signal_wait(net, team, SIGNAL, other, 8, 1_000_000))
        tl.store(out + 5, gt.put(net, team, memory, n - 4, data, 8, other))
        tl.store(out + 6, gt.signal_set(net, team, SIGNAL, 8, 99))
        tl.store(out + 7, gt.put(net, team * 0, memory, 0, data, 8, other))

    torch.cuda.set_device(device.device_id)
    data = torch.arange(N, dtype=torch.float32, device="cuda") + team.rank * N
    out, stream = torch.zeros(8, dtype=torch.int64, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with device.launch(stream) as net, torch.cuda.stream(stream):
        numbers = (team.device_number(), box.device_number())
        exchange[(1,)](net, *numbers, data, N * 4, other, out, SIGNAL)
    return out.tolist(), torch.from_dlpack(box).cpu().numpy()


def by_numba(device, team, box, other):
    import gpunet.numba as gn
    from gpunet.numba import cuda

    FOREVER = 30_000_000_000

    @cuda.jit
    def exchange(net, team, memory, data, other, out):
        half = data.size * 2
        # All threads store the same.
        out[0] = gn.put(net, team, memory, 0, data, half, other)
        out[1] = gn.put_signal(net, team, memory, half, data[data.size // 2 :], None, SIGNAL, 7, other)
        out[2] = gn.signal_wait(net, team, SIGNAL, other, 7, FOREVER)
        out[3] = gn.barrier(net, team, FOREVER)
        out[4] = gn.signal_wait(net, team, SIGNAL, other, 8, 1_000_000)
        out[5] = gn.put(net, team, memory, data.size * 4 - 4, data, 8, other)
        out[6] = gn.signal_set(net, team, SIGNAL, 8, 99)
        out[7] = gn.put(net, team * 0, memory, 0, data, 8, other)

    data = cuda.to_device(np.arange(N, dtype=np.float32) + team.rank * N)
    out, stream = cuda.to_device(np.zeros(8, np.int64)), cuda.stream()
    cuda.synchronize()
    with device.launch(stream) as net:
        numbers = (np.uint64(net), np.uint64(team.device_number()), np.uint64(box.device_number()))
        exchange[1, 128, stream](*numbers, data, other, out)
    return out.copy_to_host().tolist(), cuda.as_cuda_array(box).copy_to_host()


def main():
    exchange = {"triton": by_triton, "numba": by_numba}[sys.argv[1]]
    with gpunet.embed(sockets=16) as proxy, proxy.attach_cuda(int(os.environ["LOCAL_RANK"])) as device:
        with gpunet.Team.launched(device) as team:
            box, other = team.alloc(N, "float32"), 1 - team.rank
            out, got = exchange(device, team, box, other)
            check(out == [0, 0, 7, 0, -11, -22, -22, -100], "the calls returned", out)
            check((got == np.arange(N, dtype=np.float32) + other * N).all(), "wrong numbers came")
            print(f"member {team.rank}: {N} numbers came", flush=True)


if __name__ == "__main__":
    main()
