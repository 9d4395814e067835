"""Rehearses a run: its own code trains on tensors without values, and a ledger counts what it holds."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from gistgnn.checkpoint import FILE_BYTES, KEPT
from gistgnn.errors import InputError
from gistgnn.gist import GIST
from gistgnn.io.stored_tensor import READING
from gistgnn.io.tensors import shards_of
from gistgnn.layout.axes import Widths, named_tensors
from gistgnn.partition import Blocks
from gistgnn.planning.evaluation_memory import PlannedEvaluation
from gistgnn.planning.graph_memory import PlannedBatches, PlannedGraph
from gistgnn.planning.ledger import DISK_DEVICE, Ledger, Work, bytes_of, filler, rehearsing
from gistgnn.planning.sizes import GraphSizes
from gistgnn.round import Round
from gistgnn.runners import Stretch, make_runner
from gistgnn.runs.config import RunConfig
from gistgnn.sampling.expected import Expected
from gistgnn.settings import Training, make_training
from gistgnn.theta import STORES, InMemory

ROUNDS = STEPS = 2  # in the first, some memory is not there yet: moments, the best Θ

# The device where a store keeps Θ; None: where the sub-GCNs train. Elsewhere a round holds one sub-GCN at a time.
_DEVICES = {"memory": None, "host": "cpu", "mapped": DISK_DEVICE}


@dataclass
class Rehearsal:
    """What a rehearsed run holds and computes; sizes in bytes."""

    theta: int
    full: int  # parameters of the full model, a number
    slices: list[int]  # every sub-GCN's parameters and buffers
    parameters: list[int]  # of every sub-GCN, a number
    training: int  # the first sub-GCN with gradients and the optimiser's state
    carried: list[int]  # every sub-GCN's moments, where they are kept from round to round
    phases: dict[str, dict[str, int]] = field(default_factory=dict)  # the peak of every place in every phase
    fused: bool = False  # the sub-GCNs train in one pass over each batch
    batch: GraphSizes = field(init=False)  # the sizes of a step's batch
    method: str = ""  # of evaluation: "whole", "layers" or "parts"
    steps_per_epoch: int = 1
    step: Work = field(default_factory=Work)  # one step: of one sub-GCN, or of all where they are fused
    scoring: Work = field(default_factory=Work)  # one evaluation

    @property
    def activations(self) -> int:
        """What a step takes beyond what is left after it."""
        return self.step.top - self.step.after

    @property
    def evaluation(self) -> int:
        """What an evaluation takes beyond what is there before it."""
        return self.scoring.top - self.scoring.before

    def peak(self, place: str) -> int:
        """Return the most bytes that a place holds in any phase."""
        return max(places.get(place, 0) for places in self.phases.values())


def rehearse(
    config: RunConfig, sizes: GraphSizes, store: str = "memory", base: int = 0, limits: Mapping[str, int] | None = None
) -> Rehearsal:
    """Rehearse two rounds of a run on tensors without memory.

    Args:
        config: the run, by the method "gist".
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
    training = make_training(config.training)
    found = _sizes_of(gist, training)
    seen = sizes.training() if config.inductive else sizes
    expected = seen.expected(config.sampler, config.model.layers)
    found.batch, found.steps_per_epoch = seen.batch(expected), expected.steps
    with rehearsing() as ledger:
        ledger.nonzero = sizes.nonzero
        ledger.account("cpu").add(base)
        _Run(gist, config, training, store, ledger, found).rehearse(sizes, expected, limits or {})
    return found


def _sizes_of(gist: GIST, training: Training) -> Rehearsal:
    """Count what follows from shapes alone."""
    moments = {"sgd": int(training.momentum > 0)}.get(training.optimizer, 2)
    keeps = training.optimizer_state == "carry" or gist.sub_gcns == 1
    with torch.device("meta"):
        full = gist.build(gist.widths)
        every = [gist.layout.widths([len(block) for block in blocks]) for blocks in gist.blocks(0)]
        subs = {widths: gist.build(widths) for widths in set(every)}
    slices = {widths: bytes_of(named_tensors(sub).values()) for widths, sub in subs.items()}
    trained = {widths: bytes_of(sub.parameters()) for widths, sub in subs.items()}
    counters = 4 * len(list(full.parameters())) * (moments == 2)  # Adam counts the steps of every parameter
    return Rehearsal(
        theta=bytes_of(named_tensors(full).values()),
        full=sum(p.numel() for p in full.parameters()),
        slices=[slices[widths] for widths in every],
        parameters=[sum(p.numel() for p in subs[widths].parameters()) for widths in every],
        training=slices[every[0]] + (1 + moments) * trained[every[0]] + counters,
        carried=[keeps * (moments * trained[widths] + counters) for widths in every],
    )


