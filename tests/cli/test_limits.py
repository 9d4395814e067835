"""Numbers that no run can have, and names of files that not every program can show."""

import os
from pathlib import Path

import numpy as np
import pytest

from .conftest import arrays
from .in_process import refused, run

HUGE = 10**30
TRAIN = ("train", "--dataset", "own.npz", "--device", "cpu", "--hidden", 8, 8, "--sub-gcns", 2, "--epochs", 2)


@pytest.fixture(autouse=True)
def folder(own_graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epochs", HUGE), "epochs is 1000000000000000000000000000000, expected an integer from 1 to 1000000000"),
        (("--local-steps", HUGE), "local_steps is"),
        (("--patience", 2**63), "patience is"),
        (("--evaluate-every", 2**31), "evaluate_every is"),
        (("--checkpoint-every", HUGE), "is not an integer from 1 to 1000000000"),
        (("--hidden", HUGE), "is not an integer from 1 to 100000000"),
        (("--hidden", 10**8, 10**8), "needs"),
        (("--model", "gat", "--heads", 10**9), "is not an integer from 1 to 10000"),
        (("--seed", 2**63), "is not an integer from 0 to 9223372036854775807"),
        (("--phases", f"2:{HUGE}"), "expected a number > 0 and < 1e+09"),
        (("--phases", "2:nan"), "epochs is nan"),
        (("--lr", "1e300"), "lr is 1e+300"),
        (("--weight-decay", "inf"), "weight_decay is inf"),
        (("--clip-norm", "1e300"), "clip_norm is 1e+300"),
        (("--max-seconds", HUGE), "is not a time"),
        (("--grace", "1e300"), "is not a number of seconds above 0, at most 1,000,000,000"),
        (("--timeout", "nan"), "is not a number of seconds above 0"),
        (("--memory", "1e300"), "is not a number of GiB above 0"),
        (("--parts", HUGE), "is not an integer from 1 to"),
        (("--evaluation", "parts", "--parts", 41), "parts is 41, expected 1 to 40"),
        (("--sampler", "clusters", "--clusters", HUGE), "clusters is"),
        (("--sampler", "clusters", "--clusters", 41), "clusters is 41, expected an integer from 1 to 40"),
        (("--sampler", "neighbor", "--fanout", HUGE), "fanouts is"),
        (("--sampler", "neighbor", "--batch-size", HUGE), "batch_size is"),
        (("--sampler", "ladies", "--nodes-per-layer", HUGE), "nodes_per_layer is"),
        (("--sampler", "fastgcn", "--nodes-per-layer", 10**8), "expected at most 1,000,000 for a graph of 40 nodes"),
        (("--sampler", "saint-node", "--batch-size", 10**9), "expected at most 1,000,000 for a graph of 40 nodes"),
        (
            ("--sampler", "saint-rw", "--walk-length", 10**6),
            "walk_length is 1000000, expected an integer from 1 to 1000",
        ),
        (("--model-args", "a=" + "[" * 9000), "model_args is given, but the model is gcn"),
        (("--out", "x", "--resume", "--overwrite"), "--resume and --overwrite are both given"),
    ],
    ids=lambda value: " ".join(map(str, value))[:60] if isinstance(value, tuple) else "",
)
def test_numbers_too_large(
    capsys: pytest.CaptureFixture[str], folder: Path, options: tuple[object, ...], message: str
) -> None:
    refused(capsys, message, *TRAIN, *options, leaves=folder)


def test_a_neighbour_sampler_that_draws_all_is_the_one_that_draws_more(folder: Path) -> None:
    for name, fanout in (("all", -1), ("more", 10**9)):
        assert run(*TRAIN, "--sampler", "neighbor", "--fanout", fanout, "--out", name) == 0
    one, other = ((folder / name / "model.safetensors").read_bytes() for name in ("all", "more"))
    assert one[-400:] == other[-400:]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("plan", "--dataset", "own.npz", "--budget", "9s", "--ranks", 2), "ranks is given beside a budget"),
        (("plan", "--dataset", "own.npz", "--budget", "9s", "--memory", 1), "memory is given beside a budget"),
        (("compare", "--dataset", "own.npz", "--seeds", 2**31), "is not an integer from 1 to 1000"),
        (("compare", "--dataset", "own.npz", "--below", "nan"), "is not a number of points from 0 to 100"),
        (("partition", "--dataset", "own.npz", "--clusters", HUGE), "expected an integer from 1 to 40"),
        (("theory", "check", "karate", "--rounds", HUGE), "is not an integer from 1 to 1000000000"),
        (("theory", "check", "karate", "--step-size", "inf"), "step_size is inf"),
    ],
    ids=lambda value: " ".join(map(str, value))[:60] if isinstance(value, tuple) else "",
)
def test_other_commands(capsys: pytest.CaptureFixture[str], args: tuple[object, ...], message: str) -> None:
    refused(capsys, message, *args)


@pytest.mark.parametrize("name", ["$x_{$", "a\nb", "\x1b[31mred", os.fsdecode(b"\xff\xfe"), "%s{}"])
def test_any_name_of_a_file_and_of_a_folder(capsys: pytest.CaptureFixture[str], folder: Path, name: str) -> None:
    np.savez(folder / f"{name}.npz", **arrays())
    options = ("--device", "cpu", "--hidden", 8, "--sub-gcns", 2, "--epochs", 2, "--no-standardise")
    assert run("train", "--dataset", f"{name}.npz", *options, "--out", name) == 0
    assert run("evaluate", name, "--device", "cpu") == 0
    assert run("predict", name, "--device", "cpu", "--output", f"{name}.csv") == 0
    assert run("list", ".") == 0
    assert run("train", "--dataset", f"{name}.npz", *options, "--sub-gcns", 1, "--out", "other") == 0
    assert run("compare", name, "other", "--out", f"{name}2") == 0
    out, err = capsys.readouterr()
    assert all(c.isprintable() or c == "\n" for c in out + err)
    assert (folder / name / "report.html").stat().st_size
    assert (folder / name / "curves.png").stat().st_size


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", os.fsdecode(b"\xff\xfe"), "a" * 5000])
@pytest.mark.parametrize(
    "args",
    [
        ("train", "--dataset", "{}.npz"),
        ("train", "--model", "{}:f"),
        ("train", "--loss", "{}"),
        ("train", "--device", "{}"),
        ("evaluate", "{}"),
        ("datasets", "{}"),
        ("train", "--{}"),
        ("train", "--epochs", "{}"),
    ],
    ids=" ".join,
)
def test_a_message_is_one_short_line_of_plain_characters(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], name: str
) -> None:
    assert run(*(word.replace("{}", name) for word in args)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.rstrip("\n").isprintable()
    assert len(err) < 1000


def test_what_is_no_file_is_refused_as_a_model(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    os.mkfifo(folder / "pipe.py")
    refused(capsys, "it is no regular file", *TRAIN, "--model", "pipe.py:build")
