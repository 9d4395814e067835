"""A module with the values that lie in files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.io import stored_products as stored_products  # registers them
from gistgnn.io.stored_tensor import StoredTensor
from gistgnn.io.tensors import Place, Readable, TensorFile

LARGE = 2**24  # bytes: what a tensor takes at least to be left in its file

_Slot = tuple[nn.Module, str]  # a module, and the name of one of its own parameters or buffers


def stored_model(
    module: nn.Module,
    places: Mapping[str, Place],
    *,
    above: int | None = LARGE,
    files: Mapping[Path, Readable] | None = None,
) -> nn.Module:
    """Give a module the parameters and buffers that lie in files, the large ones without reading them.

    Args:
        module: built under ``torch.device("meta")``, so that it takes no memory; it is changed. Its tensors have to be
            parameters and buffers: what else it holds on the meta device stays there.
        places: where each parameter and buffer lies, by name; of a tied one, one of its names is enough.
        above: bytes that a tensor takes at least to be left in its file as a `StoredTensor`; None: all are read.
        files: what reads the paths of the places; None: files of these names.

    Returns:
        The module in evaluation mode. Tensors that stay in files are buffers, and with them no parameter requires a
        gradient: the model is for inference. ``state_dict`` names all, the large ones as stand-ins.

    Raises:
        InputError: a tensor is missing or of another shape, there is one that the module does not have, or a file
            cannot be read.
    """
    files = files or {path: TensorFile(path) for path in {place.path for place in places.values()}}
    found = _slots(module)
    if unknown := places.keys() - {name for slots in found for name in slots}:
        raise InputError(f"the files hold '{min(unknown)}', the model does not: build the model that was saved")
    for slots in found:
        owner, key = next(iter(slots.values()))
        tensor: Tensor = getattr(owner, key)
        name = next((name for name in slots if name in places), None)
        if name is not None:
            value = _value(name, tensor, places[name], files, above)
            for owner, key in slots.values():
                _set(owner, key, value)
        elif tensor.is_meta:  # a buffer that is not saved may have been made elsewhere
            raise InputError(f"the files do not hold '{next(iter(slots))}': build the model that was saved")
    if any(isinstance(buffer, StoredTensor) for buffer in module.buffers()):
        module.requires_grad_(False)
    return module.eval()


def held_model(module: nn.Module, tensors: Mapping[str, Tensor], *, above: int | None = LARGE) -> nn.Module:
    """Give a module parameters and buffers that lie in the host's memory, the large ones without copying them.

    Args:
        module: as for `stored_model`.
        tensors: every parameter and buffer by name. What becomes of the large ones, the module sees.
        above: as for `stored_model`.

    Returns:
        The module in evaluation mode; moved to a GPU, it takes its large weights there a block at a time.

    Raises:
        InputError: a tensor is missing or of another shape, or there is one that the module does not have.
    """
    files: dict[Path, Readable] = {Path(name): _Held(tensor) for name, tensor in tensors.items()}
    places = {name: Place(Path(name), 0, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
    return stored_model(module, places, above=above, files=files)


class _Held:
    """One tensor in memory, read as a file is."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def read(self, place: Place, rows: slice | None = None, columns: slice | None = None) -> Tensor:
        """The tensor, copied; or some rows and columns of it, not copied."""
        if rows is None:
            return self._tensor.clone()
        return self._tensor[rows] if columns is None else self._tensor[rows, columns]


def _slots(module: nn.Module) -> list[dict[str, _Slot]]:
    """For each parameter and buffer the names under which it stands, and where."""
    found: dict[int, dict[str, _Slot]] = {}
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for key, tensor in {**owner._parameters, **owner._buffers}.items():
            if tensor is not None:
                found.setdefault(id(tensor), {})[f"{prefix}.{key}" if prefix else key] = owner, key
    return list(found.values())


def _value(name: str, tensor: Tensor, place: Place, files: Mapping[Path, Readable], above: int | None) -> Tensor:
    if place.shape != tuple(tensor.shape):
        raise InputError(
            f"'{name}' is {list(place.shape)} in {place.path} and {list(tensor.shape)} in the model: build the model "
            "that was saved"
        )
    file = files[place.path]
    if above is not None and place.shape and tensor.nbytes >= above:
        return StoredTensor.at(place, file).to(tensor.dtype)
    value = file.read(place).to(tensor.dtype)
    return nn.Parameter(value, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value


def _set(owner: nn.Module, key: str, value: Tensor) -> None:
    if isinstance(value, StoredTensor) and key in owner._parameters:
        del owner._parameters[key]
        owner.register_buffer(key, value)
    setattr(owner, key, value)  # some modules keep lists of their parameters
