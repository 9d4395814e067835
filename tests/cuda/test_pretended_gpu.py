"""The pretended GPU refuses what CUDA refuses, and computes what the CPU computes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gistgnn.nn import SparseMatrix
from tests.helpers.pretended_gpu import OnGPU, pretended_gpu, waits

from .runs import PRETENDED, make

GPU = torch.device("cuda:0")
REFUSED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "sum": lambda here, there: here + there,
    "product": lambda here, there: there @ here,
    "stack": lambda here, there: torch.stack([here, there]),
    "select": lambda here, there: there.index_select(0, torch.tensor([0])),
    "csr": lambda here, there: SparseMatrix.from_dense(here) @ there,
    "counter": lambda here, there: torch.stack([torch.tensor(1.0), torch.tensor(1.0, device=GPU)]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tensors_of_two_devices_are_refused(name: str) -> None:
    with pretended_gpu():
        here = torch.eye(2)
        there = here.to(GPU)
        with pytest.raises(RuntimeError, match="same device"):
            REFUSED[name](here, there)


def test_values_do_not_leave_it_unasked() -> None:
    with pretended_gpu():
        there = torch.ones(2, device=GPU)
        with pytest.raises(TypeError):
            there.numpy()
        assert there.cpu().numpy().tolist() == [1, 1]


def test_what_is_allowed_gives_the_values_of_the_cpu() -> None:
    x, w, rows = torch.randn(5, 3), torch.randn(4, 3), torch.tensor([2, 0])
    with pretended_gpu():
        one, other = x.to(GPU), w.to(GPU).requires_grad_()
        out = (one[rows] @ other.t()).relu() * torch.tensor(2.0)  # indices and single numbers may be on the host
        out.sum().backward()
        assert out.device == other.grad.device == GPU
        assert out.is_cuda
        found = out.detach().cpu(), other.grad.cpu()
    w.requires_grad_()
    expected = (x[rows] @ w.t()).relu() * 2
    expected.sum().backward()
    torch.testing.assert_close(found, (expected.detach(), w.grad))


def test_it_has_random_numbers_of_its_own() -> None:
    with pretended_gpu():
        torch.manual_seed(0)
        host = torch.rand(3)
        torch.manual_seed(0)
        torch.cuda.manual_seed(5)
        one = torch.rand(3, device=GPU).tolist()
        assert torch.equal(torch.rand(3), host)  # the host's have not moved
        torch.cuda.manual_seed(5)
        assert torch.rand(3, device=GPU).tolist() == one


def test_waits_are_counted_and_copies_in_line_are_not() -> None:
    with pretended_gpu():
        there = torch.arange(4, device=GPU)
        assert not waits()
        int(there[0]), there.nonzero(), there[there > 1], there.cpu(), torch.ones(2).to(GPU)
        assert sum(waits().values()) == 5
        torch.ones(2).to(GPU, non_blocking=True)
        assert sum(waits().values()) == 5


def test_cuda_without_a_number_is_the_gpu_in_use(gpu: str) -> None:
    gist = make("gcn none 2", "cuda")
    assert gist.device == torch.device("cuda", torch.cuda.current_device())
    (weight, *_) = gist.theta.copy().values()
    assert weight.device == gist.device
    assert isinstance(weight, OnGPU) == (gpu == PRETENDED)
