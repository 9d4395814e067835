"""The process of a command: its place among the ranks that torchrun has started."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from gistgnn.cli.signals import ending_at_once, leads
from gistgnn.errors import InputError

if TYPE_CHECKING:
    from gistgnn.distributed import World


def load_torch(module: str = "torch", title: str = "") -> None:
    """Import torch, or a module that needs it, which takes seconds; a terminal shows that something happens.

    Args:
        module: what is imported.
        title: what is about to be trained, in a few words. A log has it as its first line, before torch is imported.
    """
    from gistgnn.utils.console import spinner

    task, slow = f"starting: {title}" if title else "starting", "torch" not in sys.modules
    with spinner(task, shown=leads(), logged=bool(title) and slow), ending_at_once():
        import_module(module)


def refuse_torchrun(what: str, more: str = "") -> None:
    """Raise an InputError if torchrun has started this process; `what` is done in one."""
    if "RANK" in os.environ or "TORCHELASTIC_RUN_ID" in os.environ:
        error = InputError(f"{what} in one process, but torchrun has started it: start gistgnn itself{more}")
        error.relayed = True  # every rank raises it
        raise error


@contextmanager
def joined(args: argparse.Namespace, device: str) -> "Iterator[World]":
    """Join the other ranks while the block lasts; `Alone` if torchrun has not started this process.

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
    own = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device  # each rank has a GPU of its own
    ranks = Ranks(own, args.timeout, args.interface)
    try:
        yield ranks
    finally:
        ranks.close()
