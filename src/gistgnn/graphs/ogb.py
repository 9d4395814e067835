"""Data sets of the Open Graph Benchmark (OGB), read from its raw CSV files."""

import contextlib
import csv
import io
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gistgnn.errors import InputError
from gistgnn.graphs.by_target import GraphByTarget
from gistgnn.graphs.cache import cached, fingerprint
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.info import DatasetInfo
from gistgnn.graphs.raw_files import downloading, move_missing, reading
from gistgnn.graphs.splits import draw_split

# Nodes of ogbn-products; Cluster-GCN's training nodes (the others are test nodes); how many training nodes we hold out
# for validation, the same number as in ogbn-products.
_PRODUCTS_NODES, _CLUSTER_GCN_TRAIN, _HELD_OUT = 2_449_029, 1_709_997, 39_323

_RAW = ("edge", "num-node-list", "num-edge-list", "node-feat", "node-label")


def load(info: DatasetInfo, data_root: Path) -> Graph:
    """Read ogbn-arxiv, ogbn-products or amazon2m from ogb's raw files. Missing files are downloaded.

    The files are where ogb keeps them, such as ``ogbn_arxiv/raw`` and ``ogbn_arxiv/split/time`` in ``data_root``, which
    may be read-only if they are there. Only ogb's reader of
    CSV files is used: its data set classes unpickle processed files. All graphs are made undirected. Parsing takes
    minutes, so the result is cached (see `gistgnn.graphs.cache.cached`).

    amazon2m is the graph of ogbn-products with the split sizes of Cluster-GCN: 1,709,997 nodes for training and
    validation, 739,032 for test. OGB does not publish the original nodes, so they are drawn uniformly at random with a
    fixed seed. That split has no validation nodes: 39,323 (as in ogbn-products) of the 1,709,997 are held out for
    validation. For a graph of another size the counts are scaled in proportion.

    Raises:
        InputError: ogb is not installed, raw files are missing and cannot be downloaded, or are damaged.
    """
    (name,) = info.source
    meta = _meta(info, name)
    folder = data_root / name.replace("-", "_")
    files = [f"raw/{file}.csv.gz" for file in _RAW]
    files += [f"split/{meta['split']}/{part}.csv.gz" for part in ("train", "valid", "test")]
    paths = [folder / file for file in files]
    if not all(path.is_file() for path in paths):
        with downloading(info, folder, files):
            _download(meta, folder)
    with reading(info, folder):
        graph = cached(name, fingerprint(paths), partial(_parse, name, meta, folder))
    if info.name != "amazon2m":
        return graph
    both, held_out = (round(graph.num_nodes * count / _PRODUCTS_NODES) for count in (_CLUSTER_GCN_TRAIN, _HELD_OUT))
    train, val, test = draw_split(graph.num_nodes, train=both - held_out, val=held_out)
    return GraphByTarget(graph.x, graph.edges, graph.y, train, val, test, graph.num_classes, name="amazon2m")


def _meta(info: DatasetInfo, name: str) -> dict[str, str]:
    """Return a data set's row in ogb's table: url, split, number of classes and more."""
    try:
        with _no_version_check():
            table = resources.files("ogb").joinpath("nodeproppred", "master.csv").read_text()
    except ImportError as error:
        raise InputError(f"{info.name}: the package ogb is not installed; run: pip install ogb") from error
    return {row[""]: row[name] for row in csv.DictReader(table.splitlines())}


@contextlib.contextmanager
def _no_version_check() -> Iterator[None]:
    """Import ogb without its version check, which asks PyPI without a timeout: offline, the process would hang."""
    hide = "outdated" not in sys.modules
    if hide:
        sys.modules["outdated"] = None  # type: ignore[assignment]  # makes its import fail, which ogb allows
    try:
        yield
    finally:
        if hide:
            del sys.modules["outdated"]


def _download(meta: dict[str, str], folder: Path) -> None:
    from ogb.utils import url

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as staging:
        archive = url.download_url(meta["url"], staging, log=False)
        url.extract_zip(archive, staging, log=False)
        move_missing(Path(staging) / meta["download_name"], folder)


def _parse(name: str, meta: dict[str, str], folder: Path) -> Graph:
    from ogb.io.read_graph_raw import read_csv_graph_raw

    raw, split = folder / "raw", folder / "split" / meta["split"]
    # master.csv asks for inverse edges in ogbn-products; in ogbn-arxiv, which is directed, they make it undirected.
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bars would stand between our lines
        graph = read_csv_graph_raw(str(raw), add_inverse_edge=True)[0]
    return Graph.build(
        graph["node_feat"],
        graph["edge_index"],
        _column(raw / "node-label.csv.gz"),
        train=_column(split / "train.csv.gz"),
        val=_column(split / "valid.csv.gz"),
        test=_column(split / "test.csv.gz"),
        num_classes=int(meta["num classes"]),
        name=name,
    )


def _column(path: Path) -> npt.NDArray[np.int64]:
    import pandas as pd

    values: npt.NDArray[np.int64] = pd.read_csv(path, header=None)[0].to_numpy(dtype=np.int64)
    return values
