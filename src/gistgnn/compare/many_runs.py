"""Many runs: each trains in a process of its own, and is kept in a file, so that an interrupted command resumes."""

import json
import logging
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache
from glob import escape
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from gistgnn.distributed import Traffic, World
from gistgnn.errors import DivergedError, InputError
from gistgnn.fit.callbacks import Callback, InterruptWhen
from gistgnn.fit.identity import Fingerprint
from gistgnn.fit.result import Result
from gistgnn.fit.saving import Saving
from gistgnn.graphs import Graph, load
from gistgnn.runs.config import RunConfig
from gistgnn.runs.run_folder import result_json
from gistgnn.storage.json_files import plain, read_json, write_json
from gistgnn.utils.console import TaskProgress, show_log
from gistgnn.utils.machine import describe_machine, version_of
from gistgnn.utils.tensors import digest_of

CHECKPOINT_EVERY = 10  # rounds
Record = dict[str, Any]  # what result.json holds of a run
log = logging.getLogger(__name__)


class RunStore:
    """A directory of finished runs, one JSON file for each. Missing runs are trained if `trains`, or else left out.

    A run is found again by its fingerprint, so by what is in the file of its graph and not by the file's name; and by
    what its times depend on beside it: the device, the runner, and the version of gistgnn.
    """

    rehearses = False  # whether runs are cut short, and need less memory than planned

    def __init__(self, directory: Path, data_root: str, *, trains: bool = True) -> None:
        self.directory, self.data_root, self.trains = directory, data_root, trains
        self.graphs = dict[str, Graph]()  # the one that is in use, by its name or path
        self._fingerprints = dict[str, Fingerprint]()  # of runs with seed 0, by their settings

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "graphs": {}}  # a process of its own reads the graph itself

    def graph(self, dataset: str) -> Graph:
        """Return the graph of a name or a path; the last one is kept, so that it is read once for many runs."""
        if dataset not in self.graphs:
            self.graphs = {dataset: load(dataset, self.data_root)}
        return self.graphs[dataset]

    def offers(self, configs: Iterable[RunConfig]) -> bool:
        """Return whether these runs are finished, or can be trained."""
        return self.trains or all(self.get(config) is not None for config in configs)

    def dataset(self, name: str) -> str:
        """Return the name or file under which `load` finds a data set."""
        return name

    def left_out(self, config: RunConfig, why: str) -> None:
        """Note that a run of the table is not trained, and why."""

    def get(self, config: RunConfig) -> Record | None:
        """Return the record of a finished run; None if the run is missing or its file was cut short."""
        if not any(self.directory.glob(f"{escape(self._name(config))}-*.json")):
            return None  # without reading the graph
        return _read(self._path(config))

    def keep(self, config: RunConfig, record: Record) -> None:
        """Write the record of a finished run, and remove its checkpoints."""
        write_json(self._path(config), record)
        for work in (".checkpoints", ".theta"):
            shutil.rmtree(self._path(config).with_suffix(work), ignore_errors=True)

    def run_all(self, configs: Iterable[RunConfig], label: str) -> list[Record]:
        """Train the missing runs, those with the first seed first; return the records of all, in order."""
        # Each trains in a process of its own, one after another. An interruption loses no work.
        configs, killed = list(configs), list[str]()
        missing = {self._path(config): config for config in configs if self.get(config) is None}
        for dataset in {config.dataset for config in missing.values()}:
            self.graph(dataset)  # a bad name fails here, before any training
        if missing:
            # What processes are forked from imports torch: these seconds say nothing of the time that is left.
            with ProcessPoolExecutor(1, _context()) as process, suppress(BrokenProcessPool):
                process.submit(os.getpid).result()
        with TaskProgress(label, len(configs), len(configs) - len(missing)) as progress:
            for config in sorted(missing.values(), key=lambda config: config.seed):
                try:
                    self.keep(config, train_apart(config, self._resume))
                    progress.advance()
                except BrokenProcessPool:
                    killed.append(f"{config.method}, m = {config.sub_gcns}, seed {config.seed}")
                    log.warning("the run of %s was killed; the others go on", killed[-1])
        if killed:
            said = f"{len(killed)} {'run was' if len(killed) == 1 else 'runs were'} killed: {'; '.join(killed)}"
            raise InputError(f"{said}; the others are kept: check the free memory, and run the same command again")
        return [record for config in configs if (record := self.get(config)) is not None]

    def _resume(self, config: RunConfig, callbacks: Sequence[Callback] = ()) -> Record:
        return self.train(config, self.graph(config.dataset), callbacks)[1]

    def train(
        self, config: RunConfig, graph: Graph, callbacks: Sequence[Callback], ranks: World | None = None
    ) -> tuple[Result, Record]:
        """Train one run in this process, from its last checkpoint if there is one; see `train_run`."""
        self.graphs = {config.dataset: graph}
        path = self._path(config)
        saving = Saving(path.with_suffix(".checkpoints"), CHECKPOINT_EVERY, True)
        own: dict[str, Any] = {"callbacks": callbacks, "saving": saving}
        return train_run(config, graph, self.data_root, path.with_suffix(".theta"), ranks, **own)

    def measured(self, name: str, settings: Any, measure: Callable[[], Any]) -> Any:
        """Return a measurement, made unless it is finished; `settings` are all that it depends on, as JSON."""
        path = self._file(name, settings)
        if (content := _read(path)) is None:
            content = {"found": json.dumps(measure())}  # as text, where NaN stays NaN
            write_json(path, content)
        return json.loads(content["found"])

    def _name(self, config: RunConfig) -> str:
        return f"{Path(config.dataset).stem}-m{config.sub_gcns}-seed{config.seed}"

    def _path(self, config: RunConfig) -> Path:
        """Return the file of a run: its name ends in a digest of all by which a run is found again."""
        first = replace(config, seed=0, store="memory", share="whole", store_precision="float32")
        settings = digest_of(plain(first.as_dict()))
        if settings not in self._fingerprints:
            graph = self.graph(config.dataset)
            trainer = first.trainer(graph.num_features, graph.num_classes)
            self._fingerprints[settings] = first.fingerprint(trainer, graph)
        facts = [self._fingerprints[settings], config.seed, config.training.budget, config.store_precision]
        return self._file(self._name(config), [*facts, config.device, config.runner])

    def _file(self, name: str, settings: Any) -> Path:
        """Return the file of finished work: its name ends in a digest of its settings and the version of gistgnn."""
        return self.directory / f"{name}-{digest_of([version_of('gistgnn'), settings])[:16]}.json"


