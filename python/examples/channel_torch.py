"""A trainer hands the state dict of a torch module to a server, which loads it while it goes on.

python channel_torch.py [cpu | cuda]      # runs both on this machine; with cuda the GPU copies from process to process
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys

import torch

import gpunet


def module(device: str) -> torch.nn.Module:
    layers = [torch.nn.Linear(1024, 1024, dtype=torch.bfloat16) for _ in range(4)]
    return torch.nn.Sequential(*layers).to(device)


def train(address: str, device: str) -> None:
    """Sends its weights, all arrays as one transfer."""
    model = module(device)
    with torch.no_grad(), gpunet.Channel.connect(address) as channel:
        for step in range(3):
            for parameter in model.parameters():
                parameter.fill_(step)
            # The channel waits for what is on torch's current stream.
            outcome = channel.send(model.state_dict(), progress=True)
            print(f"step {step}: {outcome.nbytes} bytes by {outcome.via}", flush=True)


async def serve(channel: gpunet.Channel, device: str) -> None:
    """Receives into a second state dict while the first one is in use."""
    model, state = module(device), module(device).state_dict()
    while True:
        try:
            await channel.recv_into_async(state)
        except EOFError:
            return
        model.load_state_dict(state)
        print("serving with", next(model.parameters()).mean().item(), flush=True)


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    with gpunet.Channel.listen(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        trainer = multiprocessing.get_context("spawn").Process(target=train, args=(f"{host}:{port}", device))
        trainer.start()
        with listener.accept(timeout=120) as channel:
            asyncio.run(serve(channel, device))
        trainer.join()


if __name__ == "__main__":
    main()
