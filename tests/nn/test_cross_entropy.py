"""The cross-entropy of many sub-GCNs equals torch's, and so does its gradient."""

import pytest
import torch
from torch.nn import functional as F

from gistgnn.nn.cross_entropy import cross_entropy, rows


@pytest.mark.parametrize("members", [(), (3,)])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_equals_torch(members: tuple[int, ...], weighted: bool) -> None:
    torch.manual_seed(0)
    logits = (20 * torch.randn(*members, 6, 4, dtype=torch.float64)).requires_grad_()
    targets = torch.tensor([3, 0, 1, 1, 2, 0])
    weights = torch.rand(6, dtype=torch.float64) if weighted else torch.full((6,), 1 / 6, dtype=torch.float64)
    found = cross_entropy(logits, targets, weights if weighted else None)
    each = F.cross_entropy(logits.movedim(-1, 1) if members else logits, targets.expand(*members, 6), reduction="none")
    expected = each @ weights
    torch.testing.assert_close(found, expected)
    up = torch.rand_like(found)
    torch.testing.assert_close(torch.autograd.grad(found, logits, up), torch.autograd.grad(expected, logits, up))


def test_rows() -> None:
    x = torch.randn(2, 4, 3)
    assert rows(x, torch.arange(4)) is x
    for index in ([1, 3], [3, 2, 1, 0], [0, 0, 1, 2]):
        assert torch.equal(rows(x, torch.tensor(index)), x[:, index])
