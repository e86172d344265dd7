"""The programs: `python -m gpunet echo | probe | diagnose | tensors`, and the example under gpunetd."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import gpunet

EXAMPLES = pathlib.Path(os.environ.get("GPUNET_DOCUMENT", pathlib.Path(__file__).parents[2] / "docs/python.md")).parents[1]
EXAMPLE = EXAMPLES / "python/examples/gpunetd_echo.py"
GPUNETD = os.environ.get("GPUNETD")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gpunet", *arguments], capture_output=True, text=True, timeout=120)


@contextmanager
def serving(*command: str, end: signal.Signals = signal.SIGINT) -> Iterator[str]:
    """A server, which has said that it listens; it ends without a word and a fault."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline()
        finally:
            server.send_signal(end)
            _, errors = server.communicate(timeout=30)
        assert (server.returncode, errors) == (0, "")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_echo_serves_until_it_is_told_to_end(end: signal.Signals) -> None:
    with serving("-m", "gpunet", "echo", "--port", "0", "--json", "--blocks", "2", end=end) as line:
        found = json.loads(line)
        assert (found["host"], found["device"], found["blocks"]) == ("127.0.0.1", "cpu", 2)
        with socket.create_connection((found["host"], found["port"]), timeout=10) as client:
            for data in (b"hello", b"x" * 200_000):
                client.sendall(data)
                with client.makefile("rb") as file:
                    assert file.read(len(data)) == data
            if end == signal.SIGINT:
                taken = run("echo", "--port", str(found["port"]))
                assert taken.returncode == 2 and "Address already in use" in taken.stderr and "Traceback" not in taken.stderr


def test_probe_says_what_there_is() -> None:
    done = run("probe")
    assert done.returncode == 0 and done.stderr == ""
    for part in (f"gpunet: {gpunet.__version__}", "python: 3.", "CUDA", "RDMA devices:", "RDMA by libibverbs: "):
        assert part in done.stdout
    found = json.loads(run("probe", "--json").stdout)
    assert found["gpunet"] == gpunet.__version__ and ("missing" in found["driver"]) == (not found["devices"])
    assert {"rdma_devices", "verbs", "cpu_mapping", "peer_memory_module"} <= set(found)


def test_output_that_nobody_takes() -> None:
    command = f"{sys.executable} -m gpunet probe"
    for how, code in ((" | true", 0), (" >&-", 0), (" > /dev/full", 2)):
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command + how], capture_output=True, text=True, timeout=60)
        assert done.returncode == code and "Traceback" not in done.stderr and "Exception" not in done.stderr, (how, done)


def test_diagnose_tries_echo() -> None:
    done = run("diagnose", "--json")
    found = json.loads(done.stdout)
    status = {(check["subject"], check["id"]): check["status"] for check in found["checks"]}
    assert status["cpu", "selftest.tcp"] == status["cpu", "selftest.peer"] == "ok"
    if ("gpu", "gpu.devices") in status:
        assert found["exit_code"] == 1
        assert "gpunet works, without a GPU" in run("diagnose").stdout
    assert done.returncode == found["exit_code"]


def test_tensors_says_what_limits_a_path() -> None:
    with serving("-m", "gpunet", "tensors", "--listen", "127.0.0.1", "--port", "0", "--json") as line:
        port = str(json.loads(line)["port"])
        done = run("tensors", "127.0.0.1", "--port", port, "--quick", "--json", "--streams", "2")
        assert done.stderr == "" and done.returncode == 0
        found = json.loads(done.stdout)
        ways = {row["way"] for row in found["rows"]}
        assert ways == {"as it comes", "connections", "one connection"} and len(found["rows"]) == 6
        assert all(row["gigabytes_per_s"] > 0 for row in found["rows"])
        assert found["rows"][-1]["via"] == "1 connection (it is switched off)"
        by_copy = "One copy moves the bytes" in found["limits"][0]
        assert by_copy == (found["why_not_copied"] is None) and (by_copy or found["why_not_copied"] in found["limits"][0])
    gone = run("tensors", "127.0.0.1", "--port", port)
    assert gone.returncode == 2 and gone.stderr.startswith("gpunet: ") and "refused" in gone.stderr
    assert run("tensors").returncode == 64


def test_a_bad_command_line_has_an_exit_code_of_its_own() -> None:
    for arguments in ((), ("nothing",), ("echo", "--port", "70000"), ("echo", "--blocks", "0"), ("probe", "--port", "1")):
        done = run(*arguments)
        assert done.returncode == 64 and "usage: python -m gpunet" in done.stderr, arguments
    assert run("--version").stdout == f"gpunet {gpunet.__version__}\n"
    refused = run("echo", "--device", "1000")
    assert refused.returncode == 2 and refused.stderr.startswith("gpunet: ") and "Traceback" not in refused.stderr


@pytest.mark.skipif(not GPUNETD, reason="NOT RUN: set GPUNETD=/path/to/gpunetd")
@pytest.mark.skipif(not EXAMPLE.exists(), reason="NOT RUN: set GPUNET_DOCUMENT=/path/to/docs/python.md")
def test_the_example_under_gpunetd(daemon: tuple[str, subprocess.Popen[bytes]]) -> None:
    path, _ = daemon
    assert len(EXAMPLE.read_text().splitlines()) < 80
    with serving(str(EXAMPLE), "serve", "--port", "0", "--daemon", path) as line:
        port = line.split()[-1]
        asked = subprocess.run(
            [sys.executable, str(EXAMPLE), "ask", "--port", port, "--daemon", path], capture_output=True, text=True, timeout=60
        )
    assert asked.stderr == "" and asked.stdout.startswith("peer: 64 bytes come back in "), asked
