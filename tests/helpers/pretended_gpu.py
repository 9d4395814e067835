"""A pretended GPU: it computes on the CPU, and refuses an operation on tensors of both devices, as
CUDA does.

Tensors on it are said to be on "cuda:0". `numpy()` of them is refused as well. What it cannot show:
kernels, their rounding, random numbers, streams, memory, and where the host waits. The tests marked
`cuda` show these.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

GPU = torch.device("cuda:0")
BYTES = 8 * 2**30
_LIKE = "lazy"  # a device of torch for which autograd needs no driver; GPU for Python
_aten = torch.ops.aten
_COPIES = {_aten._to_copy.default, _aten.copy_.default}
_TAKES_INDICES = {_aten.index.Tensor, _aten.index_put_.default, _aten.index_put.default}
_SPARSE = "sparse_compressed_tensor"
_ZERO = ("current_device", "memory_allocated", "memory_reserved", "max_memory_allocated")
_NOTHING = ("set_device", "_lazy_init", "synchronize", "reset_peak_memory_stats")


class OnGPU(torch.Tensor):
    """A tensor on the pretended GPU; `on_cpu` has its values."""

    on_cpu: torch.Tensor

    @staticmethod
    def __new__(cls, on_cpu: torch.Tensor) -> "OnGPU":
        strides = on_cpu.stride() if on_cpu.layout is torch.strided else None
        made = torch.Tensor._make_wrapper_subclass(
            cls, on_cpu.shape, strides=strides, dtype=on_cpu.dtype, device=_LIKE
        )
        made.on_cpu = on_cpu
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnGPU":
        copy = self.detach().clone().requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            copy._is_param = True
        memo[id(self)] = copy
        return copy

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")

    # For torch itself, a wrapper of a sparse tensor is dense.
    def to_dense(self, *arguments: Any, **options: Any) -> torch.Tensor:
        if self.on_cpu.layout is torch.strided:
            return super().to_dense(*arguments, **options)
        return OnGPU(self.on_cpu.to_dense(*arguments, **options))

    def to(self, *arguments: Any, **options: Any) -> torch.Tensor:
        if self.on_cpu.layout is torch.strided:
            return super().to(*arguments, **options)
        device, dtype, _, _ = torch._C._nn._parse_to(*arguments, **options)
        on_cpu = self.on_cpu if dtype is None else self.on_cpu.to(dtype)
        return on_cpu.clone() if device is not None and device.type == "cpu" else OnGPU(on_cpu)

    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    layout = property(lambda self: self.on_cpu.layout)


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """Within the block there is one GPU, also for code that asks torch."""
    functions: dict[str, Any] = dict.fromkeys(_ZERO, lambda device=None: 0)
    functions |= dict.fromkeys(_NOTHING, lambda *device: None)
    functions |= {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "device": lambda device: nullcontext(),
    }
    functions |= {
        "mem_get_info": lambda device=None: (BYTES, BYTES),
        "get_device_name": lambda device=None: "pretended",
    }
    functions |= {
        "manual_seed": torch.manual_seed,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
    }
    functions |= {"set_rng_state": lambda state, device=None: torch.set_rng_state(state)}
    make = torch.tensor

    # torch's own does not ask a mode
    def tensor(*args: Any, device: Any = None, **options: Any) -> torch.Tensor:
        return make(*args, **options) if device is None else make(*args, **options).to(device)

    functions |= {
        "Stream": _Stream,
        "current_stream": _Stream,
        "stream": lambda stream: nullcontext(),
    }
    recordings = patch("gistgnn.runners.recorded.Recording", Recording)
    made_tensors = patch.object(torch, "tensor", tensor)
    pinned = patch.object(torch.Tensor, "pin_memory", lambda tensor: tensor)
    batches, slices = (
        patch(f"gistgnn.{home}.prefetch", _here) for home in ("sampling.sampler", "round")
    )
    with (
        patch.multiple(torch.cuda, **functions),
        made_tensors,
        pinned,
        batches,
        slices,
        recordings,
        _Mode(),
    ):
        yield


class _Stream:
    """A stream of the pretended GPU, which has only one."""

    def wait_stream(self, other: "_Stream") -> None:
        """Do nothing: all is done already."""


class Recording:
    """A function in place of a CUDA graph; as with a graph, its result keeps its place."""

    made = 0  # so far

    def __init__(self, function: Callable[[], torch.Tensor], stream: Any) -> None:
        Recording.made += 1
        self._function = function
        self.result: torch.Tensor | None = None

    def replay(self) -> None:
        """Call the function."""
        result = self._function()
        if self.result is None:
            self.result = result
        else:
            self.result.copy_(result)


def _here(items: Iterable[Any], depth: int = 2) -> Iterator[Any]:
    """Prepare items in the thread that uses them: a mode of torch holds for one thread alone."""
    yield from items


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [
        value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)
    ]
    any_on_gpu = any(isinstance(tensor, OnGPU) for tensor in tensors)
    device = kwargs.get("device")
    names_device = device is not None and _SPARSE not in func.name()
    gpu = torch.device(device).type in ("cuda", _LIKE) if names_device else any_on_gpu
    if not any_on_gpu and not gpu:
        return func(*args, **kwargs)
    _check(func, args, kwargs, tensors)
    plain_args, plain = tree_map(
        lambda value: value.on_cpu if isinstance(value, OnGPU) else value, (args, kwargs)
    )
    if device is not None and gpu:
        plain["device"] = torch.device("cpu")
    # even from the CPU's view it is a copy
    if func is _aten._to_copy.default and isinstance(args[0], OnGPU) != gpu:
        plain_args = (plain_args[0].clone(), *plain_args[1:])
    result = func(*plain_args, **plain)
    return _returned(func, args, kwargs, result) if gpu else result


def _returned(func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
    """Wrap what an operation returns; what it has changed in place is the argument itself."""
    changed = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            if isinstance(value, torch.Tensor):
                if isinstance(value, OnGPU) and value.shape != value.on_cpu.shape:
                    value.data = OnGPU(value.on_cpu)  # the shape has changed in place
                changed.append(value)
    if changed and isinstance(result, torch.Tensor):
        return changed[0]
    return tree_map(
        lambda value: OnGPU(value) if isinstance(value, torch.Tensor) else value, result
    )


def _check(func: Any, args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> None:
    """Refuse tensors of the host beside tensors of the GPU, as torch does."""
    if func in _COPIES or not any(isinstance(tensor, OnGPU) for tensor in tensors):
        return
    if func in _TAKES_INDICES:  # indices may be on the host, but not of a tensor on the host alone
        if not isinstance(args[0], OnGPU) and any(isinstance(index, OnGPU) for index in args[1]):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )
        tensors = [value for value in (args[0], *args[2:]) if isinstance(value, torch.Tensor)]
    lists = (
        []
        if func in _TAKES_INDICES
        else [value for value in (*args, *kwargs.values()) if isinstance(value, list | tuple)]
    )
    in_lists = {id(value) for listed in lists for value in listed}
    on_host = [tensor for tensor in tensors if not isinstance(tensor, OnGPU)]
    if len(on_host) < len(tensors) and any(
        tensor.dim() or id(tensor) in in_lists for tensor in on_host
    ):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but {func} got {GPU} and cpu"
        )
