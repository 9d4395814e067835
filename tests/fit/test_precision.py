"""bf16: dense products in bfloat16, all that is kept in float32."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.runners.registry import RUNNERS
from tests.helpers.fitting import fit, theta
from tests.helpers.models import OURS, PYG, Case

CASES: list[tuple[str, Case]] = [
    ("fused", (lambda w: OURS["gcn"](w, norm="batch"), (16, 16))),
    ("in-turn", (lambda w: OURS["graphsage"](w, norm="layer"), (16,))),
    ("auto", (OURS["gat"], (8,))),
    ("auto", (PYG["gcn"], 16)),
    ("fused", (PYG["gat"], 16)),
]


@pytest.mark.parametrize(("runner", "case"), CASES)
def test_it_learns_as_float32_does_and_keeps_float32(runner: str, case: Case) -> None:
    options: dict[str, Any] = {"epochs": 120, "local_steps": 10, "lr": 0.02, "optimizer_state": "carry"}
    halved = GIST(*case, 2)
    losses = [entry["loss"] for entry in fit(halved, runner=runner, precision="bf16", **options).history]
    kept = [*theta(halved).values(), *halved.theta.moments.values()]
    assert {t.dtype for t in kept if t.is_floating_point()} == {torch.float32}
    full = [entry["loss"] for entry in fit(GIST(*case, 2), runner=runner, **options).history]
    assert min(losses) < 0.9 * losses[0]
    assert losses[:2] == pytest.approx(full[:2], rel=0.03)
    assert losses != full


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
