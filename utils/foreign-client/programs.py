"""The server programs of this repository: how each is started, driven and ended."""

import contextlib
import re
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass

from protocols import Counter, Echo, KeyValue, Rstream
from tokens import Tokens

# The port of the documentation's programs, which say nothing when they listen.
DOCUMENTED = ("127.0.0.1", 7777)
# Longer than any program takes to start (a GPU's driver assembles its kernels) or to end.
STARTS, ENDS = 120, 60


@dataclass
class Program:
    """A server program in one shape."""

    title: str
    command: list
    protocol: object
    # Connections at a time.
    at_a_time: int = 100
    # Its part of the time.
    weight: float = 1
    # None: it says where it listens.
    address: tuple = None
    # What ends it: a signal or Enter, or, after one connection, nothing.
    end: str = "signal"
    # Exit codes: of some programs also that of a server whose clients break off.
    codes: tuple = (0,)


def echo(path, device):
    """gpunet-echo: places for few more than come at a time, so that one which is not given back is missed."""
    shapes = ((1, 1, 1), (2, 1, 1), (16, 1, 2), (8, 2, 2), (2, 3, 1)) if device == "cpu" else ((16, 256, 2), (64, 32, 1), (1, 128, 1))
    for blocks, threads, weight in shapes:
        shape = ["--device", device, "--blocks", str(blocks), "--threads", str(threads), "--connections", "128"]
        yield Program(f"echo-{blocks}x{threads}", [path, "server", "127.0.0.1:0", *shape], Echo(), weight=weight)


def kv(path, device):
    """gpunet-kv, which waits long for the rest of a request: a place whose client is gone has to come back before."""
    shapes = ((1, 1, 1), (2, 1, 1), (16, 1, 1), (4, 2, 1)) if device == "cpu" else ((64, 128, 2), (4, 256, 1))
    for blocks, threads, weight in shapes:
        shape = ["--device", device, "--blocks", str(blocks), "--threads", str(threads), "--connections", "64", "--memory", "512M"]
        command = [path, "127.0.0.1:0", *shape, "--request-timeout", "3600"]
        yield Program(f"kv-{blocks}x{threads}", command, KeyValue(), at_a_time=40, weight=weight)


def rstream(path, device):
    """gpunet-rstream, a client at a time. It counts clients that break off as failed."""
    for threads in (1, 2) if device == "cpu" else (256,):
        for size, count, iterations in ((1000, 100, 2), (200_000, 2, 1)):
            command = [path, "server", "127.0.0.1:0", "--transport", "tcp", "--device", device, "--threads", str(threads), "--verify"]
            numbers = ["-S", str(size), "-C", str(count), "-I", str(iterations), "--connections", "0"]
            protocol = Rstream(size, count, iterations)
            yield Program(f"rstream-{threads}-{size}", command + numbers, protocol, at_a_time=8, weight=0.25, codes=(0, 1))


def counter(path, device):
    """The server of docs/servers.md. It chooses the device itself, as the next two do."""
    yield Program("counter", [path], Counter(), end="enter")


def one(path, device):
    """The first program of docs/kernels.md, which serves one connection."""
    yield Program("one", [path], Echo(), at_a_time=1, weight=0.5, address=DOCUMENTED, end="itself")


def many(path, device):
    """The second program of docs/kernels.md, with places for sixteen connections."""
    yield Program("many", [path], Echo(), at_a_time=32, weight=0.5, address=DOCUMENTED, end="enter")


def tokens(path, device):
    """gpunet-tokens: with what it has by default, and with few places in the batch."""
    shapes = (("default", [], 1.5), ("batch-4", ["--blocks", "2", "--models", "3", "--connections", "32", "--batch", "4"], 1))
    for name, arguments, weight in shapes:
        command = [path, "--listen", "127.0.0.1:0", "--device", device, *arguments]
        yield Program(f"tokens-{name}", command, Tokens(), at_a_time=40, weight=weight)


def cuda_echo(path, device):
    """The CUDA C++ example, whose blocks serve a connection each."""
    number = device.partition(":")[2] or "0"
    for blocks in (4, 32):
        command = [path, "server", "127.0.0.1:0", "--device", number, "--blocks", str(blocks)]
        yield Program(f"cuda-echo-{blocks}", command, Echo(), at_a_time=3 * blocks)


PROGRAMS = {"echo": echo, "kv": kv, "rstream": rstream, "counter": counter, "one": one, "many": many, "tokens": tokens, "cuda-echo": cuda_echo}


class Failed(Exception):
    """A program does not start, or ends badly."""


@contextlib.contextmanager
def running(program):
    """Starts a program, gives its address, a function that ends it, and its process, and kills it if need be."""
    if program.address:
        check_free(program.address)
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(program.command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, text=True)

        def said():
            out.seek(0)
            return out.read()

        try:
            yield program.address or address(process, said), lambda: finish(program, process, said), process
        finally:
            process.kill()
            process.wait()


def check_free(address):
    """Another server at a documented port would be taken for the program."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen()
        except OSError as error:
            raise Failed(f"port {address[1]} is not free, and the program cannot take another: {error}") from error


def address(process, said):
    """Waits until the program says where it listens."""
    until = time.monotonic() + STARTS
    while time.monotonic() < until:
        # Read before it is asked whether it runs.
        has_ended, text = process.poll() is not None, said()
        if found := re.search(r"^listening on \[?([0-9a-f.:]+?)\]?:(\d+)\b", text, re.MULTILINE):
            return found[1], int(found[2])
        if has_ended:
            raise Failed(f"it ended with {process.returncode} and said: {text}")
        time.sleep(0.02)
    raise Failed(f"it does not say where it listens within {STARTS} s: {text}")


def finish(program, process, said):
    """Ends a program as its user does, and returns its last line."""
    if process.poll() is not None and program.end != "itself":
        raise Failed(f"it has ended by itself, with {process.returncode}: {said()[-2000:]}")
    try:
        if program.end == "signal":
            process.send_signal(signal.SIGINT)
            process.wait(ENDS)
        else:
            process.communicate("\n" if program.end == "enter" else "", timeout=ENDS)
    except subprocess.TimeoutExpired as expired:
        raise Failed(f"it does not end within {ENDS} s: {said()[-2000:]}") from expired
    if process.returncode not in program.codes:
        raise Failed(f"it ended with {process.returncode}: {said()[-2000:]}")
    return (said().splitlines() or [""])[-1]
