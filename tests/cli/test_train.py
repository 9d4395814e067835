"""`gistgnn train`: what it imports first, what it leaves, and every way to train."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gistgnn import __version__
from gistgnn.report.names import method_name
from gistgnn.utils.machine import git_commit
from tests.helpers.commands import command, environment

from .conftest import Cli, Json, arrays

SMALL = ("--dataset", "own.npz", "--hidden", 8, 8, "--local-steps", 3, "--sub-gcns", 2)
QUICK = ("train", *SMALL, "--epochs", 12, "--set", "training=each", "--out", "run")
CLUSTERS = "--sampler clusters --clusters 6 --clusters-per-batch 2"
LADIES = "--sampler ladies --batch-size 5 --set nodes_per_layer=6"
FILES = ["model.safetensors", "report.html", "result.json"]

# Trains as `gistgnn train` does until its first round is over, and prints which of some modules are
# there.
FIRST_ROUND = """
import sys
from gistgnn import GIST
from gistgnn.graphs import load
from gistgnn.nn import GCN
class Look:
    def on_round_end(self, run, loss):
        print(*(name for name in sys.argv[1:] if name in sys.modules))
        run.stop()
GIST(lambda widths: GCN(64, widths, 10), (16,)).fit(load("digits"), epochs=4, callbacks=[Look()])
"""


def test_the_first_round_comes_without_what_it_does_not_need(tmp_path: Path) -> None:
    unneeded = (
        "sklearn",
        "pandas",
        "torch._dynamo",
        "matplotlib",
        "torch_geometric",
        "scipy.stats",
        "duckdb",
    )
    words = [sys.executable, "-c", FIRST_ROUND, "torch", *unneeded]
    completed = subprocess.run(
        words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert completed.stdout == "torch\n"


NET = """
from torch.nn import Linear, Sequential
from torch_geometric.nn import SAGEConv
class Net(Sequential):
    def forward(self, x, edge_index):
        return self[1](self[0](x, edge_index).relu())
