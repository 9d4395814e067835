"""Trains each of PyG's layers and models by GIST, and writes a page of the docs about it.

    python -m benchmarks.pyg_table [--only NAME ...] [--page FILE]

Each trains for a few rounds, or is refused. With --only it prints what became of some modules, as a
user sees it, and writes nothing.
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
"""Names of `torch_geometric.nn.conv` and `torch_geometric.nn.models` that are left out, and why."""


REFUSED = {
    **dict.fromkeys(
        ["GravNetConv", "SplineConv", "DynamicEdgeConv", "XConv"],
        "needs `pyg-lib`, which the tests do not have",
    ),
    "PANConv": "needs `torch-sparse`, which the tests do not have",
    "NNConv": "makes a matrix for every edge: take `GINEConv`",
    "NNConv with two widths": "a dimension is the product of two widths: take `GINEConv`",
    "GENConv with two sizes": "has a projection only where its two sizes differ: give it one "
    "integer width, between linear layers",
    **dict.fromkeys(
        ["EGConv with two heads", "GPSConv with two heads"],
        "divides its width over the heads by position: take one head",
    ),
    **dict.fromkeys(
        ["HGTConv", "HeteroConv", "HANConv"],
        "takes dictionaries of types: take a layer with `edge_type`, such as `RGCNConv`",
    ),
    "WLConv": "takes classes of nodes, and has nothing to train",
    "MeshCNNConv": "takes meshes, in which every edge has four neighbours",
    **dict.fromkeys(
        ["AttentiveFP", "SGFormer", "Polynormer"],
        "takes `batch`: write a `forward(x, edge_index)` around it",
    ),
    "SignedGCN": "takes two kinds of edges: write a forward around it",
    "RECT_L": "gives features, not classes",
    **dict.fromkeys(["LINKX", "LightGCN"], "has a row of parameters for each node of one graph"),
    "NeuralFingerprint": "gives one output for a whole graph: take a loop of your own",
    "DeepGraphInfomax": "gives several outputs, for a loss of its own: take a loop of your own",
    "SchNet": "takes atoms and their positions",
}
"""Modules that are refused, and why, in words for a reader."""

IN_TURN = {
    "MFConv": "chooses its weights by the degree of each node",
    "HypergraphConv": "selects entries by a mask",
    "HEATConv": "adds in place",
    "GroupAddRev": "has a backward pass of its own",
    "GraphUNet": "keeps the nodes with the highest scores",
}
"""Modules that train, but not fused, and why."""


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
    level = logger.level
    logger.setLevel(logging.INFO)  # another script in this process may have raised it
    logger.addHandler(messages)
    try:
        gist = GIST(case.build, case.widths, 2)
        before = copy.deepcopy(gist.model().state_dict())
        options: dict[str, Any] = {"runner": "fused", "standardise": False, "progress": False}
        result = gist.fit(_graph_for(case), epochs=EPOCHS, local_steps=2, **options)
    except GistError as error:
        return Outcome(False, f"refused: {error}")
    except Exception as error:  # PyG's layers raise what they like
        return Outcome(False, f"fails: {reason(error)}")
    finally:
        logger.removeHandler(messages)
        logger.setLevel(level)
    after = gist.model().state_dict()
    unchanged = all(torch.equal(before[name], value) for name, value in after.items())
    if unchanged or not result.progress.rounds:
        raise RuntimeError(f"{case} was trained, and no parameter has changed")
    unfused = [text.split("not fused: ")[1] for text in messages.texts if "not fused: " in text]
    outcome = f"trains, not fused: {unfused[0]}" if unfused else "trains, fused"
    # One note says that the graph has edge data that the model does not use.
    notes = [text for text in messages.texts if text.startswith("the graph has")]
    return Outcome(True, "; ".join([outcome, *notes]))


def _graph_for(case: Case) -> Graph:
    """Return the graph with the edge data that the case names, and no other."""
    complete = graph()
    unused = [name for name in complete.edge_data if name not in case.form]
    return replace(complete, **dict.fromkeys(unused))


class _Messages(logging.Handler):
    """Collects what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def kind_of(outcome: Outcome) -> str:
    """Return what the page says of an outcome in one word: fused, in turn or refused."""
    if not outcome.trains:
        return "refused"
    return "fused" if outcome.text == "trains, fused" else "in turn"


def check_reasons(kinds: dict[str, str]) -> None:
    """Raise an error where a module has no reason above, or one that it no longer needs."""
    for kind, reasons in {"refused": REFUSED, "in turn": IN_TURN}.items():
        names = {name for name, other in kinds.items() if other == kind}
        if names != reasons.keys():
            differ = sorted(names ^ reasons.keys())
            raise SystemExit(f"{kind}: the reasons in {__file__} are to be mended for {differ}")


def page(kinds: dict[str, str]) -> str:
    """Return the page.

    Args:
        kinds: of every module, by its name: fused, in turn or refused.
    """
    trained = {name for name, kind in kinds.items() if kind != "refused"}
    parts = [
        "# PyG's layers and models",
        f"`python -m benchmarks.pyg_table` puts each layer and model of PyG "
        f"{torch_geometric.__version__} into a small model, and trains it by `GIST.fit` with two "
        f"sub-GCNs. {len(trained)} of {len(kinds)} train. The others are refused before the first "
        "step, in one line. [Your own model](../how-to/models.md) says how to use them.",
        "## What trains",
        _table("modules", _trained_by_edge_data(trained)),
        "All sub-GCNs train in one pass (`--runner fused`), but for these, which train in turn:",
        _table("why", _grouped(IN_TURN)),
        "## What is refused",
        _table("why", _grouped(REFUSED)),
    ]
    return "\n\n".join(_wrapped(part) for part in parts) + "\n"


def _trained_by_edge_data(trained: set[str]) -> dict[str, str]:
    """Return the names of what trains, by the edge data that it was given."""
    rows: dict[str, list[str]] = {}
    for name in LAYERS:
        if name in trained:
            _, _, data = LAYERS[name].form.partition(", ")
            rows.setdefault(f"layers with {data}" if data else "", []).append(name)
    rows["other layers"] = rows.pop("")
    rows["models"] = [name for name in MODELS if name in trained]
    return {heading: ", ".join(names) for heading, names in rows.items()}


def _grouped(reasons: dict[str, str]) -> dict[str, str]:
    """Return each reason by the names that share it."""
    names_by_reason: dict[str, list[str]] = {}
    for name, why in reasons.items():
        names_by_reason.setdefault(why, []).append(name)
    return {", ".join(names): why for why, names in names_by_reason.items()}


def _table(heading: str, rows: dict[str, str]) -> str:
    lines = [f"| {name} | {text} |" for name, text in rows.items()]
    return "\n".join([f"| | {heading} |", "| --- | --- |", *lines])


def _wrapped(text: str) -> str:
    if text.startswith(("|", "#", "-")):
        return text
    return fill(text, 120, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    """Write the page, or print what becomes of some modules."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="print what these modules do")
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    cases = {**LAYERS, **MODELS}
    if args.only:
        for name in args.only:
            print(f"{name}: {attempt(cases[name]).text}")
        return
    kinds = {name: kind_of(attempt(case)) for name, case in cases.items()}
    check_reasons(kinds)
    args.page.write_text(page(kinds), encoding="utf-8")


if __name__ == "__main__":
    main()
