#!/usr/bin/env python3
"""Measures gpunet-tokens as its clients see it: the time to the first token, and from the model's
store of a token to its arrival. The server runs with --timing.

One thread reads all streams, so that its own time is small. Results in microseconds, as JSON.
"""

import argparse
import json
import selectors
import socket
import time
import urllib.request


def clock(address):
    """Returns how far the device's clock is ahead of this process's, in nanoseconds, and how far that
    may be wrong: of many comparisons the fastest."""
    best = (1 << 63, 0)
    with socket.create_connection(address) as connection:
        for _ in range(200):
            before = time.monotonic_ns()
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            text = b""
            while b"}" not in text:
                piece = connection.recv(4096)
                if not piece:
                    raise SystemExit("the server has closed the connection")
                text += piece
            after = time.monotonic_ns()
            device = json.loads(text[text.index(b"{"):])["clock_ns"]
            best = min(best, (after - before, device - (before + after) // 2))
    return best[1], best[0] // 2


class Stream:
    """One request and its events."""

    def __init__(self, address, tokens, selector):
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request = {"model": "gpunet-tokens", "prompt": "A socket ", "max_tokens": tokens,
                        "temperature": 0, "stream": True, "ignore_eos": True}
        self.first_ns = None
        self.deliveries = []
        self.buffer = b""
        self.is_done = False
        selector.register(self.socket, selectors.EVENT_READ, self)

    def send(self):
        body = json.dumps(self.request)
        head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        self.sent_ns = time.monotonic_ns()
        self.socket.sendall((head + body).encode())

    def read(self):
        piece = self.socket.recv(1 << 16)
        now = time.monotonic_ns()
        if not piece:
            raise SystemExit(f"a stream has ended before its time: {self.buffer!r}")
        self.buffer += piece
        if not self.buffer.startswith(b"HTTP/1.1 200") and self.first_ns is None and len(self.buffer) > 12:
            raise SystemExit(self.buffer.decode())
        while b"\n\n" in self.buffer:
            event, self.buffer = self.buffer.split(b"\n\n", 1)
            data = event[event.index(b"data: ") + 6:]
            if data == b"[DONE]":
                self.is_done = True
                return
            stored = json.loads(data).get("stored_ns")
            if stored is None:
                continue
            if self.first_ns is None:
                self.first_ns = now - self.sent_ns
            self.deliveries.append((stored, now))
        # The head stays before the first event.
        if self.first_ns is not None and len(self.buffer) > 1 << 16:
            raise SystemExit("an event does not end")


def percentiles(values):
    values = sorted(values)
    at = {name: values[min(len(values) - 1, int(len(values) * part))] / 1000
          for name, part in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)]}
    return {**{name: round(value, 1) for name, value in at.items()}, "max": round(values[-1] / 1000, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="HOST:PORT of the server")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=100)
    arguments = parser.parse_args()
    host, port = arguments.address.rsplit(":", 1)
    address = (host, int(port))
    before, error = clock(address)
    selector = selectors.DefaultSelector()
    streams = [Stream(address, arguments.tokens, selector) for _ in range(arguments.clients)]
    began = time.monotonic_ns()
    for stream in streams:
        stream.send()
    open_streams = len(streams)
    while open_streams:
        for key, _ in selector.select():
            stream = key.data
            stream.read()
            if stream.is_done:
                selector.unregister(stream.socket)
                open_streams -= 1
    seconds = (time.monotonic_ns() - began) / 1e9
    after, error_after = clock(address)
    if not any(stream.deliveries for stream in streams):
        raise SystemExit("no event has stored_ns: start the server with --timing")
    # The clocks may drift: the middle of both comparisons.
    offset = (before + after) // 2
    deliveries = [now + offset - stored for stream in streams for stored, now in stream.deliveries]
    tokens = arguments.clients * arguments.tokens
    with urllib.request.urlopen(f"http://{arguments.address}/metrics") as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
    name = "gpunet_tokens_token_delivery_seconds"
    count = int(lines[f"{name}_count"])
    print(json.dumps({
        "clients": arguments.clients,
        "tokens": tokens,
        "tokens_per_second": round(tokens / seconds, 1),
        "time_to_first_token_us": percentiles([stream.first_ns for stream in streams]),
        "store_to_client_us": percentiles(deliveries),
        "clock_error_us": round(max(error, error_after) / 1000, 1),
        "clock_drift_us": round(abs(after - before) / 1000, 1),
        "store_to_connection_mean_us": round(float(lines[f"{name}_sum"]) / max(count, 1) * 1e6, 1),
    }))


if __name__ == "__main__":
    main()
