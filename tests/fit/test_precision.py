"""bf16: dense products in bfloat16, all that is kept in float32."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.runners.registry import RUNNERS
from tests.helpers.fitting import fit, theta


@pytest.mark.parametrize("runner", RUNNERS)
def test_products_are_halved_and_all_else_is_not(runner: str) -> None:
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

    losses = {}
    for precision, dtype in (("bf16", torch.bfloat16), ("float32", torch.float32)):
        seen.clear()
        gist = GIST(Watched, (8,), 2)
        options: dict[str, Any] = {"epochs": 120, "local_steps": 10, "lr": 0.02, "optimizer_state": "carry"}
        history = fit(gist, runner=runner, precision=precision, **options).history
        losses[precision] = [entry["loss"] for entry in history]
        kept = [*theta(gist).values(), *gist.theta.moments.values()]
        assert {tensor.dtype for tensor in kept if tensor.is_floating_point()} == {torch.float32}
        assert (True, dtype) in seen
        assert {kind for training, kind in seen if not training} == {torch.float32}  # scores are not halved
    assert min(losses["bf16"]) < 0.9 * losses["bf16"][0]
    assert losses["bf16"] == pytest.approx(losses["float32"], rel=0.1)
    assert losses["bf16"] != losses["float32"]
