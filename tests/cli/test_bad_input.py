"""Bad input is refused in one line that names the value and says what to do.

The exit status is 2, and nothing is left.
"""

import os
import shlex
from argparse import Action
from pathlib import Path

import numpy as np
import pytest

from gistgnn.cli.main import make_parser
from gistgnn.cli.messages import as_typed
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from gistgnn.utils.checks import setting_types

from .conftest import Cli, arrays
from .in_process import refused, run

HUGE = 10**30
CLUSTERS = "--sampler clusters --clusters 4 --clusters-per-batch 2 --set cluster_method=random"
BAD_OPTIONS = {  # options of `train`, and the message; `test_options` has every field's range
    "--hidden 100000000 100000000": "needs",
    "--dataset corra": "did you mean cora?",
    "--dataset absent.npz": "absent.npz: no such file",
    "--dataset cut.npz": "cut.npz cannot be read",
    "--dataset unlabelled.npz": "has no y",
    "--dataset numbers.npz": 'to predict numbers, give GIST.fit a PyG Data and loss="mse"',
    "--dataset own.csv": "`gistgnn convert own.csv FOLDER --nodes nodes.csv`, and give that FOLDER",
    "--dataset tables": "`gistgnn convert tables/edges.csv FOLDER --nodes tables/nodes.csv`",
    "--model gcm": "--model is 'gcm', expected gcn, graphsage, gat",
    "--modle gcn": "--modle is no option of gistgnn train: did you mean --model?",
    "--epohcs=3": "--epohcs is no option of gistgnn train: did you mean --epochs?",
    "--zzz": "--zzz is no option of gistgnn train: gistgnn train --help-all lists them",
    "more": "'more' is one argument too many: gistgnn train --help",
    "--momentum 0.9": "--momentum is no option of gistgnn train: give --set momentum=VALUE",
    "--set momentum=0.9": "momentum is 0.9, but the optimizer is adam: use sgd",
    "--evaluate-every often": "--evaluate-every is 'often', expected an integer >= 1 or auto",
    f"--checkpoint-every {HUGE}": "expected an integer from 1 to 1,000,000,000",
    "--device gpu": "--device is 'gpu', expected auto, cpu, cuda or cuda:N",
    f"--device cuda:{HUGE}": "expected cpu, cuda or cuda:N",
    "--set partition_dims=3": "d_3 cannot be partitioned",
    "--store memory --set store_precision=bf16": "bf16, but the store is memory: use disk",
    "--out file/run": "cannot write file/run",
    "--resume --overwrite": "--resume and --overwrite are both given",
    "--max-seconds soon": "--max-seconds is 'soon', expected a time",
    "--max-seconds 9s --budget 9s": "--max-seconds is given, but a budget limits the time as well",
    "--budget 10": "--budget is '10', without a unit: 10s or 10min?",
    "--grace 1e300": "--grace is '1e300', expected a time such as 90s or 10min",
    "--grace 10x": "--grace is '10x', expected a time such as 90s or 10min",
    "--sub-gcns 0": "--sub-gcns is 0, expected an integer >= 1",
    "--sub-gcns two": "--sub-gcns is 'two', expected an integer",
    "--epochs 0": "--epochs is 0, expected a number > 0",
    "--sampler": "--sampler has too few values: give one",
    "--set heads=4": "heads is given, but the model is gcn: add --model gat",
    "--model gat --hidden 8 --set heads=2 --sub-gcns 9": "8 features of d_1",
    "--model-args depth=3": "--model-args is given, but the model is gcn",
    "--model own_net.py:build --model-args depth": "--model-args is 'depth', expected a keyword",
    "--model own_net.py:build --model-args depth=3": "unexpected keyword argument 'depth'",
    "--model own_net.py:build --dropout 0.1": "dropout is given, but the model is own_net.py:build",
    "--model own_net.py:two": "called as two(3, (8, 8), 3), fails (TypeError: ",
    "--model own_net.py:nothing": "cannot be imported",
    "--model own_net.py:number": "int: expected a function of (in_features, hidden, classes)",
    "--model own_net.py:linear": "called as linear(3, (8, 8), 3), fails (RuntimeError: no layers "
    "today): it has to",
    "--model pipe.py:build": "it is no regular file",
    f"--method local-sgd {CLUSTERS} --set partition_dims=1": "the method is local-sgd, which "
    "splits nothing",
    "--method parts --sub-gcns 2 --set partition_dims=1": "is whole, but parts are narrow in all "
    "axes",
    "--method parts --sub-gcns 2 --set partition_dims=0,1,2": "but every part sees all",
    "--method parts --sub-gcns 2 --budget 9s": "leave one out",
    "--budget 9s --sub-gcns 3": "leave one out",
    "--sampler clusters --clusters 41": "clusters is 41, expected an integer from 1 to 40",
    "--sampler clusters --clusters 14 --inductive": "from 1 to 13",
    "--clusters 4 --clusters-per-batch 10": "--clusters-per-batch is 10, more than the 4 clusters",
    "--sampler full --set cluster_method=random": "is given, but the sampler is full: add "
    "--sampler clusters",
    "--sampler clusters --set cluster_method=foo": "error: cluster_method is 'foo', expected one",
    "--sampler neighbor --fanout 0": "error: --fanout is",
    "--batch-size 4": "--batch-size is given, but the sampler is auto: add --sampler ladies or",
    "--budget 9s --local-steps 3": "--local-steps is given beside a budget",
    "--loss hinge": "--loss is 'hinge', expected one of cross-entropy",
    "--evaluation whole --evaluation-memory 2": "--evaluation-memory is given, but the evaluation",
    "--evaluation parts --set parts=3 parts_sample=4": "error: parts_sample is 4, expected at most",
    "--class-weights equal": "expected balanced, or a number for each class",
}
BAD_COMMANDS = {  # the words of a command, and the message
    "": "COMMAND is missing, expected one of train, compare, ",
    "trian": "theory: did you mean train?",
    "zzz": "'zzz' is no command, expected one of train, compare, ",
    "reproduce": "EXPERIMENT is missing: see gistgnn reproduce --help",
    "reproduce tabel1": "theory: did you mean table1?",
    "evaluate run --devise cpu": "of gistgnn evaluate: did you mean --device?",
    "--verison": "--verison is no option of gistgnn: did you mean --version?",
    "plan --budget 9s --no-measure": "--no-measure is given beside a budget",
    "compare --methods gits": "--methods is 'gits', expected one of gist, parts, ",
    "plan --sub-gcns 3000": "--sub-gcns is 3000, more than the 256 features",
    "train --resume": "--resume needs --out",
    "evaluate nowhere": "nowhere holds no result.json",
    "predict own.npz --output a.csv": "own.npz is a file: give the folder of the run, .",
    "predict nowhere --output a.txt": "expected a name that ends in .csv or .npz",
    "list nowhere": "nowhere is not a folder",
    "datasets nope": "'nope' is neither a data set nor a file",
    "datasets digits --verify": "--verify is for graph folders; digits is none",
    "compare --out out --methods local-sgd --sampler full": "gives each worker its own batches",
    "compare --out out --sub-gcns 1": "nothing to compare",
    "compare --out out --hidden 2 2 --sub-gcns 2 --memory 0.1": "m = 1 needs",
    "compare run --epochs 3": "--epochs is given beside folders of runs",
    "compare run --dataset digits": "--dataset is given beside folders of runs",
    "partition --dataset own.npz --clusters 4 --memory 2": "--memory is for a folder that is "
    "written: add --out",
    "partition --dataset own.npz --clusters 4 --method auto": "--method auto is for a folder that "
    "is written: add",
    "partition --dataset own.npz --clusters 4 --out made --inductive": "--out writes the whole "
    "graph: leave one out",
    "partition --dataset digits --clusters 4 --out made": "make one with `gistgnn convert digits "
    "FOLDER`",
    "convert coraa made": "is neither a data set nor a file (did you mean cora?)",
    "theory check": "GRAPH is missing: see gistgnn theory check --help",
    "convert": "SOURCE, DEST are missing: see gistgnn convert --help",
    "theory check complete:2": "complete:2 is not a graph, expected complete:N with N an integer "
    "from 3 to 5,000",
    "theory check karate --nodes 5": "give no nodes",
    "theory check karate --width=--": "--width has no value, but --",
    "theory check karate --step-size 99": "--step-size is 99, expected one above 0 and below 2 / "
    "λ_max(G^∞) = 0.699",
}
OWN = """
import torch
build = lambda in_features, hidden, classes: torch.nn.Linear(in_features, classes)
number = 3
two = lambda in_features, hidden: None
def linear(in_features, hidden, classes):
    raise RuntimeError("no layers today")
"""


