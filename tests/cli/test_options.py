"""The options of `gistgnn train` against the dataclasses that they fill."""

import operator
import re
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.inspect import FloatType, IntType
from safetensors.torch import load_file
from torch.distributed.run import get_args_parser

from gistgnn import GIST
from gistgnn.cli.further_settings import SETTINGS
from gistgnn.cli.main import make_parser
from gistgnn.cli.training_options import config_from_args, given_sub_gcns
from gistgnn.errors import InputError
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import load
from gistgnn.nn import GCN
from gistgnn.nn.scaling import saved_state
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.sampling import AutoSampling, ClusterSampling, LadiesSampling
from gistgnn.sampling.registry import SAMPLERS
from gistgnn.settings import Training
from gistgnn.utils.checks import setting_types, types_of

from .conftest import Cli
from .in_process import run


def config_of(*words: str) -> RunConfig:
    args = make_parser().parse_args(["train", "--device", "cpu", *words])
    return config_from_args(args, given_sub_gcns(args))


def test_without_options_every_value_is_the_default() -> None:
    config = config_of("--sub-gcns", "1")
    assert config == RunConfig(
        "digits", ModelConfig(dropout=0.2), standardise=True, sampler=AutoSampling()
    )
    assert config.training == Training(epochs=100, lr=0.01)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # One learning rate suits every width; plain rates grow as sub-GCNs become narrower.
        ("--sub-gcns 4", {"lr": 0.01}),
        ("--sub-gcns 4 --set width_scaling=none", {"lr": 0.04}),
        ("--sub-gcns 16 --set width_scaling=none", {"lr": 0.1}),
        ("--sub-gcns 8 --hidden 4096", {"lr": 0.01}),
        ("--sub-gcns 4 --method local-sgd", {"lr": 0.01}),
        ("--budget 10s", {"lr": 0.01}),
        # The default of m suits the width, and the epochs suit m.
        ("--dataset reddit", {"m": 1, "epochs": 100, "dropout": 0.2}),
        ("--dataset reddit --hidden 512 1200 --set partition_dims=1", {"m": 1, "epochs": 100}),
        ("--dataset reddit --hidden 8000", {"m": 8, "epochs": 800}),
        ("--dataset reddit --sub-gcns 4 --lr 0.5", {"m": 4, "epochs": 400, "lr": 0.5}),
        ("--dataset reddit --epochs 7", {"m": 1, "epochs": 7}),
        ("--dataset reddit --method parts --sub-gcns 4", {"m": 4, "epochs": 400, "lr": 0.01}),
        # Words are not standardised, and the norm suits the model.
        ("--dataset cora", {"standardise": False, "norm": "none"}),
        ("--dataset cora --sub-gcns 2", {"norm": "layer"}),
        ("--dataset digits --no-standardise", {"standardise": False}),
        (
            "--dataset synthetic:reddit@0.1 --model graphsage",
            {"standardise": True, "norm": "layer"},
        ),
        ("--dataset own.npz --model graphsage --norm none", {"standardise": None, "norm": "none"}),
        # Settings of clusters need no sampler, and a sampler needs no settings.
        ("--set batches=independent", {"sampler": AutoSampling(batches="independent")}),
        ("--sampler clusters", {"sampler": ClusterSampling()}),
        (
            "--clusters 30 --set precompute=false",
            {"sampler": ClusterSampling(30, precompute=False)},
        ),
        ("--sampler full", {"sampler": None}),
    ],
)
def test_what_is_not_given_suits_the_graph_and_what_is_given(
    words: str, expected: dict[str, Any], cli: Cli, own_graph: Path
) -> None:
    config = config_of(*words.split())
    settings = {
        "lr": config.training.lr,
        "epochs": config.training.epochs,
        "m": config.sub_gcns,
        "dropout": config.model.dropout,
        "norm": config.model.norm,
        "standardise": config.standardise,
        "sampler": config.sampler,
    }
    assert {name: settings[name] for name in expected} == pytest.approx(expected)


