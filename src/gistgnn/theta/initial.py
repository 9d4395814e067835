"""Initialise a model that is too large for the memory.

The model is built on the meta device, where a recorder notes which operations fill which tensor, in which order. The
operations are then repeated on real memory, some entries at a time, with the same random numbers. The values are those
of the model built in one piece, bit for bit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gistgnn.layout.axes import named_tensors
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.utils.random_streams import torch_stream

Write = Callable[[str, int, Tensor], None]  # name, first entry of the flat tensor, values

_STEP = 2**22  # entries; normal_ draws by groups of 16, so a multiple of it
_GROUP = 16
_NARROW = (5, 7)  # features of every axis in the models that are tried first

_FACTORIES = ("aten::empty", "aten::zeros", "aten::ones", "aten::full", "aten::randn", "aten::rand")
_DRAWS = ("aten::uniform_", "aten::normal_")
_FILLS = ("aten::zero_", "aten::fill_")


class _UnknownInitialisationError(Exception):
    """The operations that fill some tensor cannot be repeated in pieces."""


@dataclass
class _Step:
    """One operation on a whole tensor; `call` does it to some of the entries."""

    call: Callable[[Tensor], Any]
    random: bool
    order: int  # among all operations of the model


@dataclass
class _Recipe:
    """The operations that fill one storage."""

    numel: int
    dtype: torch.dtype
    steps: list[_Step] = field(default_factory=list)
    unknown: bool = False  # another operation has changed it


class _Recorder(TorchDispatchMode):
    """Notes the operations on tensors of the meta device."""

    def __init__(self) -> None:
        super().__init__()
        self.recipes: dict[int, _Recipe] = {}  # of every storage, also of those that are gone
        self._alive: list[Any] = []  # storages, whose addresses are the keys
        self._count = 0
        self._stray = False  # some random operation cannot be repeated

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and note it."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self._count += 1
        name, random = func._schema.name, torch.Tag.nondeterministic_seeded in func.tags
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if name in _FACTORIES and isinstance(out, Tensor) and out.is_meta:
            self._create(name, args, out)
        elif func._schema.is_mutable:
            self._change(func, args, kwargs, inputs, random)
        elif random:
            self._stray = True
        return out

    def recipe(self, tensor: Tensor) -> _Recipe | None:
        """Return the operations that fill a tensor, or None if they cannot be repeated in pieces."""
        found = self.recipes.get(tensor.untyped_storage()._cdata)
        if found is None or self._stray or found.unknown or not found.steps or not _is_whole(tensor, found):
            return None
        return found

    def _create(self, name: str, args: Any, out: Tensor) -> None:
        recipe = _Recipe(out.numel(), out.dtype)
        if name in ("aten::full", "aten::zeros", "aten::ones"):
            value = args[1] if name == "aten::full" else float(name == "aten::ones")
            recipe.steps.append(_Step(lambda t: t.fill_(value), False, self._count))
        elif name in ("aten::randn", "aten::rand"):
            draw = Tensor.normal_ if name == "aten::randn" else Tensor.uniform_
            recipe.steps.append(_Step(draw, True, self._count))
        self._alive.append(out.untyped_storage())
        self.recipes[out.untyped_storage()._cdata] = recipe

    def _change(self, func: Any, args: Any, kwargs: Any, inputs: list[Tensor], random: bool) -> None:
        name = func._schema.name
        recipe = self.recipes.get(args[0].untyped_storage()._cdata) if isinstance(args[0], Tensor) else None
        fine = len(inputs) == 1 and recipe is not None and _is_whole(args[0], recipe) and not kwargs.get("generator")
        if random:
            fine = fine and name in _DRAWS
            self._stray |= not fine
        elif name not in _FILLS:
            fine = fine and torch.Tag.pointwise in func.tags
        if fine:
            assert recipe is not None
            recipe.steps.append(_Step(lambda t: func(t, *args[1:], **kwargs), random, self._count))
            return
        for tensor in inputs:
            if changed := self.recipes.get(tensor.untyped_storage()._cdata):
                changed.unknown = True


def write_initial(spec: ModelSpec, write: Write) -> None:
    """Write the initial values of a model, some entries at a time where that can be done.

    Some tensors are filled by other operations, but are the same at all widths, or hold one value, such as batch norm's
    counter. They are copied from a narrow model. The method is tried on a narrow model first, and its values compared.
    Where it fails, the whole model is in memory once.

    Args:
        spec: the model.
        write: called with a tensor's name, the place of the first entry in the flat tensor, and the values.
    """
    if spec.init is not None:
        for name, tensor in spec.init.items():
            write(name, 0, tensor.detach().cpu().reshape(-1))
        return
    plain = replace(spec, gains={})

    def write_scaled(name: str, start: int, values: Tensor) -> None:
        write(name, start, values * spec.gains[name] if name in spec.gains else values)

    try:
        _write_in_pieces(plain, write_scaled)
    except _UnknownInitialisationError:
        for name, tensor in plain.initial_tensors().items():
            write_scaled(name, 0, tensor.reshape(-1))


def _write_in_pieces(spec: ModelSpec, write: Write) -> None:
    full = spec.layout.features(spec.widths)
    narrow = [replace(spec, widths=spec.layout.widths([min(d, most) for d in full])) for most in _NARROW]
    small, other = (each.initial_tensors() for each in narrow)
    constants = {name: found for name in small if (found := _constant(small[name], other.get(name))) is not None}
    trial = {name: torch.zeros_like(tensor) for name, tensor in small.items()}

    def put(name: str, start: int, values: Tensor) -> None:
        trial[name].view(-1)[start : start + len(values)] = values

    _replay(narrow[0], constants, put)
    if not all(torch.equal(trial[name], tensor) for name, tensor in small.items()):
        raise _UnknownInitialisationError  # some tensor is filled by operations that are not seen
    _replay(spec, constants, write)


def _constant(one: Tensor, other: Tensor | None) -> Tensor | None:
    """Return the tensor, or the one value of its entries, if it is the same in models of two widths; otherwise None."""
    if other is None or (one.shape == other.shape and not torch.equal(one, other)):
        return None
    if one.shape == other.shape:
        return one
    values = torch.cat([one.reshape(-1), other.reshape(-1)]).unique()
    return values[0] if len(values) == 1 else None


def _replay(spec: ModelSpec, constants: dict[str, Tensor], write: Write) -> None:
    recorder = _Recorder()
    with recorder:
        module = spec.on_meta()
    names: dict[int, str] = {}
    for name, tensor in named_tensors(module).items():
        if recipe := recorder.recipe(tensor):
            names[id(recipe)] = name
        elif name in constants and constants[name].shape in ((), tensor.shape):
            for start, stop in _ranges(tensor.numel()):
                fixed = constants[name]
                write(name, start, fixed.reshape(-1)[start:stop] if fixed.dim() else fixed.repeat(stop - start))
        else:
            raise _UnknownInitialisationError
    parts = [(recipe, part) for recipe in recorder.recipes.values() for part in _parts(recipe)]
    with torch_stream(spec.seed, "parameters", *spec.stream):
        for recipe, part in sorted(parts, key=lambda found: found[1][0].order):
            last = part[-1] is recipe.steps[-1]
            _fill(recipe, part, names.get(id(recipe)) if last else None, write)


def _fill(recipe: _Recipe, part: list[_Step], name: str | None, write: Write) -> None:
    """Do a part of a recipe, and write the values under a name. Values that are overwritten later are drawn, too."""
    if name is None and not part[0].random:
        return
    for start, stop in _ranges(recipe.numel):
        values = torch.empty(stop - start, dtype=recipe.dtype)
        for step in part if name is not None else part[:1]:
            step.call(values)
        if name is not None:
            write(name, start, values)


def _parts(recipe: _Recipe) -> Iterator[list[_Step]]:
    """Split the steps before each random step, which draws every value anew."""
    part: list[_Step] = []
    for step in recipe.steps:
        if step.random and part:
            yield part
            part = []
        part.append(step)
    if part:
        yield part


def _ranges(numel: int) -> Iterator[tuple[int, int]]:
    """Yield ranges that draw the same random numbers as the whole: normal_ treats fewer than 16 values differently."""
    start = 0
    while start < numel:
        stop = min(start + _STEP, numel)
        if 0 < numel - stop < _GROUP:
            stop = numel
        yield start, stop
        start = stop


def _is_whole(tensor: Tensor, recipe: _Recipe) -> bool:
    return tensor.is_contiguous() and tensor.storage_offset() == 0 and tensor.numel() == recipe.numel
