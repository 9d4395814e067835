"""The process of a command: its place among the ranks that torchrun has started, and Ctrl-C."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING

from gistgnn.errors import InputError

if TYPE_CHECKING:
    from gistgnn.distributed import World

INTERRUPTED = 130  # exit status


def leads() -> bool:
    """Return whether this process prints messages: it is rank 0, or the only process."""
    return os.environ.get("RANK", "0") == "0"


def load_torch(module: str = "torch") -> None:
    """Import torch, or one of its modules, which takes seconds; a terminal shows that something happens."""
    from gistgnn.utils.console import spinner

    with spinner("starting", shown=leads()):
        import_module(module)


def say(text: str) -> None:
    """Print a line for the user on standard error, where results of other programs are not mixed with it."""
    if leads():
        print(f"gistgnn: {text}", file=sys.stderr, flush=True)


def alone_error(what: str, more: str = "") -> InputError:
    """Return the error for a command that torchrun has started, and that trains in one process."""
    error = InputError(f"{what} trains in one process, but torchrun has started it: start gistgnn itself{more}")
    error.relayed = True  # every rank raises it
    return error


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
    # "cuda" means one GPU for each rank of this machine
    ranks = Ranks(
        f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" else device, args.timeout, args.interface
    )
    try:
        yield ranks
    finally:
        ranks.close()


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Inside the block the first Ctrl-C asks the run to stop after its round; the second one interrupts.

    Yields a function that returns whether the user has asked to stop.
    """
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        say("stopping after this round; Ctrl-C again to stop at once")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
