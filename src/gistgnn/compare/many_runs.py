"""Many runs: each is trained once and kept in a file, so that an interrupted command resumes."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from gistgnn.compare import finished
from gistgnn.compare.processes import Keep, Record, killed_error, side_by_side, take_turns
from gistgnn.distributed import World
from gistgnn.errors import DivergedError
from gistgnn.fit.result import Result
from gistgnn.fit.saving import Saving
from gistgnn.graphs import Graph, load
from gistgnn.runs.config import RunConfig
from gistgnn.runs.run_folder import config_of, result_json
from gistgnn.utils.machine import describe_machine
from gistgnn.utils.progress import TaskProgress

CHECKPOINT_EVERY = 10  # rounds


class RunStore:
    """A directory of finished runs, one JSON file for each, looked up by configuration.

    Args:
        directory: of the files.
        data_root: of the data sets.
        trains: runs that are missing are trained; otherwise there are only the finished ones.
    """

    def __init__(self, directory: Path, data_root: str, *, trains: bool = True) -> None:
        self.directory = directory
        self.data_root = data_root
        self.trains = trains

    def offers(self, configs: Iterable[RunConfig]) -> bool:
        """Return whether these runs are finished, or can be trained."""
        return self.trains or all(self.get(config) is not None for config in configs)

    def dataset(self, name: str) -> str:
        """Return the name or file under which `load` finds a data set."""
        return name

    def left_out(self, config: RunConfig, why: str) -> None:
        """Note that a run of the table is not trained, and why."""

    def measured(self, wanted: Mapping[str, tuple[Mapping[str, Any], Callable[[], Any]]], label: str) -> dict[str, Any]:
        """Make the measurements that are missing, and return all; see `finished.measure_all`."""
        return finished.measure_all(self.directory, wanted, label)

    def get(self, config: RunConfig) -> Record | None:
        """Return the record of a finished run; None if the run is missing or its file was cut short."""
        return finished.read(self._path(config), lambda record: config_of(record).identity == config.identity)

    def keep(self, config: RunConfig, record: Record) -> None:
        """Write the record of a finished run, and remove its checkpoints."""
        finished.write(self._path(config), record)
        for folder in (self._checkpoints(config), self._theta(config)):
            shutil.rmtree(folder, ignore_errors=True)

    def saving(self, config: RunConfig) -> Saving:
        """Return how an unfinished run is saved, and resumed."""
        return Saving(self._checkpoints(config), CHECKPOINT_EVERY, True, config.resume_identity)

    def run_all(self, configs: Iterable[RunConfig], jobs: int, label: str) -> list[Record]:
        """Train the runs that are missing, `jobs` at a time with one thread each; return all records, in order.

        An interruption keeps finished runs.
        """

        def train(missing: list[RunConfig], keep: Keep, progress: TaskProgress) -> list[str]:
            return side_by_side(missing, partial(_train, data_root=self.data_root), jobs, keep)

        return self._complete(list(configs), label, train)

    def in_turns(self, configs: Iterable[RunConfig], label: str, at_once: int | None = None) -> list[Record]:
        """Train the runs that are missing, seed by seed; return all records, in order.

        The runs of one seed take turns, `at_once` of them or all. They are in memory together. An interruption keeps
        finished runs, and the checkpoints of the others.
        """

        def train(missing: list[RunConfig], keep: Keep, progress: TaskProgress) -> list[str]:
            killed = []
            for seed in dict.fromkeys(config.seed for config in missing):
                same_seed = [config for config in missing if config.seed == seed]
                size = at_once or len(same_seed)
                for start in range(0, len(same_seed), size):
                    runs = same_seed[start : start + size]
                    killed += take_turns(runs, self._resume, torch.get_num_threads(), keep, progress.within)
            return killed

        return self._complete(list(configs), label, train)

    def _complete(
        self, configs: list[RunConfig], label: str, train: Callable[[list[RunConfig], Keep, TaskProgress], list[str]]
    ) -> list[Record]:
        """Train the runs that are missing, keep each as soon as it is finished, and return all records."""
        missing = {self._path(config): config for config in configs if self.get(config) is None}
        for dataset in {config.dataset for config in missing.values()}:
            load(dataset, self.data_root)  # a bad name fails here, before any training
        with TaskProgress(label, len(configs), len(configs) - len(missing)) as progress:

            def keep(config: RunConfig, record: Record) -> None:
                self.keep(config, record)
                progress.advance()

            killed = train(list(missing.values()), keep, progress)
        if killed:
            raise killed_error(killed)
        return [record for config in configs if (record := self.get(config)) is not None]

    def _resume(self, config: RunConfig, callbacks: list[Any]) -> Record:
        """Train one run from its last checkpoint, if there is one."""
        return _train(config, callbacks, self.data_root, self._theta(config), saving=self.saving(config))

    def _checkpoints(self, config: RunConfig) -> Path:
        return self._path(config).with_suffix(".checkpoints")

    def _theta(self, config: RunConfig) -> Path:
        """Return the folder of a Θ on disk."""
        return self._path(config).with_suffix(".theta")

    def _path(self, config: RunConfig) -> Path:
        prefix = f"{Path(config.dataset).stem}-m{config.sub_gcns}-seed{config.seed}"
        return finished.file_of(self.directory, prefix, config.identity)


@lru_cache(maxsize=1)
def _graph(dataset: str, data_root: str) -> Graph:
    return load(dataset, data_root)


def _train(
    config: RunConfig, callbacks: list[Any], data_root: str, out: Path | None = None, saving: Saving | None = None
) -> Record:
    """Train one run in this process; `out` is the folder of a Θ on disk, without which such runs are refused."""
    graph = _graph(config.dataset, data_root)
    scale = config.scale(graph)
    if scale:
        graph = scale.graph(graph)
    options: dict[str, Any] = {"callbacks": callbacks, "saving": saving}
    return train_run(config, graph, data_root, out=out, standardised=scale is not None, **options)[1]


def train_run(
    config: RunConfig,
    graph: Graph,
    data_root: str,
    *,
    standardised: bool,
    out: Path | None = None,
    ranks: World | None = None,
    **options: Any,
) -> tuple[Result, Record]:
    """Train one run, and return its result and record; one that diverged counts with the scores so far.

    Args:
        config: the run.
        graph: its graph, standardised where it has to be.
        data_root: of the data sets.
        standardised: whether the graph's features have been.
        out: the folder of a Θ on disk.
        ranks: the processes that train together, all of which call this; None: this one alone.
        options: arguments of `GIST.fit`.
    """
    trainer = config.trainer(graph.num_features, graph.num_classes, out, ranks=ranks)
    try:
        result = config.fit(trainer, graph, progress=False, **options)
    except DivergedError as error:
        result = error.result
    record = result_json(config, graph, result, data_root, standardised=standardised)
    return result, {**record, "machine": describe_machine(config.device)}
