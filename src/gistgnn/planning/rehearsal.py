"""Rehearses a run: its own code trains on tensors without values, and a ledger counts what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from gistgnn.checkpoint import KEPT
from gistgnn.errors import InputError
from gistgnn.evaluation.budget import Budget, Costs, plan_layers, whole_graph_bytes
from gistgnn.evaluation.by_parts import nodes_at_once
from gistgnn.gist import GIST
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.io.stored_tensor import READING
from gistgnn.layout.axes import Widths, named_tensors
from gistgnn.nn import GNN
from gistgnn.partition import Blocks
from gistgnn.planning.graph_memory import PlannedBatches, PlannedGraph
from gistgnn.planning.ledger import DISK, DISK_DEVICE, Ledger, Work, bytes_of, filler, rehearsing
from gistgnn.round import Round
from gistgnn.runners.fused import Fused
from gistgnn.runners.registry import make_runner
from gistgnn.runners.runner import Runner
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import Batch, ClusterSampling, expected_batch, forward
from gistgnn.schedule import Stretch
from gistgnn.theta.memory import InMemory
from gistgnn.theta.registry import STORES

ROUNDS = STEPS = 2  # in the first, some memory is not there yet: moments, the best Θ
_SCORED = 100  # bytes for a node while predictions are compared with labels

_DEVICES = {"host": "cpu", "disk": DISK_DEVICE}  # by what a place holds Θ in; otherwise where the sub-GCNs train


@dataclass
class Rehearsal:
    """What a rehearsed run holds and computes; sizes in bytes."""

    theta: int
    full: int  # parameters of the full model, a number
    slices: list[int]  # every sub-GCN's parameters and buffers
    parameters: list[int]  # of every sub-GCN, a number
    training: int  # the first sub-GCN with gradients and the optimiser's state
    carried: list[int]  # every sub-GCN's moments, where they are kept from round to round
    batch: GraphSizes  # the sizes of a step's batch
    steps_per_epoch: int
    phases: dict[str, dict[str, int]] = field(default_factory=dict)  # phase -> place -> the most that it holds
    fused: bool = False  # the sub-GCNs train in one pass over each batch
    method: str = ""  # of evaluation: "whole", "layers" or "parts"
    step: Work = field(default_factory=Work)  # one step: of one sub-GCN, or of all where they are fused
    scoring: Work = field(default_factory=Work)  # one evaluation

    def peak(self, place: str) -> int:
        """Return the most bytes that a place holds in any phase."""
        return max(places.get(place, 0) for places in self.phases.values())


def rehearse(
    config: RunConfig, sizes: GraphSizes, store: str = "memory", base: int = 0, limits: Mapping[str, int] | None = None
) -> Rehearsal:
    """Rehearse two rounds of a run by the method "gist" on tensors without memory.

    Args:
        config: the run.
        sizes: of its graph.
        store: where Θ lies, one of `STORES`.
        base: bytes that the process holds before.
        limits: bytes that may be held in each place; evaluation may take half of what is left.

    Raises:
        InputError: an unknown store, or a model, m or setting out of range.
    """
    if store not in STORES:
        raise InputError(f"store is '{store}', expected one of {', '.join(STORES)}")
    gist = replace(config, store="memory", store_precision="float32").trainer(sizes.features, sizes.classes)
    run = _Run(gist, config, sizes, store)
    with rehearsing() as ledger:
        ledger.nonzero = sizes.nonzero
        ledger.account("cpu").add(base)
        return run.rehearse(ledger, limits or {})


class _Run:
    """The phases of one run, in order."""

    def __init__(self, gist: GIST, config: RunConfig, sizes: GraphSizes, store: str) -> None:
        self._gist, self._config, self._sizes, self._training = gist, config, sizes, config.training
        place, self._device = STORES[store], torch.device(config.device)
        self._on_disk, self._streams = place.holds == "disk", place.streams
        self._theta_device = _DEVICES.get(place.holds, config.device)
        self._subs: dict[int, tuple[Widths, nn.Module]] = {}
        seen = sizes.training() if config.inductive else sizes
        self._expected = expected_batch(config.sampler, seen, config.model.layers)
        self._found = self._sizes_of_models(self._expected.sizes(seen))

    def _sizes_of_models(self, batch: GraphSizes) -> Rehearsal:
        """Return what follows from shapes alone."""
        gist, training = self._gist, self._training
        moments = {"sgd": int(training.momentum > 0)}.get(training.optimizer, 2)
        keeps = training.optimizer_state == "carry" or gist.sub_gcns == 1
        every = [gist.layout.widths([len(block) for block in blocks]) for blocks in gist.blocks(0)]
        models = {widths: self._build(widths, "meta") for widths in {*every, gist.widths}}
        size = {widths: bytes_of(named_tensors(model).values()) for widths, model in models.items()}
        numbers = {widths: sum(p.numel() for p in model.parameters()) for widths, model in models.items()}
        state = {widths: moments * bytes_of(model.parameters()) for widths, model in models.items()}
        if moments == 2:  # Adam counts the steps of every parameter
            state = {widths: size + 4 * len(list(models[widths].parameters())) for widths, size in state.items()}
        return Rehearsal(
            theta=size[gist.widths],
            full=numbers[gist.widths],
            slices=[size[widths] for widths in every],
            parameters=[numbers[widths] for widths in every],
            training=size[every[0]] + bytes_of(models[every[0]].parameters()) + state[every[0]],
            carried=[keeps * state[widths] for widths in every],
            batch=batch,
            steps_per_epoch=self._expected.steps,
        )

    def rehearse(self, ledger: Ledger, limits: Mapping[str, int]) -> Rehearsal:
        """Go through the run."""
        config, gist, found, self._ledger = self._config, self._gist, self._found, ledger
        with self._phase("loading"):
            graph = PlannedGraph(config, self._sizes)
        with self._phase("parameters"):
            theta = self._make_theta()
        with self._phase("clustering"):
            sampler = PlannedBatches(graph.seen, self._expected, ledger, config.sampler)
        with self._phase("preparing evaluation"), torch.no_grad():
            with ledger.uncounted() if self._streams else nullcontext():  # evaluation reads Θ where it lies
                model = cast(GNN, self._build(gist.widths, config.device).eval())
            reading = min(READING, found.theta) if self._streams else 0
            evaluate, files = self._prepare_evaluation(model, graph.whole, limits, reading)
        runner = self._make_runner(sampler)
        for number in range(ROUNDS):
            with self._phase("training"):
                saved = self._saved(theta) if number else []  # while the last round's state is written
                round_ = Round(theta, number, gist.blocks(0), self._sub_gcn, gist.input_axis)
                prefetches = self._streams and gist.sub_gcns > 1 and not found.fused
                ahead = filler(found.slices[-1] * prefetches)  # the next sub-GCN's slice
                losses = runner(round_, sampler, self._training, Stretch(0, STEPS, STEPS), 0)
                del saved, ahead
            with self._phase("aggregation"):
                round_.aggregate(losses)
            with self._phase("evaluation"), torch.no_grad(), ledger.observed(self._device.type) as found.scoring:
                block = filler(reading, config.device)
                theta.load_into(model)
                evaluate()
                filler(_SCORED * self._sizes.nodes)
                del block
            with self._phase("keeping the best"):  # of a Θ in files, while the round is still in the journal
                journal = filler(sum(found.slices) + sum(found.carried), DISK_DEVICE) if self._on_disk else None
                theta.keep_best()  # the one before is there until this one is
                del journal
        found.step = sampler.steps[-1]
        found.phases["evaluation"][DISK] = found.phases["evaluation"].get(DISK, 0) + files
        return found

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Note the most that every place holds in the block."""
        yield
        known = self._found.phases.setdefault(name, {})
        for place, size in self._ledger.peaks().items():
            known[place] = max(size, known.get(place, 0))

    def _make_runner(self, sampler: PlannedBatches) -> Runner:
        runner = make_runner(self._config.runner)
        if isinstance(runner, Fused):  # it would try a step on copies, and tensors without values cannot be copied
            together = self._gist.sub_gcns > 1 and sampler.for_sub_gcn(0) is sampler
            self._found.fused = runner.fuses = together and self._gist.input_axis is None
        return runner

    def _make_theta(self) -> InMemory:
        half = self._on_disk and self._config.store_precision == "bf16"
        tensors = {
            name: tensor.detach().to(torch.bfloat16 if half and tensor.is_floating_point() else tensor.dtype)
            for name, tensor in named_tensors(self._build(self._gist.widths, self._theta_device)).items()
        }
        self._found.theta = bytes_of(tensors.values())
        return InMemory(self._gist.layout, self._gist.widths, tensors, streams=self._streams)

    def _sub_gcn(self, i: int, blocks: Blocks) -> nn.Module:
        """Return a module of the blocks' widths, the last round's where there is one."""
        widths = self._gist.layout.widths([len(block) for block in blocks])
        if i not in self._subs or self._subs[i][0] != widths:
            self._subs[i] = widths, self._build(widths, self._config.device)
        return self._subs[i][1]

    def _build(self, widths: Widths, device: str) -> nn.Module:
        with torch.device(device):
            return self._gist.build(widths)

    def _saved(self, theta: InMemory) -> list[Tensor]:
        """Hold what checkpoints take on the disk: those that are kept, and a new one."""
        if self._on_disk:
            return []
        size = sum(part.tensor.nbytes for part in theta.checkpoint().values())
        return [filler((KEPT + 1) * size, DISK_DEVICE)]

    def _prepare_evaluation(
        self, gnn: GNN, batch: Batch, limits: Mapping[str, int], reading: int
    ) -> tuple[Callable[[], object], int]:
        """Choose an evaluation as `Evaluation.prepare` does; return what it runs, and bytes of its temporary files.

        Reading weights from where Θ lies takes ``reading`` bytes.
        """
        wanted, sizes, device = self._config.evaluation, self._sizes, self._device
        left = [
            (limits.get(place, 2**62) - self._ledger.account(place).live) // 2
            for place in dict.fromkeys(("cpu", device.type))
        ]
        least = Costs(gnn, batch, 0).least  # where there is less, the run does not fit, and the plan is to say so
        budget = Budget(*(wanted.memory or max(room, least) for room in left))
        self._found.method = wanted.method
        if wanted.parts is not None:
            parts = min(wanted.parts, sizes.nodes)
            together = max(nodes_at_once(gnn, batch, budget, reading) * parts // sizes.nodes, 1)
            sampling = ClusterSampling(parts, min(together, wanted.sample or parts), precompute=False)
            sampler = PlannedBatches(batch, sampling.expected(sizes, 1), self._ledger, sampling).for_sub_gcn(1)
            scores = partial(torch.empty, sizes.nodes, sizes.classes, device=device)
            return lambda: (scores(), forward(gnn, next(sampler.batches(0, 1)))), 0
        if wanted.method == "auto":
            self._found.method = "whole" if whole_graph_bytes(gnn, batch) <= budget.compute else "layers"
        if self._found.method == "whole":
            return partial(forward, gnn, batch), 0
        plan, costs = plan_layers(gnn, batch, budget), Costs(gnn, batch, budget.compute // 4)
        features = costs.column(plan.columns) if plan.in_file else costs.features(plan.columns)
        kept, work = filler(costs.resident, device), max(costs.preparing - costs.resident, plan.work + features)
        return lambda: (filler(work, device), kept), plan.disk
