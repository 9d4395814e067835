import json
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gistgnn.nn import GCN
from tests.helpers.commands import command, environment

from .conftest import Cli, arrays

QUICK = ("--hidden", 8, 8, "--epochs", 12, "--local-steps", 3, "--training", "each", "--no-standardise")


def test_a_run_leaves_result_model_and_curves(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    done = cli("train", "--dataset", own_graph, *QUICK, "--sub-gcns", 2, "--json", "--out", "run")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "run/result.json").read_text())
    assert json.loads(done.stdout) == record
    for split in ("test", "validation"):
        assert set(record[split]) == {"accuracy", "f1_micro", "f1_macro"}
        assert all(0 <= value <= 1 for value in record[split].values())
        assert set(record["last"][split]) == set(record[split])
    assert (record["rounds"], record["local_steps"], record["steps"], record["standardised"]) == (4, [3], 24, False)
    assert [entry["round"] for entry in record["history"]] == [1, 2, 3, 4]
    assert record["train_seconds"] > 0
    assert record["peak_memory_bytes"] > 2**20
    assert record["config"]["sub_gcns"] == 2
    assert record["validation"]["accuracy"] == max(entry["validation"] for entry in record["history"])
    assert (tmp_path / "run/curves.png").read_bytes().startswith(b"\x89PNG")
    names = ["curves.png", "model.safetensors", "report.html", "result.json"]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == names
    model, graph = GCN(3, (8, 8), 3), arrays()  # the model's file loads by name in plain PyTorch
    model.load_state_dict(load_file(tmp_path / "run/model.safetensors"))
    with torch.no_grad():
        out = model.eval()(torch.from_numpy(graph["x"]), torch.from_numpy(graph["edge_index"]))
    right = (out.argmax(1).numpy() == graph["y"])[graph["test"]].mean()
    assert right == pytest.approx(record["test"]["accuracy"])


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


def test_results_are_not_written_over_unasked(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    run = ("train", "--dataset", own_graph, *QUICK, "--sub-gcns", 2, "--out", "run")
    done = cli(*run)
    assert done.returncode == 0
    assert "at best validation" in done.stdout
    before = (tmp_path / "run/result.json").read_bytes()
    refused = cli(*run, "--seed", 5)
    assert refused.returncode == 2
    assert "already holds a result" in refused.stderr
    assert (tmp_path / "run/result.json").read_bytes() == before
    assert cli(*run, "--seed", 5, "--overwrite").returncode == 0
    assert (tmp_path / "run/result.json").read_bytes() != before


def test_digits_is_the_default_and_learns(cli: Cli) -> None:
    done = cli("train", "--json", "--epochs", 160)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["graph"]["name"] == "digits"
    assert record["test"]["accuracy"] > 0.9


def test_cora_as_the_readme_trains_it(cli: Cli, tmp_path: Path, shared_data: Path) -> None:
    """By the installed script, in a process that starts from nothing."""
    words = ("train", "--dataset", "cora", "--data-root", shared_data, "--model", "graphsage", "--hidden", 256, 256)
    script = command(*words, "--sub-gcns", 4, "--out", "run", "--json")
    done = subprocess.run(script, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["graph"]["nodes"] == 2708
    assert record["test"]["accuracy"] > 0.7
    scored = json.loads(cli("evaluate", "run", "--json").stdout)
    assert scored["test"] == pytest.approx(record["test"])  # finds the data where the run did


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
