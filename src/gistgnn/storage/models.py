"""The files of a model: its tensors in one safetensors file, or in several shards and an index, as at Hugging Face.

A folder holds `model.safetensors`; or, if the tensors take more than a limit, `model-00001-of-00003.safetensors` and so
on, and `model.safetensors.index.json`, which names the shard of each tensor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
from torch import Tensor

from gistgnn.errors import InputError, reason
from gistgnn.storage.tensors import file_digest, read_tensors, write_tensors
from gistgnn.storage.whole_files import replacing

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
LIMIT = 5 * 10**9  # bytes of a file, unless one tensor takes more


class _Index(msgspec.Struct):
    metadata: dict[str, int | str]
    weight_map: dict[str, str]


def model_path(folder: Path) -> Path:
    """Return the main file of the model in a folder: the index of the shards, or the only file."""
    single, index = folder / SINGLE, folder / INDEX
    return index if index.exists() and not single.exists() else single


def model_files(folder: Path) -> list[Path]:
    """Return the files of the tensors in a folder."""
    path = model_path(folder)
    if path.name == SINGLE:
        return [path]
    try:
        index = msgspec.json.decode(path.read_bytes(), type=_Index)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({reason(error)}): make it again") from error
    return [folder / Path(name).name for name in sorted(set(index.weight_map.values()))]


def read_model(folder: Path, advice: str) -> dict[str, Tensor]:
    """Return the tensors of the model in a folder, mapped; see `read_tensors`."""
    return {name: tensor for path in model_files(folder) for name, tensor in read_tensors(path, advice).items()}


def write_model(folder: Path, tensors: Mapping[str, Tensor], limit: int = LIMIT) -> dict[str, str]:
    """Write a model's tensors, and replace a model that is in the folder once the new one is written.

    At every moment one of the two loads, and in the end no file of the old one is left. A file has at most `limit`
    bytes, unless one tensor takes more. Returns the digest of every file, by name.
    """
    shards = shards_of({name: tensor.nbytes for name, tensor in tensors.items()}, limit)
    digests, old = {}, {path.name for path in folder.glob("model*.safetensors")}
    files = _shard_names(len(shards), old) if len(shards) > 1 else [SINGLE]
    for file, shard in zip(files, shards, strict=True):
        with replacing(folder / file) as path:
            digests[file] = write_tensors(path, {name: tensors[name] for name in shard})
    if len(shards) > 1:
        files_of = {name: file for shard, file in zip(shards, files, strict=True) for name in shard}
        index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": files_of}
        with replacing(folder / INDEX) as path:
            path.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
        digests[INDEX] = file_digest(folder / INDEX)
    for left in {*old, SINGLE, INDEX} - digests.keys():
        (folder / left).unlink(missing_ok=True)
    return digests


def _shard_names(count: int, old: set[str]) -> list[str]:
    """Return names that no shard in the folder has: the old ones load until the index changes."""
    for end in ("", "-new"):
        names = [f"model-{number:05}-of-{count:05}{end}.safetensors" for number in range(1, count + 1)]
        if not old & set(names):
            break
    return names


def shards_of(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Distribute tensors over files of at most `limit` bytes, in their order; there is at least one file.

    A tensor that takes more has a file of its own, after the others.
    """
    shards: list[list[str]] = [[]]
    large, held = [], 0
    for name, size in sizes.items():
        if size > limit:
            large.append([name])
            continue
        if shards[-1] and held + size > limit:
            shards.append([])
            held = 0
        shards[-1].append(name)
        held += size
    return [shard for shard in shards if shard or not large] + large
