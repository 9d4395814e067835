"""Modules whose large parameters and buffers stay in files, or in the host's memory, as stored tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.io.stored_tensor import StoredTensor
from gistgnn.io.tensors import Place, Readable, TensorFile

LARGE = 2**24  # bytes: a tensor that takes at least as many stays in its file

_Slot = tuple[nn.Module, str]  # a module, and the name of one of its parameters or buffers


def stored_model(
    module: nn.Module,
    places: Mapping[str, Place],
    *,
    above: int | None = LARGE,
    files: Mapping[Path, Readable] | None = None,
) -> nn.Module:
    """Give a module the parameters and buffers that lie in files; the large ones stay there.

        with torch.device("meta"):  # takes no memory
            model = build(widths)
        model = stored_model(model, find_model(folder))

    Args:
        module: built on the meta device; it is changed. Tensors that are neither parameters nor buffers stay on the
            meta device.
        places: where each parameter and buffer lies, by name. For a tied one, one of its names is enough.
        above: a tensor that takes at least so many bytes stays in its file as a `StoredTensor`; None: all are read.
        files: sources that read the paths of the places; None: the files at these paths.

    Returns:
        The module in evaluation mode. Stored tensors are buffers. If there are any, no parameter requires a gradient:
        the model is for inference. `state_dict` holds all tensors, the large ones as stored tensors.

    Raises:
        InputError: a tensor is missing, unknown to the module, or of another shape, or a file cannot be read.
    """
    files = files or {path: TensorFile(path) for path in {place.path for place in places.values()}}
    tensors = _slots(module)
    if unknown := places.keys() - {name for slots in tensors for name in slots}:
        raise InputError(f"the files hold '{min(unknown)}', the model does not: build the model that was saved")
    for slots in tensors:
        owner, key = next(iter(slots.values()))
        tensor: Tensor = getattr(owner, key)
        name = next((name for name in slots if name in places), None)
        if name is not None:
            value = _value(name, tensor, places[name], files, above)
            for owner, key in slots.values():
                _set(owner, key, value)
        elif tensor.is_meta:  # a buffer that is not saved may have been built elsewhere
            raise InputError(f"the files do not hold '{next(iter(slots))}': build the model that was saved")
    if any(isinstance(buffer, StoredTensor) for buffer in module.buffers()):
        module.requires_grad_(False)
    return module.eval()


def held_model(module: nn.Module, tensors: Mapping[str, Tensor], *, above: int | None = LARGE) -> nn.Module:
    """Give a module parameters and buffers that lie in the host's memory; the large ones are not copied.

    The arguments are as for `stored_model`, with every parameter and buffer by name. The module sees later changes of
    the large ones. On a GPU it moves them there one block at a time.

    Raises:
        InputError: a tensor is missing, unknown to the module, or of another shape.
    """
    files: dict[Path, Readable] = {Path(name): _InMemory(tensor) for name, tensor in tensors.items()}
    places = {name: Place(Path(name), 0, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
    return stored_model(module, places, above=above, files=files)


@dataclass(frozen=True, eq=False)
class _InMemory:
    """A tensor in memory with the interface of a file."""

    tensor: Tensor

    def read(self, place: Place, rows: slice | None = None, columns: slice | None = None) -> Tensor:
        if rows is None:
            return self.tensor.clone()
        return self.tensor[rows] if columns is None else self.tensor[rows, columns]


def _slots(module: nn.Module) -> list[dict[str, _Slot]]:
    """Return every name of each parameter or buffer, and where it belongs."""
    slots: dict[int, dict[str, _Slot]] = {}
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for key, tensor in {**owner._parameters, **owner._buffers}.items():
            if tensor is not None:
                slots.setdefault(id(tensor), {})[f"{prefix}.{key}" if prefix else key] = owner, key
    return list(slots.values())


def _value(name: str, tensor: Tensor, place: Place, files: Mapping[Path, Readable], above: int | None) -> Tensor:
    if place.shape != tuple(tensor.shape):
        shapes = f"{list(place.shape)} in {place.path} and {list(tensor.shape)} in the model"
        raise InputError(f"'{name}' is {shapes}: build the model that was saved")
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
