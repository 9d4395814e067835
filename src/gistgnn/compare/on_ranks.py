"""Runs that the ranks of torchrun train together, one after another, kept beside the runs of one device."""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from gistgnn.compare.many_runs import Record, RunStore, train_run, with_seeds
from gistgnn.distributed import Traffic, World, load_on_ranks
from gistgnn.errors import InputError
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.fit.result import Result
from gistgnn.graphs import Graph, load
from gistgnn.runs.config import RunConfig
from gistgnn.utils.console import TaskProgress

log = logging.getLogger(__name__)

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


# A run with m = 1 trains on rank 0, and `store` keeps it. Others train on all ranks; those with m < W, and runs in
# phases, are left out. Records add "workers" and every rank's times; "train_seconds" is the largest of these.
class RunsOnRanks:
    """Trains runs on W ranks, which all make the same calls; asks `stop` after every round."""

    def __init__(self, store: RunStore, ranks: World, stop: Callable[[], bool]) -> None:
        self._alone, self._together = store, store_of_ranks(store, ranks.count)
        self._ranks, self._stop = ranks, stop
        self._loaded: dict[str, Graph] = {}  # the graph of the last run

    def train(self, runs: Sequence[RunConfig], seeds: int, label: str) -> bool:
        """Train the runs that are missing, with every seed; False: `stop` has ended one, and the same call resumes."""
        ranks, every = self._ranks, sorted({run.sub_gcns for run in runs if run.sub_gcns > 1})
        if every[-1] < ranks.count:
            error = InputError(f"there are {ranks.count} ranks, but m is at most {every[-1]}: start as many ranks as m")
            error.relayed = True
            raise error
        if small := ", ".join(str(m) for m in every if m < ranks.count):
            log.warning("m = %s: fewer than the %d ranks, so left out; start as many ranks as m", small, ranks.count)
        apart = [run for run in runs if run.sub_gcns == 1 or (run.sub_gcns >= ranks.count and not run.training.phases)]
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
        graph = self._graph(config)

        def train() -> bool:
            try:
                trained = self._train(config, graph, self._alone, lambda: ranks.any(self._stop()))
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
        graph = self._graph(config)
        ranks.traffic = Traffic()
        result, record = self._train(config, graph, self._together, self._stop, ranks)
        progress, traffic = result.progress, ranks.traffic
        exchanged = traffic.seconds / max(traffic.rounds, 1) * progress.rounds  # a resumed run's too
        own = (progress.train_seconds, progress.seconds.get("train", 0.0), exchanged)
        times, steps, exchanges = zip(*ranks.gather(own), strict=True)
        workers = {"ranks": ranks.count, "train_seconds": times, "step_seconds": steps, "exchange_seconds": exchanges}
        record = {**record, "train_seconds": max(times), "workers": workers}
        return ranks.lead(lambda: _keep(self._together, config, result, record))

    def _train(
        self, config: RunConfig, graph: Graph, store: RunStore, stop: Callable[[], bool], ranks: World | None = None
    ) -> tuple[Result, Record]:
        callbacks, saving = [InterruptWhen(stop)], store.saving(config)
        return train_run(config, graph, store.data_root, ranks=ranks, callbacks=callbacks, saving=saving)

    def _graph(self, config: RunConfig) -> Graph:
        """Return a run's graph; the graph of the run before is freed first."""
        if config.dataset not in self._loaded:
            self._loaded.clear()
            root = self._alone.data_root
            self._loaded[config.dataset] = load_on_ranks(self._ranks, lambda: load(config.dataset, root))
        return self._loaded[config.dataset]


def _keep(store: RunStore, config: RunConfig, result: Result, record: Record) -> bool:
    """Keep the record of a run that has ended; return whether it has."""
    if not result.interrupted:
        store.keep(config, record)
    return not result.interrupted
