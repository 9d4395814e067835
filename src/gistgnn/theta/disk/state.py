"""The state of a Θ on disk beside its tensors: rounds, the best round, step counts, and which files belong to it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Size

from gistgnn.errors import InputError
from gistgnn.io.records import Schema, read_record, write_record
from gistgnn.theta.disk.tensor_file import START_AGAIN

PARAMETERS, MOMENT_FILES, STATE = "parameters", "moments", "theta.json"  # names in the folder of Θ
_VERSION = 2
_SCHEMA: Schema = {
    "run": str,  # the id of these files
    "round": int,
    "loss": (int, float),
    "written": int,  # how often Θ has been written
    "parameters": str,  # the digest of the checksums of their rows
    "moments": (str, type(None)),  # likewise; None: there are none
    "best": (dict, type(None)),  # "written" and "parameters" of the best Θ
    "counters": dict,
}


def read_state(path: Path) -> dict[str, Any]:
    """Read the state of a Θ. Raise InputError if it is damaged, or missing."""
    try:
        return read_record(path, _VERSION, _SCHEMA, START_AGAIN)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; {START_AGAIN}") from error


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state of a Θ, as a whole or not at all."""
    write_record(path, state, _VERSION)


def check_shapes(folder: Path, found: Mapping[str, Size], expected: Mapping[str, Size]) -> None:
    """Raise InputError unless the Θ in a folder is of the model with the expected shapes."""
    if differing := sorted(found.keys() ^ expected.keys()):
        raise InputError(f"{folder} is of another model: '{differing[0]}' is not in both")
    for name, shape in expected.items():
        if found[name] != shape:
            raise InputError(
                f"{folder} is of another model: '{name}' is {list(found[name])} there, {list(shape)} in this one"
            )
