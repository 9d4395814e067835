"""The directory of a run: chosen, checked, and not written over unasked."""

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.errors import InputError

if TYPE_CHECKING:
    from gistgnn.runs.config import RunConfig


def choose_directory(args: argparse.Namespace, config: "RunConfig") -> Path:
    """Return the directory of the run: --out, or a new one in runs/.

    Raises:
        InputError: it cannot be written, or holds a run that was not asked to be replaced or resumed.
    """
    from gistgnn.checkpoint import Checkpoints
    from gistgnn.io.whole_files import check_writable
    from gistgnn.runs.config import THETA
    from gistgnn.runs.run_folder import CHECKPOINTS, RESULT

    if args.out is None and args.resume:
        raise InputError("--resume needs --out: say which run is to go on")
    out: Path = args.out or _new_directory(config)
    check_writable(out)
    checkpoints = Checkpoints(out / CHECKPOINTS)
    if args.overwrite and not args.resume:
        checkpoints.remove()
    elif checkpoints.newest() and not args.resume:
        raise InputError(f"{out} holds an unfinished run: add --resume to go on with it, or --overwrite")
    elif (out / RESULT).exists() and not args.resume:
        raise InputError(f"{out} already holds a result: choose another --out, or add --overwrite")
    if not checkpoints.newest():  # of a run that came to no checkpoint, or is written over
        shutil.rmtree(out / THETA, ignore_errors=True)
    return out


def finished_run(out: Path, config: "RunConfig") -> dict[str, Any] | None:
    """Return the record of this very run where it is finished, or None where there is still something to do.

    Raises:
        InputError: the finished run is another one, or diverged.
    """
    from gistgnn.checkpoint import Checkpoints, require_same_run
    from gistgnn.runs.run_folder import CHECKPOINTS, RESULT, config_of, read_record

    if Checkpoints(out / CHECKPOINTS).newest() or not (out / RESULT).exists():
        return None
    record = read_record(out)
    require_same_run(out / RESULT, config_of(record).goes_on_from, config.goes_on_from)
    if "diverged" in record:
        raise InputError(record["diverged"])
    return record


def _new_directory(config: "RunConfig") -> Path:
    from gistgnn.graphs import find

    # A point in a synthetic graph's fraction begins no suffix, and a colon belongs in no file name.
    dataset = config.dataset.replace(":", "-") if find(config.dataset) else Path(config.dataset).stem
    method = "" if config.method == "gist" else f"-{config.method}"
    stem = f"{dataset}-{config.model.name}{method}-m{config.sub_gcns}-seed{config.seed}"
    names = (Path("runs") / (stem if n == 1 else f"{stem}-{n}") for n in range(1, sys.maxsize))
    return next(name for name in names if not name.exists())
