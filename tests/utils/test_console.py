import pytest

from gistgnn import GIST
from gistgnn.utils.console import RoundBar
from tests.helpers.fitting import GRAPH, gcn


def test_the_bar_moves_between_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[int, int]] = []
    monkeypatch.setattr(RoundBar, "advance", lambda _, rounds, of: shown.append((rounds, of)))
    GIST(gcn(), (8, 7), 2).fit(GRAPH, epochs=12, local_steps=2, evaluate_every=100)
    assert shown == [(0, 3), (1, 3), (2, 3), (3, 3)]
