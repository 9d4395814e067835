"""`--set NAME=VALUE`: settings of a run that few people change, without options of their own."""

import argparse
import re
import textwrap
from collections import defaultdict
from typing import Any

from gistgnn.cli.options import Parser
from gistgnn.cli.values import keyword
from gistgnn.errors import InputError
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from gistgnn.utils.checks import (
    check_choice,
    check_setting,
    choices_of,
    did_you_mean,
    meta_of,
    setting_types,
    shown,
)

# The part of a run that a setting belongs to, and its field there, by the setting's name.
SETTINGS: dict[str, tuple[str, str]] = {
    "activation": ("model", "activation"),
    "heads": ("model", "heads"),
    "attention_dropout": ("model", "attention_dropout"),
    "partition_dims": ("run", "partitioned"),
    "width_scaling": ("run", "width_scaling"),
    "base_width": ("run", "base_width"),
    "store_precision": ("run", "store_precision"),
    "training": ("training", "training"),
    "optimizer_state": ("training", "optimizer_state"),
    "momentum": ("training", "momentum"),
    "clip_norm": ("training", "clip_norm"),
    "precision": ("training", "precision"),
    "label_smoothing": ("training", "label_smoothing"),
    "batches": ("sampler", "batches"),
    "cluster_method": ("sampler", "method"),
    "precompute": ("sampler", "precompute"),
    "nodes_per_layer": ("sampler", "nodes_per_layer"),
    "row_normalise": ("sampler", "row_normalise"),
    "walk_length": ("sampler", "walk_length"),
    "sample_coverage": ("sampler", "sample_coverage"),
    "parts": ("evaluation", "parts"),
    "parts_sample": ("evaluation", "sample"),
}
_CLASSES: dict[str, type] = {"model": ModelConfig, "run": RunConfig, "training": Training}
# The help of some settings. The modules of samplers and of the evaluation import torch, so the help
# of theirs stands here.
_HELP = {
    "partition_dims": "the dimensions d_L that are split into blocks, 0 for the input features, "
    "such as 0,1 (every hidden one)",
    "batches": "shared: the same for all sub-GCNs; independent: each draws its own (shared)",
    "cluster_method": "metis, split, stream or random (metis)",
    "precompute": "of clusters: the first layer sums over all of the graph's edges (true); "
    "false: the batch's",
    "nodes_per_layer": "of ladies and fastgcn: one number, or one for each layer, "
    "such as 512,256 (512)",
    "row_normalise": "of ladies and fastgcn: the weights of a row sum to 1 (true)",
    "walk_length": "of saint-rw: steps of a walk (2)",
    "sample_coverage": "of saint-rw: walks from every node that are counted before training (20)",
    "parts": "of --evaluation parts: number of parts that METIS cuts the graph into",
    "parts_sample": "of --evaluation parts: score so many random parts, by the seed (all)",
}
Settings = dict[str, dict[str, Any]]
COLUMN = 28  # where the help of an option begins
HELP_WIDTH = 78


def add_option(parser: Parser) -> None:
    """Add ``--set``; --help-all shows all names below the options."""
    parser.names_of_set = SETTINGS
    parser.details = f"settings of --set:\n{list_of_settings()}"
    parser.add_group("further settings").add_argument(
        "--set",
        dest="further",
        action="extend",
        nargs="+",
        type=read_setting,
        metavar="NAME=VALUE",
        help="settings that few people change, such as momentum=0.9; --help-all lists them",
    )


def list_of_settings() -> str:
    """Return the settings, their meanings and their defaults, as lines of a help text."""
    indent = " " * COLUMN
    lines = []
    for name in SETTINGS:
        wrapped = textwrap.wrap(_help_of(name), HELP_WIDTH - COLUMN)
        lines.append(f"  {name:<{COLUMN - 2}}{wrapped[0]}")
        lines += [indent + line for line in wrapped[1:]]
    return "\n".join(lines)


def further_settings(args: argparse.Namespace) -> Settings:
    """Return the settings of ``--set``.

    They are grouped by the part of the run that they belong to, and named by their field there.
    """
    settings: Settings = defaultdict(dict)
    for name, value in args.further or ():
        part, field = SETTINGS[name]
        settings[part][field] = value
    return settings


def read_setting(text: str) -> tuple[str, Any]:
    """Read a setting such as momentum=0.9 or partition_dims=0,1.

    Its value is JSON, numbers with commas, or text.
    """
    name, value = keyword(text)
    if name not in SETTINGS:
        advice = (
            f"--help-all lists their names; others are options, such as --{name.replace('_', '-')}"
        )
        hint = did_you_mean(name, SETTINGS) or f": {advice}"
        raise argparse.ArgumentTypeError(f"{shown(name)} is no setting{hint}")
    if isinstance(value, str) and re.fullmatch(r"-?\d+(,-?\d+)+", value):
        value = [int(number) for number in value.split(",")]
    if value in ("True", "False"):
        value = value == "True"
    if name == "partition_dims" and isinstance(value, int):
        value = [value]
    return name, _checked(name, value)


def _checked(name: str, value: Any) -> Any:
    """Return the value, or refuse what its field refuses.

    Samplers and the evaluation check their values later.
    """
    part, field = SETTINGS[name]
    if part not in _CLASSES:
        return value
    hint = setting_types(_CLASSES[part])[field]
    try:
        if choices := choices_of(hint):
            check_choice(name, value, choices)
        return check_setting(name, value, hint)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _help_of(name: str) -> str:
    if name in _HELP:
        return _HELP[name]
    part, field = SETTINGS[name]
    kind = _CLASSES[part]
    hint = setting_types(kind)[field]
    choices = choices_of(hint)
    text = meta_of(hint).description or ""
    if not all(choice in text for choice in choices):
        text = f"{' or '.join(choices)}: {text}"
    default = getattr(kind, field)
    if default is None:
        return text
    return f"{text} ({default:g})" if isinstance(default, float) else f"{text} ({default})"
