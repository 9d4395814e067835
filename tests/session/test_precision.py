"""bf16: dense products in bfloat16, all that is kept in float32."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.runners.registry import RUNNERS
from gistgnn.session import half_precision
from tests.helpers.fitting import GRAPH, fit, theta
from tests.helpers.logs import logged
from tests.helpers.models import OURS, PYG, Case
from tests.helpers.refusals import refused

CASES: dict[str, Case] = {
    "gcn": (lambda w: OURS["gcn"](w, norm="batch"), (16, 16)),
    "graphsage": (lambda w: OURS["graphsage"](w, norm="layer"), (16,)),
    "gat": (OURS["gat"], (8,)),
    "pyg gcn": (PYG["gcn"], 16),
    "pyg gat": (PYG["gat"], 16),
}
OPTIONS: dict[str, Any] = {"epochs": 120, "local_steps": 10, "lr": 0.02, "optimizer_state": "carry"}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_learns_as_float32_does_and_keeps_float32(case: Case, runner: str) -> None:
    halved = GIST(*case, 2)
    losses = [entry["loss"] for entry in fit(halved, runner=runner, precision="bf16", **OPTIONS).history]
    kept = [*theta(halved).values(), *(t for moments in halved.theta.moments.values() for t in moments.values())]
    assert {t.dtype for t in kept if t.is_floating_point()} == {torch.float32}
    full = fit(GIST(*case, 2), runner=runner, **OPTIONS)
    assert min(losses) < 0.9 * losses[0]
    assert losses[:2] == pytest.approx([entry["loss"] for entry in full.history[:2]], rel=0.03)
    assert losses != [entry["loss"] for entry in full.history]


@pytest.mark.parametrize("runner", RUNNERS)
def test_products_are_halved_and_the_loss_is_not(runner: str) -> None:
    seen: set[tuple[bool, torch.dtype]] = set()

    class Watched(nn.Module):
        def __init__(self, widths: tuple[int, ...]) -> None:
            super().__init__()
            # A bias is added in float32 by vmap, outside the product.
            self.enter, self.out = nn.Linear(7, widths[0], bias=False), nn.Linear(widths[0], 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.enter(x)
            if x.dtype == torch.float32 and x.device.type != "meta":
                seen.add((self.training, h.dtype))
            return self.out(h.relu())

    for precision, dtype in (("bf16", torch.bfloat16), ("float32", torch.float32)):
        seen.clear()
        fit(GIST(Watched, (8,), 2), runner=runner, precision=precision)
        assert (True, dtype) in seen
        assert {kind for training, kind in seen if not training} == {torch.float32}  # scores are not halved


def messages(monkeypatch: pytest.MonkeyPatch, ratio: float, **options: Any) -> list[str]:
    """What a run logs where bf16 takes ``ratio`` times as long as float32."""
    sizes = []

    def seconds_of(rows: int, inputs: int, outputs: int, precision: str) -> float:
        sizes.append((rows, inputs, outputs))
        return ratio if precision == "bf16" else 1.0

    monkeypatch.setattr(half_precision, "seconds_of", seconds_of)
    with logged() as found:
        fit(GIST(OURS["gcn"], (8, 6), 2), epochs=2, **options)
    assert set(sizes) <= {(len(GRAPH.x), 7, 4)}  # the first layer of a sub-GCN is the largest
    return [message for message in found if "bf16" in message]


def test_a_note_says_where_bf16_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    (note,) = messages(monkeypatch, 4.23, precision="bf16")
    assert "makes this run slower" in note
    assert "4.2 times" in note
    assert messages(monkeypatch, 1.05, precision="bf16") == messages(monkeypatch, 0.5, precision="bf16") == []
    assert messages(monkeypatch, 4.23) == []


def test_both_precisions_can_be_measured() -> None:
    assert all(half_precision.seconds_of(5, 3, 2, precision) > 0 for precision in ("float32", "bf16"))


def test_unknown_precisions_are_refused() -> None:
    with refused("precision is 'fp16', expected one of float32, bf16"):
        fit(GIST(OURS["gcn"], (8,), 2), GRAPH, precision="fp16")
