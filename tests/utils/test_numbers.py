"""Numbers of NumPy and torch are taken wherever a number is expected, and records have Python's."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.inspect import FloatType, IntType

from gistgnn import GIST, InputError, Loop, Saving, Training
from gistgnn.baselines import DataParallel, LocalSGD
from gistgnn.evaluation import Evaluation
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.sampling import SAMPLERS, ClusterSampling, NeighborSampling, describe
from gistgnn.utils.checks import as_integer, as_number, setting_types, types_of
from tests.helpers.fitting import GRAPH, gcn, same, theta

INTEGERS = [np.int64, np.int32, np.uint8, np.array, torch.tensor]
FLOATS = [np.float64, np.float32, np.float16, np.array, torch.tensor]


@given(value=st.integers(0, 200), kind=st.sampled_from(INTEGERS))
def test_integers_become_those_of_python(value: int, kind: Any) -> None:
    assert (as_integer(kind(value)), type(as_integer(kind(value)))) == (value, int)
    assert type(as_number(kind(value))) is int


@given(value=st.sampled_from([0.5, 0.25, 3.0]), kind=st.sampled_from(FLOATS))
def test_floats_become_those_of_python(value: float, kind: Any) -> None:
    assert (as_number(kind(value)), type(as_number(kind(value)))) == (value, float)
    assert as_integer(kind(value)) is None


@pytest.mark.parametrize(
    "value",
    [
        True,
        np.True_,
        torch.tensor(True),
        np.array([3]),
        torch.tensor([3]),
        "3",
        None,
        3j,
        np.array("3"),
        [3],
    ],
    ids=repr,
)
def test_flags_and_others_are_no_numbers(value: Any) -> None:
    assert as_integer(value) is None
    assert as_number(value) is None


SETTINGS: list[tuple[Any, dict[str, Any]]] = [
    (Training, {}),
    (ModelConfig, {}),
    (RunConfig, {"dataset": "x"}),
]
NUMBERS = [
    pytest.param(kind, needed, name, isinstance(part, IntType), id=name)
    for kind, needed in SETTINGS
    for name, hint in setting_types(kind).items()
    for part in types_of(hint)
    if isinstance(part, (IntType, FloatType))
]


@pytest.mark.parametrize(("kind", "needed", "name", "is_integer"), NUMBERS)
def test_every_number_of_the_settings_becomes_one_of_python(
    kind: Any, needed: dict[str, Any], name: str, is_integer: bool
) -> None:
    extra = {"optimizer": "sgd"} if name == "momentum" else {}
    if is_integer:
        cases = [(np.int64, 2), (torch.tensor, 2)]
    else:
        cases = [(np.float32, 0.5), (np.array, 0.5)]
    for make, value in cases:
        number = getattr(kind(**needed, **extra, **{name: make(value)}), name)
        assert (number, type(number)) == (value, int if is_integer else float)
    with pytest.raises(InputError, match=f"^{name} is "):
        kind(**needed, **extra, **{name: np.True_})


def test_a_run_of_numpy_s_numbers_is_that_of_python_s() -> None:
    def trained(i: Any, f: Any) -> tuple[Any, str]:
        gist = GIST(gcn(), [i(8), i(7)], i(2), seed=i(3), whole=[i(1)])
        sampler = ClusterSampling(i(4), i(2), method="random")
        settings = {
            "epochs": i(6),
            "lr": f(0.25),
            "local_steps": i(2),
            "evaluate_every": i(1),
            "patience": i(9),
        }
        result = gist.fit(GRAPH, sampler=sampler, max_seconds=f(64), progress=False, **settings)
        return theta(gist), json.dumps(result.config)

    (expected, expected_record) = trained(int, float)
    (actual, actual_record) = trained(np.int64, np.float32)
    assert same(expected, actual)
    assert expected_record == actual_record


def test_numbers_in_other_arguments_become_those_of_python(tmp_path: Any) -> None:
    i = np.int64
    assert json.dumps(asdict(Evaluation("parts", parts=i(4), sample=i(2))))
    assert json.dumps(
        [
            describe(NeighborSampling(fanouts=i(3), batch_size=i(5))),
            describe(NeighborSampling((i(3), 2))),
        ]
    )
    for name, kind in SAMPLERS.items():
        counts = {
            field: i(2)
            for field, hint in setting_types(kind).items()
            if field != "clusters"
            for part in types_of(hint)
            if isinstance(part, IntType)
        }
        assert json.dumps(describe(kind(**counts))), name
    assert type(Saving(tmp_path, every=i(4)).every) is int
    gist = GIST(gcn(), (8, 7), i(2), seed=torch.tensor(3))
    assert len(Loop(gist, i(2), lambda model: 1.0, evaluate_every=i(1), patience=i(3))) == 2
    assert len([*gist.rounds(i(2))]) == 2
    for method in (DataParallel, LocalSGD):
        assert type(method(gcn(), (8, 7), i(2)).workers) is int
