"""A run's state on disk, from which it goes on as if it had never stopped."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.files import replacing


@dataclass
class Checkpoint:
    """What a resumed run needs; everything else follows from (seed, round).

    Args:
        tensors: Θ, the best Θ so far and carried moments, by name.
        state: rounds done, history, best scores: what JSON can hold.
        run: what was being run; a checkpoint is resumed only by the same run.
    """

    tensors: dict[str, Tensor]
    state: dict[str, Any]
    run: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write the checkpoint; what stood there before is replaced once the new one is whole."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        with replacing(path) as temporary:
            save_file(tensors, temporary, {"state": json.dumps(self.state), "run": json.dumps(self.run)})


def load_checkpoint(path: Path, run: dict[str, Any]) -> Checkpoint:
    """Read a checkpoint of this same run, into host memory.

    Raises:
        InputError: the file is cut short, unreadable, or of another run (the differing setting is named).
    """
    try:
        version = None
        while version != (version := _version(path)):  # safetensors opens a file twice, and it may be another by then
            found = _read(path)
    except (SafetensorError, KeyError, OSError, json.JSONDecodeError) as error:
        raise InputError(
            f"the checkpoint {path} cannot be read ({reason(error)}): delete it and start again"
        ) from error
    require_same_run(path, found.run, run)
    return found


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def _read(path: Path) -> Checkpoint:
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    return Checkpoint(tensors, json.loads(metadata["state"]), json.loads(metadata["run"]))


def require_same_run(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise InputError, naming the first setting that differs, unless a file's run is the one that is wanted."""
    wanted = json.loads(json.dumps(wanted))
    for key in sorted(found.keys() | wanted.keys(), key=lambda key: (key == "parameters", key)):  # the long one last
        if found.get(key) != wanted.get(key):
            raise InputError(
                f"{path} is of another run: {key} was {found.get(key)!r}, now {wanted.get(key)!r}; "
                "use the same settings or another output directory"
            )
