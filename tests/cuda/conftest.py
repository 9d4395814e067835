import pytest
import torch


@pytest.fixture(autouse=True)
def exact_products(request: pytest.FixtureRequest) -> None:
    """On a GPU, products of float32 do not use TF32: they would not be equal to the CPU's."""
    if request.node.get_closest_marker("cuda"):
        torch.set_float32_matmul_precision("highest")
        torch.cuda.empty_cache()
