"""Two ranks on one GPU train the Θ of one process.

They exchange by Gloo, since NCCL takes one rank for each GPU.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch.distributed import HashStore

from gistgnn.distributed import Ranks
from gistgnn.distributed.ranks import each_has_a_gpu
from tests.distributed.launch import on_ranks
from tests.distributed.test_equality import BY_SGD, CASES, fitted, joined, left
from tests.helpers.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
ON_GPU = [case for case in CASES if case[2] == 4 and "sampler" not in case[3]]


def test_nccl_is_for_ranks_with_a_gpu_each() -> None:
    for gpus, nccl in (
        (("a", "b"), True),
        (("a", "a"), False),
        (("a", ""), False),
        (("", ""), False),
        (("a",), True),
    ):
        store = HashStore()
        count = len(gpus)
        with ThreadPoolExecutor(count) as pool:
            answers = [
                pool.submit(each_has_a_gpu, store, rank, count, gpus[rank]) for rank in range(count)
            ]
            assert [answer.result(10) for answer in answers] == [nccl] * count
    with refused("device is 'cuda:99', but torch finds"):  # before ranks meet
        Ranks("cuda:99")


def train(ranks: Ranks | None, store: str, device: str) -> list[dict[str, Tensor]]:
    """What runs by SGD leave.

    Adam makes a large step of a gradient that is zero but for rounding.
    """
    states = []
    for model, widths, m, _ in ON_GPU:
        state = left(*fitted((model, widths, m, BY_SGD), store, ranks, device))
        states.append({name: tensor.cpu() for name, tensor in state["tensors"].items()})
    return states


@pytest.mark.cuda
@pytest.mark.parametrize("store", ["memory", "sharded"])
def test_two_ranks_on_one_gpu_train_the_theta_of_one_process(store: str) -> None:
    by_rank = on_ranks(2, train, store, "cuda", device="cuda")
    for run, expected in enumerate(train(None, "memory", "cuda")):
        states = [states_of_rank[run] for states_of_rank in by_rank]
        tensors = joined(states) if store == "sharded" else states[0]
        for name, tensor in expected.items():
            torch.testing.assert_close(
                tensors[name].view(tensor.shape), tensor, rtol=1e-3, atol=1e-4
            )


@pytest.mark.cuda
def test_one_rank_on_one_gpu_exchanges_by_nccl() -> None:
    assert on_ranks(1, backend, device="cuda:0") == ["nccl"]
    assert on_ranks(2, backend, device="cuda:0") == ["gloo", "gloo"]


def backend(ranks: Ranks) -> str:
    return str(torch.distributed.get_backend())