build = lambda features, hidden, classes: Net(SAGEConv(features, *hidden), Linear(*hidden, classes))
"""
LATER = """
import sys
from gistgnn.cli.main import main
main(sys.argv[1:])
print("torch_geometric.nn" in sys.modules, "torch._dynamo.eval_frame" in sys.modules)
import torch
print(torch._dynamo.OptimizedModule.__name__)
"""


def test_a_layer_of_pyg_does_not_bring_all_that_pyg_imports(
    tmp_path: Path, own_graph: Path
) -> None:
    (tmp_path / "net.py").write_text(NET)
    train = (
        "train", "--dataset", own_graph, "--model", "net.py:build", "--hidden", 8,
        "--epochs", 4, "--out", "run",
    )  # fmt: skip
    words = [sys.executable, "-c", LATER, *map(str, train)]
    completed = subprocess.run(
        words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert completed.stdout.splitlines()[-2:] == ["True False", "OptimizedModule"]


def test_quiet_is_the_result_alone_and_verbose_says_what_is_chosen(
    cli: Cli, own_graph: Path
) -> None:
    usual = cli(*QUICK)
    quiet = cli(*QUICK, "--overwrite", "-q")
    verbose = cli(*QUICK, "--overwrite", "--verbose")
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert "test" in quiet.stdout
    assert usual.stdout.splitlines()[:3] == quiet.stdout.splitlines()[:3]
    chosen = [line for line in verbose.stderr.splitlines() if line.startswith("gistgnn: chosen: ")]
    assert {line.split(": ")[2] for line in chosen} >= {"batches", "rounds", "scores", "device"}
    assert "chosen" not in usual.stderr
    assert "m = " in cli("train", "-v", *SMALL[:5], "--epochs", 1).stderr
    failing = cli(*QUICK, "--quiet")  # the folder has a result
    assert (failing.returncode, failing.stderr.count("\n")) == (2, 1)
    assert cli(*QUICK, "-q", "-v").returncode == 2


def test_a_forgotten_dataset_is_named_at_the_start_and_beside_the_result(
    cli: Cli, tmp_path: Path
) -> None:
    train = ("train", "--hidden", 8, "--epochs", 2, "--out", "run", "--overwrite")
    completed = cli(*train)
    assert completed.returncode == 0
    for text in (completed.stderr, completed.stdout, cli(*train, "-q").stdout):
        assert "no --dataset is given, so the graph is handwritten digits" in text
        assert "--dataset my_graph.npz" in text
    (tmp_path / "run.toml").write_text('dataset = "digits"')
    for dataset in (("--dataset", "digits"), ("--dataset=digits",), ("--config", "run.toml")):
        completed = cli(*train, *dataset)
        assert completed.returncode == 0
        assert "no --dataset" not in completed.stdout + completed.stderr
    assert "no --dataset" in cli("plan", "--hidden", 8, "--no-measure").stdout
    compare = ("compare", "--hidden", 8, "--epochs", 1, "--sub-gcns", 2, "--out", "compared")
    assert "no --dataset" in cli(*compare).stderr
    cut = ("partition", "--clusters", 8, "--method", "random")
    assert "no --dataset" in cli(*cut).stderr
    assert "no --dataset" not in cli(*cut, "--dataset", "digits").stderr
    refusal = cli(*cut[:3], "--out", "cut")
    assert (refusal.returncode, list(tmp_path.glob("cut*"))) == (2, [])
    assert "--dataset is missing" in refusal.stderr


def test_one_note_says_what_usually_scores_higher_than_gist(cli: Cli, own_graph: Path) -> None:
    note = "where GIST seldom scores best in a given time: `gistgnn train --dataset own.npz "
    assert cli(*QUICK).stderr.count(note) == 1
    for options in (("--sub-gcns", 1), ("--method", "parts")):
        assert note not in cli(*QUICK, "--overwrite", *options).stderr


def test_a_graph_that_suits_graphsage_gets_a_note(cli: Cli, tmp_path: Path) -> None:
    note = "GraphSAGE often scores higher than the default"
    for nodes, expected in ((300, False), (1200, True)):  # a third of them train, of 3 classes
        np.savez(tmp_path / "own.npz", **arrays(nodes))
        train = ("train", "--dataset", "own.npz", "--hidden", 4, "--epochs", 1)
        assert (note in cli(*train, "--out", f"{nodes}").stderr) == expected
        assert note not in cli(*train, "--model", "gcn", "--out", f"{nodes}-typed").stderr


def test_a_run_leaves_a_result_and_a_model(as_json: Json, tmp_path: Path, own_graph: Path) -> None:
    record = as_json(*QUICK, "--no-standardise")
    assert record == json.loads((tmp_path / "run/result.json").read_text())
    for split in ("test", "validation"):
        assert record[split].keys() == {"accuracy", "f1_micro", "f1_macro"}
        assert record["last"][split].keys() == record[split].keys()
        assert all(0 <= value <= 1 for value in record[split].values())
    assert (record["rounds"], record["local_steps"], record["steps"]) == (4, 3, 24)
    assert record["standardised"] is False
    assert [entry["round"] for entry in record["history"]] == [1, 2, 3, 4]
    assert record["train_seconds"] > 0
    origin = record["provenance"]
    assert (origin["version"], origin["git"]) == (__version__, None)
    age = datetime.now(UTC) - datetime.fromisoformat(origin["date"])
    assert timedelta(0) <= age < timedelta(minutes=5)
    assert "cores" in origin["machine"]
    assert origin["libraries"]["torch"] == version("torch")
    assert record["peak_memory_bytes"] > 2**20
    assert (record["config"]["sub_gcns"], record["config"]["sampler"]["name"]) == (2, "auto")
    assert record["validation"]["accuracy"] == max(
        entry["validation"] for entry in record["history"]
    )
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == FILES


WAYS: dict[str, dict[str, Any]] = {  # options, and what result.json says of some of them
    "--model graphsage --norm layer --sampler neighbor --batch-size 5 --fanout -1 2 2": {
        "sampler.fanouts": [-1, 2, 2]
    },
    "--model gat --set heads=2 --sampler saint-rw --batch-size 6 --set walk_length=3": {
        "sampler.walk_length": 3
    },
    "--model gat --set heads=2 --set activation=elu --set attention_dropout=0": {
        "model.attention_dropout": 0
    },
    "--set partition_dims=0,1 --optimizer adamw --weight-decay 0.01 --norm batch --set "
    "clip_norm=1": {"partitioned": [0, 1]},
    f"--optimizer sgd --set momentum=0.9 --patience 2 --evaluate-every 2 {CLUSTERS} --inductive": {
        "inductive": True
    },
    "--runner fused --set precision=bf16 --sampler saint-node --batch-size 20 --norm whole": {
        "training.precision": "bf16"
    },
    f"--model gin {LADIES} --runner fused --evaluation layers": {
        "model.norm": "layer",
        "sampler.batch_size": 5,
    },
    "--model gatv2 --set heads=2 --store disk --sampler saint-edge --batch-size 10": {
        "store": "disk",
        "model.heads": 2,
    },
    f"{CLUSTERS} --set batches=independent --runner fused --set precompute=false": {
        "sampler.precompute": False
    },
    "--sampler fastgcn --batch-size 5 --set nodes_per_layer=6,7,8 --store host": {
        "sampler.nodes_per_layer": [6, 7, 8]
    },
    f"--method data-parallel {CLUSTERS}": {"method": "data-parallel"},
    f"--method local-sgd {CLUSTERS} --set cluster_method=random": {
        "method": "local-sgd",
        "sampler.method": "random",
    },
    f"--method ensemble {CLUSTERS} --class-weights balanced": {
        "training.class_weights": "balanced"
    },
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("options", WAYS)
def test_every_way_to_train_gives_a_record_scores_and_predictions(
    cli: Cli, as_json: Json, tmp_path: Path, own_graph: Path, options: str
) -> None:
    completed = cli(*QUICK, *options.split())
    assert completed.returncode == 0, completed.stderr
    record = as_json(*QUICK, *options.split(), "--resume")  # it is finished
    for path, value in WAYS[options].items():
        actual = record["config"]
        for name in path.split("."):
            actual = actual[name]
        assert actual == value, path
    assert record["test"]["accuracy"] > 0.4, "a guess among three classes has a third"
    method = record["config"]["method"]
    assert method_name(method, 2) in completed.stdout
    if method != "gist":
        assert record["traffic"]["workers"] == 2
    in_turn = "note: the sub-GCNs train in turn, not fused: their batches are independent\n"
    assert completed.stderr.count(in_turn) == ("fused" in options and "independent" in options)
    assert as_json("evaluate", "run", "--evaluation", "whole")["test"] == pytest.approx(
        record["test"]
    )
    assert cli("predict", "run", "--output", "classes.csv").returncode == 0
    if method == "ensemble":  # one model of its members
        names = load_file(tmp_path / "run/model.safetensors")
        members = names.keys() - {"feature_mean", "feature_std"}
        assert {name.split(".")[1] for name in members} == {"0", "1"}
        assert record["test"] == record["last"]["test"]


def test_results_are_not_written_over_unasked(cli: Cli, tmp_path: Path, own_graph: Path) -> None:
    (tmp_path / "run/theta").mkdir(parents=True)
    (tmp_path / "run/theta/theta.json").write_text("{")
    train = (*QUICK, "--store", "disk")
    completed = cli(*train, "--log", "tensorboard")
    assert completed.returncode == 0, completed.stderr
    assert "macro F1" in completed.stdout
    assert {path.name for path in (tmp_path / "run").iterdir()} == {*FILES, "tensorboard"}
    before = (tmp_path / "run/result.json").read_bytes()
    assert "already holds a result" in cli(*train, "--seed", 5).stderr
    message = "store_precision was 'float32', now 'bf16'"
    assert message in cli(*train, "--set", "store_precision=bf16", "--resume").stderr
    assert (tmp_path / "run/result.json").read_bytes() == before
    (tmp_path / "run/theta").mkdir()
    in_theta = tmp_path / "run/theta/a.tex"
    in_log = tmp_path / "run/tensorboard/a.tex"
    for path in (in_theta, in_log):
        path.touch()
    assert "run/theta is not empty" in cli(*train, "--seed", 5, "--overwrite").stderr
    assert in_theta.exists()
    assert in_log.exists()
    in_theta.unlink()
    assert cli(*train, "--seed", 5, "--overwrite").returncode == 0
    assert in_log.exists()
    assert (tmp_path / "run/result.json").read_bytes() != before


def test_a_finished_run_is_trained_on(
    cli: Cli, as_json: Json, tmp_path: Path, own_graph: Path
) -> None:
    assert cli(*QUICK).returncode == 0
    longer = cli(*QUICK, "--epochs", 800, "--resume")
    assert (longer.returncode, longer.stderr.count("\n")) == (2, 1)
    assert (
        "epochs was 12, now 800; to train the model of this run on, give --init run"
        in longer.stderr
    )
    further = (*QUICK, "--init", "run", "--lr", 1e-12, "--out", "further")
    assert as_json(*further)["config"]["init"] == "run"
    before, after = (
        load_file(tmp_path / name / "model.safetensors") for name in ("run", "further")
    )
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)
    assert "absent holds no result.json" in cli(*QUICK, "--init", "absent", "--out", "third").stderr


def test_digits_is_the_default_and_learns(as_json: Json) -> None:
    record = as_json("train", "--epochs", 120)
    assert record["graph"]["name"] == "digits"
    assert record["test"]["accuracy"] > 0.9


def test_cora_scores_well_as_the_readme_trains_it(
    as_json: Json, tmp_path: Path, shared_data: Path
) -> None:
    """First the installed script trains it, in a process that starts from nothing.

    Then it trains by clusters, most of which have no training nodes.
    """
    cora = ("train", "--dataset", "cora", "--data-root", shared_data)
    words = (
        *cora, "--model", "graphsage", "--hidden", 256, 256, "--sub-gcns", 4,
        "--out", "run", "--json",
    )  # fmt: skip
    completed = subprocess.run(
        command(*words),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    record = json.loads(completed.stdout)
    assert record["graph"]["nodes"] == 2708
    assert record["test"]["accuracy"] > 0.7
    # The data is where the run has it from.
    assert as_json("evaluate", "run")["test"] == pytest.approx(record["test"])
    sizes = (
        "--hidden", 64, 64, "--sub-gcns", 2, "--epochs", 40, "--clusters", 50,
        "--clusters-per-batch", 5,
    )  # fmt: skip
    assert as_json(*cora, *sizes, "--sampler", "clusters")["test"]["accuracy"] > 0.7


def test_weights_that_no_round_trains_are_announced(cli: Cli, own_graph: Path) -> None:
    for options, announced in {
        "--hidden 8 8 --sub-gcns 4 --epochs 12 --local-steps 3": True,
        "--hidden 8 8 --sub-gcns 2 --epochs 60 --local-steps 2": False,
        "--hidden 8 --sub-gcns 4 --epochs 20": False,  # no weight lies between split layers
    }.items():
        completed = cli("train", "--dataset", own_graph, *options.split(), "--evaluate-every", 20)
        assert completed.returncode == 0, completed.stderr
        message = "of the parameters will never be trained"
        lines = [line for line in completed.stderr.splitlines() if message in line]
        assert bool(lines) == announced, options
        assert all(line.endswith("raise --epochs or lower --local-steps") for line in lines)


def test_a_run_ends_in_time(as_json: Json, own_graph: Path) -> None:
    # The process is older than a second, so one round is all.
    record = as_json(*QUICK, "--max-seconds", "1s", "--epochs", 10**6)
    assert (record["rounds"], record["stopped_by"]) == (1, "max_seconds")


MODEL = """
from own_beside import layers
from torch import nn
def build(in_features, hidden, classes, slope=0.01):
    return nn.Sequential(*layers([in_features, *hidden, classes], slope))
