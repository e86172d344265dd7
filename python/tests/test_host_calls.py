"""Kernels on the CPU call functions of Python, record and print."""

from __future__ import annotations

import ctypes
import errno
import math
import shutil
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import gpunet
from gpunet import cpu

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")

KERNELS = r"""
#include <gpunet_calls.h>
#include <gpunet_records.h>

struct work {
    gpunet_calls_t calls;
    gpunet_records_t records;
    long long results[16];
    unsigned int rounds;
    char text[16];
};

/* Each block doubles texts and adds numbers. */
void asks(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct work *work = argument;
    struct gpunet_caller caller;
    long long wrong = gpunet_caller_open(net, work->calls, &caller);
    for (unsigned int round = 0; wrong == 0 && round < work->rounds; round++) {
        unsigned int numbers[2] = {block, round}, sum = 0;
        char twice[32];
        wrong += gpunet_call(net, &caller, 7, numbers, sizeof numbers, &sum, sizeof sum, -1) != 4 || sum != block + round;
        wrong += gpunet_call(net, &caller, gpunet_function("double"), "abc", 3, twice, sizeof twice, -1) != 6;
        wrong += memcmp(twice, "abcabc", 6) != 0;
        wrong += gpunet_call_tell(net, &caller, 7, numbers, sizeof numbers, -1) != 0;
    }
    gpunet_caller_close(net, &caller);
    work->results[block] = wrong;
    (void)blocks;
}

/* What comes of calls that fail. */
void fails(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct work *work = argument;
    static const char *const names[] = {"refuses", "raises", "long", "none", "text", "nothing"};
    struct gpunet_caller caller;
    char answer[8];
    gpunet_caller_open(net, work->calls, &caller);
    for (int at = 0; at < 6; at++) {
        work->results[at] = gpunet_call(net, &caller, gpunet_function(names[at]), 0, 0, answer, sizeof answer, -1);
    }
    work->results[6] = gpunet_call(net, &caller, gpunet_function("none"), work, 65, answer, sizeof answer, -1);
    /* It waits until the call is over. */
    work->results[7] = gpunet_call(net, &caller, gpunet_function("blocks"), 0, 0, answer, sizeof answer, 3000000);
    gpunet_caller_close(net, &caller);
    (void)block, (void)blocks;
}

/* Asks for the address of a name. */
void resolves(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct work *work = argument;
    struct gpunet_caller caller;
    struct sockaddr_in6 addr;
    socklen_t len = 0;
    gpunet_caller_open(net, work->calls, &caller);
    work->results[0] = gpunet_resolve(net, &caller, "::1", 80, &addr, &len, -1);
    work->results[1] = len;
    gpunet_caller_close(net, &caller);
    (void)block, (void)blocks;
}

/* Waits for an answer that does not come. */
void hangs(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct work *work = argument;
    struct gpunet_caller caller;
    gpunet_caller_open(net, work->calls, &caller);
    work->results[0] = gpunet_call(net, &caller, gpunet_function("blocks"), 0, 0, 0, 0, -1);
    gpunet_caller_close(net, &caller);
    (void)block, (void)blocks;
}

void speaks(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct work *work = argument;
    struct gpunet_recorder recorder = gpunet_recorder_open(net, work->records, block);
    gprintf(&recorder, "block %u of %u", block, blocks);
    gprintf_at(&recorder, GPUNET_DEBUG, "not wanted");
    for (unsigned int round = 0; round < work->rounds; round++) {
        gpunet_record_begin(&recorder, "round");
        gpunet_record(&recorder, 5, &round, 1);
        gpunet_record_count(&recorder, "rounds", -3);
        gpunet_record_end(&recorder, "round");
    }
    gprintf_at(&recorder, GPUNET_WARN, "%.1f is over", 2.5);
    gpunet_recorder_close(&recorder);
}
"""


@pytest.fixture(scope="module")
def kernels() -> ctypes.CDLL:
    return cpu.compile(KERNELS)


@pytest.fixture
def device(net: gpunet.Proxy) -> Iterator[gpunet.Attachment]:
    with net.attach_cpu() as device:
        yield device


def work(calls: bytes = bytes(32), records: bytes = bytes(48), rounds: int = 0) -> bytearray:
    return bytearray(calls + records + bytes(128) + struct.pack("I", rounds) + bytes(20))


def results(of: bytearray) -> tuple[int, ...]:
    return struct.unpack_from("16q", of, 80)


def test_blocks_call_functions(device: gpunet.Attachment, kernels: ctypes.CDLL) -> None:
    threads = set()

    def add(numbers: bytes) -> bytes:
        threads.add(threading.get_ident())
        return struct.pack("I", sum(struct.unpack("II", numbers)))

    with device.serve_calls({7: add, "double": lambda data: memoryview(data * 2)}, channels=3) as calls:
        assert not calls.closed and len(calls.value) == 32
        job = work(calls.value, rounds=50)
        with device.launch() as net:
            cpu.run_c(net, kernels.asks, job, blocks=3)
        assert results(job)[:3] == (0, 0, 0)
        # Nobody has waited for the last of those that want no answer.
        while calls.stats()["told"] < 150:
            time.sleep(0.001)
        assert calls.stats() == {"answered": 300, "told": 150, "failed": 0, "late": 0, "malformed": 0}
    assert threads and threading.main_thread().ident not in threads
    with pytest.raises(OSError, match="is closed"):
        calls.stats()


