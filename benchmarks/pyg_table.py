"""Trains each of PyG's layers and models by GIST for a few rounds, and writes what became of it as
a page of the docs.

    python -m benchmarks.pyg_table [--only NAME ...] [--page FILE]

With --only it prints rows, and writes nothing.
"""

import argparse
import copy
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Any

import torch
import torch_geometric
from torch_geometric.nn import conv, models

from benchmarks.pyg_modules import LAYERS, MODELS, Case
from benchmarks.pyg_nets import TYPES, C, D, F
from gistgnn import GIST, Graph
from gistgnn.errors import GistError, reason

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "pyg-modules.md"
NODES = 40
EPOCHS = 8

LEFT_OUT = {
    "MessagePassing": "the base class",
    "CuGraphSAGEConv": "needs pylibcugraphops",
    "CuGraphGATConv": "needs pylibcugraphops",
    "CuGraphRGCNConv": "needs pylibcugraphops",
    "FusedGATConv": "needs dgNN",
    **dict.fromkeys(["HeteroJumpingKnowledge", "MetaPath2Vec"], "several types of nodes"),
    **dict.fromkeys(
        ["Node2Vec", "RENet", "TGNMemory", "MaskLabel"], "no model of features and edges"
    ),
    **dict.fromkeys(["InnerProductDecoder", "ARLinkPredictor", "LPFormer"], "link prediction"),
    **dict.fromkeys(["VGAE", "ARGA", "ARGVA"], "as GAE"),
    **dict.fromkeys(["DimeNet", "DimeNetPlusPlus", "GNNFF", "ViSNet"], "molecules, as SchNet"),
    **dict.fromkeys(["GPSE", "GPSENodeEncoder"], "encodings of positions"),
    **dict.fromkeys(["LabelPropagation", "CorrectAndSmooth"], "nothing to train"),
    **dict.fromkeys(["to_captum_model", "to_captum_input", "captum_output_to_dicts"], "functions"),
}
"""Names of `torch_geometric.nn.conv` and `torch_geometric.nn.models` that are not tried, and
why.
"""


@dataclass(frozen=True)
class Outcome:
    """What became of a module: whether it trains, and how, or why not."""

    trains: bool
    text: str


def exported() -> list[str]:
    """Return the names in `torch_geometric.nn.conv` and `torch_geometric.nn.models`."""
    return [*conv.__all__, *models.__all__]


def graph() -> Graph:
    """Return a small random graph with edge data of every kind."""
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(NODES) % C
    x = torch.rand(NODES, F, generator=rng)
    x[torch.arange(NODES), y] += 1
    half = torch.randint(NODES, (2, 3 * NODES), generator=rng)
    edges = torch.cat([half, half.flip(1).flip(0)], dim=1)
    count = edges.shape[1]
    third = NODES // 3
    return Graph.build(
        x,
        edges,
        y,
        train=range(third),
        val=range(third, 2 * third),
        test=range(2 * third, NODES),
        edge_weight=torch.rand(count, generator=rng) + 0.5,
        edge_attr=torch.rand(count, D, generator=rng),
        edge_type=torch.randint(TYPES, (count,), generator=rng),
    )


def attempt(case: Case) -> Outcome:
    """Train a module's model by GIST with two sub-GCNs, fused where that is possible."""
    torch.manual_seed(0)
    messages = _Messages()
    logger = logging.getLogger("gistgnn")
    logger.addHandler(messages)
    try:
        gist = GIST(case.build, case.widths, 2)
        before = copy.deepcopy(gist.model().state_dict())
        options: dict[str, Any] = {"runner": "fused", "standardise": False, "progress": False}
        result = gist.fit(_with_what_is_taken(case), epochs=EPOCHS, local_steps=2, **options)
    except GistError as error:
        return Outcome(False, f"refused: {error}")
    except Exception as error:  # PyG's layers raise what they like
        return Outcome(False, f"fails: {reason(error)}")
    finally:
        logger.removeHandler(messages)
    after = gist.model().state_dict()
    if (
        all(torch.equal(before[name], value) for name, value in after.items())
        or not result.progress.rounds
    ):
        raise RuntimeError(f"{case} was trained, and no parameter has changed")
    unfused = [text.split("not fused: ")[1] for text in messages.texts if "not fused: " in text]
    outcome = f"trains, not fused: {unfused[0]}" if unfused else "trains, fused"
    # edge data without effect
    told = [text for text in messages.texts if text.startswith("the graph has")]
    return Outcome(True, "; ".join([outcome, *told]))


def _with_what_is_taken(case: Case) -> Graph:
    """Return the graph with the edge data that the case names, and no other."""
    whole = graph()
    return replace(whole, **{name: None for name in whole.edge_data if name not in case.how})


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def row(name: str, case: Case) -> str:
    """Return the module's row of the table."""
    text = " ".join(attempt(case).text.replace("|", "\\|").replace("<", "&lt;").split())
    return f"| {name} | {case.how} | {text} |"


def page(rows: dict[str, list[str]]) -> str:
    """Return the page. ``rows`` are those of each table, by its heading."""
    trained = sum("| trains" in line for lines in rows.values() for line in lines)
    count = sum(len(lines) for lines in rows.values())
    parts = [
        "# PyG's layers and models",
        f"`python -m benchmarks.pyg_table` writes this page. It puts each layer and model of PyG "
        f"{torch_geometric.__version__} into a small model, and trains it by `GIST.fit` with two "
        "sub-GCNs for a few "
        f"rounds. {trained} of {count} train. The others are refused before the first step, with "
        "the message in the "
        "last column. A model trains only if its layout passes a numerical check (see "
        "[how a model is cut](../explanation/layout.md)).",
        "*Stack*: the layer twice, one after the other. *Between linear*: the layer between two "
        "linear layers, with "
        "one width for all. The names after that are the [edge data](../how-to/edge-data.md) that "
        "it gets. *Fused*: "
        '`runner="fused"` trains all sub-GCNs in one pass.',
    ]
    for heading, lines in rows.items():
        parts += [
            f"## {heading}",
            "\n".join(["| module | how | outcome |", "| --- | --- | --- |", *lines]),
        ]
    left = {name: why for name, why in LEFT_OUT.items() if name in exported()}
    reasons = {why: [name for name, other in left.items() if other == why] for why in left.values()}
    listed = "\n".join(f"- {', '.join(names)}: {why}." for why, names in reasons.items())
    parts += ["## Not tried", listed]
    return "\n\n".join(_wrapped(part) for part in parts) + "\n"


def _wrapped(text: str) -> str:
    return (
        text
        if text.startswith(("|", "#", "-"))
        else fill(text, 120, break_long_words=False, break_on_hyphens=False)
    )


def main() -> None:
    """Write the page, or print some rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="print the rows of these modules")
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    if args.only:
        print("\n".join(row(name, {**LAYERS, **MODELS}[name]) for name in args.only))
        return
    cases = {"Layers": LAYERS, "Models": MODELS}
    rows = {
        heading: [row(name, case) for name, case in table.items()]
        for heading, table in cases.items()
    }
    args.page.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