"""
BESIDE = """
from itertools import pairwise
from torch import nn
def layers(sizes, slope):
    return [layer for a, b in pairwise(sizes) for layer in (nn.LeakyReLU(slope), nn.Linear(a, b))]
"""


def test_a_model_of_one_s_own_is_planned_trained_evaluated_and_predicts(
    cli: Cli, as_json: Json, tmp_path: Path, own_graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file with a module beside it, and from a module of the working directory."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code/own_net.py").write_text(MODEL)
    (tmp_path / "code/own_beside.py").write_text(BESIDE)
    model = ("--model", "code/own_net.py:build")
    args = ("--model-args", "slope=0.2")
    plan = as_json(
        "plan", "--dataset", "own.npz", "--hidden", 8, 8, *model, "--no-measure", "--sub-gcns", 1, 2
    )
    parameters = 3 * 8 + 8 + 8 * 8 + 8 + 8 * 3 + 3
    assert plan["parameters"] == parameters
    assert {option["method"] for option in plan["options"]} == {"whole"}
    record = as_json(*QUICK, *model, *args)
    assert record["config"]["model"] == {
        "name": "code/own_net.py:build",
        "hidden": [8, 8],
        "args": {"slope": 0.2},
    }
    assert record["coverage"]["parameters"] == parameters
    assert (
        "give the function that builds it (--model code/own_net.py:build"
        in cli("evaluate", "run").stderr
    )
    assert as_json("evaluate", "run", *model)["test"] == record["test"]
    assert cli("predict", "run", *model, "--output", "labels.csv").returncode == 0
    assert "build 8" in (tmp_path / "run/report.html").read_text()
    finished = cli(*QUICK, *model, *args, "--resume")
    assert finished.returncode == 0
    assert "is finished: nothing was trained" in finished.stderr
    assert "is of another run: " in cli(*QUICK, *model, "--resume").stderr
    monkeypatch.chdir(tmp_path / "code")
    assert as_json(*QUICK[:-2], "--dataset", own_graph, "--model", "own_net:build")
    assert [path.name for path in (tmp_path / "code/runs").iterdir()] == ["own-build-m2-seed0"]


def test_parts_are_joined_and_trained_on(
    cli: Cli, as_json: Json, tmp_path: Path, own_graph: Path
) -> None:
    fixed = ("train", "--dataset", own_graph, "--hidden", 8, 8, "--local-steps", 3)
    train = (*fixed, "--method", "parts", "--sub-gcns", 4, "--epochs", 24, "--out", "run")
    completed = cli(*train)
    assert "parts, m = 4" in completed.stdout, completed.stderr
    for part in range(1, 5):
        assert completed.stderr.count(f"training part {part} of 4:") == 1
    assert completed.stderr.count("the results go to") == 1
    assert not (tmp_path / "run/checkpoints").exists()
    record = as_json(*train, "--resume")  # it is finished
    assert (record["steps"], record["rounds"]) == (24, 2)
    assert "parts, m = 4" in (tmp_path / "run/report.html").read_text()
    assert as_json("evaluate", "run")["test"] == record["test"]
    assert "is of another run: " in cli(*train, "--lr", 0.5, "--resume").stderr
    trained_on = as_json(*fixed, "--init", "run", "--epochs", 1, "--lr", 1e-9, "--out", "whole")
    assert trained_on["test"] == record["test"], "it goes on from there, with the norm of that run"
    other = cli(*fixed, "--init", "run", "--epochs", 1, "--norm", "batch", "--out", "other")
    assert other.returncode == 2
    assert "give --norm layer" in other.stderr


def test_a_budget_ends_with_a_wide_model(
    cli: Cli, as_json: Json, tmp_path: Path, own_graph: Path
) -> None:
    train = (
        "train", "--dataset", own_graph, "--hidden", 256, 256, "--budget", "15s",
        "--out", "run",
    )  # fmt: skip
    record = as_json(*train)
    assert record["budget"]["sub_gcns"] in (1, 2)
    assert record["config"]["training"]["budget"] == 15
    assert as_json("evaluate", "run")["test"] == record["test"]
    assert as_json(*train, "--resume")["run"] == record["run"]
    assert cli("list", ".").returncode == 0


def test_the_commit_is_recorded_and_whether_files_differ_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        return subprocess.check_output(["git", *identity, *words], cwd=tmp_path, text=True).strip()

    git("init", "--quiet")
    assert git_commit(tmp_path) is None, "a repository without a commit"
    (tmp_path / "model.py").write_text("x = 1")
    git("add", ".")
    git("commit", "--quiet", "--no-verify", "-m", "one")
    (tmp_path / "notes.txt").write_text("untracked")
    assert git_commit(tmp_path) == {"commit": git("rev-parse", "HEAD"), "changed": False}
    (tmp_path / "model.py").write_text("x = 2")
    assert git_commit(tmp_path)["changed"] is True
    monkeypatch.setenv("PATH", "")  # git is not installed
    assert git_commit(tmp_path) is None
