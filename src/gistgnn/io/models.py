"""A model's tensors in safetensors files: one, or several shards and an index of them, as Hugging Face has it.

A folder holds `model.safetensors`; or, where the tensors take more than a limit, `model-00001-of-00003.safetensors` and
so on, and `model.safetensors.index.json`, which says in which shard each of them lies.
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
from gistgnn.io.stored_tensor import StoredTensor
from gistgnn.io.tensors import LIMIT, NAMES, Place, find_tensors, make_header, shards_of
from gistgnn.io.whole_files import replacing

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"

_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


def model_path(folder: Path) -> Path:
    """Return the file to begin with in a folder that holds a model: the index, or the only file."""
    single, index = folder / SINGLE, folder / INDEX
    return index if index.exists() and not single.exists() else single


def find_model(folder: Path) -> dict[str, Place]:
    """Return where every tensor of a model lies, by name, in one file or in shards.

    Raises:
        InputError: there is no model, or a file of it is missing, cut short, or does not fit the index.
    """
    path = model_path(folder)
    if path.name == SINGLE:
        return find_tensors(path)
    files, total = _read_index(path)
    held = {name: find_tensors(folder / name) for name in sorted(set(files.values()))}
    if missing := sorted(name for name, file in files.items() if name not in held[file]):
        raise InputError(f"{folder / files[missing[0]]} does not hold '{missing[0]}', as {INDEX} says: make it again")
    places = {name: held[file][name] for name, file in files.items()}
    if total != (found := sum(place.nbytes for place in places.values())):
        raise InputError(f"the tensors of {path} take {found} bytes, not {total} as it says: make it again")
    return places


def write_model(folder: Path, tensors: Mapping[str, Tensor], limit: int = LIMIT) -> None:
    """Write a model's tensors; a model that the folder holds already is replaced once all of the new one is written.

    At every moment either of them loads, and in the end no file of the old one is left. (Where new shards take the
    names of old ones on a file system without hard links, nothing loads between the first and the last renaming.)

    Args:
        folder: made if it is not there.
        tensors: by name. They may be made when they are asked for: each is asked for twice, for its size and for its
            values, and one is held at a time. A `StoredTensor` is copied block by block.
        limit: bytes of a file; a tensor that takes more has one to itself.

    Raises:
        InputError: the folder cannot be written, or a tensor is of a type that safetensors files do not have.
    """
    heads = {name: _head(name, tensor) for name, tensor in tensors.items()}
    shards, old = shards_of({name: head.nbytes for name, head in heads.items()}, limit), _old_names(folder)
    if len(shards) == 1:
        with replacing(folder / SINGLE) as path:
            _write(path, heads, tensors)
        _remove(folder, [INDEX, *(old - {SINGLE})])
        return
    names = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    with ExitStack() as stack:
        paths = [stack.enter_context(replacing(folder / name)) for name in names]
        for path, shard in zip(paths, shards, strict=True):
            _write(path, {name: heads[name] for name in shard}, tensors)
        # Shards cannot all take the place of old ones at once; the index can, and the shards have other names first.
        others = _link(paths) if old & set(names) else []
        if others:
            try:
                _write_index(folder, shards, others, heads)
            except InputError:
                _remove(folder, others)
                raise
    _write_index(folder, shards, names, heads)
    _remove(folder, [SINGLE, *others, *(old - set(names))])


def _head(name: str, tensor: Tensor) -> Tensor:
    """A tensor's size and type, without its values."""
    if tensor.dtype not in NAMES:
        raise InputError(f"'{name}' is {tensor.dtype}, expected one of {', '.join(map(str, NAMES))}: convert it")
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _write(path: Path, heads: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    header, order, _ = make_header({name: (head.shape, head.dtype) for name, head in heads.items()})
    with path.open("wb") as file:
        file.write(header)
        for name in order:
            for piece in _pieces(tensors[name]):
                file.write(piece.contiguous().view(-1).view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())


def _pieces(tensor: Tensor) -> Iterable[Tensor]:
    """A tensor's values on the host, in order."""
    if isinstance(tensor, StoredTensor) and not tensor.turned:
        return (block for _, block in tensor.cpu().blocks())  # type: ignore[attr-defined]
    return [tensor.detach().cpu()]


def _link(paths: Sequence[Path]) -> list[str]:
    """Give files second names beside their own, and return these; none where the file system has no hard links."""
    others = [path.with_name(f"{path.stem}-new{path.suffix}") for path in paths]
    try:
        for path, other in zip(paths, others, strict=True):
            os.link(path, other)
    except OSError:
        _remove(paths[0].parent, [other.name for other in others])
        return []
    return [other.name for other in others]


def _write_index(
    folder: Path, shards: Sequence[Sequence[str]], files: Sequence[str], heads: Mapping[str, Tensor]
) -> None:
    index = {
        "metadata": {"total_size": sum(head.nbytes for head in heads.values())},
        "weight_map": {name: file for shard, file in zip(shards, files, strict=True) for name in shard},
    }
    with replacing(folder / INDEX) as path:
        path.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _read_index(path: Path) -> tuple[dict[str, str], int]:
    """Which file each tensor lies in, by name, and the bytes of all."""
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        files, total = dict(index["weight_map"]), int(index["metadata"]["total_size"])
        if outside := [name for name in files.values() if Path(name).name != name]:
            raise ValueError(f"it names '{outside[0]}', which is not beside it")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be loaded ({reason(error)}): make it again") from error
    return files, total


def _old_names(folder: Path) -> set[str]:
    """The files of the models that a folder holds, but for the index."""
    try:
        found = {path.name for path in folder.iterdir() if path.name == SINGLE or _SHARD.fullmatch(path.name)}
    except OSError:  # it is not there, or writing will say what is wrong
        return set()
    try:
        return found | set(_read_index(folder / INDEX)[0].values())
    except InputError:  # there is none, or it is damaged
        return found


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