@pytest.fixture
def folder(own_graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=lambda options: options[:60])
def test_a_bad_option_of_train_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, options: str
) -> None:
    (folder / "file").touch()
    (folder / "tables").mkdir()
    for name in ("own.csv", "tables/edges.csv"):
        (folder / name).touch()
    (folder / "cut.npz").write_bytes((folder / "own.npz").read_bytes()[:500])
    np.savez(folder / "numbers.npz", **{**arrays(), "y": np.arange(40) / 2})
    unlabelled = arrays()
    del unlabelled["y"]
    np.savez(folder / "unlabelled.npz", **unlabelled)
    (folder / "own_net.py").write_text(OWN)
    os.mkfifo(folder / "pipe.py")
    words = (
        "train", "--dataset", "own.npz", "--hidden", 8, 8, "--out", "run",
        *shlex.split(options),
    )  # fmt: skip
    leaves = None if "own_net" in options else folder  # an import may leave __pycache__
    refused(capsys, BAD_OPTIONS[options], *words, leaves=leaves)
    assert not (folder / "run").exists()


@pytest.mark.parametrize("words", BAD_COMMANDS, ids=lambda words: words[:60])
def test_a_bad_word_of_another_command_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, words: str
) -> None:
    (folder / "file").touch()
    refused(capsys, BAD_COMMANDS[words], *shlex.split(words), leaves=folder)


