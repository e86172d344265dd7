#!/usr/bin/env python3
"""Makes weights.safetensors and reference.safetensors: trains the model in numpy on text.py's text.

    python3 train.py              train (two minutes on one core), write both files
    python3 train.py --check      compute the reference anew from the weights here, and compare
    python3 train.py --print TEXT continue a text with the weights here

The same seed gives the same weights on the same machine; another numpy adds in another order.
"""

import argparse
import json
import os
import struct
import sys
import time

# Matrices this small gain nothing from threads, which wait for each other where cores are busy.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")
import numpy as np  # noqa: E402

import text  # noqa: E402

# The same numbers as in src/config.rs.
VOCABULARY, CONTEXT, LAYERS, HEADS, HEAD_WIDTH = 256, 512, 3, 4, 32
WIDTH, HIDDEN = HEADS * HEAD_WIDTH, 3 * HEADS * HEAD_WIDTH
SCORE_SCALE, EPSILON, SLOPES = 8.0, 2.0**-16, [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]

HERE = os.path.dirname(os.path.abspath(__file__))
# Rows of a training batch and tokens of a row.
ROWS, LENGTH = 16, 128
PROMPTS = [
    b"\0",
    b"\0User: What is a ring?\nAssistant:",
    b"\0Once upon a time there was a",
    b"\0User: Hello!\nAssistant: ",
    bytes(range(1, 256, 7)),
]


def shapes():
    yield "embedding", (VOCABULARY, WIDTH)
    yield "unembedding", (WIDTH, VOCABULARY)
    for layer in range(LAYERS):
        yield f"layers.{layer}.qkv", (WIDTH, 3 * WIDTH)
        yield f"layers.{layer}.out", (WIDTH, WIDTH)
        yield f"layers.{layer}.up", (WIDTH, HIDDEN)
        yield f"layers.{layer}.down", (HIDDEN, WIDTH)


def initial(rng):
    weights = {}
    for name, shape in shapes():
        # What is added to a row begins at nothing.
        scale = 0.5 if name == "embedding" else 0.0 if name.endswith(("out", "down")) else shape[0] ** -0.5
        weights[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
    return weights


def unit(x, mean):
    """Divides rows by the root of their mean square, or by their length. Also gives the factors."""
    squares = np.einsum("...i,...i->...", x, x)[..., None]
    factor = 1 / np.sqrt((squares / x.shape[-1] if mean else squares) + EPSILON)
    return x * factor, factor


def unit_back(grad, y, factor, mean):
    """The gradient of `unit`'s argument, from that of its result `y`."""
    inner = np.einsum("...i,...i->...", grad, y)[..., None]
    return factor * (grad - y * (inner / y.shape[-1] if mean else inner))


def heads(x):
    return x.reshape(*x.shape[:2], HEADS, HEAD_WIDTH).transpose(0, 2, 1, 3)


def rows(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], WIDTH)


def bias(length, dtype):
    distance = np.arange(length)[:, None] - np.arange(length)[None, :]
    slopes = np.array(SLOPES, dtype)[:, None, None]
    return np.where(distance >= 0, -slopes * distance, -np.inf).astype(dtype)


def forward(weights, tokens, keep=None):
    """Logits of each position. `keep` gets what `backward` needs."""
    x = weights["embedding"][tokens]
    shift = bias(tokens.shape[1], x.dtype)
    for layer in range(LAYERS):
        qkv, out, up, down = (weights[f"layers.{layer}.{part}"] for part in ("qkv", "out", "up", "down"))
        h, f = unit(x, True)
        q, k, v = (heads(part) for part in np.split(h @ qkv, 3, axis=-1))
        (q, fq), (k, fk) = unit(q, False), unit(k, False)
        score = q @ k.transpose(0, 1, 3, 2) * x.dtype.type(SCORE_SCALE) + shift
        share = np.exp(score)
        share /= share.sum(-1, keepdims=True)
        mixed = rows(share @ v)
        x = x + mixed @ out
        h2, f2 = unit(x, True)
        hidden = np.maximum(h2 @ up, 0)
        x = x + hidden @ down
        if keep is not None:
            keep.append((h, f, q, fq, k, fk, v, share, mixed, h2, f2, hidden))
    h, f = unit(x, True)
    if keep is not None:
        keep.append((h, f))
    return h @ weights["unembedding"]


