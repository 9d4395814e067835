"""One set of defaults: `fit` with keywords, `fit` with a `Training`, and the command line train in
the same way.
"""

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
    """Counts the steps that are taken on the parameters of a model; those that are tried before
    have two rows.
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
@pytest.mark.parametrize("how", ["split", "each"])
@pytest.mark.parametrize("method", METHODS)
def test_every_worker_takes_a_hundred_epochs(method: str, how: Any) -> None:
    # one step in an epoch
    m = 3
    sampler = ClusterSampling(2, 2, method="random")
    STEPS.clear()
    if method in ("gist", "data-parallel"):
        trainer(method, m).fit(GRAPH, how, optimizer=Counting, sampler=sampler, progress=False)
    else:
        trainer(method, m).fit(
            GRAPH, Training(training=how, optimizer=Counting), sampler=sampler, progress=False
        )
    # it takes one step on the mean of all workers' gradients
    optimizers = 1 if method == "data-parallel" else m
    assert len(STEPS) == 100 * optimizers
    config = from_command(
        "--set", f"training={how}", "--sub-gcns", m, "--method", method, "--sampler", "clusters"
    )
    assert config.training.epochs == (100 if how == "each" else 100 * m)


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
    given=st.fixed_dictionaries({}, optional=OWN),
    hidden=st.tuples(st.sampled_from([64, 500, 3000]), st.sampled_from([64, 500, 3000])),
    m=st.integers(1, 16),
    method=st.sampled_from(sorted(METHODS)),
    scaling=st.sampled_from(["mup", "none"]),
)
@settings(max_examples=25, deadline=None)
def test_settings_are_the_same_however_they_are_given(
    given: dict[str, Any], hidden: tuple[int, ...], m: int, method: str, scaling: str
) -> None:
    words: list[Any] = []
    for name, value in given.items():
        words += (
            ["--set", f"{name}={value}"]
            if name in SETTINGS
            else [f"--{name.replace('_', '-')}", value]
        )
    words += [
        "--sub-gcns",
        m,
        "--method",
        method,
        "--hidden",
        *hidden,
        "--set",
        f"width_scaling={scaling}",
    ]
    config = from_command(
        *words, *(["--sampler", "clusters"] if method in ("local-sgd", "data-parallel") else [])
    )
    gist = trainer(method, m, hidden, width_scaling=scaling)
    completed = gist._complete_settings(None, given)
    assert completed == gist._complete_settings(Training(**given), {}) == config.training
    from_python = RunConfig(
        "cora", config.model, m, method, training=Training(**given), width_scaling=scaling
    )
    assert from_python.training == config.training
    epochs = 100 if given.get("training") == "each" else 100 * m
    splits = m > 1 and method in ("gist", "ensemble") and scaling == "none"
    lr = min(0.01 * max(1, min(m, 256 * m / max(hidden))), 0.1) if splits else 0.01
    assert (config.training.epochs, config.training.lr) == (
        given.get("epochs", epochs),
        given.get("lr", lr),
    )


def test_defaults_can_be_made_without_a_number_and_train_in_the_same_way() -> None:
    runs = [trainer("gist", 3) for _ in range(3)]
    runs[0].fit(GRAPH, progress=False)
    runs[1].fit(GRAPH, Training(), progress=False)
    explicit = {"epochs": 300, "lr": 0.01, "schedule": "cosine", "optimizer_state": "carry"}
    runs[2].fit(GRAPH, Training(**explicit), progress=False)
    assert same(theta(runs[0]), theta(runs[1]))
    assert same(theta(runs[0]), theta(runs[2]))


def test_epochs_may_be_a_fraction() -> None:
    sampler = ClusterSampling(8, 1, method="random")  # eight steps in an epoch
    run = partial(trainer("gist", 1).fit, GRAPH, sampler=sampler, progress=False)
    assert [run(epochs=epochs).progress.steps for epochs in (0.25, 1, 2.5)] == [2, 8, 20]
    assert from_command("--epochs", 2.5).training.epochs == 2.5
    whole = Training(40.0)
    assert (whole.epochs, type(whole.epochs)) == (40, int)
