"""Runs that the ranks of torchrun train together, for the time of a worker."""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from gistgnn.compare.many_runs import RunStore, with_seeds
from gistgnn.distributed import Traffic, World
from gistgnn.errors import InputError
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.runs.config import RunConfig
from gistgnn.storage.record import Record, Workers
from gistgnn.utils.console import TaskProgress

FOLDER = "ranks-"  # inside a store's folder, followed by the number of ranks
OVER = "over"  # what rank 0 says when a run of its own has ended
log = logging.getLogger(__name__)


def store_of_ranks(store: RunStore, count: int) -> RunStore:
    """Return the store of the runs that this many ranks have trained.

    It lies inside the store of one device's runs.
    """
    inner = RunStore(store.directory / f"{FOLDER}{count}", store.data_root)
    inner.graphs = store.graphs
    return inner


def records_on_ranks(store: RunStore, configs: Sequence[RunConfig], least: int = 1) -> list[Record]:
    """Return the records of runs that ranks have trained, with their `workers`.

    Of several numbers of ranks, not below `least`, the largest that has trained all of the runs
    counts. The list is empty if none has.
    """
    names = [path.name.removeprefix(FOLDER) for path in store.directory.glob(f"{FOLDER}*")]
    for count in sorted((int(name) for name in names if name.isdigit()), reverse=True):
        if count >= least and (records := store_of_ranks(store, count).finished(configs)):
            return records
    return []


def train_on_ranks(
    store: RunStore,
    runs: Sequence[RunConfig],
    seeds: int,
    ranks: World,
    stop: Callable[[], bool],
    label: str,
) -> bool:
    """Train the runs that are missing, with every seed, on W ranks, which all make the same call.

    A run with m = 1 trains on rank 0. The others train on all ranks; those with m < W are left out.

    Args:
        store: the runs of one device; what ranks have trained lies in folders inside it.
        runs: with any seed.
        seeds: how many, from 0 on.
        ranks: the W processes.
        stop: is asked after every round, on every rank.
        label: of the progress bar.

    Returns:
        Whether all runs have ended. If not, `stop` has ended one, and the same call goes on with
        it.

    Raises:
        InputError: there are more ranks than sub-GCNs in any run.
    """
    every_m = sorted({run.sub_gcns for run in runs if run.sub_gcns > 1})
    most = max(every_m, default=1)
    if most < ranks.count:
        error = InputError(
            f"there are {ranks.count} ranks, but m is at most {most}: start as many ranks as m"
        )
        error.relayed = True
        raise error
    if small := ", ".join(str(m) for m in every_m if m < ranks.count):
        log.warning(
            "m = %s: fewer than the %d ranks, so left out; start as many ranks as m",
            small,
            ranks.count,
        )
    configs = with_seeds(
        [run for run in runs if run.sub_gcns == 1 or run.sub_gcns >= ranks.count], seeds
    )

    def is_missing(config: RunConfig) -> bool:
        if config.sub_gcns == 1:
            return store.get(config) is None
        with_every_seed = records_on_ranks(store, with_seeds([config], seeds), least=ranks.count)
        return not with_every_seed and store_of_ranks(store, ranks.count).get(config) is None

    missing = ranks.lead(lambda: [i for i, config in enumerate(configs) if is_missing(config)])
    bar = (
        TaskProgress(label, len(configs), len(configs) - len(missing))
        if ranks.leads
        else nullcontext()
    )
    with bar as progress:
        for config in (configs[i] for i in missing):
            train = _train_on_rank_0 if config.sub_gcns == 1 else _train_on_all
            if not train(store, config, ranks, stop):
                return False
            if progress:
                progress.advance()
    return True


def _train_on_rank_0(
    store: RunStore, config: RunConfig, ranks: World, stop: Callable[[], bool]
) -> bool:
    """Train a run on rank 0 while the others wait.

    They say after every round whether they were asked to stop.
    """

    def train() -> bool:
        try:
            record = store.train(config, [InterruptWhen(lambda: ranks.any(stop()))])
        finally:
            ranks.gather(OVER)
        return store.keep(config, record)

    def wait() -> None:
        while ranks.gather(stop())[0] != OVER:
            pass

    return ranks.lead(train, meanwhile=wait)


def _train_on_all(
    store: RunStore, config: RunConfig, ranks: World, stop: Callable[[], bool]
) -> bool:
    """Train a run on all ranks.

    Its record has every rank's times. Its "train_seconds" are the largest of these.
    """
    ranks.load(lambda: store.graph(config.dataset))
    ranks.traffic = Traffic()
    together = store_of_ranks(store, ranks.count)
    record = together.train(config, [InterruptWhen(stop)], ranks)
    exchange_of_a_round = ranks.traffic.seconds / max(ranks.traffic.rounds, 1)
    times: dict[str, float] = {
        "train_seconds": record.train_seconds,
        "step_seconds": record.seconds.get("train", 0.0),
        "exchange_seconds": exchange_of_a_round * record.rounds,  # of a resumed run, too
    }
    of_ranks = ranks.gather(times)
    by_name = {name: [times[name] for times in of_ranks] for name in times}
    record.train_seconds = max(by_name["train_seconds"])
    record.workers = Workers(ranks=ranks.count, **by_name)
    return ranks.lead(lambda: together.keep(config, record))
