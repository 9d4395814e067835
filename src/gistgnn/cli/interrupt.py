"""Ctrl-C as a request to stop after the round."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from gistgnn.cli.join_ranks import leads


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Inside the block the first Ctrl-C asks the run to stop after its round; the second one interrupts.

    Yields:
        A function that returns whether the user has asked to stop.
    """
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        if leads():
            print("gistgnn: stopping after this round; Ctrl-C again to stop at once", file=sys.stderr)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
