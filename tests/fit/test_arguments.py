"""Every argument of `GIST`, `fit`, `Loop` and `rounds` is used, or refused before training."""

import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data

from gistgnn import GIST, Callback, Loop, Saving, Training
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.nn import GCN
from gistgnn.theta.registry import Store
from tests.helpers.fitting import GRAPH, fit, gcn, same, theta
from tests.helpers.models import PYG, C, F
from tests.helpers.refusals import refused, refused_value


def make(**options: Any) -> GIST:
    return GIST(**{"build": gcn(), "widths": (8, 8), "sub_gcns": 2, **options})


def test_settings_train_the_same_one_by_one_and_as_a_training() -> None:
    by_keywords = make()
    by_training = make()
    result = by_keywords.fit(GRAPH, epochs=4, lr=0.02, patience=None, progress=False)
    expected = by_training.fit(GRAPH, training=Training(4, lr=0.02), progress=False)
    assert result.test == expected.test
    assert same(theta(by_keywords), theta(by_training))


def test_the_second_argument_of_fit_may_be_what_epochs_count() -> None:
    assert make().fit(GRAPH, "each", epochs=4, progress=False).progress.rounds == 1


def test_widths_may_be_numbers_of_numpy_and_are_split_by_units() -> None:
    gist = make(widths=list(np.array([8, 7])))
    assert gist.widths == (8, 7)
    assert fit(gist, epochs=2).progress.rounds
    assert make(build=PYG["gcn"], widths=np.int64(8)).shared
    # Two heads share 12 features, so each of them has six.
    with refused("sub_gcns is 7", "6 features"):
        GIST(PYG["gat"], 12, 7)


# No argument can be this.
ODD = type("Odd", (), {"__repr__": lambda _: "odd"})()
# What a message calls an argument that users may give in several forms.
WORDS = {"sampler": "(sampler|loader)", "widths": "(widths|width)"}


def names_of(function: Any) -> set[str]:
    return {*inspect.signature(function).parameters} - {"self", "graph", "settings"}


@pytest.mark.parametrize("name", sorted(names_of(GIST.fit) | {*Training.__dataclass_fields__}))
def test_every_argument_of_fit_is_checked(name: str) -> None:
    for value in (ODD, "odd", -1, float("nan"), [ODD]):
        with refused_value(WORDS.get(name, name), value):
            make().fit(GRAPH, **{"epochs": 1, "progress": False, name: value})


def test_what_a_new_user_forgets_is_named() -> None:
    with refused("widths is missing"):
        GIST(gcn(), sub_gcns=2)
    with refused("the data is a list; ", "examples/graph_classification.py"):
        make().fit([], epochs=1)  # type: ignore[arg-type]
    with refused("has no y, ", "examples/link_prediction.py"):
        make().fit(Data(x=GRAPH.x, edge_index=GRAPH.edge_index, edge_label=GRAPH.y), epochs=1)


@pytest.mark.parametrize("name", sorted(names_of(GIST.__init__)))
def test_every_argument_of_gist_is_checked(name: str) -> None:
    for value in (ODD, -1, float("nan"), [ODD], 10**30):
        with refused_value(WORDS.get(name, name), value):
            make(**{name: value})


def test_every_argument_of_a_loop_of_rounds_and_of_saving_is_checked(tmp_path: Path) -> None:
    for name in names_of(Loop.__init__):
        with refused("odd"):
            Loop(**{"gist": make(), "rounds": 1, name: ODD})
    for unused in ({"evaluate_every": 2}, {"patience": 2}, {"higher_is_better": False}):
        with refused("there is no validate"):
            Loop(make(), 1, **unused)  # type: ignore[arg-type]
    for count in (-1, 1.5, None, 10**30):
        with refused("count is"):
            next(make().rounds(count))  # type: ignore[arg-type]
    values: list[tuple[str, Any]] = [("path", 3), ("every", 0), ("every", 1.5)]
    for name, value in [*values, ("resume", 1), ("config", 3)]:
        with refused_value(name, value):
            Saving(**{"path": tmp_path, name: value})
    assert Saving(str(tmp_path)).path == tmp_path  # type: ignore[arg-type]
    with refused_value("store", ["memory"]):
        Store(["memory"])  # type: ignore[arg-type]
    with refused_value("folder", 3):
        Store("disk", folder=3)  # type: ignore[arg-type]
    with refused_value("precision", 1):
        Store(precision=1)  # type: ignore[arg-type]


