"""Options that several commands share, and how their values are read."""

import argparse
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from gistgnn.cli.signals import GRACE
from gistgnn.errors import InputError
from gistgnn.utils.checks import LARGEST_SEED, LONGEST, MOST, WIDEST

if TYPE_CHECKING:
    from gistgnn.evaluation import Evaluation

    Options = argparse._ActionsContainer  # a parser, or a group of one
    from gistgnn.sampling import Sampling


# As in `gistgnn.graphs.clustering` and `gistgnn.evaluation`, which import torch.
CLUSTER_METHODS = ("metis", "stream", "random")
EVALUATION_METHODS = ("auto", "whole", "layers", "parts")


def add_field(options: "Options", kind: type, name: str, text: str = "", **extra: Any) -> None:
    """Add the option for a field of a dataclass, with its type and its default; `local_steps` becomes --local-steps.

    `extra` are arguments of `add_argument`, which win over the field's. The help text is `text` with the default, or
    with `shown` in its place.
    """
    field = kind.__dataclass_fields__[name]  # type: ignore[attr-defined]
    default = extra.setdefault("default", field.default)
    if "choices" not in extra:
        extra.setdefault("type", next(iter(get_args(field.type)), field.type))
    shown = extra.pop("shown", default)
    shown = f"{shown:g}" if isinstance(shown, float) else shown
    note = "" if shown is None else f"(default: {shown})"
    flag = extra.pop("flag", f"--{name.replace('_', '-')}")
    options.add_argument(flag, dest=extra.pop("dest", name), help=f"{text} {note}".strip(), **extra)


def data_root() -> str:
    """Return where named data sets are, unless an option says it: the environment variable GISTGNN_DATA, or data."""
    return os.environ.get("GISTGNN_DATA") or "data"


def add_data_root(options: "Options") -> None:
    """Add --data-root."""
    text = "where named data sets are, or are downloaded to (default: the environment variable GISTGNN_DATA, or data)"
    options.add_argument("--data-root", default=data_root(), metavar="DIR", help=text)


def add_data_options(options: "Options", *, default: str | None) -> None:
    """Add --dataset and --data-root; without a default they are the run's."""
    text = "a name from `gistgnn datasets`, a .npz or .pt, or a folder of `gistgnn convert`"
    text += f" (default: {default or 'the data set of the run'})"
    options.add_argument("--dataset", default=default, metavar="NAME|FILE|FOLDER", help=text)
    if default:
        add_data_root(options)
        return
    text = "where named data sets are (default: as in the run; if there is no such folder, GISTGNN_DATA or data)"
    options.add_argument("--data-root", metavar="DIR", help=text)


def add_device_option(options: "Options") -> None:
    """Add --device."""
    options.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")


def add_folder_option(options: "Options", default: Path) -> None:
    """Add --out of a command that keeps many runs."""
    text = "where finished runs, the table and the report are kept; run again with the same DIR to resume"
    options.add_argument("--out", type=Path, default=default, metavar="DIR", help=f"{text} (default: {default})")


def add_ranks_options(options: "Options") -> None:
    """Add --timeout and --interface."""
    text = "with torchrun: how long to wait for another rank (default: 1800)"
    options.add_argument("--timeout", type=seconds, default=1800.0, metavar="SECONDS", help=text)
    text = "with torchrun: the network interface, such as eth0, through which the ranks reach each other"
    options.add_argument("--interface", metavar="NAME", help=text)


def add_grace_option(options: "Options") -> None:
    """Add --grace."""
    text = "after SIGTERM, SIGHUP or SIGUSR1: how long the round may take to its end (default: 30)"
    options.add_argument("--grace", type=seconds, default=GRACE, metavar="SECONDS", help=text)


def add_memory_option(options: "Options") -> None:
    """Add --memory."""
    text = "memory that the run may take on the device of the model, host or GPU (default: what is available)"
    options.add_argument("--memory", type=gibibytes, metavar="GIB", help=text)


def add_evaluation_options(parser: argparse.ArgumentParser, *, default: str | None, sample: bool = True) -> None:
    """Add --evaluation, --evaluation-memory, --parts and, if there are scores, --parts-sample.

    `default` is the default method; None: as in the run.
    """
    add = parser.add_argument_group("evaluation").add_argument
    add(
        "--evaluation",
        choices=EVALUATION_METHODS,
        help="whole: all of the graph at once; layers: layer by layer, exact; parts: part by part, approximate; auto: "
        f"layers if the whole graph takes more memory than it may (default: {default or 'as in the run'})",
    )
    text = "memory for auto, layers and parts, beside the graph and the model (default: half of what is available)"
    add("--evaluation-memory", type=gibibytes, metavar="GIB", help=text)
    add("--parts", type=count, metavar="P", help="number of parts that METIS cuts the graph into")
    if sample:
        shown = "all" if default else "as in the run; all, if --parts is given"
        add("--parts-sample", type=count, metavar="K", help=f"score K random parts, by the seed (default: {shown})")


