"""The state of a Θ on disk beside its tensors: rounds, the best round, step counts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Size

from gistgnn.errors import InputError, reason
from gistgnn.io.whole_files import replacing


def read_state(path: Path) -> dict[str, Any]:
    """Read the state of a Θ: "round", "loss", "best" and "counters". Raise InputError if it is damaged."""
    try:
        state: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
        if not isinstance(state["round"], int) or state.keys() != {"round", "loss", "best", "counters"}:
            raise ValueError("it is not what this version writes")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be used ({reason(error)}): start the run again") from error
    return state


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state of a Θ, as a whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(state), encoding="ascii")


def check_shapes(folder: Path, found: Mapping[str, Size], expected: Mapping[str, Size]) -> None:
    """Raise InputError unless the Θ in a folder is of the model with the expected shapes."""
    if differing := sorted(found.keys() ^ expected.keys()):
        raise InputError(f"{folder} is of another model: '{differing[0]}' is not in both")
    for name, shape in expected.items():
        if found[name] != shape:
            raise InputError(
                f"{folder} is of another model: '{name}' is {list(found[name])} there, {list(shape)} in this one"
            )
