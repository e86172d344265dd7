"""Programs: ``python -m gpunet echo | probe | diagnose | tensors``. docs/python.md has them."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import gpunet
from gpunet import _native
from gpunet._tensors import tensors

OK, LACKS, FAILS, USAGE = 0, 1, 2, 64
"""Exit codes, as gpunet-diagnose's."""

ROOM, THREADS = 64 << 10, 128
"""Bytes of a block's buffer; threads of a block on a GPU."""

SOURCE = r"""
#include <gpunet.h>

// Each block serves one connection after the other.
extern "C" __global__ void echo(gpunet_net_t net, int listener, unsigned char *memory, int room) {
    unsigned char *data = memory + (unsigned long long)blockIdx.x * room;
    for (;;) {
        const int socket = gpunet_accept(net, listener);
        if (socket < 0) return;
        for (;;) {
            const long long n = gpunet_recv(net, socket, data, room);
            if (n <= 0 || gpunet_send(net, socket, data, n, MSG_WAITALL) != n) break;
        }
        gpunet_close(net, socket);
    }
}
"""

Start = Callable[["gpunet.Attachment", "gpunet.DeviceListener", int], "tuple[gpunet.Launch, object]"]
"""Starts the echo kernel of some blocks: its launch, and what has to be kept until that has ended."""


def on_cpu(device: gpunet.Attachment, listener: gpunet.DeviceListener, blocks: int) -> tuple[gpunet.Launch, object]:
    from gpunet import cpu

    def echo(net: int, number: int) -> None:
        data = bytearray(ROOM)
        while (stream := cpu.accept(net, number)) > 0:
            while (n := cpu.recv(net, stream, data)) > 0 and cpu.send(net, stream, data, n) == n:
                pass
            cpu.close(net, stream)

    launch = device.launch()
    cpu.run(launch.net, echo, listener.device_number(), blocks=blocks)
    return launch, None


def by_cuda_core(device: gpunet.Attachment, listener: gpunet.DeviceListener, blocks: int) -> tuple[gpunet.Launch, object]:
    import numpy as np  # type: ignore[import-not-found, unused-ignore]
    from cuda.core import Device, LaunchConfig, launch

    from gpunet import cuda_core

    gpu = Device(device.device_id)
    gpu.set_current()
    kernel, stream = cuda_core.compile(SOURCE).get_kernel("echo"), gpu.create_stream()
    memory, running = device.alloc(blocks * ROOM), device.launch(stream)
    arguments = np.uint64(running.net), np.int32(listener.device_number()), np.uint64(memory.address), np.int32(ROOM)
    launch(stream, LaunchConfig(grid=blocks, block=THREADS), kernel, *arguments)
    return running, (memory, stream, kernel)


def by_cupy(device: gpunet.Attachment, listener: gpunet.DeviceListener, blocks: int) -> tuple[gpunet.Launch, object]:
    import cupy
    import numpy as np  # type: ignore[import-not-found, unused-ignore]

    from gpunet import cupy as compiler

    with cupy.cuda.Device(device.device_id):
        kernel, stream = compiler.compile(SOURCE).get_function("echo"), cupy.cuda.Stream(non_blocking=True)
        memory, running = device.alloc(blocks * ROOM), device.launch(stream)
        arguments = np.uint64(running.net), np.int32(listener.device_number()), np.uint64(memory.address), np.int32(ROOM)
        with stream:
            kernel((blocks,), (THREADS,), arguments)
    return running, (memory, stream, kernel)


def for_gpu() -> Start:
    """Chooses who compiles and launches CUDA C++. Raises ImportError, which says what to install."""
    for package, start in (("cuda.core", by_cuda_core), ("cupy", by_cupy)):
        try:
            __import__(package)
        except ImportError:
            continue
        return start
    raise ImportError("a kernel in CUDA C++ needs cuda.core or CuPy: pip install 'gpunet[cuda-core]' or 'gpunet[cupy]'")


