"""Modules and tensors that are written to a file and found there again."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from gistgnn.io.stored_model import stored_model
from gistgnn.io.stored_tensor import StoredTensor
from gistgnn.io.tensors import Place, find_tensors
from gistgnn.layout.axes import named_tensors


def places_of(module: nn.Module, folder: Path) -> dict[str, Place]:
    """Save a module's parameters and buffers, tied ones once, and say where they lie."""
    path = folder / "saved.safetensors"
    save_file({name: tensor.detach().clone() for name, tensor in named_tensors(module).items()}, path)
    return find_tensors(path)


def stored(module: nn.Module, build: Callable[[], nn.Module], folder: Path, above: int | None = 1) -> nn.Module:
    """The module with its values in a file; ``build`` makes it."""
    with torch.device("meta"):
        empty = build()
    return stored_model(empty, places_of(module, folder), above=above)


def stand_in(tensor: Tensor, folder: Path) -> StoredTensor:
    path = folder / "tensor.safetensors"
    save_file({"tensor": tensor.contiguous()}, path)
    return StoredTensor.at(find_tensors(path)["tensor"])
