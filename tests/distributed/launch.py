"""Ranks of a run on this machine, each a process of its own."""

import multiprocessing
import os
import pickle
import socket
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gistgnn.distributed import RankLostError, Ranks
from tests.helpers.commands import ready


def on_ranks(
    count: int, work: Callable[..., Any], *args: Any, only: Sequence[int] = (), **options: Any
) -> list[Any]:
    """Run `work(ranks, *args)`, which a process can import, on every one of some ranks; return what
    each returns.

    An error of a rank is raised here. Where others die, `only` names the ranks that are listened
    to. `options` are of `Ranks`.
    """
    # CUDA refuses forks
    context: Any = multiprocessing.get_context("spawn") if "device" in options else ready()
    given = (work, args, {"device": "cpu", "timeout": 60, **options})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        told = {
            "WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(probe.getsockname()[1]),
        }
    ends = [context.Pipe(duplex=False) for _ in range(count)]
    processes = [
        context.Process(target=_rank, args=({**told, "RANK": str(rank)}, end, *given), daemon=True)
        for rank, (_, end) in enumerate(ends)
    ]
    for process in processes:
        process.start()
    try:
        found = []
        for rank in only or range(count):
            assert ends[rank][0].poll(100), f"rank {rank} has nothing to say after 100 s"
            found.append(pickle.loads(ends[rank][0].recv_bytes()))
        errors = [each for each in found if isinstance(each, Exception)]
        # the cause first
        for error in sorted(errors, key=lambda error: isinstance(error, RankLostError)):
            raise error
        return found
    finally:
        for rank, process in enumerate(processes):
            process.join(0 if only and rank not in only else 10)
            process.kill()


def _rank(
    told: dict[str, str], end: Any, work: Callable[..., Any], args: tuple[Any, ...], options: Any
) -> None:
    torch.set_num_threads(1)
    os.environ |= told
    try:
        found = work(Ranks(**options), *args)
    except Exception as error:
        found = error
    # tensors by value, not by the handles of a process that ends
    end.send_bytes(pickle.dumps(found))
