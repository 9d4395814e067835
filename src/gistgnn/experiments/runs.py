"""Many runs: each is done once, kept in a file of its own, and not done again."""

import hashlib
import json
import os
import signal
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from gistgnn.errors import DivergedError
from gistgnn.files import replacing
from gistgnn.graphs import Graph, load
from gistgnn.run import RunConfig, config_of, result_json

Record = dict[str, Any]


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
            return record if config_of(record).identity == config.identity else None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def run_all(self, configs: Iterable[RunConfig], jobs: int, label: str) -> list[Record]:
        """Do the runs that are not there yet, `jobs` at a time with one thread each, and return all records in order.

        An interruption keeps what is finished.
        """
        wanted = list(configs)
        missing = {_key(config): config for config in wanted if self.get(config) is None}
        for dataset in {config.dataset for config in missing.values()}:
            load(dataset, self.data_root)  # one that is not there is said at once, in this process
        pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start_worker)
        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task(label, total=len(wanted), completed=len(wanted) - len(missing))
            running = {pool.submit(_run, config, self.data_root): config for config in missing.values()}
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
        return [record for config in wanted if (record := self.get(config)) is not None]

    def _keep(self, config: RunConfig, record: Record) -> None:
        with replacing(self._path(config)) as path:
            path.write_text(json.dumps(record))

    def _path(self, config: RunConfig) -> Path:
        digest = hashlib.sha256(_key(config).encode()).hexdigest()[:16]
        return self.directory / f"{Path(config.dataset).stem}-m{config.sub_gcns}-seed{config.seed}-{digest}.json"


def _key(config: RunConfig) -> str:
    return json.dumps(config.identity, sort_keys=True)


def _start_worker() -> None:
    """Use one thread, and end when the parent process is gone, however it went."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@lru_cache(maxsize=1)
def _graph(dataset: str, data_root: str) -> Graph:
    return load(dataset, data_root)


def _run(config: RunConfig, data_root: str) -> Record:
    """Do one run in a worker process."""
    graph = _graph(config.dataset, data_root)
    if scale := config.scale(graph):
        graph = scale.graph(graph)
    try:
        result = config.fit(config.trainer(graph.num_features, graph.num_classes), graph, progress=False)
    except DivergedError as error:  # a bad learning rate of a search: its validation score so far decides
        result = error.result
    return result_json(config, graph, result, data_root)
