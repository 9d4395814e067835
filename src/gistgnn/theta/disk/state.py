"""The state of a Θ on disk beside its tensors: rounds, the best round, step counts."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gistgnn.errors import InputError, reason
from gistgnn.io.whole_files import replacing
from gistgnn.layout.axes import Layout


def read_state(path: Path) -> dict[str, Any]:
    """Read the state of a Θ: "round", "loss", "best" and "counters".

    Raises:
        InputError: it cannot be read.
    """
    try:
        state: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
        if not isinstance(state["round"], int) or state.keys() != {"round", "loss", "best", "counters"}:
            raise ValueError("it is not what this version writes")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be used ({reason(error)}): start the run again") from error
    return state


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state of a Θ, as a whole or not at all.

    Raises:
        InputError: the disk does not take it.
    """
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(state), encoding="ascii")


def check_shapes(folder: Path, shapes: dict[str, torch.Size], layout: Layout, features: Sequence[int]) -> None:
    """Check that Θ is of this model.

    Raises:
        InputError: a tensor has another name or shape.
    """
    everything = [torch.arange(d) for d in features]
    if differing := sorted(shapes.keys() ^ layout.dims.keys()):
        raise InputError(f"{folder} is of another model: '{differing[0]}' is not in both")
    for name, dims in layout.dims.items():
        expected = torch.Size(len(layout.positions(dim, everything, features)) for dim in dims)
        if shapes[name] != expected:
            raise InputError(
                f"{folder} is of another model: '{name}' is {list(shapes[name])} there, {list(expected)} in this one"
            )
