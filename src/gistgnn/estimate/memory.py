"""The memory and the disk that a run takes, in closed form, and what this machine has."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from gistgnn.accounting.costs import free_disk
from gistgnn.estimate.shapes import PhaseShape, RunShape
from gistgnn.evaluation.budget import Budget, GraphShape, LayerCosts, plan_layers, whole_graph_bytes
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
        cls, device: str, out: Path | None = None, memory: int | None = None, ranks: int = 1, local: int = 1,
        *, started: bool = True,
    ) -> "Resources":  # fmt: skip
        """Return what this process can have now for a run in ``out``, with ``memory`` in place of what is free."""
        # `started`: the other ranks run already, so what they hold is no longer free.
        held, disk, where = held_bytes(), free_disk((out or Path()) / THETA), torch.device(device)
        base, free, limit = held + _LOADED, available_bytes(torch.device("cpu")), limit_in_force()
        host = free // local + held if started else (free + held) // local
        if where.type != "cuda":
            # Asking for more lifts no limit of the system; a plan without a run may be for another machine.
            capped = memory is None or (started and limit is not None and memory > host)
            return cls(host if capped else memory or host, None, disk, base, ranks, local, limit if capped else None)
        gpu = available_bytes(where) // (1 if where.index is None else local)  # a GPU with a number serves all of them
        return cls(host, memory or gpu, disk, base, ranks, local, limit)

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
        return {"cpu": self.host, DISK: self.disk} | ({} if self.gpu is None else {"cuda": self.gpu})


class Memory:
    """What a phase of a run takes with Θ in one store, in bytes; ``stage`` is where the device holds most."""

    def __init__(self, run: RunShape, phase: PhaseShape, store: str, resources: Resources) -> None:
        self.run, self.phase, self.resources, self.store = run, phase, resources, store
        self._device, self._streams = resources.device, STORES[store].streams
        self.home = {"device": self._device, "host": "cpu"}.get(STORES[store].holds, DISK)  # the place of Θ
        half = self.home == DISK and run.config.store_precision == "bf16"
        self._theta = run.theta // 2 if half else run.theta
        self._rows = resources.ranks if run.config.share == "rows" else 1  # shares of Θ
        self._shares = 1 if self.home == DISK else self._rows  # files of all ranks may lie on one disk
        several, runner = phase.trained > 1 and run.shares_batches, run.config.runner
        on_gpu = self._device == "cuda" and not self._streams
        gnn = as_gnn(phase.narrow)
        # Steps that are recorded keep their memory until the run ends; also those of a single sub-GCN are recorded.
        records = on_gpu and run.shares_batches and runner != "in-turn"
        records = records and gnn is not None and gnn.norm in ("none", "layer")
        self.fused = records or (several and (runner == "fused" or (runner == "auto" and on_gpu)))
        # Whether all sub-GCNs take a step on a batch before the next batch.
        self.together = self.fused or (several and runner == "auto" and not self._streams)
        graph, loading = self._graph()
        held = graph + self._batches() + self._parameters()
        # Of a step: the activations, or, if they take more, the two parameters that Adam makes for a while.
        subs, matrix = range(phase.trained if self.fused else 1), max(p.numel() for p in phase.narrow.parameters())
        self.activations = max(sum(run.activations(phase, sub) for sub in subs), 8 * matrix * len(subs))
        recorded = Counter({self._device: self.activations * records})
        self.method = run.config.evaluation.method
        self.evaluation, files = self._evaluation(held + recorded)
        moved = run.theta if self._streams and self._device == "cuda" else 0  # the model, which is scored there
        stages = {
            "loading": graph + Counter({self._device: loading}),
            "training": held + Counter({self._device: self.activations}),
            "evaluation": held + recorded + Counter({self._device: self.evaluation + moved, DISK: files}),
            "saving": held + Counter({self.home: self._theta // self._shares}),
        }
        self.stage = max(stages, key=lambda stage: stages[stage][self._device])
        most = {place: max(each[place] for each in stages.values()) for place in resources.limits}
        self.peaks = {**most, "cpu": most["cpu"] + resources.base}
        self.lacking = tuple(place for place, limit in resources.limits.items() if self.peaks[place] > limit)

    def _graph(self) -> tuple[Held, int]:
        """Return what the graph takes, and the bytes that reading it takes for a while."""
        run, sizes = self.run, self.run.sizes
        if sizes.stored:
            sample = 8 * sizes.features * min(sizes.nodes, 2**17)
            scaled = (8 * sizes.train + 24 * sizes.features * min(sizes.train, 2**16)) * run.standardised
            return Counter({"cpu": 3 * sizes.nodes + 16 * sizes.train}), max(sample, scaled)
        x, edges = 4 * sizes.nodes * sizes.features, 4 * (sizes.nodes + sizes.edges)
        labels = 4 * sizes.nodes * sizes.classes if sizes.multi_label else 8 * sizes.nodes
        graph = x + edges + labels + 3 * sizes.nodes
        held = Counter({"cpu": graph}) | Counter({self._device: graph})
        if sizes.reader == "pyg":  # the arrays that it has parsed, which Python frees late
            held["cpu"] += _PYG + x + edges
        return held, x * run.standardised

    def _batches(self) -> Held:
        """Return what the sampler, the operators and the batches that wait take."""
        run, seen, sampler, batch = self.run, self.run.seen, self.run.config.sampler, self.run.expected
        sizes, features, own = run.sizes, run.sizes.features, run.factors
        product = round(4 * own.product * features)  # of each node, for Ā x
        held, host = 0, 0
        if run.sparse:  # their entries, by row and by column
            held += round(16 * sizes.nonzero * sizes.nodes * features)
        if run.config.inductive:
            held += 16 * seen.edges + 4 * seen.nodes * features
        if sampler is None:
            return Counter({self._device: held + own.entry * (seen.edges + seen.nodes) + product * seen.nodes})
        if not seen.stored:  # a copy of the graph in another order, or its edges by target
            held += 0 if batch.sampled else (4 * features + 24) * seen.nodes
            host = 5 * seen.edges + 4 * seen.nodes
            if self._device == "cuda" and not batch.sampled:  # the edges, of which batches are made
                held += 4 * seen.edges + 8 * seen.nodes
        elif batch.sampled:
            host = seen.edges + 8 * seen.nodes
        if batch.precomputed and not seen.stored and own.product:
            held += 4 * features * seen.nodes
        nodes, edges = batch.nodes[0], sum(batch.edges)
        held += (_WAITING + 1) * (nodes * 4 * features * (1 + batch.precomputed) + 4 * edges)
        return Counter({self._device: held + own.entry * (edges + nodes)}) + Counter({"cpu": host})

    def _parameters(self) -> Held:
        """Return what Θ, the best Θ, moments, the model that is scored and the sub-GCNs with gradients take."""
        phase, ranks, rows = self.phase, self.resources.ranks, self._rows
        moments = 4 * self.run.full * phase.moments * (sum(phase.carried) > 0)
        held = Counter({self.home: (2 * self._theta + moments) // self._shares})
        slices, carried = phase.slices[: phase.trained : ranks], phase.carried[: phase.trained : ranks]
        states = [4 * (1 + phase.moments) * count for count in phase.parameters[: phase.trained : ranks]]
        if self.fused:
            training = 2 * sum(slices) + sum(states) + sum(carried)
        elif self.together:
            training = sum(slices) + sum(states)
        elif self._streams:
            training = max(slices) + max(states)
            held["cpu"] += sum(slices[1 : 1 + _WAITING])
        else:
            training = sum(slices) + max(states) + sum(carried) - max(carried)
        held[self._device] += training + (0 if self._streams else self.run.theta)
        waiting = sum(phase.slices) + sum(phase.carried)  # trained slices wait where Θ is
        own = waiting if self._streams else waiting - waiting // ranks
        ahead = _WAITING * (max(phase.slices) + max(phase.carried)) if self._streams else waiting
        taken = min(waiting // rows, ahead)
        held[self.home] += own if rows == 1 else taken + 2 * waiting // rows  # taken, trained, and received
        if self.home != DISK:
            held[DISK] += _CHECKPOINTS * (2 * self._theta + moments)
        return held

    def _evaluation(self, held: Held) -> tuple[int, int]:
        """Choose the evaluation as `Evaluation.prepare` does; return its bytes, in memory and in files."""
        run, phase, sizes, limits = self.run, self.phase, self.run.sizes, self.resources.limits
        wanted, stored = run.config.evaluation, bool(sizes.stored)
        model = phase.narrow if phase.first.copies == 1 else run.model
        gnn = row_wise(model)
        shape = GraphShape(sizes.nodes, sizes.edges, sizes.features, sparse=run.sparse, stored=stored)
        scored = sizes.nodes - sizes.train if sizes.scored is None else sizes.scored
        scores = _SCORED * (scored if stored else sizes.nodes)
        # Where less is left than the least, the run does not fit.
        least = max(LayerCosts(gnn, shape, cached).least for cached in (0, 2**62)) if gnn else 0
        places = dict.fromkeys(("cpu", self._device))
        left = [limits[place] - held[place] - self.resources.base * (place == "cpu") for place in places]
        budget = Budget(*(wanted.memory or max(room // 2, least) for room in left))
        if wanted.parts is not None:
            return scores + self._parts(model, shape, budget, left[-1]), 0
        fits = gnn and not stored and self._whole(model, shape) <= budget.compute
        if gnn is None or wanted.method == "whole" or (wanted.method == "auto" and fits):
            self.method = "whole"
            computed = run.config.sampler is None and not run.config.inductive  # by training
            return scores + self._whole(model, replace(shape, computed=computed)), 0
        self.method = "layers"
        plan, costs = plan_layers(gnn, shape, budget), LayerCosts(gnn, shape, budget.compute // 4)
        features = costs.column(plan.columns) if plan.in_file else costs.features(plan.columns)
        taken = max(costs.preparing, costs.resident + plan.work + features)
        return scores + max(taken, 2 * least * (left[-1] < 2 * least and wanted.memory is None)), plan.disk

    def _parts(self, model: nn.Module, shape: GraphShape, budget: Budget, left: int) -> int:
        """Return what an evaluation of parts of the graph takes: some at once, and all batches where they fit."""
        parts, sample = self.run.config.evaluation.parts or 1, self.run.config.evaluation.sample
        nodes = max(min(nodes_at_once(model, shape, budget), shape.nodes), -(-shape.nodes // parts))
        part = replace(shape, nodes=nodes, edges=shape.edges * nodes // shape.nodes, stored=False)
        kept = (sample or parts) * (8 * shape.nodes * shape.features + 40 * shape.edges) // parts
        return self._whole(model, part) + kept * (kept < left // 4)

    def _whole(self, model: nn.Module, shape: GraphShape) -> int:
        """Return what a pass takes; of a user's own model as three hidden layers of all sub-GCNs."""
        if gnn := as_gnn(model):
            return whole_graph_bytes(gnn, shape)
        return 12 * shape.nodes * max(map(max, self.phase.hidden)) * len(self.phase.slices)
