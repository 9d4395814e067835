"""The folder of a run: chosen, checked, and never replaced without being asked."""

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.errors import InputError

if TYPE_CHECKING:
    from gistgnn.runs.config import RunConfig


def choose_directory(args: argparse.Namespace, config: "RunConfig") -> Path:
    """Return the folder of the run: --out, or a new one in runs/.

    Raises:
        InputError: it cannot be written, or holds another run and neither --resume nor --overwrite is given.
    """
    from gistgnn.checkpoint import Checkpoints
    from gistgnn.io.whole_files import check_writable
    from gistgnn.runs.config import THETA
    from gistgnn.runs.run_folder import CHECKPOINTS
    from gistgnn.session.saved_result import RESULT

    if args.out is None and args.resume:
        raise InputError("--resume needs --out: say which run to resume")
    out: Path = args.out or _new_directory(config)
    check_writable(out)
    checkpoints = Checkpoints(out / CHECKPOINTS)
    if args.overwrite and not args.resume:
        checkpoints.remove()
    elif checkpoints.newest() and not args.resume:
        raise InputError(f"{out} holds an unfinished run: add --resume to go on with it, or --overwrite")
    elif (out / RESULT).exists() and not args.resume:
        raise InputError(f"{out} already holds a result: choose another --out, or add --overwrite")
    if not checkpoints.newest():  # Θ of a run that is replaced, or that was killed before its first checkpoint
        shutil.rmtree(out / THETA, ignore_errors=True)
    return out


def finished_run(out: Path, config: "RunConfig") -> dict[str, Any] | None:
    """Return the result.json of this run if it is finished; None: there is something left to do.

    Raises:
        InputError: the folder holds another finished run, or this one diverged.
    """
    from gistgnn.checkpoint import Checkpoints, require_same_run
    from gistgnn.runs.run_folder import CHECKPOINTS, config_of, read_record
    from gistgnn.session.saved_result import RESULT

    if Checkpoints(out / CHECKPOINTS).newest() or not (out / RESULT).exists():
        return None
    record = read_record(out)
    require_same_run(out / RESULT, config_of(record).resume_identity, config.resume_identity)
    if record.get("interrupted"):
        raise InputError(f"{out} holds an interrupted run, but no checkpoint to resume from: add --overwrite instead")
    if "diverged" in record:
        raise InputError(record["diverged"])
    return record


def _new_directory(config: "RunConfig") -> Path:
    from gistgnn.graphs import find

    # In the name of a synthetic graph a point is no suffix, and a file name should have no colon.
    dataset = config.dataset.replace(":", "-") if find(config.dataset) else Path(config.dataset).stem
    method = "" if config.method == "gist" else f"-{config.method}"
    split = "budget" if config.training.budget else f"m{config.sub_gcns}"
    stem = f"{dataset}-{config.model.name.rpartition(':')[2]}{method}-{split}-seed{config.seed}"
    names = (Path("runs") / (stem if n == 1 else f"{stem}-{n}") for n in range(1, sys.maxsize))
    return next(name for name in names if not name.exists())
