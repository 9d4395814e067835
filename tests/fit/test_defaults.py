"""Keywords of `fit`, a `Training` and the command line have one set of defaults."""

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import GIST, Training
from gistgnn.baselines import DataParallel, Ensemble, LocalSGD
from gistgnn.cli.further_settings import SETTINGS
from gistgnn.cli.main import make_parser
from gistgnn.cli.training_options import config_from_args, given_sub_gcns
from gistgnn.nn import GCN
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import ClusterSampling
from tests.helpers.fitting import GRAPH, same, theta
from tests.helpers.models import C, F

METHODS: dict[str, Any] = {
    "gist": GIST,
    "local-sgd": LocalSGD,
    "data-parallel": DataParallel,
    "ensemble": Ensemble,
}
STEPS: list[int] = []


class Counting(torch.optim.SGD):
    """Counts the steps that are taken on the parameters of a model.

    Those that are tried before have two rows.
    """

    def step(self, *args: Any) -> None:  # type: ignore[override]
        if len(self.param_groups[0]["params"][0]) > 2:
            STEPS.append(1)
        super().step(*args)


def trainer(method: str, workers: int, hidden: tuple[int, ...] = (12, 12), **options: Any) -> GIST:
    made: GIST = METHODS[method](lambda widths: GCN(F, widths, C), hidden, workers, **options)
    return made


def from_command(*words: object) -> RunConfig:
    args = make_parser().parse_args(
        ["train", "--dataset", "cora", "--device", "cpu", *map(str, words)]
    )
    return config_from_args(args, given_sub_gcns(args))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["split", "each"])
@pytest.mark.parametrize("method", METHODS)
def test_every_worker_takes_a_hundred_epochs(method: str, kind: Any) -> None:
    m = 3
    sampler = ClusterSampling(2, 2, method="random")  # An epoch has one step.
    STEPS.clear()
    if method in ("gist", "data-parallel"):
        trainer(method, m).fit(GRAPH, kind, optimizer=Counting, sampler=sampler, progress=False)
    else:
        trainer(method, m).fit(
            GRAPH, Training(training=kind, optimizer=Counting), sampler=sampler, progress=False
        )
    # Data-parallel training takes one step on the mean of all workers' gradients.
    optimizers = 1 if method == "data-parallel" else m
    assert len(STEPS) == 100 * optimizers
    config = from_command(
        "--set", f"training={kind}", "--sub-gcns", m, "--method", method, "--sampler", "clusters"
    )
    assert config.training.epochs == (100 if kind == "each" else 100 * m)


OWN: dict[str, Any] = {
    "epochs": st.integers(1, 50),
    "lr": st.sampled_from([0.003, 0.5]),
    "schedule": st.sampled_from(["constant", "step", "cosine"]),
    "optimizer_state": st.sampled_from(["reset", "carry"]),
    "training": st.sampled_from(["split", "each"]),
    "optimizer": st.sampled_from(["adam", "adamw", "sgd"]),
    "evaluate_every": st.sampled_from(["auto", 2]),
    "weight_decay": st.sampled_from([0.0, 0.1]),
    "patience": st.integers(1, 9),
}


@given(
    options=st.fixed_dictionaries({}, optional=OWN),
    hidden=st.tuples(st.sampled_from([64, 500, 3000]), st.sampled_from([64, 500, 3000])),
    m=st.integers(1, 16),
    method=st.sampled_from(sorted(METHODS)),
    scaling=st.sampled_from(["mup", "none"]),
)
@settings(max_examples=25, deadline=None)
def test_settings_are_the_same_however_they_are_given(
    options: dict[str, Any], hidden: tuple[int, ...], m: int, method: str, scaling: str
) -> None:
    words: list[Any] = ["--sub-gcns", m, "--method", method, "--hidden", *hidden]
    words += ["--set", f"width_scaling={scaling}"]
    for name, value in options.items():
        if name in SETTINGS:
            words += ["--set", f"{name}={value}"]
        else:
            words += [f"--{name.replace('_', '-')}", value]
    if method in ("local-sgd", "data-parallel"):
        words += ["--sampler", "clusters"]
    config = from_command(*words)
    gist = trainer(method, m, hidden, width_scaling=scaling)
    completed = gist._complete_settings(None, options)
    assert completed == gist._complete_settings(Training(**options), {}) == config.training
    from_python = RunConfig(
        "cora", config.model, m, method, training=Training(**options), width_scaling=scaling
    )
    assert from_python.training == config.training
    epochs = 100 if options.get("training") == "each" else 100 * m
    lr = 0.01
    if m > 1 and method in ("gist", "ensemble") and scaling == "none":
        narrowness = 256 * m / max(hidden)
        lr = min(0.01 * max(1, min(m, narrowness)), 0.1)
    assert config.training.epochs == options.get("epochs", epochs)
    assert config.training.lr == options.get("lr", lr)


def test_defaults_can_be_made_without_a_number_and_train_in_the_same_way() -> None:
    runs = [trainer("gist", 3) for _ in range(3)]
    runs[0].fit(GRAPH, progress=False)
    runs[1].fit(GRAPH, Training(), progress=False)
    explicit = {"epochs": 300, "lr": 0.01, "schedule": "cosine", "optimizer_state": "carry"}
    runs[2].fit(GRAPH, Training(**explicit), progress=False)
    assert same(theta(runs[0]), theta(runs[1]))
    assert same(theta(runs[0]), theta(runs[2]))


def test_epochs_may_be_a_fraction() -> None:
    sampler = ClusterSampling(8, 1, method="random")  # An epoch has eight steps.
    run = partial(trainer("gist", 1).fit, GRAPH, sampler=sampler, progress=False)
    assert [run(epochs=epochs).progress.steps for epochs in (0.25, 1, 2.5)] == [2, 8, 20]
    assert from_command("--epochs", 2.5).training.epochs == 2.5
    training = Training(40.0)
    assert (training.epochs, type(training.epochs)) == (40, int)
