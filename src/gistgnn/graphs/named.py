"""The named data sets, graphs by name or path, and their sizes.

What is known about a data set is here, before it is loaded.
"""

import difflib
import importlib
from dataclasses import asdict, dataclass, fields, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch

from gistgnn.errors import InputError
from gistgnn.graphs.features import nonzero_share
from gistgnn.graphs.files import SUFFIXES, load_file
from gistgnn.graphs.folder import MANIFEST, load_folder
from gistgnn.graphs.graph import Graph

# Fewest nodes per class in a fraction of a synthetic graph: with fewer there are no communities,
# and splits are empty.
_NODES_PER_CLASS = 20


@dataclass(frozen=True)
class FolderSizes:
    """The sizes of a folder of clusters. Without arguments they say that there is no folder."""

    scored: int = 0  # validation and test nodes
    stored: int = 0  # bytes of features, edges and their data in the files
    clusters: int = 0


@dataclass(frozen=True)
class GraphSizes:
    """The sizes of a graph, from which memory and time are estimated before a run.

    A graph that is not in a folder of clusters is read into memory.
    """

    nodes: int  # N
    edges: int  # E, directed
    train: int  # training nodes
    name: str = ""
    features: int = 0  # F
    classes: int = 0  # C, or labels per node
    multi_label: bool = False
    nonzero: float = 1.0  # share of the features that are not 0
    sparse: bool = False  # the features are a sparse matrix
    folder: FolderSizes = FolderSizes()

    reader = "file"  # a graph of the user's, in a file or in memory; see `DatasetInfo`

    @classmethod
    def of_graph(cls, graph: Graph) -> "GraphSizes":
        """Return the sizes of a graph that is open."""
        folder = FolderSizes()
        if graph.folder is not None and graph.cluster_ptr is not None:
            mapped = (graph.x, graph.edges.col, *graph.edge_data.values())
            folder = FolderSizes(
                scored=int(graph.val.sum()) + int(graph.test.sum()),
                stored=sum(tensor.nbytes for tensor in mapped),
                clusters=len(graph.cluster_ptr) - 1,
            )
        return cls(
            nodes=graph.num_nodes,
            edges=graph.num_edges,
            train=int(graph.train.sum()),
            name=graph.name,
            features=graph.num_features,
            classes=graph.num_classes,
            multi_label=graph.multi_label,
            nonzero=nonzero_share(graph.x),
            sparse=graph.x.layout is not torch.strided,
            folder=folder,
        )

    @property
    def stored(self) -> int:
        """The bytes in a folder of clusters; 0 where the graph is in memory."""
        return self.folder.stored

    @property
    def clusters(self) -> int:
        """The clusters of the graph's folder; 0 without such a folder."""
        return self.folder.clusters

    def as_dict(self) -> dict[str, Any]:
        """Return the sizes, without what else is known of a data set, as JSON holds them."""
        names = [entry.name for entry in fields(GraphSizes) if entry.name != "folder"]
        sizes = {name: getattr(self, name) for name in names}
        folder = asdict(self.folder)
        folder["scored"] = self.folder.scored or None  # not counted without a folder
        return {**sizes, "reader": self.reader, **folder}

    @property
    def feature_bytes(self) -> int:
        """The bytes of the features in memory."""
        return self.sparse_bytes if self.sparse else 4 * self.nodes * self.features

    @property
    def sparse_bytes(self) -> int:
        """The bytes of the features as a sparse matrix.

        It has values, their columns, and where rows begin.
        """
        return round(8 * self.nonzero * self.nodes * self.features) + 4 * self.nodes

    @property
    def degree(self) -> float:
        """Edges into a node, on average."""
        return self.edges / self.nodes

    def training(self) -> "GraphSizes":
        """Return the sizes of the training nodes' subgraph.

        Both ends of an edge are taken to be in it as two random nodes are.
        """
        edges = round(self.edges * (self.train / self.nodes) ** 2)
        return replace(self, nodes=self.train, edges=edges, folder=FolderSizes())


