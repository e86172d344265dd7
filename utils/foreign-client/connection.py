"""One connection: how it sends, reads and ends is drawn from a generator, and every byte that comes back is compared."""

import asyncio
import random
import socket
import struct
import time
from dataclasses import dataclass
from math import ceil

# Bytes without a pattern: a run of them that comes from another place of a stream, or from another stream, differs.
NOISE = random.Random(32).randbytes(16 << 20)
# Nothing, one byte, about a chunk, about a round of a server (64 KiB), about a ring, more than any ring.
EDGES = (0, 1, 64, 4096, 65_535, 65_536, 65_537, 131_072, 262_144, 1 << 20)


class Fault(Exception):
    """The server did something wrong. `lost` counts bytes of an answer that is not whole although the stream has ended in order."""

    def __init__(self, what, lost=0):
        super().__init__(what)
        self.lost = lost


@dataclass
class Exchange:
    """What a client sends, and what a server that is right answers before it ends its stream."""

    request: bytes
    answer: bytes
    # The server ends its stream after the answer, whether or not the client has ended its own.
    ends: bool = False
    # What the exchange leaves in the server unless it is completed.
    leaves: tuple = ()
    # Makes an object whose `feed` turns what comes into what is compared with the answer; None: it is compared as it comes.
    reader: object = None


def noise(rng, size):
    """Returns `size` bytes from a random place of the noise."""
    start = rng.randrange(len(NOISE) - size)
    return NOISE[start : start + size]


def log_uniform(rng, most):
    """Returns a number from 1 to `most`; each order of magnitude is as likely."""
    return min(most, int(2 ** rng.uniform(0, most.bit_length())))


def any_size(rng, most=500_000):
    """Returns a size up to `most`, sometimes nothing, sometimes beside one at which code changes its way."""
    kind = rng.random()
    if kind < 0.05:
        return 0
    if kind < 0.15:
        return min(most, max(0, rng.choice(EDGES) + rng.randint(-1, 1)))
    return log_uniform(rng, most) if kind < 0.5 else rng.randint(1, most)


def stops(rng, length, most):
    """Returns up to `most` positions up to `length`, each with a pause in seconds."""
    return [(rng.randint(0, length), rng.choice((0, 0.0005, 0.005, 0.03))) for _ in range(rng.randint(0, most))]


class Plan:
    """What a client does with an exchange."""

    def __init__(self, rng, exchange, is_clean=False):
        request, answer = len(exchange.request), len(exchange.answer)
        draw = 1 if is_clean else rng.random()
        # What ends the connection: both ends in order, a reset, or a close by a client that does not read on.
        self.end = "reset" if draw < 0.12 else "close" if draw < 0.18 else "order"
        # When a client that breaks off does so: when it has sent or read so much, or after so many seconds.
        self.at = (rng.choice(("sent", "received", "time")), rng.random())
        # When the client ends its stream: with the last byte or after a pause, when it has read a part of the answer or all.
        self.half_close = rng.choice(("at once", "at once", "with the last segment", "paused", "middle", "late"))
        self.half_close_at = {"middle": rng.randint(0, answer), "late": answer}.get(self.half_close, 0)
        is_slow = not is_clean and rng.random() < 0.25
        is_cut = rng.random() < 0.5
        sends = stops(rng, request, 12) if is_cut else []
        reads = stops(rng, answer, 8) if is_slow else []
        if self.end != "order":
            # It stops exactly there.
            sends.append((ceil(self.at[1] * request), 0))
            reads.append((ceil(self.at[1] * answer), 0))
        self.sends, self.reads = sorted(sends), sorted(reads)
        if is_slow and rng.random() < 0.3:
            # It does not begin to read before the server has no room left, if there is so much.
            self.reads.insert(0, (0, 0.3))
        self.read_size = rng.choice((300, 4096, 20_000)) if is_slow and answer < 400_000 else 256 << 10
        self.receive_buffer = rng.choice((2304, 16_384)) if is_slow else None
        self.send_buffer = rng.choice((4608, 65_536)) if rng.random() < 0.1 else None
        self.is_undelayed = rng.random() < 0.5

    def breaks_off(self, what, done, length):
        """Returns whether the client breaks off now that it has sent or received so much."""
        return self.end != "order" and self.at[0] == what and done >= self.at[1] * length

    def __str__(self):
        end = "" if self.end == "order" else f", {self.end} by {self.at[0]} at {self.at[1]:.3f}"
        half = f"half-close {self.half_close}" + (f" at {self.half_close_at}" if self.half_close == "middle" else "")
        return f"{half}{end}, {len(self.sends)} stops in sending, {len(self.reads)} in reading, reads of {self.read_size}"


