"""Rehearses an experiment without its data: every setting takes two steps on a small random graph, and is scored once.

The experiment's own code makes its table, verdicts and report of them: a mistake shows in minutes, not after days.
"""

import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gistgnn import Callback, InputError
from gistgnn.compare import Record, RunStore
from gistgnn.graphs import DatasetInfo, Graph, GraphSizes, find, load, save_file
from gistgnn.paper.experiment import Experiment
from gistgnn.report import method_name
from gistgnn.runs import RunConfig
from gistgnn.sampling import ClusterSampling
from gistgnn.utils import duration, plural

STEPS = 2  # of every sub-GCN, each in a round of its own
MOST_FEATURES = 512  # features of a hidden layer
NODES, DEGREE = 5000, 20  # of a graph, at most
_RATES = ("lr", "weight_decay", "epochs")  # settings of training that make no other setting


def rehearse(experiment: Experiment, data_root: str, command: str, report: Callable[[str], None]) -> str:
    """Rehearse an experiment; report a line on each setting, return one on all. Reads the user's own files alone."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="gistgnn-rehearsal-") as folder:
        store = RehearsedRuns(Path(folder), data_root, report)
        logging.disable(logging.WARNING)  # notes on two steps would mean nothing
        try:
            outcome = experiment.shortened().reproduce(Path(folder) / "out", data_root, 1, command, store)
        finally:
            logging.disable(logging.NOTSET)
    made = f"{plural(len(outcome.rows), 'row')}, {plural(len(outcome.verdicts), 'verdict')} and the report were made"
    seconds = duration(time.perf_counter() - begun)
    return f"rehearsed: {plural(store.ran, 'setting')} ran, {store.planned} by plan, in {seconds}; {made}, and not kept"


class RehearsedRuns(RunStore):
    """Stands for finished runs: trains two steps of a setting that is asked for, whatever its seed, ζ and rates."""

    def __init__(self, directory: Path, data_root: str, report: Callable[[str], None]) -> None:
        super().__init__(directory, data_root)
        self._report, self._known = report, dict[str, Record]()
        self.ran = self.planned = 0  # settings that were trained, and those that are too large by the plan

    def dataset(self, name: str) -> str:
        """Return the file of the graph that stands for a data set; a file that the user gives stays."""
        info = find(name)
        if info is None:
            return name
        path = self.directory / f"{info.name.replace(':', '-')}.npz"
        if not path.exists():
            save_file(stand_in(info), path)
        return str(path)

    def left_out(self, config: RunConfig, why: str) -> None:
        self.planned += 1
        self._report(f"by plan: {setting_name(config)}: {why}")

    def get(self, config: RunConfig) -> Record:
        """Return the record of a run of the same setting, which is trained if there is none."""
        identity = {**_two_steps(config).identity, "seed": 0}
        identity["training"] = {key: value for key, value in identity["training"].items() if key not in _RATES}
        if (key := json.dumps([identity, config.store], sort_keys=True)) not in self._known:
            begun = time.perf_counter()
            try:
                short = shortened(config, self.dataset(config.dataset), self.data_root)
                self._known[key] = self._resume(short, [_Enough()])
            except InputError as error:
                raise InputError(f"{setting_name(config)}: {error}") from error
            self._report(f"ran: {setting_name(config)}: {duration(time.perf_counter() - begun)}")
            self.ran += 1
        return {**self._known[key], "config": json.loads(json.dumps(config.as_dict()))}

    def run_all(self, configs: Iterable[RunConfig], jobs: int | None, label: str) -> list[Record]:
        """See `RunStore`; the runs follow one another in this process."""
        return list(map(self.get, configs))

    def measured(self, wanted: Mapping[str, tuple[Mapping[str, Any], Callable[[], Any]]], label: str) -> dict[str, Any]:
        """See `RunStore`; the experiment has made its measurements short (`Experiment.shortened`)."""
        self.ran += len(wanted)
        return super().measured(wanted, label)


class _Enough(Callback):
    """Ends a run after its steps, and lets it write a checkpoint."""

    def on_round_end(self, run: Any, loss: float) -> None:
        if run.round >= STEPS:
            run.interrupt()


def setting_name(config: RunConfig) -> str:
    """Describe a setting in a few words."""
    model, m = config.model, config.sub_gcns
    words = [config.dataset, f"{model.name} {'-'.join(map(str, model.hidden))}", f"m = {m}"]
    if config.partitioned is not None and m > 1:
        words.append(f"split {' '.join(f'd_{dim}' for dim in config.partitioned)}")
    if config.method != "gist":
        words.append(method_name(config.method, m))
    words += [config.sampler.name] if config.sampler else []
    words += [config.store] if config.store != "memory" else []
    return ", ".join(words)


def shortened(config: RunConfig, dataset: str, data_root: str) -> RunConfig:
    """Return the two steps of a run on another graph, in batches of about the same size."""
    info, sizes = find(config.dataset), GraphSizes.of_graph(load(dataset, data_root))
    share = sizes.nodes / info.nodes if info else 1.0
    sampler, evaluation, width = config.sampler, config.evaluation, max(MOST_FEATURES, 8 * config.sub_gcns)
    if isinstance(sampler, ClusterSampling) and sampler.clusters and sampler.clusters_per_batch:
        sampler = replace(sampler, clusters=max(sampler.clusters_per_batch, round(share * sampler.clusters)))
    if evaluation.parts:
        parts = max(1, round(share * evaluation.parts))
        evaluation = replace(evaluation, parts=parts, sample=evaluation.sample and min(evaluation.sample, parts))
    model = replace(config.model, hidden=tuple(min(d, width) for d in config.model.hidden))
    return replace(_two_steps(config), dataset=dataset, model=model, sampler=sampler, evaluation=evaluation)


def stand_in(info: DatasetInfo) -> Graph:
    """Draw a random graph with the features, classes and task of a data set, and perhaps fewer nodes and edges."""
    rng = torch.Generator().manual_seed(0)
    n = min(info.nodes, max(NODES, 20 * info.classes))
    edges = torch.randint(n, (2, n * min(DEGREE, round(info.edges / info.nodes)) // 2 + 1), generator=rng)
    edges = edges[:, edges[0] != edges[1]]
    train = max(1, round(n / info.nodes * info.train))
    split = (torch.randperm(n, generator=rng) >= torch.tensor([[train], [train + (n - train) // 3]])).sum(dim=0)
    y: Tensor = torch.arange(n) % info.classes
    if info.task == "multi-label":
        y = torch.randint(2, (n, info.classes), generator=rng).float()
    masks: dict[str, Any] = {name: split == place for place, name in enumerate(("train", "val", "test"))}
    x = torch.randn(n, info.features, generator=rng)
    return Graph.build(x, torch.cat([edges, edges.flip(0)], dim=1), y, **masks, num_classes=info.classes)


def _two_steps(config: RunConfig) -> RunConfig:
    """Return a run with one step in a round, which is scored after two."""
    return replace(config, training=replace(config.training, local_steps=1, evaluate_every=STEPS, patience=None))