def backward(weights, tokens, kept, grad):
    """Gradients of all weights, from that of the logits."""
    flat = lambda x: x.reshape(-1, x.shape[-1])  # noqa: E731
    grads = {}
    h, f = kept[-1]
    grads["unembedding"] = flat(h).T @ flat(grad)
    g = unit_back(grad @ weights["unembedding"].T, h, f, True)
    for layer in reversed(range(LAYERS)):
        part = lambda name: f"layers.{layer}.{name}"  # noqa: B023, E731
        h, f, q, fq, k, fk, v, share, mixed, h2, f2, hidden = kept[layer]
        grads[part("down")] = flat(hidden).T @ flat(g)
        g_hidden = (g @ weights[part("down")].T) * (hidden > 0)
        grads[part("up")] = flat(h2).T @ flat(g_hidden)
        g = g + unit_back(g_hidden @ weights[part("up")].T, h2, f2, True)
        grads[part("out")] = flat(mixed).T @ flat(g)
        g_mixed = heads(g @ weights[part("out")].T)
        g_v = share.transpose(0, 1, 3, 2) @ g_mixed
        g_share = g_mixed @ v.transpose(0, 1, 3, 2)
        g_score = share * (g_share - (g_share * share).sum(-1, keepdims=True)) * g.dtype.type(SCORE_SCALE)
        g_q = unit_back(g_score @ k, q, fq, False)
        g_k = unit_back(g_score.transpose(0, 1, 3, 2) @ q, k, fk, False)
        g_qkv = np.concatenate([rows(x) for x in (g_q, g_k, g_v)], axis=-1)
        grads[part("qkv")] = flat(h).T @ flat(g_qkv)
        g = g + unit_back(g_qkv @ weights[part("qkv")].T, h, f, True)
    grads["embedding"] = np.zeros_like(weights["embedding"])
    np.add.at(grads["embedding"], tokens.reshape(-1), flat(g))
    return grads


def loss_and_gradient(weights, tokens):
    kept = []
    inputs, targets = tokens[:, :-1], tokens[:, 1:].reshape(-1)
    logits = forward(weights, inputs, kept)
    share = logits.reshape(-1, VOCABULARY)
    share = np.exp(share - share.max(-1, keepdims=True))
    share /= share.sum(-1, keepdims=True)
    index = np.arange(len(targets))
    loss = -np.log(share[index, targets] + 1e-30).mean()
    share[index, targets] -= 1
    return loss, backward(weights, inputs, kept, (share / len(targets)).reshape(logits.shape))


def check_gradients():
    """Compares gradients with differences, in double precision."""
    rng = np.random.default_rng(1)
    weights = {name: rng.standard_normal(shape) * 0.1 for name, shape in shapes()}
    tokens = rng.integers(0, 8, (2, 9))
    _, grads = loss_and_gradient(weights, tokens)
    for name, weight in weights.items():
        place = np.unravel_index(np.abs(grads[name]).argmax(), weight.shape)
        losses = []
        for step in (1e-5, -2e-5):
            weight[place] += step
            losses.append(loss_and_gradient(weights, tokens)[0])
        weight[place] += 1e-5
        slope = (losses[0] - losses[1]) / 2e-5
        if abs(slope - grads[name][place]) > 1e-5 * abs(slope) + 1e-9:
            sys.exit(f"the gradient of {name} is {grads[name][place]}, but the slope is {slope}")


def train(seed, steps):
    rng = np.random.default_rng(seed)
    weights, data = initial(rng), np.frombuffer(text.corpus(seed, 1 << 20), np.uint8)
    first = {name: np.zeros_like(weight) for name, weight in weights.items()}
    second = {name: np.zeros_like(weight) for name, weight in weights.items()}
    start, mean = time.monotonic(), None
    for step in range(1, steps + 1):
        at = rng.integers(0, len(data) - LENGTH - 1, ROWS)
        tokens = np.stack([data[i : i + LENGTH + 1] for i in at])
        loss, grads = loss_and_gradient(weights, tokens)
        mean = loss if mean is None else 0.95 * mean + 0.05 * loss
        # Adam; the rate rises in 20 steps, and falls to nothing in the last half.
        rate = 4e-3 * min(1, step / 20, 2 * (1 - (step - 1) / steps))
        for name, grad in grads.items():
            first[name] += 0.1 * (grad - first[name])
            second[name] += 0.02 * (grad * grad - second[name])
            root = np.sqrt(second[name] / (1 - 0.98**step)) + 1e-8
            weights[name] -= np.float32(rate / (1 - 0.9**step)) * first[name] / root
        if step % 100 == 0 or step == steps:
            print(f"step {step} of {steps}: loss {mean:.3f}, {time.monotonic() - start:.0f} s", flush=True)
    return weights, mean


