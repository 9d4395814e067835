"""`gistgnn reproduce` under torchrun: the time of a worker beside the time of one device."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from gistgnn.compare.many_runs import RunStore, train_run
from gistgnn.compare.on_ranks import records_on_ranks, store_of_ranks, train_on_ranks
from gistgnn.distributed import Alone, Ranks
from gistgnn.errors import InputError
from gistgnn.graphs import load
from gistgnn.paper.appendix_b import AppendixB
from gistgnn.paper.large_graphs import COLUMNS
from gistgnn.paper.registry import EXPERIMENTS
from gistgnn.paper.table3 import UltraWide
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.sampling import ClusterSampling
from gistgnn.settings import Training
from gistgnn.storage.record import Record, Workers
from tests.cli.in_process import refused, run
from tests.distributed.launch import on_ranks
from tests.helpers.commands import run_ranks
from tests.paper.test_reproduce import TINY, reproduce, written


def table(out: Path) -> list[dict[str, str]]:
    """Return the rows of a table by their columns.

    A name that is there for the second time ends with an apostrophe.
    """
    [written_table] = json.loads((out / "experiment.json").read_text())["tables"]
    columns: list[str] = []
    for name in written_table["columns"]:
        columns.append(f"{name}'" if name in columns else name)
    assert len(set(columns)) == len(columns)
    return [dict(zip(columns, row, strict=True)) for row in written_table["rows"]]


@pytest.mark.long
def test_one_page_has_times_of_one_device_and_of_a_worker(
    tmp_path: Path, reproduced: Callable[[str], Path]
) -> None:
    out = Path(shutil.copytree(reproduced("local-sgd"), tmp_path / "out"))
    alone = table(out)
    assert "ranks" not in alone[0]
    options = ("--datasets", "digits", *TINY["local-sgd"][0], "--out", out)
    ranks = run_ranks(tmp_path, 2, "reproduce", "local-sgd", *options)
    assert [rank.returncode for rank in ranks] == [0, 0], ranks[0].stderr
    assert "".join(rank.stdout for rank in ranks).count("written: ") == 1
    rows = table(out)
    assert [{name: row[name] for name in alone[0]} for row in rows] == alone
    for row in rows:
        if row["workers"] == "1":
            assert {row[name] for name in COLUMNS} == {"–"}
            continue
        assert row["ranks"] == "2"
        assert row["on ranks: F1"] == row["F1"]  # the same method, the same sub-GCNs in turn
        assert re.fullmatch(r"[\d.]+ (ms|s)", row["time of a worker"])
        assert re.fullmatch(r"[\d.]+ (µs|ms|s)", row["of it exchange"])
        assert re.fullmatch(r"\(?[\d.]+x\)?", row["speed-up"])
    record = json.loads((out / "experiment.json").read_text())
    assert all("1 thread of" in part for part in record["machine"].split("; each rank: "))
    assert record["command"].startswith(
        "torchrun --nproc-per-node 2 -m gistgnn reproduce local-sgd"
    )
    assert "The time of a worker is" in (out / "report.html").read_text()
    files = written(out)
    assert len(files) == 7 + 6
    assert reproduce("local-sgd", out) == 0  # one process shows what ranks have trained
    assert (table(out), written(out)) == (rows, files)


def test_experiments_without_ranks_refuse_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "tests")
    monkeypatch.setenv("WORLD_SIZE", "2")
    names = [name for name, entry in EXPERIMENTS.items() if not entry.ranks]
    assert names
    for name in names:
        monkeypatch.setenv("RANK", "0")
        refused(
            capsys, f"{name} trains in one process, but torchrun", "reproduce", name,
            "--out", tmp_path / "out",
        )  # fmt: skip
        monkeypatch.setenv("RANK", "1")
        assert run("reproduce", name, "--out", tmp_path / "out") == 2
        assert capsys.readouterr() == ("", "")  # rank 0 has said it


def tiny(m: int, method: str = "gist") -> RunConfig:
    training = Training(4, 1, training="each", lr=0.01)
    return RunConfig(
        "digits",
        ModelConfig(hidden=(8, 8)),
        m,
        method,
        training=training,
        sampler=ClusterSampling(4, 1),
    )


RUNS = [tiny(1), tiny(2, "local-sgd"), tiny(2)]


def alone(config: RunConfig) -> Record:
    """Return the record of a run in this process."""
    return train_run(config, load("digits"), "data")


def train(ranks: Ranks, directory: Path, *stops: bool) -> list[bool]:
    """Train the runs once for every flag, which says whether to stop after every round."""
    store = RunStore(directory, "data")
    return [train_on_ranks(store, RUNS, 1, ranks, partial(bool, stop), "runs") for stop in stops]


def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """The first two calls stop after a round of the baseline; the last one goes on.

    The baseline takes sixteen rounds.
    """
    assert (
        on_ranks(2, train, tmp_path, True, True, False, False) == [[False, False, True, True]] * 2
    )
    store = RunStore(tmp_path, "data")
    assert [store.get(run) is not None for run in RUNS] == [True, False, False]
    together = [store.get(RUNS[0]), *(store_of_ranks(store, 2).get(run) for run in RUNS[1:])]
    for record, expected in zip(together, map(alone, RUNS), strict=True):
        assert record
        assert record.test == expected.test
        assert [entry["test"] for entry in record.history] == [
            entry["test"] for entry in expected.history
        ]
    for record in together[1:]:
        assert record
        workers = record.workers
        assert workers
        assert record.train_seconds == max(workers.train_seconds) > max(workers.step_seconds) > 0
        assert 0 < max(workers.exchange_seconds) < record.train_seconds
    # No checkpoints are left.
    assert {path.name for path in tmp_path.rglob("*") if path.is_dir()} == {"ranks-2"}


def train_wide(ranks: Ranks, wide: UltraWide, out: Path) -> bool:
    return wide.train_on_ranks(ranks, out, "data", lambda: False)


def test_widths_that_do_not_fit_on_one_device_train_on_ranks(tmp_path: Path) -> None:
    wide = UltraWide.at(
        "ultrawide",
        "small",
        datasets=("digits",),
        widths=(16,),
        sub_gcns=(1, 2),
        epochs=1,
        clusters=10,
    )
    assert on_ranks(2, train_wide, wide, tmp_path) == [True, True]
    [table] = wide.run(RunStore(tmp_path / "runs", "data", trains=False))
    assert [(row[2], row[4]) for row in table.rows] == [("–", "–"), ("2", "2")]
    configs = (json.loads(path.read_text())["config"] for path in sorted(tmp_path.rglob("*.json")))
    assert [(config["store"], config["share"]) for config in configs] == [
        ("memory", "whole"),
        ("host", "rows"),
    ]


def test_what_more_ranks_have_trained_with_every_seed_counts(tmp_path: Path) -> None:
    store = RunStore(tmp_path, "data")
    seeds = [replace(RUNS[2], seed=seed) for seed in (0, 1)]
    record = alone(seeds[0])
    for count, trained in {2: seeds, 3: seeds[:1], 10: seeds[1:]}.items():
        for config_of_seed in trained:
            config = {**record.config, "seed": config_of_seed.seed}
            workers = Workers(ranks=count, train_seconds=[], step_seconds=[], exchange_seconds=[])
            record_of_seed = structs.replace(record, config=config, workers=workers)
            store_of_ranks(store, count).keep(config_of_seed, record_of_seed)
    records = records_on_ranks(store, seeds)
    assert records
    assert [record.config["seed"] for record in records] == [0, 1]
    assert [record.workers and record.workers.ranks for record in records] == [2, 2]
    assert records_on_ranks(store, seeds, least=3) == []
    (most,) = records_on_ranks(store, seeds[1:], least=3)
    assert most.workers
    assert most.workers.ranks == 10
    assert records_on_ranks(store, [RUNS[0]]) == []


def test_more_ranks_than_sub_gcns_are_refused(tmp_path: Path) -> None:
    many = Alone()
    many.count = 16
    runs = [run for group in AppendixB.at("local-sgd", "small").groups().values() for run in group]
    with pytest.raises(
        InputError, match="there are 16 ranks, but m is at most 8: start as many ranks as m"
    ):
        train_on_ranks(RunStore(tmp_path, "data"), runs, 1, many, lambda: False, "runs")