def test_every_setting_of_training_is_an_option_or_one_of_set() -> None:
    values = {
        "epochs": 7,
        "local_steps": 3,
        "training": "each",
        "optimizer": "sgd",
        "lr": 0.5,
        "weight_decay": 0.25,
        "momentum": 0.5,
        "schedule": "step",
        "optimizer_state": "carry",
        "precision": "bf16",
        "clip_norm": 2.0,
        "patience": 4,
        "evaluate_every": 2,
        "loss": "cross-entropy",
        "class_weights": "balanced",
        "label_smoothing": 0.1,
        "metric": "f1_macro",
    }
    instead_of_epochs = {"budget"}
    assert values.keys() == setting_types(Training).keys() - instead_of_epochs
    words: list[str] = []
    for name, value in values.items():
        if name in SETTINGS:
            words += ["--set", f"{name}={value}"]
        else:
            words += [f"--{name.replace('_', '-')}", str(value)]
    assert config_of(*words).training == Training(**values)


def test_set_takes_json_numbers_with_commas_and_text() -> None:
    words = [
        "partition_dims=0,2",
        "width_scaling=none",
        "precompute=False",
        "cluster_method=random",
    ]
    config = config_of(
        "--set", *words, "momentum=0.5", "--optimizer", "sgd", "--set", "momentum=0.25"
    )
    assert (config.partitioned, config.width_scaling, config.training.momentum) == (
        (0, 2),
        "none",
        0.25,
    )
    assert config.sampler == ClusterSampling(method="random", precompute=False)
    assert config_of("--set", "partition_dims=1").partitioned == (1,)
    ladies = config_of(
        "--sampler", "ladies", "--set", "nodes_per_layer=30,20,10", "row_normalise=false"
    )
    assert ladies.sampler == LadiesSampling(nodes_per_layer=(30, 20, 10), row_normalise=False)
    scored = config_of("--evaluation", "parts", "--set", "parts=8", "parts_sample=2")
    assert scored.evaluation == Evaluation("parts", parts=8, sample=2)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("momentun=0.9", "momentum"),
        ("lr=0.1", "--lr"),
        ("momentum", "momentum"),
        ("activation=tanh", "relu"),
    ],
)
def test_set_names_what_it_refuses_and_what_to_give(
    setting: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "--set", setting) == 2
    message = capsys.readouterr().err
    assert setting.partition("=")[0] in message
    assert expected in message
    assert message.count("\n") == 1


def test_every_setting_of_set_has_a_field() -> None:
    kinds = {
        "model": [ModelConfig],
        "run": [RunConfig],
        "training": [Training],
        "evaluation": [Evaluation],
    }
    for name, (part, field) in SETTINGS.items():
        kinds_of_part = kinds.get(part, SAMPLERS.values())
        assert any(field == entry.name for kind in kinds_of_part for entry in fields(kind)), name


def test_every_field_of_a_sampler_is_an_option_or_one_of_set() -> None:
    options = vars(make_parser().parse_args(["train"])).keys() | {"fanouts"}
    settings = {field for part, field in SETTINGS.values() if part == "sampler"}
    for kind in SAMPLERS.values():
        assert {field.name for field in fields(kind)} <= options | settings


def numbers_of(kind: type) -> dict[str, IntType | FloatType]:
    """Return the settings of a dataclass that are numbers in a range, by name."""
    numbers = {}
    for name, hint in setting_types(kind).items():
        for part in types_of(hint):
            if isinstance(part, (IntType, FloatType)):
                numbers[name] = part
    numbers.pop("budget", None)  # it has a check of its own
    return numbers


@given(st.data())
def test_a_value_out_of_a_field_s_range_is_refused_and_one_within_is_taken(
    data: st.DataObject,
) -> None:
    """What a field says of itself decides, whichever way the settings are made."""
    kinds = [(Training, {"epochs": 1}), (ModelConfig, {}), (RunConfig, {"dataset": "x"})]
    kind, needed = data.draw(st.sampled_from(kinds))
    numbers = numbers_of(kind)
    name = data.draw(st.sampled_from(sorted(numbers.keys() - {"epochs", "momentum"})))
    number = numbers[name]
    is_integer = isinstance(number, IntType)
    values = st.integers(-3, 2**64) if is_integer else st.floats(allow_nan=True) | st.just(1)
    value = data.draw(values)
    bounds = {operator.ge: number.ge, operator.gt: number.gt}
    bounds |= {operator.le: number.le, operator.lt: number.lt}
    assert sum(bound is not None for bound in bounds.values()) == 2
    if all(bound is None or holds(value, bound) for holds, bound in bounds.items()):
        assert getattr(kind(**{**needed, name: value}), name) == value
    else:
        with pytest.raises(InputError, match=f"^{name} is .*, expected"):
            kind(**{**needed, name: value})