def options_of_numbers() -> list[Action]:
    """The options of `train` that take a number; `--init` takes a folder."""
    kinds = (Training, RunConfig, ModelConfig)
    settings = {name for kind in kinds for name in setting_types(kind)} - {"init"}
    return [
        option
        for option in make_parser().commands.choices["train"].options
        if option.dest in settings
        and not isinstance(option.default, str)
        and option.nargs != 0
        and not option.choices
    ]


@pytest.mark.parametrize("option", options_of_numbers(), ids=lambda option: option.dest)
def test_a_number_out_of_range_is_refused_by_the_option_s_name(
    capsys: pytest.CaptureFixture[str], folder: Path, option: Action
) -> None:
    name = max(option.option_strings, key=len)
    for value in ("-1", "x:"):
        refused(capsys, f" {name} is ", "train", f"{name}={value}", leaves=folder)


def test_the_names_of_settings_become_those_of_options_and_the_users_words_stay() -> None:
    options = make_parser().commands.choices["train"].options
    for message, expected in {
        "sub_gcns is 0, expected": "--sub-gcns is 0, expected",
        "epochs is given": "--epochs is given",
        "lr is 0.0, expected": "--lr is 0, expected",
        "raise sub_gcns, or lower local_steps": "raise --sub-gcns, or lower --local-steps",
        "the epochs of a run": "the epochs of a run",
        "runs/sub_gcns holds no result.json": "runs/sub_gcns holds no result.json",
        "'sub_gcns' is no setting": "'sub_gcns' is no setting",
        "give sub_gcns=4": "give sub_gcns=4",
        "momentum is 0.9, but": "momentum is 0.9, but",
    }.items():
        assert as_typed(message, options) == expected


@pytest.mark.parametrize("name", ["$x_{%s{}", "a\n\x1b[31mb", os.fsdecode(b"\xff\xfe")])
def test_a_file_and_a_folder_may_have_any_name_and_it_is_printed_plainly(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / f"{name}.npz", **arrays())
    train = (
        "train", "--dataset", f"{name}.npz", "--hidden", 8, "--sub-gcns", 2, "--epochs", 2,
        "--no-standardise",
    )  # fmt: skip
    assert run(*train, "--out", name) == 0
    assert run("evaluate", name) == 0
    assert run("predict", name, "--output", f"{name}.csv") == 0
    assert run("list", ".") == 0
    assert run(*train, "--sub-gcns", 1, "--out", "other") == 0
    assert run("compare", name, "other", "--out", f"{name}2") == 0
    out, err = capsys.readouterr()
    assert not [line for line in (out + err).split("\n") if not line.isprintable()]
    assert (tmp_path / name / "report.html").stat().st_size


@pytest.mark.parametrize("name", ["a\n\x1b[31mb", os.fsdecode(b"\xff\xfe"), "a" * 5000])
def test_a_message_is_one_short_line_of_plain_characters(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    options = "--dataset {}.npz", "--model {}:f", "--loss {}", "--device {}", "--{}", "--epochs {}"
    for line in ("evaluate {}", "datasets {}", *(f"train {option}" for option in options)):
        words = [word.replace("{}", name) for word in line.split()]
        assert run(*words) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert err.rstrip("\n").isprintable()
        assert len(err) < 1000


def test_divergence_keeps_the_last_good_parameters(cli: Cli, tmp_path: Path) -> None:
    graph = arrays()
    graph["x"] *= 1e30  # finite, but the gradient is not
    np.savez(tmp_path / "huge.npz", **graph)
    words = (
        "--dataset", "huge.npz", "--hidden", 8, "--sub-gcns", 2, "--epochs", 80,
        "--no-standardise",
    )  # fmt: skip
    completed = cli("train", *words, "--optimizer", "sgd", "--lr", 1, "--out", "run")
    assert completed.returncode == 2
    assert "training diverged in round 1" in completed.stderr
    assert "Traceback" not in completed.stderr
    assert completed.stdout == ""
    note = cli("evaluate", "run").stderr
    assert "gistgnn: note: training diverged in round 1: " in note
    assert "this model is as it was before training, and worth nothing" in note
    assert "The model is as it was before training." in (tmp_path / "run/report.html").read_text()
