"""Reads the attributes of a PyG `Data` from a ``.pt`` file. Nothing is unpickled but plain tensors."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from gistgnn.errors import InputError
from gistgnn.graphs.archive import check_members, open_archive


def read_pt(path: Path, keys: Collection[str]) -> dict[str, Any]:
    """Read attributes by name; one that is missing or None is left out. What they hold is checked later.

    Args:
        path: a file that `torch.save` has written, with a `torch_geometric.data.Data`.
        keys: the names of the attributes.

    Raises:
        InputError: the file is damaged, has no checksums, does not fit in memory, or holds something else.
        OSError: the file cannot be opened.
    """
    with open_archive(path, "not made by torch.save") as archive:
        check_members(archive)
        if damaged := archive.testzip():  # torch compares no checksums
            raise InputError(f"is damaged, or was saved without checksums (its member {damaged}); write it again")
        data = _load(path)
    from torch_geometric.data import Data
    from torch_geometric.data.storage import GlobalStorage

    if type(data) is not Data:
        raise InputError(f"the data is a {type(data).__name__}; expected a torch_geometric.data.Data")
    store = vars(data).get("_store")
    attributes = vars(store).get("_mapping") if isinstance(store, GlobalStorage) else None
    if not isinstance(attributes, dict):
        raise InputError("the Data has no attributes; expected one that torch.save has written as a whole")
    found = {key: attributes[key] for key in keys if attributes.get(key) is not None}
    for key, value in found.items():
        if not isinstance(value, (torch.Tensor, list, tuple)):
            raise InputError(f"{key} is a {type(value).__name__}; expected a tensor")
    return found


def _load(path: Path) -> Any:
    from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    try:
        # The containers of a Data; PyG 2.8 registers only some of them as safe.
        with torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # torch's unpickler may raise anything on damaged bytes
        raise InputError(
            "is damaged, or holds Python objects other than a Data of plain tensors, which are never unpickled; "
            "write it with torch.save(Data(...), path)"
        ) from error
