"""Rehearses a run: its own code trains on tensors without values, and a ledger counts what it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from gistgnn.accounting.footprint import moments_of
from gistgnn.accounting.operations import Operations
from gistgnn.errors import InputError, reason
from gistgnn.gist import GIST
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.io.checkpoints import KEPT
from gistgnn.layout.axes import Widths, named_tensors
from gistgnn.partition import Blocks
from gistgnn.planning.evaluation import PlannedEvaluation, plan_evaluation
from gistgnn.planning.ledger import DISK_DEVICE, Ledger, Work, bytes_of, filler, rehearsing
from gistgnn.planning.stored_graph import planned_graph
from gistgnn.round import Manner, Round
from gistgnn.runners.fused import Fused
from gistgnn.runners.registry import make_runner
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import expected_batch
from gistgnn.schedule import RoundPlan, Schedule, Stretch, check_phases
from gistgnn.theta.mean import Mean
from gistgnn.theta.memory import InMemory
from gistgnn.theta.registry import STORES
from gistgnn.utils.process_memory import Kept

ROUNDS = STEPS = 2  # of every phase; in the first, some memory is not there yet: moments, the best Θ

_DEVICES = {"host": "cpu", "disk": DISK_DEVICE}  # by what a place holds Θ in; otherwise where the sub-GCNs train


@dataclass
class Rehearsal:
    """What a phase of a rehearsed run holds and computes; sizes in bytes. A run without phases has one.

    What is done before the first round, such as reading the graph, is part of the first phase.
    """

    first: RoundPlan  # what the phase's first round does
    rounds: range  # the numbers of its rounds
    epochs: float
    theta: int
    full: int  # parameters of the full model, a number
    slices: list[int]  # every sub-GCN's parameters and buffers
    parameters: list[int]  # of every sub-GCN, a number
    training: int  # the first sub-GCN with gradients and the optimiser's state
    carried: list[int]  # every sub-GCN's moments, where they are kept from round to round
    batch: GraphSizes  # the sizes of a step's batch
    stages: dict[str, dict[str, int]] = field(default_factory=dict)  # stage -> place -> the most that it holds
    fused: bool = False  # the sub-GCNs train in one pass over each batch
    together: bool = False  # all of them take a step on a batch before the next, in one pass or one after another
    method: str = ""  # of evaluation: "whole", "layers" or "parts"
    step: Work = field(default_factory=Work)  # one step: of one sub-GCN, or of all of them on a batch
    scoring: Work = field(default_factory=Work)  # one evaluation

    def peak(self, place: str) -> int:
        """Return the most bytes that a place holds in any stage."""
        return max(places.get(place, 0) for places in self.stages.values())


def rehearse(
    config: RunConfig,
    sizes: GraphSizes,
    store: str = "memory",
    base: int = 0,
    limits: Mapping[str, int] | None = None,
    kept: Kept | None = None,
) -> list[Rehearsal]:
    """Rehearse two rounds of every phase of a run by the method "gist" on tensors without memory.

    The phases follow one another: what one leaves in memory is there in the next.

    Args:
        config: the run.
        sizes: of its graph.
        store: where Θ lies, one of `STORES`.
        base: bytes that the process holds before.
        limits: bytes that may be held in each place; evaluation may take half of what is left.
        kept: what the process keeps of freed memory; None: as without a limit.

    Returns:
        One entry for each phase; one for a run without phases.

    Raises:
        InputError: an unknown store, or a model, m, phase or setting out of range.
    """
    if store not in STORES:
        raise InputError(f"store is '{store}', expected one of {', '.join(STORES)}")
    gist = replace(config, store="memory", store_precision="float32").trainer(sizes.features, sizes.classes)
    run = _Run(gist, config, sizes, store)
    with rehearsing() as ledger:
        ledger.nonzero = sizes.nonzero
        ledger.account("cpu").kept = kept or Kept.under(None)
        ledger.account("cpu").add(base)
        try:
            return run.rehearse(ledger, limits or {})
        except InputError:
            raise
        except Exception as error:  # code of the user's own may ask for values, which its tensors do not have here
            if not config.model.own:
                raise
            raise InputError(
                f"the model {config.model.name} cannot be planned ({reason(error)}): its code needs the values of its "
                "tensors; train it for a few epochs instead"
            ) from error


class _Run:
    """The stages of one run, in order."""

    def __init__(self, gist: GIST, config: RunConfig, sizes: GraphSizes, store: str) -> None:
        self._gist, self._config, self._sizes = gist, config, sizes
        place, self._device = STORES[store], torch.device(config.device)
        self._on_disk, self._streams = place.holds == "disk", place.streams
        self._theta_device = _DEVICES.get(place.holds, config.device)
        self._subs: dict[int, tuple[Widths, nn.Module]] = {}
        seen = sizes.training() if config.inductive else sizes
        self._expected = expected_batch(config.sampler, seen, config.model.layers)
        training, zero = config.training, config.training.cross_weights == "zero"
        check_phases(training.phases, gist.partition)
        self._mean = (
            Mean.of(gist._full_spec, gist.partition.split, gist.input_axis, zero=zero) if training.averages else None
        )
        operations = Operations.of_run(
            gist._full_spec, gist.partition, sizes, config.sampler, config.evaluation, inductive=config.inductive
        )
        schedule = Schedule(training, self._expected.steps, gist.workers, operations)
        batch = self._expected.sizes(seen)
        epochs = [phase.epochs for phase in training.phases] or [training.epochs]
        parts = zip(schedule.phases, epochs, strict=True)
        self._phases = [self._sizes_of_models(schedule.plan(part[0][0]), *part, batch) for part in parts]
        self._found = self._phases[0]  # of the phase that is rehearsed

    def _sizes_of_models(self, first: RoundPlan, rounds: range, epochs: float, batch: GraphSizes) -> Rehearsal:
        """Return what follows from shapes alone."""
        gist, training = self._gist, first.training
        moments = moments_of(training)
        sizes = gist._partition_of(first).sizes(first.draw)
        keeps = training.optimizer_state == "carry" or first.lasting or len(sizes) == 1
        every = [gist.layout.widths(counts) for counts in sizes]
        models = {widths: self._build(widths, "meta") for widths in {*every, gist.widths}}
        size = {widths: bytes_of(named_tensors(model).values()) for widths, model in models.items()}
        numbers = {widths: sum(p.numel() for p in model.parameters()) for widths, model in models.items()}
        state = {widths: moments * bytes_of(model.parameters()) for widths, model in models.items()}
        if moments == 2:  # Adam counts the steps of every parameter
            state = {widths: size + 4 * len(list(models[widths].parameters())) for widths, size in state.items()}
        return Rehearsal(
            first=first,
            rounds=rounds,
            epochs=epochs,
            theta=size[gist.widths],
            full=numbers[gist.widths],
            slices=[size[widths] for widths in every],
            parameters=[numbers[widths] for widths in every],
            training=size[every[0]] + bytes_of(models[every[0]].parameters()) + state[every[0]],
            carried=[keeps * state[widths] for widths in every],
            batch=batch,
        )

    def rehearse(self, ledger: Ledger, limits: Mapping[str, int]) -> list[Rehearsal]:
        """Go through the run."""
        self._ledger, self._limits = ledger, limits
        self._prepare()
        for found in self._phases:
            found.theta, found.method = self._found.theta, self._found.method
        for number in range(ROUNDS * len(self._phases)):
            self._found = self._phases[number // ROUNDS]
            self._rehearse_round(number)
        return self._phases

    def _prepare(self) -> None:
        """Go through what is done before the first round. The blocks' first values take less than training them."""
        config, gist, found = self._config, self._gist, self._found
        with self._stage("loading"):
            self._graph = planned_graph(config, self._sizes, self._ledger, lambda: self._left("cpu"))
        with self._stage("parameters"):
            self._theta = self._make_theta()
        with self._stage("clustering"):
            self._sampler = self._graph.batches(self._expected, self._ledger, config.sampler)
        with self._stage("preparing evaluation"), torch.no_grad():
            with self._ledger.uncounted() if self._streams else nullcontext():  # evaluation reads Θ where it lies
                self._model = self._build(gist.widths, config.device).eval()
            self._reading = 0
            self._whole = self._prepare_evaluation(self._model, self._reading)
            found.method = self._whole.method
        self._runner = make_runner(config.runner)
        if isinstance(self._runner, Fused):  # it would try a step on copies, and tensors without values have none
            shared = self._sampler.for_sub_gcn(0) is self._sampler
            self._runner.together = shared and gist.input_axis is None

    def _rehearse_round(self, number: int) -> None:
        """Train, aggregate, evaluate and save once."""
        found = self._found
        plan = replace(found.first, fresh=number % ROUNDS == 0)
        with self._stage("training"):
            saved = self._saved() if number else []  # while the last round's state is written
            self._round = round_ = self._begin_round(number, plan)  # the round before is there until this one is
            several = len(round_.members) > 1
            fused = isinstance(self._runner, Fused) and bool(self._runner.together)
            found.fused = several and fused
            prefetches = self._streams and several and not fused
            ahead = filler(found.slices[-1] * prefetches)  # the next sub-GCN's slice
            losses = self._runner(round_, self._sampler, plan.training, Stretch(0, STEPS, STEPS), 0)
            found.step = self._sampler.steps[-1]
            found.together = several and bool(getattr(self._runner, "together", False))
            del saved, ahead
        with self._stage("aggregation"):
            round_.aggregate(losses)
        self._rehearse_evaluation(number, plan)
        with self._stage("keeping the best"):  # of a Θ in files, while the round is still in the journal
            journal = filler(sum(found.slices) + sum(found.carried), DISK_DEVICE) if self._on_disk else None
            self._theta.keep_best()  # the one before is there until this one is
            del journal

    def _rehearse_evaluation(self, number: int, plan: RoundPlan) -> None:
        """Score the full model; after a round of copies, the narrow model that they are copies of."""
        evaluation, reading = self._whole, self._reading
        if plan.copies:
            with self._stage("evaluation"), torch.no_grad():
                narrow = self._begin_round(number + 1, replace(plan, fresh=False), only=1).subs[0].eval()
                if plan.fresh:
                    self._narrow = self._prepare_evaluation(narrow, 0)
            evaluation, reading = self._narrow, 0
        files = filler(evaluation.disk, DISK_DEVICE)
        with self._stage("evaluation"), torch.no_grad(), self._ledger.observed(self._device.type) as work:
            block = filler(reading, self._config.device)
            if not plan.copies:
                self._theta.load_into(self._model)
            evaluation.run()
            filler(evaluation.scoring)
            del block, files
        evaluation.add(work)
        self._found.scoring = work

    def _begin_round(self, number: int, plan: RoundPlan, only: int | None = None) -> Round:
        """Begin a round as `GIST.begin_round` does; `only`: of this many sub-GCNs."""
        blocks = self._gist._partition_of(plan).blocks(plan.draw)
        scales = self._mean.scales(len(blocks)) if self._mean else {}
        manner = Manner(plan.copies, plan.lasting, plan.fresh, scales)
        return Round(self._theta, number, blocks[:only], self._sub_gcn, self._gist.input_axis, manner)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Note the most that every place holds in the block."""
        yield
        known = self._found.stages.setdefault(name, {})
        for place, size in self._ledger.peaks().items():
            known[place] = max(size, known.get(place, 0))

    def _left(self, place: str) -> int:
        """Return the bytes that a place has left."""
        return self._limits.get(place, 2**62) - self._ledger.account(place).live

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

    def _saved(self) -> list[Tensor]:
        """Hold what checkpoints take on the disk: those that are kept, and a new one."""
        if self._on_disk:
            return []
        size = sum(part.tensor.nbytes for part in self._theta.checkpoint().values())
        return [filler((KEPT + 1) * size, DISK_DEVICE)]

    def _prepare_evaluation(self, model: nn.Module, reading: int) -> PlannedEvaluation:
        """Choose an evaluation; reading weights from where Θ lies takes ``reading`` bytes."""
        room = [self._left(place) // 2 for place in self._places]
        return plan_evaluation(model, self._graph, self._config.evaluation, self._sizes, self._ledger, room, reading)

    @property
    def _places(self) -> list[str]:
        """The host, and the device if it is another place."""
        return list(dict.fromkeys(("cpu", self._device.type)))
