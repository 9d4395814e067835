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
        every: rounds between checkpoints. Defaults to saving only when the run ends. This may be by
            Ctrl-C or an error, which leave the state after the last whole round.
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


class Saver:
    """Writes checkpoints in the background while the next round trains.

    Θ does not change until that round ends. Where ranks hold rows of Θ, every rank writes its rows,
    and the checkpoint is complete when the next round has ended, as all ranks exchange messages
    then. Otherwise it is complete as soon as it is written.

    Args:
        theta: what is saved.
        ranks: the processes of the run.
        saving: where and how often it is saved.
        run: the fingerprint of the run. Only a run with the same one resumes from its checkpoints.
    """

    def __init__(
        self, theta: Theta, ranks: World, saving: Saving, run: dict[str, dict[str, Any]]
    ) -> None:
        self._theta = theta
        self._ranks = ranks
        self._saving = saving
        self._run = run
        self._checkpoints = Checkpoints(saving.path)
        self._background: ThreadPoolExecutor | None = None  # There is none while it is closed.
        self._lock: FolderLock | None = None  # Rank 0 has it.
        # The rounds and the state of a checkpoint that not all ranks may have written yet.
        self._incomplete: tuple[int, dict[str, Any]] | None = None
        # The rounds of the checkpoint whose last round is scored after resuming.
        self._pending: int | None = None
        self._rounds_key = f"rounds of {saving.path.resolve()}"

    def begin(self) -> Progress | None:
        """Restore Θ from the newest checkpoint, and return its progress.

        Returns None if the run begins from scratch. Other checkpoints in the folder are then
        removed.
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
        # Files and devices may differ by rank, so the fingerprint is that of rank 0.
        name, self._run = ranks.lead(lambda: (choose(), self._run))
        rounds_before = ranks.recall(self._rounds_key) if ranks.leads else None
        if rounds_before is not None:
            saved_rounds = int(name.removeprefix("round-")) if name else 0
            lost_rounds = max(int(rounds_before) - saved_rounds, 0)
            log.info(
                "torchrun has restarted the ranks: they go on after round %d; rounds lost: %d",
                saved_rounds,
                lost_rounds,
            )
        if name is None:
            return None
        folder = self._saving.path / name
        share = (ranks.rank, ranks.count)
        checkpoint = ranks.together(lambda: Checkpoint(folder, self._run, share))
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
            if newest is not None and newest > self._checkpoints.folder_of(rounds):
                raise InputError(
                    f"{newest} is of a run that has gone on since round {rounds}: resume from it, "
                    "or choose another folder"
                )

        if self._background is None:
            self._background = ThreadPoolExecutor(1, "gistgnn-saver")
            self._ranks.lead(lock)

    def save(self, progress: Progress, *, last: bool, over: bool) -> None:
        """Save the state after a round, if a checkpoint is due.

        Args:
            progress: of the run.
            last: whether it was the last round of this process. Then this waits until the
                checkpoint is on disk.
            over: whether the run has its result. Then it is only logged if the last checkpoint
                cannot be written.
        """
        interval = self._saving.every
        theta = self._theta
        is_due = interval is not None and progress.rounds % interval == 0
        # After resuming, this state is on disk already: scoring the round again gives the same.
        if progress.rounds == self._pending:
            return
        if (last or theta.place.is_durable or is_due) and theta.shard is not None:
            state = plain(vars(progress))  # A copy, as the progress changes in the next round.
            assert self._background is not None
            writing = self._background.submit(
                self._write, progress.rounds, state, theta.checkpoint(), theta.shard
            )
            theta.block_writes_until(writing)
            if theta.shards > 1:
                self._incomplete = (progress.rounds, state)
        if last:
            try:
                self._ranks.together(theta.wait_for_reader)
                self._complete_earlier()
            except InputError as error:
                if not over or theta.place.is_durable:
                    raise
                self._incomplete = None
                log.warning(
                    "%s (the run is over, and has its result without this checkpoint)", error
                )

    def save_after_error(self, recorded: Progress, *, pending: bool) -> str:
        """Save the state after the last round in Θ, unless it is on disk.

        Args:
            recorded: the progress of the run.
            pending: whether Θ has been through one round more, which could not be scored. It is
                scored when the run is resumed.

        Returns:
            A sentence that says whether the state is saved, and where.
        """
        theta = self._theta
        rounds = recorded.rounds
        state = plain(vars(recorded))
        if pending and not theta.place.is_durable:  # The files of Θ know that round.
            state["pending_loss"] = theta.place.loss
            rounds += 1
        last = recorded.rounds + pending
        folder = self._checkpoints.folder_of(rounds)
        try:
            theta.wait_for_reader()  # An earlier checkpoint may still be written.
        except Exception as error:
            log.warning("%s", reason(error))
        try:
            if folder not in self._checkpoints.complete_folders():
                self._write(rounds, state, theta.checkpoint(), 0)
        except Exception as error:
            return f"the state after round {last} cannot be saved ({reason(error)})"
        return f"the state after round {last} is saved in {self._saving.path}: resume from there"

    def round_is_over(self, rounds: int) -> None:
        """Note how many rounds are over, and complete the checkpoint of an earlier one.

        All ranks have written their part of it by now.
        """
        if self._ranks.leads:
            self._ranks.remember(self._rounds_key, str(rounds))
        self._complete_earlier()

    def close(self) -> None:
        """Wait for pending writes; ignore their errors."""
        if self._background is not None:
            self._background.shutdown()
        if self._lock is not None:
            self._lock.free()
        self._background = None
        self._lock = None

    def _complete_earlier(self) -> None:
        """Complete the checkpoint that not all ranks may have written when it was begun."""
        if self._incomplete is not None:
            rounds, state = self._incomplete
            self._incomplete = None
            self._ranks.lead(lambda: self._complete(rounds, state))

    def _write(
        self, rounds: int, state: dict[str, Any], parts: Mapping[str, Part], shard: int
    ) -> None:
        """Write this process's part of a checkpoint, and complete it if it has no other parts."""
        if not self._theta.place.is_durable:
            self._checkpoints.write(rounds, parts, shard)
        if self._theta.shards == 1:
            self._complete(rounds, state)

    def _complete(self, rounds: int, state: dict[str, Any]) -> None:
        """Write the state of a checkpoint whose other files are written."""
        theta = self._theta
        files = 0 if theta.place.is_durable else theta.shards
        self._checkpoints.complete(
            rounds, state, self._run, files, theta.place.files_id, theta.place.folders
        )
        theta.remove_sources()
