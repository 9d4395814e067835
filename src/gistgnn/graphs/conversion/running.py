"""Runs the passes in which a folder is made, one after the other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from gistgnn.graphs.on_disk.making import Making
from gistgnn.graphs.on_disk.manifest import StoredArray
from gistgnn.utils.progress import TaskProgress


class Running:
    """Runs passes, records what they return, and passes over those that were finished before.

    Args:
        work: the folder.
        label: what progress is called; None: it is not shown.

    Attributes:
        seconds: of each pass that was run, by name.
    """

    def __init__(self, work: Making, label: str | None) -> None:
        self._work, self._label = work, label
        self._shown: TaskProgress | None = None
        self.seconds: dict[str, float] = {}

    def run(self, passes: Mapping[str, Callable[[], Any]]) -> None:
        """Run passes; each returns what JSON can hold, and `result` gives it."""
        self._shown = TaskProgress(self._label, len(passes)) if self._label else None
        with self._shown or contextlib.nullcontext():
            for name, work in passes.items():
                start = time.perf_counter()
                if self.result(name) is None:
                    self._work.record(f"{name} done", work())
                    self.seconds[name] = time.perf_counter() - start
                if self._shown:
                    self._shown.advance()

    def result(self, name: str) -> Any:
        """Return what a finished pass has returned; None: it is not finished."""
        return self._work.reached(f"{name} done")

    def within(self, share: float) -> None:
        """Show the share of the running pass that is done."""
        if self._shown:
            self._shown.within(min(share, 1))


def plain(arrays: Mapping[str, StoredArray]) -> dict[str, Any]:
    """Return the entries of arrays as JSON holds them."""
    return {name: asdict(array) for name, array in arrays.items()}


def stored(entries: Mapping[str, Any]) -> dict[str, StoredArray]:
    """Return arrays from the entries of `plain`."""
    return {
        name: StoredArray(entry["dtype"], tuple(entry["shape"]), tuple(entry["checksums"]))
        for name, entry in entries.items()
    }
