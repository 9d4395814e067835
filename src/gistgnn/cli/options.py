"""Options that several commands share."""

import argparse
import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gistgnn.evaluation import Evaluation

# As gistgnn.graphs.clustering has them, whose import would take seconds.
CLUSTER_METHODS = ("metis", "random")


def add_data_options(parser: argparse.ArgumentParser, *, default: str | None) -> None:
    """Add --dataset and --data-root."""
    said = f" (default: {default})" if default else " (default: the one that the run was trained on)"
    parser.add_argument(
        "--dataset",
        default=default,
        metavar="NAME|FILE",
        help=f"a name from `gistgnn datasets`, or a .npz or .pt{said}",
    )
    root = "data" if default else None
    said = " (default: data)" if default else " (default: the run's)"
    parser.add_argument(
        "--data-root", default=root, metavar="DIR", help=f"where named data sets are, or are downloaded to{said}"
    )


def add_device_option(parser: argparse.ArgumentParser) -> None:
    """Add --device."""
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")


def add_memory_option(parser: argparse.ArgumentParser) -> None:
    """Add --memory."""
    parser.add_argument(
        "--memory",
        type=gibibytes,
        metavar="GIB",
        help="what the run may take where the model is, on the host or the GPU (default: what is available)",
    )


def add_evaluation_options(parser: argparse.ArgumentParser, *, default: str | None, sample: bool = True) -> None:
    """Add --evaluation, --evaluation-memory and --parts; a sample of the parts is for scores alone."""
    said = default or "the run's"
    group = parser.add_argument_group("evaluation")
    group.add_argument(
        "--evaluation",
        choices=("auto", "whole", "layers", "parts"),
        help="the whole graph at once; layer by layer within a budget of memory, exact; by parts, approximate; "
        f"auto: layer by layer where the whole graph would take more than the budget (default: {said})",
    )
    group.add_argument(
        "--evaluation-memory",
        type=gibibytes,
        metavar="GIB",
        help="the budget of auto, layers and parts, beside the graph and the model (default: half of what is "
        "available)",
    )
    group.add_argument("--parts", type=count, metavar="P", help="into how many METIS cuts the graph")
    if sample:
        said = "all" if default else "the run's, or all where --parts is given"
        group.add_argument(
            "--parts-sample",
            type=count,
            metavar="K",
            help=f"how many of the parts, drawn by the seed, are run and scored (default: {said})",
        )


def evaluation_of(args: argparse.Namespace, run: "Evaluation | None" = None) -> "Evaluation":
    """Return the evaluation that is asked for; what is not said is as in the run, unless it is another method.

    Raises:
        InputError: options that do not go together.
    """
    from gistgnn.evaluation import Evaluation

    method, memory, parts = args.evaluation, args.evaluation_memory, args.parts
    sample = getattr(args, "parts_sample", None)
    if run is not None and method in (None, run.method):
        sample = sample or (run.sample if parts is None else None)
        method, memory, parts = run.method, memory or run.memory, parts or run.parts
    return Evaluation(method or "auto", memory, parts, sample)


def gibibytes(text: str) -> int:
    """Read a positive number of GiB; return bytes."""
    try:
        size = int(float(text) * 2**30)
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of GiB above 0")
    return size


def seconds(text: str) -> float:
    """Read a positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return value


def count(text: str) -> int:
    """Read an integer >= 1."""
    value = int(text) if text.lstrip("+-").isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer >= 1")
    return value


def natural(text: str) -> int:
    """Read an integer >= 0."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer >= 0")
    return int(text)


def bits(text: str) -> float:
    """Read a bandwidth such as 25Gbit or 100Mbit; return bytes a second."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG])bit", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"'{text}' is not a bandwidth such as 25Gbit, 100Mbit or 10Kbit (a second)")
    return float(found[1]) * {"K": 1e3, "M": 1e6, "G": 1e9}[found[2]] / 8


def milliseconds(text: str) -> float:
    """Read a number of milliseconds >= 0; return seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of milliseconds >= 0")
    return value / 1000