@dataclass(frozen=True, kw_only=True)
class DatasetInfo(GraphSizes):
    """A named data set: the sizes of its graph, as published, and where it comes from."""

    description: str
    split: str  # how train, val and test were chosen
    # The module of `gistgnn.graphs` that reads it, or "bundled": a file beside this one.
    reader: str
    row_normalised: bool = False  # every row of features is divided by its sum
    standardise: bool = True  # whether `gistgnn train` scales the features unless told otherwise
    source: tuple[str, ...] = ()  # the class of PyG and its ``name`` argument, or the name in OGB


_PUBLIC = "public (20 training nodes per class, 500 val, 1,000 test)"
_DRAWN = "random with a fixed seed (60 % train, 20 % val, 20 % test)"

# A table: one data set per entry, its figures on one line.
# fmt: off
_ALL = (
    DatasetInfo(
        name="cora",
        description=(
            "citations among machine learning papers, by topic; words as features (Planetoid)"
        ),
        nodes=2_708, edges=10_556, train=140, features=1_433, classes=7,
        split=_PUBLIC,
        reader="pyg", source=("Planetoid", "Cora"),
        row_normalised=True, nonzero=0.0127, standardise=False,
    ),
    DatasetInfo(
        name="citeseer",
        description=(
            "citations among computer science papers, by topic; words as features (Planetoid)"
        ),
        nodes=3_327, edges=9_104, train=120, features=3_703, classes=6,
        split=_PUBLIC,
        reader="pyg", source=("Planetoid", "CiteSeer"),
        row_normalised=True, nonzero=0.0085, standardise=False,
    ),
    DatasetInfo(
        name="pubmed",
        description=(
            "citations among papers on diabetes, by type; TF-IDF words as features (Planetoid)"
        ),
        nodes=19_717, edges=88_648, train=60, features=500, classes=3,
        split=_PUBLIC,
        reader="pyg", source=("Planetoid", "PubMed"),
        row_normalised=True, nonzero=0.1002, standardise=False,
    ),
    DatasetInfo(
        name="amazon-computers",
        description=(
            "computers bought together on Amazon, by category; words of reviews (Shchur et al., "
            "2018)"
        ),
        nodes=13_752, edges=491_722, train=8_251, features=767, classes=10,
        split=_DRAWN,
        reader="shchur", source=("Amazon", "Computers"),
        row_normalised=True, nonzero=0.3484,
    ),
    DatasetInfo(
        name="amazon-photo",
        description=(
            "photo goods bought together on Amazon, by category; words of reviews (Shchur et al., "
            "2018)"
        ),
        nodes=7_650, edges=238_162, train=4_590, features=745, classes=8,
        split=_DRAWN,
        reader="shchur", source=("Amazon", "Photo"),
        row_normalised=True, nonzero=0.3474,
    ),
    DatasetInfo(
        name="coauthor-cs",
        description=(
            "joint papers in computer science, by field of the author; keywords (Shchur et al., "
            "2018)"
        ),
        nodes=18_333, edges=163_788, train=11_000, features=6_805, classes=15,
        split=_DRAWN,
        reader="shchur", source=("Coauthor", "CS"),
        row_normalised=True, nonzero=0.0088, standardise=False, sparse=True,
    ),
    DatasetInfo(
        name="coauthor-physics",
        description=(
            "joint papers in physics, by field of the author; keywords (Shchur et al., 2018)"
        ),
        nodes=34_493, edges=495_924, train=20_696, features=8_415, classes=5,
        split=_DRAWN,
        reader="shchur", source=("Coauthor", "Physics"),
        row_normalised=True, nonzero=0.0039, standardise=False, sparse=True,
    ),
    DatasetInfo(
        name="reddit",
        description="posts with a commenter in common, by community; raw text features (GraphSAGE)",
        nodes=232_965, edges=114_615_892, train=153_431, features=602, classes=41,
        split="public (by day of the post)",
        reader="pyg", source=("Reddit",),
    ),
    DatasetInfo(
        name="flickr",
        description="images with properties in common, by tag; raw word features (GraphSAINT)",
        nodes=89_250, edges=899_756, train=44_625, features=500, classes=7,
        split="public",
        reader="pyg", source=("Flickr",),
    ),
    DatasetInfo(
        name="ppi",
        description=(
            "protein interactions in 24 tissues as one block-diagonal graph; raw gene features "
            "(GraphSAGE)"
        ),
        nodes=56_944, edges=1_587_264, train=44_906, features=50, classes=121,
        split="public (20, 2 and 2 of the 24 graphs)",
        reader="pyg", source=("PPI",),
        multi_label=True,
    ),
    DatasetInfo(
        name="ogbn-arxiv",
        description=(
            "citations among computer science papers of arXiv, made undirected, by subject; raw "
            "features (OGB)"
        ),
        nodes=169_343, edges=2_315_598, train=90_941, features=128, classes=40,
        split="public (by year)",
        reader="ogb", source=("ogbn-arxiv",),
    ),
    DatasetInfo(
        name="ogbn-products",
        description="goods bought together on Amazon, by category; raw features (OGB)",
        nodes=2_449_029, edges=123_718_152, train=196_615, features=100, classes=47,
        split="public (by sales rank)",
        reader="ogb", source=("ogbn-products",),
    ),
    DatasetInfo(
        name="amazon2m",
        description=(
            "the graph of ogbn-products with the split sizes of Cluster-GCN; raw features (OGB)"
        ),
        nodes=2_449_029, edges=123_718_152, train=1_670_674, features=100, classes=47,
        split="random with a fixed seed (1,670,674 train, 39,323 val, 739,032 test)",
        reader="ogb", source=("ogbn-products",),
    ),
    DatasetInfo(
        name="digits",
        description=(
            "8×8 images of handwritten digits joined to their 10 nearest; pixels / 16 (bundled)"
        ),
        nodes=1_797, edges=24_678, train=179, features=64, classes=10,
        split="stratified draw with a fixed seed (10 % train, 20 % val, 70 % test)",
        reader="bundled",
    ),
    DatasetInfo(
        name="synthetic:reddit",
        description=(
            "random, in the size of Reddit: planted communities, power-law degrees; any fraction "
            "as NAME@0.1"
        ),
        nodes=232_965, edges=2 * 11_606_919, train=153_431, features=602, classes=41,
        split="random with a fixed seed (65.9 % train, 10.2 % val, 23.9 % test)",
        reader="synthetic",
    ),
    DatasetInfo(
        name="synthetic:amazon2m",
        description=(
            "random, in the size of Amazon2M: planted communities, power-law degrees; any fraction"
            " as NAME@0.1"
        ),
        nodes=2_449_029, edges=2 * 61_859_140, train=1_670_674, features=100, classes=47,
        split="random with a fixed seed (68.2 % train, 1.6 % val, 30.2 % test)",
        reader="synthetic",
    ),
    DatasetInfo(
        name="synthetic:papers100m",
        description=(
            "random, in the size of ogbn-papers100M: planted communities, few labels; any fraction"
            " as NAME@0.1"
        ),
        nodes=111_059_956, edges=1_615_685_872, train=1_207_179, features=128, classes=172,
        split=(
            "random with a fixed seed (1.1 % train, 0.1 % val, 0.2 % test; the others have no "
            "label)"
        ),
        reader="synthetic_blocks",
    ),
)
# fmt: on

