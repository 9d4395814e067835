"""Many runs: each is done once, kept in a file of its own, and not done again."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from gistgnn.compare.processes import begin, context
from gistgnn.compare.turns import take_turns
from gistgnn.errors import DivergedError
from gistgnn.graphs import Graph, load
from gistgnn.io.whole_files import replacing
from gistgnn.runs.config import RunConfig
from gistgnn.runs.run_folder import config_of, result_json
from gistgnn.session.saving import Saving

Record = dict[str, Any]

CHECKPOINT_EVERY = 10  # rounds


class RunStore:
    """Finished runs in a directory, found again by their configuration.

    Args:
        directory: one JSON file for each run; made when the first is kept.
        data_root: where named data sets are.
    """

    def __init__(self, directory: Path, data_root: str) -> None:
        self.directory = directory
        self.data_root = data_root

    def get(self, config: RunConfig) -> Record | None:
        """Return the record of a finished run, or None; a file that was cut short counts as none."""
        try:
            record: Record = json.loads(self._path(config).read_text())
            whole = {"traffic", "inference_seconds"} <= record.keys()  # older ones lack them
            return record if whole and config_of(record).identity == config.identity else None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def run_all(self, configs: Iterable[RunConfig], jobs: int, label: str) -> list[Record]:
        """Do the runs that are not there yet, `jobs` at a time with one thread each, and return all records in order.

        An interruption keeps what is finished.
        """
        wanted = list(configs)
        missing = self._missing(wanted)
        pool = ProcessPoolExecutor(jobs, mp_context=context(), initializer=begin, initargs=(1,))
        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task(label, total=len(wanted), completed=len(wanted) - len(missing))
            running = {pool.submit(_run, config, self.data_root): config for config in missing}
            try:
                for future in as_completed(running):
                    self._keep(running[future], future.result())
                    bar.advance(task)
            except KeyboardInterrupt:
                for worker in active_children():  # what they are at is lost; the rest is kept
                    worker.terminate()
                raise
            finally:
                pool.shutdown(cancel_futures=True)
        return self._all(wanted)

    def in_turns(self, configs: Iterable[RunConfig], label: str, at_once: int | None = None) -> list[Record]:
        """Do the runs that are not there yet, seed by seed, those of one seed in turns; return all records in order.

        Args:
            configs: what to run.
            label: of the progress bar.
            at_once: how many take turns, before the next ones do; None: all of a seed.

        An interruption keeps what is finished, and the checkpoints of the rest.
        """
        wanted = list(configs)
        missing = self._missing(wanted)
        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task(label, total=len(wanted), completed=len(wanted) - len(missing))

            def keep(config: RunConfig, record: Record) -> None:
                self._keep(config, record)
                shutil.rmtree(self._checkpoints(config), ignore_errors=True)
                bar.advance(task)

            for seed in dict.fromkeys(config.seed for config in missing):
                every = [config for config in missing if config.seed == seed]
                for first in range(0, len(every), at_once or len(every)):
                    together = every[first : first + (at_once or len(every))]
                    take_turns(together, self._resumable, torch.get_num_threads(), keep)
        return self._all(wanted)

    def _missing(self, wanted: list[RunConfig]) -> list[RunConfig]:
        """Those that are not there, each once; a data set that is not there is said at once, in this process."""
        missing = {_key(config): config for config in wanted if self.get(config) is None}
        for dataset in {config.dataset for config in missing.values()}:
            load(dataset, self.data_root)
        return list(missing.values())

    def _all(self, wanted: list[RunConfig]) -> list[Record]:
        return [record for config in wanted if (record := self.get(config)) is not None]

    def _resumable(self, config: RunConfig, advance: Callable[[int, int], None], stop: Callable[[], bool]) -> Record:
        """Do one run, or go on with it."""
        saving = Saving(self._checkpoints(config), CHECKPOINT_EVERY, True, config.resume_identity)
        return _run(config, self.data_root, advance=advance, stop=stop, saving=saving)

    def _checkpoints(self, config: RunConfig) -> Path:
        return self._path(config).with_suffix(".checkpoints")

    def _keep(self, config: RunConfig, record: Record) -> None:
        with replacing(self._path(config)) as path:
            path.write_text(json.dumps(record))

    def _path(self, config: RunConfig) -> Path:
        digest = hashlib.sha256(_key(config).encode()).hexdigest()[:16]
        return self.directory / f"{Path(config.dataset).stem}-m{config.sub_gcns}-seed{config.seed}-{digest}.json"


def _key(config: RunConfig) -> str:
    return json.dumps(config.identity, sort_keys=True)


@lru_cache(maxsize=1)
def _graph(dataset: str, data_root: str) -> Graph:
    return load(dataset, data_root)


def _run(config: RunConfig, data_root: str, **hooks: Any) -> Record:
    """Do one run in a worker process; `hooks` are of `GIST.fit`."""
    graph = _graph(config.dataset, data_root)
    if scale := config.scale(graph):
        graph = scale.graph(graph)
    trainer = config.trainer(graph.num_features, graph.num_classes)
    try:
        result = config.fit(trainer, graph, progress=False, **hooks)
    except DivergedError as error:  # a bad learning rate of a search: its validation score so far decides
        return {**result_json(config, graph, error.result, data_root), "diverged": str(error)}
    return result_json(config, graph, result, data_root)