OF_FIT: dict[str, dict[str, Any]] = {
    "lr is given beside a Training": {"training": Training(epochs=1), "lr": 0.1},
    "the metric <lambda> returned a str": {"epochs": 1, "metric": lambda logits, targets: "good"},
    "cannot take a step": {"epochs": 1, "optimizer": torch.optim.LBFGS},
    "callbacks is a type, expected a list": {"epochs": 1, "callbacks": Callback},
    "is the class Callback, expected an object: add ()": {"epochs": 1, "callbacks": [Callback]},
    "max_seconds is 0, expected a number > 0": {"epochs": 1, "max_seconds": 0},
    "max_seconds is 3, but a budget": {"budget": 5, "max_seconds": 3},
    "is [16, 7] in init, [8, 7] in the model of the full widths": {
        "epochs": 1,
        "init": gcn()((16, 8)),
    },
    "init has no 'convs.0.weight'": {"epochs": 1, "init": nn.Linear(2, 2)},
    "init is given beside a budget, which begins with narrow models": {
        "budget": 5,
        "init": gcn()((8, 8)),
    },
}
OF_TRAINING: dict[str, dict[str, Any]] = {
    "epochs is 0": {"epochs": 0},
    "epochs is given beside a budget, which chooses it": {"budget": 3.0, "epochs": 4},
    "local_steps is given beside a budget, which chooses it": {"budget": 3.0, "local_steps": 4},
    "evaluate_every is given beside a budget, which chooses it": {
        "budget": 3.0,
        "evaluate_every": 4,
    },
    "schedule is 'step', but a budget": {"budget": 3.0, "schedule": "step"},
    "budget is 0.0": {"budget": 0.0},
}


def test_what_does_not_fit_is_refused_before_training() -> None:
    trained: list[int] = []
    watching = {"callbacks": [InterruptWhen(lambda: trained.append(1))], "progress": False}
    for message, options in OF_FIT.items():
        with refused(message):
            make().fit(GRAPH, **{**watching, **options})
    for typo, name in {"epoch": "epochs", "optimiser": "optimizer", "runer": "runner"}.items():
        message = f"unexpected keyword argument '{typo}': did you mean {name}"
        with pytest.raises(TypeError, match=message):
            make().fit(GRAPH, **{typo: 3})
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'xyz'$"):
        make().fit(GRAPH, xyz=3)
    with refused("Data"):
        make().fit("graph", epochs=1)  # type: ignore[arg-type]
    assert not trained


def test_settings_out_of_range_are_refused() -> None:
    for number in (0, -1.5, math.nan, True, "3", 10**5000):
        with refused("epochs is"):
            Training(number)  # type: ignore[arg-type]
    with refused("weight_decay is None"):
        Training(1, weight_decay=None)  # type: ignore[arg-type]
    with refused("epochs is given beside a budget"):
        Training(0, budget=3.0)
    for message, options in OF_TRAINING.items():
        with refused(message):
            Training(**options)


def test_arguments_of_gist_out_of_range_are_refused() -> None:
    with refused("widths is missing"):
        make(widths=())
    for widths in (
        (8, 0),
        (-1,),
        (8.0,),
        (8, True),
        (np.float64(8),),
        "ab",
        True,
        0,
        8.5,
        None,
        {"a": 1},
    ):
        with refused("widths is", repr(widths)):
            make(widths=widths)
    with refused("input_axis is 2", "0 to 1"):
        make(input_axis=2)


def test_a_model_that_does_not_fit_the_graph_is_refused() -> None:
    cases: tuple[tuple[Any, Any, tuple[str, ...]], ...] = (
        (lambda w: GCN(F, w, 4), (8,), ("4 outputs", "graph needs 3")),
        (lambda w: pyg.models.GCN(F + 1, w, 2, C), 8, (f"[24, {F}]",)),
        (lambda w: GCN(F + 1, w, C), (8,), ("[24, 7]",)),
    )
    for build, widths, messages in cases:
        with refused(*messages):
            fit(GIST(build, widths, 2))


def test_what_cannot_fit_is_refused_before_it_is_made() -> None:
    gist = make(widths=(10**6, 10**6))
    with refused("a step of one sub-GCN computes", "are free", "raise sub_gcns"):
        gist.fit(GRAPH, epochs=1, progress=False)
    with refused("the model of widths"):
        gist.model()
