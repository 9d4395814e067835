"""What a run costs by sizes alone: bytes held and sent, multiply-adds.

What cannot fit is refused.
"""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from gistgnn.distributed import World
from gistgnn.errors import InputError
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import Graph
from gistgnn.graphs.named import GraphSizes
from gistgnn.layout.axes import named_tensors
from gistgnn.partition import Partition
from gistgnn.sampling import Sampling, expected_batch
from gistgnn.settings import Training
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.registry import Store
from gistgnn.theta.slices import MOMENTS, is_counter
from gistgnn.training.optimizer import TRIED
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes, of_the_limit

SPARSE = 12  # multiply-adds of a dense product in the time of one of a sparse product
STEP = 2e7  # multiply-adds in the time that a step takes where it computes next to nothing
# Evaluation may take this share of the multiply-adds of training: up to a tenth of the time.
SHARE = 0.06
# If all evaluations of a run take fewer multiply-adds, about a second, there is one after every
# round.
LITTLE = 5e10


def theta_bytes(spec: ModelSpec) -> int:
    """Bytes of a model's parameters and buffers."""
    return sum(tensor.nbytes for tensor in named_tensors(spec.on_meta()).values())


def slice_bytes(spec: ModelSpec, counts: Sequence[Sequence[int]]) -> list[int]:
    """Bytes of every sub-GCN's parameters and buffers, by its number of features on each axis."""
    different = {*map(tuple, counts)}
    sizes = {
        blocks: theta_bytes(replace(spec, widths=spec.layout.widths(blocks)))
        for blocks in different
    }
    return [sizes[tuple(blocks)] for blocks in counts]


def moments_of(training: Training) -> int:
    """How many moments the optimiser keeps of a matrix."""
    return _count_moments(training, {"": 2})[""]


def state_bytes(spec: ModelSpec, counts: Sequence[Sequence[int]], training: Training) -> int:
    """Bytes of the moments of all sub-GCNs, by their numbers of features on each axis.

    The steps' counters do not count.
    """
    trained = {
        name: parameter
        for name, parameter in spec.on_meta().named_parameters()
        if parameter.requires_grad
    }
    moments = _count_moments(
        training, {name: parameter.dim() for name, parameter in trained.items()}
    )
    models = [replace(spec, widths=spec.layout.widths(blocks)).on_meta() for blocks in counts]
    return sum(
        moments[name] * model.get_parameter(name).nbytes for model in models for name in trained
    )


def _count_moments(training: Training, dimensions: Mapping[str, int]) -> dict[str, int]:
    """Count the tensors of its shape that the optimiser keeps of each parameter.

    `dimensions` are the parameters' numbers of dimensions, by name.
    """
    # It takes a step on small parameters, as it may be the user's own, and a scheduler may give it
    # a momentum.
    parameters = {
        name: nn.Parameter(torch.zeros([2] * count)) for name, count in dimensions.items()
    }
    optimizer = training.make_optimizer(parameters.values())
    training.begin_step(optimizer, 0, TRIED)
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return {
        name: sum(
            isinstance(state, torch.Tensor)
            and not is_counter(f"{MOMENTS}{name}/{key}", state.shape, parameter.shape)
            for key, state in optimizer.state.get(parameter, {}).items()
        )
        for name, parameter in parameters.items()
    }


class Trainer(Protocol):
    """What decides where a process keeps the parameters: a `GIST`."""

    store: Store
    device: torch.device
    ranks: World


