"""The files of a Θ on disk: how they are made, and what theta.json beside them says."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from torch import Size

from gistgnn.errors import InputError, reason
from gistgnn.storage.json_files import write_json
from gistgnn.storage.tensors import LargeTensorsInFiles, allocate, map_tensors
from gistgnn.storage.whole_files import sync
from gistgnn.theta.model_spec import ModelSpec

PARAMETERS, BEST, STATE, ROUND = "parameters.safetensors", "best.safetensors", "theta.json", "round"


class State(msgspec.Struct):
    """What theta.json holds.

    Args:
        run: the id of these files.
        round: how many rounds are over.
        loss: of the last one.
        pending: the last round is in its files, and may not be in Θ.
        counters: the step counts of the moments, by key.
        moments: the names of the files of the moments.
        version: of this form.
    """

    run: str
    round: int = 0
    loss: float = 0.0
    pending: bool = False
    counters: dict[str, float] = {}
    moments: list[str] = []
    version: Literal[3] = 3


def write_new(folder: Path, spec: ModelSpec, *, half: bool) -> None:
    """Write the model's initial values into a folder, in place of what is there; `half`: in bfloat16."""
    temporary = folder.with_name(folder.name + ".tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        allocate(temporary / PARAMETERS, spec.tensor_specs(half=half))
        tensors = map_tensors(temporary / PARAMETERS)
        with LargeTensorsInFiles(temporary):
            for name, value in spec.initial_tensors().items():
                tensors[name].copy_(value)
        sync(temporary / PARAMETERS)
        write_json(temporary / STATE, State(secrets.token_hex(16)))  # Θ may be made before a run's settings are known
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def unwritable(path: Path, error: OSError) -> InputError:
    """Return the error for a file of Θ that cannot be written."""
    return InputError(
        f"cannot write {path}: {error.strerror or reason(error)}; make room, or choose another disk; the state "
        "before is kept, and the run can be resumed from it"
    )


def check_shapes(folder: Path, found: Mapping[str, Size], expected: Mapping[str, Size]) -> None:
    """Raise InputError unless the Θ in a folder is of the model with the expected shapes."""
    if differing := sorted(found.keys() ^ expected.keys()):
        raise InputError(f"{folder} is of another model: '{differing[0]}' is not in both")
    for name, shape in expected.items():
        if found[name] != shape:
            raise InputError(
                f"{folder} is of another model: '{name}' is {list(found[name])} there, {list(shape)} in this one"
            )
