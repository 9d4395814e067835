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
    """Run `work(ranks, *args)` on every rank, and return what each of them returns.

    A process can import `work`. An error of a rank is raised here. Where some ranks die, `only`
    names those that are listened to. `options` are of `Ranks`.
    """
    # CUDA refuses forks.
    context: Any = multiprocessing.get_context("spawn") if "device" in options else ready()
    arguments_of_rank = (work, args, {"device": "cpu", "timeout": 60, **options})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        environment = {
            "WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(probe.getsockname()[1]),
        }
    ends = [context.Pipe(duplex=False) for _ in range(count)]
    processes = [
        context.Process(
            target=_rank,
            args=({**environment, "RANK": str(rank)}, end, *arguments_of_rank),
            daemon=True,
        )
        for rank, (_, end) in enumerate(ends)
    ]
    for process in processes:
        process.start()
    try:
        results = []
        for rank in only or range(count):
            assert ends[rank][0].poll(100), f"rank {rank} has nothing to say after 100 s"
            results.append(pickle.loads(ends[rank][0].recv_bytes()))
        errors = [result for result in results if isinstance(result, Exception)]
        if errors:
            # That a rank was lost follows from the error of that rank, which is raised first.
            raise min(errors, key=lambda error: isinstance(error, RankLostError))
        return results
    finally:
        for rank, process in enumerate(processes):
            process.join(0 if only and rank not in only else 10)
            process.kill()


def _rank(
    environment: dict[str, str],
    end: Any,
    work: Callable[..., Any],
    args: tuple[Any, ...],
    options: Any,
) -> None:
    torch.set_num_threads(1)
    os.environ |= environment
    try:
        result = work(Ranks(**options), *args)
    except Exception as error:
        result = error
    # Tensors are sent by value, as the handles of a process end with it.
    end.send_bytes(pickle.dumps(result))
