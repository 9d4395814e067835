"""Saving a run's state while it goes on."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Size

from gistgnn.checkpoint import Checkpoint, Checkpoints, Part, storage
from gistgnn.errors import InputError, reason
from gistgnn.theta import Theta


@dataclass(frozen=True)
class Saving:
    """Where and how often a run's state is saved.

    Args:
        path: the folder of the checkpoints, which holds nothing else; where there are ranks they all see the same.
        every: rounds between checkpoints, or None to save only when the run is stopped or ends.
        resume: go on from the last checkpoint, if there is one; otherwise those in the folder are removed.
        config: what else tells this run from others, such as a model's dropout; it must be the same on resuming.
    """

    path: Path
    every: int | None = None
    resume: bool = False
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def goes_on(self) -> bool:
        """Whether there is something to go on from, and that is asked for."""
        return self.resume and Checkpoints(self.path).newest() is not None


class Saver:
    """Writes checkpoints in the background, while the next round trains: Θ does not change before it is over.

    Where Θ is sharded every rank writes its own rows, and the checkpoint is whole when the next round has ended, on
    which all ranks agree. Otherwise it is as soon as it is written.

    Args:
        theta: the parameters.
        saving: where they go.
        run: what this run is, to tell its checkpoints from another's.
    """

    def __init__(self, theta: Theta, saving: Saving, run: dict[str, Any]) -> None:
        self._theta, self._saving, self._run = theta, saving, run
        self._checkpoints = Checkpoints(saving.path)
        self._background = ThreadPoolExecutor(1, "gistgnn-saver")
        # What all ranks are writing: rounds, state, shapes. Rank 0 declares it whole.
        self._open: tuple[int, dict[str, Any], dict[str, Size]] | None = None

    def begin(self) -> Checkpoint | None:
        """Return what the run goes on from, the same on all ranks; clear the folder of everything else.

        Raises:
            InputError: it is damaged, of another run, or not to be seen by every rank.
        """

        def choose() -> str | None:
            if not self._saving.resume:
                self._checkpoints.remove()
                return None
            self._checkpoints.remove_torn()
            newest = self._checkpoints.newest()
            return newest.name if newest else None

        name = self._theta.led(choose)
        if name is None:
            return None
        return self._theta.together(lambda: Checkpoint(self._saving.path / name, self._run))

    def due(self, rounds: int) -> bool:
        """Whether a checkpoint is to be written after so many rounds."""
        return self._saving.every is not None and rounds % self._saving.every == 0

    def save(self, rounds: int, state: dict[str, Any]) -> None:
        """Begin to write Θ and the rest of the state as they are after some rounds."""
        theta, state = self._theta, json.loads(json.dumps(state))  # the original goes on
        if theta.shard is not None:
            parts = theta.checkpoint()
            theta.wait_for(self._background.submit(self._write, rounds, state, parts, theta.shard))
            if theta.shards > 1:
                self._open = rounds, state, {name: part.shape for name, part in parts.items()}

    def round_is_over(self) -> None:
        """Complete what was being written: all ranks have agreed that they have done their part."""
        if self._open:
            (rounds, state, shapes), self._open = self._open, None
            self._theta.led(lambda: self._checkpoints.complete(rounds, state, self._run, shapes))

    def finish(self) -> None:
        """Wait until everything is on the disk.

        Raises:
            InputError: it could not be written; what was saved before is there.
        """
        self._theta.together(self._theta.settle)
        self.round_is_over()

    def close(self) -> None:
        """Let nothing be written any more when this returns; errors of what was being written are passed over."""
        self._background.shutdown()

    def _write(self, rounds: int, state: dict[str, Any], parts: Mapping[str, Part], shard: int) -> None:
        place = self._checkpoints.place(rounds)
        try:
            if parts:
                storage.write_parts(place, parts, shard)
        except OSError as error:
            raise InputError(
                f"cannot write {place}: {error.strerror or reason(error)}; make room and resume the run: the last "
                "checkpoint is kept"
            ) from error
        if self._theta.shards == 1:
            self._checkpoints.complete(rounds, state, self._run, {name: part.shape for name, part in parts.items()})
