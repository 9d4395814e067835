"""Tensors of a checkpoint on disk: torch.distributed.checkpoint with safetensors files, so that nothing is pickled.

torch's planners and storage are made for one collective call; here every rank saves and loads by itself (`no_dist`), as
torch's collectives exchange pickles. Which rows a rank has is said by `Part`.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from gistgnn.checkpoint.checkpoints import FILE_BYTES
from gistgnn.checkpoint.part import Part
from gistgnn.io.tensors import shards_of

SUFFIX = ".safetensors"

# `no_dist` is meant.
warnings.filterwarnings("ignore", message="torch.distributed is disabled", module="torch.distributed.checkpoint")


def write_parts(folder: Path, parts: Mapping[str, Part], shard: int) -> None:
    """Write what a process has of some tensors into files of its own, to the disk itself.

    Args:
        folder: where; it is made.
        parts: by the tensors' names; none of them may be empty.
        shard: the process's number, from 0.

    Raises:
        OSError: the files cannot be written.
    """
    with _own_errors():
        save(dict(parts), storage_writer=_Writer(folder, parts, shard), planner=_Saving(), no_dist=True)


def read_parts(folder: Path, parts: Mapping[str, Part]) -> None:
    """Fill parts of tensors, in place, from the files of all processes, whoever wrote them.

    Raises:
        Exception: what torch or safetensors raise where a file is damaged.
    """
    with _own_errors():
        load(dict(parts), storage_reader=_reader(folder), planner=_Loading(), no_dist=True)


def saved_parts(folder: Path) -> dict[str, tuple[torch.Size, torch.dtype, int]]:
    """The shape and type of every tensor, and how many of its numbers the files hold, without reading them.

    Raises:
        Exception: what safetensors raises where a file is damaged.
    """
    found = {}
    for name, tensor in _reader(folder).read_metadata().state_dict_metadata.items():
        assert isinstance(tensor, TensorStorageMetadata)
        held = sum(chunk.sizes.numel() for chunk in tensor.chunks)
        found[name] = tensor.size, tensor.properties.dtype, held
    return found


def files_of(folder: Path, shard: int | None = None) -> list[Path]:
    """The files of tensors in a folder, or those of one process."""
    return sorted(folder.glob(f"{'' if shard is None else f'shard-{shard + 1:05d}-'}*{SUFFIX}"))


class _Writer(HuggingFaceStorageWriter):
    """Numbers the files by the process: torch would take each for the only one."""

    def __init__(self, folder: Path, parts: Mapping[str, Part], shard: int) -> None:
        files = shards_of({name: part.tensor.nbytes for name, part in parts.items()}, FILE_BYTES)
        where = {name: k for k, names in enumerate(files, 1) for name in names}
        super().__init__(str(folder), where, save_distributed=True)
        self._shard = shard

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Give the only plan the process's number."""
        [plan] = super().prepare_global_plan(plans)
        return [replace(plan, storage_data={**plan.storage_data, "shard_index": self._shard + 1})]


class _Saving(SavePlanner):
    """Writes every part as a chunk of its tensor."""

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: Any = None, is_coordinator: bool = False
    ) -> None:
        """Note what there is."""
        self._parts: dict[str, Part] = state_dict

    def create_local_plan(self) -> SavePlan:
        """An item for every part."""
        return SavePlan([_item(name, part) for name, part in self._parts.items()])

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """The plan of this process alone; metadata are in the files themselves."""
        return all_plans, Metadata({})

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """The plan as it is."""
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """The numbers of a part."""
        return self._parts[write_item.index.fqn].tensor.detach().contiguous()


class _Loading(LoadPlanner):
    """Reads every part from the chunks that overlap it."""

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Note what is wanted, and what there is."""
        assert metadata is not None
        self._parts: dict[str, Part] = state_dict
        self._metadata = metadata

    def create_local_plan(self) -> LoadPlan:
        """The overlaps of every part with the chunks of its tensor."""
        items = []
        for name, part in self._parts.items():
            tensor = self._metadata.state_dict_metadata[name]
            assert isinstance(tensor, TensorStorageMetadata)
            items += create_read_items_for_chunk_list(name, tensor, [_chunk(part)])
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """The plans as they are."""
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """The plan as it is."""
        return central_plan

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """Where an overlap goes."""
        target = self._parts[read_item.dest_index.fqn].tensor.detach()
        for dim, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            target = target.narrow(dim, start, length)
        return target

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """It is there already."""

    def resolve_bytes(self, read_item: ReadItem) -> io.BytesIO:
        """There are none."""
        raise NotImplementedError

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """There are none."""
        raise NotImplementedError


def _reader(folder: Path) -> HuggingFaceStorageReader:
    return HuggingFaceStorageReader(str(folder))


def _item(name: str, part: Part) -> WriteItem:
    chunk = _chunk(part)
    properties = TensorProperties(dtype=part.tensor.dtype)
    data = TensorWriteData(chunk=chunk, properties=properties, size=part.shape)
    return WriteItem(MetadataIndex(name, chunk.offsets), WriteItemType.SHARD, tensor_data=data)


def _chunk(part: Part) -> ChunkStorageMetadata:
    offsets = [part.first, *[0] * (len(part.shape) - 1)] if part.shape else []
    return ChunkStorageMetadata(torch.Size(offsets), part.tensor.shape)


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raise what went wrong, not torch's bundle of what went wrong on every rank."""
    try:
        yield
    except CheckpointException as error:
        raise next(iter(error.failures.values()))[0] from error
