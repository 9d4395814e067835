"""Every kind of file: one that is damaged is refused in one line that names it, or read as it was
written.
"""

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
CONTENT = {"name": 'é \\ " 1e-05', "numbers": [1, 2.5, -0.0, True, None]}
ARRAYS = ("rowptr", "col", "x", "y", "split", "edge_weight", "node", "cluster_ptr")
SMALL = Graph.build(**arguments())


class Kind(NamedTuple):
    name: str  # of the file
    write: Callable[[Path], object]  # writes it in a folder
    check: Callable[[Path], Any]  # finds every changed byte
    read: Callable[[Path], Any]  # finds a file of another size
    strict: bool = True  # no byte of it may change


def tensor_file(folder: Path) -> None:
    (folder / "digest").write_text(write_tensors(folder / "t", TENSORS))


def graph_folder(folder: Path) -> None:
    make_clustered(some_graph(edge_weight=torch.rand(300)), 4, folder / "made")


def verified(path: Path) -> int:
    return verify(path.parent)


def values(path: Path) -> dict[str, Any]:
    return {name: array.tolist() for name, array in arrays_of(load(path)).items()}


def nodes(path: Path) -> list[Any]:
    x, edge_index, data, _ = load_nodes(path)
    return [x.tolist(), edge_index.tolist(), {name: value.tolist() for name, value in data.items()}]


def content(path: Path) -> dict[str, Any]:
    return read_json(path, dict[str, Any], "")


KINDS = (
    Kind(
        "r.json",
        lambda folder: write_json(folder / "r.json", CONTENT, indent=2),
        content,
        content,
        strict=False,
    ),
    Kind(
        "t",
        tensor_file,
        lambda path: check_digest(path, path.with_name("digest").read_text(), "do it again"),
        lambda path: len(read_tensors(path, "do it again")),
    ),
    Kind("g.npz", lambda folder: save_file(SMALL, folder / "g.npz"), values, nodes, strict=False),
    Kind(
        "g.pt",
        lambda folder: torch.save(as_data(SMALL), folder / "g.pt"),
        values,
        nodes,
        strict=False,
    ),
    *(
        Kind(
            f"made/{name}",
            graph_folder,
            verified,
            lambda path: load(path.parent).num_edges,
            name != MANIFEST,
        )
        for name in (*(f"{array}.npy" for array in ARRAYS), MANIFEST)
    ),
)


def refuses(read: Callable[[Path], Any], path: Path, whole: Any) -> bool:
    """Whether the file is refused; if not, it is read as it was."""
    try:
        assert read(path) == whole
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017
        return True
    return False


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_a_damaged_file_is_refused_or_read_as_it_was(kind: Kind, tmp_path: Path) -> None:
    name, write, check, read, strict = kind
    write(tmp_path)
    path = tmp_path / name
    checked = check(path)
    whole = read(path)
    data = path.read_bytes()
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
