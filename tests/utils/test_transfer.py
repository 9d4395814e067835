"""Copies to a GPU go through page-locked memory, unless they are large."""

from typing import Any

import pytest
import torch

from gistgnn.utils import tensors as transfer
from gistgnn.utils.tensors import to_device
from tests.helpers.pretended_gpu import OnGPU, pretended_gpu

GPU = torch.device("cuda:0")


def test_a_copy_to_a_gpu_goes_through_page_locked_memory_and_has_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.arange(10)
    with pretended_gpu():
        locked: list[Any] = []
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: locked.append(tensor) or tensor)
        moved = to_device(values, GPU)
        assert isinstance(moved, OnGPU)
        assert locked == [values]
        assert to_device(moved, GPU).tolist() == list(range(10))
        monkeypatch.setattr(transfer, "_MOST", 10)
        to_device(values, GPU)
        assert len(locked) == 1


def test_elsewhere_nothing_is_copied() -> None:
    values = torch.arange(10)
    assert to_device(values, torch.device("cpu")) is values
