"""The folder of a run: chosen, checked, and never replaced without being asked."""

import argparse
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.errors import InputError

if TYPE_CHECKING:
    from gistgnn.runs.config import RunConfig


WRITTEN = ("checkpoints/*", "theta", "runs", "runs/*", "runs/*/*")
"""Folders in an output folder in which a killed command may have left temporary files."""


@contextmanager
def own_directory(out: Path) -> Iterator[Path]:
    """Yield a folder that no other process writes while the block lasts, without what killed processes left there."""
    from gistgnn.storage.folder_lock import locked
    from gistgnn.storage.whole_files import remove_leftovers

    with locked(out, advice="give another --out"):
        remove_leftovers(out, WRITTEN)
        yield out


@contextmanager
def run_directory(args: argparse.Namespace, config: "RunConfig") -> Iterator[Path]:
    """Yield the folder of the run: --out, or a new one in runs/. No other process writes it while the block lasts.

    What --overwrite replaces is removed; nothing else is replaced.
    """
    from gistgnn.fit.result import RESULT
    from gistgnn.runs.config import THETA
    from gistgnn.runs.run_folder import CHECKPOINTS
    from gistgnn.storage.checkpoints import Checkpoints
    from gistgnn.storage.whole_files import check_writable

    if args.overwrite and args.resume:
        raise InputError("--resume and --overwrite are both given: one goes on with a run, the other replaces it")
    if args.out is None and args.resume:
        raise InputError("--resume needs --out: say which run to resume")
    with own_directory(args.out) if args.out else _new_directory(config) as out:
        check_writable(out)
        checkpoints = Checkpoints(out / CHECKPOINTS)
        if args.overwrite:
            checkpoints.remove()
        elif checkpoints.newest() and not args.resume:
            raise InputError(f"{out} holds an unfinished run: add --resume to go on with it, or --overwrite")
        elif (out / RESULT).exists() and not args.resume:
            raise InputError(f"{out} already holds a result: choose another --out, or add --overwrite")
        if not checkpoints.newest():  # Θ of a run that is replaced, or that was killed before its first checkpoint
            for left in (THETA, f"{THETA}.tmp"):
                shutil.rmtree(out / left, ignore_errors=True)
        yield out


def finished_run(out: Path, config: "RunConfig") -> dict[str, Any] | None:
    """Return the result.json of this run if it is finished; None: there is something left to do."""
    from gistgnn.fit.result import RESULT
    from gistgnn.runs.run_folder import CHECKPOINTS, check_files, config_of, read_record
    from gistgnn.storage.checkpoints import Checkpoints, require_same_run

    if Checkpoints(out / CHECKPOINTS).newest() or not (out / RESULT).exists():
        return None
    record = read_record(out)
    require_same_run(out / RESULT, config_of(record).resume_identity, config.resume_identity)
    if record.get("interrupted"):
        raise InputError(f"{out} holds an interrupted run, but no checkpoint to resume from: add --overwrite instead")
    if "diverged" in record:
        raise InputError(record["diverged"])
    check_files(out, record)
    return record


@contextmanager
def _new_directory(config: "RunConfig") -> Iterator[Path]:
    """Make and lock a folder that no other process has made."""
    from gistgnn.graphs import find
    from gistgnn.storage.folder_lock import FolderInUseError, locked

    # In the name of a synthetic graph a point is no suffix, and a file name should have no colon.
    dataset = config.dataset.replace(":", "-") if find(config.dataset) else Path(config.dataset).stem
    method = "" if config.method == "gist" else f"-{config.method}"
    split = "budget" if config.training.budget else f"m{config.sub_gcns}"
    stem = f"{dataset}-{config.model.name.rpartition(':')[2]}{method}-{split}-seed{config.seed}"
    with ExitStack() as lock:
        for n in count(1):
            out = Path("runs") / (stem if n == 1 else f"{stem}-{n}")
            if not out.exists():
                with suppress(FolderInUseError):  # another process has made it meanwhile
                    lock.enter_context(locked(out))
                    break
        yield out
