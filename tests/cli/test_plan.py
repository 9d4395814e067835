"""`gistgnn plan`, and what `train` makes of a plan."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from gistgnn.estimate import Resources
from gistgnn.utils.process_memory import held_bytes

from .conftest import Cli
from .in_process import refused, run

WIDE = ("--dataset", "digits", "--model", "graphsage", "--hidden", 2048, 2048)
THETA = 4 * (64 * 2 * 2048 + 2048 + 4096 * 2048 + 2048 + 4096 * 10 + 10)


def planned(capsys: pytest.CaptureFixture[str], *options: object) -> dict[str, Any]:
    capsys.readouterr()
    assert run("plan", *options, "--json") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def test_every_m_and_store(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(capsys, *WIDE, "--sub-gcns", 1, 4, "--no-measure", "--optimizer-state", "reset")
    assert plan["graph"]["nodes"] == plan["batch"]["nodes"] == 1797
    assert plan["theta"] == 4 * plan["parameters"] == THETA
    assert [(option["store"], option["sub_gcns"]) for option in plan["options"]] == [
        ("memory", 1),
        ("memory", 4),
        ("disk", 1),
        ("disk", 4),
    ]
    whole, split, in_files, _ = plan["options"]
    assert whole["slice"] == THETA
    assert whole["moved"] == whole["moved_by_all"] == 3 * 2 * THETA  # the baseline's moments are carried
    assert split["moved_by_all"] == 4 * split["moved"] < THETA
    assert split["data_parallel"] == 6 * 2 * 3 * THETA  # ζ is chosen: 100 steps make 16 rounds
    assert whole["data_parallel"] == 0
    assert split["peaks"]["cpu"] < whole["peaks"]["cpu"]
    assert in_files["peaks"]["cpu"] < whole["peaks"]["cpu"] - 2 * THETA
    assert in_files["peaks"]["disk"] > 4 * THETA
    assert [option["seconds"] for option in plan["options"]] == [None] * 4
    assert plan["choice"] == {"sub_gcns": 1, "store": "memory"}
    assert "smallest m" in plan["advice"]


def test_what_fits_goes_by_the_memory(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = planned(capsys, *WIDE, "--sub-gcns", 1, 4, "--no-measure", "--memory", 100)
    whole, split, _, mapped = (option["peaks"]["cpu"] for option in sizes["options"])

    def chosen(limit: float) -> Any:
        return planned(capsys, *WIDE, "--sub-gcns", 1, 4, "--no-measure", "--memory", limit / 2**30)

    # Far from every limit: the memory of this process differs by 20 MB from call to call.
    assert chosen((whole + split) / 2)["choice"] == {"sub_gcns": 4, "store": "memory"}
    assert chosen((split + mapped) / 2)["choice"] == {"sub_gcns": 4, "store": "disk"}
    nothing = chosen(0.8 * mapped)
    assert nothing["choice"] is None
    assert nothing["advice"].startswith("nothing fits")


def test_the_tables_and_times(own_graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("plan", "--dataset", own_graph, "--hidden", 6)
    assert run(*options) == 0
    out = capsys.readouterr().out
    assert "own: 40 nodes, 80 edges" in out
    assert "whole run" in out
    assert out.rsplit("\n\n", 1)[0].count("fits") == 6  # m of 1, 2, 4, and two stores
    assert re.match(r"choose m = [124] with the parameters in memory", out.splitlines()[-1])  # by measured times
    timed = planned(capsys, *options[1:], "--store", "memory", "--sub-gcns", 2)["options"][0]["seconds"]
    assert 0 < timed["step"] < timed["round"] < timed["step"] * 100
    assert timed["evaluation"] > 0


def test_train_refuses_what_cannot_fit_and_says_what_would(cli: Cli, tmp_path: Path) -> None:
    run_ = ("train", *WIDE, "--sub-gcns", 1, "--epochs", 1, "--out", "run")
    held = held_bytes()  # by this process, beside which the run has to fit
    limits = (held + step * 2**26 for step in range(1, 40))
    tried = (cli(*run_, "--memory", limit / 2**30) for limit in limits)
    done = next(each for each in tried if not each.returncode or ": --sub-gcns 2 would fit" in each.stderr)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("gistgnn: error: m = 1 needs ")
    assert "are available: --sub-gcns 2 would fit; --memory GIB allows more" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_memory_overrides_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ("train", "--hidden", 8, "--epochs", 1, "--sub-gcns", 1, "--out", tmp_path / "run")
    held = psutil.Process().memory_info().rss / 2**30
    refused(capsys, "no m and no store would fit", *small, "--memory", held / 2, leaves=tmp_path)
    assert run(*small, "--memory", 2 * held + 1) == 0


def test_train_refuses_what_the_disk_cannot_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not Θ alone: the best one and the moments have to have room, too."""
    train = ("train", *WIDE, "--sub-gcns", 4, "--epochs", 1, "--store", "disk", "--out", tmp_path / "run")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * THETA))
    said = f"of the disk, {2 * THETA / 2**20:.3g} MiB are free there: make room, choose another --out, or add --store-p"
    refused(capsys, said, *train, leaves=tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=THETA))
    refused(capsys, "make room, choose another --out\n", *train, "--store-precision", "bf16", leaves=tmp_path)
    (tmp_path / "run/theta").mkdir(parents=True)
    (tmp_path / "run/theta/left.bin").write_bytes(bytes(3 * THETA))  # as of a run that goes on
    assert Resources.here("cpu", tmp_path / "run").disk == 4 * THETA


