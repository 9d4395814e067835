"""Bytes that a run holds and sends, found from the shapes of tensors."""

from collections.abc import Sequence

import torch

from gistgnn.distributed import Costs, World, costs
from gistgnn.graphs import Graph
from gistgnn.partition import Blocks
from gistgnn.settings import Training
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.registry import Place
from gistgnn.theta.slices import Slices


def memory_of(
    graph: Graph,
    training: Training,
    place: Place,
    device: torch.device,
    ranks: World,
    *,
    theta: int,
    slices: Sequence[int],
) -> dict[str, int]:
    """Bytes that a process holds from the beginning of a run to its end.

    Args:
        graph: the graph.
        training: says how many moments the optimiser keeps, and whether they are carried.
        place: where Θ lies.
        device: where the sub-GCNs train.
        ranks: the processes of the run.
        theta: bytes of Θ.
        slices: bytes of every sub-GCN's parameters and buffers.

    Returns:
        "graph"; "sub_gcns", with gradients and the optimiser's state; and "theta", "best", "moments" where these are in
        the memory of the device.
    """
    held = {"graph": graph.held_bytes}
    moments = moments_of(training)
    own = slices[ranks.rank :: ranks.count] or slices
    if place.holds == "device" or (place.holds == "host" and device.type == "cpu"):
        share = ranks.count if place.shared else 1
        carried = moments * theta if training.keeps_moments or len(slices) == 1 else 0
        held |= {"theta": theta // share, "best": theta // share, "moments": carried // share}
    one_at_a_time = place.streams and not place.shared
    return {**held, "sub_gcns": (2 + moments) * (max(own) if one_at_a_time else sum(own))}


def round_costs(training: Training, sub_gcns: int, workers: int, *, theta: int, slices: Sequence[int]) -> Costs:
    """Bytes that a worker sends in a round, with each sub-GCN on its own worker and Θ shared out to the workers."""
    assert training.local_steps is not None  # a run's schedule has chosen it
    carried = moments_of(training) if training.keeps_moments and sub_gcns > 1 else 0
    return costs(theta, [(1 + carried) * size for size in slices], workers, training.local_steps, sharded=True)


def theta_bytes(spec: ModelSpec) -> int:
    """Bytes of a model's parameters and buffers."""
    return sum(own.nbytes for own in spec.tensor_specs().values())


def slice_bytes(spec: ModelSpec, blocks: Sequence[Blocks]) -> list[int]:
    """Bytes of every sub-GCN's parameters and buffers."""
    specs, slices = spec.tensor_specs(), Slices(spec.layout, spec.widths)
    return [
        sum(slices.shape(name, shape, own).numel() * dtype.itemsize for name, (shape, dtype) in specs.items())
        for own in blocks
    ]


def moments_of(training: Training) -> int:
    """How many moments the optimiser keeps of every parameter."""
    return 2 if training.optimizer != "sgd" else int(training.momentum > 0)
