"""gpunet-tokens: requests in a row on a connection, each answered with what the server answers when it is asked alone and not for a
stream."""

import http.client
import json

from connection import Exchange, Fault

# What is asked: fields of a completion, or of a chat. The model is deterministic, so each has one text.
PROMPTS = (
    {"prompt": "User: What is a socket?\nAssistant: ", "temperature": 0},
    {"prompt": "A ring ", "temperature": 0, "ignore_eos": True},
    {"prompt": ["Who sends "], "temperature": 0.5, "seed": 7, "ignore_eos": True},
    {"messages": [{"role": "user", "content": "What is a ring?"}], "temperature": 0},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}], "temperature": 0},
)
# Tokens of the longest answer.
MOST = 60
# Bodies that are refused, and the field that the error names.
REFUSED = (({"max_tokens": 0}, "max_tokens"), ({"stop": [""]}, "stop"), ({"n": 2}, "n"), ({"model": "other"}, "model"))


class Text:
    """What the model says to a prompt."""

    def __init__(self, fields, answer):
        self.fields, self.is_chat = fields, "messages" in fields
        choice, usage = answer["choices"][0], answer["usage"]
        text = choice["message"]["content"] if self.is_chat else choice["text"]
        if not text.isascii():
            raise Fault(f"the text of {fields} has characters of several tokens: {text!r}")
        # A chat ends with its line, whose end is a token.
        has_line_end = usage["completion_tokens"] > len(text)
        self.tokens = text + "\n" * has_line_end
        self.has_ended = choice["finish_reason"] == "stop" and not has_line_end
        self.prompt = usage["prompt_tokens"]

    def answer(self, most, stops):
        """Returns text, reason of the end and tokens of an answer of `most` tokens at most."""
        tokens, stops = self.tokens[:most], [*stops, *(["\n"] if self.is_chat else [])]
        for end in range(1, len(tokens) + 1):
            if lengths := [len(stop) for stop in stops if tokens[:end].endswith(stop)]:
                return tokens[: end - max(lengths)], "stop", end
        return tokens, "stop" if self.has_ended and len(tokens) < most else "length", len(tokens)


class Tokens:
    """The requests of a connection are sent without waiting for answers."""

    def __init__(self):
        self.texts, self.model = [], b""

    def prepare(self, address):
        """Asks the server alone for what it has to answer later."""
        connection = http.client.HTTPConnection(*address, timeout=60)
        for fields in PROMPTS:
            connection.request("POST", path(fields), json.dumps({"model": "gpunet-tokens", "max_tokens": MOST, **fields}))
            self.texts.append(Text(fields, json.load(connection.getresponse())))
        connection.request("GET", "/v1/models")
        self.model = connection.getresponse().read()
        connection.close()

    def exchange(self, rng, name):
        requests, answers, kinds = [], [], []
        # Some ask for nothing.
        count = rng.choice((0, 1, 1, 1, 2, 3, 6))
        for index in range(count):
            request, answer, kind = self.other(rng) if rng.random() < 0.25 else self.completion(rng)
            requests.append(request)
            answers.append(answer)
            kinds.append(kind)
        ends = count > 0 and rng.random() < 0.3
        if ends:
            # The last one closes the connection.
            line, rest = requests[-1].split(b"\r\n", 1)
            if rng.random() < 0.5 and b"Transfer-Encoding" not in rest:
                requests[-1] = line.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n" + rest
            else:
                requests[-1] = line + b"\r\nConnection: close\r\n" + rest
        return Exchange(b"".join(requests), b"".join(answers), ends=ends, reader=lambda: Answers(kinds))

    def other(self, rng):
        """Something else than a text."""
        kind = rng.randrange(6)
        if kind == 0:
            return head("GET", "/v1/models") + b"\r\n", b"200 %s\n" % self.model, "plain"
        if kind == 1:
            return head("HEAD", "/v1/models") + b"\r\n", b"200 \n", "head"
        if kind == 2:
            return head("GET", "/nothing") + b"\r\n", b"404 None\n", "error"
        if kind == 3:
            return head("OPTIONS", "/v1/completions") + b"\r\n", b"204 \n", "head"
        fields, param = rng.choice(REFUSED)
        body = json.dumps({"model": "gpunet-tokens", "prompt": "a", **fields}).encode()
        return post(rng, "/v1/completions", body), b"%d %s\n" % (404 if param == "model" else 400, param.encode()), "error"

    def completion(self, rng):
        text = rng.choice(self.texts)
        most, stops = rng.choice((1, 2, rng.randint(1, MOST), rng.randint(1, MOST))), []
        while rng.random() < 0.4 and len(stops) < 4:
            # One that comes, as a rule.
            at = rng.randrange(max(1, len(text.tokens)))
            stops.append(text.tokens[at : at + rng.randint(1, 5)].strip() or "no such text")
        is_stream, has_usage = rng.random() < 0.6, rng.random() < 0.5
        fields = {"model": "gpunet-tokens", "max_tokens": most, **text.fields}
        if stops:
            fields["stop"] = stops[0] if len(stops) == 1 else stops
        if is_stream:
            fields["stream"] = True
            if has_usage:
                fields["stream_options"] = {"include_usage": True}
        members = list(fields.items())
        rng.shuffle(members)
        answer, finish, tokens = text.answer(most, stops)
        usage = b" %d %d" % (text.prompt, tokens) if has_usage or not is_stream else b""
        kind = ("chat " if text.is_chat else "") + ("stream" if is_stream else "whole")
        body = json.dumps(dict(members)).encode()
        return post(rng, path(text.fields), body), b"200 %s %s%s\n" % (answer.encode(), finish.encode(), usage), kind