def memory_of(
    trainer: Trainer, graph: Graph, training: Training, theta: int, slices: list[int]
) -> dict[str, int]:
    """Return the bytes that a process holds during a whole run, by what they are for.

    Sub-GCNs count with gradients and the optimiser's state; Θ, the best Θ and moments where the
    device holds them.

    Args:
        trainer: the method.
        graph: what it trains on.
        training: its settings.
        theta: bytes of Θ.
        slices: bytes of every sub-GCN.
    """
    store = trainer.store
    ranks = trainer.ranks
    store_place = store.place
    moments = moments_of(training)
    slices_here = slices[ranks.rank :: ranks.count] or slices
    memory = {"graph": graph.held_bytes}
    if store_place.holds == "device" or (
        store_place.holds == "host" and trainer.device.type == "cpu"
    ):
        shares = ranks.count if store.share == "rows" else 1
        carried = moments * theta if training.keeps_moments or len(slices) == 1 else 0
        memory |= {"theta": theta // shares, "best": theta // shares, "moments": carried // shares}
    at_once = max(slices_here) if store_place.streams else sum(slices_here)
    return {**memory, "sub_gcns": (2 + moments) * at_once}


def require_theta_fits(spec: ModelSpec, store: Store, ranks: int, replaced: int = 0) -> None:
    """Refuse a Θ, or a rank's share of it, that takes more than is free where the store keeps it.

    ``replaced``: the bytes there of a Θ in whose place it comes.
    """
    needed = theta_bytes(spec)
    advice = "make the widths smaller"
    where: torch.device | str
    if store.place.holds == "disk":
        assert store.folder is not None
        where = "disk"
        available = free_disk(store.folder)
        needed = needed // 2 if store.precision == "bf16" else needed
        advice = f"make room, or {advice}"
    else:
        where = spec.device if store.place.holds == "device" else torch.device("cpu")
        available = available_bytes(where) + replaced
        needed = needed // ranks if store.share == "rows" else needed
        advice += ", or keep the parameters in files, by the store disk"
    if needed > available:
        raise too_large(f"the model of widths {spec.widths}", needed, where, available, advice)


def too_large(
    subject: str, needed: int, where: torch.device | str, available: int, advice: str
) -> InputError:
    """The error of a model or a step that takes more bytes than are free there."""
    free = f"{size(available)} are free"
    if isinstance(where, torch.device):
        free += "" if where.type == "cuda" else of_the_limit()
        where = "GPU memory" if where.type == "cuda" else "memory"
    return InputError(f"{subject} takes {size(needed)} of {where}, {free}: {advice}")


def free_disk(folder: Path) -> int:
    """Return the bytes that a folder, which need not exist, may have.

    They are those free on its disk, and those of its own files.
    """
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    existing = next(
        path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()
    )
    return shutil.disk_usage(existing).free + sum(path.stat().st_size for path in files)


class Operations:
    """Counts the multiply-adds of a run of the full model `spec`.

    They follow from settings, never from a clock.
    """

    def __init__(
        self,
        spec: ModelSpec,
        partition: Partition,
        graph: GraphSizes,
        sampling: Sampling | None,
        evaluation: Evaluation,
        *,
        inductive: bool,
    ) -> None:
        self._spec = spec
        self._partition = partition
        self._graph = graph
        layers = getattr(spec.on_meta(), "num_layers", len(spec.widths) + 1)
        self.batch = expected_batch(sampling, graph.training() if inductive else graph, layers)
        # The share of the graph that an evaluation runs on.
        self._scored = (
            evaluation.sample / evaluation.parts if evaluation.sample and evaluation.parts else 1.0
        )

    def evaluate_every(self, *, steps: int, rounds: int) -> int:
        """After how many rounds the model is evaluated.

        The aim is less than a tenth of the time of training.

        Args:
            steps: those of all sub-GCNs in a round.
            rounds: T.
        """
        # At least once in a run, at its end, whatever that takes; after every round where all take
        # about a second together.
        if self._evaluation * rounds <= LITTLE:
            return 1
        affordable = int(SHARE * rounds * steps * self._step / self._evaluation)
        return math.ceil(rounds / max(affordable, 1))

    @property
    def evaluation_in_steps(self) -> float:
        """How many steps of a sub-GCN take about as long as an evaluation."""
        return self._evaluation / self._step

    @property
    def _evaluation(self) -> float:
        """Multiply-adds of a pass of the full model over the graph, or over the sample of it."""
        return self._scored * forward_operations(self._spec, self._graph.nodes, self._graph.edges)

    @property
    def _step(self) -> float:
        """Multiply-adds of a step of a sub-GCN; backward takes twice as many as forward."""
        sub_gcn = replace(self._spec, widths=self._spec.layout.widths(self._partition.sizes(0)[0]))
        return STEP + 3 * forward_operations(sub_gcn, self.batch.nodes[0], self.batch.edges[0])


def forward_operations(spec: ModelSpec, nodes: float, edges: float) -> float:
    """Count the multiply-adds of a forward pass.

    Every weight multiplies a feature of every node, and every hidden feature goes along every edge.
    """
    weights = sum(
        tensor.numel() for tensor in named_tensors(spec.on_meta()).values() if tensor.dim() > 1
    )
    return nodes * weights + SPARSE * edges * sum(spec.widths)
