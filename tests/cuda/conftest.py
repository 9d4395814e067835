"""The device of these tests: a real GPU where there is one, and everywhere one that is pretended on the CPU."""

from collections.abc import Iterator

import pytest
import torch

from tests.helpers.pretended_gpu import pretended_gpu

from .runs import PRETENDED, REAL


@pytest.fixture(params=[PRETENDED, pytest.param(REAL, marks=pytest.mark.cuda)])
def gpu(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which GPU the device "cuda" is within the test: PRETENDED or REAL."""
    if request.param == PRETENDED:
        with pretended_gpu():
            yield PRETENDED
        return
    torch.set_float32_matmul_precision("highest")  # TF32 would not be equal to the CPU
    yield REAL
    torch.cuda.empty_cache()