def path(fields):
    return "/v1/chat/completions" if "messages" in fields else "/v1/completions"


def head(method, target):
    return f"{method} {target} HTTP/1.1\r\nHost: a\r\n".encode()


def post(rng, target, body):
    """A request with a body: with its length, or in chunks."""
    start = head("POST", target)
    if rng.random() < 0.15:
        start += b"Expect: 100-continue\r\n"
    if rng.random() < 0.7:
        return start + b"Content-Length: %d\r\n\r\n" % len(body) + body
    chunks = b""
    while body:
        size = rng.randint(1, len(body))
        chunks += b"%x\r\n%s\r\n" % (size, body[:size])
        body = body[size:]
    return start + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


class Answers:
    """Turns the bytes of answers into a line for each: `STATUS TEXT REASON PROMPT-TOKENS TOKENS` of a text, `STATUS PARAM` of an error.
    Of a stream it gives what has come."""

    def __init__(self, kinds):
        self.buffer, self.out = b"", b""
        self.work = self.parse(kinds)
        next(self.work)

    def feed(self, data):
        """Takes what has come, and returns what it says."""
        self.buffer += data
        next(self.work)
        out, self.out = self.out, b""
        return out

    def parse(self, kinds):
        names = set()
        for kind in kinds:
            status, fields = yield from self.head()
            while status == 100:
                status, fields = yield from self.head()
            self.out += b"%d " % status
            if kind == "head":
                self.out += b"\n"
                continue
            body = self.body(fields, b"data: [DONE]\n\n" if kind.endswith("stream") and status == 200 else b"}\n")
            if kind.endswith("stream") and status == 200:
                expect(fields.get("content-type") == "text/event-stream", fields)
                name = yield from self.events(body, kind.startswith("chat"))
            else:
                whole = b""
                while (piece := (yield from body.next())) is not None:
                    whole += piece
                name = self.whole(kind, whole)
            expect(name is None or name not in names, f"a second answer with the name {name}")
            names.add(name)
        while True:
            self.out += self.buffer
            self.buffer = b""
            yield

    def whole(self, kind, body):
        """An answer that is no stream."""
        if kind == "plain":
            self.out += body + b"\n"
            return None
        try:
            answer = json.loads(body)
        except ValueError as error:
            raise Fault(f"no JSON: {body!r}") from error
        if kind == "error" or "error" in answer:
            self.out += b"%s\n" % str(answer["error"]["param"]).encode()
            return None
        choice, usage = answer["choices"][0], answer["usage"]
        expect(answer["object"] == ("chat.completion" if kind.startswith("chat") else "text_completion"), answer)
        text = choice["message"]["content"] if kind.startswith("chat") else choice["text"]
        counts = f" {usage['prompt_tokens']} {usage['completion_tokens']}"
        self.out += f"{text} {choice['finish_reason']}{counts}\n".encode()
        return answer["id"]

    def events(self, body, is_chat):
        """Server-sent events up to the end of the body."""
        name, rest, finish, counts, is_done, has_role = None, b"", None, "", False, not is_chat
        while (piece := (yield from body.next())) is not None:
            rest += piece
            while b"\n\n" in rest:
                event, rest = rest.split(b"\n\n", 1)
                if event == b":":
                    # A comment: the server asks whether a client that has ended its stream is still there.
                    continue
                expect(event.startswith(b"data: ") and not is_done, event)
                if event == b"data: [DONE]":
                    is_done = True
                    # A body without a length ends with the connection: this is its end.
                    self.out += f" {finish}{counts}\n".encode()
                    continue
                data = json.loads(event[6:])
                expect("choices" in data and name in (None, data["id"]), data)
                name = data["id"]
                if not data["choices"]:
                    counts = f" {data['usage']['prompt_tokens']} {data['usage']['completion_tokens']}"
                    continue
                choice = data["choices"][0]
                expect(finish is None, data)
                if is_chat:
                    expect(has_role != ("role" in choice["delta"]), data)
                    has_role = True
                text = choice["delta"].get("content", "") if is_chat else choice["text"]
                finish = choice["finish_reason"]
                self.out += text.encode()
        expect(is_done and not rest, f"a stream without its end: {rest!r}")
        return name

    def head(self):
        line = yield from self.line()
        expect(line.startswith(b"HTTP/1.1 ") and line[9:12].isdigit(), line)
        status, fields = int(line[9:12]), {}
        while line := (yield from self.line()):
            key, _, value = line.decode().partition(": ")
            expect(key.lower() not in fields, f"a second field {key}")
            fields[key.lower()] = value
        return status, fields

    def line(self):
        while b"\r\n" not in self.buffer:
            yield
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def bytes(self, count):
        while len(self.buffer) < count:
            yield
        piece, self.buffer = self.buffer[:count], self.buffer[count:]
        return piece

    def body(self, fields, end):
        length, is_chunked = fields.get("content-length"), fields.get("transfer-encoding") == "chunked"
        expect(length is None or not is_chunked, fields)
        if is_chunked:
            return Chunks(self)
        return Rest(self, int(length)) if length is not None else Open(self, end)


class Chunks:
    """A body in chunks."""

    def __init__(self, answers):
        self.answers = answers

    def next(self):
        size = int((yield from self.answers.line()), 16)
        piece = yield from self.answers.bytes(size)
        end = yield from self.answers.line()
        expect(end == b"", end)
        return piece or None


class Rest:
    """A body with a length."""

    def __init__(self, answers, left):
        self.answers, self.left = answers, left

    def next(self):
        count, self.left = self.left, 0
        return (yield from self.answers.bytes(count)) if count else None


class Open:
    """A body that the end of the connection ends. What it ends with tells that it is whole."""

    def __init__(self, answers, end):
        self.answers, self.end, self.tail = answers, end, b""

    def next(self):
        if self.tail.endswith(self.end):
            return None
        while not self.answers.buffer:
            yield
        piece, self.answers.buffer = self.answers.buffer, b""
        self.tail = (self.tail + piece)[-len(self.end) :]
        return piece


def expect(is_right, what):
    if not is_right:
        raise Fault(f"an answer that is none: {what}")
