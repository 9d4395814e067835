"""Save the state of a run while it trains."""

import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gistgnn.distributed import World
from gistgnn.errors import InputError, reason
from gistgnn.fit.result import Progress
from gistgnn.storage.checkpoints import Checkpoint, Checkpoints, Part
from gistgnn.storage.folder_lock import FolderLock
from gistgnn.storage.json_files import plain
from gistgnn.theta.theta import Theta
from gistgnn.utils.checks import check_count, check_flag, check_kind, set_field

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Saving:
    """Where and how often a run's state is saved.

    Args:
        path: the folder of the checkpoints, which holds nothing else. All ranks have to see the
            same files in it. A run in another process that saves there is refused.
        every: rounds between checkpoints, or None to save only when the run ends: also by Ctrl-C or
            an error, which leave the state after the last whole round.
        resume: resume from the last checkpoint, if there is one; otherwise the checkpoints in the
            folder are removed.
        config: further settings of this run, such as a model's dropout. A resumed run must have the
            same.
    """

    path: Path
    every: int | None = None
    resume: bool = False
    config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_kind("path", self.path, (str, os.PathLike), "the path of a folder")
        object.__setattr__(self, "path", Path(self.path))
        if self.every is not None:
            set_field(self, "every", check_count("every", self.every))
        check_flag("resume", self.resume)
        check_kind("config", self.config, dict, "a dict of settings")

    @property
    def resumes(self) -> bool:
        """Whether there is a checkpoint from which the run resumes."""
        return self.resume and Checkpoints(self.path).newest() is not None


