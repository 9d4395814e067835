"""The memory and the disk that a run takes, in closed form."""

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from gistgnn.estimate.resources import DISK, Resources
from gistgnn.estimate.shapes import RunShape
from gistgnn.evaluation.budget import (
    Budget,
    GraphShape,
    layer_costs,
    least_bytes,
    operator_bytes,
    plan_layers,
    whole_graph_bytes,
)
from gistgnn.evaluation.inference import nodes_at_once
from gistgnn.nn.gnn import as_gnn, propagates_features, row_wise
from gistgnn.sampling import ClusterSampling
from gistgnn.theta.registry import STORES

Bytes = Counter[str]
"""Bytes by place: "cpu", "cuda", `DISK`."""

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


def induced_bytes(nodes: int, edges: int, inside: int) -> int:
    """Return the peak of `ClusterBatches` on a GPU while it finds the edges of one batch, in bytes.

    Args:
        nodes: of the batch.
        edges: all that lead into these nodes.
        inside: those of them that begin at one of these nodes, too.
    """
    # The tensors of `_EdgesOnGPU.induced`, by the names that they have there.
    # For every edge into the batch: source, cluster, local, inside, before and new_places.
    until_the_end = (4 + 4 + 8 + 1 + 8 + 8) * edges
    # While places are scattered: the numbers of these edges, and places.
    scattering = 8 * edges + 8 * inside
    # While the result is collected: places, twice the sources; ends, and twice the rowptr.
    collecting = (8 + 8 + 4) * inside + (8 + 8 + 8) * nodes
    return until_the_end + max(scattering, collecting)


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
        resident = graph + self._batches() + self._parameters()
        recorded = Counter({self._device: self.activations if is_recorded else 0})
        self.scoring = self._scoring(resident + recorded)
        scored = self.scoring.memory
        if self._streams and self._device == "cuda":
            scored += run.theta  # the model, which is scored there
        training = max(self.activations + self._making_of_a_batch(), self._product())
        stages = {
            "loading": graph + Counter({self._device: loading}),
            "training": resident + Counter({self._device: training}),
            "evaluation": resident
            + recorded
            + Counter({self._device: scored, DISK: self.scoring.files}),
            "saving": resident + Counter({self.home: self._theta // self._shares}),
        }
        self.stage = max(stages, key=lambda stage: stages[stage][self._device])
        limits = resources.limits
        self.peaks = {place: max(stage[place] for stage in stages.values()) for place in limits}
        self.peaks["cpu"] += resources.base
        self.lacking = tuple(place for place in limits if self.peaks[place] > limits[place])

    @property
    def fits(self) -> bool:
        """Every place has enough."""
        return not self.lacking

    def _step(self) -> int:
        """Return what a step takes for a while.

        These are the activations or, if they take more, two parameters that Adam makes.
        """
        run = self.run
        stepping = run.subs if self.fused else run.subs[:1]
        activations = sum(run.activations(sub) for sub in stepping)
        largest = max(parameter.numel() for parameter in run.narrow.parameters())
        return max(activations, 8 * largest * len(stepping))

    def _graph(self) -> tuple[Bytes, int]:
        """Return what the graph takes, and the bytes that reading it takes for a while."""
        run = self.run
        sizes = run.sizes
        if sizes.stored:
            masks = Counter({"cpu": 3 * sizes.nodes + 16 * sizes.train})
            loading = 8 * sizes.features * min(sizes.nodes, 2**17)
            if run.standardised:
                scaled = 8 * sizes.train + 24 * sizes.features * min(sizes.train, 2**16)
                loading = max(loading, scaled)
            return masks, loading
        dense = 4 * sizes.nodes * sizes.features
        x = dense if run.standardised else sizes.feature_bytes
        edges = 4 * (sizes.nodes + sizes.edges)
        labels = 4 * sizes.nodes * sizes.classes if sizes.multi_label else 8 * sizes.nodes
        total = x + edges + labels + 3 * sizes.nodes
        graph = Counter({"cpu": total, self._device: total})
        if sizes.reader == "pyg":  # the arrays that it has parsed, which Python frees late
            graph["cpu"] += _PYG + x + edges
        return graph, dense if run.standardised else 0

    def _batches(self) -> Bytes:
        """Return what the sampler, the operators and the batches that wait take."""
        run = self.run
        seen = run.seen
        batch = run.expected
        factors = run.factors
        features = run.sizes.features
        device = 0
        if run.sparse:  # their entries, by row and by column
            device += round(16 * run.sizes.nonzero * run.sizes.nodes * features)
        if run.config.inductive:
            device += 16 * seen.edges
            device += 4 * seen.nodes * features if run.standardised else seen.feature_bytes
        if run.config.sampler is None:
            device += factors.entry * (seen.edges + seen.nodes)
            device += round(4 * factors.product * features) * seen.nodes  # Ā x
            return Counter({self._device: device})
        host = 0
        if not seen.stored:
            host = 5 * seen.edges + 4 * seen.nodes
            if not batch.sampled:  # a copy of the graph in another order, or its edges by target
                device += 24 * seen.nodes + (
                    seen.sparse_bytes if run.sparse else 4 * features * seen.nodes
                )
            if not batch.sampled and self._device == "cuda":  # the edges of which batches are made
                device += 4 * seen.edges + 8 * seen.nodes
            if batch.precomputed and factors.product:
                device += 4 * features * seen.nodes
        elif batch.sampled:
            host = seen.edges + 8 * seen.nodes
        nodes = batch.nodes[0]
        edges = sum(batch.edges)
        matrices = 2 if batch.precomputed else 1  # of features
        features_of_batch = 4 * nodes * features * matrices
        if run.sparse and not seen.stored:
            features_of_batch = round(seen.sparse_bytes * nodes / seen.nodes)
        device += (_WAITING + 1) * (features_of_batch + 4 * edges)
        device += factors.entry * (edges + nodes)
        return Counter({self._device: device}) + Counter({"cpu": host})

    def _making_of_a_batch(self) -> int:
        """Return what making the next batch takes, beside the batch, on a GPU that makes it."""
        run = self.run
        is_made_there = isinstance(run.config.sampler, ClusterSampling) and not run.seen.stored
        if self._device != "cuda" or not is_made_there:
            return 0
        nodes = run.expected.nodes[0]
        edges_into_batch = run.seen.edges * nodes // run.seen.nodes
        return induced_bytes(nodes, edges_into_batch, run.expected.edges[0])

    def _product(self) -> int:
        """Return what the first batch takes while it computes Ā x of the whole graph."""
        run = self.run
        seen = run.seen
        gnn = as_gnn(run.narrow)
        if gnn is None or seen.stored or run.sparse:
            return 0
        first = gnn.convs[0]
        if not run.expected.precomputed or not propagates_features(first):
            return 0
        graph = GraphShape(seen.nodes, seen.edges, seen.features)
        _, peak = operator_bytes([first.operator], graph)
        edges_on_gpu = 4 * (seen.nodes + seen.edges) if self._device == "cuda" else 0
        return peak + edges_on_gpu

    def _parameters(self) -> Bytes:
        """Return what Θ, the best Θ, moments, the scored model and training sub-GCNs take."""
        run = self.run
        subs = run.subs[:: self.resources.ranks]  # of the first rank
        slices = [sub.slice for sub in subs]
        states = [4 * (1 + run.moments) * sub.parameters for sub in subs]  # gradients and moments
        carried = [sub.carried for sub in subs]
        moments = 4 * run.full * run.moments if any(sub.carried for sub in run.subs) else 0
        parameters = Counter({self.home: (2 * self._theta + moments) // self._shares})
        if self.fused:
            training = 2 * sum(slices) + sum(states) + sum(carried)
        elif self._together:
            training = sum(slices) + sum(states)
        elif self._streams:
            training = max(slices) + max(states)
            parameters["cpu"] += sum(slices[1 : 1 + _WAITING])
        else:
            training = sum(slices) + max(states) + sum(carried) - max(carried)
        parameters[self._device] += training if self._streams else training + run.theta
        parameters[self.home] += self._trained_slices()
        if self.home != DISK:
            parameters[DISK] += _CHECKPOINTS * (2 * self._theta + moments)
        return parameters

    def _trained_slices(self) -> int:
        """Return the bytes of slices and moments that wait where Θ is until the round ends."""
        subs = self.run.subs
        ranks = self.resources.ranks
        waiting = sum(sub.slice + sub.carried for sub in subs)
        if self._row_shares == 1:
            return waiting if self._streams else waiting - waiting // ranks
        slices_taken = waiting // self._row_shares
        if self._streams:
            largest = max(sub.slice for sub in subs) + max(sub.carried for sub in subs)
            slices_taken = min(slices_taken, _WAITING * largest)
        return slices_taken + 2 * waiting // self._row_shares  # taken, trained, and received

    def _scoring(self, resident: Bytes) -> Scoring:
        """Choose the evaluation as `Evaluation.prepare` does.

        Args:
            resident: what stays meanwhile.
        """
        run = self.run
        sizes = run.sizes
        limits = self.resources.limits
        evaluation = run.config.evaluation
        gnn = row_wise(run.model)
        graph = GraphShape(
            sizes.nodes, sizes.edges, sizes.features, sparse=run.sparse, stored=bool(sizes.stored)
        )
        scored = sizes.nodes
        if sizes.stored:
            scored = sizes.folder.scored
        scores = _SCORED * scored
        left = [limits["cpu"] - resident["cpu"] - self.resources.base]
        if self._device != "cpu":
            left.append(limits[self._device] - resident[self._device])
        nothing = Budget(*(0 for _ in left))
        least = 0 if gnn is None else least_bytes(layer_costs(gnn, graph, nothing), graph)
        # Where less is left than the least, the run does not fit.
        budget = Budget(*(evaluation.memory or max(room // 2, least) for room in left))
        if evaluation.parts is not None:
            return Scoring(evaluation.method, scores + self._parts(graph, budget, left[-1]))
        is_whole = evaluation.method == "whole" or gnn is None
        if evaluation.method == "auto" and not sizes.stored:
            is_whole = is_whole or self._whole(graph) <= budget.compute
        if gnn is None or is_whole:
            by_training = run.config.sampler is None and not run.config.inductive
            return Scoring("whole", scores + self._whole(replace(graph, computed=by_training)))
        plan = plan_layers(layer_costs(gnn, graph, budget), graph, budget)
        memory = plan.memory
        if evaluation.memory is None and left[-1] < 2 * least:
            memory = max(memory, 2 * least)
        return Scoring("layers", scores + memory, plan.disk)

    def _parts(self, graph: GraphShape, budget: Budget, left: int) -> int:
        """Return what an evaluation by parts takes: some at once, and all batches if they fit."""
        evaluation = self.run.config.evaluation
        parts = evaluation.parts or 1
        at_once = min(nodes_at_once(self.run.model, graph, budget), graph.nodes)
        nodes = max(at_once, -(-graph.nodes // parts))
        part = replace(graph, nodes=nodes, edges=graph.edges * nodes // graph.nodes, stored=False)
        of_all_parts = 8 * graph.nodes * graph.features + 40 * graph.edges
        batches = (evaluation.sample or parts) * of_all_parts // parts
        return self._whole(part) + (batches if batches < left // 4 else 0)

    def _whole(self, graph: GraphShape) -> int:
        """Return what a pass takes; a user's own model counts as three hidden layers."""
        gnn = as_gnn(self.run.model)
        if gnn is not None:
            return whole_graph_bytes(gnn, graph)
        widest = max(max(sub.hidden) for sub in self.run.subs)
        return 12 * graph.nodes * widest * len(self.run.subs)
