"""The files of a model: its tensors in one safetensors file, or in several shards and an index, as at Hugging Face.

A folder holds `model.safetensors`; or, if the tensors take more than a limit, `model-00001-of-00003.safetensors` and so
on, and `model.safetensors.index.json`, which names the shard of each tensor.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.io.digests import RUN
from gistgnn.io.records import CHECKSUM, RecordError, parsed, text_of
from gistgnn.io.stored_tensor import StoredTensor
from gistgnn.io.tensors import LIMIT, Place, find_tensors, shards_of, write_tensors
from gistgnn.io.whole_files import replacing
from gistgnn.utils.checksums import digest_of

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"

_SHARD = re.compile(r"model-\d{5}-of-\d{5}(-new)?\.safetensors")  # a killed process leaves second names

_Sizes = Mapping[str, tuple[torch.Size, torch.dtype]]  # the shape and type of every tensor, by name


def model_path(folder: Path) -> Path:
    """Return the main file of the model in a folder: the index of the shards, or the only file."""
    single, index = folder / SINGLE, folder / INDEX
    return index if index.exists() and not single.exists() else single


def find_model(folder: Path) -> dict[str, Place]:
    """Return where every tensor of a model lies, by name, in one file or in shards.

    Raises:
        InputError: there is no model, or one of its files is missing, cut short, or does not fit the index.
    """
    path = model_path(folder)
    if path.name == SINGLE:
        return find_tensors(path)
    files, total, _ = _read_index(path)
    shards = {name: find_tensors(folder / name) for name in sorted(set(files.values()))}
    if missing := sorted(name for name, file in files.items() if name not in shards[file]):
        raise InputError(f"{folder / files[missing[0]]} does not hold '{missing[0]}', as {INDEX} says: make it again")
    places = {name: shards[file][name] for name, file in files.items()}
    if total != (actual := sum(place.nbytes for place in places.values())):
        raise InputError(f"the tensors of {path} take {actual} bytes, not {total} as it says: make it again")
    return places


def write_model(
    folder: Path, tensors: Mapping[str, Tensor], limit: int = LIMIT, run: str | None = None
) -> dict[str, str]:
    """Write a model's tensors, and replace a model that is in the folder once the new one is written.

    At every moment one of the two loads, and in the end no file of the old one is left. (Except where new shards take
    the names of old ones on a file system without hard links: nothing loads between the first and the last renaming.)

    Args:
        folder: made if it is not there.
        tensors: by name. The mapping may make them on demand: it is asked for each tensor twice, for its size and for
            its values, and one is held at a time. A `StoredTensor` is copied block by block.
        limit: bytes of a file; a tensor that takes more has a file of its own.
        run: the id of the run, for the metadata of the files; None: there is none.

    Returns:
        The digest or checksum of every file, by name.

    Raises:
        InputError: the folder cannot be written, or safetensors has no such type of numbers.
    """
    sizes = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
    shards, old = shards_of({name: _nbytes(*size) for name, size in sizes.items()}, limit), _old_names(folder)
    if len(shards) == 1:
        with replacing(folder / SINGLE) as path:
            digests = {SINGLE: _write(path, sizes, tensors, run)}
        _remove(folder, [INDEX, *(old - {SINGLE})])
        return digests
    names = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    with ExitStack() as stack:
        paths = [stack.enter_context(replacing(folder / name)) for name in names]
        written = zip(names, paths, shards, strict=True)
        digests = {
            name: _write(path, {key: sizes[key] for key in shard}, tensors, run) for name, path, shard in written
        }
        # Several shards cannot be replaced in one step; the index can. So it first names second names of the shards.
        if others := _link(paths) if old & set(names) else []:
            try:
                _write_index(folder, shards, others, sizes)
            except InputError:
                _remove(folder, others)
                raise
    digests[INDEX] = _write_index(folder, shards, names, sizes)
    _remove(folder, [SINGLE, *others, *(old - set(names))])
    return digests


def _nbytes(shape: torch.Size, dtype: torch.dtype) -> int:
    return shape.numel() * dtype.itemsize


def _write(path: Path, sizes: _Sizes, tensors: Mapping[str, Tensor], run: str | None) -> str:
    return write_tensors(path, sizes, lambda name: _pieces(tensors[name]), {} if run is None else {RUN: run})


def _pieces(tensor: Tensor) -> Iterable[Tensor]:
    if isinstance(tensor, StoredTensor) and not tensor.transposed:
        return (block for _, block in tensor.cpu().blocks())  # type: ignore[attr-defined]
    return [tensor.detach().cpu()]


def _link(paths: Sequence[Path]) -> list[str]:
    """Give files second names and return these; none where the file system has no hard links."""
    others = [path.with_name(f"{path.stem}-new{path.suffix}") for path in paths]
    try:
        for path, other in zip(paths, others, strict=True):
            os.link(path, other)
    except OSError:
        _remove(paths[0].parent, [other.name for other in others])
        return []
    return [other.name for other in others]


def _write_index(folder: Path, shards: Sequence[Sequence[str]], files: Sequence[str], sizes: _Sizes) -> str:
    """Write the index, and return its checksum; it is in the metadata, where Hugging Face's loaders ignore it."""
    metadata: dict[str, int | str] = {"total_size": sum(_nbytes(*size) for size in sizes.values())}
    files_of = {name: file for shard, file in zip(shards, files, strict=True) for name in shard}
    index = {"metadata": metadata, "weight_map": files_of}
    metadata[CHECKSUM] = checksum = digest_of(index)
    with replacing(folder / INDEX) as path:
        path.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return checksum


def index_checksum(path: Path) -> str:
    """Return the checksum of an index, as its content gives it.

    Raises:
        InputError: it cannot be read, or another checksum is in it.
    """
    return _read_index(path)[2]


def _read_index(path: Path) -> tuple[dict[str, str], int, str]:
    """Return the file of every tensor, the bytes of all, and the checksum; an index of others need not have one."""
    try:
        index = parsed(text_of(path))
        files, total = dict(index["weight_map"]), int(index["metadata"]["total_size"])
        said = index["metadata"].pop(CHECKSUM, None)
        if outside := [name for name in files.values() if Path(name).name != name]:
            raise ValueError(f"it names '{outside[0]}', which is not beside it")
        found = digest_of(index)
        if said not in (None, found):
            raise RecordError("is damaged: its checksum does not fit")
    except RecordError as error:
        raise InputError(f"{path} {error}: make it again") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise InputError(f"{path} cannot be loaded ({reason(error)}): make it again") from error
    return files, total, found


def _old_names(folder: Path) -> set[str]:
    """Return the names of the model files in a folder, without the index."""
    try:
        names = {path.name for path in folder.iterdir() if path.name == SINGLE or _SHARD.fullmatch(path.name)}
    except OSError:  # it is not there, or writing will say what is wrong
        return set()
    try:
        return names | set(_read_index(folder / INDEX)[0].values())
    except InputError:  # there is none, or it is damaged
        return names


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
