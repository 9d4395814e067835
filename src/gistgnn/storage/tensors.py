"""Tensors in files: written, mapped into memory, and compared with their digests.

A mapped tensor is an ordinary tensor. The system reads its pages when they are used, and gives them
up again.
"""

import ctypes
import hashlib
import json
import mmap
import os
import re
import sys
import tempfile
import warnings
import weakref
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
import xxhash
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from gistgnn.errors import InputError, reason
from gistgnn.storage.whole_files import reading, sync, temporary_path, writing

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "BOOL": torch.bool,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
}
"""The types of numbers in files, by their names in a file's header."""
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LARGE = 2**24  # bytes: a model gets a copy of a smaller tensor, and a larger one mapped

Specs = Mapping[str, tuple[torch.Size, torch.dtype]]  # the shape and type of every tensor, by name


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str] | None = None,
    *,
    wait: bool = True,
) -> str:
    """Write a safetensors file, or leave nothing and raise an OSError.

    With `wait` it is on the disk, and its digest is returned.
    """
    for name, tensor in tensors.items():
        if tensor.dtype not in NAMES:
            raise InputError(
                f"'{name}' is {tensor.dtype}, expected one of {', '.join(map(str, NAMES))}: "
                "convert it"
            )
    plain: dict[str, Tensor] = {}
    addresses = set[int]()
    for name, tensor in tensors.items():
        value = tensor.detach().cpu().contiguous()
        # The further names of a tied parameter get copies, as safetensors refuses shared memory.
        plain[name] = value.clone() if value.data_ptr() in addresses else value
        addresses.add(value.data_ptr())
    try:
        path.touch()
        # The mode is as the umask has it; safetensors writes a file for its owner alone.
        mode = path.stat().st_mode
        save_file(plain, path, dict(metadata or {"format": "pt"}))
        path.chmod(mode)
        if wait:
            sync(path)
    except (SafetensorError, OSError) as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise
        # The number of the system's error, which safetensors has in its text.
        match = re.search(r"os error (\d+)", str(error))
        if match is None:
            raise OSError(reason(error)) from error
        number = int(match[1])
        raise OSError(number, os.strerror(number)) from error
    return file_digest(path) if wait else ""


def read_tensors(path: Path, advice: str, *, shared: bool = False) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, as `map_tensors`; errors end with the advice."""
    with reading(path, advice):
        return map_tensors(path, shared=shared)


def file_digest(path: Path) -> str:
    """Return the digest of a whole file, xxh3_128."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def check_digest(path: Path, digest: str, advice: str) -> None:
    """Read a file once; raise InputError, which ends with the advice, unless it has this digest."""
    with reading(path, advice):
        actual = file_digest(path)
    if actual != digest:
        raise InputError(
            f"{path} is damaged, or of another run: its checksum does not fit; {advice}"
        )


