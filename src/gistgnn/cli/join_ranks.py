"""A command that torchrun has started on several ranks."""

import argparse
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gistgnn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gistgnn.distributed import World


def leads() -> bool:
    """Whether this process is the one that speaks to the user: rank 0, or the only one."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(args: argparse.Namespace, device: str) -> "Iterator[World]":
    """The ranks of the run while the block lasts, or `Alone` where torchrun has not started this process.

    Raises:
        InputError: they cannot be reached, or an option does not go with them.
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
            "so that they go on from the last checkpoint"
        )
    ranks = Ranks(_local(device), args.timeout, args.interface)
    try:
        yield ranks
    finally:
        ranks.close()


def _local(device: str) -> str:
    """The GPU of this rank on its machine, where it is to be a GPU and none is named."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device