DATASETS: dict[str, DatasetInfo] = {info.name: info for info in _ALL}
"""The data sets by name."""


def find(name: str) -> DatasetInfo | None:
    """Return the data set of a name, in upper or lower case; None if there is none.

    The name of a synthetic graph may end in ``@`` and the fraction of its nodes and edges:
    ``synthetic:reddit@0.1``.
    """
    base, at, text = name.lower().partition("@")
    info = DATASETS.get(base)
    if info is None or not at:
        return info
    if not base.startswith("synthetic:"):
        return None
    try:
        fraction = float(text)
    except ValueError:
        fraction = float("nan")
    if not 0 < fraction <= 1:
        raise InputError(
            f"{info.name}@{text}: the fraction is {text!r}; expected a number above 0, and at most "
            "1"
        )
    nodes = round(fraction * info.nodes)
    fewest = _NODES_PER_CLASS * info.classes
    if nodes < fewest:
        least = f"expected at least {fewest}, which is a fraction of {fewest / info.nodes:.2g}"
        raise InputError(
            f"{info.name}@{text}: {nodes} nodes are too few for {info.classes} classes; {least}"
        )
    name = info.name if fraction == 1 else f"{info.name}@{fraction}"
    edges = 2 * round(fraction * (info.edges // 2))
    train = round(fraction * info.train)
    return replace(info, name=name, nodes=nodes, edges=edges, train=train)


def is_file(name_or_path: str | Path) -> bool:
    """Whether `load` takes this for the path of a graph file.

    Then it is no data set's name, and no folder.
    """
    path = Path(name_or_path).expanduser()
    return (
        find(str(name_or_path)) is None
        and path.suffix.lower() in SUFFIXES
        and not (path / MANIFEST).exists()
    )


def load(name_or_path: str | Path, data_root: str | Path = "data") -> Graph:
    """Load a data set by name, or a graph from a file or a folder.

    Example:
        >>> load("cora"), load("synthetic:reddit@0.1"), load("my_graph.npz"), load("my_graph")

    A name wins over a file with the same name; write ``./cora`` for the file.

    Args:
        name_or_path: a name as for `find`, the path of a ``.npz`` or ``.pt`` file as for
            `load_file`, or a folder that `gistgnn convert` has made. The tensors of a folder are
            mapped: they are read when they are used.
        data_root: the folder with one folder per source (``Planetoid``, ``Amazon``, ``ogbn_arxiv``,
            ...), laid out as PyG and OGB do. Missing raw files of PyG are downloaded there. Nothing
            else is written: it may be read-only. Not used for files, ``digits`` and synthetic
            graphs.
    """
    name = str(name_or_path)
    if info := find(name):
        if info.reader == "bundled":
            # scikit-learn has it too, but its import takes longer than a run. The package may be in
            # a zip.
            with as_file(files("gistgnn.graphs") / f"{info.name}.npz") as bundled:
                return load_file(bundled)
        # Imported here: the readers need torch_geometric or DuckDB.
        reader = importlib.import_module(f"gistgnn.graphs.{info.reader}")
        return reader.load(info, Path(data_root).expanduser())
    path = Path(name_or_path).expanduser()
    if path.is_dir() and (path.suffix.lower() not in SUFFIXES or (path / MANIFEST).exists()):
        return load_folder(path)
    if path.suffix.lower() in SUFFIXES or path.exists():
        return load_file(path)
    close = difflib.get_close_matches(name.lower().partition("@")[0], DATASETS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise InputError(
        f"{name!r} is neither a data set nor a file{hint}; expected a {' or '.join(SUFFIXES)} "
        f"file, a graph folder, or one of {', '.join(DATASETS)}"
    )


def raw_folder(info: DatasetInfo, data_root: Path) -> Path | None:
    """Return the folder where the raw files of a data set lie; None for one that needs no files."""
    if info.reader == "ogb":
        return data_root / info.source[0].replace("-", "_")
    return data_root.joinpath(*info.source, "raw") if info.source else None


def is_here(info: DatasetInfo, data_root: Path) -> bool:
    """Tell whether a data set can be read without a download."""
    folder = raw_folder(info, data_root)
    return folder is None or (folder.is_dir() and any(folder.iterdir()))
