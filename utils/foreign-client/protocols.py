"""What clients of each server say, and what it has to answer."""

import time

from connection import NOISE, Exchange, any_size, log_uniform, noise


class Echo:
    """Whatever comes is sent back; the server ends its stream after the client's."""

    def __init__(self, most=500_000):
        self.most = most

    def exchange(self, rng, name):
        size = rng.randint(1 << 20, 4 << 20) if rng.random() < 0.02 else any_size(rng, self.most)
        request = noise(rng, size)
        return Exchange(request, request)


class Counter:
    """The server of docs/servers.md: each line is answered with how often all clients have said it. A line without its end has no
    answer."""

    def exchange(self, rng, name):
        counts, lines, answers = {}, [], []
        for _ in range(log_uniform(rng, 20_000) if rng.random() < 0.95 else 0):
            # Names that no other connection has.
            line = b"%s %d" % (name, rng.randrange(20))
            counts[line] = counts.get(line, 0) + 1
            lines.append(line + b"\n")
            answers.append(b"%d\n" % counts[line])
        if rng.random() < 0.2:
            lines.append(b"%s half" % name)
        return Exchange(b"".join(lines), b"".join(answers))


class Rstream:
    """gpunet-rstream: sixteen bytes there and back, then all transfers of an iteration there, and as many back. Each direction
    counts its bytes."""

    def __init__(self, size, count, iterations):
        total = 16 + size * count * iterations
        self.bytes = (bytes(range(256)) * (total // 256 + 1))[:total]

    def exchange(self, rng, name):
        return Exchange(self.bytes, self.bytes, ends=True)


class KeyValue:
    """gpunet-kv: commands in a row, with keys that no other connection has. A command without its end has no answer."""

    # Bytes of a value, of all commands, and of all answers of a connection. gpunet-kv takes a mebibyte for a value.
    VALUE, REQUEST, ANSWER = 500_000, 1_000_000, 2_000_000
    # Keys of connections that were broken off are deleted when the server has long noticed.
    SETTLED = 3

    def __init__(self):
        self.left = []

    def exchange(self, rng, name):
        return Pipeline(rng, name, self.settled()).exchange()

    def settled(self):
        due = [keys for at, keys in self.left if time.monotonic() - at > self.SETTLED]
        self.left = self.left[len(due) :]
        return [key for keys in due for key in keys]

    def broken_off(self, exchange):
        self.left.append((time.monotonic(), exchange.leaves))


def command(*words):
    """A command as an array of strings."""
    return b"*%d\r\n" % len(words) + b"".join(bulk(word) for word in words)


def bulk(value):
    return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)


class Pipeline:
    """Commands of one connection, and the answers that a model of the server gives."""

    def __init__(self, rng, name, to_delete):
        self.rng = rng
        self.keys = [b"%s:%d" % (name, number) for number in range(rng.randint(1, 8))]
        self.counters = [b"%s:n%d" % (name, number) for number in range(3)]
        self.values = {}
        self.requests, self.answers, self.sent, self.answered = [], [], 0, 0
        # Many short commands, a few long ones, or of both.
        self.typical = rng.choice((40, 2000, KeyValue.VALUE))
        if to_delete:
            self.say(b"+OK\r\n", b"MSET", *(word for key in to_delete for word in (key, b"")))
            self.say(b":%d\r\n" % len(to_delete), b"DEL", *to_delete)

    def say(self, answer, *words):
        self.add(command(*words), answer)

    def add(self, request, answer):
        self.requests.append(request)
        self.answers.append(answer)
        self.sent += len(request)
        self.answered += len(answer)

    def exchange(self):
        rng = self.rng
        commands = log_uniform(rng, 3000 if self.typical < 100 else 300 if self.typical < 5000 else 30)
        kinds = (self.set, self.get, self.mset, self.mget, self.append, self.strlen, self.count, self.exists, self.delete, self.echo, self.inline)
        for _ in range(commands):
            if self.sent > KeyValue.REQUEST or self.answered > KeyValue.ANSWER:
                break
            rng.choices(kinds, (8, 8, 2, 2, 3, 2, 3, 1, 1, 1, 1))[0]()
        ending, all_keys = rng.random(), self.keys + self.counters
        self.say(b":%d\r\n" % len(self.values), b"DEL", *all_keys)
        if ending < 0.1:
            self.say(b"+OK\r\n", b"QUIT")
        elif ending < 0.3:
            # The beginning of a command.
            half = command(b"SET", self.keys[0], self.value())
            self.add(half[: rng.randint(1, len(half) - 1)], b"")
        return Exchange(b"".join(self.requests), b"".join(self.answers), ends=ending < 0.1, leaves=tuple(all_keys))

    def value(self):
        return noise(self.rng, any_size(self.rng, self.typical))

    def key(self):
        return self.rng.choice(self.keys)

    def set(self):
        key, value, condition = self.key(), self.value(), self.rng.random()
        if condition < 0.8:
            self.say(b"+OK\r\n", b"SET", key, value)
        elif (key in self.values) == (condition < 0.9):
            self.say(b"+OK\r\n", b"SET", key, value, b"XX" if condition < 0.9 else b"NX")
        else:
            return self.say(b"$-1\r\n", b"SET", key, value, b"XX" if condition < 0.9 else b"NX")
        self.values[key] = value

    def get(self):
        key = self.key()
        self.say(bulk(self.values.get(key)), b"GET", key)

    def mset(self):
        pairs = {key: self.value() for key in self.rng.sample(self.keys, self.rng.randint(1, min(3, len(self.keys))))}
        self.say(b"+OK\r\n", b"MSET", *(word for pair in pairs.items() for word in pair))
        self.values.update(pairs)

    def mget(self):
        keys = self.rng.choices(self.keys, k=self.rng.randint(1, 4))
        self.say(b"*%d\r\n" % len(keys) + b"".join(bulk(self.values.get(key)) for key in keys), b"MGET", *keys)

    def append(self):
        key, value = self.key(), self.value()
        whole = self.values.get(key, b"") + value
        if len(whole) <= KeyValue.VALUE:
            self.values[key] = whole
            self.say(b":%d\r\n" % len(whole), b"APPEND", key, value)

    def strlen(self):
        key = self.key()
        self.say(b":%d\r\n" % len(self.values.get(key, b"")), b"STRLEN", key)

    def count(self):
        key, amount = self.rng.choice(self.counters), self.rng.randint(-1000, 1000)
        self.values[key] = b"%d" % (int(self.values.get(key, 0)) + amount)
        self.say(b":%s\r\n" % self.values[key], b"INCRBY", key, b"%d" % amount)

    def exists(self):
        keys = self.rng.choices(self.keys, k=3)
        self.say(b":%d\r\n" % sum(key in self.values for key in keys), b"EXISTS", *keys)

    def delete(self):
        keys = self.rng.choices(self.keys, k=2)
        self.say(b":%d\r\n" % sum(self.values.pop(key, None) is not None for key in keys), b"DEL", *keys)

    def echo(self):
        value = self.value()
        self.say(bulk(value), b"ECHO", value)

    def inline(self):
        key = self.key()
        self.add(*self.rng.choice(((b"PING\r\n", b"+PONG\r\n"), (b"GET " + key + b"\r\n", bulk(self.values.get(key))))))