@pytest.mark.parametrize("name", ["train", "compare", "plan", "evaluate", "predict"])
def test_help_is_short_and_help_all_is_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    names = {}
    for option in ("--help", "--help-all"):
        assert run(name, option) == 0
        shown[option] = capsys.readouterr().out
        names[option] = set(re.findall(r"^  (?:-[a-z], )?(--[a-z-]+)", shown[option], re.MULTILINE))
    assert shown["--help"].startswith(f"usage: gistgnn {name} [options]")
    assert f"example:\n  $ gistgnn {name} " in shown["--help"]
    assert names["--help"] < names["--help-all"]
    assert re.search(r"--help-all .* shows \d+ more options", shown["--help"])


@pytest.mark.parametrize("name", [*make_parser().commands.choices, ""])
def test_help_fits_on_a_screen(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(*name.split(), "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert all(len(line) <= 80 for line in lines)
    assert not any(line.endswith(" ...") for line in lines[1:]), "no help is cut"


def completions(script: Path, *words: str) -> set[str]:
    """What bash offers for the last of the words."""
    line = " ".join(f"'{word}'" for word in words)
    code = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _gistgnn"
    shell = subprocess.run(
        ["bash", "-c", f'{code}; printf "%s\n" "${{COMPREPLY[@]}}"'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(shell.stdout.split())


def test_a_shell_completes_commands_options_and_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--print-completion") == 0
    script = tmp_path / "completion"
    script.write_text(capsys.readouterr().out)
    assert completions(script, "gistgnn", "tr") == {"train"}
    assert completions(script, "gistgnn", "") >= set(make_parser().commands.choices)
    assert completions(script, "gistgnn", "train", "--sub") == {"--sub-gcns"}
    assert completions(script, "gistgnn", "train", "--sampler", "sa") == {
        "saint-node", "saint-edge", "saint-rw"
    }  # fmt: skip
    assert completions(script, "gistgnn", "train", "--model", "gr") == {"graphsage"}
    assert completions(script, "gistgnn", "reproduce", "tab") == {"table1"}
    assert completions(script, "gistgnn", "train", "--out", "x") == set(), "a file"
    for name, command in make_parser().commands.choices.items():
        names = {word for option in command.options for word in option.option_strings}
        assert completions(script, "gistgnn", name, "-") == names


def test_every_option_has_a_name_that_torchrun_leaves_alone() -> None:
    """It takes the beginning of one of its own for the whole."""
    names_of_torchrun = [*get_args_parser()._option_string_actions]
    for action in make_parser().commands.choices["train"].options:
        if not action.option_strings or "--help" in action.option_strings:
            continue
        names_left_alone = [
            name
            for name in action.option_strings
            if not any(other.startswith(name) for other in names_of_torchrun)
        ]
        assert names_left_alone, action.dest


def test_the_environment_says_where_data_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def root(words: str) -> str | None:
        return make_parser().parse_args(words.split()).data_root

    commands = ("train", "datasets", "plan", "reproduce table1", "theory check karate")
    monkeypatch.delenv("GISTGNN_DATA", raising=False)
    assert {root(command) for command in commands} == {"data"}
    monkeypatch.setenv("GISTGNN_DATA", "/elsewhere")
    assert {root(command) for command in commands} == {"/elsewhere"}
    assert root("train --data-root here") == "here"
    assert root("evaluate run") is None  # the run's, first


def test_python_has_the_defaults_of_the_command(tmp_path: Path, cli: Cli) -> None:
    graph = load("digits")
    train = ("train", "--epochs", 8, "--hidden", 32, "--out", "run", "--overwrite")
    for options, m, norm in (((), 1, "none"), (("--sub-gcns", 2), 2, "layer")):
        assert cli(*train, *options).returncode == 0
        gist = GIST(lambda widths, norm=norm: GCN(64, widths, 10, dropout=0.2, norm=norm), (32,), m)
        state = saved_state(gist.fit(graph, progress=False, epochs=8).model)
        expected = load_file("run/model.safetensors")
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[name], value) for name, value in expected.items())
