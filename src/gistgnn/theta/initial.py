"""Build a model that is too large for the memory: its tensors lie on the pages of temporary files."""

from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gistgnn.storage.tensors import LARGE, temporary_tensors


class LargeTensorsInFiles(TorchDispatchMode):
    """Within its block `torch.empty` gives large tensors on the host the pages of temporary files.

    A layer then fills them by its own initialisation, so the values are those of the same layer in memory, bit for bit.
    A large tensor that a layer makes in another way, such as by `torch.randn`, is in memory.

    Args:
        folder: of the files; None: that for temporary files.
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self._folder = folder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation."""
        kwargs = kwargs or {}
        if func is torch.ops.aten.empty.memory_format and kwargs.get("device") in (None, torch.device("cpu")):
            shape, dtype = torch.Size(args[0]), kwargs.get("dtype") or torch.get_default_dtype()
            if shape.numel() * dtype.itemsize >= LARGE:
                return temporary_tensors({"tensor": (shape, dtype)}, self._folder)["tensor"]
        return func(*args, **kwargs)
