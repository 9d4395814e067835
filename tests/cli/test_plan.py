"""`gistgnn plan`, and what `train` makes of a plan."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gistgnn.estimate import Resources
from gistgnn.fit import trials
from gistgnn.utils.process_memory import held_bytes

from .conftest import Cli, Json
from .in_process import refused, run

WIDE = ("--dataset", "digits", "--model", "graphsage", "--hidden", 2048, 2048)
THETA = 4 * (64 * 2 * 2048 + 2048 + 4096 * 2048 + 2048 + 4096 * 10 + 10)


def planned(capsys: pytest.CaptureFixture[str], *options: object) -> dict[str, Any]:
    capsys.readouterr()
    assert run("plan", *options, "--json") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def test_every_m_and_store_is_planned_and_what_fits_is_chosen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sizes = (*WIDE, "--sub-gcns", 1, 4, "--no-measure")
    plan = planned(capsys, *sizes, "--set", "optimizer_state=reset")
    assert plan["graph"]["nodes"] == plan["batch"]["nodes"] == 1797
    assert plan["theta"] == 4 * plan["parameters"] == THETA
    rows = [(option["store"], option["sub_gcns"]) for option in plan["options"]]
    assert rows == [("memory", 1), ("memory", 4), ("disk", 1), ("disk", 4)]
    full, split, *_ = plan["options"]
    # The moments of the baseline are carried.
    assert full["moved"] == full["moved_by_all"] == 3 * 2 * THETA
    assert split["moved_by_all"] == 4 * split["moved"] < THETA
    assert split["peaks"]["cpu"] < full["peaks"]["cpu"]
    assert [option["seconds"] for option in plan["options"]] == [None] * 4
    assert plan["choice"] == {"sub_gcns": 4, "store": "memory"}
    assert ": it is the default for such widths" in plan["advice"]
    # README, the guides and the note of a run say so as well.
    assert "the full model fits" in plan["instead"]
    assert "--budget" in plan["instead"]
    assert "--method parts" in plan["instead"]
    plan = planned(capsys, *WIDE, "--sub-gcns", 1, "--no-measure")
    assert "of the m that fit, it is nearest to the default, m = 4" in plan["advice"]
    assert plan["instead"] is None
    ranks = planned(capsys, *WIDE, "--store", "host", "--ranks", 4, "--share", "rows")["options"]
    assert [option["sub_gcns"] for option in ranks] == [4, 8, 16]
    for option in ranks:
        assert option["machine"] == 4 * option["peaks"]["cpu"]
        assert option["seconds"] is None
    # What fits goes by the memory. Far from every limit: this process takes 20 MB more or less from
    # call to call.
    plan = planned(capsys, *sizes, "--memory", 100)
    one, four, _, mapped = (option["peaks"]["cpu"] for option in plan["options"])
    for limit, choice in (
        ((one + four) / 2, {"sub_gcns": 4, "store": "memory"}),
        ((four + mapped) / 2, {"sub_gcns": 4, "store": "disk"}),
        (0.8 * mapped, None),
    ):
        plan = planned(capsys, *sizes, "--memory", limit / 2**30)
        assert plan["choice"] == choice
        assert plan["instead"] is None, "the full model does not fit"
    assert plan["advice"].startswith("nothing fits")


def test_the_tables_fit_a_screen_and_steps_are_timed(
    own_graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("plan", "--dataset", own_graph, "--hidden", 6)
    assert run(*options) == 0
    out = capsys.readouterr().out
    assert "own: 40 nodes, 80 edges" in out
    assert "whole run" in out
    tables = out.rsplit("\n\n", 1)[0]
    assert tables.count("fits") == 6  # m of 1, 2, 4, and two stores
    assert max(map(len, tables.splitlines())) <= 80
    assert "…" not in tables
    choice, batches = out.splitlines()[-2:]
    # The choice is the default, whatever the times are.
    assert choice.startswith("choose m = 1 with the parameters in memory")
    assert batches == "batches: every step sees the whole graph"
    timed = planned(capsys, *options[1:], "--store", "memory", "--sub-gcns", 2)
    seconds = timed["options"][0]["seconds"]
    assert 0 < seconds["step"] < seconds["round"] < seconds["step"] * 100
    assert seconds["evaluation"] > 0
    wide = (
        "--dataset", own_graph, "--hidden", 256, 64, "--clusters", 4,
        "--clusters-per-batch", 2, "--sub-gcns", 2,
    )  # fmt: skip
    assert run("plan", *wide, "--store", "memory") == 0
    batches, narrow = capsys.readouterr().out.splitlines()[-2:]
    assert batches == "batches: --sampler clusters, clusters 4, clusters per batch 2"
    assert re.match(
        "try a narrow model first: --hidden 128 64 --sub-gcns 1, .* an epoch; the wide one with m",
        narrow,
    )


def test_train_refuses_what_cannot_fit_and_says_what_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory_before = held_bytes()  # by this process, beside which the run has to fit
    for step in range(1, 40):
        limit = (memory_before + step * 2**26) / 2**30
        words = (
            "train", *WIDE, "--sub-gcns", 1, "--epochs", 1, "--out", tmp_path / "run",
            "--memory", limit,
        )  # fmt: skip
        status = run(*words, "--store", "memory")
        out, err = capsys.readouterr()
        if not status or ": --sub-gcns 2 would fit" in err:
            break
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("gistgnn: error: m = 1 needs ")
    assert re.search(r"of memory \(while it (trains|is scored|is saved)\), ", err)
    assert "are available: --sub-gcns 2 would fit; --memory GIB allows more" in err
    assert list(tmp_path.iterdir()) == []
    small = ("train", "--hidden", 8, "--epochs", 1, "--sub-gcns", 1, "--out", tmp_path / "run")
    refused(
        capsys, "no m and no store would fit", *small, "--memory", memory_before / 2**31,
        leaves=tmp_path,
    )  # fmt: skip
    assert run(*small, "--memory", memory_before / 2**29 + 1) == 0


def test_train_refuses_what_the_disk_cannot_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = (
        "train", *WIDE, "--sub-gcns", 4, "--epochs", 1, "--store", "disk",
        "--out", tmp_path / "run",
    )  # fmt: skip
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * THETA))
    message = (
        f"of the disk, {2 * THETA / 2**20:.3g} MiB are free there: make room, choose another "
        "--out, or add --set sto"
    )
    refused(capsys, message, *train, leaves=tmp_path)
    (tmp_path / "run/theta").mkdir(parents=True)
    (tmp_path / "run/theta/left.bin").write_bytes(bytes(3 * THETA))  # as of a run that goes on
    assert Resources.here("cpu", tmp_path / "run").disk == 5 * THETA


def test_a_budget_needs_nothing_else(cli: Cli, as_json: Json, own_graph: Path) -> None:
    train = ("train", "--dataset", own_graph, "--hidden", 64, 64, "--budget", "3s", "--out", "run")
    completed = cli(*train)
    assert completed.returncode == 0, completed.stderr
    assert " are left, for about " in completed.stderr
    record = as_json(*train, "--resume")  # it is finished
    assert record["config"]["training"]["budget"] == 3
    assert set(record["budget"]["step_seconds"]) <= {"1", "2"}
    chosen = as_json("plan", *train[1:-2])
    chosen_facts = {"sub_gcns", "reason", "batch_divisor", "step_seconds", "scores"}
    assert chosen.keys() == chosen_facts < record["budget"].keys()
    assert str(chosen["sub_gcns"]) in chosen["step_seconds"]


def test_a_budget_is_planned_by_trials(
    own_graph: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "NARROWEST", 4)
    words = ("plan", "--dataset", own_graph, "--hidden", 8, "--budget", "20s")
    chosen = planned(capsys, *words[1:])
    assert chosen["scores"].keys() == {"1", "2"} == chosen["step_seconds"].keys()
    assert run(*words) == 0
    output = capsys.readouterr().out
    assert re.fullmatch(
        r"(a part|the full model) .* are left, for about .*; a step takes width 4: .*\n", output
    )
    for option in ("--memory 1", "--out run", "--no-measure", "--ranks 2", "--store disk"):
        refused(capsys, "is given beside a budget", *words, *option.split())


def test_what_follows_from_m_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    """Several sub-GCNs of a GCN have a layer norm, and as many epochs each as one has."""
    words = ("--model", "gcn", "--hidden", 64, 64, "--no-measure", "--sub-gcns", 4)

    def first_option(*options: object) -> dict[str, Any]:
        """The first row of a plan, without what changes from call to call with this process."""
        row: dict[str, Any] = planned(capsys, *words, *options)["options"][0]
        return {name: value for name, value in row.items() if name not in ("peaks", "machine")}

    by_default = first_option()
    assert by_default == first_option("--norm", "layer")
    assert by_default["activations"] > first_option("--norm", "none")["activations"]
    assert by_default["epochs"] == 4 * first_option("--sub-gcns", 1)["epochs"]
