"""Functions with a gradient of their own, called at little cost."""

from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import unwrap_dead_wrappers


class Function(torch.autograd.Function):
    """torch's `Function`, for functions that are called by position and without defaults.

    torch looks at the signature of ``forward`` in every call, which takes longer than a small product.
    """

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        """Return what ``forward`` returns, with its gradient."""
        if torch._C._are_functorch_transforms_active():
            return super().apply(*arguments)
        return super(torch.autograd.Function, cls).apply(*unwrap_dead_wrappers(arguments))  # type: ignore[misc]


def has_values_here(*tensors: Tensor) -> bool:
    """Tell whether NumPy can read them: on the CPU, not a plan's, and not within a transform of torch.func."""
    if torch._C._are_functorch_transforms_active():
        return False
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # made within one
    return all(each.device.type == "cpu" and type(each) is Tensor and not wrapped(each) for each in tensors)
