"""The memory and the disk that a run takes, stage by stage, in closed form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import nn

from gistgnn.errors import InputError
from gistgnn.estimate.shapes import PhaseShape, RunShape
from gistgnn.evaluation.budget import Budget, Costs, GraphShape, plan_layers, whole_graph_bytes
from gistgnn.evaluation.by_parts import nodes_at_once
from gistgnn.nn.gnn import as_gnn
from gistgnn.theta.registry import STORES
from gistgnn.utils.process_memory import Kept

DISK = "disk"
Held = Counter[str]  # bytes by place: "cpu", "cuda", DISK

_CHECKPOINTS = 3  # on the disk at once: two that are kept, and the one that is written
_WAITING = 2  # batches, or slices, that a thread prepares while a step runs
_SCORED = 100  # bytes of a node while its prediction is compared with its label
_PYG = 25 * 2**20  # bytes of PyG's code, which reads a data set


@dataclass
class Memory:
    """What a phase takes with Θ in one place, in bytes.

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

    together: bool
    fused: bool
    peaks: dict[str, int] = field(default_factory=dict)
    stage: str = ""
    activations: int = 0
    method: str = ""
    evaluation: int = 0
    blocks: int = 1


class MemoryOfRun:
    """Adds up what the phases of a run hold.

    Args:
        run: the run's sizes.
        store: where Θ lies, one of `STORES`.
        base: bytes that the process holds before.
        limits: bytes that every place has; evaluation may take half of what is left.
        kept: what the process keeps of freed memory.
    """

    def __init__(self, run: RunShape, store: str, base: int, limits: Mapping[str, int], kept: Kept) -> None:
        if store not in STORES:
            raise InputError(f"store is '{store}', expected one of {', '.join(STORES)}")
        self._run, self._place, self._limits, self._kept = run, STORES[store], limits, kept
        self._device = "cpu" if run.config.device == "cpu" else "cuda"
        self._home = {"device": self._device, "host": "cpu"}.get(self._place.holds, DISK)
        half = self._home == DISK and run.config.store_precision == "bf16"
        self.theta = run.theta // 2 if half else run.theta
        self._base = base

    def of(self, phase: PhaseShape) -> Memory:
        """Return what a phase takes."""
        run, several = self._run, phase.trained > 1
        fused = several and run.config.runner == "fused" and run.shares_batches
        shared = several and run.config.runner == "auto" and run.shares_batches and not self._streams
        found = Memory(fused or shared, fused)
        held, loading = self._graph()
        stages = {"loading": (held.copy(), loading)}
        held += self._batches()
        held += self._theta_held(phase)
        held += self._sub_gcns(phase, found)
        found.activations = self._step(phase, found)
        stages["training"] = held.copy(), found.activations
        found.evaluation, files = self._evaluation(phase, found, held)
        stages["evaluation"] = held + Counter({DISK: files}), found.evaluation
        stages["keeping the best"] = held + Counter({self._home: self.theta}), 0
        self._set_peaks(found, stages)
        return found

    @property
    def _streams(self) -> bool:
        return self._place.streams

    def _set_peaks(self, found: Memory, stages: dict[str, tuple[Held, int]]) -> None:
        """Take the most of all stages. On the CPU the freed memory of small tensors stays, and is used again."""
        kept, found.peaks = 0, dict.fromkeys(self._limits, 0)
        for stage, (held, taken) in stages.items():
            places = held + Counter({"cpu": self._base + kept}) + Counter({self._device: max(taken - kept, 0)})
            found.peaks = {place: max(most, places[place]) for place, most in found.peaks.items()}
            if self._device == "cpu" and self._tensor(stage) < self._kept.below:
                kept = max(kept, min(taken, self._kept.most))
        found.stage = max(stages, key=lambda stage: stages[stage][0][self._device] + stages[stage][1])

    def _tensor(self, stage: str) -> int:
        """Return the bytes of a large tensor of a stage."""
        run = self._run
        if stage == "loading":
            return 4 * run.sizes.nodes * run.sizes.features
        nodes = run.expected.nodes[0] if stage == "training" else run.sizes.nodes
        return 4 * nodes * _widest(run.phases[0])

    def _graph(self) -> tuple[Held, int]:
        """Return what the graph takes, and the bytes that reading it takes for a while."""
        run, sizes = self._run, self._run.sizes
        if sizes.stored:
            sample = 8 * sizes.features * min(sizes.nodes, 2**17)
            scaled = (8 * sizes.train + 24 * sizes.features * min(sizes.train, 2**16)) * run.standardised
            return Counter({"cpu": 3 * sizes.nodes + 16 * sizes.train}), max(sample, scaled)
        x = 4 * sizes.nodes * sizes.features
        edges = 4 * (sizes.nodes + sizes.edges) if sizes.by_target else 16 * sizes.edges
        labels = 4 * sizes.nodes * sizes.classes if sizes.multi_label else 8 * sizes.nodes
        graph = x + edges + labels + 3 * sizes.nodes
        held = Counter({self._device: graph})
        if sizes.reader == "pyg":  # the arrays that it has parsed, which Python frees late
            held["cpu"] += _PYG + x + edges
        if self._device != "cpu":
            held["cpu"] += graph
        return held, max(0 if sizes.by_target else 9 * sizes.edges, x * run.standardised)

    def _batches(self) -> Held:
        """Return what the sampler, the operators and the batches that wait take."""
        run, seen, sampler, batch = self._run, self._run.seen, self._run.config.sampler, self._run.expected
        sizes, features, own = run.sizes, run.sizes.features, run.factors
        product = round(4 * own.product * features)  # of each node, for Ā x
        held: Held = Counter()
        if run.sparse:  # their entries, by row and by column
            held[self._device] += round(16 * sizes.nonzero * sizes.nodes * features)
        if run.config.inductive:
            held[self._device] += 16 * seen.edges + 4 * seen.nodes * features
        if sampler is None:
            held[self._device] += own.entry * (seen.edges + seen.nodes) + product * seen.nodes
            return held
        if not seen.stored:  # a copy of the graph in another order, or its edges by target
            copied = 0 if batch.sampled else 4 * features + 24
            held[self._device] += copied * seen.nodes
            held["cpu"] += 5 * seen.edges + 4 * seen.nodes
        elif batch.sampled:
            held["cpu"] += seen.edges + 8 * seen.nodes
        sums = 4 * features * seen.nodes if batch.precomputed and not seen.stored and own.product else 0
        nodes, edges = batch.nodes[0], sum(batch.edges)
        each = nodes * 4 * features * (1 + batch.precomputed) + 4 * edges
        held[self._device] += sums + (_WAITING + 1) * each + own.entry * (edges + nodes)
        return held

    def _theta_held(self, phase: PhaseShape) -> Held:
        """Return what Θ, the best Θ, carried moments, the model that is scored and files of rounds take."""
        moments = 4 * self._run.full * phase.moments * phase.keeps
        held = Counter({self._home: 2 * self.theta + moments})
        if not self._streams:
            held[self._device] += self._run.theta
        trained = sum(phase.slices) + sum(phase.carried)
        if self._streams:  # the trained slices of a round wait where Θ is
            held[self._home] += trained
        if self._home != DISK:
            held[DISK] += _CHECKPOINTS * (2 * self.theta + moments)
        return held

    def _sub_gcns(self, phase: PhaseShape, found: Memory) -> Held:
        """Return what the sub-GCNs take, with gradients and moments."""
        trained = phase.slices[: phase.trained]
        states = [4 * (1 + phase.moments) * count for count in phase.parameters[: phase.trained]]
        carried = sum(phase.carried[: phase.trained])
        if found.fused:
            return Counter({self._device: 2 * sum(trained) + sum(states) + carried})
        if found.together:
            return Counter({self._device: sum(trained) + sum(states)})
        if self._streams:
            ahead = sum(trained[1 : 1 + _WAITING])
            return Counter({self._device: max(trained) + max(states)}) + Counter({"cpu": ahead})
        return Counter({self._device: sum(trained) + max(states) + carried - max(phase.carried)})

    def _step(self, phase: PhaseShape, found: Memory) -> int:
        """Return the activations of a step, or, if they take more, the two parameters that Adam makes for a while."""
        subs = range(phase.trained if found.fused else 1)
        return max(sum(self._run.activations(phase, sub) for sub in subs), 2 * phase.matrix * len(subs))

    def _evaluation(self, phase: PhaseShape, found: Memory, held: Held) -> tuple[int, int]:
        """Choose the evaluation as `Evaluation.prepare` does; return its bytes, in memory and in files."""
        run, wanted, sizes, stored = (
            self._run,
            self._run.config.evaluation,
            self._run.sizes,
            bool(self._run.sizes.stored),
        )
        model = run.narrow_model(phase) if phase.first.copies else run.model
        gnn = as_gnn(model)
        shape = GraphShape(sizes.nodes, sizes.edges, sizes.features, sparse=run.sparse, stored=stored)
        scores = _SCORED * (sizes.scored_nodes if stored else sizes.nodes)
        # Where less is left than the least, the run does not fit.
        least = max(Costs(gnn, shape, cached).least for cached in (0, 2**62)) if gnn else 0
        places = ["cpu"] + [self._device] * (self._device != "cpu")
        left = [self._limits[place] - held[place] - self._base * (place == "cpu") for place in places]
        budget = Budget(*(wanted.memory or max(room // 2, least) for room in left))
        found.method = wanted.method
        if wanted.parts is not None:
            return scores + self._parts(model, shape, budget, phase, left[-1]), 0
        fits = gnn and not stored and whole_graph_bytes(gnn, shape) <= budget.compute
        if gnn is None or wanted.method == "whole" or (wanted.method == "auto" and fits):
            found.method = "whole"
            there = replace(shape, computed=run.config.sampler is None and not run.config.inductive)  # by training
            return scores + (whole_graph_bytes(gnn, there) if gnn else _unknown(sizes.nodes, phase)), 0
        found.method = "layers"
        plan, costs = plan_layers(gnn, shape, budget), Costs(gnn, shape, budget.compute // 4)
        found.blocks = max(len(layer.blocks(plan.columns)) for layer in plan.layers)
        features = costs.column(plan.columns) if plan.in_file else costs.features(plan.columns)
        taken = max(costs.preparing, costs.resident + plan.work + features)
        return scores + max(taken, 2 * least * (left[-1] < 2 * least and wanted.memory is None)), plan.disk

    def _parts(self, model: nn.Module, shape: GraphShape, budget: Budget, phase: PhaseShape, left: int) -> int:
        """Return what an evaluation of parts of the graph takes: some at once, and all batches where they fit."""
        parts, sample = self._run.config.evaluation.parts or 1, self._run.config.evaluation.sample
        nodes = max(min(nodes_at_once(model, shape, budget), shape.nodes), -(-shape.nodes // parts))
        part = replace(shape, nodes=nodes, edges=shape.edges * nodes // shape.nodes, stored=False)
        gnn, batches = as_gnn(model), 8 * shape.nodes * shape.features + 40 * shape.edges
        kept = (sample or parts) * batches // parts
        return (whole_graph_bytes(gnn, part) if gnn else _unknown(nodes, phase)) + kept * (kept < left // 4)


def _unknown(nodes: int, phase: PhaseShape) -> int:
    """Guess what the output of a model of the user's own takes: three hidden layers of all sub-GCNs."""
    return 12 * nodes * _widest(phase) * len(phase.slices)


def _widest(phase: PhaseShape) -> int:
    return max(max(each) for each in phase.hidden)
