"""Arrays of numpy through queues, memory and symmetric memory as arrays of numpy, and the example of a team."""

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import in_thread
from kernel_lanes import lane

import gpunet

np = lane("numpy")

BESIDE = pathlib.Path(__file__).parents[2] / "docs/python.md"
EXAMPLES = pathlib.Path(os.environ.get("GPUNET_DOCUMENT", BESIDE)).parents[1] / "python/examples"


@pytest.fixture
def cpu(net):
    with net.attach_cpu() as attachment:
        yield attachment


@pytest.fixture
def ends(cpu):
    with cpu.listen(("127.0.0.1", 0), transport="peer") as listener:
        accepted = in_thread(lambda: listener.accept(timeout=10)[0])
        with cpu.connect(listener.getsockname(), timeout=10, transport="peer") as near, accepted() as far:
            yield near, far


class Tensor:
    """What has DLPack alone, as a torch tensor on the CPU."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **keywords):
        return self._array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["float32", "<i8", "complex128", "float16", "?", "M8[s]", "i4,f8"])
def test_arrays_of_every_type(cpu, ends, dtype):
    sent = np.arange(600, dtype="u1").view(dtype) if dtype == "i4,f8" else np.ones((5, 7, 3)).astype(dtype)
    got = np.zeros_like(sent)
    with gpunet.Queue(cpu) as queue:
        queue.send(ends[0], sent)
        queue.recv(ends[1], got)
    assert got.tobytes() == sent.tobytes()


def test_tensors(cpu, ends):
    sent, got = np.arange(24, dtype="f4").reshape(4, 6), np.zeros((3, 6), "f4")
    with gpunet.Queue(cpu) as queue:
        queue.send(ends[0], Tensor(sent[1:]))
        queue.recv(ends[1], Tensor(got))
        queue.synchronize(10)
        assert (got == sent[1:]).all()
        with pytest.raises(BufferError, match="not C-contiguous"):
            queue.send(ends[0], Tensor(sent.T))
        with pytest.raises(BufferError, match="not C-contiguous"):
            queue.send(ends[0], sent[:, 1:])
        with pytest.raises(TypeError, match="Python objects or pointers"):
            queue.recv(ends[1], np.array([None, {}]))
        sent.flags.writeable = False
        with pytest.raises(BufferError, match="read-only"):
            queue.recv(ends[1], sent)
        # A structure whose fields have names like formats.
        queue.send(ends[0], np.zeros(2, [("O", "i4"), ("P", "f4")]))


def test_memory_is_an_array(cpu):
    memory = cpu.alloc(64)
    array, tensor = np.frombuffer(memory, "f8"), np.from_dlpack(memory)
    array[3] = 2.5
    assert tensor.view("f8")[3] == 2.5 and tensor.shape == (64,) and tensor.dtype == "u1"
    with gpunet.TeamListener().lead(cpu, 1) as team:
        for dtype in ("f2", np.float32, np.dtype("int16"), bool, complex, "uint64"):
            symmetric = team.alloc((2, 3), dtype)
            array, tensor, part = np.asarray(symmetric), np.from_dlpack(symmetric), np.asarray(symmetric.part(0))
            array[1, 2] = 1
            assert array.dtype == tensor.dtype == np.dtype(dtype) and array.shape == tensor.shape == (2, 3)
            assert tensor[1, 2] == part[1, 2] == 1 and array.sum() == 1
        assert np.asarray(team.alloc((), "i4")).shape == () and np.asarray(team.alloc((4, 0))).shape == (4, 0)
    assert tensor[1, 2] == 1


def test_the_example_of_a_team():
    done = subprocess.run([sys.executable, EXAMPLES / "team_moe.py", "3"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"member {rank} of 3: 1536 tokens went to 3 experts and back" for rank in range(3)
    ]
