"""Ranks that train on the batches of loaders."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import RandomNodeLoader

from gistgnn import GIST
from gistgnn.baselines import LocalSGD
from gistgnn.distributed import Ranks
from tests.helpers.fitting import GRAPH, same, theta
from tests.helpers.models import OURS

from .launch import on_ranks

MASKS = {"train_mask": GRAPH.train, "val_mask": GRAPH.val, "test_mask": GRAPH.test}
DATA = Data(x=GRAPH.x, edge_index=GRAPH.edge_index, y=GRAPH.y, **MASKS)
HALVES = [DATA.subgraph(nodes) for nodes in torch.arange(GRAPH.num_nodes).split(12)]


def trained(ranks: Ranks | None, method: Any, loaders: list[Any] | None) -> dict[str, Tensor]:
    """Θ after a run on a loader that shuffles, or on the rank's own of some loaders."""
    loader: Any = RandomNodeLoader(DATA, num_parts=4, shuffle=True)
    if loaders is not None:
        loader = loaders[0 if ranks is None else ranks.rank]
    gist = method(OURS["gcn"], (8, 8), 4, ranks=ranks)
    gist.fit(DATA, sampler=loader, epochs=16, local_steps=3, progress=False)
    return theta(gist)


def test_ranks_draw_the_same_batches_as_one_process() -> None:
    for method in (GIST, LocalSGD):
        alone = trained(None, method, None)
        assert all(same(alone, of_rank) for of_rank in on_ranks(2, trained, method, None))


def test_every_rank_may_have_batches_of_its_own() -> None:
    one, other = on_ranks(2, trained, GIST, [HALVES[:1], HALVES[1:]])
    assert same(one, other)
    assert not same(one, trained(None, GIST, [HALVES[:1]]))
