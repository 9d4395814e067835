"""The full model with the parameters of Θ, to be run."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from gistgnn.io.stored_model import held_model, stored_model
from gistgnn.io.tensors import find_tensors
from gistgnn.theta.disk.on_disk import PARAMETERS, InFiles
from gistgnn.theta.initial import build_from_seed, build_on_meta
from gistgnn.theta.memory import InMemory
from gistgnn.theta.ranks.sharded import Sharded
from gistgnn.theta.store import Model
from gistgnn.theta.theta import Theta, fill


def full_model(theta: Theta, model: Model, *, best: bool = False) -> nn.Module:
    """The full model with the parameters of Θ, in evaluation mode.

    In memory they are copied, to the device of Θ; in files, the large ones are read from there when the model runs.
    Where Θ is sharded, all ranks have to call this: rank 0 gets a model that reads its large weights from the others
    within `Theta.led`, these get one on the meta device.

    Args:
        theta: where they are.
        model: what it is.
        best: with those of the best Θ, if there is one.
    """
    if isinstance(theta, Sharded):
        module = _on_meta(model)
        theta.led(lambda: _fill_from_ranks(module, theta, best))
        return module.to(model.device) if theta.ranks.leads else module
    if isinstance(theta, InFiles):
        return _from_files(theta.best if best else theta.folder / PARAMETERS, model)
    assert isinstance(theta, InMemory)
    tensors = theta.best if best and theta.best else theta.tensors
    module = build_from_seed(model.build, model.widths, model.seed, shared=model.shared)
    fill(module.to(next(iter(tensors.values())).device), tensors)
    return module.eval()


class Running:
    """The full model on the device where it is evaluated, with the parameters that Θ has at the time.

    Θ that is not on the device is taken there block by block, while the model runs. Where Θ is sharded, `module` and
    `refresh` are for rank 0, within `Theta.led`.

    Args:
        theta: where they are.
        model: what it is.
    """

    def __init__(self, theta: Theta, model: Model) -> None:
        self._theta, self._model = theta, model
        self._module: nn.Module | None = None

    @property
    def module(self) -> nn.Module:
        """The module, with the parameters as they were when it was last refreshed."""
        return self._module or self.refresh()

    def refresh(self) -> nn.Module:
        """The module with the parameters as they are now."""
        if self._theta.streams:
            self._module = self._fetched()
        elif self._module is None:
            self._module = full_model(self._theta, self._model)
        else:
            assert isinstance(self._theta, InMemory)
            self._theta.load_into(self._module)
        return self._module

    def best(self) -> nn.Module:
        """The full model with the parameters of the best Θ, for whoever trained it; see `full_model`."""
        theta = self._theta
        if theta.streams:
            return full_model(theta, self._model, best=True)
        assert isinstance(theta, InMemory)
        fill(self.module, theta.best or theta.tensors)
        return self.module.eval()

    def _fetched(self) -> nn.Module:
        theta, model = self._theta, self._model
        if isinstance(theta, Sharded):
            return theta.stand_in(_on_meta(model)).to(model.device)
        if isinstance(theta, InFiles):
            return full_model(theta, model)
        assert isinstance(theta, InMemory)
        return held_model(_on_meta(model), theta.tensors).to(model.device)


def _fill_from_ranks(module: nn.Module, theta: Sharded, best: bool) -> None:
    theta.stand_in(module, best=best)


def _from_files(folder: Path, model: Model) -> nn.Module:
    found = [find_tensors(path) for path in sorted(folder.glob("*.safetensors"))]
    places = {name: place for file in found for name, place in file.items()}
    return stored_model(_on_meta(model), places).to(model.device)


def _on_meta(model: Model) -> nn.Module:
    return build_on_meta(model.build, model.widths, shared=model.shared)
