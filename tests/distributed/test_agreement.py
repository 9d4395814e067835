"""Ranks with different settings, models or graphs are refused before they train."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gistgnn import GIST, Graph, InputError, Loop, Saving
from gistgnn.distributed import Ranks
from gistgnn.distributed.agreement import require_same
from gistgnn.graphs import CSR, save_file
from gistgnn.sampling import ClusterSampling
from tests.helpers.commands import Completed, run_ranks
from tests.helpers.models import OURS, tiny_graph

from .launch import on_ranks

SETTINGS: dict[str, tuple[dict[str, Any], str]] = {  # keywords of `fit` on rank 1, and what the message says of them
    "lr": ({"lr": 0.02}, "lr is 0.01 on rank 0 and 0.02 on rank 1: start all ranks with the same settings"),
    "schedule": ({"schedule": "cosine"}, "schedule is 'constant' on rank 0 and 'cosine' on rank 1"),
    "evaluate_every": ({"evaluate_every": 2}, "evaluate_every is 'auto' on rank 0 and 2 on rank 1"),
    "runner": ({"runner": "fused"}, "runner is 'auto' on rank 0 and 'fused' on rank 1"),
    "sampler": ({"sampler": ClusterSampling(4, 2, "random")}, "sampler is None on rank 0 and given on rank 1"),
    "optimizer": ({"optimizer": torch.optim.RMSprop}, "optimizer is 'adam' on rank 0 and 'RMSprop' on rank 1"),
    "class_weights": ({"class_weights": [1, 1, 2]}, "class_weights is missing on rank 0 and [1.0, 1.0, 2.0] on rank 1"),
    "max_seconds": ({"max_seconds": 1000}, "max_seconds is 'missing' on rank 0 and 'given' on rank 1"),
    "saving": ({"saving": Saving(Path("none"), every=2)}, "saving is None on rank 0 and given on rank 1"),
}

MODELS: dict[str, tuple[Callable[..., nn.Module], dict[str, Any], str]] = {  # build and keywords of `GIST` on rank 1
    "seed": (OURS["gcn"], {"seed": 1}, "seed is 0 on rank 0 and 1 on rank 1"),
    "widths": (OURS["gcn"], {"widths": (8, 6)}, "hidden is [8, 8] on rank 0 and [8, 6] on rank 1"),
    "whole": (OURS["gcn"], {"whole": 1}, "whole is [] on rank 0 and [1] on rank 1"),
    "store": (OURS["gcn"], {"store": "sharded"}, "store is 'memory' on rank 0 and 'sharded' on rank 1"),
    "class": (OURS["graphsage"], {}, "model is 'GCN' on rank 0 and 'GraphSAGE' on rank 1"),
    "dropout": (lambda widths: OURS["gcn"](widths, dropout=0.1), {}, "dropout is 0.0 on rank 0 and 0.1 on rank 1"),
}


def other(tensor: torch.Tensor, place: tuple[int, ...], by: float, modulo: int | None = None) -> torch.Tensor:
    """The tensor with another value at a place."""
    changed = tensor.clone()
    changed[place] += by
    return changed if modulo is None else changed % modulo


def with_another_feature(graph: Graph) -> Graph:
    return replace(graph, x=other(graph.x, (3, 2), 1e-6))


GRAPHS: dict[str, tuple[Callable[[Graph], Graph], str]] = {  # the graph of rank 1
    "features": (with_another_feature, "the checksum of the graph's features is '"),
    "labels": (lambda g: replace(g, y=other(g.y, (0,), 1, 3)), "the checksum of the graph's labels is '"),
    "edges": (
        lambda g: replace(g, edges=CSR(g.edges.rowptr, other(g.edges.col, (5,), 1, g.num_nodes))),
        "the checksum of the graph's edges is '",
    ),
    "nodes": (lambda _: tiny_graph(25), "the graph's number of nodes is 24 on rank 0 and 25 on rank 1: give all ranks"),
    "weights": (
        lambda g: replace(g, edge_weight=torch.ones(g.num_edges)),
        "the type of the graph's edge_weight is missing on rank 0",
    ),
}
COMMON: dict[str, Any] = {"epochs": 8, "local_steps": 2, "progress": False}


def refusal(work: Callable[[], object]) -> str:
    """What a run is refused with."""
    try:
        work()
    except InputError as error:
        return str(error)
    return "trained"


def every_case(ranks: Ranks) -> dict[str, str]:
    """The same processes meet again and again; the last rank has something else each time."""
    graph, second, found = tiny_graph(), ranks.rank == ranks.count - 1, {}
    build = OURS["gcn"]

    def gist(make: Callable[..., nn.Module] = build, **options: Any) -> GIST:
        given = {"widths": (8, 8), "sub_gcns": 4, "ranks": ranks, **options}
        return GIST(make, **given)

    for name, (settings, _) in SETTINGS.items():
        own = {**COMMON, **(settings if second else {})}
        found[f"fit {name}"] = refusal(lambda own=own: gist().fit(graph, **own))  # type: ignore[misc]
    for name, (make, options, _) in MODELS.items():
        trainer = gist(make, **options) if second else gist()
        found[f"model {name}"] = refusal(lambda trainer=trainer: trainer.fit(graph, **COMMON))  # type: ignore[misc]
    for name, (change, _) in GRAPHS.items():
        other = change(graph) if second else graph
        found[f"graph {name}"] = refusal(lambda other=other: gist().fit(other, **COMMON))  # type: ignore[misc]
    found["loop"] = refusal(lambda: Loop(gist(), 4 if second else 3))
    start = {name: torch.zeros_like(tensor) for name, tensor in gist().model().state_dict().items()}
    own_start = {name: tensor + second for name, tensor in start.items()}
    found["init"] = refusal(lambda: gist().fit(graph, init=own_start, **COMMON))
    places = {"": {"loss": f"/home/{ranks.rank}/mine.py:focal", "phases": [{"lr": 0.1}]}}  # what may differ
    require_same(ranks, places)
    other = replace(graph, name=f"of rank {ranks.rank}")
    found["same"] = refusal(lambda: gist().fit(other, **{**COMMON, "progress": second}))
    return found


def test_each_difference_is_named_on_all_ranks_at_once() -> None:
    expected = {f"fit {name}": said for name, (_, said) in SETTINGS.items()}
    expected |= {f"model {name}": said for name, (_, _, said) in MODELS.items()}
    expected |= {f"graph {name}": said for name, (_, said) in GRAPHS.items()}
    expected |= {"loop": "rounds is 3 on rank 0 and 4 on rank 1", "init": "the checksum of init is", "same": "trained"}
    found = on_ranks(3, every_case)
    assert all(own.keys() == expected.keys() for own in found)
    for name, said in expected.items():
        (message,) = {own[name] for own in found}
        assert said.replace("rank 1", "rank 2") in message, name
        assert "\n" not in message, name


TRAIN = ("train", "--hidden", 16, 16, "--sub-gcns", 2, "--epochs", 4, "--dataset", "own.npz", "--out", "run")


def _check(ranks: list[Completed], said: str) -> None:
    for rank, done in enumerate(ranks):
        lines = [line for line in done.stderr.splitlines() if not line.startswith("gistgnn: note")]
        assert done.returncode == 2, done.stderr
        assert len(lines) == 1, done.stderr
        assert lines[0].startswith(f"gistgnn: error: {'rank 1: ' * rank}{said}"), done.stderr


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--lr", 0.03), "lr is 0.02 on rank 0 and 0.03 on rank 1: start all ranks with the same settings"),
        (("--resume",), "resume is False on rank 0 and True on rank 1"),
        (("--dataset", "digits"), "dataset is 'a file' on rank 0 and 'digits' on rank 1"),
    ],
)
def test_commands_with_different_options_are_refused(tmp_path: Path, option: tuple[object, ...], said: str) -> None:
    save_file(tiny_graph(), tmp_path / "own.npz")
    _check(run_ranks(tmp_path, 2, *TRAIN, last=option), said)
    assert not (tmp_path / "run").exists()


def test_machines_with_different_files_are_refused(tmp_path: Path) -> None:
    for name, change in (("first", lambda graph: graph), ("second", with_another_feature)):
        (tmp_path / name).mkdir()
        save_file(change(tiny_graph()), tmp_path / name / "own.npz")
    ranks = run_ranks(tmp_path, 2, *TRAIN, machines=("first", "second"))
    _check(ranks, "the checksum of the graph's features is '")
    assert not (tmp_path / "first/run").exists()
