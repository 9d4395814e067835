"""Make a new Θ in the place that the user has chosen, or open an old one."""

from __future__ import annotations

from gistgnn.distributed import World
from gistgnn.errors import InputError
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.registry import STORES
from gistgnn.theta.store import Store
from gistgnn.theta.theta import Theta


def make_theta(store: Store, spec: ModelSpec, ranks: World, *, replace: bool = False) -> Theta:
    """Make Θ with the model's initial values, which are the same in every place.

    Args:
        store: the place.
        spec: the model.
        ranks: the processes of the run.
        replace: an older Θ in the store's folder is replaced.

    Raises:
        InputError: the files cannot be written, or the folder is not empty.
    """
    theta: Theta = store.place.load().make(store, spec, ranks, replace=replace)
    return theta


def reopen_theta(store: Store, spec: ModelSpec) -> Theta:
    """Open the Θ that an earlier process has left.

    Raises:
        InputError: there is none, it is damaged, or it is of another model.
    """
    theta: Theta = store.place.load().reopen(store, spec)
    return theta


def check_ranks(store: Store, ranks: World, workers: int, name: str = "sub_gcns") -> None:
    """Refuse ranks that do not fit the store, or are more than the workers; `name` is what the user calls these.

    Raises:
        InputError: they do not fit.
    """
    if not ranks.several:
        if not store.place.alone:
            raise InputError(f"the store is {store.kind}, but there are no ranks: start by torchrun, or use memory")
        return
    if not store.place.ranks:
        known = " or ".join(name for name, place in STORES.items() if place.ranks)
        raise InputError(f"the store is {store.kind}, but there are ranks: use {known}")
    if workers < ranks.count:
        raise InputError(
            f"{name} is {workers}, fewer than the {ranks.count} ranks, each of which trains one at least: start "
            f"fewer ranks, or raise {name}"
        )