# ---- echo ----


def interrupt(signal_: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def echo(options: argparse.Namespace) -> int:
    """Serves until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, interrupt)
    start = on_cpu if options.device is None else for_gpu()
    with gpunet.open(options.daemon) as proxy:
        device = proxy.attach_cpu() if options.device is None else proxy.attach_cuda(options.device)
        with device, device.listen((options.host, options.port)) as listener:
            launch, _kept = start(device, listener, options.blocks)
            host, port = listener.getsockname()[:2]
            found = {"host": host, "port": port, "device": device.device, "blocks": options.blocks}
            text = f"listening on {host} port {port}: {options.blocks} blocks on {device.device}; Ctrl-C ends it"
            print(json.dumps(found) if options.json else text, flush=True)
            try:
                # Until it fails, or is interrupted, which cancels it.
                launch.finish()
            except KeyboardInterrupt:
                return OK
    print("gpunet: the kernel has ended by itself", file=sys.stderr)
    return FAILS


# ---- probe ----


def probe(options: argparse.Namespace) -> int:
    """What the machine offers, and why something is not used."""
    text, found = _native.probe()
    versions = {"gpunet": gpunet.__version__, "python": platform.python_version(), "linux": platform.release()}
    if options.json:
        print(json.dumps(versions | found, indent=2))
    else:
        print(*(f"{name}: {version}" for name, version in versions.items()), text, sep="\n", end="")
    return OK


# ---- diagnose ----


def exchange(proxy: gpunet.Proxy, listener: gpunet.DeviceListener, transport: Any) -> str:
    """Sends bytes to the kernel and compares what comes back; returns what was seen."""
    data = os.urandom(1 << 20)
    began = time.monotonic()
    with proxy.connect(listener.getsockname(), transport=transport, timeout=20) as stream:
        stream.settimeout(20)
        at = 0
        back = bytearray()
        # No more than the rings hold is under way.
        while at < len(data):
            stream.sendall(data[at : at + 16384])
            back += stream.recv_exact(len(data[at : at + 16384]))
            at += 16384
        stream.shutdown(socket.SHUT_WR)
        if stream.recv(1) or back != data:
            raise ValueError("other bytes came back than were sent")
        if stream.transport != transport:
            raise ValueError(f"it went over {stream.transport}")
    return f"{len(data)} bytes were echoed in {(time.monotonic() - began) * 1e3:.0f} ms"


def one_check(name: str, subject: str, status: str, evidence: str, advice: str | None = None) -> dict[str, str | None]:
    return {"id": name, "subject": subject, "status": status, "evidence": evidence, "advice": advice}


def selftest(proxy: gpunet.Proxy, subject: str, ordinal: int | None, start: Start) -> list[dict[str, str | None]]:
    """Echo by kernels of one device, over tcp and through memory."""
    checks = []
    for transport in ("tcp", "peer"):
        try:
            device = proxy.attach_cpu() if ordinal is None else proxy.attach_cuda(ordinal)
            with device, device.listen(("127.0.0.1", 0)) as listener:
                launch, _kept = start(device, listener, 1)
                try:
                    seen = exchange(proxy, listener, transport)
                finally:
                    launch.cancel()
                    launch.finish()
            checks.append(one_check(f"selftest.{transport}", subject, "ok", seen))
        except (OSError, EOFError, RuntimeError, ValueError, MemoryError) as error:
            seen, advice = f"{type(error).__name__}: {error}", "gpunet-diagnose finds what the machine lacks"
            checks.append(one_check(f"selftest.{transport}", subject, "missing", seen, advice))
    return checks


def diagnose(options: argparse.Namespace) -> int:
    """Tests echo on the CPU, and on each GPU."""
    _, found = _native.probe()
    checks = []
    with gpunet.embed(sockets=64, shared_rings=16 << 20, linger_s=2) as proxy:
        checks += selftest(proxy, "cpu", None, on_cpu)
        if not found["devices"]:
            missing = found["driver"].get("missing") or "the driver has no GPU"
            checks.append(one_check("gpu.devices", "gpu", "missing", missing, "kernels run on the CPU: gpunet.cpu"))
        for gpu in found["devices"]:
            subject = f"cuda:{gpu['ordinal']}"
            try:
                start = for_gpu()
            except ImportError as error:
                checks.append(one_check("selftest.tcp", subject, "unknown", f"{gpu['name']}: not tried", str(error)))
                continue
            checks += selftest(proxy, subject, gpu["ordinal"], start)
    failed = [check for check in checks if check["status"] == "missing" and check["id"] != "gpu.devices"]
    code = FAILS if failed else OK if all(check["status"] == "ok" for check in checks) else LACKS
    if options.json:
        print(json.dumps({"version": gpunet.__version__, "checks": checks, "exit_code": code}, indent=2))
        return code
    for check in checks:
        print(f"{check['status']:<9} {check['id']:<14} {check['subject']:<7} {check['evidence']}")
        if check["advice"]:
            print(f"{'':<9} -> {check['advice']}")
    print({OK: "all is well", LACKS: "gpunet works, without a GPU or untried on it", FAILS: "something does not work"}[code])
    return code


# ---- the command line ----


class Parser(argparse.ArgumentParser):
    """Its exit code for a bad command line is none of the programs'."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return int(text)

    return read


def parser() -> Parser:
    codes = "Exit codes: 0 all is well; 1 (diagnose) it works, without a GPU; 2 it does not work; 64 bad command line."
    parser = Parser(prog="python -m gpunet", description="Sockets for GPU kernels.", epilog=codes)
    parser.add_argument("--version", action="version", version=f"gpunet {gpunet.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="echo | probe | diagnose | tensors")
    for program in (echo, probe, diagnose, tensors):
        command = commands.add_parser(program.__name__, help=program.__doc__, description=program.__doc__, epilog=codes)
        command.set_defaults(program=program)
        command.add_argument("--json", action="store_true", help="print JSON")
        if program is echo:
            command.add_argument("--host", default="127.0.0.1", help="the address to listen at [%(default)s]")
            command.add_argument("--port", type=number(0, 65535), default=7777, help="its port; 0: a free one [%(default)s]")
            command.add_argument("--device", type=number(0, 1023), metavar="N", help="the GPU [the CPU]")
            command.add_argument("--blocks", type=number(1, 128), default=4, help="connections at a time [%(default)s]")
            command.add_argument("--daemon", metavar="PATH", help="the socket of gpunetd [where it listens, if it does]")
        if program is tensors:
            command.add_argument("host", nargs="?", metavar="HOST", help="where the other end listens; with --listen: here")
            command.add_argument("--listen", action="store_true", help="be the other end")
            command.add_argument("--port", type=number(0, 65535), default=7778, help="the port [%(default)s]")
            command.add_argument("--device", type=number(0, 1023), metavar="N", help="arrays of this GPU [of the CPU]")
            command.add_argument("--streams", type=number(1, 64), metavar="N", help="connections [half the CPUs, at most 8]")
            command.add_argument("--quick", action="store_true", help="smaller arrays")
    return parser


def flush() -> None:
    """Writes what was printed. What cannot be written is dropped: the interpreter would try again."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def main() -> int:
    options = parser().parse_args()
    try:
        code: int = options.program(options)
        flush()
        return code
    except BrokenPipeError:
        # Nobody reads any more.
        with contextlib.suppress(OSError):
            flush()
        return OK
    except KeyboardInterrupt:
        return 130
    except (OSError, RuntimeError, ValueError, ImportError) as error:
        print(f"gpunet: {error}", file=sys.stderr)
        return FAILS


if __name__ == "__main__":
    sys.exit(main())
