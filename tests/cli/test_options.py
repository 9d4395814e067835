"""The options of `gistgnn train` against the dataclasses that they fill."""

import argparse
import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.distributed.run import get_args_parser

from gistgnn import GIST, Phase
from gistgnn.baselines.registry import METHODS
from gistgnn.cli.main import make_parser
from gistgnn.cli.training_options import config_from_args, given_sub_gcns
from gistgnn.errors import InputError
from gistgnn.graphs import load
from gistgnn.nn import GCN, MODELS
from gistgnn.runners.registry import RUNNERS
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.sampling import AutoSampling, ClusterSampling
from gistgnn.sampling.registry import FULL, SAMPLERS
from gistgnn.settings import Training
from gistgnn.theta.registry import STORES
from gistgnn.utils.setting import described

from .conftest import Cli
from .in_process import run


def test_without_options_every_value_is_the_default() -> None:
    config = config_from_args(make_parser().parse_args(["train", "--device", "cpu"]), 1)
    assert config == RunConfig("digits", standardise=True, sampler=AutoSampling())
    assert config.training == Training(epochs=400, schedule="cosine", optimizer_state="carry")
    assert config.model == ModelConfig()


@pytest.mark.parametrize(
    ("words", "sub_gcns", "lr"),
    [
        ("", 1, 0.01),
        ("", 4, 0.04),
        ("", 16, 0.1),
        ("--hidden 1024 512", 8, 0.02),
        ("--hidden 4096", 8, 0.01),
        ("--method local-sgd", 4, 0.01),
        ("--method ensemble", 4, 0.04),
        ("--phases 4:8 1:2", 4, 0.01),
        ("--lr 0.5", 4, 0.5),
        ("--budget 10s", 1, 0.005),
    ],
)
def test_the_learning_rate_grows_as_sub_gcns_become_narrower(words: str, sub_gcns: int, lr: float) -> None:
    args = make_parser().parse_args(["train", "--device", "cpu", *words.split()])
    assert config_from_args(args, sub_gcns).training.lr == pytest.approx(lr)


@pytest.mark.parametrize(
    ("words", "sub_gcns", "epochs"),
    [
        ("digits", 4, 400),
        ("reddit", 1, 100),
        ("reddit --hidden 512 1200", 2, 200),
        ("reddit --hidden 512 1200 --partition-dims 1", 1, 100),
        ("reddit --hidden 8000", 8, 800),
        ("reddit --sub-gcns 4", 4, 400),
        ("reddit --epochs 7", 1, 7),
        ("reddit --phases 4:8 1:2", 4, 0),
    ],
)
def test_m_and_the_epochs_suit_the_graph_and_the_width(words: str, sub_gcns: int, epochs: int) -> None:
    args = make_parser().parse_args(["train", "--device", "cpu", "--dataset", *words.split()])
    config = config_from_args(args, given_sub_gcns(args))
    assert (config.sub_gcns, config.training.epochs) == (sub_gcns, epochs or 10)
    assert config.model.dropout == (0.5 if words == "digits" else 0.2)


@pytest.mark.parametrize(
    ("words", "standardise", "norm"),
    [
        ("--dataset cora", False, "none"),
        ("--dataset cora --standardise", True, "none"),
        ("--dataset Amazon-Computers", True, "none"),
        ("--dataset digits --no-standardise", False, "none"),
        ("--dataset synthetic:reddit@0.1 --model graphsage", True, "layer"),
        ("--dataset own.npz --model graphsage --norm none", None, "none"),
        ("--dataset own.npz --model gat --no-standardise", False, "none"),
    ],
)
def test_features_and_norm_are_those_that_suit(
    words: str, standardise: bool | None, norm: str, own_graph: Path
) -> None:
    given = ["train", "--device", "cpu", *words.replace("own.npz", str(own_graph)).split()]
    config = config_from_args(make_parser().parse_args(given), 1)
    assert (config.standardise, config.model.norm) == (standardise, norm)


