"""Every kind of file that is damaged is refused, or read as it was written.

A refusal is one line that names the file.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from gistgnn import GIST, Saving, load, load_run
from gistgnn.errors import InputError
from gistgnn.fit.result import Progress
from gistgnn.graphs import Graph, load_nodes, save_file
from gistgnn.graphs.folder import MANIFEST, verify
from gistgnn.storage.checkpoints import Checkpoint
from gistgnn.storage.json_files import read_json, write_json
from gistgnn.storage.tensors import check_digest, read_tensors, write_tensors
from tests.graph_folders.folders import some_graph
from tests.graphs.samples import arguments, arrays_of, as_data
from tests.helpers.clustered_folders import make_clustered
from tests.helpers.fitting import fit, gcn
from tests.helpers.flips import flipped, some_bytes

TENSORS = {"a": torch.arange(9.0), "b": torch.ones(3, 2, dtype=torch.bfloat16)}
CONTENT = {"name": 'é \\ " 1e-05', "numbers": [1, 2.5, -0.0, True, None]}
ARRAYS = ("rowptr", "col", "x", "y", "split", "edge_weight", "node", "cluster_ptr")
SMALL = Graph.build(**arguments())


class Kind(NamedTuple):
    name: str  # of the file, with a star where it has a digest
    write: Callable[[Path], object]  # writes it in a folder
    check: Callable[[Path], Any]  # finds every changed byte
    read: Callable[[Path], Any]  # finds a file of another size
    least: float = 1.0  # the share of changed bytes that are refused; the others change nothing


def tensor_file(folder: Path) -> None:
    (folder / "digest").write_text(write_tensors(folder / "t", TENSORS))


def graph_folder(folder: Path) -> None:
    make_clustered(some_graph(edge_weight=torch.rand(300)), 4, folder / "made")


def saved_run(folder: Path) -> None:
    """A run with a checkpoint after each of two rounds, and its result."""
    saving = Saving(folder / "checkpoints", every=1)
    fit(GIST(gcn(), (2,), 1), epochs=4, evaluate_every=9, saving=saving).save(folder / "run")
    state = json.loads((folder / "checkpoints/round-00000002/state.json").read_text())
    (folder / "run.json").write_text(json.dumps(state["run"]))


def checkpoint(path: Path) -> dict[str, Any]:
    run = json.loads((path.parents[2] / "run.json").read_text())
    saved = Checkpoint(path.parent, run)
    tensors = {name: saved.tensor(name).tolist() for name in saved.shapes}
    return {"state": repr(saved.state_as(Progress)), **tensors}


def result_of_run(path: Path) -> list[Any]:
    result = load_run(path.parent, gcn())
    return [repr(result), [tensor.tolist() for tensor in result.model.state_dict().values()]]


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
        least=0.4,
    ),
    Kind(
        "t",
        tensor_file,
        lambda path: check_digest(path, path.with_name("digest").read_text(), "do it again"),
        lambda path: len(read_tensors(path, "do it again")),
    ),
    Kind("g.npz", lambda folder: save_file(SMALL, folder / "g.npz"), values, nodes, least=0.4),
    Kind(
        "g.pt",
        lambda folder: torch.save(as_data(SMALL), folder / "g.pt"),
        values,
        nodes,
        least=0.4,
    ),
    *(
        Kind(
            f"made/{name}",
            graph_folder,
            verified,
            lambda path: load(path.parent).num_edges,
            0.4 if name == MANIFEST else 1.0,
        )
        for name in (*(f"{array}.npy" for array in ARRAYS), MANIFEST)
    ),
    *(
        Kind(f"checkpoints/round-00000002/{name}", saved_run, checkpoint, checkpoint, least)
        # The last byte of state.json is a newline.
        for name, least in (("rank-*.safetensors", 1.0), ("state.json", 0.99))
    ),
    *(
        Kind(f"run/{name}", saved_run, result_of_run, result_of_run, least)
        for name, least in (("model.safetensors", 1.0), ("result.json", 0.4))
    ),
)


def refuses(read: Callable[[Path], Any], path: Path, expected: Any) -> bool:
    """Whether the file is refused; if not, it is read as it was."""
    try:
        assert read(path) == expected
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017
        assert "\n" not in str(error)  # noqa: PT017
        return True
    return False


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_a_damaged_file_is_refused_or_read_as_it_was(kind: Kind, tmp_path: Path) -> None:
    kind.write(tmp_path)
    (path,) = tmp_path.glob(kind.name)
    strict = kind.least == 1.0
    checked = kind.check(path)
    intact = kind.read(path)
    data = path.read_bytes()
    flips = []
    for position in some_bytes(path, 40 if strict else 200):
        with flipped(path, position):
            flips.append(refuses(kind.check, path, checked))
    assert sum(flips) >= kind.least * len(flips)
    assert kind.check(path) == checked
    for damaged in (b"", data[:5], data[: len(data) // 2], b"edge_index,x,y\n"):
        path.write_bytes(damaged)
        assert refuses(kind.read, path, None)
    for damaged in (data[:-1], data + b"\0"):
        path.write_bytes(damaged)
        assert refuses(kind.read, path, intact) or not strict
    path.unlink()
    with pytest.raises(InputError):
        kind.check(path)
    os.mkfifo(path)
    assert refuses(kind.check, path, None)
    path.unlink()
    path.mkdir()
    assert refuses(kind.check, path, None)
