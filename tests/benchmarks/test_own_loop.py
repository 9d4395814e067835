from itertools import repeat

import torch
from torch import Tensor, nn

from benchmarks.own_loop import seconds


def test_every_step_is_one_pass_over_what_it_is_given() -> None:
    class Counting(nn.Linear):
        seen = 0

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
            self.seen += len(edge_index)
            return super().forward(x)

    model = Counting(2, 2)
    assert 0 < seconds(model, repeat((torch.ones(3, 2), torch.zeros(2, 4))), 5) < 1
    assert model.seen == 2 * 6  # five, and a first one that does not count
    assert model.weight.grad is not None
