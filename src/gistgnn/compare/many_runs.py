"""Many runs, each in a process and a file of its own, so that an interrupted command resumes."""

import json
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, TypeVar

from gistgnn.compare.processes import start_once, train_apart
from gistgnn.distributed import World
from gistgnn.errors import DivergedError, InputError
from gistgnn.fit.callbacks import Callback
from gistgnn.fit.identity import Fingerprint
from gistgnn.fit.saving import Saving
from gistgnn.graphs import Graph, load
from gistgnn.runs.config import RunConfig
from gistgnn.runs.run_folder import record_of_command
from gistgnn.storage.json_files import plain, read_json, write_json
from gistgnn.storage.record import Record, read_result
from gistgnn.utils.console import TaskProgress
from gistgnn.utils.machine import version_of
from gistgnn.utils.tensors import digest_of

CHECKPOINT_EVERY = 10  # rounds
T = TypeVar("T")
log = logging.getLogger(__name__)


class RunStore:
    """A folder of finished runs, one JSON file for each.

    A run is found again by its fingerprint: by what is in the file of its graph, and not by the
    file's name. What its times depend on has to be the same, too: the device, the runner, and the
    version of gistgnn.

    Args:
        directory: the folder; it is made with the first file.
        data_root: where data sets are.
        trains: whether missing runs are trained. If not, tables show the finished runs alone.
    """

    def __init__(self, directory: Path, data_root: str, *, trains: bool = True) -> None:
        self.directory = directory
        self.data_root = data_root
        self.trains = trains
        self.graphs = dict[str, Graph]()  # the one that is in use, by its name or path
        self._fingerprints = dict[str, Fingerprint]()  # of runs with seed 0, by their settings

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "graphs": {}}  # a process of its own reads the graph itself

    def graph(self, dataset: str) -> Graph:
        """Return the graph of a name or a path.

        The last one stays in memory, so that it is read once for many runs.
        """
        if dataset not in self.graphs:
            self.graphs.clear()
            self.graphs[dataset] = load(dataset, self.data_root)
        return self.graphs[dataset]

    def get(self, config: RunConfig) -> Record | None:
        """Return the record of a finished run.

        Returns None if the run is missing, or its file was cut short.
        """
        if not any(self.directory.glob(f"{escape(self._name(config))}-*.json")):
            return None  # without reading the graph
        return _read(self._path(config), read_result)

    def finished(self, configs: Iterable[RunConfig]) -> list[Record]:
        """Return the records of some runs, or an empty list if one of them is missing."""
        records = [self.get(config) for config in configs]
        complete = [record for record in records if record is not None]
        return complete if len(complete) == len(records) else []

    def keep(self, config: RunConfig, record: Record) -> bool:
        """Write the record of a run that has ended, and remove its checkpoints.

        Returns whether it has ended.
        """
        if record.interrupted:
            return False
        path = self._path(config)
        write_json(path, record)
        for work in (".checkpoints", ".theta"):
            shutil.rmtree(path.with_suffix(work), ignore_errors=True)
        return True

    def run_all(self, configs: Iterable[RunConfig], label: str) -> list[Record]:
        """Train the missing runs, those with the first seed first.

        Returns the records of all runs, in order.

        Each run trains in a process of its own, one after another. An interruption loses no work.

        Raises:
            InputError: a run was refused, which ends all; or, after all others, some were killed.
        """
        configs = list(configs)
        missing = {self._path(config): config for config in configs if self.get(config) is None}
        for dataset in {config.dataset for config in missing.values()}:
            self.graph(dataset)  # a bad name fails here, before any training
        if missing:
            start_once()  # these seconds say nothing of the time that is left
        killed = list[str]()
        with TaskProgress(label, len(configs), len(configs) - len(missing)) as progress:
            for config in sorted(missing.values(), key=lambda config: config.seed):
                try:
                    self.keep(config, train_apart(config, self.train))
                    progress.advance()
                except BrokenProcessPool:
                    killed.append(f"{config.method}, m = {config.sub_gcns}, seed {config.seed}")
                    log.warning("the run of %s was killed; the others go on", killed[-1])
        if killed:
            runs = "1 run was" if len(killed) == 1 else f"{len(killed)} runs were"
            advice = "the others are kept: check the free memory, and run the same command again"
            raise InputError(f"{runs} killed: {'; '.join(killed)}; {advice}")
        return [record for config in configs if (record := self.get(config)) is not None]

    def train(
        self, config: RunConfig, callbacks: Sequence[Callback] = (), ranks: World | None = None
    ) -> Record:
        """Train one run in this process, and return its record.

        It goes on from its last checkpoint if there is one.
        """
        path = self._path(config)
        return train_run(
            config,
            self.graph(config.dataset),
            self.data_root,
            path.with_suffix(".theta"),
            ranks,
            callbacks=callbacks,
            saving=Saving(path.with_suffix(".checkpoints"), CHECKPOINT_EVERY, True),
        )

    def measured(self, name: str, settings: Any, measure: Callable[[], Any]) -> Any:
        """Return a measurement, which is made unless it is finished.

        `settings` are all that it depends on, as JSON.
        """
        path = self._file(name, settings)
        content = _read(path, partial(read_json, kind=dict[str, Any]))
        if content is None:
            content = {"found": json.dumps(measure())}  # as text, where NaN stays NaN
            write_json(path, content)
        return json.loads(content["found"])

    def _name(self, config: RunConfig) -> str:
        return f"{Path(config.dataset).stem}-m{config.sub_gcns}-seed{config.seed}"

    def _path(self, config: RunConfig) -> Path:
        """Return the file of a run.

        Its name ends in a digest of all by which a run is found again.
        """
        first = replace(config, seed=0, store="memory", share="whole", store_precision="float32")
        settings = digest_of(plain(first.as_dict()))
        if settings not in self._fingerprints:
            graph = self.graph(config.dataset)
            trainer = first.trainer(graph.num_features, graph.num_classes)
            self._fingerprints[settings] = first.fingerprint(trainer, graph)
        facts = [
            self._fingerprints[settings],
            config.seed,
            config.training.budget,
            config.store_precision,
        ]
        return self._file(self._name(config), [*facts, config.device, config.runner])

    def _file(self, name: str, settings: Any) -> Path:
        """Return the file of finished work.

        Its name ends in a digest of its settings and the version of gistgnn.
        """
        return self.directory / f"{name}-{digest_of([version_of('gistgnn'), settings])[:16]}.json"


def with_seeds(configs: Iterable[RunConfig], seeds: int) -> list[RunConfig]:
    """Repeat every run with seeds 0, 1, ..."""
    return [replace(config, seed=seed) for config in configs for seed in range(seeds)]


def train_run(
    config: RunConfig,
    graph: Graph,
    data_root: str,
    out: Path | None = None,
    ranks: World | None = None,
    **options: Any,
) -> Record:
    """Train a run on its graph; return its record, of a diverged run with the scores so far."""
    trainer = config.trainer(graph.num_features, graph.num_classes, out, ranks=ranks)
    try:
        result = config.fit(trainer, graph, progress=False, **options)
    except DivergedError as error:
        result = error.result
    return record_of_command(config, result, data_root)


def _read(path: Path, read: Callable[..., T]) -> T | None:
    """Return the content of a file; None if it is missing, or damaged, which is logged."""
    if not path.exists():
        return None
    try:
        return read(path, advice="it is done again")
    except InputError as error:
        log.warning("%s", error)
        return None