def test_kernels_ask_for_names(device: gpunet.Attachment, kernels: ctypes.CDLL) -> None:
    for names, result in ((True, (0, 28)), (False, (-errno.EOPNOTSUPP, 0))):
        with device.serve_calls({"x": bytes.upper}, channels=1, request=512, names=names) as calls:
            job = work(calls.value)
            with device.launch() as net:
                cpu.run_c(net, kernels.resolves, job, blocks=1)
            assert results(job)[:2] == result


def test_failures_are_numbers(device: gpunet.Attachment, kernels: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: unraisable.append(what.exc_type))
    gate = threading.Event()

    def refuses(_: bytes) -> None:
        raise PermissionError(errno.EACCES, "not for you")

    def raises(_: bytes) -> bytes:
        raise KeyError("planted")

    def blocks(_: bytes) -> None:
        gate.wait()

    functions = {
        "refuses": refuses,
        "raises": raises,
        "long": lambda _: b"123456789",
        "none": lambda _: None,
        "text": lambda _: "abc",
        "blocks": blocks,
    }
    calls = device.serve_calls(functions, channels=1, request=64)  # type: ignore[arg-type]
    job = work(calls.value)
    with device.launch() as net:
        cpu.run_c(net, kernels.fails, job)
    lost, late = -errno.ECONNABORTED, -errno.EAGAIN
    assert results(job)[:8] == (-errno.EACCES, lost, -errno.EMSGSIZE, 0, lost, -errno.EOPNOTSUPP, -errno.EMSGSIZE, late)
    assert unraisable == [KeyError, TypeError]
    # One hangs in a call that the end of the service ends, while a function still runs.
    launch = device.launch()
    cpu.run_c(launch.net, kernels.hangs, job)
    time.sleep(0.01)
    running = calls.close()
    assert running in (1, 2) and calls.close() == 0
    launch.finish()
    assert results(job)[0] == -errno.ENETDOWN
    gate.set()


def test_what_cannot_be_called_is_refused(device: gpunet.Attachment) -> None:
    def nothing(_: bytes) -> None: ...

    cases: list[tuple[Any, dict[str, Any], str]] = [
        ({"a": 3}, {}, "cannot be called"),
        ({1 << 30: nothing}, {}, "below 2"),
        ({-1: nothing}, {}, "below 2"),
        ({"a": nothing}, {"channels": 0}, "channels is 0"),
        ({"a": nothing}, {"threads": 1}, "threads is 1"),
        ({"a": nothing}, {"tickets": 65}, "at most 64 calls"),
        ({"a": nothing}, {"request": 1013}, "1012"),
        ({"a": nothing}, {"latency": math.nan}, "latency"),
    ]
    for functions, keywords, text in cases:
        with pytest.raises((ValueError, TypeError), match=text):
            device.serve_calls(functions, **{"channels": 1, **keywords})


def test_a_function_does_not_wait_for_its_own_end(device: gpunet.Attachment, kernels: ctypes.CDLL) -> None:
    said: list[int | None] = []

    def ends(_: bytes) -> None:
        try:
            calls.close()
        except OSError as error:
            said.append(error.errno)

    with device.serve_calls({7: ends, "double": ends}, channels=1) as calls:
        job = work(calls.value, rounds=1)
        with device.launch() as net:
            cpu.run_c(net, kernels.asks, job)
    assert said[:2] == [errno.EDEADLK] * 2


def test_records_and_lines_are_read(device: gpunet.Attachment, kernels: ctypes.CDLL) -> None:
    with device.watch(rings=2) as watch:
        job = work(records=watch.value, rounds=3)
        with device.launch() as net:
            cpu.run_c(net, kernels.speaks, job, blocks=2)
        records = watch.read()
        assert watch.read() == [] and watch.stats() == {"records": 28, "overwritten": 0, "refused": 0, "malformed": 0}
        for block in range(2):
            own = [record for record in records if record.block == block]
            assert [record.number for record in own] == list(range(14))
            first, last = own[0], own[-1]
            assert (first.text, first.level, first.warp, first.sm) == (f"block {block} of 2", "info", None, None)
            assert (last.text, last.level) == ("2.5 is over", "warn") and f"{last.text!r}"[1:-1] in repr(last)
            kinds = [(record.kind, record.text) for record in own[1:5]]
            assert kinds == [(32752, "round"), (5, None), (32754, "rounds"), (32753, "round")]
            assert [record.payload for record in own if record.kind == 5] == [struct.pack("I", round) for round in range(3)]
            assert struct.unpack_from("q", own[3].payload, 4) == (-3,)
            times = [record.time_ns for record in own]
            assert times == sorted(times)
    with pytest.raises(OSError, match="is closed"):
        watch.read()


def test_records_wait_for_their_reader(device: gpunet.Attachment, kernels: ctypes.CDLL) -> None:
    with device.watch(rings=1, records=64, wait=math.inf) as watch:
        job = work(records=watch.value, rounds=500)
        launch = device.launch()
        cpu.run_c(launch.net, kernels.speaks, job)
        count = 0
        while count < 2002:
            count += len(watch.read())
        launch.finish()
        assert watch.stats() == {"records": 2002, "overwritten": 0, "refused": 0, "malformed": 0}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"rings": 0}, "rings is 0"),
        ({"level": "loud"}, "a level is"),
        ({"payload": 1000}, "492 bytes"),
        ({"texts": 40000}, "32768 at most"),
        ({"wait": -1.0}, "wait is"),
    ]
    for keywords, text in cases:
        with pytest.raises(ValueError, match=text):
            device.watch(**{"rings": 1, **keywords})
