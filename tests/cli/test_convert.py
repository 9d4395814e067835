"""`gistgnn convert`, and what other commands do with the folder."""

import json
import signal
import time
from pathlib import Path

import pytest

from gistgnn.graphs import load
from tests.graph_folders.folders import csv_tables, some_graph
from tests.helpers.commands import run_command, start_command

from .in_process import refused, run


def test_from_a_data_set_to_a_trained_model(tmp_path: Path) -> None:
    done = run_command(tmp_path, "convert", "digits", "made", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["nodes"] == 1797
    assert facts["edges"] == 24_678
    assert facts["peak_memory_bytes"] < 2 * 2**30
    assert "converting digits: 1 of 1" in done.stderr
    done = run_command(tmp_path, "datasets", "made", "--verify")
    assert done.returncode == 0, done.stderr
    for line in ("    nodes  1,797", "        x  float32", "checksums  all fit"):
        assert line in done.stdout
    models = []
    for dataset in ("digits", "made"):
        words = ("--hidden", 16, "--epochs", 2, "--sub-gcns", 2, "--standardise", "--out", f"run-{dataset}")
        done = run_command(tmp_path, "train", "--dataset", dataset, *words)
        assert done.returncode == 0, done.stderr
        models.append(json.loads((tmp_path / f"run-{dataset}" / "result.json").read_text()))
    assert models[0]["test"] == models[1]["test"]
    assert models[0]["history"][-1]["loss"] == models[1]["history"][-1]["loss"]
    done = run_command(tmp_path, "evaluate", "run-made")
    assert done.returncode == 0, done.stderr
    done = run_command(tmp_path, "predict", "run-made", "--output", "made.csv")
    assert done.returncode == 0, done.stderr
    assert run_command(tmp_path, "predict", "run-digits", "--output", "digits.csv").returncode == 0
    assert (tmp_path / "made.csv").read_text() == (tmp_path / "digits.csv").read_text()
    done = run_command(tmp_path, "partition", "--dataset", "made", "--clusters", 8, "--json")
    assert json.loads(done.stdout)["edges"] == 24_678


def test_tables_and_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edges, nodes = csv_tables(some_graph(), tmp_path)
    assert run("convert", edges, tmp_path / "made", "--nodes", nodes, "--undirected", "--dtype", "float16") == 0
    out = capsys.readouterr().out
    assert f"edges: 40 nodes and {load(tmp_path / 'made').num_edges:,} edges in {tmp_path / 'made'}" in out
    assert "features  3 as float16" in out
    refused(capsys, "is there already: choose another folder", "convert", edges, tmp_path / "made", "--nodes", nodes)


def test_verify_finds_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("convert", "digits", tmp_path / "made") == 0
    path = tmp_path / "made" / "x.npy"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    refused(capsys, f"{path} is damaged: its digest does not fit", "datasets", tmp_path / "made", "--verify")
    path.write_bytes(data[:-1])
    refused(capsys, f"{path} is", "train", "--dataset", tmp_path / "made", "--out", tmp_path / "run")


def test_ctrl_c_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    process = start_command(tmp_path, "convert", "synthetic:papers100m@0.01", "made")
    until = time.monotonic() + 60
    while not (tmp_path / ".gistgnn-convert-made" / "x.npy").exists() and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err.splitlines()[-1] == "gistgnn: interrupted"
    assert "Traceback" not in err
    assert not list(tmp_path.glob("*made*"))
