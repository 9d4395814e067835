"""Many runs: each is trained once and kept in a file, so that an interrupted command resumes."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from gistgnn.compare import finished
from gistgnn.compare.processes import Record, train_apart
from gistgnn.distributed import World
from gistgnn.errors import DivergedError, InputError
from gistgnn.fit.callbacks import Callback
from gistgnn.fit.result import Result
from gistgnn.fit.saving import Saving
from gistgnn.graphs import Graph, Standardisation, load
from gistgnn.runs.config import RunConfig
from gistgnn.runs.run_folder import config_of, result_json
from gistgnn.storage.json_files import write_json
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
        self.directory, self.data_root, self.trains = directory, data_root, trains

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
        write_json(self._path(config), record)
        for work in (".checkpoints", ".theta"):
            shutil.rmtree(self._path(config).with_suffix(work), ignore_errors=True)

    def saving(self, config: RunConfig) -> Saving:
        """Return how an unfinished run is saved, and resumed."""
        return Saving(self._path(config).with_suffix(".checkpoints"), CHECKPOINT_EVERY, True, config.resume_identity)

    def run_all(self, configs: Iterable[RunConfig], jobs: int | None, label: str) -> list[Record]:
        """Train the runs that are missing, each in a process of its own, those with the first seed first.

        An interruption keeps finished runs, and the checkpoints of the others.

        Args:
            configs: the runs.
            jobs: how many train at the same time, with one thread each; None: one, with all threads.
            label: of the progress bar.

        Returns:
            The records of all runs, in order.

        Raises:
            InputError: a data set cannot be read, a run is refused, or its process was killed.
        """
        configs = list(configs)
        missing = {self._path(config): config for config in configs if self.get(config) is None}
        for dataset in {config.dataset for config in missing.values()}:
            load(dataset, self.data_root)  # a bad name fails here, before any training
        with TaskProgress(label, len(configs), len(configs) - len(missing)) as progress:

            def keep(config: RunConfig, record: Record) -> None:
                self.keep(config, record)
                progress.advance()

            by_seed = sorted(missing.values(), key=lambda config: config.seed)
            killed = train_apart(by_seed, self._resume, jobs or 1, 1 if jobs else torch.get_num_threads(), keep)
        if killed:
            runs = "run was" if len(killed) == 1 else "runs were"
            raise InputError(
                f"{len(killed)} {runs} killed: {'; '.join(killed)}; all others are finished and kept: check the free "
                "memory, and run the same command again"
            )
        return [record for config in configs if (record := self.get(config)) is not None]

    def _resume(self, config: RunConfig, callbacks: Sequence[Callback] = ()) -> Record:
        """Train one run in this process, from its last checkpoint if there is one."""
        graph, out = load_scaled(config, self.data_root), self._path(config).with_suffix(".theta")
        return train_run(config, graph, self.data_root, out, callbacks=callbacks, saving=self.saving(config))[1]

    def _path(self, config: RunConfig) -> Path:
        prefix = f"{Path(config.dataset).stem}-m{config.sub_gcns}-seed{config.seed}"
        return finished.file_of(self.directory, prefix, config.identity)


def load_scaled(config: RunConfig, data_root: str) -> Graph:
    """Load the graph of a run, with its features standardised if the run asks for it."""
    graph = load(config.dataset, data_root)
    scale = config.scale(graph)
    return scale.graph(graph) if scale else graph


def train_run(
    config: RunConfig, graph: Graph, data_root: str, out: Path | None = None, ranks: World | None = None, **options: Any
) -> tuple[Result, Record]:
    """Train one run, and return its result and record; a run that diverged counts with its scores so far.

    Args:
        config: the run.
        graph: what `load_scaled` returns.
        data_root: of the data sets.
        out: the folder of a Θ on disk; None: there must be no Θ on disk.
        ranks: the processes that train together, all of which call this; None: this one alone.
        options: arguments of `GIST.fit`.
    """
    trainer = config.trainer(graph.num_features, graph.num_classes, out, ranks=ranks)
    try:
        result = config.fit(trainer, graph, progress=False, **options)
    except DivergedError as error:
        result = error.result
    scaled = Standardisation.suits(graph.x) if config.standardise is None else config.standardise
    record = result_json(config, graph, result, data_root, standardised=scaled)
    return result, {**record, "machine": describe_machine(config.device)}
