"""Every kind of file: one that is damaged is refused in one line that names it, or read as it was written."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from gistgnn import load
from gistgnn.errors import InputError
from gistgnn.graphs import Graph, load_nodes, save_file
from gistgnn.graphs.folder import MANIFEST, verify
from gistgnn.storage.json_files import read_json, write_json
from gistgnn.storage.tensors import check_digest, read_tensors, write_tensors
from tests.graph_folders.folders import some_graph
from tests.graphs.samples import arguments, arrays_of, as_data
from tests.helpers.clustered_folders import make_clustered
from tests.helpers.flips import flipped, some_bytes

TENSORS = {"a": torch.arange(9.0), "b": torch.ones(3, 2, dtype=torch.bfloat16)}
ARRAYS = ("rowptr", "col", "x", "y", "split", "edge_weight", "node", "cluster_ptr")


def json_file(folder: Path) -> Path:
    write_json(folder / "r.json", {"name": 'é \\ " 1e-05', "numbers": [1, 2.5, -0.0, True, None]}, indent=2)
    return folder / "r.json"


def tensor_file(folder: Path) -> Path:
    (folder / "digest").write_text(write_tensors(folder / "t", TENSORS))
    return folder / "t"


def npz(folder: Path) -> Path:
    save_file(Graph.build(**arguments()), folder / "g.npz")
    return folder / "g.npz"


def pt(folder: Path) -> Path:
    torch.save(as_data(Graph.build(**arguments())), folder / "g.pt")
    return folder / "g.pt"


def in_folder(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        make_clustered(some_graph(edge_weight=torch.rand(300)), 4, folder / "made")
        return folder / "made" / name

    return make


class Kind(NamedTuple):
    write: Callable[[Path], Path]  # writes a file in a folder
    check: Callable[[Path], Any]  # finds every changed byte
    read: Callable[[Path], Any]  # finds a file of another size
    strict: bool = True  # no byte of it may change


def values(path: Path) -> dict[str, Any]:
    return {name: array.tolist() for name, array in arrays_of(load(path)).items()}


def nodes(path: Path) -> list[Any]:
    x, edge_index, data, _ = load_nodes(path)
    return [x.tolist(), edge_index.tolist(), {name: value.tolist() for name, value in data.items()}]


def content(path: Path) -> dict[str, Any]:
    return read_json(path, dict[str, Any], "")


KINDS = {
    "json": Kind(json_file, content, content, strict=False),
    "safetensors": Kind(
        tensor_file,
        lambda path: check_digest(path, path.with_name("digest").read_text(), "do it again"),
        lambda path: len(read_tensors(path, "do it again")),
    ),
    "npz": Kind(npz, values, nodes, strict=False),
    "pt": Kind(pt, values, nodes, strict=False),
    **{
        name: Kind(
            in_folder(name),
            lambda path: verify(path.parent),
            lambda path: load(path.parent).num_edges,
            strict=name != MANIFEST,
        )
        for name in (*(f"{array}.npy" for array in ARRAYS), MANIFEST)
    },
}


def refuses(read: Callable[[Path], Any], path: Path, whole: Any) -> bool:
    """Whether the file is refused; if not, it is read as it was."""
    try:
        assert read(path) == whole
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017
        return True
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_refused_or_read_as_it_was(kind: str, tmp_path: Path) -> None:
    write, check, read, strict = KINDS[kind]
    path = write(tmp_path)
    checked, whole, data = check(path), read(path), path.read_bytes()
    flips = []
    for place in some_bytes(path, 40 if strict else 200):
        with flipped(path, place):
            flips.append(refuses(check, path, checked))
    assert all(flips) if strict else sum(flips) > 0.4 * len(flips)
    assert check(path) == checked
    for damaged in (b"", data[:5], data[: len(data) // 2], b"edge_index,x,y\n"):
        path.write_bytes(damaged)
        assert refuses(read, path, None)
    for damaged in (data[:-1], data + b"\0"):
        path.write_bytes(damaged)
        assert refuses(read, path, whole) or not strict
    path.unlink()
    with pytest.raises(InputError):
        check(path)
    os.mkfifo(path)
    assert refuses(check, path, None)
    path.unlink()
    path.mkdir()
    assert refuses(check, path, None)
