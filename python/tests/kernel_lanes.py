"""What the tests of kernels share: which lanes run, and what a linked cubin has.

A lane is a kernel language. Where its packages are missing its tests are skipped, which pytest says at
the end; with GPUNET_LANES=all they fail instead, so that no lane is lost unseen.
"""

import importlib
import os
import struct
import subprocess
import sys
from types import ModuleType

import pytest

KERNEL = b"""
.version 7.0
.target sm_80
.address_size 64
.extern .func (.param .b32 func_retval0) gpunet_close(.param .b64 a, .param .b32 b);
.visible .entry k(.param .u64 net)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [net];
    {
        .param .b64 a;
        .param .b32 b;
        .param .b32 c;
        st.param.b64 [a], %rd1;
        st.param.b32 [b], 5;
        call (c), gpunet_close, (a, b);
        ld.param.b32 %r1, [c];
    }
    ret;
}
\0"""
"""A kernel that calls gpunet_close, as PTX."""


def lane(module: str) -> ModuleType:
    """Imports what a lane needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if os.environ.get("GPUNET_LANES") == "all":
            raise
        pytest.skip(f"LANE NOT RUN: {module}: {error}", allow_module_level=True)


def functions(cubin: bytes) -> dict[str, bool]:
    """The global functions in a cubin's symbol table, and whether each is defined."""
    (sections,) = struct.unpack_from("<Q", cubin, 40)
    size, count, _ = struct.unpack_from("<3H", cubin, 58)
    headers = [struct.unpack_from("<2I4Q2I2Q", cubin, sections + size * at) for at in range(count)]
    found = {}
    for header in headers:
        if header[1] != 2:  # SHT_SYMTAB
            continue
        strings = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], 24):
            name, info, _, section = struct.unpack_from("<IBBH", cubin, at)
            text = cubin[strings + name : cubin.index(b"\0", strings + name)].decode()
            if text.startswith("gpunet_") and info & 0xF in (0, 2):
                found[text] = section != 0
    return found


def instructions(cubin: bytes, folder: object) -> str:
    """A cubin's machine code as text, by the nvdisasm that Triton has."""
    from triton import knobs

    path = os.path.join(str(folder), "kernel.cubin")
    with open(path, "wb") as file:
        file.write(cubin)
    return subprocess.run(
        [knobs.nvidia.nvdisasm.path, "-c", path], check=True, capture_output=True, text=True, timeout=60
    ).stdout


def check_linked(cubin: bytes, calls: set[str], code: str) -> None:
    """The calls are defined, called, and what they read and write of other processors is so marked."""
    defined = functions(cubin)
    assert calls <= defined.keys(), f"not linked: {calls - defined.keys()}"
    assert all(defined.values()), f"undefined: {[name for name, there in defined.items() if not there]}"
    for call in calls:
        assert f"`({call})" in code, f"{call} is not called"
    for instruction in ("LD.E.64.STRONG.SYS", "ST.E.64.STRONG.SYS", "MEMBAR.ALL.SYS", "BAR.SYNC"):
        assert instruction in code, f"no {instruction}"


def import_without(module: str, *missing: str) -> str:
    """What a program says that imports a module where packages are missing."""
    program = f"import sys; sys.modules.update(dict.fromkeys({missing!r})); import {module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0, f"{module} was imported without {missing}"
    return done.stderr.splitlines()[-1]
