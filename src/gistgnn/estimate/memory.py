"""The memory and the disk that a run takes, in closed form, and what this machine has."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from gistgnn.accounting.costs import free_disk
from gistgnn.estimate.shapes import RunShape
from gistgnn.evaluation.budget import Budget, GraphShape, layer_costs, least_bytes, plan_layers, whole_graph_bytes
from gistgnn.evaluation.inference import nodes_at_once
from gistgnn.nn.gnn import as_gnn, row_wise
from gistgnn.runs.config import THETA
from gistgnn.theta.registry import STORES
from gistgnn.utils.formats import size
from gistgnn.utils.process_memory import available_bytes, held_bytes, limit_in_force

DISK = "disk"
_LOADED = 80 * 2**20  # bytes of modules of Python that are loaded later
Held = Counter[str]  # bytes by place: "cpu", "cuda", DISK

_CHECKPOINTS = 3  # on the disk at once: two that are kept, and the one that is written
_WAITING = 2  # batches, or slices, that a thread prepares while a step runs
_SCORED = 100  # bytes of a node while its prediction is compared with its label
_PYG = 25 * 2**20  # bytes of PyG's code, which reads a data set

STAGES = {
    "loading": "while it reads the graph",
    "training": "while it trains",
    "evaluation": "while it is scored",
    "saving": "while it is saved",
}
"""What a run does when it may hold most, in the words of messages."""


@dataclass(frozen=True)
class Resources:
    """What a run may take, in bytes. Pages of mapped files do not count: they are the system's cache."""

    host: int  # memory of the process, with what it holds already
    gpu: int | None  # memory of the run's GPU, or None where the run is on the CPU
    disk: int  # room for the run's files, with what the Θ of a resumed run holds already
    base: int  # what the process holds already
    ranks: int = 1  # W, the processes that train together; all sizes are those of one of them, but for the disk
    local: int = 1  # of these on this machine, whose memory they share
    limit: int | None = None  # the limit, of a container or ulimit, that leaves less than the machine has

    @classmethod
    def here(
        cls,
        device: str,
        out: Path | None = None,
        memory: int | None = None,
        ranks: int = 1,
        local: int = 1,
        *,
        started: bool = True,
    ) -> "Resources":
        """Return what this process can have now.

        Args:
            device: where the run trains.
            out: its folder. Defaults to the one that the process is in.
            memory: bytes of the device that it may take, in place of what is free.
            ranks, local: see the fields.
            started: the other ranks run already, so what they hold is no longer free.
        """
        where = torch.device(device)
        held = held_bytes()
        base = held + _LOADED
        disk = free_disk((out or Path()) / THETA)
        free = available_bytes(torch.device("cpu"))
        limit = limit_in_force()
        host = free // local + held if started else (free + held) // local
        if where.type == "cuda":
            sharing = 1 if where.index is None else local  # a GPU with a number serves all of them
            gpu = memory or available_bytes(where) // sharing
            return cls(host, gpu, disk, base, ranks, local, limit)
        # Asking for more lifts no limit of the system; a plan without a run may be for another machine.
        is_beyond_limit = memory is not None and started and limit is not None and memory > host
        if memory is None or is_beyond_limit:
            return cls(host, None, disk, base, ranks, local, limit)
        return cls(memory or host, None, disk, base, ranks, local)

    @property
    def host_limit(self) -> str:
        """Say which limit the host's memory is part of; empty: of none but the machine's."""
        return f" of the limit of {size(self.limit)} that is set for this process" if self.limit else ""

    @property
    def device(self) -> str:
        """The place where sub-GCNs train: "cpu" or "cuda"."""
        return "cpu" if self.gpu is None else "cuda"

    @property
    def limits(self) -> dict[str, int]:
        """What every place may hold."""
        limits = {"cpu": self.host, DISK: self.disk}
        if self.gpu is not None:
            limits["cuda"] = self.gpu
        return limits


class Scoring(NamedTuple):
    """How the model is evaluated."""

    method: str  # "whole", "layers" or "parts"
    memory: int  # bytes on the device, beyond what stays
    files: int = 0  # bytes of temporary files


