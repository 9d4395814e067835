"""The phases of a run on the command line, and the m that follows from them."""

import argparse
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gistgnn.errors import InputError
from gistgnn.phases import Phase

if TYPE_CHECKING:
    from gistgnn.runs.config import RunConfig

SUB_GCNS = 4  # m, unless it is given

PHASES_HELP = (
    "a run in phases with different m: sub-GCNs and epochs, then what differs from the other options: copies (one "
    "sub-GCN trains for all), lr=X, schedule=S, redraw=K; such as 8:20,copies 8:40 1:2,lr=0.0003"
)


def parse_phase(text: str) -> Phase:
    """Return the phase that a value of --phases describes: M:EPOCHS[,copies][,lr=X][,schedule=S][,redraw=K]."""
    numbers, *options = text.split(",")
    kinds: dict[str, tuple[str, Any]] = {
        "lr": ("lr", float),
        "schedule": ("schedule", str),
        "redraw": ("redraw_every", int),
    }
    try:
        m, epochs = numbers.split(":")
        values: dict[str, Any] = {}
        for option in options:
            name, _, value = option.partition("=")
            if option == "copies":
                values["copies"] = True
                continue
            field_name, kind = kinds[name]
            values[field_name] = kind(value)
        return Phase(int(m), float(epochs), **values)
    except InputError as error:
        raise argparse.ArgumentTypeError(f"'{text}': {error}") from None
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a phase: expected M:EPOCHS, then copies, lr=X, schedule=S or redraw=K after commas, such "
            "as 8:20,copies or 1:2,lr=0.001"
        ) from None


def chosen_sub_gcns(args: argparse.Namespace) -> int:
    """Return m: the option's, or the largest of the phases; 1 where a budget chooses it later."""
    if args.budget:
        if args.sub_gcns is not None:
            raise InputError(f"sub_gcns is {args.sub_gcns}, but a budget is given, which chooses m: leave one out")
        return 1
    if not args.phases:
        return SUB_GCNS if args.sub_gcns is None else args.sub_gcns
    if args.sub_gcns is not None:
        raise InputError(f"sub_gcns is {args.sub_gcns}, but phases are given, which say their m: leave --sub-gcns out")
    return max(phase.sub_gcns for phase in args.phases)


def within_budget(config: "RunConfig") -> "RunConfig":
    """Return the run with what is left of its budget, which began with the process."""
    left = seconds_left(config.training.budget)
    return config if left is None else replace(config, training=replace(config.training, budget=left))


def seconds_left(limit: float | None) -> float | None:
    """Return what is left of a time that began with the process; None: there is no limit."""
    import psutil

    return None if limit is None else max(limit - (time.time() - psutil.Process().create_time()), 1e-3)
