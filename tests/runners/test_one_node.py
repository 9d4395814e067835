"""Batches of one node, which batch norm refuses in training.

Every runner and every sampler leaves them out.
"""

import logging
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gistgnn import GIST, Graph
from gistgnn.baselines import DataParallel, LocalSGD
from gistgnn.nn import GCN
from gistgnn.sampling import ClusterSampling, NeighborSampling, SaintNodeSampling, whole_graph
from tests.helpers.fitting import theta
from tests.helpers.logs import logged
from tests.helpers.models import C, F


def lonely_graph() -> Graph:
    """Thirteen nodes, of which most have no neighbour, so that many batches have one node."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(13, F, generator=rng)
    nodes = torch.arange(13)
    edge_index = torch.tensor([[0, 1, 1, 2, 5], [1, 0, 2, 1, 6]])
    return Graph.build(
        x, edge_index, nodes % C, train=nodes[:9], val=nodes[9:11], test=nodes[11:], name="lonely"
    )


GRAPH = lonely_graph()
SAMPLERS: dict[str, Any] = {
    "last batch": NeighborSampling(fanouts=-1, batch_size=4),  # 4, 4 and 1 of 9 nodes
    "one output": NeighborSampling(fanouts=2, batch_size=1),
    "clusters": ClusterSampling(7, 1, method="random"),  # of one or two nodes
    "draws": SaintNodeSampling(batch_size=1),
}


def ours(widths: Any) -> nn.Module:
    return GCN(F, widths, C, norm="batch")


def theirs(width: int) -> nn.Module:
    return pyg.models.GCN(F, width, 2, C, norm="batch_norm")


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("runner", ["in-turn", "auto", "fused"])
def test_batches_of_one_node_are_left_out(name: str, runner: Any) -> None:
    build, widths = (ours, (6,)) if name == "one output" else (theirs, 6)
    for m in (1, 2):
        gist = GIST(build, widths, m, seed=1)
        with logged(logging.WARNING) as notes:
            result = gist.fit(
                GRAPH,
                epochs=3 * m,
                sampler=SAMPLERS[name],
                runner=runner,
                local_steps=3,
                progress=False,
            )
        assert "".join(notes).count("batches of one node are left out") == 1
        assert "not fused" not in "".join(notes)
        assert all(torch.isfinite(tensor).all() for tensor in theta(gist).values())
        assert result.progress.rounds == result.progress.history[-1]["round"]


def test_the_other_batches_train_as_in_a_plain_loop() -> None:
    """All neighbours of 4, 4 and 1 nodes.

    A loop of torch leaves out what batch norm refuses.
    """
    options: dict[str, Any] = {
        "optimizer": "sgd",
        "lr": 0.1,
        "schedule": "constant",
        "standardise": False,
    }
    sampling = NeighborSampling(fanouts=-1, batch_size=4)
    gist = GIST(ours, (6,), 1, seed=1, width_scaling="none")
    model = gist.model().train()
    gist.fit(GRAPH, epochs=2, sampler=sampling, progress=False, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    skipped = 0

    for batch in sampling.sampler(whole_graph(GRAPH), 1, 2).batches(0, 6):
        optimizer.zero_grad()
        try:
            out: Tensor = model(batch.features, batch.adj)
        except ValueError:  # "Expected more than 1 value per channel when training"
            skipped += 1
            continue
        nn.functional.cross_entropy(out[batch.loss_nodes], batch.y[batch.loss_nodes]).backward()
        optimizer.step()
    assert skipped > 0
    trained = theta(gist)
    for key, expected in model.state_dict().items():
        if not key.endswith("num_batches_tracked"):  # torch counts a batch before it refuses it
            torch.testing.assert_close(trained[key], expected)


@pytest.mark.parametrize("method", [DataParallel, LocalSGD])
def test_workers_leave_out_batches_of_one_node(method: Any) -> None:
    trainer = method(ours, (6,), 2, seed=1)
    with logged(logging.WARNING) as notes:
        result = trainer.fit(GRAPH, epochs=6, sampler=SAMPLERS["clusters"], progress=False)
    assert "".join(notes).count("batches of one node are left out") == 1
    assert all(torch.isfinite(tensor).all() for tensor in result.model.state_dict().values())


def test_norms_that_take_one_node_train_on_it() -> None:
    class Single(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.hidden = nn.Linear(F, width)
            self.out = nn.Linear(width, C)
            self.norm = pyg.BatchNorm(width, allow_single_element=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.norm(self.hidden(x)).relu())

    for build in (Single, lambda width: pyg.models.GCN(F, width, 2, C, norm="layer_norm")):
        with logged(logging.WARNING) as notes:
            GIST(build, 6, 1).fit(GRAPH, epochs=2, sampler=SAMPLERS["clusters"], progress=False)
        assert "left out" not in "".join(notes)
