"""Short runs on a tiny graph, and what is compared of them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn import GIST, Graph, Result
from tests.helpers.models import OURS, PLAIN, tiny_graph

GRAPH = tiny_graph()


def gcn(dropout: float = 0.0, **options: Any) -> Callable[[Any], nn.Module]:
    return lambda widths: OURS["gcn"](widths, dropout=dropout, **options)


def fit(gist: GIST, graph: Graph = GRAPH, **options: Any) -> Result:
    return gist.fit(graph, progress=False, **{"epochs": 12, "local_steps": 2, **PLAIN, **options})


def theta(gist: GIST) -> dict[str, Tensor]:
    return gist.theta.copy()


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether names, values and types are equal."""
    if one.keys() != other.keys():
        return False
    pairs = [(tensor, other[name]) for name, tensor in one.items()]
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


def quiet(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in entry.items() if k != "train_seconds"} for entry in history]


def focal(logits: Tensor, targets: Tensor) -> Tensor:
    """The focal loss, one number for each node."""
    losses = nn.functional.cross_entropy(logits, targets, reduction="none")
    return (1 - torch.exp(-losses)) ** 2 * losses
