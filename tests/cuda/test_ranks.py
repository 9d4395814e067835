"""Two ranks on one GPU exchange by Gloo, since NCCL takes one rank for each GPU; Θ is that of one process."""

import threading
from typing import Any

import pytest
import torch
from torch.distributed import HashStore

from gistgnn import GIST, InputError
from gistgnn.distributed import Ranks
from gistgnn.distributed.ranks import each_has_a_gpu
from tests.distributed.launch import on_ranks
from tests.distributed.test_equality import BY_SGD, CASES, joined, left
from tests.helpers.models import every_model, tiny_graph

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
ON_GPU = [case for case in CASES if case[2] == 4 and "phases" not in case[3]]


def test_nccl_is_for_ranks_with_a_gpu_each() -> None:
    def found(*names: str) -> list[bool]:
        store, answers = HashStore(), [False] * len(names)

        def ask(rank: int) -> None:
            answers[rank] = each_has_a_gpu(store, rank, len(names), names[rank])

        threads = [threading.Thread(target=ask, args=(rank,)) for rank in range(len(names))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=10)
        return answers

    assert found("a", "b") == [True, True]
    assert found("a", "a") == [False, False]
    assert found("a", "") == [False, False]
    assert found("", "") == [False, False]
    assert found("a") == [True]


def test_a_gpu_that_is_not_there_is_refused_before_ranks_meet() -> None:
    with pytest.raises(InputError, match="device is 'cuda:99', but torch finds"):
        Ranks("cuda:99")


def train(ranks: Ranks | None, store: str, device: str) -> list[dict[str, Any]]:
    """What runs by SGD leave: Adam makes a large step of a gradient that is zero but for rounding."""
    found = []
    for model, widths, m, _ in ON_GPU:
        build, own = every_model()[model]
        gist = GIST(build, widths[0] if isinstance(own, int) else widths, m, device=device, store=store, ranks=ranks)
        found.append(on_host(left(gist, gist.fit(tiny_graph(), **BY_SGD))))
    return found


def on_host(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "tensors": {name: tensor.cpu() for name, tensor in found["tensors"].items()}}


@pytest.mark.cuda
@pytest.mark.parametrize("store", ["memory", "sharded"])
def test_two_ranks_on_one_gpu_train_the_theta_of_one_process(store: str) -> None:
    every = on_ranks(2, train, store, "cuda", device="cuda")
    for k, expected in enumerate(train(None, "memory", "cuda")):
        own = [found[k] for found in every]
        tensors = joined([each["tensors"] for each in own]) if store == "sharded" else own[0]["tensors"]
        for name, tensor in expected["tensors"].items():
            torch.testing.assert_close(tensors[name].view(tensor.shape), tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.cuda
def test_one_rank_on_one_gpu_exchanges_by_nccl() -> None:
    assert on_ranks(1, backend, device="cuda:0") == ["nccl"]
    assert on_ranks(2, backend, device="cuda:0") == ["gloo", "gloo"]


def backend(ranks: Ranks) -> str:
    return str(torch.distributed.get_backend())