class Memory:
    """What a run takes with Θ in one store, in bytes.

    Args:
        run: its sizes.
        store: where Θ lies.
        resources: what the run may take.

    Attributes:
        home: the place of Θ: "cpu", "cuda" or "disk".
        fused: all sub-GCNs take a step in one pass.
        activations: what a step takes beyond what stays; of all sub-GCNs where they are fused.
        scoring: how the model is evaluated.
        peaks: the most that every place holds.
        stage: what the run does when the device holds most, of `STAGES`.
        lacking: the places that have too little.
    """

    def __init__(self, run: RunShape, store: str, resources: Resources) -> None:
        self.run = run
        self.store = store
        self.resources = resources
        self._device = resources.device
        self._streams = STORES[store].streams
        self.home = {"device": self._device, "host": "cpu"}.get(STORES[store].holds, DISK)
        is_halved = self.home == DISK and run.config.store_precision == "bf16"
        self._theta = run.theta // 2 if is_halved else run.theta
        self._row_shares = resources.ranks if run.config.share == "rows" else 1
        self._shares = 1 if self.home == DISK else self._row_shares  # ranks may have one disk

        is_on_gpu = self._device == "cuda" and not self._streams
        runner = run.config.runner
        gnn = as_gnn(run.narrow)
        can_be_recorded = gnn is not None and gnn.norm in ("none", "layer")
        # Recorded steps keep their memory until the run ends, also those of a single sub-GCN.
        is_recorded = is_on_gpu and run.shares_batches and runner != "in-turn" and can_be_recorded
        can_be_fused = len(run.subs) > 1 and run.shares_batches
        is_chosen = runner == "fused" or (runner == "auto" and is_on_gpu)
        self.fused = is_recorded or (can_be_fused and is_chosen)
        by_batch = can_be_fused and runner == "auto" and not self._streams
        self._together = self.fused or by_batch  # all take a step on a batch before the next batch

        self.activations = self._step()
        graph, loading = self._graph()
        held = graph + self._batches() + self._parameters()
        recorded = Counter({self._device: self.activations if is_recorded else 0})
        self.scoring = self._scoring(held + recorded)
        scored = self.scoring.memory
        if self._streams and self._device == "cuda":
            scored += run.theta  # the model, which is scored there
        evaluated = Counter({self._device: scored, DISK: self.scoring.files})
        stages = {
            "loading": graph + Counter({self._device: loading}),
            "training": held + Counter({self._device: self.activations}),
            "evaluation": held + recorded + evaluated,
            "saving": held + Counter({self.home: self._theta // self._shares}),
        }
        self.stage = max(stages, key=lambda stage: stages[stage][self._device])
        limits = resources.limits
        self.peaks = {place: max(each[place] for each in stages.values()) for place in limits}
        self.peaks["cpu"] += resources.base
        self.lacking = tuple(place for place in limits if self.peaks[place] > limits[place])

    def _step(self) -> int:
        """Return what a step takes for a while.

        These are the activations or, if they take more, two parameters that Adam makes.
        """
        run = self.run
        stepping = run.subs if self.fused else run.subs[:1]
        activations = sum(run.activations(sub) for sub in stepping)
        largest = max(parameter.numel() for parameter in run.narrow.parameters())
        return max(activations, 8 * largest * len(stepping))

    def _graph(self) -> tuple[Held, int]:
        """Return what the graph takes, and the bytes that reading it takes for a while."""
        run, sizes = self.run, self.run.sizes
        if sizes.stored:
            held = Counter({"cpu": 3 * sizes.nodes + 16 * sizes.train})
            loading = 8 * sizes.features * min(sizes.nodes, 2**17)
            if run.standardised:
                scaled = 8 * sizes.train + 24 * sizes.features * min(sizes.train, 2**16)
                loading = max(loading, scaled)
            return held, loading
        dense = 4 * sizes.nodes * sizes.features
        x = dense if run.standardised else sizes.feature_bytes
        edges = 4 * (sizes.nodes + sizes.edges)
        labels = 4 * sizes.nodes * sizes.classes if sizes.multi_label else 8 * sizes.nodes
        graph = x + edges + labels + 3 * sizes.nodes
        held = Counter({"cpu": graph, self._device: graph})
        if sizes.reader == "pyg":  # the arrays that it has parsed, which Python frees late
            held["cpu"] += _PYG + x + edges
        return held, dense if run.standardised else 0

    def _batches(self) -> Held:
        """Return what the sampler, the operators and the batches that wait take."""
        run, seen, batch, own = self.run, self.run.seen, self.run.expected, self.run.factors
        features = run.sizes.features
        product = round(4 * own.product * features)  # of each node, for Ā x
        held = 0
        if run.sparse:  # their entries, by row and by column
            held += round(16 * run.sizes.nonzero * run.sizes.nodes * features)
        if run.config.inductive:
            held += 16 * seen.edges
            held += 4 * seen.nodes * features if run.standardised else seen.feature_bytes
        if run.config.sampler is None:
            held += own.entry * (seen.edges + seen.nodes) + product * seen.nodes
            return Counter({self._device: held})
        host = 0
        if not seen.stored:
            host = 5 * seen.edges + 4 * seen.nodes
            if not batch.sampled:  # a copy of the graph in another order, or its edges by target
                held += 24 * seen.nodes + (seen.sparse_bytes if run.sparse else 4 * features * seen.nodes)
            if not batch.sampled and self._device == "cuda":  # the edges of which batches are made
                held += 4 * seen.edges + 8 * seen.nodes
            if batch.precomputed and own.product:
                held += 4 * features * seen.nodes
        elif batch.sampled:
            host = seen.edges + 8 * seen.nodes
        nodes = batch.nodes[0]
        edges = sum(batch.edges)
        matrices = 2 if batch.precomputed else 1  # of features
        own_features = 4 * nodes * features * matrices
        if run.sparse and not seen.stored:
            own_features = round(seen.sparse_bytes * nodes / seen.nodes)
        held += (_WAITING + 1) * (own_features + 4 * edges)
        held += own.entry * (edges + nodes)
        return Counter({self._device: held}) + Counter({"cpu": host})

    def _parameters(self) -> Held:
        """Return what Θ, the best Θ, moments, the scored model and training sub-GCNs take."""
        run, ranks = self.run, self.resources.ranks
        own = run.subs[::ranks]  # of the first rank
        slices = [sub.slice for sub in own]
        states = [4 * (1 + run.moments) * sub.parameters for sub in own]  # gradients and moments
        carried = [sub.carried for sub in own]
        moments = 4 * run.full * run.moments if any(sub.carried for sub in run.subs) else 0
        held = Counter({self.home: (2 * self._theta + moments) // self._shares})
        if self.fused:
            training = 2 * sum(slices) + sum(states) + sum(carried)
        elif self._together:
            training = sum(slices) + sum(states)
        elif self._streams:
            training = max(slices) + max(states)
            held["cpu"] += sum(slices[1 : 1 + _WAITING])
        else:
            training = sum(slices) + max(states) + sum(carried) - max(carried)
        held[self._device] += training if self._streams else training + run.theta
        held[self.home] += self._trained_slices()
        if self.home != DISK:
            held[DISK] += _CHECKPOINTS * (2 * self._theta + moments)
        return held

    def _trained_slices(self) -> int:
        """Return the bytes of slices and moments that wait where Θ is until the round ends."""
        subs, ranks, rows = self.run.subs, self.resources.ranks, self._row_shares
        waiting = sum(sub.slice + sub.carried for sub in subs)
        if rows == 1:
            return waiting if self._streams else waiting - waiting // ranks
        taken = waiting // rows
        if self._streams:
            largest = max(sub.slice for sub in subs) + max(sub.carried for sub in subs)
            taken = min(taken, _WAITING * largest)
        return taken + 2 * waiting // rows  # taken, trained, and received

    def _scoring(self, held: Held) -> Scoring:
        """Choose the evaluation as `Evaluation.prepare` does.

        Args:
            held: what stays meanwhile.
        """
        run, sizes, limits = self.run, self.run.sizes, self.resources.limits
        wanted, stored = run.config.evaluation, bool(sizes.stored)
        gnn = row_wise(run.model)
        graph = sizes.nodes, sizes.edges, sizes.features
        shape = GraphShape(*graph, sparse=run.sparse, stored=stored)
        scored = sizes.nodes
        if stored:
            scored = sizes.nodes - sizes.train if sizes.scored is None else sizes.scored
        scores = _SCORED * scored
        least = 0
        if gnn is not None:
            least = least_bytes(layer_costs(run.model, shape), shape)
        left = [limits["cpu"] - held["cpu"] - self.resources.base]
        if self._device != "cpu":
            left.append(limits[self._device] - held[self._device])
        # Where less is left than the least, the run does not fit.
        budget = Budget(*(wanted.memory or max(room // 2, least) for room in left))
        if wanted.parts is not None:
            return Scoring(wanted.method, scores + self._parts(shape, budget, left[-1]))
        is_whole = wanted.method == "whole" or gnn is None
        if wanted.method == "auto" and not stored:
            is_whole = is_whole or self._whole(shape) <= budget.compute
        if gnn is None or is_whole:
            by_training = run.config.sampler is None and not run.config.inductive
            return Scoring("whole", scores + self._whole(replace(shape, computed=by_training)))
        plan = plan_layers(layer_costs(run.model, shape, budget), shape, budget)
        taken = plan.memory
        if wanted.memory is None and left[-1] < 2 * least:
            taken = max(taken, 2 * least)
        return Scoring("layers", scores + taken, plan.disk)

    def _parts(self, shape: GraphShape, budget: Budget, left: int) -> int:
        """Return what an evaluation by parts takes: some at once, and all batches if they fit."""
        wanted = self.run.config.evaluation
        parts = wanted.parts or 1
        at_once = min(nodes_at_once(self.run.model, shape, budget), shape.nodes)
        nodes = max(at_once, -(-shape.nodes // parts))
        part = replace(shape, nodes=nodes, edges=shape.edges * nodes // shape.nodes, stored=False)
        batches = 8 * shape.nodes * shape.features + 40 * shape.edges  # of all parts
        kept = (wanted.sample or parts) * batches // parts
        return self._whole(part) + (kept if kept < left // 4 else 0)

    def _whole(self, shape: GraphShape) -> int:
        """Return what a pass takes; a user's own model counts as three hidden layers."""
        gnn = as_gnn(self.run.model)
        if gnn is not None:
            return whole_graph_bytes(gnn, shape)
        widest = max(max(sub.hidden) for sub in self.run.subs)
        return 12 * shape.nodes * widest * len(self.run.subs)
