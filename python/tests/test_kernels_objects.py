"""The objects of a released wheel: each is taken by every linker that knows its architecture.

`GPUNET_OBJECTS` names the architectures that the wheel must have. `GPUNET_LINKERS` is a folder of
`utils/release/objects --linkers`; the linker of this environment is tried as well.
"""

import os
import pathlib
import re
import struct
import subprocess
import sys

import pytest

from gpunet import _link

ALL = os.environ.get("GPUNET_LANES") == "all"
WANTED = os.environ.get("GPUNET_OBJECTS", "").split()
LINKERS = sorted(pathlib.Path(os.environ.get("GPUNET_LINKERS", "/nonexistent")).glob("*/nvidia/*/lib/libnvJitLink.so.*"))
OBJECTS = sorted(path.name for path in (_link.SHIPPED / _link.device_hash()).glob("*.o.xz"))

if not OBJECTS and not ALL:
    pytest.skip("NOT RUN: this wheel has no objects", allow_module_level=True)

# One linker a process: two of one major version are not both themselves. It prints for each object and
# architecture how many bytes were linked.
PROGRAM = """
import ctypes, re, sys
path, *objects = sys.argv[1:]
if path:
    ctypes.CDLL(path)
from gpunet import _link
from kernel_lanes import KERNEL, functions
def no_ptx(*arguments):
    raise SystemExit("the PTX would have been linked: " + repr(arguments[2]))
_link._link_ptx = no_ptx
version = _link.linker_version()
print("nvJitLink", *version)
for name in objects:
    architecture, limit = map(int, re.findall("[0-9]+", name))
    if version < {100: (12, 8), 120: (12, 8), 103: (12, 9)}.get(architecture, (12, 0)):
        continue
    for suffix in ["", "a"] if architecture >= 90 else [""]:
        cubin = _link.link(KERNEL, f"sm_{architecture}{suffix}", 512 if limit == 128 else 256, kind=_link.PTX)
        assert functions(cubin)["gpunet_close"], "it is not linked"
        print(f"sm_{architecture}{suffix}-{limit}", len(cubin), "bytes")
"""


def registers(data):
    """The most registers that a function of an object takes, as the section .nv.info says."""
    (sections,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<3H", data, 58)
    headers = [struct.unpack_from("<2I4Q", data, sections + size * at) for at in range(count)]
    most = 0
    for name, _, _, _, at, length in headers:
        name += headers[names][4]
        if data[name : data.index(b"\0", name)] != b".nv.info":
            continue
        end = at + length
        while at < end:  # attributes: format, kind, and behind format 4 a size and a value
            form, kind, more = struct.unpack_from("<BBH", data, at)
            if (form, kind) == (4, 0x2F):  # the registers of a function
                most = max(most, struct.unpack_from("<2I", data, at + 4)[1])
            at += 4 + (more if form == 4 else 0)
    return most


@pytest.mark.skipif(not ALL, reason="NOT RUN: GPUNET_LANES=all is for whoever says what there must be")
def test_the_wheel_has_what_is_wanted():
    assert WANTED, "GPUNET_OBJECTS names no architecture"
    assert LINKERS, "GPUNET_LINKERS names no folder with linkers"
    assert {f"{name}-{limit}.o.xz" for name in WANTED for limit in (255, 128)} == set(OBJECTS)


@pytest.mark.parametrize("linker", [None, *LINKERS], ids=lambda path: path.parents[3].name if path else "installed")
def test_a_linker_takes_every_object(linker):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, linker or "", *OBJECTS],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=pathlib.Path(__file__).parent,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    version, *linked = done.stdout.splitlines()
    assert linked, "the linker knows none of the architectures"
    if linker:
        assert version.split()[1] == linker.suffix[1:], f"{linker} was not loaded, but {version}"


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_keeps_its_limit_of_registers(name):
    architecture, limit = map(int, re.findall(r"\d+", name))
    taken = registers(_link.device_object(architecture, 512 if limit == 128 else 256))
    assert (taken > 128) == (limit == 255), f"{taken} registers"