class _Run:
    """The phases of one run, in order."""

    def __init__(
        self, gist: GIST, config: RunConfig, training: Training, store: str, ledger: Ledger, found: Rehearsal
    ) -> None:
        self._gist, self._config, self._training, self._ledger, self._found = gist, config, training, ledger, found
        self._on_disk, self._streams = store == "mapped", _DEVICES[store] is not None
        self._theta_device = _DEVICES[store] or config.device
        self._subs: dict[int, tuple[Widths, nn.Module]] = {}

    def rehearse(self, sizes: GraphSizes, expected: Expected, limits: Mapping[str, int]) -> None:
        """Go through the run."""
        config, gist, found, ledger = self._config, self._gist, self._found, self._ledger
        with self._phase("loading"):
            graph = PlannedGraph(config, sizes)
        with self._phase("parameters"):
            theta = self._make_theta()
        with self._phase("clustering"):
            sampler = PlannedBatches(graph.seen, expected, ledger, config.sampler)
        with self._phase("preparing evaluation"), torch.no_grad():
            with ledger.uncounted() if self._streams else nullcontext():  # evaluation reads Θ where it lies
                model = self._build(gist.widths, config.device).eval()
            reading = min(READING, found.theta) if self._streams else 0
            evaluation = PlannedEvaluation(config.evaluation, model, graph.whole, sizes, ledger, limits, reading)
        runner = make_runner(config.runner)
        for number in range(ROUNDS):
            with self._phase("training"):
                saved = self._saved(theta) if number else []  # while the last round's state is written
                round_ = Round(theta, number, gist.blocks(0), self._sub_gcn, gist.input_axis)
                ahead = filler(found.slices[-1] * (self._streams and gist.sub_gcns > 1))  # the next sub-GCN's slice
                with _quiet():
                    losses = runner(round_, sampler, self._training, Stretch(0, STEPS, STEPS), 0)
                del saved, ahead
            with self._phase("aggregation"):
                round_.aggregate(losses)
            with (
                self._phase("evaluation"),
                torch.no_grad(),
                ledger.observed(graph.whole.x.device.type) as found.scoring,
            ):
                block = filler(reading, config.device)
                theta.load_into(model)
                evaluation.run()
                del block
            with self._phase("keeping the best"):  # in files, when the round's slices are still in the journal
                journal = filler(sum(found.slices) + sum(found.carried), DISK_DEVICE) if self._on_disk else None
                theta.keep_best()  # the one before is there until this one is
                del journal
        found.fused = gist.sub_gcns > 1 and bool(getattr(runner, "fuses", False))
        found.method, found.step = evaluation.method, sampler.steps[-1]
        found.phases["evaluation"]["disk"] = found.phases["evaluation"].get("disk", 0) + evaluation.disk

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Note the most that every place holds in the block."""
        yield
        known = self._found.phases.setdefault(name, {})
        for place, size in self._ledger.peaks().items():
            known[place] = max(size, known.get(place, 0))

    def _make_theta(self) -> InMemory:
        half = self._on_disk and self._config.store_precision == "bf16"
        tensors = named_tensors(self._build(self._gist.widths, self._theta_device))
        kept = {
            name: tensor.detach().to(torch.bfloat16 if half and tensor.is_floating_point() else tensor.dtype)
            for name, tensor in tensors.items()
        }
        self._found.theta = bytes_of(kept.values())
        return InMemory(self._gist.layout, self._gist.widths, kept, streams=self._streams)

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
        """Hold what checkpoints take: on the disk those that are kept and a new one, in memory two copies of a file."""
        if self._on_disk:
            return []
        sizes = {name: part.tensor.nbytes for name, part in theta.checkpoint().items()}
        largest = max(sum(sizes[name] for name in names) for names in shards_of(sizes, FILE_BYTES))
        return [filler((KEPT + 1) * sum(sizes.values()), DISK_DEVICE), filler(2 * largest)]


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave it to the run itself to warn; torch warns of copies of tensors without values."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
