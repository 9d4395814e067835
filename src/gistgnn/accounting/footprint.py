"""What a run takes of memory, and what its workers send each other: parts whose sizes follow from shapes."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from torch import Tensor

from gistgnn.distributed import Costs, costs
from gistgnn.graphs import Graph
from gistgnn.layout.axes import named_tensors
from gistgnn.settings import Training
from gistgnn.theta import build_on_meta

if TYPE_CHECKING:
    from gistgnn.gist import GIST


def memory_of(gist: GIST, graph: Graph, training: Training) -> dict[str, int]:
    """Bytes of what a process holds from a run's beginning to its end: graph, Θ, best Θ, carried moments, sub-GCNs.

    Sub-GCNs with their gradients and their optimisers' states. Θ that is elsewhere than these, in files or in the
    memory of a GPU's host, is left out.
    """
    values = (getattr(graph, field.name) for field in fields(graph))
    held = {"graph": sum(value.nbytes for value in values if isinstance(value, Tensor))}
    theta, slices, moments = theta_bytes(gist), slice_bytes(gist), moments_of(training)
    rank, count = (gist.ranks.rank, gist.ranks.count) if gist.ranks else (0, 1)
    own = slices[rank::count] or slices
    alive = max(own) if gist.store.kind in ("host", "mapped") else sum(own)
    carried = moments * theta if training.optimizer_state == "carry" or len(slices) == 1 else 0
    held_here = gist.store.kind != "mapped" and not (gist.store.kind == "host" and gist.device.type == "cuda")
    if held_here:
        share = count if gist.store.kind == "sharded" else 1
        held |= {"theta": theta // share, "best": theta // share, "moments": carried // share}
    return {**held, "sub_gcns": (2 + moments) * alive}


def costs_of(gist: GIST, training: Training) -> Costs:
    """What a worker sends in a round, were each sub-GCN on a worker of its own and Θ sharded over them."""
    carried = moments_of(training) if training.optimizer_state == "carry" and gist.sub_gcns > 1 else 0
    slices = [(1 + carried) * size for size in slice_bytes(gist)]
    return costs(theta_bytes(gist), slices, gist.workers, training.local_steps, sharded=True)


def theta_bytes(gist: GIST) -> int:
    """Bytes of Θ."""
    what = gist.what()
    held = build_on_meta(what.build, what.widths, shared=what.shared)
    return sum(tensor.nbytes for tensor in named_tensors(held).values())


def slice_bytes(gist: GIST) -> list[int]:
    """Bytes of every sub-GCN's parameters and buffers."""
    tensors, blocks, slices = _full(gist), gist.blocks(max(gist.next_round - 1, 0)), gist.slices
    return [
        sum(slices.shape(name, t.shape, own).numel() * t.element_size() for name, t in tensors.items())
        for own in blocks
    ]


def moments_of(training: Training) -> int:
    """How many moments the optimiser keeps of every parameter."""
    return 2 if training.optimizer != "sgd" else int(training.momentum > 0)


def _full(gist: GIST) -> dict[str, Tensor]:
    return named_tensors(build_on_meta(gist.build, gist.widths, shared=gist.shared))