def _read(path: Path) -> dict[str, Any] | None:
    """Return the content of a file; None if it is missing or damaged."""
    if not path.exists():
        return None
    try:
        content = read_json(path, dict[str, Any], "it is done again")
    except InputError as error:
        log.warning("%s", error)
        return None
    del content["checksum"]
    return content


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


def train_apart(config: RunConfig, train: Callable[[RunConfig], Record]) -> Record:
    """Train a run in a process of its own; a `BrokenProcessPool` is raised if it is killed."""
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(1, _context(), _begin, (torch.get_num_threads(),)) as process:
        try:
            return process.submit(train, config).result()
        except KeyboardInterrupt:
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise


@cache
def _context() -> ForkServerContext | SpawnContext:
    """How processes start: forked from a server that has imported torch, or spawned on Windows and beside a GPU."""
    if "forkserver" not in multiprocessing.get_all_start_methods() or torch.cuda.is_available():  # CUDA refuses forks
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


RANKS_FOLDER = "ranks-"  # inside a store's directory, followed by the number of ranks


def store_of_ranks(store: RunStore, count: int) -> RunStore:
    """Return the store of the runs that this many ranks have trained; it lies inside the store of one device's runs."""
    return RunStore(store.directory / f"{RANKS_FOLDER}{count}", store.data_root)


def records_on_ranks(store: RunStore, configs: Sequence[RunConfig], least: int = 1) -> list[Record] | None:
    """The records, with "workers", of all runs on the largest number of ranks >= `least` that trained them; or None."""
    names = (path.name.removeprefix(RANKS_FOLDER) for path in store.directory.glob(f"{RANKS_FOLDER}*"))
    for count in sorted((int(name) for name in names if name.isdigit()), reverse=True):
        found = [record for config in configs if (record := store_of_ranks(store, count).get(config))]
        if count >= least and len(found) == len(configs):
            return found
    return None


