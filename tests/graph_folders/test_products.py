"""Ā x, which is kept beside the features of a folder of clusters."""

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from gistgnn import load
from gistgnn.graphs.on_disk import verify
from gistgnn.graphs.standardise import Standardisation
from gistgnn.sampling import whole_graph
from tests.helpers.clustered_folders import make_clustered
from tests.helpers.refusals import refused

from .folders import some_graph


def products(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (folder / "products").glob("*.npy")}


def test_the_product_is_computed_once_and_anew_if_it_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    make_clustered(some_graph(), 4, folder)

    def product() -> torch.Tensor:
        batch = whole_graph(load(folder))
        return batch.adj.aggregate("mean", batch.x)[:]

    first, there = product().load(), products(folder)  # type: ignore[attr-defined]
    assert len(there) == 1
    assert torch.equal(product().load(), first)  # type: ignore[attr-defined]
    assert products(folder) == there
    (path,) = (folder / "products").glob("*.npy")
    values = bytearray(path.read_bytes())
    values[-3] ^= 1
    path.write_bytes(values)
    with refused(f"{path} is damaged", "remove it, and it is computed again"):
        verify(folder)
    os.truncate(path, 200)
    assert torch.equal(product().load(), first)  # type: ignore[attr-defined]
    assert products(folder).keys() == there.keys()
    path.with_suffix(".json").unlink()  # killed before it was recorded
    assert torch.equal(product().load(), first)  # type: ignore[attr-defined]
    scaled = load(folder)
    other = whole_graph(Standardisation.of(scaled).graph(scaled))
    assert not torch.equal(other.adj.aggregate("mean", other.x)[:].load(), first)  # type: ignore[attr-defined]
    assert len(products(folder)) == 2


def _product_in(folder: Path, ready: Any) -> None:
    ready.wait()
    batch = whole_graph(load(folder))
    batch.adj.aggregate("gcn", batch.x)


def test_processes_compute_a_product_one_after_another(tmp_path: Path) -> None:
    make_clustered(some_graph(300, 4000), 4, tmp_path / "graph")
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(3)
    processes = [context.Process(target=_product_in, args=(tmp_path / "graph", ready)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(products(tmp_path / "graph")) == 1


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "graph"
    same, _ = make_clustered(some_graph(), 4, folder)

    def refuse(path: Path, *given: Any, mkdir: Any = Path.mkdir, **options: Any) -> None:
        if path.name == "products":
            raise PermissionError(13, "Permission denied")
        mkdir(path, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        batch = whole_graph(load(folder))
        found = batch.adj.aggregate("sum", batch.x)
    assert not (folder / "products").exists()
    assert not found.path.exists()  # type: ignore[attr-defined]  # it is open, and gone with this process
    assert torch.equal(found[:].load(), whole_graph(same).adj.aggregate("sum", same.x))  # type: ignore[attr-defined]
