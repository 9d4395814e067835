"""Where Θ lies: chosen by a name, and made from the model's initial values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from gistgnn.axes import Build, Layout, Widths, named_tensors
from gistgnn.errors import InputError
from gistgnn.settings import PRECISIONS
from gistgnn.stored import held_model, stored_model
from gistgnn.tensor_files import find_tensors
from gistgnn.theta.editable import Spec
from gistgnn.theta.files import PARAMETERS, InFiles
from gistgnn.theta.folder import EditableFolder
from gistgnn.theta.initial import (
    UnknownInitialisationError,
    build_from_seed,
    build_on_meta,
    initialise,
    tensors_from_seed,
)
from gistgnn.theta.memory import InMemory
from gistgnn.theta.theta import Theta, fill

STORES = ("memory", "host", "mapped")


@dataclass(frozen=True)
class Store:
    """Where Θ, its moments and the best Θ are between rounds.

    Args:
        kind: "memory": on the device where the sub-GCNs train, with all m of them; "host": in the host's memory, with
            one sub-GCN at a time on the device; "mapped": in files, with one sub-GCN at a time in memory.
        folder: of the files; it holds nothing else.
        precision: of the numbers in the files, "float32" or "bf16"; sub-GCNs train in float32 all the same.

    Raises:
        InputError: a value out of its range, or that does not go with the kind.
    """

    kind: str = "memory"
    folder: Path | None = None
    precision: str = "float32"

    def __post_init__(self) -> None:
        """Check every value."""
        if self.kind not in STORES:
            raise InputError(f"store is '{self.kind}', expected one of {', '.join(STORES)}")
        if self.precision not in PRECISIONS:
            raise InputError(f"the store's precision is '{self.precision}', expected one of {', '.join(PRECISIONS)}")
        if self.kind == "mapped" and self.folder is None:
            raise InputError("the store is mapped, but not where: give it a folder")
        if self.kind != "mapped" and self.folder is not None:
            raise InputError(f"a folder is given, but the store is {self.kind}: use mapped")
        if self.kind != "mapped" and self.precision != "float32":
            raise InputError(f"the store's precision is {self.precision}, but the store is {self.kind}: use mapped")


@dataclass(frozen=True)
class Model:
    """The model whose parameters Θ are.

    Args:
        build: makes it.
        layout: how its tensors lie along the hidden axes.
        widths: the full widths.
        shared: `build` takes a single width.
        seed: of its initial parameters.
        device: where it trains.
    """

    build: Build
    layout: Layout
    widths: Widths
    shared: bool
    seed: int
    device: torch.device


def open_theta(store: Store, model: Model) -> Theta:
    """Open the Θ of an earlier process.

    Raises:
        InputError: there is none, it is damaged, or of another model.
    """
    if store.folder is None or not store.folder.exists():
        raise InputError(f"there is no Θ to go on from{f' in {store.folder}' if store.folder else ' in memory'}")
    return InFiles(model.layout, model.widths, store.folder)


def make_theta(store: Store, model: Model, *, replace: bool = False) -> Theta:
    """Make Θ with the model's initial values, which are the same in every store.

    Args:
        store: where.
        model: what.
        replace: another Θ that is in the store's folder.

    Raises:
        InputError: the files cannot be written, or the folder is not empty.
    """
    if store.kind != "mapped":
        device = model.device if store.kind == "memory" else torch.device("cpu")
        tensors = {name: tensor.to(device) for name, tensor in _built(model).items()}
        return InMemory(model.layout, model.widths, tensors, streams=store.kind == "host")
    assert store.folder is not None
    if not replace and store.folder.exists() and any(store.folder.iterdir()):
        raise InputError(
            f"{store.folder} is not empty: go on with the Θ in it (`resume`), remove it, or choose another folder"
        )
    like = named_tensors(build_on_meta(model.build, model.widths, shared=model.shared))
    half = store.precision == "bf16"
    specs = {
        name: Spec(tensor.shape, torch.bfloat16 if half and tensor.is_floating_point() else tensor.dtype)
        for name, tensor in like.items()
    }

    def fill(files: EditableFolder) -> None:
        try:
            build, layout = model.build, model.layout
            initialise(build, layout, model.widths, model.seed, files.write_flat, shared=model.shared)
        except UnknownInitialisationError:  # the model is in memory once
            for name, tensor in _built(model).items():
                files.write_flat(name, 0, tensor)

    return InFiles.create(model.layout, model.widths, store.folder, specs, fill)


def full_model(theta: Theta, model: Model, *, best: bool = False) -> nn.Module:
    """The full model with the parameters of Θ, in evaluation mode.

    In memory they are copied, to the device of Θ; in files, the large ones are read from there when the model runs.

    Args:
        theta: where they are.
        model: what it is.
        best: with those of the best Θ, if there is one.
    """
    if isinstance(theta, InFiles):
        return _from_files(theta.best if best else theta.folder / PARAMETERS, model)
    assert isinstance(theta, InMemory)
    tensors = theta.best if best and theta.best else theta.tensors
    module = _module(model).to(next(iter(tensors.values())).device)
    fill(module, tensors)
    return module.eval()


class Running:
    """The full model on the device where it is evaluated, with the parameters that Θ has at the time.

    Θ that is not on the device is taken there block by block, while the model runs.

    Args:
        theta: where they are.
        model: what it is.
    """

    def __init__(self, theta: Theta, model: Model) -> None:
        self._theta, self._model = theta, model
        self.module = full_model(theta, model) if not theta.streams else self._fetched()

    def refresh(self) -> nn.Module:
        """The module with the parameters as they are now."""
        if self._theta.streams:
            self.module = self._fetched()
        else:
            self._theta.load_into(self.module)
        return self.module

    def best(self) -> nn.Module:
        """The full model with the parameters of the best Θ, for whoever trained it."""
        theta = self._theta
        if theta.streams:
            return full_model(theta, self._model, best=True)
        assert isinstance(theta, InMemory)
        fill(self.module, theta.best or theta.tensors)
        return self.module.eval()

    def _fetched(self) -> nn.Module:
        theta, model = self._theta, self._model
        if isinstance(theta, InFiles):
            return full_model(theta, model)
        module = build_on_meta(model.build, model.widths, shared=model.shared)
        return held_model(module, theta.tensors).to(model.device)


def _from_files(folder: Path, model: Model) -> nn.Module:
    module = build_on_meta(model.build, model.widths, shared=model.shared)
    found = [find_tensors(path) for path in sorted(folder.glob("*.safetensors"))]
    places = {name: place for file in found for name, place in file.items()}
    return stored_model(module, places).to(model.device)


def _module(model: Model) -> nn.Module:
    return build_from_seed(model.build, model.widths, model.seed, shared=model.shared)


def _built(model: Model) -> dict[str, Tensor]:
    return tensors_from_seed(model.build, model.widths, model.seed, shared=model.shared)