def test_every_setting_of_training_is_an_option() -> None:
    values = {"epochs": 7, "local_steps": 3, "training": "each", "optimizer": "sgd", "lr": 0.5, "weight_decay": 0.25}
    values |= {"momentum": 0.5, "schedule": "step", "optimizer_state": "carry", "precision": "bf16", "clip_norm": 2.0}
    values |= {"patience": 4, "evaluate_every": 2, "redraw_every": 3, "cross_weights": "zero"}
    values |= {"loss": "cross-entropy", "class_weights": "balanced", "label_smoothing": 0.1, "metric": "f1_macro"}
    instead = {"phases", "budget"}  # of epochs; see test_phases.py
    assert values.keys() == {field.name for field in fields(Training)} - instead == described(Training).keys()
    words = [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert config_from_args(make_parser().parse_args(["train", "--device", "cpu", *words]), 1).training == Training(
        **values
    )


@given(st.data())
def test_a_value_out_of_a_field_s_range_is_refused_and_one_within_is_taken(data: st.DataObject) -> None:
    """What a field says of itself decides, whichever way the settings are made."""
    kinds = [(Training, {"epochs": 1}), (ModelConfig, {}), (RunConfig, {"dataset": "x"})]
    kind, needed = data.draw(st.sampled_from(kinds))
    numbers = {name: field for name, field in described(kind).items() if {int, float} & set(field.kinds)}
    field = numbers[data.draw(st.sampled_from(sorted(numbers.keys() - {"epochs", "momentum"})))]
    setting, integer = field.setting, int in field.kinds
    values = st.integers(-3, 2**64) if integer else st.floats(allow_nan=True) | st.just(1)
    value = data.draw(values)
    within = setting.least <= value <= setting.most if integer else 0 <= value < setting.below
    if within and (integer or value or not setting.above):
        assert getattr(kind(**{**needed, field.name: value}), field.name) == value
    else:
        with pytest.raises(InputError, match=f"^{field.name} is .*, expected"):
            kind(**{**needed, field.name: value})


def test_the_choices_and_defaults_in_the_help_are_those_of_the_registries(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--help-all") == 0
    words = capsys.readouterr().out.split()
    registries = {"model": MODELS, "method": METHODS, "runner": RUNNERS, "store": STORES, "sampler": [FULL, *SAMPLERS]}
    for option, names in registries.items():
        assert f"--{option}{{{','.join(names)}}}" in "".join(words)
    checked = 0
    for kind in SAMPLERS.values():
        for field in fields(kind):
            option = {"method": "cluster-method", "fanouts": "fanout"}.get(field.name, field.name.replace("_", "-"))
            chosen = field.default in (MISSING, None) or isinstance(field.default, bool)
            if chosen or field.name == "sample_coverage":
                continue
            helps = re.findall(rf"--{option} [^-].*?\(default: .*?\)(?= -|$| [a-z]+:)", " ".join(words))
            assert any(str(field.default) in said for said in helps), (kind, field.name)
            checked += 1
    assert checked >= 13


@pytest.mark.parametrize("name", ["train", "compare", "plan", "evaluate", "predict"])
def test_help_is_short_and_help_all_is_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for option in ("--help", "--help-all"):
        assert run(name, option) == 0
        shown[option] = capsys.readouterr().out
    short, whole = shown["--help"], shown["--help-all"]
    assert short.startswith(f"usage: gistgnn {name} [options]")
    assert f"example:\n  $ gistgnn {name} " in short
    told = {option: set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", text, re.MULTILINE)) for option, text in shown.items()}
    assert told["--help"] < told["--help-all"]
    (hidden,) = re.findall(r"--help-all shows (\d+) more options", short)
    assert int(hidden) == len(told["--help-all"] - told["--help"] - {"--help", "--help-all"})
    assert "--help-all shows" not in whole


def test_a_sampler_needs_no_settings_and_settings_of_clusters_need_no_sampler() -> None:
    for options, expected in {
        "": AutoSampling(),
        "--batches independent": AutoSampling(batches="independent"),
        "--sampler clusters": ClusterSampling(),
        "--clusters 30 --no-precompute": ClusterSampling(30, precompute=False),
        "--sampler full": None,
    }.items():
        words = ["train", "--device", "cpu", *options.split()]
        assert config_from_args(make_parser().parse_args(words), 1).sampler == expected


def test_no_option_takes_two_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    """For argparse `--option=--` is an empty list, and nothing has checked it."""
    parsers, tried = [("", make_parser())], 0
    for name, parser in parsers:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += [(f"{name} {word}", each) for word, each in action.choices.items()]
            elif action.option_strings and action.nargs != 0:
                assert run(*name.split(), f"{action.option_strings[0]}=--") == 2
                out, err = capsys.readouterr()
                assert (out, err.count("\n")) == ("", 1), err
                tried += 1
    assert tried > 100


def test_every_option_has_a_name_that_torchrun_leaves_alone() -> None:
    """It takes the beginning of one of its own for the whole."""
    theirs = [*get_args_parser()._option_string_actions]
    (commands,) = (each for each in make_parser()._actions if isinstance(each, argparse._SubParsersAction))
    for action in commands.choices["train"]._actions:
        names = [name for name in action.option_strings if not any(their.startswith(name) for their in theirs)]
        assert names or not action.option_strings or "--help" in action.option_strings


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == run("--help") == 0
    assert "gistgnn 0." in capsys.readouterr().out


def test_the_environment_says_where_data_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def root(words: str) -> str | None:
        return make_parser().parse_args(words.split()).data_root

    commands = ("train", "datasets", "plan", "reproduce table1", "theory check karate")
    for value, expected in ((None, "data"), ("/elsewhere", "/elsewhere")):
        monkeypatch.setenv("GISTGNN_DATA", value) if value else monkeypatch.delenv("GISTGNN_DATA", raising=False)
        assert {root(command) for command in commands} == {expected}
    assert root("train --data-root here") == "here"
    assert root("evaluate run") is None  # the run's, first


def test_python_has_the_defaults_of_the_command(tmp_path: Path, cli: Cli) -> None:
    graph, phases = load("digits"), [Phase(2, 4), Phase(1, 2)]
    for options, keywords in ((("--epochs", 8), {"epochs": 8}), (("--phases", "2:4", "1:2"), {"phases": phases})):
        assert cli("train", *options, "--hidden", 32, "--out", "run", "--overwrite").returncode == 0
        gist = GIST(lambda widths: GCN(64, widths, 10, dropout=0.5), (32,))
        found = gist.fit(graph, progress=False, **keywords).model.state_dict()
        expected = load_file("run/model.safetensors")
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], value) for name, value in expected.items())
