"""`Function`: a torch function with a gradient of its own, called at little cost."""

from inspect import Signature
from types import SimpleNamespace
from typing import Any

import torch


class _ByPosition(Signature):
    """Binds arguments as they are given: all of them, by position."""

    def bind(self, *args: Any, **_: Any) -> Any:
        return SimpleNamespace(args=args, kwargs={}, apply_defaults=int)


class Function(torch.autograd.Function):
    """torch's `Function`, for a ``forward`` that is called with all arguments, by position.

    torch binds the arguments to the signature of ``forward`` in every call, which takes longer than a small product.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "forward" in vars(cls):
            cls.forward.__signature__ = _ByPosition()  # type: ignore[attr-defined]
