"""Every sampler trains every model that it can, in turn and fused."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric import nn as pyg

from gistgnn import GIST, Graph, Result, Saving, Training, sampling
from gistgnn.graphs.clustering import cluster
from gistgnn.layout.axes import named_tensors
from gistgnn.runners.in_turn import InTurn
from gistgnn.sampling import Batch, Sampling, whole_graph
from gistgnn.schedule import StepRange
from gistgnn.subtrain import subtrain
from tests.helpers.models import OURS, USERS, C, F, Stack, tiny_graph
from tests.helpers.resuming import after, fit, make, state

GRAPH = tiny_graph()


def homophilous() -> Graph:
    """A graph whose edges are within classes, so that every model can learn it."""
    rng, y = torch.Generator().manual_seed(0), torch.arange(60) % C
    source = torch.randint(60, (150,), generator=rng)
    target = (source + C * torch.randint(1, 20, (150,), generator=rng)) % 60
    edges = torch.cat([torch.stack([source, target]), torch.stack([target, source])], dim=1)
    x = torch.randn(60, F, generator=rng)
    x[torch.arange(60), y] += 1.5
    nodes = torch.arange(60)
    return Graph.build(x, edges, y, train=nodes < 30, val=(nodes >= 30) & (nodes < 45), test=nodes >= 45)


SAMPLERS: dict[str, Sampling] = {
    "ladies": sampling.LadiesSampling(batch_size=8, nodes_per_layer=12),
    "fastgcn": sampling.FastGCNSampling(batch_size=8, nodes_per_layer=20),
    "neighbor": sampling.NeighborSampling((3, 3), batch_size=8),
    "saint-node": sampling.SaintNodeSampling(batch_size=30),
    "saint-edge": sampling.SaintEdgeSampling(batch_size=15),
    "saint-rw": sampling.SaintWalkSampling(batch_size=10, walk_length=2),
    "clusters": sampling.ClusterSampling(6, 2),
    "clusters independent": sampling.ClusterSampling(6, 2, batches="independent"),
}
MODELS: dict[str, Callable[[Any], Any]] = {
    "gcn": OURS["gcn"],
    "graphsage": lambda w: OURS["graphsage"](w, norm="batch"),
    "gat": OURS["gat"],
    "pyg": lambda w: Stack(w, pyg.SAGEConv),
    "pyg gat": lambda w: pyg.GAT(F, w, 2, C),
}
PAIRS = [
    ("ladies", "gcn"), ("fastgcn", "graphsage"), ("neighbor", "gat"), ("neighbor", "pyg"), ("saint-node", "pyg gat"),
    ("saint-edge", "gcn"), ("saint-edge", "pyg"), ("saint-rw", "graphsage"), ("saint-rw", "gat"), ("clusters", "gcn"),
    ("clusters independent", "graphsage"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "model"), PAIRS)
def test_it_learns_and_goes_on_after_a_stop(name: str, model: str, tmp_path: Path) -> None:
    def trained(**options: Any) -> tuple[GIST, Result]:
        gist = GIST(MODELS[model], 16 if model == "pyg gat" else (16,), 2)
        runner: Any = "in-turn" if model.startswith("pyg") else "fused"
        own: dict[str, Any] = {"epochs": 60, "lr": 0.02, "local_steps": 5, "optimizer_state": "carry", **options}
        return gist, gist.fit(homophilous(), sampler=SAMPLERS[name], runner=runner, progress=False, **own)

    unbroken, saving = trained(), Saving(tmp_path, resume=True)
    losses = [entry["loss"] for entry in unbroken[1].history]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    assert trained(saving=saving, callbacks=after(2))[1].interrupted
    assert state(*trained(saving=saving)) == state(*unbroken)


def test_features_that_are_alone_need_no_edges() -> None:
    """A model of x alone is given all nodes of a batch, of which the first count."""
    build, widths = USERS["features"]
    assert fit(GIST(build, widths, 2), sampler=sampling.LadiesSampling(8, (5, 5)), epochs=3).progress.rounds


def test_a_sampling_is_described() -> None:
    for name, sampler in SAMPLERS.items():
        said = sampling.describe(sampler)
        assert said is not None
        assert said["name"] == name.split()[0]
        assert sampling.from_description(json.loads(json.dumps(said))) == sampler
    assert sampling.from_description(None) is None is sampling.describe(None)


def test_a_step_without_training_nodes_changes_nothing() -> None:
    labelled, training = whole_graph(GRAPH), Training(1, weight_decay=0.1)

    def trained(batches: list[Batch]) -> tuple[list[list[float]], Any, Any]:
        torch.manual_seed(0)
        model = OURS["gcn"]((6,)).train()
        optimizer = training.make_optimizer(model.parameters())
        loss = subtrain(model, optimizer, batches, training, lambda k: 0.1)
        counted = [float(s["step"]) for s in optimizer.state.values()]
        return [t.tolist() for t in named_tensors(model).values()], loss, counted

    without = replace(labelled, loss_nodes=labelled.loss_nodes[:0])
    assert trained([without, labelled, without, labelled]) == trained([labelled, labelled])
    assert trained([without, without]) == (trained([])[0], None, [])


def test_an_error_in_a_step_ends_the_thread() -> None:
    round_ = make().begin_round()
    sampler = sampling.ClusterBatches(whole_graph(GRAPH), cluster(GRAPH.edge_index, 24, 6, "random"), 2)
    round_.subs[1].forward = lambda x, adj: 1 / 0  # type: ignore[method-assign,assignment,misc]
    with pytest.raises(ZeroDivisionError):
        InTurn()(round_, sampler, Training(900, clip_norm=1.0), StepRange(0, 100, 900), seed=0)
    assert [thread for thread in threading.enumerate() if thread.name.startswith("gistgnn-prefetch")] == []
