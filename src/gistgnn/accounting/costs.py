"""What a run costs by sizes alone: bytes held and sent, multiply-adds; and the refusal of what cannot fit."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Self

import psutil
import torch

from gistgnn.distributed import Costs, World, costs
from gistgnn.errors import InputError
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import Graph
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.partition import Partition
from gistgnn.sampling import Sampling, expected_batch
from gistgnn.sampling.sampler import Expected
from gistgnn.settings import Training
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.registry import Place, Store
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes

SPARSE = 12  # multiply-adds of a dense product in the time of one of a sparse product
STEP = 2e7  # multiply-adds in the time that a step takes where it computes next to nothing
SHARE = 0.1  # of the time of training, which evaluation may take
LEAST = 3  # evaluations of a phase, whatever they take
LITTLE = 5e10  # multiply-adds of all evaluations of a phase, about a second: then there is one after every round


def memory_of(
    graph: Graph, training: Training, place: Place, device: torch.device, ranks: World, theta: int, slices: list[int]
) -> dict[str, int]:
    """Bytes that a process holds from the beginning of a run to its end, by what holds them.

    Sub-GCNs count with gradients and the optimiser's state; Θ, the best Θ and moments where the device holds them.
    """
    moments, own = moments_of(training), slices[ranks.rank :: ranks.count] or slices
    held = {"graph": graph.held_bytes}
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


def slice_bytes(spec: ModelSpec, counts: Sequence[Sequence[int]]) -> list[int]:
    """Bytes of every sub-GCN's parameters and buffers, by its number of features on each axis."""
    widths = [spec.layout.widths(own) for own in counts]
    known = {each: theta_bytes(replace(spec, widths=each)) for each in {*widths}}
    return [known[each] for each in widths]


def moments_of(training: Training) -> int:
    """How many moments the optimiser keeps of every parameter."""
    return 2 if training.optimizer != "sgd" else int(training.momentum > 0)


def require_theta_fits(spec: ModelSpec, store: Store, ranks: int) -> None:
    """Refuse a Θ, or a rank's share of it, that takes more than is free where the store keeps it."""
    needed, place, advice = theta_bytes(spec), store.place, "make the widths smaller"
    if place.holds == "disk":
        assert store.folder is not None
        needed = needed // 2 if store.precision == "bf16" else needed
        where, there, advice = "disk", free_disk(store.folder), f"make room, or {advice}"
    else:
        device = spec.device if place.holds == "device" else torch.device("cpu")
        # The memory that this process holds may be that of a Θ that is replaced.
        held = psutil.Process().memory_info().rss if device.type == "cpu" else torch.cuda.memory_allocated(device)
        where, there = _memory(device), available_bytes(device) + int(held)
        needed = needed // ranks if place.shared else needed
        advice += "" if place.shared else ", or keep the parameters in files, by the store disk"
    _require(f"the model of widths {spec.widths}", needed, where, there, advice)


def require_step_fits(spec: ModelSpec, partition: Partition, input_axis: int | None, nodes: int) -> None:
    """Refuse sub-GCNs if one of them, with the hidden features of some nodes, takes more memory than is free."""
    counts = partition.sizes(0)[0]
    features = sum(count for axis, count in enumerate(counts) if axis != input_axis)  # the input is in memory already
    needed = slice_bytes(spec, [counts])[0] + 4 * nodes * features
    what = f"a step of one sub-GCN computes {features:,} features of {nodes:,} nodes, which"
    advice = "make the widths smaller, or raise sub_gcns"
    _require(what, needed, _memory(spec.device), available_bytes(spec.device), advice)


def _require(what: str, needed: int, where: str, there: int, advice: str) -> None:
    if needed > there:
        raise InputError(f"{what} takes {size(needed)} of {where}, {size(there)} are free: {advice}")


def free_disk(folder: Path) -> int:
    """Return the bytes that a folder, which need not exist, may have: those free on its disk, and what it has."""
    held = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    exists = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(exists).free + held


def _memory(device: torch.device) -> str:
    return "GPU memory" if device.type == "cuda" else "memory"


@dataclass(frozen=True)
class Operations:
    """Counts the multiply-adds of a run; the numbers follow from its settings, never from a clock.

    Args:
        spec: the full model.
        partition: of its axes.
        graph: the sizes of the whole graph.
        batch: the sizes of a batch.
        scored: the share of the graph that an evaluation runs on.
    """

    spec: ModelSpec
    partition: Partition
    graph: GraphSizes
    batch: Expected
    scored: float = 1.0

    @classmethod
    def of_run(
        cls,
        spec: ModelSpec,
        partition: Partition,
        graph: GraphSizes,
        sampling: Sampling | None,
        evaluation: Evaluation,
        *,
        inductive: bool,
    ) -> Self:
        """Count for a run with some settings; see `GIST.fit`."""
        seen = graph.training() if inductive else graph
        layers = getattr(spec.on_meta(), "num_layers", len(spec.widths) + 1)
        scored = evaluation.sample / evaluation.parts if evaluation.sample and evaluation.parts else 1.0
        return cls(spec, partition, graph, expected_batch(sampling, seen, layers), scored)

    def evaluate_every(self, sub_gcns: int | None, *, copies: bool, steps: int, rounds: int) -> int:
        """Return after how many rounds the model is evaluated, so that it takes a tenth of the time of training.

        There are `LEAST` evaluations in a phase at least. Where all of them take about a second together, there is one
        after every round.

        Args:
            sub_gcns: m; None: the m of the partition.
            copies: only one sub-GCN trains, and is evaluated in place of the full model.
            steps: of all sub-GCNs that train, in a round.
            rounds: of the phase.
        """
        sub = self._narrow(sub_gcns)
        evaluation = self.scored * self._forward(sub if copies else self.spec, self.graph.nodes, self.graph.edges)
        if evaluation * rounds <= LITTLE:
            return 1
        step = STEP + 3 * self._forward(sub, self.batch.nodes[0], self.batch.edges[0])  # backward: twice as much
        return max(1, min(ceil(evaluation / (SHARE * steps * step)), ceil(rounds / LEAST)))

    def _narrow(self, sub_gcns: int | None) -> ModelSpec:
        """The model of the first sub-GCN."""
        partition = self.partition if sub_gcns is None else self.partition.split_into(sub_gcns)
        blocks = partition.sizes(0)[0]
        return replace(self.spec, widths=self.spec.layout.widths(blocks))

    @staticmethod
    def _forward(spec: ModelSpec, nodes: float, edges: float) -> float:
        """Every weight multiplies a feature of every node, and every hidden feature goes along every edge."""
        weights = sum(tensor.shape.numel() for tensor in spec.tensor_specs().values() if len(tensor.shape) > 1)
        return nodes * weights + SPARSE * edges * sum(spec.widths)
