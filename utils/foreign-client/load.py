"""Many connections at a time to one server, by several processes."""

import asyncio
import collections
import concurrent.futures
import itertools
import multiprocessing
import random
import sys
import time

from connection import Connection, Fault, Plan

# A server that is gone fails every connection: nobody reads more reports than these.
MOST_FAULTS = 20
# Connections of the last round, which break nothing off.
LAST = 20


class Counts(collections.Counter):
    """What connections did, by name."""

    def __str__(self):
        return (
            f"{self['connections']} connections, {self['bytes']} bytes compared, {self['half-closed']} half-closed, {self['reset']} reset, "
            f"{self['closed']} closed early, {self['faults']} faults, {self['lost']} bytes lost"
        )


class Load:
    """The connections to one server."""

    def __init__(self, title, protocol, address, seed, at_a_time, limit, most=None, patience=0):
        self.title, self.protocol, self.address, self.seed = title, protocol, address, seed
        self.at_a_time, self.limit, self.most, self.patience = at_a_time, limit, most, patience

    def run(self, processes, seconds, first=0):
        """Returns the counts of all connections that were begun within so many seconds, and of a last round without breaks."""
        processes = min(processes, self.at_a_time)
        if processes == 1:
            return self.run_process(0, 1, seconds, first)
        context = multiprocessing.get_context("fork")
        with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
            parts = [pool.submit(self.run_process, number, processes, seconds, first) for number in range(processes)]
            return sum((part.result() for part in parts), Counts())

    def run_process(self, process, processes, seconds, first):
        numbers, lanes = itertools.count(first + process, processes), self.at_a_time // processes
        return asyncio.run(self.run_lanes(numbers, lanes, time.monotonic() + seconds))

    async def run_lanes(self, numbers, lanes, until):
        counts = Counts()
        if self.most:
            numbers = itertools.islice(numbers, self.most)

        async def lane():
            # One at least, however late it has become.
            while (number := next(numbers, None)) is not None:
                await self.connection(number, counts)
                if time.monotonic() > until or counts["faults"] >= MOST_FAULTS:
                    return

        await asyncio.gather(*(lane() for _ in range(lanes)))
        if not self.most and counts["faults"] < MOST_FAULTS:
            # After all that was broken off, the server serves.
            await asyncio.gather(*(self.connection(next(numbers), counts, is_clean=True) for _ in range(min(lanes, LAST))))
        return counts

    async def connection(self, number, counts, is_clean=False):
        rng = random.Random(f"{self.seed} {self.title} {number}")
        exchange = self.protocol.exchange(rng, b"%d" % number)
        plan = Plan(rng, exchange, is_clean)
        connection = Connection(exchange, plan)
        try:
            await connection.run(self.address, self.limit, self.patience)
        except Fault as fault:
            counts["faults"] += 1
            counts["lost"] += fault.lost
            if counts["faults"] <= MOST_FAULTS:
                self.report(number, fault, connection)
        if plan.end != "order" and hasattr(self.protocol, "broken_off"):
            self.protocol.broken_off(exchange)
        counts["connections"] += 1
        counts["bytes"] += connection.received
        counts["half-closed"] += connection.has_half_closed
        counts["reset"] += plan.end == "reset"
        counts["closed"] += plan.end == "close"

    def report(self, number, fault, connection):
        exchange, half_closed = connection.exchange, " and half-closed" if connection.has_half_closed else ""
        print(
            f"FAULT {self.title}, connection {number}: {fault}; {connection.sent} of {len(exchange.request)} bytes sent{half_closed}, "
            f"{connection.received} of {len(exchange.answer)} received ({connection.plan}; --seed {self.seed} --only {self.title})",
            file=sys.stderr,
            flush=True,
        )