def allocate(path: Path, specs: Specs) -> None:
    """Make a safetensors file of zeros that has its room on the disk.

    Otherwise it leaves nothing and raises an OSError.
    """
    header = dict[str, Any]()
    end = 0
    # Large numbers come first, which aligns all of them.
    for name, (shape, dtype) in sorted(specs.items(), key=lambda item: -item[1][1].itemsize):
        begin = end
        end = end + shape.numel() * dtype.itemsize
        header[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    try:
        with path.open("xb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + end)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, 8 + len(text) + end)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def map_tensors(path: Path, *, shared: bool = True) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, mapped.

    If `shared`, a change of a tensor changes the file.
    """
    # A header begins with its length in bytes.
    with path.open("r+b" if shared else "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(length, path.stat().st_size)))
    header.pop("__metadata__", None)
    size = path.stat().st_size
    # A text that is not UTF-8 is no name for torch, but its bytes are.
    file_name = cast(str, os.fsencode(path))
    raw = torch.from_file(file_name, shared=shared, size=size, dtype=torch.uint8)[8 + length :]
    if len(raw) != max((entry["data_offsets"][1] for entry in header.values()), default=0):
        raise ValueError("it is cut short")
    return {
        name: raw[slice(*entry["data_offsets"])].view(DTYPES[entry["dtype"]]).view(entry["shape"])
        for name, entry in header.items()
    }


def map_array(path: Path, lock_file: BinaryIO | None = None) -> Tensor:
    """Map a `.npy` file; nothing may be written to the tensor.

    Args:
        path: of the file.
        lock_file: an open file, which is closed when the tensor is gone.
    """
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if lock_file is not None:
        weakref.finalize(array, lock_file.close)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)


def read_ahead(array: Tensor, ranges: Iterable[tuple[int, int]]) -> None:
    """Ask the system to read some rows of a mapped array, together and with nothing around them."""
    # Without it a page fault reads as much as the disk's read-ahead: 8 MB on some, for rows of a
    # few hundred bytes.
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    begin = array.data_ptr()
    row = array.stride(0) * array.element_size()
    for start, stop in ranges:
        first = (begin + start * row) // mmap.PAGESIZE * mmap.PAGESIZE
        libc.madvise(
            ctypes.c_void_p(first), ctypes.c_size_t(begin + stop * row - first), mmap.MADV_WILLNEED
        )


def temporary_tensors(specs: Specs, folder: Path | None = None) -> dict[str, Tensor]:
    """Return tensors of zeros on the pages of a temporary file; see `allocate`.

    The file is gone when the tensors are.
    """
    folder = folder or Path(tempfile.gettempdir())
    path = temporary_path(folder / "tensors")
    try:
        with writing(folder, "make room, point TMPDIR to another disk, or allow more memory"):
            allocate(path, specs)
            return map_tensors(path)
    finally:
        path.unlink(missing_ok=True)


def assign(module: nn.Module, tensors: Mapping[str, Tensor], where: str) -> nn.Module:
    """Give a module built on the meta device its parameters and buffers.

    The module is changed, and set to evaluation mode.

    Args:
        module: the module.
        tensors: by name; one name of a tied parameter is enough. Those of `LARGE` bytes are not
            copied.
        where: the tensors are, for messages.

    Returns:
        The module.

    Raises:
        InputError: a tensor is missing, unknown to the module, or of another shape.
    """
    parameters = module.named_parameters(remove_duplicate=False)
    buffers = module.named_buffers(remove_duplicate=False)
    module_tensors: dict[str, Tensor] = dict(chain(parameters, buffers))
    names_of: dict[int, list[str]] = {}
    for name, tensor in module_tensors.items():
        names_of.setdefault(id(tensor), []).append(name)
    if unknown := tensors.keys() - module_tensors.keys():
        raise InputError(
            f"{where} holds '{min(unknown)}', the model does not: build the model that was saved"
        )
    for names in names_of.values():
        empty = module_tensors[names[0]]
        value = next((tensors[name] for name in names if name in tensors), None)
        # A buffer that is not saved may have been built elsewhere.
        if value is None and not empty.is_meta:
            continue
        if value is None:
            raise InputError(f"{where} does not hold '{names[0]}': build the model that was saved")
        if value.shape != empty.shape:
            shapes = f"{list(value.shape)} in {where} and {list(empty.shape)} in the model"
            raise InputError(f"'{names[0]}' is {shapes}: build the model that was saved")
        value = value.detach().to(empty.dtype)
        if value.nbytes < LARGE:
            value = value.clone()
        if isinstance(empty, nn.Parameter):
            value = nn.Parameter(value, empty.requires_grad)
        for name in names:
            owner, _, key = name.rpartition(".")
            setattr(module.get_submodule(owner), key, value)
    return module.eval()


class LargeTensorsInFiles(TorchDispatchMode):
    """Within its block `torch.empty` gives large tensors on the host the pages of temporary files.

    A layer fills them by its own initialisation, with the same values, bit for bit. What
    `torch.randn` makes is in memory.

    Args:
        folder: of the files. Defaults to that of the system's temporary files.
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self._folder = folder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.empty.memory_format and kwargs.get("device") in (
            None,
            torch.device("cpu"),
        ):
            shape = torch.Size(args[0])
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            if shape.numel() * dtype.itemsize >= LARGE:
                return temporary_tensors({"tensor": (shape, dtype)}, self._folder)["tensor"]
        return func(*args, **kwargs)
