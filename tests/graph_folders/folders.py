"""Graphs that are written to folders in very small steps."""

import contextlib
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gistgnn.graphs import Graph, save_file, tables


@contextlib.contextmanager
def small_steps(numbers: int = 8, edges: int = 5) -> Iterator[None]:
    """Read blocks of so many numbers, and sort about so many edges at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_BLOCK", 8 * numbers)
        patch.setattr(tables, "_KEY_BYTES", 2**29 // edges)
        yield


def some_graph(nodes: int = 40, edges: int = 300, seed: int = 0, **changes: Any) -> Graph:
    """A graph with self-loops, and nodes without edges."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(nodes)
    return Graph.build(
        **{
            "x": rng.normal(size=(nodes, 3)).astype(np.float32),
            "edge_index": rng.integers(0, nodes // 2, (2, edges)),
            "y": np.arange(nodes) % 3,
            "train": order[: nodes // 2],
            "val": order[nodes // 2 : -5],
            "test": order[-5:],
            **changes,
        }
    )


def write_value(path: Path, index: Any, value: int) -> None:
    """Change a value; the header and the size stay."""
    array = np.load(path)
    begin = path.stat().st_size - array.nbytes
    array[index] = value
    path.write_bytes(path.read_bytes()[:begin] + array.tobytes())


def npz(graph: Graph, path: Path) -> Path:
    save_file(graph, path)
    return path


def csv_tables(graph: Graph, folder: Path, suffix: str = ".csv") -> tuple[Path, Path]:
    """Write the edges, in another order, and the nodes as text."""
    order = np.random.default_rng(1).permutation(graph.num_edges)
    edges = [f"{target},{source}" for source, target in graph.edge_index.T[order].tolist()]
    split = np.full(graph.num_nodes, "", dtype=object)
    for name in ("train", "val", "test"):
        split[getattr(graph, name).numpy()] = name
    labels = graph.y.reshape(graph.num_nodes, -1)
    names = ["y"] if labels.shape[1] == 1 else [f"y{k}" for k in range(labels.shape[1])]
    header = ",".join(["node", *names, *(f"f{k}" for k in range(graph.num_features)), "split"])
    rows = []
    for node in range(graph.num_nodes):
        y = [int(label) for label in labels[node]]
        x = [float(value) for value in graph.x[node]]
        rows.append(",".join(map(str, [node, *y, *x, split[node]])))
    paths = folder / f"edges{suffix}", folder / f"nodes{suffix}"
    tables_of_lines = (["target,source", *edges], [header, *rows])
    for path, lines in zip(paths, tables_of_lines, strict=True):
        data = "".join(f"{line}\n" for line in lines).encode()
        path.write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
    return paths


def parquet_tables(graph: Graph, folder: Path, lists: bool) -> tuple[Path, Path]:
    """Write the edges and the nodes as Parquet.

    Features are in a column of lists, or in one column each.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    source, target = graph.edge_index.numpy()
    pq.write_table(
        pa.table({"source": source, "target": target}), folder / "edges.parquet", row_group_size=17
    )
    split = np.full(graph.num_nodes, None, dtype=object)
    for name in ("train", "val", "test"):
        split[getattr(graph, name).numpy()] = name
    columns: dict[str, Any] = {"split": pa.array(split.tolist(), pa.string())}
    x = graph.x.numpy()
    y = graph.y.numpy()
    if lists:
        columns["x"] = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])
    else:
        columns |= {f"f{k}": x[:, k] for k in range(x.shape[1])}
    if y.ndim == 1:
        columns["y"] = y
    elif lists:
        columns["y"] = pa.array(y.tolist())
    else:
        columns |= {f"y{k}": y[:, k] for k in range(y.shape[1])}
    pq.write_table(pa.table(columns), folder / "nodes.parquet", row_group_size=9)
    return folder / "edges.parquet", folder / "nodes.parquet"
