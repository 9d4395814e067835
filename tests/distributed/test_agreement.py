"""Ranks with different settings, models or graphs are refused before they train."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gistgnn import GIST, Graph, InputError, Loop, Saving
from gistgnn.distributed import Ranks
from gistgnn.distributed.agreement import require_same
from gistgnn.graphs import CSR, save_file
from gistgnn.sampling import ClusterSampling
from tests.helpers.commands import run_ranks
from tests.helpers.edges import weighted
from tests.helpers.models import OURS, tiny_graph

from .launch import on_ranks

COMMON: dict[str, Any] = {"epochs": 8, "local_steps": 2, "progress": False}
START = {name: tensor + 0.0 for name, tensor in OURS["gcn"]((8, 8)).state_dict().items()}


def other(tensor: torch.Tensor, by: float = 1, below: float = 1e9) -> torch.Tensor:
    """The tensor with another first value."""
    changed = tensor.clone()
    changed.view(-1)[0] = (changed.view(-1)[0] + by) % below
    return changed


def other_edges(edges: CSR) -> CSR:
    return CSR(edges.rowptr, other(edges.col, below=edges.shape[1]))


# What the last rank has otherwise, by what the refusal says.
CASES: dict[str, dict[str, Any]] = {
    "lr is 0.01 on rank 0 and 0.02 on rank 2: start all ranks with the same settings": {"lr": 0.02},
    "sampler is None on rank 0 and given on rank 2": {"sampler": ClusterSampling(4, 2, "random")},
    "optimizer is 'adam' on rank 0 and 'RMSprop' on rank 2": {"optimizer": torch.optim.RMSprop},
    "class_weights is missing on rank 0 and [1.0, 1.0, 2.0] on rank 2": {
        "class_weights": [1, 1, 2]
    },
    "max_seconds is 'missing' on rank 0 and 'given' on rank 2": {"max_seconds": 1000},
    "saving is None on rank 0 and given on rank 2": {"saving": Saving(Path("none"), every=2)},
    "values of init differ between rank 0 and rank 2: start all ranks with the same settings": {
        "init": {name: tensor + 1 for name, tensor in START.items()}
    },
    # The model.
    "seed is 0 on rank 0 and 1 on rank 2": {"seed": 1},
    "share is 'whole' on rank 0 and 'rows' on rank 2": {"store": "sharded"},
    "class of the model is 'GCN' on rank 0 and 'GraphSAGE' on rank 2: give all ranks the same "
    "model": {"build": OURS["graphsage"]},
    "dropout of the model is 0.0 on rank 0 and 0.1 on rank 2": {
        "build": lambda widths: OURS["gcn"](widths, dropout=0.1)
    },
    # The graph.
    "the graph's features differ between rank 0 and rank 2: give all ranks the same graph": {
        "change": lambda graph: replace(graph, x=other(graph.x, 1e-3))
    },
    "the graph's labels differ": {
        "change": lambda graph: replace(graph, y=other(graph.y, below=3))
    },
    "the graph's edges differ": {
        "change": lambda graph: replace(graph, edges=other_edges(graph.edges))
    },
    "the graph's number of nodes is 24 on rank 0 and 25 on rank 2: give": {
        "change": lambda _: tiny_graph(25)
    },
    "the graph's edge weights differ": {"change": weighted},
    # These may differ.
    "trained": {"progress": True, "change": lambda graph: replace(graph, name="of one rank")},
}


def train(
    ranks: Ranks, change: Callable[[Graph], Graph] = lambda graph: graph, **options: Any
) -> None:
    of_gist = {name: options.pop(name) for name in ("build", "seed", "store") if name in options}
    gist = GIST(
        **{"build": OURS["gcn"], "widths": (8, 8), "sub_gcns": 4, "ranks": ranks, **of_gist}
    )
    gist.fit(change(tiny_graph()), **{**COMMON, **options})


def refusal(work: Callable[..., object], *args: Any, **options: Any) -> str:
    """What a run is refused with."""
    try:
        work(*args, **options)
    except InputError as error:
        return str(error)
    return "trained"


def every_case(ranks: Ranks) -> dict[str, str]:
    """The same processes meet again and again; the last rank has something else each time."""
    last = ranks.rank == ranks.count - 1
    messages = dict[str, str]()
    for expected, differing in CASES.items():
        options = {"init": START} if "init" in differing else {}
        if last:
            options |= differing
        messages[expected] = refusal(train, ranks, **options)
    gist = GIST(OURS["gcn"], (8, 8), 4, ranks=ranks)
    messages["rounds is 3 on rank 0 and 4 on rank 2"] = refusal(Loop, gist, 4 if last else 3)
    nested = {"": {"buffers": [{"size": 0.2 if last else 0.1}]}}
    messages["buffers.0.size is 0.1 on rank 0 and 0.2 on rank 2"] = refusal(
        require_same, ranks, nested
    )
    # A message shows 80 characters, but later ones count as well.
    weights = {"": {"class_weights": [1.0] * 40 + [float(last)]}}
    messages["class_weights differ between rank 0 and rank 2"] = refusal(
        require_same, ranks, weights
    )
    metrics = {"": {"metric": f"{'long ' * 20}{last}"}}
    messages["metric differ between rank 0 and rank 2"] = refusal(require_same, ranks, metrics)
    # The folder of a file may differ.
    settings = {"": {"loss": f"/home/{ranks.rank}/mine.py:focal", "buffers": [{"size": 0.1}]}}
    require_same(ranks, settings)
    return messages


def test_each_difference_is_named_on_all_ranks_at_once() -> None:
    of_first, of_second, of_last = on_ranks(3, every_case)
    assert of_first == of_second == of_last
    for expected, message in of_first.items():
        assert expected in message
        assert "\n" not in message


MODEL = ("--hidden", 16, 16, "--sub-gcns", 2)
TRAIN = ("train", *MODEL, "--epochs", 4, "--dataset", "own.npz", "--out", "run")


def test_commands_with_different_options_are_refused(tmp_path: Path) -> None:
    save_file(tiny_graph(), tmp_path / "own.npz")
    for last, message in (
        (("--resume",), "--resume is False"),
        (("--dataset", "digits"), "--dataset is 'a file'"),
    ):
        for rank, completed in enumerate(run_ranks(tmp_path, 2, *TRAIN, last=last)):
            lines = completed.stderr.splitlines()
            [error] = [line for line in lines if not line.startswith("gistgnn: note")]
            assert completed.returncode == 2
            speaker = "rank 1: " if rank == 1 else ""
            assert error.startswith(f"gistgnn: error: {speaker}{message} on rank 0 and ")
    assert not (tmp_path / "run").exists()
