"""Ctrl-C as a request to stop after the round."""

import signal
import sys
from types import FrameType, TracebackType

from gistgnn.cli.join_ranks import leads


class Interrupt:
    """Inside the block the first Ctrl-C only sets `asked`; the second one interrupts.

    Attributes:
        asked: the user has pressed Ctrl-C.
    """

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> "Interrupt":
        """Take over SIGINT."""
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give SIGINT back."""
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if leads():
            print("gistgnn: stopping after this round; Ctrl-C again to stop at once", file=sys.stderr)
