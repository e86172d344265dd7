"""Channels with numpy and torch: every type that they have, and the examples."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
import threading
from typing import Any

import pytest
from kernel_lanes import lane

import gpunet

np = lane("numpy")

EXAMPLES = pathlib.Path(os.environ.get("GPUNET_DOCUMENT", pathlib.Path(__file__).parents[2] / "docs/python.md")).parents[1]
HAS_TORCH = importlib.util.find_spec("torch") is not None


def exchange(sent: Any, **how: Any) -> Any:
    """What comes at the other end."""
    with gpunet.Channel.listen(("127.0.0.1", 0)) as listener:
        accepted: list[gpunet.Channel] = []
        accepting = threading.Thread(target=lambda: accepted.append(listener.accept(timeout=10)))
        accepting.start()
        with gpunet.Channel.connect(listener.getsockname()) as near:
            accepting.join(10)
            with accepted[0] as far:
                sending = near.send_async(sent)
                got = far.recv(timeout=20, **how)
                sending.wait(20)
                return got


@pytest.mark.parametrize("size", [3, 100_000])
def test_types_of_numpy(size: int) -> None:
    rng = np.random.default_rng(size)
    arrays = {
        kind: rng.integers(0, 100, (size, 2)).astype(kind)
        for kind in (*np.typecodes["AllInteger"], "e", "f", "d", "F", "D", "?")
    }
    arrays |= {"scalar": np.array(1.5), "none": np.empty((0, 4)), "ones": np.ones((1, 1, size))}
    got = exchange(arrays)
    for name, array in arrays.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape and (got[name] == array).all(), name
    assert (exchange(arrays["f"]) == arrays["f"]).all()


def test_what_numpy_cannot_send() -> None:
    table = np.zeros((4, 4))
    for array, kind, text in (
        (table.T[1:], BufferError, "numpy.ascontiguousarray"),
        (table[:, 1], BufferError, "not C-contiguous"),
        (table.astype(">f8"), TypeError, "no number in DLPack"),
        (np.zeros(3, [("a", "i4"), ("b", "f4")]), TypeError, "no number in DLPack"),
        (np.array([object()]), TypeError, "Python objects"),
        (np.array(["text"]), TypeError, "no number in DLPack"),
    ):
        with pytest.raises(kind, match=text):
            exchange(array)
    with pytest.raises(BufferError, match="not C-contiguous") as named:
        exchange({"table": table[::2]})
    assert 'it is the array "table"' in named.value.__notes__


def test_types_that_numpy_lacks() -> None:
    class Half:
        """An array of bfloat16, as torch gives it."""

        def __init__(self, memory: gpunet.Memory) -> None:
            self._memory = memory

        def __dlpack__(self, **keywords: Any) -> Any:
            return self._memory.__dlpack__(**{**keywords, "stream": None})

        def __dlpack_device__(self) -> tuple[int, int]:
            return self._memory.__dlpack_device__()

    with gpunet.embed(sockets=16, shared_rings=1 << 20) as net, net.attach_cpu() as cpu:
        box = gpunet.TeamListener().lead(cpu, 1).alloc((4, 2), "bfloat16")
        if importlib.util.find_spec("ml_dtypes") is None:
            with pytest.raises(TypeError, match="numpy has no bfloat16; install ml_dtypes, or receive to='torch'"):
                exchange(Half(box))
        got = exchange({"box": Half(box)}, to=lambda name, dtype, shape: np.ones(2 * 8, "u1") if dtype == "bfloat16" else None)
        assert not got["box"].any()


@pytest.mark.skipif(not HAS_TORCH, reason="NOT RUN: torch is not installed; tests/gpu.py does it on a GPU")
def test_types_of_torch() -> None:
    import torch  # type: ignore[import-not-found, unused-ignore]

    kinds = "bfloat16 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 bool complex64 float8_e4m3fn float8_e5m2"
    arrays = {kind: (torch.arange(60_000).reshape(300, 200) % 50).to(getattr(torch, kind)) for kind in kinds.split()}
    arrays |= {"scalar": torch.tensor(2.0), "none": torch.empty(0, 3), "weight": torch.nn.Linear(3, 3).weight}
    got = exchange(arrays, to="torch")
    for name, tensor in arrays.items():
        same = got[name].dtype == tensor.dtype and got[name].shape == tensor.shape
        assert same and got[name].tolist() == tensor.tolist(), name
    for tensor, text in (
        (arrays["float32"].T, "not C-contiguous"),
        (arrays["bfloat16"][:, ::2], "not C-contiguous"),
        (arrays["complex64"].conj(), "resolve_conj"),
    ):
        with pytest.raises(BufferError, match=text):
            exchange(tensor)


def run(example: str, *arguments: str) -> str:
    path = EXAMPLES / "python/examples" / example
    assert len(path.read_text().splitlines()) < 80
    done = subprocess.run([sys.executable, str(path), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.skipif(not EXAMPLES.joinpath("python/examples").exists(), reason="NOT RUN: set GPUNET_DOCUMENT")
def test_the_example_of_numpy() -> None:
    lines = run("channel_numpy.py").splitlines()
    assert len(lines) == 3 and lines[-1].endswith("w is 0.512"), lines


@pytest.mark.skipif(not HAS_TORCH, reason="NOT RUN: torch is not installed; tests/gpu.py runs it on a GPU")
def test_the_example_of_torch() -> None:
    lines = run("channel_torch.py", "cpu").splitlines()
    assert [line for line in lines if line.startswith("serving")] == [f"serving with {step}.0" for step in range(3)]
