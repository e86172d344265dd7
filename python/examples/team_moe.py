"""A mixture of experts: members send each token to the expert that it chose, and get it back.

python team_moe.py 4                              # four members of the CPU device, by numpy
torchrun --nproc-per-node 2 team_moe.py --cuda    # GPUs, by torch
"""

import multiprocessing
import os
import sys

import numpy as np

import gpunet

TOKENS, WIDTH, ROUNDS = 512, 256, 3
DISPATCHED, RETURNED = 0, 1  # signals


def member(team, device, stream, array):
    """One expert for each member, which multiplies by its rank plus one."""
    rank, size = team.rank, team.size
    counts, sent = team.alloc(size, "int64"), team.alloc(size, "int64")
    inbox, back = (team.alloc((size, TOKENS, WIDTH), "float32") for _ in range(2))
    choose = np.random.default_rng(rank)
    with gpunet.Queue(device, stream) as queue:
        for turn in range(1, ROUNDS + 1):
            tokens = choose.standard_normal((TOKENS, WIDTH), "float32")
            expert = choose.integers(size, size=TOKENS)
            order = np.argsort(expert, kind="stable")
            first = np.searchsorted(expert[order], np.arange(size + 1))
            array(sent)[:] = array(np.diff(first))
            queue.all_to_all(counts, sent)  # what each will get from whom
            by_expert, room = array(tokens[order]), TOKENS * WIDTH * 4
            for other in range(size):
                part = by_expert[first[other] : first[other + 1]]
                queue.put_signal(inbox, part, DISPATCHED, turn, other, offset=rank * room)
            for other in range(size):
                queue.signal_wait(team, DISPATCHED, other, turn)
            queue.synchronize()  # the host reads the counts
            for other in range(size):
                results = array(inbox)[other, : int(array(counts)[other])] * (rank + 1)
                queue.put_signal(back, results, RETURNED, turn, other, offset=rank * room)
            for other in range(size):
                queue.signal_wait(team, RETURNED, other, turn)
            queue.barrier(team)  # nobody writes before everybody has read
            queue.synchronize()
            for other in range(size):
                sent_there = by_expert[first[other] : first[other + 1]]
                if not (array(back)[other, : len(sent_there)] == sent_there * (other + 1)).all():
                    raise SystemExit(f"member {rank}: wrong tokens from expert {other}")
    print(f"member {rank} of {size}: {ROUNDS * TOKENS} tokens went to {size} experts and back", flush=True)


def main(environment):
    os.environ.update(environment)
    with gpunet.open() as net:
        if "--cuda" not in sys.argv:
            with net.attach_cpu() as device, gpunet.Team.launched(device) as team:
                return member(team, device, None, np.asarray)
        import torch

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), net.attach_cuda(None) as device, gpunet.Team.launched(device) as team:
            member(team, device, stream, lambda memory: torch.as_tensor(memory, device="cuda"))


if __name__ == "__main__":
    if "RANK" in os.environ:
        sys.exit(main({}))
    members, team = sys.argv[1], gpunet.TeamListener()
    where = {"WORLD_SIZE": members, "GPUNET_TEAM": team.id}
    team.close()  # member 0 listens there
    start = multiprocessing.get_context("spawn").Process
    running = [start(target=main, args=({**where, "RANK": str(rank)},)) for rank in range(int(members))]
    [process.start() for process in running]
    [process.join() for process in running]
    sys.exit(any(process.exitcode for process in running))
