"""``python -m gpunet tensors``: what a path between two processes gives arrays, and what limits it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import gpunet

if TYPE_CHECKING:
    import argparse

SIZES = (1 << 20, 16 << 20, 256 << 20)
QUICK = (1 << 20, 16 << 20)
MOVED, MOVED_QUICKLY = 1 << 30, 64 << 20
"""Bytes that a size's rounds move, at most."""

ALIKE = 1.25
"""A rate that is not so many times another one is no faster."""


def memory(device: int | None, size: int) -> Any:
    """Bytes, on a GPU or not."""
    if device is None:
        return memoryview(bytearray(size))
    from gpunet.channel import _maker

    make, _ = _maker(None, device, None)
    return make("", "uint8", (size,))


def listen(options: argparse.Namespace) -> int:
    """Receives arrays until Ctrl-C, from one channel or several."""
    with gpunet.Channel.listen((options.host or "0.0.0.0", options.port)) as listener:
        host, port = listener.getsockname()[:2]
        found = {"host": host, "port": port}
        text = f"listening on {host} port {port}; run: python -m gpunet tensors HOST --port {port}. Ctrl-C ends it"
        print(json.dumps(found) if options.json else text, flush=True)
        try:
            while True:
                threading.Thread(target=serve, args=(listener.accept(), options.device), daemon=True).start()
        except KeyboardInterrupt:
            return 0


def serve(channel: gpunet.Channel, device: int | None) -> None:
    kept: dict[int, Any] = {}

    def make(name: str, dtype: str, shape: tuple[int, ...]) -> Any:
        if shape[0] not in kept:
            kept.clear()
            kept[shape[0]] = memory(device, shape[0])
        return kept[shape[0]]

    try:
        with channel:
            while channel.recv(to=make) is not None:
                pass
    except OSError as error:
        print(f"gpunet: {error}", file=sys.stderr)


def rate(channel: gpunet.Channel, data: Any, size: int, most: int) -> tuple[float, str, str | None]:
    """Gigabytes a second, how they went, and why not by one copy."""
    outcome = channel.send(data, timeout=120)
    rounds = max(2, min(most // size, 50))
    began = time.monotonic()
    for _ in range(rounds):
        outcome = channel.send(data, timeout=120)
    return rounds * size / (time.monotonic() - began) / 1e9, outcome.via, outcome.why_not_copied


def copy_rate() -> float:
    """Gigabytes a second by which one thread copies memory of the CPU."""
    size = 64 << 20
    one, other = memoryview(bytearray(size)), memoryview(bytearray(size))
    other[:] = one
    began = time.monotonic()
    for _ in range(4):
        other[:] = one
    return 4 * size / (time.monotonic() - began) / 1e9


def advice(why_not: str | None, on_gpu: bool, streams: int, many: float, one: float, copying: float) -> list[str]:
    """What limits the path, in words."""
    if why_not is None:
        words = ["One copy moves the bytes from memory to memory: both ends are on one machine, of one user."]
        if on_gpu:
            return [*words, "The limit is that copy, by the GPU's copy engine; of small arrays, the steps around it."]
        return [*words, f"The limit is that copy. One thread of this machine copies memory of the CPU at {copying:.1f} GB/s."]
    words = [f"The bytes go by TCP connections and not by one copy: {why_not}."]
    cores = len(os.sched_getaffinity(0))
    if streams == 1:
        words.append(f"One connection gives {one:.2f} GB/s; more may give more (--streams).")
    elif many > ALIKE * one:
        words.append(
            f"{streams} connections give {many / one:.1f} times what one gives, which a core limits; more may give more if "
            f"there are idle cores (this end has {cores})."
        )
    elif one > copying / 4:
        words.append(f"{streams} connections give no more than one: the cores of one end are the limit (this end has {cores}).")
    else:
        words.append(f"{streams} connections give no more than one: the limit is the wire, or the cores of the slower end.")
    return words


def send(options: argparse.Namespace) -> int:
    """Sends arrays of growing size in three ways, and says what limits them."""
    address, sizes = (options.host, options.port), QUICK if options.quick else SIZES
    data = {size: memory(options.device, size) for size in sizes}
    rows: list[dict[str, Any]] = []
    best: dict[str, float] = {}
    why_not: str | None = None
    streams = options.streams or max(1, min(8, (os.cpu_count() or 1) // 2))
    if not options.json:
        print(f"{'array':>10} {'GB/s':>8}  how")
    for way, settings in (
        ("as it comes", {"streams": streams}),
        ("connections", {"streams": streams, "rendezvous": False}),
        ("one connection", {"streams": 1, "rendezvous": False}),
    ):
        with gpunet.Channel.connect(address, **settings) as channel:
            for size in sizes:
                gigabytes, via, why = rate(channel, data[size], size, MOVED_QUICKLY if options.quick else MOVED)
                rows.append({"way": way, "bytes": size, "gigabytes_per_s": round(gigabytes, 3), "via": via})
                best[way] = max(best.get(way, 0), gigabytes)
                if way == "as it comes":
                    why_not = why
                if not options.json:
                    print(f"{size >> 20:>6} MiB {gigabytes:>8.2f}  {via}", flush=True)
    on_gpu = options.device is not None
    words = advice(why_not, on_gpu, streams, best["connections"], best["one connection"], copying := copy_rate())
    if options.json:
        result = {"rows": rows, "why_not_copied": why_not, "copy_gigabytes_per_s": round(copying, 3), "limits": words}
        print(json.dumps(result, indent=2))
    else:
        print(*words, sep="\n")
    return 0


def tensors(options: argparse.Namespace) -> int:
    """Measures how fast arrays go to a host, where `tensors --listen` runs, and says what limits it."""
    if options.listen:
        return listen(options)
    if options.host is None:
        print("gpunet: tensors needs the HOST that listens, or --listen", file=sys.stderr)
        return 64
    return send(options)