class BrokenOff(Exception):
    """The client ends the connection, by plan."""


class Connection:
    """One connection to a server."""

    def __init__(self, exchange, plan):
        self.exchange, self.plan = exchange, plan
        self.sent = self.received = 0
        self.has_half_closed = self.has_ended = False
        self.more = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    async def run(self, address, limit, patience):
        """Plays it. A server that does not listen yet is waited for for `patience` seconds.

        Raises Fault."""
        sock = await self.connect(address, limit, patience)
        try:
            await self.play(sock, limit)
        finally:
            if self.plan.end == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()

    async def connect(self, address, limit, patience):
        until = time.monotonic() + patience
        while True:
            sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
            sock.setblocking(False)
            for option, size in ((socket.SO_RCVBUF, self.plan.receive_buffer), (socket.SO_SNDBUF, self.plan.send_buffer)):
                if size:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, self.plan.is_undelayed)
            try:
                await asyncio.wait_for(self.loop.sock_connect(sock, address), limit)
                return sock
            except ConnectionRefusedError as error:
                sock.close()
                if time.monotonic() > until:
                    raise Fault("nobody listens") from error
            except (OSError, TimeoutError) as error:
                sock.close()
                raise Fault(f"cannot connect: {error!r}") from error
            await asyncio.sleep(0.02)

    async def play(self, sock, limit):
        is_timed = self.plan.end != "order" and self.plan.at[0] == "time"
        wait = 0.1 * self.plan.at[1] if is_timed else limit
        tasks = [asyncio.create_task(half(sock)) for half in (self.send, self.receive)]
        try:
            done, pending = await asyncio.wait(tasks, timeout=wait, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        errors = [task.exception() for task in done if task.exception()]
        for error in errors:
            if not isinstance(error, (BrokenOff, OSError)):
                raise error
        if any(isinstance(error, BrokenOff) for error in errors):
            return
        if errors:
            raise Fault(f"the connection fails: {errors[0]}")
        if pending and not is_timed:
            raise Fault(f"no end within {limit} s")

    async def send(self, sock):
        request, plan = self.exchange.request, self.plan
        view = memoryview(request)
        for position, pause in (*plan.sends, (len(request), 0)):
            if plan.half_close == "with the last segment" and position == len(request):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            while self.sent < position:
                part = view[self.sent : min(position, self.sent + (64 << 10))]
                await self.loop.sock_sendall(sock, part)
                self.sent += len(part)
            if plan.breaks_off("sent", self.sent, len(request)):
                raise BrokenOff
            if pause:
                await asyncio.sleep(pause)
        if plan.half_close == "paused":
            await asyncio.sleep(0.02)
        while self.received < plan.half_close_at:
            self.more.clear()
            await self.more.wait()
        if not self.has_ended:
            self.has_half_closed = True
            sock.shutdown(socket.SHUT_WR)

    async def receive(self, sock):
        answer, plan = self.exchange.answer, self.plan
        reader = self.exchange.reader() if self.exchange.reader else None
        reads = list(reversed(plan.reads))
        while True:
            while reads and self.received >= reads[-1][0]:
                await asyncio.sleep(reads.pop()[1])
            if plan.breaks_off("received", self.received, len(answer)):
                raise BrokenOff
            size = min(plan.read_size, reads[-1][0] - self.received) if reads else plan.read_size
            chunk = await self.loop.sock_recv(sock, size)
            if not chunk:
                break
            if reader:
                chunk = reader.feed(chunk)
            if chunk != answer[self.received : self.received + len(chunk)]:
                raise Fault(difference(chunk, answer, self.received))
            self.received += len(chunk)
            self.more.set()
        if lost := len(answer) - self.received:
            raise Fault(f"the server has ended its stream, and {lost} bytes are missing", lost)
        if not self.has_half_closed and not self.exchange.ends:
            raise Fault("the server has ended its stream before the client its own")
        self.has_ended = True


def difference(chunk, answer, position):
    """Says where received bytes differ, and what they are instead."""
    if position + len(chunk) > len(answer) and chunk.startswith(answer[position:]):
        return f"{position + len(chunk) - len(answer)} bytes too many have come"
    at = next(at for at, byte in enumerate(chunk) if answer[position + at : position + at + 1] != bytes([byte]))
    found = answer.find(chunk[at : at + 16])
    origin = f"; these bytes belong to position {found}" if found >= 0 and len(chunk) - at >= 16 else ""
    return f"byte {position + at} of the answer is wrong{origin}: {chunk[at : at + 24]!r}"
