"""The arguments of `GIST`, `fit`, `Loop` and `rounds`: each is used or refused; and widths of several kinds."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gistgnn import GIST, Loop, Saving, Training
from gistgnn.theta.registry import Store
from tests.helpers.fitting import GRAPH, fit, gcn, same, theta
from tests.helpers.models import PYG
from tests.helpers.refusals import refused


def make(**options: Any) -> GIST:
    return GIST(**{"build": gcn(), "widths": (8, 7), "sub_gcns": 2, **options})


def test_settings_as_a_whole_or_one_by_one() -> None:
    one, other = make(), make()
    results = [
        one.fit(GRAPH, epochs=4, lr=0.02, progress=False),
        other.fit(GRAPH, training=Training(4, lr=0.02), progress=False),
    ]
    assert results[0].test == results[1].test
    assert same(theta(one), theta(other))
    assert make().fit(GRAPH, "each", epochs=4, progress=False).progress.rounds == 1


def test_widths_of_numpy_and_of_units() -> None:
    gist = make(widths=list(np.array([8, 7])))
    assert gist.widths == (8, 7)
    fit(gist, epochs=2)
    assert make(build=PYG["gcn"], widths=np.int64(8)).shared
    with refused("sub_gcns is 7", "6 features"):  # two heads share 12 features: six of each
        GIST(PYG["gat"], 12, 7)


class Odd:
    """No argument can be this."""

    def __repr__(self) -> str:
        return "odd"


def names_of(function: Any) -> set[str]:
    return {*inspect.signature(function).parameters} - {"self", "graph", "settings"}


@pytest.mark.parametrize("name", sorted(names_of(GIST.fit) | {*Training.__dataclass_fields__}))
def test_every_argument_of_fit_is_checked(name: str) -> None:
    for value in (Odd(), "odd", -1, float("nan"), [Odd()]):
        with refused(""):
            make().fit(GRAPH, **{"epochs": 1, "progress": False, name: value})


@pytest.mark.parametrize("name", sorted(names_of(GIST.__init__)))
def test_every_argument_of_gist_is_checked(name: str) -> None:
    for value in (Odd(), -1, float("nan"), [Odd()], 10**30):
        with refused(""):
            make(**{name: value})


def test_every_argument_of_a_loop_of_rounds_and_of_saving_is_checked(tmp_path: Path) -> None:
    for name in names_of(Loop.__init__):
        with refused("odd"):
            Loop(**{"gist": make(), "rounds": 1, name: Odd()})
    for unused in ({"evaluate_every": 2}, {"patience": 2}, {"higher_is_better": False}):
        with refused("there is no validate"):
            Loop(make(), 1, **unused)  # type: ignore[arg-type]
    for count in (-1, 1.5, None, 10**30):
        with refused("count is"):
            next(make().rounds(count))  # type: ignore[arg-type]
    for odd in ({"path": 3}, {"every": 0}, {"every": 1.5}, {"resume": 1}, {"config": 3}):
        with refused(""):
            Saving(**{"path": tmp_path, **odd})
    assert Saving(str(tmp_path)).path == tmp_path  # type: ignore[arg-type]
    for odd in ({"kind": ["memory"]}, {"kind": "disk", "folder": 3}, {"precision": 1}):
        with refused(""):
            Store(**odd)  # type: ignore[arg-type]
    for device in ("meta", "tpu", 3, 10**30, torch.device("meta")):
        with refused("device is"):
            make(device=device)


def test_what_cannot_fit_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (10**6, 10**8):
        gist = make(widths=(width, width))
        with refused("a step of one sub-GCN computes", "are free"):
            gist.fit(GRAPH, epochs=1, progress=False)
        with refused("the model of widths"):
            gist.model()
    monkeypatch.setattr("gistgnn.accounting.costs.available_bytes", lambda device: 100)
    with refused("a step of one sub-GCN computes", "raise sub_gcns"):
        make().fit(GRAPH, epochs=1, progress=False)


@pytest.mark.parametrize("setting", ["epochs", "local_steps", "patience", "evaluate_every", "redraw_every"])
def test_numbers_beyond_all_runs_are_refused_at_once(setting: str) -> None:
    for value in (10**9 + 1, 2**63, 10**30, 10**5000):
        with refused(f"{setting} is"):
            Training(**{"epochs": 1, setting: value})


def test_an_absurdly_long_run_begins_at_once() -> None:
    assert fit(make(), epochs=10**9, max_seconds=0.05).progress.rounds < 10**6
