"""Where the host waits for the GPU."""

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tests.helpers.pretended_gpu import Place, here, waits

from .runs import PRETENDED


@contextmanager
def counted_waits(gpu: str) -> Iterator[Counter[Place]]:
    """Yield a counter of the files and functions of gistgnn in which the host waits within the block."""
    found: Counter[Place] = Counter()
    if gpu == PRETENDED:
        before = waits().copy()
        yield found
        found.update(waits() - before)
        return

    def seen(message: Any, *_: Any, **__: Any) -> None:
        if "called a synchronizing CUDA operation" in str(message):
            found[here(sys._getframe(1))] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = seen
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")


@contextmanager
def no_waits(gpu: str) -> Iterator[None]:
    """Refuse to wait for the GPU within the block."""
    if gpu == PRETENDED:
        with counted_waits(gpu) as found:
            yield
        assert not found
        return
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
