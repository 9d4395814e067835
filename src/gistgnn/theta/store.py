"""Where Θ lies: chosen by a name, and made from the model's initial values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gistgnn.distributed import Ranks
from gistgnn.errors import InputError
from gistgnn.layout.axes import Build, Layout, Widths, named_tensors
from gistgnn.settings import PRECISIONS
from gistgnn.theta.disk.on_disk import InFiles
from gistgnn.theta.disk.tensor_file import Spec
from gistgnn.theta.disk.tensor_folder import EditableFolder
from gistgnn.theta.initial import (
    UnknownInitialisationError,
    Write,
    build_on_meta,
    initialise,
    tensors_from_seed,
)
from gistgnn.theta.memory import InMemory
from gistgnn.theta.ranks.replicated import Replicated
from gistgnn.theta.ranks.sharded import Sharded
from gistgnn.theta.theta import Theta

STORES = ("memory", "host", "mapped")  # of a process that trains alone
SHARDED = "sharded"


@dataclass(frozen=True)
class Store:
    """Where Θ, its moments and the best Θ are between rounds.

    Args:
        kind: "memory": on the device where the sub-GCNs train, with all m of them; "host": in the host's memory, with
            one sub-GCN at a time on the device; "mapped": in files, with one sub-GCN at a time in memory; "sharded": by
            rows over the ranks of a run, on their devices. With several ranks, "memory" is all of it on every rank.
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
        if self.kind not in (*STORES, SHARDED):
            raise InputError(f"store is '{self.kind}', expected one of {', '.join((*STORES, SHARDED))}")
        if self.precision not in PRECISIONS:
            raise InputError(f"the store's precision is '{self.precision}', expected one of {', '.join(PRECISIONS)}")
        if self.kind == "mapped" and self.folder is None:
            raise InputError("the store is mapped, but not where: give it a folder")
        if self.kind != "mapped" and self.folder is not None:
            raise InputError(f"a folder is given, but the store is {self.kind}: use mapped")
        if self.kind != "mapped" and self.precision != "float32":
            raise InputError(f"the store's precision is {self.precision}, but the store is {self.kind}: use mapped")


def check_ranks(store: Store, ranks: Ranks | None, sub_gcns: int) -> None:
    """Refuse ranks that do not go with the store or with m.

    Raises:
        InputError: they do not.
    """
    if ranks is None:
        if store.kind == SHARDED:
            raise InputError("the store is sharded, but there are no ranks: start by torchrun, or use memory")
        return
    if store.kind not in ("memory", SHARDED):
        raise InputError(f"the store is {store.kind}, but there are ranks: use memory or sharded")
    if sub_gcns < ranks.count:
        raise InputError(
            f"sub_gcns is {sub_gcns}, fewer than the {ranks.count} ranks, each of which trains one at least: start "
            "fewer, or split into more"
        )


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
        ranks: the processes that train it together, or None: this one alone.
    """

    build: Build
    layout: Layout
    widths: Widths
    shared: bool
    seed: int
    device: torch.device
    ranks: Ranks | None = None


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
    if store.kind == SHARDED:
        return _shard(model)
    if model.ranks is not None:
        return Replicated(model.layout, model.widths, _on(_built(model), model.device), model.ranks)
    if store.kind != "mapped":
        device = model.device if store.kind == "memory" else torch.device("cpu")
        return InMemory(model.layout, model.widths, _on(_built(model), device), streams=store.kind == "host")
    assert store.folder is not None
    if not replace and store.folder.exists() and any(store.folder.iterdir()):
        raise InputError(
            f"{store.folder} is not empty: go on with the Θ in it (`resume`), remove it, or choose another folder"
        )
    specs = _specs(model, half=store.precision == "bf16")

    def fill(files: EditableFolder) -> None:
        _write_initial(model, files.write_flat)

    return InFiles.create(model.layout, model.widths, store.folder, specs, fill)


def _shard(model: Model) -> Sharded:
    assert model.ranks is not None
    theta = Sharded(model.layout, model.widths, _specs(model), model.ranks, model.device)
    _write_initial(model, theta.write_flat)
    return theta


def _specs(model: Model, *, half: bool = False) -> dict[str, Spec]:
    like = named_tensors(build_on_meta(model.build, model.widths, shared=model.shared))
    return {
        name: Spec(tensor.shape, torch.bfloat16 if half and tensor.is_floating_point() else tensor.dtype)
        for name, tensor in like.items()
    }


def _write_initial(model: Model, write: Write) -> None:
    try:
        initialise(model.build, model.layout, model.widths, model.seed, write, shared=model.shared)
    except UnknownInitialisationError:  # the model is in memory once
        for name, tensor in _built(model).items():
            write(name, 0, tensor.reshape(-1))


def _on(tensors: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def _built(model: Model) -> dict[str, Tensor]:
    return tensors_from_seed(model.build, model.widths, model.seed, shared=model.shared)