KINDS = {"F16": np.float16, "F32": np.float32, "U8": np.uint8, "U32": np.uint32}


def write(path, tensors):
    """A safetensors file, without holes; the first tensor lies at a multiple of 64 bytes."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.tobytes()
        (kind,) = (kind for kind, dtype in KINDS.items() if dtype == tensor.dtype)
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": offsets}
        data += raw
    text_of = json.dumps(header).encode()
    text_of += b" " * (-(8 + len(text_of)) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text_of)) + text_of + data)


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack_from("<Q", content)
    tensors = {}
    for name, tensor in json.loads(content[8 : 8 + length]).items():
        start, end = (8 + length + offset for offset in tensor["data_offsets"])
        tensors[name] = np.frombuffer(content[start:end], KINDS[tensor["dtype"]]).reshape(tensor["shape"])
    return tensors


def exact(weights):
    return {name: weight.astype(np.float64) for name, weight in weights.items()}


def greedy(weights, prompt, count):
    """Continues a prompt; also gives how far the best two logits were apart at each step."""
    tokens, gaps = list(prompt), []
    for _ in range(count):
        logits = forward(weights, np.array([tokens]))[0, -1]
        best = np.sort(logits)[-2:]
        tokens.append(int(logits.argmax()))
        gaps.append(best[1] - best[0])
    return bytes(tokens[len(prompt) :]), np.array(gaps, np.float32)


def reference(weights):
    """Logits and greedy texts for the prompts, and some logits of a sequence of the longest length."""
    weights, tensors = exact(weights), {}
    long = text.corpus(99, CONTEXT)[:CONTEXT]
    for index, prompt in enumerate([*PROMPTS, long]):
        tokens = np.frombuffer(prompt, np.uint8)
        positions = np.arange(len(prompt)) if prompt is not long else np.arange(31, CONTEXT, 32)
        tensors[f"{index}.tokens"] = tokens
        tensors[f"{index}.positions"] = positions.astype(np.uint32)
        tensors[f"{index}.logits"] = forward(weights, tokens[None])[0, positions].astype(np.float32)
        if prompt is not long:
            following, gaps = greedy(weights, prompt, 96)
            tensors[f"{index}.greedy"] = np.frombuffer(following, np.uint8)
            tensors[f"{index}.gaps"] = gaps
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the text, the first weights and the batches [1]")
    parser.add_argument("--steps", type=int, default=1000, help="of training [1000]")
    parser.add_argument("--most-loss", type=float, default=0.2, help="fail if training ends above it [0.2]")
    parser.add_argument("--check", action="store_true", help="train nothing; compare the files with each other")
    parser.add_argument("--print", metavar="TEXT", help="train nothing; continue a text")
    parser.add_argument("--files", metavar="DIR", default=HERE, help="where the files are [beside this program]")
    arguments = parser.parse_args()
    weights_file = os.path.join(arguments.files, "weights.safetensors")
    reference_file = os.path.join(arguments.files, "reference.safetensors")
    if arguments.print is not None:
        prompt = b"\0" + arguments.print.encode()
        print(greedy(exact(read(weights_file)), prompt, 120)[0].decode(errors="replace"))
        return
    if arguments.check:
        expected, found = read(reference_file), reference(read(weights_file))
        for name in found:
            if name not in expected or expected[name].shape != found[name].shape:
                sys.exit(f"{reference_file} has no {name} of this shape: make it anew")
            if np.abs(expected[name].astype(np.float64) - found[name]).max() > 1e-4:
                sys.exit(f"{name} is not what the weights give: make both files anew")
        print("the reference is that of the weights")
        return
    os.nice(15)
    check_gradients()
    weights, loss = train(arguments.seed, arguments.steps)
    if not loss <= arguments.most_loss:
        sys.exit(f"the loss is {loss:.3f}, above {arguments.most_loss}: nothing was written")
    halves = {name: weight.astype(np.float16) for name, weight in weights.items()}
    write(weights_file, halves)
    write(reference_file, reference(halves))
    print(f"wrote {weights_file} and {reference_file}; loss {loss:.3f}")


if __name__ == "__main__":
    main()
