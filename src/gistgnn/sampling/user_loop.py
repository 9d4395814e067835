"""Sub-GCNs that a training loop of the user's own calls: PyG's layers in them multiply by matrices, as in `fit`."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from gistgnn.graphs.checks import EDGE_DATA
from gistgnn.nn.pyg_layers import Products, multiplies, sparse_layers
from gistgnn.sampling.call import signature

KEPT = 2  # batches whose matrices are kept: those to train on and, perhaps, to score

_CALLED: WeakKeyDictionary[nn.Module, _Calls] = WeakKeyDictionary()


class Recent:
    """The matrices of the latest batches. Batches are told apart by their tensors, and by changes to these in place."""

    def __init__(self) -> None:
        self._known: list[tuple[list[Tensor], list[int], Products]] = []

    def products(self, tensors: list[Tensor]) -> Products:
        """Return the matrices of a batch; ``tensors``: its features, edges and edge data."""
        versions = [tensor._version for tensor in tensors]
        for others, known, products in self._known:
            if known == versions and list(map(id, others)) == list(map(id, tensors)):
                return products
        self._known = [*self._known[1 - KEPT :], (tensors, versions, Products(tensors[0]))]
        return self._known[-1][-1]


def multiply_when_called(model: nn.Module, recent: Recent) -> None:
    """Let PyG's layers in a model multiply (see `sparse_layers`) whenever it is called with features and edges.

    So a loop of the user's own takes the steps of `fit`, bit for bit. Copies of the model pass messages.
    """
    if model not in _CALLED and signature(model).structure == "edge_index" and multiplies(model):
        calls = _CALLED[model] = _Calls(recent)
        model.register_forward_pre_hook(calls.begin, with_kwargs=True)
        model.register_forward_hook(calls.end, always_call=True)


class _Calls:
    """The calls of one model."""

    def __init__(self, recent: Recent | None = None) -> None:
        self._recent, self._open = recent, list[AbstractContextManager[None] | None]()

    def __reduce__(self) -> tuple[type[_Calls], tuple[()]]:
        """Copies do nothing."""
        return _Calls, ()

    def begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Replace what passes messages, unless `fit` has done so, or the model is called in another way."""
        context = None
        if self._recent is not None and not any("propagate" in vars(layer) for layer in multiplies(model)):
            given = dict(zip(inspect.signature(model.forward).parameters, args, strict=False)) | kwargs
            given = {name: value for name, value in given.items() if value is not None}
            if _is_batch(given):
                x, edge_index, *_ = tensors = list(given.values())
                data = {name: value for name, value in given.items() if name in EDGE_DATA}
                context = sparse_layers(model, self._recent.products(tensors), (x, edge_index), data)
                context.__enter__()
        self._open.append(context)

    def end(self, *_: object) -> None:
        """Put the layers back, also after an error."""
        if self._open and (context := self._open.pop()):
            context.__exit__(None, None, None)


def _is_batch(given: dict[str, Any]) -> bool:
    """Tell whether arguments are features, edges and edge data without gradients, and known by their identity."""
    values = list(given.values())
    return (
        len(values) > 1
        and all(name in EDGE_DATA for name in list(given)[2:])
        and not torch._C._are_functorch_transforms_active()
        and all(isinstance(value, Tensor) and not value.requires_grad and not value.is_inference() for value in values)
        and (values[0].layout, values[0].is_floating_point()) == (torch.strided, True)
        and not values[1].is_floating_point()
    )