def evaluation_of(args: argparse.Namespace, run: "Evaluation | None" = None) -> "Evaluation":
    """Return the evaluation that the options describe. With the method of a run, its values are the defaults."""
    from gistgnn.evaluation import Evaluation

    method, memory, parts = args.evaluation, args.evaluation_memory, args.parts
    sample = getattr(args, "parts_sample", None)
    if run is not None and method in (None, run.method):
        sample = sample or (run.sample if parts is None else None)
        method, memory, parts = run.method, memory or run.memory, parts or run.parts
    return Evaluation(method or "auto", memory, parts, sample)


def own_or_known(text: str) -> str:
    """Read the name of a model: one of ours, or a function of the user's own."""
    from gistgnn.nn import MODELS

    if text in MODELS or ":" in text:
        return text
    known = ", ".join(MODELS)
    raise argparse.ArgumentTypeError(f"invalid choice: '{text}' (choose from {known}, or give file.py:function)")


def keyword(text: str) -> tuple[str, Any]:
    """Read a keyword and its value, such as alpha=0.1: JSON, or else text."""
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise argparse.ArgumentTypeError(f"'{text}' is not a keyword with a value, such as alpha=0.1")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):  # no JSON, or lists within lists a thousand times
        return name, value


def gibibytes(text: str) -> int:
    """Read a positive number of GiB; return bytes."""
    return int(_number(text, f"a number of GiB above 0, at most {MOST:,}", lambda gib: 2**-30 <= gib <= MOST) * 2**30)


def memory_size(text: str) -> int:
    """Read a size of memory such as 32GB or 1.75GiB; return bytes. Both units are 2^30 bytes, as memory is sold."""
    units = {"MB": 2**20, "MiB": 2**20, "GB": 2**30, "GiB": 2**30}
    return int(_with_unit(text, units, "a size such as 32GB or 512MB"))


def seconds(text: str) -> float:
    """Read a positive number of seconds."""
    return _number(text, f"a number of seconds above 0, at most {LONGEST:,.0f}", lambda value: 0 < value <= LONGEST)


def duration(text: str) -> float:
    """Read a time such as 90s, 10min, 1.5h or 600 (seconds); return seconds."""
    expected = f"a time such as 90s, 10min or 1.5h, of at most {LONGEST:,.0f} seconds"
    return _with_unit(text, {"": 1, "s": 1, "min": 60, "h": 3600}, expected, LONGEST)


def count_or_auto(text: str) -> int | Literal["auto"]:
    """Read an integer, or auto."""
    try:
        return "auto" if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer >= 1 or auto") from None


def count(text: str, least: int = 1, most: int = MOST) -> int:
    """Read an integer from `least` to `most`."""
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer >= {least}")
    if value > most:
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer from {least} to {most}")
    return value


natural = partial(count, least=0)  # an integer >= 0
seed = partial(count, least=0, most=LARGEST_SEED)
seeds = partial(count, most=1000)  # runs that differ in their seed
width = partial(count, most=WIDEST)  # features of a layer
heads = partial(count, most=10_000)  # of attention
jobs = partial(count, most=1000)  # processes


def points(text: str) -> float:
    """Read a number of percentage points."""
    return _number(text, "a number of points from 0 to 100", lambda value: 0 <= value <= 100)


def _with_unit(text: str, units: Mapping[str, float], expected: str, most: float = MOST * 2**30) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", text)
    value = float(match[1]) * units.get(match[2], 0.0) if match else 0.0
    if not 0 < value <= most:
        raise argparse.ArgumentTypeError(f"'{text}' is not {expected}")
    return value


def _number(text: str, expected: str, fits: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and fits(value)):
        raise argparse.ArgumentTypeError(f"'{text}' is not {expected}")
    return value


def sampler_of(args: argparse.Namespace) -> "Sampling | None":
    """Return the sampler that the options describe; None: every step sees the whole graph.

    The number of clusters is that of the graph's folder, unless it is given.
    """
    from gistgnn.graphs import clusters_of
    from gistgnn.sampling import SAMPLERS

    settings = {name: [field.name for field in fields(kind)] for name, kind in SAMPLERS.items()}
    values = {}
    for name in dict.fromkeys(name for names in settings.values() for name in names):
        value = getattr(args, name)
        if value is None:
            continue
        if name not in settings.get(args.sampler, []):
            samplers = " or ".join(sampler for sampler, names in settings.items() if name in names)
            option = {"method": "cluster_method", "fanouts": "fanout"}.get(name, name)
            raise InputError(f"{option} is given, but the sampler is {args.sampler}: add --sampler {samplers}")
        values[name] = value[0] if isinstance(value, list) and len(value) == 1 else value
    if args.sampler == "clusters" and args.clusters is None:
        if (there := clusters_of(args.dataset)) is None:
            raise InputError("the sampler is clusters, but not how many: add --clusters, such as --clusters 50")
        values = {"clusters_per_batch": min(10, there), **values, "clusters": there}
    return SAMPLERS[args.sampler](**values) if args.sampler != "full" else None
