"""The same for numba-cuda-mlir."""

import importlib.util
import subprocess
import sys

from kernel_lanes import lane

# Not imported here: gpunet.numba would take it for the one that the other lane means.
if importlib.util.find_spec("numba_cuda_mlir") is None:
    lane("numba_cuda_mlir")

PROGRAM = """
import numba_cuda_mlir.tools
numba_cuda_mlir.tools._cached_cc = (9, 0)  # it asks the driver otherwise
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

# It links, too: a call that is not found fails.
ptx, _ = cuda.compile_ptx(echo, types.void(types.uint64, types.int64, types.Array(types.uint8, 1, "C")), cc=(9, 0))
print(cuda.__name__, "gpunet_recv_timeout_warp" in ptx)
"""


def test_a_kernel_is_compiled_and_linked():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["numba_cuda_mlir.cuda", "True"], done.stderr[-3000:]
