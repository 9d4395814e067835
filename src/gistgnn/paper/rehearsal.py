"""Rehearses an experiment without its data: every setting takes two steps, and is scored once.

The experiment's own code asks for its runs, and makes its table, verdicts and report of what they return, so that a
mistake shows in minutes and not after days of training. The runs see synthetic graphs of the data sets' shape. Nothing
is kept.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gistgnn.compare.many_runs import RunStore
from gistgnn.compare.turns import Record, killed_error, take_turns
from gistgnn.errors import InputError
from gistgnn.estimate import peak_bytes
from gistgnn.graphs import find, load
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.paper.experiment import Experiment
from gistgnn.paper.stand_in_graphs import StandIns, drawn_share, least_share, shape_of
from gistgnn.report.names import method_name
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import ClusterSampling, expected_batch
from gistgnn.utils.formats import duration, percent, plural, size
from gistgnn.utils.process_memory import available_bytes, peak_memory_bytes

STEPS = 2  # of every sub-GCN, each in a round of its own
NARROW = 64  # features of a hidden layer that stands for one that is too wide for this machine
# Numbers that are multiplied with weights in a setting: a graph is cut until there are so few, and most of all.
GOOD_WORK, MOST_WORK = {"cpu": 2e11, "cuda": 2e13}, {"cpu": 1e12, "cuda": 1e14}
_RATES = ("lr", "weight_decay", "epochs")  # settings of training that make no other setting

Report = Callable[[str], None]
Wanted = Mapping[str, tuple[Mapping[str, Any], Callable[[], Any]]]


def rehearse(experiment: Experiment, data_root: str, command: str, report: Report) -> str:
    """Rehearse an experiment.

    Args:
        experiment: at the scale that is to be run later.
        data_root: of the data sets, which are not read, unless they are a user's files.
        command: for the report.
        report: called with one line for each setting, as soon as it is known.

    Returns:
        A line on all of it.

    Raises:
        InputError: a setting cannot be trained; the message names it.
    """
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="gistgnn-rehearsal-") as folder:
        store = Rehearsal(Path(folder), data_root, report)
        outcome = experiment.shortened().reproduce(Path(folder) / "out", data_root, 1, command, store)
    made = f"{plural(len(outcome.rows), 'row')}, {plural(len(outcome.verdicts), 'verdict')} and the report were made"
    seconds = duration(time.perf_counter() - begun)
    return f"rehearsed: {plural(store.ran, 'setting')} ran, {store.planned} by plan, in {seconds}; {made}, and not kept"


class Rehearsal(RunStore):
    """Stands for the finished runs of an experiment: a run that is asked for takes two steps and is scored once.

    Runs that differ in their seed, ζ, epochs or rates alone share one. A run that is too large for this machine is
    planned, and its code runs with a narrow model.

    Attributes:
        ran: how many settings have taken their steps as they are, perhaps on a part of the graph.
        planned: how many have been planned, because they are too large for this machine or for the experiment.
    """

    def __init__(self, directory: Path, data_root: str, report: Report) -> None:
        super().__init__(directory, data_root)
        self._graphs, self._report = StandIns(directory), report
        self._known: dict[str, Record] = {}
        self.ran = self.planned = 0

    def dataset(self, name: str) -> str:
        """See `RunStore`."""
        info = find(name)
        return self._graphs.file(name, drawn_share(info)) if info else name

    def left_out(self, config: RunConfig, why: str) -> None:
        """See `RunStore`."""
        self.planned += 1
        self._report(f"by plan: {name_of(config)}: {why}")

    def get(self, config: RunConfig) -> Record | None:
        """See `RunStore`."""
        record = self._known.get(_key(config))
        return record and {**record, "config": json.loads(json.dumps(config.as_dict()))}

    def run_all(self, configs: Iterable[RunConfig], jobs: int, label: str) -> list[Record]:
        """See `RunStore`; the runs follow one another."""
        return self.in_turns(configs, label)

    def in_turns(self, configs: Iterable[RunConfig], label: str, at_once: int | None = None) -> list[Record]:
        """See `RunStore`; the runs follow one another."""
        configs = list(configs)
        for config in configs:
            if self.get(config) is None:
                self._known[_key(config)] = self._rehearse(config)
        return [record for config in configs if (record := self.get(config)) is not None]

    def measured(self, wanted: Wanted, label: str) -> dict[str, Any]:
        """See `RunStore`; the experiment has made its measurements short (`Experiment.shortened`)."""
        results = {}
        for name, (arguments, measure) in wanted.items():
            begun = time.perf_counter()
            results[name] = json.loads(json.dumps(measure()))  # tuples become lists, as in a file
            seconds, memory = time.perf_counter() - begun, peak_memory_bytes(torch.device("cpu"))
            known = ("dataset", "d_1", "sub_gcns", "local_steps", "rounds")
            settings = ", ".join(f"{key} = {arguments[key]}" for key in known if key in arguments)
            self._report(f"ran: {name.split(' ')[0]}, {settings}: {duration(seconds)}, {size(memory)} at most so far")
            self.ran += 1
        return results

    def _rehearse(self, config: RunConfig) -> Record:
        """Let a run take its steps, on as much of its graph as this machine can take; report how it went."""
        name = name_of(config)
        hindrance = ""
        for share in _shares(config):
            small, sizes = _scaled(config, share)
            if not (hindrance := _hindrance(small, sizes)):
                record, seconds = self._train(small, config.dataset, share)
                used = f"{duration(seconds)}, {size(record['peak_memory_bytes'])}"
                self._report(f"ran: {name}: {used}{_rest(config, share)}")
                self.ran += 1
                return record
        needed = size(peak_bytes(config, _sizes_of(config.dataset)))
        small, _ = _scaled(_narrowed(config), share)
        record, seconds = self._train(small, config.dataset, share)
        narrow = f"its code ran {small.model.hidden[0]} wide, in {duration(seconds)}"
        self._report(f"by plan: {name}: {needed}; {hindrance}, {narrow}")
        self.planned += 1
        return record

    def _train(self, config: RunConfig, dataset: str, share: float) -> tuple[Record, float]:
        """Train in a process of its own; return the record, and the seconds with everything."""
        config = replace(config, dataset=self._graphs.file(dataset, share))
        found: list[Record] = []
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=self.directory) as folder:
            train = _TwoSteps(Path(folder), self.data_root).train
            try:
                if killed := take_turns(
                    [config], train, torch.get_num_threads(), lambda _, record: found.append(record)
                ):
                    raise killed_error(killed)
            except InputError as error:
                raise InputError(f"{name_of(replace(config, dataset=dataset))}: {error}") from error
        return found[0], time.perf_counter() - begun


class _TwoSteps(RunStore):
    """Trains runs of a rehearsal in their own processes."""

    def train(self, config: RunConfig, advance: Callable[[int, int], None], stop: Callable[[], bool]) -> Record:
        """Train as `RunStore` does, with checkpoints; a run without phases stops after its steps."""
        rounds = itertools.count(1)
        return self._resume(config, advance, lambda: not config.training.phases and next(rounds) >= STEPS)


def name_of(config: RunConfig) -> str:
    """Describe a setting in a few words."""
    model, m = config.model, config.sub_gcns
    widths = "-".join(map(str, model.hidden)) + (f" x {model.heads} heads" if model.name == "gat" else "")
    words = [config.dataset, f"{model.name} {widths}", f"m = {m}"]
    if config.partitioned is not None and m > 1:
        words.append(f"split {' '.join(f'd_{dim}' for dim in config.partitioned)}")
    if config.training.phases or config.method != "gist":
        words.append(method_name("phases" if config.training.phases else config.method, m))
    words += [config.sampler.name] if config.sampler else []
    words += [config.store] if config.store != "memory" else []
    return ", ".join(words)


def _key(config: RunConfig) -> str:
    """Return what makes a setting another one."""
    identity = _two_steps(config, 1).identity
    identity["training"] = {key: value for key, value in identity["training"].items() if key not in _RATES}
    return json.dumps([{**identity, "seed": 0}, config.store], sort_keys=True)


def _sizes_of(dataset: str, share: float = 1.0) -> GraphSizes:
    info = find(dataset)
    return GraphSizes.of_dataset(shape_of(info, share)) if info else GraphSizes.of_graph(load(dataset))


def _shares(config: RunConfig) -> Iterator[float]:
    """Yield the shares of a graph to try, the largest first: those that are drawn and trained in seconds."""
    info, sampler = find(config.dataset), config.sampler
    if info is None:
        yield 1.0
        return
    share, least = drawn_share(info), least_share(info)
    if isinstance(sampler, ClusterSampling):
        least = min(share, max(least, sampler.clusters_per_batch / sampler.clusters))  # a whole batch
    while share / 2 >= least and _work(*_scaled(config, share)) > GOOD_WORK[_place(config)]:
        share /= 2
    while share >= least:
        yield share
        share /= 2


def _scaled(config: RunConfig, share: float) -> tuple[RunConfig, GraphSizes]:
    """Return the two steps of a run on a share of its graph, in batches of the same size, and the sizes of that."""
    sizes, sampler, evaluation = _sizes_of(config.dataset, share), config.sampler, config.evaluation
    if isinstance(sampler, ClusterSampling):
        sampler = replace(sampler, clusters=max(sampler.clusters_per_batch, round(share * sampler.clusters)))
    if evaluation.parts:
        parts = max(1, round(share * evaluation.parts))
        sample = evaluation.sample and min(evaluation.sample, parts)
        evaluation = replace(evaluation, parts=parts, sample=sample)
    config = replace(config, sampler=sampler, evaluation=evaluation)
    return _two_steps(config, expected_batch(sampler, _seen(config, sizes), config.model.layers).steps), sizes


def _two_steps(config: RunConfig, steps_per_epoch: int) -> RunConfig:
    """Return a run with one step in a round, in which every phase has two."""
    training = config.training
    together = [1 if phase.copies or training.training == "each" else phase.sub_gcns for phase in training.phases]
    phases = tuple(
        replace(phase, epochs=STEPS * m / steps_per_epoch) for phase, m in zip(training.phases, together, strict=True)
    )
    epochs = 0 if phases else training.epochs
    short = replace(training, phases=phases, epochs=epochs, local_steps=1, evaluate_every=STEPS, patience=None)
    return replace(config, training=short)


def _narrowed(config: RunConfig) -> RunConfig:
    width = max(NARROW, 8 * config.sub_gcns)
    hidden = tuple(min(d, width) for d in config.model.hidden)
    return replace(config, model=replace(config.model, hidden=hidden))


def _seen(config: RunConfig, sizes: GraphSizes) -> GraphSizes:
    return sizes.training() if config.inductive else sizes


def _place(config: RunConfig) -> str:
    return "cpu" if config.device == "cpu" else "cuda"


def _work(config: RunConfig, sizes: GraphSizes) -> float:
    """Return about how many numbers a rehearsed run multiplies with weights."""
    model = config.meta_model(sizes.features, sizes.classes)
    weights = sum(parameter.numel() for parameter in model.parameters())
    batch = expected_batch(config.sampler, _seen(config, sizes), config.model.layers).nodes[0]
    m = min([phase.sub_gcns for phase in config.training.phases], default=config.sub_gcns)
    together = {"gist": 1 / m, "local-sgd": m}.get(config.method, 1)
    return weights * (3 * STEPS * batch * together + sizes.nodes)


def _hindrance(config: RunConfig, sizes: GraphSizes) -> str:
    """Say why a run on these sizes is too large for this machine; "": it is not."""
    if _work(config, sizes) > MOST_WORK[_place(config)]:
        return "two steps take too long here"
    device = torch.device(config.device)
    room = available_bytes(device) // (2 if device.type == "cpu" else 1)
    if peak_bytes(config, sizes) <= room:
        return ""
    return f"{size(room)} may be taken here"


def _rest(config: RunConfig, share: float) -> str:
    """Say on how much of the graph a run was rehearsed, and what the plan says of all of it."""
    if share == 1:
        return ""
    whole = size(peak_bytes(config, _sizes_of(config.dataset)))
    return f", on {percent(share)} of the graph; on all of it, by plan, {whole}"
