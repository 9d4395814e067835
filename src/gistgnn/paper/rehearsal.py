"""Rehearses an experiment without its data: every setting takes two steps on a small random graph, and is scored once.

The experiment's own code makes its table, verdicts and report of them: a mistake shows in minutes, not after days.
"""

import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gistgnn import Callback, InputError
from gistgnn.compare import Record, RunStore
from gistgnn.graphs import DatasetInfo, Graph, find, load, save_file
from gistgnn.paper.experiment import Experiment
from gistgnn.runs import RunConfig
from gistgnn.sampling import ClusterSampling
from gistgnn.utils import duration, plural

STEPS = 2  # of every sub-GCN, each in a round of its own
WIDTH = 512  # of a hidden layer, at most
NODES, DEGREE = 5000, 20  # of a graph, at most


def rehearse(experiment: Experiment, data_root: str, command: str) -> str:
    """Rehearse an experiment: print a line for each setting, return one on all. Reads the user's own files alone."""
    begun = time.perf_counter()
    logging.disable(logging.WARNING)  # notes on two steps would mean nothing
    try:
        with tempfile.TemporaryDirectory(prefix="gistgnn-rehearsal-") as folder:
            store = RehearsedRuns(Path(folder), data_root)
            short = replace(experiment, epochs=2, seeds=1)  # for the theory, whose measurements are no runs
            outcome = short.reproduce(Path(folder) / "out", store, command)
    finally:
        logging.disable(logging.NOTSET)
    made = f"{plural(len(outcome.rows), 'row')}, {plural(len(outcome.verdicts), 'verdict')} and the report were made"
    seconds = duration(time.perf_counter() - begun)
    return f"rehearsed: {plural(store.ran, 'setting')} ran, {store.planned} by plan, in {seconds}; {made}, and not kept"


class RehearsedRuns(RunStore):
    """Stands for finished runs: trains two steps of every setting that is asked for, whatever its seed, rates and ζ."""

    rehearses = True

    def __init__(self, directory: Path, data_root: str) -> None:
        super().__init__(directory, data_root)
        self._known = dict[str, Record]()
        self.ran = self.planned = 0  # settings that were trained, and those that are too large by the plan

    def dataset(self, name: str) -> str:
        """Return the file of the graph that stands for a data set; a file that the user gives stays."""
        if (info := find(name)) is None:
            return name
        path = self.directory / f"{info.name.replace(':', '-')}.npz"
        if not path.exists():
            save_file(stand_in(info), path)
        return str(path)

    def left_out(self, config: RunConfig, why: str) -> None:
        self.planned += 1
        print(f"by plan: {setting_name(config)}: {why}", flush=True)

    def run_all(self, configs: Iterable[RunConfig], label: str) -> list[Record]:
        """See `RunStore`; runs of the same setting are one, in this process."""
        return [{**self._run(config), "config": json.loads(json.dumps(config.as_dict()))} for config in configs]

    def measured(self, name: str, settings: Any, measure: Callable[[], Any]) -> Any:
        self.ran += 1
        return super().measured(name, settings, measure)

    def _run(self, config: RunConfig) -> Record:
        setting = two_steps(config)
        if (key := str(setting)) not in self._known:
            begun = time.perf_counter()
            try:
                file = self.dataset(config.dataset)
                share = load(file, self.data_root).num_nodes / info.nodes if (info := find(config.dataset)) else 1.0
                self._known[key] = self._resume(shortened(setting, file, share), [_Enough()])
            except InputError as error:
                raise InputError(f"{setting_name(config)}: {error}") from error
            self.ran += 1
            print(f"ran: {setting_name(config)}: {duration(time.perf_counter() - begun)}", flush=True)
        return self._known[key]


class _Enough(Callback):
    """Ends a run after its steps, with a checkpoint."""

    def on_round_end(self, run: Any, loss: float) -> None:
        if run.round >= STEPS:
            run.interrupt()


def setting_name(config: RunConfig) -> str:
    """Describe a setting in a few words."""
    m, split = config.sub_gcns, config.partitioned
    words = [config.dataset, f"{config.model.name} {'-'.join(map(str, config.model.hidden))}", f"m = {m}"]
    words += [f"split {' '.join(f'd_{dim}' for dim in split)}"] if split is not None and m > 1 else []
    words += [config.method] if config.method != "gist" else []
    words += [config.sampler.name] if config.sampler else []
    words += [config.store] if config.store != "memory" else []
    return ", ".join(words)


def two_steps(config: RunConfig) -> RunConfig:
    """Return a run with one step in a round, which is scored after two; equal ones are one setting."""
    long, m = config.training, config.sub_gcns
    short = replace(long, epochs=4 * m, local_steps=1, lr=0.01, weight_decay=0.0, evaluate_every=STEPS)
    return replace(config, seed=0, training=short)


def shortened(config: RunConfig, dataset: str, share: float) -> RunConfig:
    """Return the run on a graph with this share of the nodes: batches and parts are about as large, layers narrower."""
    sampler, evaluation, width = config.sampler, config.evaluation, max(WIDTH, 8 * config.sub_gcns)
    if isinstance(sampler, ClusterSampling) and sampler.clusters and sampler.clusters_per_batch:
        sampler = replace(sampler, clusters=max(sampler.clusters_per_batch, round(share * sampler.clusters)))
    if evaluation.parts:
        evaluation = replace(evaluation, parts=max(1, round(share * evaluation.parts)))
    model = replace(config.model, hidden=tuple(min(d, width) for d in config.model.hidden))
    return replace(config, dataset=dataset, model=model, sampler=sampler, evaluation=evaluation)


def stand_in(info: DatasetInfo) -> Graph:
    """Draw a random graph with the features, classes and task of a data set, and perhaps fewer nodes and edges."""
    rng = torch.Generator().manual_seed(0)
    n = min(info.nodes, max(NODES, 20 * info.classes))
    ends = torch.randint(n, (2, n * min(DEGREE, round(info.edges / info.nodes)) // 2 + 1), generator=rng)
    ends = ends[:, ends[0] != ends[1]]
    train = max(1, round(n / info.nodes * info.train))
    splits = torch.randperm(n, generator=rng).tensor_split([train, train + (n - train) // 3])
    y = torch.arange(n) % info.classes
    if info.task == "multi-label":
        y = torch.randint(2, (n, info.classes), generator=rng).float()
    masks: dict[str, Any] = dict(zip(("train", "val", "test"), splits, strict=True))
    x = torch.randn(n, info.features, generator=rng)
    return Graph.build(x, torch.cat([ends, ends.flip(0)], dim=1), y, **masks, num_classes=info.classes)
