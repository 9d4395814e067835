"""Runs in phases on a tiny graph, and all that they leave behind."""

from typing import Any

from gistgnn import GIST, Result
from gistgnn.settings import Phase
from tests.helpers.models import OURS, PLAIN, tiny_graph

GRAPH = tiny_graph()
WIDTHS = (8, 12)
FEWER: tuple[Phase, ...] = (
    Phase(4, 6, copies=True),
    Phase(4, 12, lr=0.02, redraw_every=0),
    Phase(2, 8, schedule="cosine", redraw_every=2),
    Phase(1, 3, lr=0.01),
)
"""4 copies -> 4 -> 2 -> 1: rounds of 2 steps each, except for the last of some phases; nine rounds in all."""

ROUNDS = 9
REDRAWN: tuple[Phase, ...] = (Phase(4, 8), Phase(2, 4, redraw_every=1), Phase(4, 8, redraw_every=0))


def make(**options: Any) -> GIST:
    return GIST(lambda widths: OURS["gcn"](widths, dropout=0.4, norm="batch"), WIDTHS, 4, **options)


def fit(gist: GIST, phases: tuple[Phase, ...] = FEWER, **options: Any) -> Result:
    defaults: dict[str, Any] = {"local_steps": 2, "lr": 0.05, "cross_weights": "zero", "progress": False}
    return gist.fit(GRAPH, phases=phases, **{**PLAIN, **defaults, **options})