def test_traffic_on_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    ranks = (*WIDE, "--no-measure", "--ranks", 2, 8, "--sub-gcns", 8)
    two, eight = planned(capsys, *ranks)["ranks"]
    assert [(each["ranks"], each["sub_gcns"]) for each in (two, eight)] == [(2, 8), (8, 8)]
    assert eight["costs"]["gist"] < two["costs"]["gist"] < two["costs"]["local_sgd"] < two["costs"]["data_parallel"]
    assert eight["theta"] == -(-THETA // 8)
    pairs = [(2, 2), (2, 4), (4, 4)]
    found = planned(capsys, *WIDE, "--no-measure", "--ranks", 2, 4)["ranks"]
    assert [(each["ranks"], each["sub_gcns"]) for each in found] == pairs
    assert run("plan", *ranks) == 0
    assert "on ranks, the parameters sharded" in capsys.readouterr().out


PHASES = ("--cross-weights", "zero", "--phases", "4:12,copies", "4:16,lr=0.005", "1:2.5")


def test_phases_in_every_store(cli: Cli) -> None:
    done = cli("plan", *WIDE, *PHASES, "--evaluate-every", 2, "--local-steps", 2, "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    rows = [(row["store"], row["number"], row["sub_gcns"], row["copies"], row["epochs"]) for row in plan["options"]]
    phases = [(1, 4, True, 12), (2, 4, False, 16), (3, 1, False, 2.5)]
    assert rows == [(store, *phase) for store in ("memory", "disk") for phase in phases]
    assert [row["rounds"] for row in plan["options"]] == [6, 2, 1] * 2
    assert [row["evaluations"] for row in plan["options"]] == [3, 1, 1] * 2
    assert [total["store"] for total in plan["totals"]] == ["memory", "disk"]
    for total in plan["totals"]:
        own = [row for row in plan["options"] if row["store"] == total["store"]]
        assert total["peaks"]["cpu"] == max(row["peaks"]["cpu"] for row in own)
        assert total["moved"] == sum(row["rounds"] * row["moved_by_all"] for row in own)
        times = [row["seconds"]["phase"] + row["evaluations"] * row["seconds"]["evaluation"] for row in own]
        assert total["seconds"] == pytest.approx(sum(times))
    assert plan["choice"] == {"store": "memory"}


def test_the_tables_of_phases(own_graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("plan", "--dataset", own_graph, "--hidden", 8, 8, *PHASES, "--store", "memory")
    assert run(*options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "every phase fits with the parameters in memory (--store memory)"
    rows = [line.split() for line in lines]
    assert [row[:3] for row in rows if row[:2] == ["1", "4"]] == [["1", "4", "yes"]] * 2
    assert [row[:2] for row in rows if row[:1] == ["all"]] == [["all", "memory"]] * 2
    assert all(len(line) <= 80 for line in lines)
    assert not any("…" in line for line in lines)
    assert run(*options, "--no-measure") == 0
    assert "total" in capsys.readouterr().out


def test_train_refuses_by_the_phase_that_cannot_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limit = 1000.0
    for _ in range(2):  # under a limit the C library keeps less of what is freed
        plan = planned(capsys, *WIDE, *PHASES, "--no-measure", "--memory", limit)
        peaks = [row["peaks"]["cpu"] for row in plan["options"][:3]]
        limit = (peaks[1] + peaks[2]) / 2**31
    train = ("train", *WIDE, *PHASES, "--out", tmp_path / "run", "--memory", limit)
    refused(capsys, "phase 3 (m = 1) needs ", *train, leaves=tmp_path)
