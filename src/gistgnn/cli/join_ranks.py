"""The ranks of a command that torchrun has started."""

import argparse
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gistgnn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gistgnn.distributed import World


def leads() -> bool:
    """Return whether this process prints messages: it is rank 0, or the only process."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(args: argparse.Namespace, device: str) -> "Iterator[World]":
    """Join the other ranks while the block lasts; `Alone` if torchrun has not started this process.

    Args:
        args: the options of the command: interface, timeout and resume.
        device: where this rank trains.

    Raises:
        InputError: an option does not fit the way the process was started.
        RankLostError: the other ranks cannot be reached.
    """
    from gistgnn.distributed import Alone, Ranks, started_by_torchrun

    if not started_by_torchrun():
        if args.interface:
            raise InputError(f"--interface is {args.interface}, but there are no ranks: start by torchrun")
        yield Alone()
        return
    if os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0" and not args.resume:
        raise InputError(
            "torchrun may restart the ranks (--max-restarts), but --resume is not given: add --resume and --out DIR, "
            "so that they resume from the last checkpoint"
        )
    # "cuda" means one GPU for each rank of this machine
    ranks = Ranks(
        f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device, args.timeout, args.interface
    )
    try:
        yield ranks
    finally:
        ranks.close()
