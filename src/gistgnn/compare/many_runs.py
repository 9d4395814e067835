"""Many runs: each trains in a process of its own, and is kept in a file, so that an interrupted command resumes."""

import hashlib
import json
import logging
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from functools import cache
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from gistgnn.distributed import World
from gistgnn.errors import DivergedError, InputError
from gistgnn.fit.callbacks import Callback
from gistgnn.fit.result import Result
from gistgnn.fit.saving import Saving
from gistgnn.graphs import Graph, load
from gistgnn.runs.config import RunConfig
from gistgnn.runs.run_folder import config_of, result_json
from gistgnn.storage.json_files import plain, read_json, write_json
from gistgnn.utils.console import TaskProgress, show_log
from gistgnn.utils.machine import describe_machine

CHECKPOINT_EVERY = 10  # rounds

log = logging.getLogger(__name__)

Record = dict[str, Any]
"""What result.json holds of a run."""


class RunStore:
    """A directory of finished runs, one JSON file for each. Missing runs are trained if `trains`, or else left out."""

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
        """Return measurements by name, made where they are missing; an interruption keeps the finished ones."""
        # `wanted` has for each name its arguments, as JSON holds them, and the function that makes it. The first word
        # of a name is its kind. Measurements of one kind with equal arguments are made once.
        results = {}
        with TaskProgress(label, len(wanted)) as progress:
            for name, (arguments, measure) in wanted.items():
                kind = name.split(" ")[0]
                request = plain([kind, arguments])
                path = self._file(kind, request)
                content = _read(path, lambda content: isinstance(content["found"], str))
                if content is None or content["of"] != request:
                    content = {"of": request, "found": json.dumps(measure())}  # as text, where NaN stays NaN
                    write_json(path, content)
                results[name] = json.loads(content["found"])
                progress.advance()
        return results

    def get(self, config: RunConfig) -> Record | None:
        """Return the record of a finished run; None if the run is missing or its file was cut short."""
        return _read(self._path(config), lambda record: config_of(record).identity == config.identity)

    def keep(self, config: RunConfig, record: Record) -> None:
        """Write the record of a finished run, and remove its checkpoints."""
        write_json(self._path(config), record)
        for work in (".checkpoints", ".theta"):
            shutil.rmtree(self._path(config).with_suffix(work), ignore_errors=True)

    def saving(self, config: RunConfig) -> Saving:
        return Saving(self._path(config).with_suffix(".checkpoints"), CHECKPOINT_EVERY, True, config.resume_identity)

    def run_all(self, configs: Iterable[RunConfig], jobs: int | None, label: str) -> list[Record]:
        """Train the missing runs, those with the first seed first; return the records of all, in order."""
        # `jobs` of them train at a time, with one thread each; None: one, with all threads. An interruption loses no
        # work.
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
        graph, out = load(config.dataset, self.data_root), self._path(config).with_suffix(".theta")
        return train_run(config, graph, self.data_root, out, callbacks=callbacks, saving=self.saving(config))[1]

    def _path(self, config: RunConfig) -> Path:
        return self._file(f"{Path(config.dataset).stem}-m{config.sub_gcns}-seed{config.seed}", config.identity)

    def _file(self, prefix: str, request: Any) -> Path:
        """Return the file of finished work: its name holds a digest of what was asked for."""
        digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:16]
        return self.directory / f"{prefix}-{digest}.json"


def _read(path: Path, fits: Callable[[Any], bool]) -> Any | None:
    """Return the content of a file; None if it does not fit, is missing or damaged."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        try:
            content = read_json(path, dict[str, Any], "it is done again") if path.exists() else {}
            return content if content.pop("checksum") and fits(content) else None
        except InputError as error:
            log.warning("%s", error)
    return None


def with_seeds(configs: Iterable[RunConfig], seeds: int) -> list[RunConfig]:
    """Repeat every run with seeds 0, 1, ..."""
    return [replace(config, seed=seed) for config in configs for seed in range(seeds)]


def train_run(
    config: RunConfig, graph: Graph, data_root: str, out: Path | None = None, ranks: World | None = None, **options: Any
) -> tuple[Result, Record]:
    """Train a run on its graph; return result and record, of a diverged run with the scores so far."""
    trainer = config.trainer(graph.num_features, graph.num_classes, out, ranks=ranks)
    try:
        result = config.fit(trainer, graph, progress=False, **options)
    except DivergedError as error:
        result = error.result
    record = result_json(config, result, data_root)
    return result, {**record, "machine": describe_machine(config.device)}


def train_apart(
    configs: Sequence[RunConfig],
    train: Callable[[RunConfig], Record],
    at_once: int,
    threads: int,
    keep: Callable[[RunConfig, Record], None],
) -> list[str]:
    """Train every run in a process of its own, `at_once` at a time; return in words which of them were killed."""
    # An error ends all. `keep` is called with a run and its record as soon as the run is finished.

    def apart(config: RunConfig) -> Record:
        with ProcessPoolExecutor(1, _context(), _begin, (threads,)) as process:
            return process.submit(train, config).result()

    others, killed = set(multiprocessing.active_children()), list[str]()
    with ThreadPoolExecutor(at_once) as waiting:
        futures = {waiting.submit(apart, config): config for config in configs}
        try:
            for future in as_completed(futures):
                config = futures[future]
                try:
                    keep(config, future.result())
                except BrokenProcessPool:
                    killed.append(f"{config.method}, m = {config.sub_gcns}, seed {config.seed}")
                    log.warning("the run of %s was killed; the others go on", killed[-1])
        except BaseException:
            waiting.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in futures):  # one may just be starting its process
                for child in set(multiprocessing.active_children()) - others:
                    child.terminate()
                time.sleep(0.02)
            raise
    return killed


@cache
def _context() -> ForkServerContext | SpawnContext:
    """How processes start: forked from a server that has imported torch, or spawned on Windows."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["gistgnn.compare.many_runs", "torch._dynamo"])
    return server


def _begin(threads: int) -> None:
    """Prepare a process for one run: it leaves signals to its parent, prints nothing, and ends with its parent."""
    torch.set_num_threads(threads)
    for name in ("SIGINT", "SIGHUP", "SIGUSR1"):  # its parent ends it by SIGTERM
        with suppress(AttributeError):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    show_log(shown=False)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
