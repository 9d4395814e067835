"""The folder of a Θ on disk: which files are in it, and how it begins."""

import contextlib
import os
import socket
from pathlib import Path
from typing import Literal

import msgspec

from gistgnn.distributed import World
from gistgnn.storage.json_files import write_json
from gistgnn.storage.tensors import LargeTensorsInFiles, allocate, map_tensors
from gistgnn.storage.whole_files import remove_files, sync, writing
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.registry import Store
from gistgnn.theta.slices import ALL_ROWS, Share, Slices

PARAMETERS = "parameters.safetensors"
BEST = "best.safetensors"
STATE = "theta.json"
ROUND = "round"
NEW = ".new"  # ends the name of a folder whose files replace an older Θ when their run begins
START_AGAIN = "this Θ cannot be used: start the run again"
RESUME = (
    "make room, or choose another disk; the state before is kept, and the run can be resumed "
    "from it"
)


class State(msgspec.Struct):
    """What theta.json holds."""

    run: str  # the id of these files, and of those of the other ranks
    round: int = 0  # how many rounds are over
    loss: float = 0.0  # of the last one
    pending: bool = False  # the last round is in its files, and may not be in Θ
    counters: dict[str, float] = {}  # the step counts of the moments, by key
    moments: list[str] = []  # the names of the files of the moments
    share: Share = ALL_ROWS  # of the rows: which of how many these are
    version: Literal[3] = 3  # of this form


def find_writers_and_folder(store: Store, share: Share, ranks: World) -> tuple[list[int], Path]:
    """Return which rank writes the files that each rank uses, and this rank's folder.

    Of the ranks that see the same folder, the first writes. The folder is the store's, or one
    beside it for rows and for copies of other machines.
    """
    assert store.folder is not None
    path = store.folder.absolute()
    disk = next(parent for parent in path.parents if parent.exists()).stat()
    machine = socket.gethostname()
    with contextlib.suppress(OSError):
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    locations = ranks.gather([machine, disk.st_dev, disk.st_ino, os.fspath(path), share])
    writer_of = [locations.index(location) for location in locations]
    writer = writer_of[ranks.rank]
    suffix = ""
    if share.total > 1:
        suffix = f".rows-{share.number:05}-of-{share.total:05}"
    elif writer:
        suffix = f".copy-{writer:05}"
    return writer_of, store.folder.with_name(f"{store.folder.name}{suffix}")


def every_folder(folder: Path) -> list[Path]:
    """The folders in which a Θ of this store, or what a killed process left of it, may lie."""
    beside = (
        f"{folder.name}{name}{end}"
        for name in ("", ".rows-*-of-*", ".copy-*")
        for end in ("", ".tmp", NEW, f"{NEW}.tmp")
    )
    return [
        folder,
        *(path for name in beside for path in folder.parent.glob(name) if path != folder),
    ]


def remove(folder: Path) -> None:
    """Remove the files of a Θ from a folder, and the folder if nothing else is in it."""
    remove_files(folder / ROUND, "*.safetensors", STATE)
    remove_files(folder, STATE, PARAMETERS, BEST, "moments-*.safetensors")


def write_new(folder: Path, spec: ModelSpec, slices: Slices, state: State, *, half: bool) -> None:
    """Write this rank's rows of the initial values into a folder.

    What is there is replaced. With `half` the numbers are in bfloat16.
    """
    temporary = folder.with_name(folder.name + ".tmp")
    try:
        with writing(folder, RESUME):
            remove(temporary)
            temporary.mkdir(parents=True)
            allocate(temporary / PARAMETERS, slices.rank_specs(half=half))
            tensors = map_tensors(temporary / PARAMETERS)
            with LargeTensorsInFiles(temporary):
                for name, value in spec.initial_tensors().items():
                    tensors[name].copy_(slices.rank_rows(name, value))
            sync(temporary / PARAMETERS)
            write_json(temporary / STATE, state)
            remove(folder)
            temporary.rename(folder)
    finally:
        remove(temporary)
