"""Small files in the formats that PyG and ogb download."""

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import scipy.sparse as sp

RANDOM = np.random.default_rng(0)


def planetoid(raw: Path, name: str) -> None:
    """526 nodes in a ring, with 4 features and 3 classes.

    The first 6 nodes train, the next 500 are for validation, and the last 20 for the test.
    """
    labels = np.eye(3, dtype=np.int32)[np.arange(526) % 3]
    features = sp.csr_matrix(
        np.hstack([RANDOM.integers(1, 5, (526, 3)), np.zeros((526, 1))]).astype(np.float32)
    )
    ring = {node: [(node - 1) % 526, (node + 1) % 526, node] for node in range(526)}
    parts = {"x": features[:6], "allx": features[:506], "tx": features[506:], "graph": ring}
    parts |= {"y": labels[:6], "ally": labels[:506], "ty": labels[506:]}
    for part, value in parts.items():
        (raw / f"ind.{name}.{part}").write_bytes(pickle.dumps(value, protocol=2))
    (raw / f"ind.{name}.test.index").write_text("\n".join(map(str, range(525, 505, -1))) + "\n")


def gnn_benchmark(raw: Path, file: str) -> None:
    """20 nodes, 4 features, 4 classes; a directed path."""
    x = sp.csr_matrix(RANDOM.integers(0, 2, (20, 4)).astype(np.float32))
    path = sp.csr_matrix(np.eye(20, k=1, dtype=np.float32))
    arrays = {f"attr_{key}": getattr(x, key) for key in ("data", "indices", "indptr", "shape")}
    arrays |= {f"adj_{key}": getattr(path, key) for key in ("data", "indices", "indptr", "shape")}
    np.savez(raw / file, labels=np.arange(20) % 4, **arrays)


def ppi(raw: Path) -> None:
    """20, 2 and 2 rings of 3, 4 and 5 nodes; 6 labels."""
    first = 1
    for split, graphs, size in (("train", 20, 3), ("valid", 2, 4), ("test", 2, 5)):
        rings = nx.disjoint_union_all([nx.cycle_graph(size) for _ in range(graphs)])
        (raw / f"{split}_graph.json").write_text(
            json.dumps(nx.node_link_data(rings, edges="links"))
        )
        np.save(raw / f"{split}_feats.npy", RANDOM.normal(size=(graphs * size, 3)))
        np.save(raw / f"{split}_labels.npy", RANDOM.integers(0, 2, (graphs * size, 6)))
        np.save(raw / f"{split}_graph_id.npy", np.repeat(np.arange(first, first + graphs), size))
        first += graphs


def ogb(folder: Path, split: str, nodes: int) -> None:
    """A directed path with a self-loop at its end; 3 features, 4 classes."""
    ends = [*range(1, nodes), nodes - 1]
    rows = {
        "raw/edge": [
            f"{source},{target}" for source, target in zip(range(nodes), ends, strict=True)
        ],
        "raw/num-node-list": [nodes],
        "raw/num-edge-list": [nodes],
        "raw/node-feat": [f"{node / 2},{-node},0.25" for node in range(nodes)],
        "raw/node-label": [node % 4 for node in range(nodes)],
        f"split/{split}/train": range(nodes // 2),
        f"split/{split}/valid": range(nodes // 2, nodes - 2),
        f"split/{split}/test": [nodes - 2, nodes - 1],
    }
    for name, lines in rows.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


# name: (folder of the raw files below the data root, function that writes them)
PYG: dict[str, tuple[str, Callable[[Path], None]]] = {
    "cora": ("Planetoid/Cora/raw", lambda raw: planetoid(raw, "cora")),
    "amazon-photo": (
        "Amazon/Photo/raw",
        lambda raw: gnn_benchmark(raw, "amazon_electronics_photo.npz"),
    ),
    "ppi": ("PPI/raw", ppi),
}
OGB = {"ogbn-arxiv": ("ogbn_arxiv", "time")}
OGB |= dict.fromkeys(("ogbn-products", "amazon2m"), ("ogbn_products", "sales_ranking"))


def write(name: str, root: Path, nodes: int = 10) -> Path:
    """Write the raw files of a data set below ``root``, and return their folder.

    Of a data set of OGB it is the folder above it.
    """
    if name in OGB:
        folder, split = OGB[name]
        ogb(root / folder, split, nodes)
        return root / folder
    folder, writer = PYG[name]
    (root / folder).mkdir(parents=True)
    writer(root / folder)
    return root / folder


def listing(root: Path) -> list[tuple[str, int, int]]:
    """Every path below ``root`` with its size and modification time."""
    return [
        (str(path), path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
    ]
