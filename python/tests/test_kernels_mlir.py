"""The same for numba-cuda-mlir."""

import importlib.util
import pathlib
import subprocess
import sys

from kernel_lanes import check_linked, instructions, lane

# Not imported here: gpunet.numba would take it for the one that the other lane means.
if importlib.util.find_spec("numba_cuda_mlir") is None:
    lane("numba_cuda_mlir")
lane("triton")  # nvdisasm

PROGRAM = """
import pathlib, sys
import numba_cuda_mlir.compiler, numba_cuda_mlir.tools
import gpunet.numba as gn
from gpunet.numba import cuda, types
class Device:
    compute_capability = (9, 0)
cuda.get_current_device = Device

def echo(net, listener, buffer):
    shared = cuda.shared.array(64, types.uint8)
    socket = gn.accept(net, listener)
    n = gn.recv(net, socket, buffer)
    while n > 0:
        gn.send(net, socket, buffer, n)
        n = gn.recv(net, socket, buffer, timeout_ns=1000)
    gn.recv_exact_warp(net, socket, shared)
    gn.close(net, socket)
    gn.barrier(net, net)

print(cuda.__name__)
for capability in (8, 0), (9, 0), (10, 0):
    # It asks the driver otherwise.
    numba_cuda_mlir.tools._cached_cc = Device.compute_capability = capability
    signature = types.void(types.uint64, types.int64, types.Array(types.uint8, 1, "C"))
    cubin = numba_cuda_mlir.compiler.compile_cubin(echo, signature)
    pathlib.Path(sys.argv[1], "sm_%d%d.cubin" % capability).write_bytes(cubin)
"""


def test_a_kernel_is_linked_with_the_calls_that_it_makes(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["numba_cuda_mlir.cuda"], done.stderr[-3000:]
    assert done.returncode == 0, done.stderr[-3000:]
    calls = {f"gpunet_{name}" for name in ("accept_timeout", "recv_timeout", "recv_timeout_warp", "send_timeout", "close")}
    for architecture in ("sm_80", "sm_90", "sm_100"):
        cubin = pathlib.Path(tmp_path, f"{architecture}.cubin").read_bytes()
        code = instructions(cubin, tmp_path)
        assert f".target\t{architecture}\n" in code
        check_linked(cubin, calls, code)
