"""Two processes exchange a dict of numpy arrays: weights go to a worker, and gradients come back.

python channel_numpy.py           # runs both on this machine, by one copy where that is possible
python channel_numpy.py serve 7779
python channel_numpy.py work HOST:7779
"""

from __future__ import annotations

import multiprocessing
import sys

import numpy as np

import gpunet

STEPS = 3


def serve(listener: gpunet.ChannelListener) -> None:
    """Sends weights, and takes a step by the gradients that come."""
    weights = {"w": np.ones((512, 512), "float32"), "b": np.zeros(512, "float32")}
    gradients = {name: np.empty_like(array) for name, array in weights.items()}
    with listener, listener.accept() as channel:
        for step in range(STEPS):
            outcome = channel.send(weights)
            channel.recv_into(gradients, timeout=60)
            for name, array in weights.items():
                array -= 0.1 * gradients[name]
            print(f"step {step}: {outcome.nbytes} bytes by {outcome.via}; w is {weights['w'][0, 0]:.3f}", flush=True)


def work(address: str) -> None:
    """Makes gradients for whatever weights come, until the channel is closed."""
    with gpunet.Channel.connect(address) as channel:
        for weights in channel:
            channel.send({name: 2 * array for name, array in weights.items()})


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        return work(sys.argv[2])
    if sys.argv[1:2] == ["serve"]:
        return serve(gpunet.Channel.listen(("", int(sys.argv[2]))))
    listener = gpunet.Channel.listen(("127.0.0.1", 0))
    host, port = listener.getsockname()
    # A child of fork could not use the listener.
    worker = multiprocessing.get_context("spawn").Process(target=work, args=(f"{host}:{port}",))
    worker.start()
    serve(listener)
    worker.join()


if __name__ == "__main__":
    main()