# Where ranks hold rows of Θ, every rank writes its own, and the checkpoint is whole when the next
# round has ended, because all ranks exchange messages then. Otherwise it is whole as soon as it is
# written. Only the same `run` resumes from it.
class Saver:
    """Writes checkpoints in the background while the next round trains: Θ does not change until
    that round ends.
    """

    def __init__(
        self, theta: Theta, ranks: World, saving: Saving, run: dict[str, dict[str, Any]]
    ) -> None:
        self._theta = theta
        self._ranks = ranks
        self._saving = saving
        self._run = run
        self._checkpoints = Checkpoints(saving.path)
        self._background: ThreadPoolExecutor | None = None  # None: it is closed
        self._lock: FolderLock | None = None  # on rank 0
        # the checkpoint that all ranks write: rounds, state
        self._open: tuple[int, dict[str, Any]] | None = None
        # the rounds of the checkpoint whose last round is scored after resuming
        self._pending: int | None = None
        self._rounds_key = f"rounds of {saving.path.resolve()}"

    def begin(self) -> Progress | None:
        """Restore Θ from the checkpoint to resume from, and return its progress; remove other files
        from the folder.
        """

        def choose() -> str | None:
            self._lock = FolderLock(self._saving.path, beside=True)
            if not self._saving.resume:
                self._checkpoints.remove()
                return None
            self._checkpoints.remove_torn()
            newest = self._checkpoints.newest()
            return newest.name if newest else None

        self._background = ThreadPoolExecutor(1, "gistgnn-saver")
        ranks = self._ranks
        # files and devices may differ by rank
        name, self._run = ranks.lead(lambda: (choose(), self._run))
        done = ranks.recall(self._rounds_key) if ranks.leads else None
        if done is not None:
            kept = int(name.removeprefix("round-")) if name else 0
            lost = max(int(done) - kept, 0)
            log.info(
                "torchrun has restarted the ranks: they go on after round %d; rounds lost: %d",
                kept,
                lost,
            )
        if name is None:
            return None
        place = self._saving.path / name
        share = (ranks.rank, ranks.count)
        checkpoint = ranks.together(lambda: Checkpoint(place, self._run, share))
        progress = checkpoint.state_as(Progress)
        loss = progress.pending_loss
        progress.pending_loss = None
        rounds = progress.rounds if loss is None else progress.rounds + 1
        ranks.together(lambda: self._theta.restore(checkpoint, progress.first_round + rounds))
        if loss is not None:
            self._theta.place.loss = loss
            self._pending = rounds
        return progress

    def go_on(self, rounds: int) -> None:
        """Begin to save again after `close`, where the run has been through some rounds."""

        def lock() -> None:
            if self._lock is None:
                self._lock = FolderLock(self._saving.path, beside=True)
            newest = self._checkpoints.newest()
            if newest is not None and newest > self._checkpoints.place(rounds):
                said = f"{newest} is of a run that has gone on since round {rounds}"
                raise InputError(f"{said}: resume from it, or choose another folder")

        if self._background is None:
            self._background = ThreadPoolExecutor(1, "gistgnn-saver")
            self._ranks.lead(lock)

    def save(self, progress: Progress, *, last: bool, over: bool) -> None:
        """After a round, save the state if a checkpoint is due; after the last one, wait until it
        is on disk.

        A run that is `over` has a result, so a last checkpoint that cannot be written is but a
        note.
        """
        every = self._saving.every
        theta = self._theta
        due = every is not None and progress.rounds % every == 0
        if progress.rounds == self._pending:  # it is on disk, and scoring it again gives the same
            return
        if (last or theta.place.lasts or due) and theta.shard is not None:
            state = plain(vars(progress))  # the original changes in the next round
            work = (progress.rounds, state, theta.checkpoint(), theta.shard)
            assert self._background is not None
            theta.block_writes_until(self._background.submit(self._write, *work))
            if theta.shards > 1:
                self._open = progress.rounds, state
        if last:
            try:
                self._ranks.together(theta.wait_for_reader)
                self._complete_open()
            except InputError as error:
                if not over or theta.place.lasts:
                    raise
                self._open = None
                log.warning(
                    "%s (the run is over, and has its result without this checkpoint)", error
                )

    def save_after_error(self, recorded: Progress, *, pending: bool) -> str:
        """Save the state after the last round that is in Θ, unless it is on disk; return what
        became of it, in words.

        Args:
            recorded: the progress of the run.
            pending: Θ has been through one round more, which has failed while it was scored, or was
                not scored at all. That is done when the run is resumed.
        """
        theta = self._theta
        rounds = recorded.rounds
        state = plain(vars(recorded))
        if pending and not theta.place.lasts:  # else its files have that round, and know it
            state["pending_loss"] = theta.place.loss
            rounds += 1
        last = recorded.rounds + pending
        where = self._checkpoints.place(rounds)
        try:
            theta.wait_for_reader()  # of an earlier checkpoint
        except Exception as error:
            log.warning("%s", reason(error))
        try:
            if where not in self._checkpoints.whole():
                self._write(rounds, state, theta.checkpoint(), 0)
        except Exception as error:
            return f"the state after round {last} cannot be saved ({reason(error)})"
        return f"the state after round {last} is saved in {self._saving.path}: resume from there"

    def round_is_over(self, rounds: int) -> None:
        """Note how many rounds are done, and declare the open checkpoint whole: all ranks have
        written their part.
        """
        if self._ranks.leads:
            self._ranks.remember(self._rounds_key, str(rounds))
        self._complete_open()

    def close(self) -> None:
        """Wait for pending writes; ignore their errors."""
        if self._background is not None:
            self._background.shutdown()
        if self._lock is not None:
            self._lock.free()
        self._background = self._lock = None

    def _complete_open(self) -> None:
        if self._open:
            (rounds, state) = self._open
            self._open = None
            self._ranks.lead(lambda: self._complete(rounds, state))

    def _write(
        self, rounds: int, state: dict[str, Any], parts: Mapping[str, Part], shard: int
    ) -> None:
        if not self._theta.place.lasts:
            self._checkpoints.write(rounds, parts, shard)
        if self._theta.shards == 1:
            self._complete(rounds, state)

    def _complete(self, rounds: int, state: dict[str, Any]) -> None:
        theta = self._theta
        place = self._theta.place
        files = 0 if place.lasts else theta.shards
        self._checkpoints.complete(rounds, state, self._run, files, place.files_id, place.folders)
        theta.is_saved()
