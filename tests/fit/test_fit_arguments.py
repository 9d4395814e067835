"""The arguments of `GIST`, `fit`, `Loop` and `rounds`: each is used or refused; and widths of several kinds."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST, Loop, Training
from gistgnn.fit.saving import Saving
from gistgnn.theta.store import Store
from tests.helpers.fitting import GRAPH, fit, gcn, same, theta
from tests.helpers.models import PYG, C, F
from tests.helpers.refusals import refused

# How many steps are taken.


class Counting(nn.Module):
    """Counts the calls in training mode."""

    calls = 0

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(F, widths[0]), nn.Linear(widths[0], C)

    def forward(self, x: Tensor) -> Tensor:
        Counting.calls += self.training
        return self.leave(self.enter(x).relu())


_gists = {m: GIST(Counting, (8,), m) for m in range(1, 6)}


def test_settings_as_a_whole_or_one_by_one() -> None:
    one, other, shared = (GIST(gcn(), (8, 7), 2) for _ in range(3))
    results = [
        one.fit(GRAPH, epochs=4, lr=0.02, progress=False),
        other.fit(GRAPH, Training(4, lr=0.02), progress=False),
    ]
    results.append(shared.fit(GRAPH, training=Training(4, lr=0.02), progress=False))
    assert results[0].test == results[1].test == results[2].test
    assert same(theta(one), theta(other))
    assert GIST(gcn(), (8, 7), 2).fit(GRAPH, training="each", epochs=4, progress=False).progress.rounds == 1


def test_widths_of_numpy() -> None:
    gist = GIST(gcn(), list(np.array([8, 7])), 2)
    assert gist.widths == (8, 7)
    fit(gist, epochs=2)
    assert GIST(PYG["gcn"], np.int64(8), 2).shared


def test_units_limit_the_sub_gcns() -> None:
    """Two heads share 12 features: six of each, so at most six sub-GCNs."""
    assert GIST(PYG["gat"], 12, 6).sub_gcns == 6
    with refused("sub_gcns is 7", "6 features"):
        GIST(PYG["gat"], 12, 7)


class Odd:
    """No argument can be this."""

    def __repr__(self) -> str:
        return "odd"


FIT = {*inspect.signature(GIST.fit).parameters, *Training.__dataclass_fields__} - {"self", "graph", "settings"}


@pytest.mark.parametrize("name", sorted(FIT))
@pytest.mark.parametrize("value", [Odd(), "odd", -1, float("nan"), [Odd()]], ids=str)
def test_every_argument_of_fit_is_checked(name: str, value: Any) -> None:
    with refused(""):
        GIST(gcn(), (8, 7), 2).fit(GRAPH, **{"epochs": 1, "progress": False, name: value})


@pytest.mark.parametrize("name", [name for name in inspect.signature(GIST.__init__).parameters if name != "self"])
@pytest.mark.parametrize("value", [Odd(), -1, float("nan"), [Odd()], 10**30], ids=str)
def test_every_argument_of_gist_is_checked(name: str, value: Any) -> None:
    with refused(""):
        GIST(**{"build": gcn(), "widths": (8, 7), "sub_gcns": 2, name: value})


@pytest.mark.parametrize("name", [name for name in inspect.signature(Loop.__init__).parameters if name != "self"])
def test_every_argument_of_a_loop_is_checked(name: str) -> None:
    with refused("odd"):
        Loop(**{"gist": GIST(gcn(), (8, 7), 2), "rounds": 1, name: Odd()})


@pytest.mark.parametrize("unused", [{"evaluate_every": 2}, {"patience": 2}, {"higher_is_better": False}], ids=str)
def test_a_loop_without_scores_has_no_use_for_their_settings(unused: dict[str, Any]) -> None:
    with refused("there is no validate"):
        Loop(GIST(gcn(), (8, 7), 2), 1, **unused)


@pytest.mark.parametrize("count", [-1, 1.5, None, 10**30])
def test_number_of_rounds(count: Any) -> None:
    with refused("count is"):
        next(GIST(gcn(), (8, 7), 2).rounds(count))


@pytest.mark.parametrize("odd", [{"path": 3}, {"every": 0}, {"every": 1.5}, {"resume": 1}, {"config": 3}], ids=str)
def test_saving_is_checked(tmp_path: Path, odd: dict[str, Any]) -> None:
    with refused(""):
        Saving(**{"path": tmp_path, **odd})
    assert Saving(str(tmp_path)).path == tmp_path


def test_stores_are_checked() -> None:
    for odd in ({"kind": ["memory"]}, {"kind": "disk", "folder": 3}, {"precision": 1}):
        with refused(""):
            Store(**odd)


@pytest.mark.parametrize("width", [10**6, 10**7, 10**8])
def test_a_model_that_cannot_fit_is_refused_before_it_is_made(width: int) -> None:
    gist = GIST(gcn(), (width, width), 2)
    with refused("a step of one sub-GCN computes", "are free"):
        gist.fit(GRAPH, epochs=1, progress=False)
    with refused("the model of widths"):
        gist.model()


def test_a_step_that_cannot_fit_is_refused_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    gist = GIST(gcn(), (8, 7), 2)
    monkeypatch.setattr("gistgnn.accounting.costs.available_bytes", lambda device: 100)
    with refused("a step of one sub-GCN computes", "raise sub_gcns"):
        gist.fit(GRAPH, epochs=1, progress=False)


@pytest.mark.parametrize("setting", ["epochs", "local_steps", "patience", "evaluate_every", "redraw_every"])
def test_numbers_beyond_all_runs_are_refused_at_once(setting: str) -> None:
    for value in (10**9 + 1, 2**63, 10**30, 10**5000):
        with refused(f"{setting} is"):
            Training(**{"epochs": 1, setting: value})


def test_an_absurdly_long_run_begins_at_once() -> None:
    result = fit(GIST(gcn(), (8, 7), 2), epochs=10**9, max_seconds=0.05)
    assert result.progress.rounds < 10**6


@pytest.mark.parametrize("device", ["meta", "tpu", 3, 10**30, torch.device("meta")])
def test_devices(device: Any) -> None:
    with refused("device is"):
        GIST(gcn(), (8, 7), 2, device=device)
