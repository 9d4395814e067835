"""`--config FILE`: a run again, or otherwise."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from gistgnn.cli.config_file import settings_of_run, with_config_file
from gistgnn.cli.main import make_parser
from gistgnn.cli.training_options import config_from_args, given_sub_gcns
from gistgnn.runs.config import RunConfig

from .conftest import Cli
from .in_process import run
from .test_train import SMALL


def config_of(words: list[str]) -> RunConfig:
    parser = make_parser()
    args = parser.parse_args(with_config_file(words, parser))
    return config_from_args(args, given_sub_gcns(args))


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--sub-gcns 4 --hidden 64 32 16 --norm batch --dropout 0 --epochs 2.5 --lr 1e-5 --seed 3",
        "--model gat --set heads=2 activation=elu attention_dropout=0.5 --no-standardise "
        "--inductive",
        "--method parts --sub-gcns 2 --set training=each --schedule step --patience 3 "
        "--evaluate-every 5",
        "--optimizer sgd --set momentum=0.9 clip_norm=2 label_smoothing=0.1 --class-weights 1 2 "
        "3.5",
        "--class-weights balanced --metric f1_macro --loss cross-entropy --set precision=bf16",
        "--clusters 12 --clusters-per-batch 3 --set cluster_method=random precompute=false "
        "batches=independent",
        "--sampler neighbor --fanout 4 7 --batch-size 9",
        "--sampler ladies --set nodes_per_layer=5,6,7 row_normalise=false",
        "--sampler saint-rw --batch-size 50 --set walk_length=4 --runner fused",
        "--sampler full --set partition_dims=2 width_scaling=none",
        "--evaluation parts --set parts=7 parts_sample=2 --set base_width=64",
        "--evaluation layers --evaluation-memory 300MB",
        "--budget 90s --hidden 512 512",
    ],
)
def test_a_record_gives_the_run_again(words: str, tmp_path: Path) -> None:
    """All that decides the result is the same; where the run trains is left to the machine."""
    first = config_of(["train", "--device", "cpu", *words.split()])
    path = tmp_path / "result.json"
    record = {"config": first.as_dict(), "data_root": "elsewhere"}
    path.write_text(json.dumps(record), encoding="utf-8")
    again = config_of(["train", "--config", str(path), "--device", "cpu"])
    assert again == first
    assert settings_of_run(record, path)["data_root"] == "elsewhere"
    assert config_of(["train", "--seed", "8", "--config", str(path)]) == replace(again, seed=8)


def test_a_run_is_trained_again_from_its_record(cli: Cli, own_graph: Path, tmp_path: Path) -> None:
    words = (*SMALL, "--sub-gcns", 2, "--epochs", 4, "--set", "clip_norm=1")
    assert cli("train", *words, "--out", "first").returncode == 0
    assert cli("train", "--config", "first/result.json", "--out", "again").returncode == 0
    models = [load_file(tmp_path / name / "model.safetensors") for name in ("first", "again")]
    assert models[0].keys() == models[1].keys()
    assert all(models[0][name].equal(models[1][name]) for name in models[0])
    completed = cli("train", "--config", "first/result.json", "--out", "first", "--resume")
    assert completed.returncode == 0, completed.stderr


def test_a_record_gives_its_settings_to_a_comparison_and_to_a_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but those that these commands choose in another way: the method, and the seeds."""
    options = "--sub-gcns 4 --hidden 64 --norm batch --epochs 2.5 --seed 3 --set clip_norm=2"
    first = config_of(["train", "--device", "cpu", *options.split()])
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"config": first.as_dict()}), encoding="utf-8")
    parser = make_parser()
    for command in ("compare", "plan"):
        words = [command, "--config", str(path), "--device", "cpu"]
        args = parser.parse_args(with_config_file(words, parser))
        assert args.sub_gcns == [4]
        again = config_from_args(args, 4)
        seed = 3 if command == "plan" else 0
        assert replace(again, seed=seed) == replace(first, seed=seed)
    parts = replace(first, method="parts").as_dict()
    path.write_text(json.dumps({"config": parts}), encoding="utf-8")
    assert run("plan", "--config", str(path)) == 2
    assert "'method' is no option" in capsys.readouterr().err
    with_config_file(["compare", "--config", str(path)], parser)


def test_entries_of_a_toml_file_are_options_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'model = "graphsage"\nhidden = [32, 8]\nsub-gcns = 2\nmax_seconds = "5min"\nstandardise = '
        "false\n"
        "inductive = true\nmomentum = 0.5\noptimizer = 'sgd'\npartition_dims = [1]\n",
        encoding="utf-8",
    )
    config = config_of(["train", "--config", str(path), "--no-inductive", "--set", "momentum=0.75"])
    assert (config.model.name, config.model.hidden, config.sub_gcns) == ("graphsage", (32, 8), 2)
    assert (config.standardise, config.inductive, config.partitioned) == (False, False, (1,))
    assert config.training.momentum == 0.75


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.toml", "epoch = 3", "did you mean epochs"),
        ("a.toml", "xyz = 3", "'xyz' is no option"),
        ("a.toml", "epochs = ", "a.toml cannot be read"),
        ("a.toml", "epochs = -1", "epochs is -1"),
        ("a.toml", "lr = false", "--lr is 'False'"),
        ("a.toml", "inductive = 3", "inductive is 3, expected true or false"),
        ("a.toml", "overwrite = 'no'", "overwrite is 'no', expected true or false"),
        ("a.toml", "set = ['momentum=0.9']", "'set' is no option"),
        ("a.toml", 'config = "b.toml"', "'config' is no option"),
        ("a.toml", "[model]\nname = 'gcn'", "model is a table"),
        ("a.json", "{", "a.json cannot be read"),
        ("a.json", "{}", "a.json is not the record of a run"),
        ("a.json", "[3]", "a.json is not the record of a run"),
        ("a.json", '{"config": {"model": "gcn"}}', "a.json is not the record of a run"),
        ("a.json", '{"config": {"model": {}}}', "a.json is not the record of a run"),
        ("a.json", '{"config": {"model": {"own": true}}}', "a run from Python"),
        ("none.toml", None, "none.toml cannot be read"),
    ],
)
def test_a_wrong_file_is_refused_in_a_line(
    name: str, text: str | None, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert run("train", "--config", str(path)) == 2
    message = capsys.readouterr().err
    assert expected in message
    assert "KeyError" not in message
    assert message.count("\n") == 1
