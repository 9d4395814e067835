import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gistgnn.nn import GCN
from tests.helpers.commands import command, environment

from .conftest import Cli, arrays

QUICK = ("--hidden", 8, 8, "--epochs", 12, "--local-steps", 3, "--training", "each", "--no-standardise")


def test_a_run_leaves_result_model_and_curves(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    done = cli("train", "--dataset", own_graph, *QUICK, "--sub-gcns", 2, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "at best validation" in done.stdout
    record = json.loads((tmp_path / "run/result.json").read_text())
    for split in ("test", "validation"):
        assert set(record[split]) == {"accuracy", "f1_micro", "f1_macro"}
        assert all(0 <= value <= 1 for value in record[split].values())
        assert set(record["last"][split]) == set(record[split])
    assert record["rounds"] == 4
    assert record["local_steps"] == [3]
    assert record["standardised"] is False
    assert record["steps"] == 24
    assert [entry["round"] for entry in record["history"]] == [1, 2, 3, 4]
    assert record["train_seconds"] > 0
    assert record["peak_memory_bytes"] > 2**20
    assert record["config"]["sub_gcns"] == 2
    assert record["validation"]["accuracy"] == max(entry["validation"] for entry in record["history"])
    assert (tmp_path / "run/curves.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "curves.png",
        "model.safetensors",
        "report.html",
        "result.json",
    ]


def test_the_model_file_loads_by_name_in_plain_pytorch(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    assert cli("train", "--dataset", own_graph, *QUICK, "--sub-gcns", 2, "--out", "run").returncode == 0
    model = GCN(3, (8, 8), 3)
    model.load_state_dict(load_file(tmp_path / "run/model.safetensors"))
    graph = arrays()
    with torch.no_grad():
        out = model.eval()(torch.from_numpy(graph["x"]), torch.from_numpy(graph["edge_index"]))
    record = json.loads((tmp_path / "run/result.json").read_text())
    right = (out.argmax(1).numpy() == graph["y"])[graph["test"]].mean()
    assert right == pytest.approx(record["test"]["accuracy"])


def test_json_prints_the_result_and_nothing_else(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    done = cli("train", "--dataset", own_graph, *QUICK, "--sub-gcns", 2, "--json", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "run/result.json").read_text())


def test_same_seed_same_model_bit_for_bit(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    for out, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert (
            cli("train", "--dataset", own_graph, *QUICK, "--sub-gcns", 2, "--seed", seed, "--out", out).returncode == 0
        )
    first, second, other = ((tmp_path / out / "model.safetensors").read_bytes() for out in "abc")
    assert first == second
    assert first != other


@pytest.mark.parametrize(
    "options",
    [
        ("--model", "graphsage", "--norm", "layer", "--optimizer-state", "carry", "--schedule", "cosine"),
        ("--model", "gat", "--heads", 2, "--norm", "batch", "--optimizer", "adamw", "--weight-decay", 0.01),
        ("--partition-dims", 0, 1, "--partition", "categorical", "--schedule", "step", "--clip-norm", 1),
        ("--optimizer", "sgd", "--momentum", 0.9, "--lr", 0.1, "--patience", 2, "--evaluate-every", 2),
    ],
)
def test_options(cli: Cli, own_graph: Path, options: tuple[object, ...]) -> None:
    done = cli("train", "--dataset", own_graph, *QUICK, "--sub-gcns", 2, *options, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["test"]["accuracy"] > 0.2


def test_multi_label_graph(cli: Cli, tmp_path: Path) -> None:
    graph = arrays()
    graph["y"] = np.stack([graph["y"] == 0, graph["y"] != 1], axis=1).astype(np.float32)
    np.savez(tmp_path / "multi.npz", **graph)
    done = cli("train", "--dataset", "multi.npz", *QUICK, "--epochs", 60, "--sub-gcns", 2, "--json", "--out", "run")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["graph"]["multi_label"]
    assert record["test"]["f1_micro"] > 0.6


def test_results_are_not_written_over_unasked(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    run = ("train", "--dataset", own_graph, *QUICK, "--sub-gcns", 2, "--out", "run")
    assert cli(*run).returncode == 0
    before = (tmp_path / "run/result.json").read_bytes()
    refused = cli(*run, "--seed", 5)
    assert refused.returncode == 2
    assert "already holds a result" in refused.stderr
    assert (tmp_path / "run/result.json").read_bytes() == before
    assert cli(*run, "--seed", 5, "--overwrite").returncode == 0
    assert (tmp_path / "run/result.json").read_bytes() != before


def test_default_directories_do_not_collide(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    for _ in range(2):
        assert cli("train", "--dataset", own_graph, *QUICK, "--sub-gcns", 2).returncode == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["own-gcn-m2-seed0", "own-gcn-m2-seed0-2"]


def test_digits_is_the_default_and_learns(cli: Cli) -> None:
    done = cli("train", "--json", "--epochs", 160)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["graph"]["name"] == "digits"
    assert record["test"]["accuracy"] > 0.9


def test_cora_as_the_readme_trains_it(tmp_path: Path, shared_data: Path) -> None:
    """By the installed script, in processes that start from nothing."""

    def script(*args: object) -> dict:
        done = subprocess.run(
            command(*args, "--json"), cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    model = ("--model", "graphsage", "--hidden", 256, 256, "--sub-gcns", 4)
    record = script("train", "--dataset", "cora", "--data-root", shared_data, *model, "--out", "run")
    assert record["graph"]["nodes"] == 2708
    assert record["test"]["accuracy"] > 0.7
    assert script("evaluate", "run")["test"] == pytest.approx(record["test"])  # finds the data where the run did


@pytest.mark.parametrize(("epochs", "said"), [(1600, False), (100, True)])
def test_a_run_with_too_few_rounds_says_so(cli: Cli, own_graph: Path, epochs: int, said: bool) -> None:
    done = cli(
        "train",
        "--dataset",
        own_graph,
        "--hidden",
        8,
        8,
        "--sub-gcns",
        4,
        "--epochs",
        epochs,
        "--local-steps",
        20,
        "--evaluate-every",
        20,
    )
    assert done.returncode == 0, done.stderr
    assert ("of the parameters will never be trained" in done.stderr) == said


def test_no_note_where_no_weight_lies_between_split_layers(cli: Cli, own_graph: Path) -> None:
    done = cli("train", "--dataset", own_graph, "--hidden", 8, "--sub-gcns", 4, "--epochs", 20)
    assert done.returncode == 0, done.stderr
    assert "gistgnn: note" not in done.stderr