# A run with m = 1 trains on rank 0, and `store` keeps it. Others train on all ranks; those with m < W are
# left out. Records add "workers" and every rank's times; "train_seconds" is the largest of these.
class RunsOnRanks:
    """Trains runs on W ranks, which all make the same calls; asks `stop` after every round."""

    def __init__(self, store: RunStore, ranks: World, stop: Callable[[], bool]) -> None:
        self._alone, self._together = store, store_of_ranks(store, ranks.count)
        self._ranks, self._stop = ranks, stop

    def train(self, runs: Sequence[RunConfig], seeds: int, label: str) -> bool:
        """Train the runs that are missing, with every seed; False: `stop` has ended one, and the same call resumes."""
        ranks, every = self._ranks, sorted({run.sub_gcns for run in runs if run.sub_gcns > 1})
        if (most := max(every, default=1)) < ranks.count:
            error = InputError(f"there are {ranks.count} ranks, but m is at most {most}: start as many ranks as m")
            error.relayed = True
            raise error
        if small := ", ".join(str(m) for m in every if m < ranks.count):
            log.warning("m = %s: fewer than the %d ranks, so left out; start as many ranks as m", small, ranks.count)
        apart = [run for run in runs if run.sub_gcns == 1 or run.sub_gcns >= ranks.count]
        configs = with_seeds(apart, seeds)
        missing = ranks.lead(lambda: [i for i, config in enumerate(configs) if self._is_missing(config, seeds)])
        bar = TaskProgress(label, len(configs), len(configs) - len(missing)) if ranks.leads else nullcontext()
        with bar as progress:
            for config in (configs[place] for place in missing):
                if not (self._on_rank_0(config) if config.sub_gcns == 1 else self._on_all(config)):
                    return False
                if progress:
                    progress.advance()
        return True

    def _is_missing(self, config: RunConfig, seeds: int) -> bool:
        """Whether a run has to be trained: neither these ranks have trained it, nor more ranks have with every seed."""
        if config.sub_gcns == 1:
            return self._alone.get(config) is None
        more = records_on_ranks(self._alone, with_seeds([config], seeds), least=self._ranks.count)
        return more is None and self._together.get(config) is None

    def _on_rank_0(self, config: RunConfig) -> bool:
        """Train on rank 0; the others wait, and hear from it after every round. Return whether the run ended."""
        ranks, over = self._ranks, "over"
        graph = ranks.load(lambda: self._alone.graph(config.dataset))

        def train() -> bool:
            try:
                trained = self._alone.train(config, graph, [InterruptWhen(lambda: ranks.any(self._stop()))])
            finally:
                ranks.gather(over)
            return _keep(self._alone, config, *trained)

        def wait() -> None:
            while ranks.gather(self._stop())[0] != over:
                pass

        return ranks.lead(train, meanwhile=wait)

    def _on_all(self, config: RunConfig) -> bool:
        """Train on all ranks; return whether the run ended."""
        ranks = self._ranks
        graph = ranks.load(lambda: self._alone.graph(config.dataset))
        ranks.traffic = Traffic()
        result, record = self._together.train(config, graph, [InterruptWhen(self._stop)], ranks)
        progress, traffic = result.progress, ranks.traffic
        exchanged = traffic.seconds / max(traffic.rounds, 1) * progress.rounds  # a resumed run's too
        own = (progress.train_seconds, progress.seconds.get("train", 0.0), exchanged)
        times, steps, exchanges = zip(*ranks.gather(own), strict=True)
        workers = {"ranks": ranks.count, "train_seconds": times, "step_seconds": steps, "exchange_seconds": exchanges}
        record = {**record, "train_seconds": max(times), "workers": workers}
        return ranks.lead(lambda: _keep(self._together, config, result, record))


def _keep(store: RunStore, config: RunConfig, result: Result, record: Record) -> bool:
    """Keep the record of a run that has ended; return whether it has."""
    if not result.interrupted:
        store.keep(config, record)
    return not result.interrupted
