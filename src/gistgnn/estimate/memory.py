"""The memory and the disk that a run takes, in closed form."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from torch import nn

from gistgnn.errors import InputError
from gistgnn.estimate.resources import DISK, Resources
from gistgnn.estimate.shapes import PhaseShape, RunShape
from gistgnn.evaluation.budget import Budget, Costs, GraphShape, plan_layers, whole_graph_bytes
from gistgnn.evaluation.by_parts import nodes_at_once
from gistgnn.nn.gnn import as_gnn
from gistgnn.theta.registry import STORES

Held = Counter[str]  # bytes by place: "cpu", "cuda", DISK

_CHECKPOINTS = 3  # on the disk at once: two that are kept, and the one that is written
_WAITING = 2  # batches, or slices, that a thread prepares while a step runs
_SCORED = 100  # bytes of a node while its prediction is compared with its label
_PYG = 25 * 2**20  # bytes of PyG's code, which reads a data set


class Memory:
    """What a phase of a run takes with Θ in one place, in bytes.

    Args:
        run: the run's sizes.
        phase: the phase's sizes.
        store: where Θ lies, one of `STORES`.
        resources: what there is; evaluation may take half of what is left.

    Attributes:
        peaks: the most that every place holds.
        stage: the stage, such as "training", in which the device holds most.
        together: whether all sub-GCNs take a step on a batch before the next batch.
        fused: whether they do so in one pass.
        activations: of a step, beyond what stays.
        method: how the model is evaluated: "whole", "layers" or "parts".
        evaluation: of an evaluation, beyond what stays.
        blocks: how often an evaluation reads the edges.
    """

    def __init__(self, run: RunShape, phase: PhaseShape, store: str, resources: Resources) -> None:
        if store not in STORES:
            raise InputError(f"store is '{store}', expected one of {', '.join(STORES)}")
        self._run, self._phase, self._resources = run, phase, resources
        self._device, self._streams = resources.device, STORES[store].streams
        self._home = {"device": self._device, "host": "cpu"}.get(STORES[store].holds, DISK)
        half = self._home == DISK and run.config.store_precision == "bf16"
        self._theta = run.theta // 2 if half else run.theta
        several, runner = phase.trained > 1 and run.shares_batches, run.config.runner
        self.fused = several and runner == "fused"
        self.together = self.fused or (several and runner == "auto" and not self._streams)
        self.blocks = 1
        graph, loading = self._graph()
        held = graph + self._batches() + self._theta_held() + self._sub_gcns()
        # Of a step: the activations, or, if they take more, the two parameters that Adam makes for a while.
        subs, matrix = range(phase.trained if self.fused else 1), max(p.numel() for p in phase.narrow.parameters())
        self.activations = max(sum(run.activations(phase, sub) for sub in subs), 8 * matrix * len(subs))
        self.evaluation, files = self._evaluation(held)
        x, hidden = 4 * run.sizes.nodes * run.sizes.features, 4 * phase.widest
        before = self._kept(loading, x)
        after = max(
            before,
            self._kept(self.activations, hidden * run.expected.nodes[0]),
            self._kept(self.evaluation, hidden * run.sizes.nodes),
        )
        stages = {  # what stays, what is taken for a while, and what is freed before
            "loading": (graph, loading, 0),
            "training": (held, self.activations, before),
            "evaluation": (held + Counter({DISK: files}), self.evaluation, before),
            "keeping the best": (held + Counter({self._home: self._theta}), 0, after),
        }
        self.stage = max(stages, key=lambda stage: stages[stage][0][self._device] + stages[stage][1])
        base = Counter({"cpu": resources.base})
        every = [own + base + Counter({self._device: max(taken, kept)}) for own, taken, kept in stages.values()]
        self.peaks = {place: max(each[place] for each in every) for place in resources.limits}

    def _kept(self, taken: int, tensor: int) -> int:
        """Freed memory of small tensors stays with a process on the CPU, and is used again."""
        kept = self._resources.kept
        return min(taken, kept.most) if self._device == "cpu" and tensor < kept.below else 0

    def _graph(self) -> tuple[Held, int]:
        """Return what the graph takes, and the bytes that reading it takes for a while."""
        run, sizes = self._run, self._run.sizes
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
        run, seen, sampler, batch = self._run, self._run.seen, self._run.config.sampler, self._run.expected
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
        elif batch.sampled:
            host = seen.edges + 8 * seen.nodes
        if batch.precomputed and not seen.stored and own.product:
            held += 4 * features * seen.nodes
        nodes, edges = batch.nodes[0], sum(batch.edges)
        held += (_WAITING + 1) * (nodes * 4 * features * (1 + batch.precomputed) + 4 * edges)
        return Counter({self._device: held + own.entry * (edges + nodes)}) + Counter({"cpu": host})

    def _theta_held(self) -> Held:
        """Return what Θ, the best Θ, carried moments, the model that is scored and files of rounds take."""
        phase = self._phase
        moments = 4 * self._run.full * phase.moments * phase.keeps
        held = Counter({self._home: 2 * self._theta + moments})
        if self._streams:  # the trained slices of a round wait where Θ is
            held[self._home] += sum(phase.slices) + sum(phase.carried)
        else:
            held[self._device] += self._run.theta
        if self._home != DISK:
            held[DISK] += _CHECKPOINTS * (2 * self._theta + moments)
        return held

    def _sub_gcns(self) -> Held:
        """Return what the sub-GCNs take, with gradients and moments."""
        phase, ahead = self._phase, 0
        slices, carried = phase.slices[: phase.trained], phase.carried[: phase.trained]
        states = [4 * (1 + phase.moments) * count for count in phase.parameters[: phase.trained]]
        if self.fused:
            held = 2 * sum(slices) + sum(states) + sum(carried)
        elif self.together:
            held = sum(slices) + sum(states)
        elif self._streams:
            held, ahead = max(slices) + max(states), sum(slices[1 : 1 + _WAITING])
        else:
            held = sum(slices) + max(states) + sum(carried) - max(carried)
        return Counter({self._device: held}) + Counter({"cpu": ahead})

    def _evaluation(self, held: Held) -> tuple[int, int]:
        """Choose the evaluation as `Evaluation.prepare` does; return its bytes, in memory and in files."""
        run, phase, sizes, limits = self._run, self._phase, self._run.sizes, self._resources.limits
        wanted, stored = run.config.evaluation, bool(sizes.stored)
        model = phase.narrow if phase.first.copies else run.model
        gnn = as_gnn(model)
        shape = GraphShape(sizes.nodes, sizes.edges, sizes.features, sparse=run.sparse, stored=stored)
        scores = _SCORED * (sizes.scored_nodes if stored else sizes.nodes)
        # Where less is left than the least, the run does not fit.
        least = max(Costs(gnn, shape, cached).least for cached in (0, 2**62)) if gnn else 0
        places = dict.fromkeys(("cpu", self._device))
        left = [limits[place] - held[place] - self._resources.base * (place == "cpu") for place in places]
        budget = Budget(*(wanted.memory or max(room // 2, least) for room in left))
        self.method = wanted.method
        if wanted.parts is not None:
            return scores + self._parts(model, shape, budget, left[-1]), 0
        fits = gnn and not stored and self._whole(model, shape) <= budget.compute
        if gnn is None or wanted.method == "whole" or (wanted.method == "auto" and fits):
            self.method = "whole"
            computed = run.config.sampler is None and not run.config.inductive  # by training
            return scores + self._whole(model, replace(shape, computed=computed)), 0
        self.method = "layers"
        plan, costs = plan_layers(gnn, shape, budget), Costs(gnn, shape, budget.compute // 4)
        self.blocks = max(len(layer.blocks(plan.columns)) for layer in plan.layers)
        features = costs.column(plan.columns) if plan.in_file else costs.features(plan.columns)
        taken = max(costs.preparing, costs.resident + plan.work + features)
        return scores + max(taken, 2 * least * (left[-1] < 2 * least and wanted.memory is None)), plan.disk

    def _parts(self, model: nn.Module, shape: GraphShape, budget: Budget, left: int) -> int:
        """Return what an evaluation of parts of the graph takes: some at once, and all batches where they fit."""
        parts, sample = self._run.config.evaluation.parts or 1, self._run.config.evaluation.sample
        nodes = max(min(nodes_at_once(model, shape, budget), shape.nodes), -(-shape.nodes // parts))
        part = replace(shape, nodes=nodes, edges=shape.edges * nodes // shape.nodes, stored=False)
        kept = (sample or parts) * (8 * shape.nodes * shape.features + 40 * shape.edges) // parts
        return self._whole(model, part) + kept * (kept < left // 4)

    def _whole(self, model: nn.Module, shape: GraphShape) -> int:
        """Return what a pass takes; of a user's own model as three hidden layers of all sub-GCNs."""
        gnn = as_gnn(model)
        return whole_graph_bytes(gnn, shape) if gnn else 12 * shape.nodes * self._phase.widest * len(self._phase.slices)
