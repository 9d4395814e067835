"""Runs that the ranks of torchrun train together, one after another, kept beside the runs of one device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from gistgnn.compare.comparison import with_seeds
from gistgnn.compare.many_runs import RunStore, train_run
from gistgnn.compare.processes import Record
from gistgnn.distributed import Traffic, World, load_once
from gistgnn.errors import InputError
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.fit.result import Result
from gistgnn.graphs import Graph, load
from gistgnn.runs.config import RunConfig
from gistgnn.utils.progress import TaskProgress

log = logging.getLogger(__name__)

RANKS_FOLDER = "ranks-"  # inside a store's directory, followed by the number of ranks


def store_of_ranks(store: RunStore, count: int) -> RunStore:
    """Return the store of the runs that so many ranks have trained, which lies inside the store of one device's."""
    return RunStore(store.directory / f"{RANKS_FOLDER}{count}", store.data_root)


def records_on_ranks(store: RunStore, configs: Sequence[RunConfig], least: int = 1) -> list[Record] | None:
    """Return the records of some runs on the largest number of ranks that has trained all of them.

    Args:
        store: of the runs on one device.
        configs: the runs, such as one with every seed.
        least: fewer ranks do not count.

    Returns:
        The records, with "workers" (see `RunsOnRanks`); None if no number of ranks has trained all runs.
    """
    names = (path.name.removeprefix(RANKS_FOLDER) for path in store.directory.glob(f"{RANKS_FOLDER}*"))
    for count in sorted((int(name) for name in names if name.isdigit()), reverse=True):
        found = list(map(store_of_ranks(store, count).get, configs))
        if count >= least and all(found):
            return [record for record in found if record]
    return None


class RunsOnRanks:
    """Trains runs on W ranks; every rank makes one, and makes the same calls.

    A run with m = 1 trains on rank 0 alone: it is one device's. A run with m >= W trains on all ranks, sub-GCN i on
    rank i mod W. Others are left out: those with fewer sub-GCNs than ranks, and those in phases, where one part trains
    at a time.

    The record of a run on ranks has "workers": "ranks" is W; "train_seconds", "step_seconds" and "exchange_seconds"
    have a number for every rank: the training time without evaluation, and of it the seconds of training steps, and of
    sending and receiving slices. Its own "train_seconds" is the largest of the ranks': the time of a worker.

    Args:
        store: of the runs of one device.
        ranks: the processes.
        stop: asked after every round; True saves the state and ends the run, on all ranks.
    """

    def __init__(self, store: RunStore, ranks: World, stop: Callable[[], bool]) -> None:
        self._alone, self._together = store, store_of_ranks(store, ranks.count)
        self._ranks, self._stop = ranks, stop
        self._loaded: tuple[tuple[str, bool | None], Graph] | None = None
        self._standardised = False  # the loaded graph's features; known where it was loaded, so on rank 0

    def train(self, runs: Sequence[RunConfig], seeds: int, label: str) -> bool:
        """Train the runs that are missing, with every seed; False: `stop` has ended one, and the same call resumes."""
        self._report_left_out(runs)
        configs = with_seeds([run for run in runs if self._suits(run)], seeds)
        missing = self._ranks.lead(lambda: self._missing(configs, seeds))
        shown = self._ranks.leads
        with TaskProgress(label, len(configs), len(configs) - len(missing)) if shown else nullcontext() as progress:
            for place in missing:
                config = configs[place]
                if not (self._on_rank_0(config) if config.sub_gcns == 1 else self._on_all(config)):
                    return False
                if progress:
                    progress.advance()
        return True

    def _suits(self, run: RunConfig) -> bool:
        return run.sub_gcns == 1 or (run.sub_gcns >= self._ranks.count and not run.training.phases)

    def _report_left_out(self, runs: Sequence[RunConfig]) -> None:
        count, every = self._ranks.count, sorted({run.sub_gcns for run in runs if run.sub_gcns > 1})
        if every[-1] < count:
            error = InputError(f"there are {count} ranks, but m is at most {every[-1]}: start as many ranks as m")
            error.relayed = True
            raise error
        if small := [str(m) for m in every if m < count]:
            log.warning(
                "m = %s: fewer than the %d ranks, so left out; start as many ranks as m", ", ".join(small), count
            )

    def _missing(self, configs: Sequence[RunConfig], seeds: int) -> list[int]:
        """Return the places of the runs to train; what as many ranks, or more, have trained with all seeds is there."""
        places: list[int] = []
        for start in range(0, len(configs), seeds):
            same = configs[start : start + seeds]
            if same[0].sub_gcns > 1 and records_on_ranks(self._alone, same, least=self._ranks.count):
                continue
            store = self._alone if same[0].sub_gcns == 1 else self._together
            places += [start + seed for seed, config in enumerate(same) if store.get(config) is None]
        return places

    def _on_rank_0(self, config: RunConfig) -> bool:
        """Train on rank 0; the others wait, and hear from it after every round. Return whether the run ended."""
        ranks, over = self._ranks, "over"
        graph = self._graph(config)

        def train() -> bool:
            try:
                result, record = train_run(
                    config,
                    graph,
                    self._alone.data_root,
                    standardised=self._standardised,
                    callbacks=[InterruptWhen(lambda: ranks.any(self._stop()))],
                    saving=self._alone.saving(config),
                )
            finally:
                ranks.gather(over)
            return _keep(self._alone, config, result, record)

        def wait() -> None:
            while ranks.gather(self._stop())[0] != over:
                pass

        return ranks.lead(train, meanwhile=wait)

    def _on_all(self, config: RunConfig) -> bool:
        """Train on all ranks; return whether the run ended."""
        ranks = self._ranks
        graph = self._graph(config)
        ranks.traffic = Traffic()
        result, record = train_run(
            config,
            graph,
            self._alone.data_root,
            standardised=self._standardised,
            ranks=ranks,
            callbacks=[InterruptWhen(self._stop)],
            saving=self._together.saving(config),
        )
        progress, traffic = result.progress, ranks.traffic
        exchanged = traffic.seconds / max(traffic.rounds, 1) * progress.rounds  # a resumed run's too
        own = (progress.train_seconds, progress.seconds.get("train", 0.0), exchanged)
        times, steps, exchanges = zip(*ranks.gather(own), strict=True)
        workers = {"ranks": ranks.count, "train_seconds": times, "step_seconds": steps, "exchange_seconds": exchanges}
        record = {**record, "train_seconds": max(times), "workers": workers}
        return ranks.lead(lambda: _keep(self._together, config, result, record))

    def _graph(self, config: RunConfig) -> Graph:
        """Return a run's graph, standardised where it has to be. One rank of every machine loads it."""
        wanted = config.dataset, config.standardise

        def read() -> Graph:
            graph = load(config.dataset, self._alone.data_root)
            scale = config.scale(graph)
            self._standardised = scale is not None
            return scale.graph(graph) if scale else graph

        if self._loaded is None or self._loaded[0] != wanted:
            self._loaded = None  # frees the memory of the graph before
            self._loaded = wanted, load_once(self._ranks, read)
        return self._loaded[1]


def _keep(store: RunStore, config: RunConfig, result: Result, record: Record) -> bool:
    """Keep the record of a run that has ended; return whether it has."""
    if not result.interrupted:
        store.keep(config, record)
    return not result.interrupted
