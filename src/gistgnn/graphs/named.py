"""The named data sets, what is known about each one before it is loaded, graphs by name or path, and their sizes."""

import difflib
import importlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from gistgnn.errors import InputError
from gistgnn.graphs.files import SUFFIXES, load_file
from gistgnn.graphs.folder import MANIFEST, load_folder
from gistgnn.graphs.graph import Graph
from gistgnn.graphs.standardise import sample_of

# Fewest nodes per class in a fraction of a synthetic graph: with fewer there are no communities, and splits are empty.
_NODES_PER_CLASS = 20


@dataclass(frozen=True)
class DatasetInfo:
    """A named data set, with its published figures.

    Attributes:
        name: the name for `gistgnn.graphs.load`.
        description: what its nodes, edges and classes are, and where it comes from.
        nodes, features, train: numbers of nodes N, of features F, and of training nodes.
        edges: number of directed edges E after loading. An undirected edge counts twice, a duplicate once.
        classes: number of classes, or of labels per node if ``task`` is ``"multi-label"``.
        split: how train, val and test were chosen.
        task: ``"single-label"`` or ``"multi-label"``.
        row_normalised: True: every row of features is divided by its sum. False: features are as in the source.
        standardise: whether `gistgnn train` scales the features unless told otherwise: see "Defaults" in RESULTS.md.
        reader: the module of `gistgnn.graphs` that reads it.
        nonzero: share of the features that are not 0; 1 if unknown.
        source: where the reader finds it: the class of PyG and its ``name`` argument, or the name in OGB.
    """

    name: str
    description: str
    nodes: int
    edges: int
    features: int
    classes: int
    train: int
    split: str
    task: Literal["single-label", "multi-label"] = "single-label"
    row_normalised: bool = False
    standardise: bool = True
    reader: str = "pyg"
    nonzero: float = 1.0
    source: tuple[str, ...] = ()


_PUBLIC = "public (20 training nodes per class, 500 val, 1,000 test)"
_DRAWN = "random with a fixed seed (60 % train, 20 % val, 20 % test)"

# A table: one data set per entry, its figures on one line.
# fmt: off
_ALL = (
    DatasetInfo("cora", "citations among machine learning papers, by topic; words as features (Planetoid)",
        nodes=2_708, edges=10_556, features=1_433, classes=7, train=140, split=_PUBLIC,
        source=("Planetoid", "Cora"), row_normalised=True, nonzero=0.0127, standardise=False),
    DatasetInfo("citeseer", "citations among computer science papers, by topic; words as features (Planetoid)",
        nodes=3_327, edges=9_104, features=3_703, classes=6, train=120, split=_PUBLIC,
        source=("Planetoid", "CiteSeer"), row_normalised=True, nonzero=0.0085, standardise=False),
    DatasetInfo("pubmed", "citations among papers on diabetes, by type; TF-IDF words as features (Planetoid)",
        nodes=19_717, edges=88_648, features=500, classes=3, train=60, split=_PUBLIC,
        source=("Planetoid", "PubMed"), row_normalised=True, nonzero=0.1002, standardise=False),
    DatasetInfo(
        "amazon-computers", "computers bought together on Amazon, by category; words of reviews (Shchur et al., 2018)",
        nodes=13_752, edges=491_722, features=767, classes=10, train=8_251, split=_DRAWN,
        source=("Amazon", "Computers"), row_normalised=True, nonzero=0.3484),
    DatasetInfo(
        "amazon-photo", "photo goods bought together on Amazon, by category; words of reviews (Shchur et al., 2018)",
        nodes=7_650, edges=238_162, features=745, classes=8, train=4_590, split=_DRAWN,
        source=("Amazon", "Photo"), row_normalised=True, nonzero=0.3474),
    DatasetInfo(
        "coauthor-cs", "joint papers in computer science, by field of the author; keywords (Shchur et al., 2018)",
        nodes=18_333, edges=163_788, features=6_805, classes=15, train=11_000, split=_DRAWN,
        source=("Coauthor", "CS"), row_normalised=True, nonzero=0.0088, standardise=False),
    DatasetInfo("coauthor-physics", "joint papers in physics, by field of the author; keywords (Shchur et al., 2018)",
        nodes=34_493, edges=495_924, features=8_415, classes=5, train=20_696, split=_DRAWN,
        source=("Coauthor", "Physics"), row_normalised=True, nonzero=0.0039, standardise=False),
    DatasetInfo("reddit", "posts with a commenter in common, by community; raw text features (GraphSAGE)",
        nodes=232_965, edges=114_615_892, features=602, classes=41, train=153_431, split="public (by day of the post)",
        source=("Reddit",)),
    DatasetInfo("flickr", "images with properties in common, by tag; raw word features (GraphSAINT)",
        nodes=89_250, edges=899_756, features=500, classes=7, train=44_625, split="public",
        source=("Flickr",)),
    DatasetInfo("ppi", "protein interactions in 24 tissues as one block-diagonal graph; raw gene features (GraphSAGE)",
        nodes=56_944, edges=1_587_264, features=50, classes=121, train=44_906,
        split="public (20, 2 and 2 of the 24 graphs)",
        source=("PPI",), task="multi-label"),
    DatasetInfo("ogbn-arxiv",
        "citations among computer science papers of arXiv, made undirected, by subject; raw features (OGB)",
        nodes=169_343, edges=2_315_598, features=128, classes=40, train=90_941, split="public (by year)",
        source=("ogbn-arxiv",), reader="ogb"),
    DatasetInfo("ogbn-products", "goods bought together on Amazon, by category; raw features (OGB)",
        nodes=2_449_029, edges=123_718_152, features=100, classes=47, train=196_615, split="public (by sales rank)",
        source=("ogbn-products",), reader="ogb"),
    DatasetInfo("amazon2m", "the graph of ogbn-products with the split sizes of Cluster-GCN; raw features (OGB)",
        nodes=2_449_029, edges=123_718_152, features=100, classes=47, train=1_670_674,
        split="random with a fixed seed (1,670,674 train, 39,323 val, 739,032 test)",
        source=("ogbn-products",), reader="ogb"),
    DatasetInfo("digits", "8×8 images of handwritten digits joined to their 10 nearest; pixels / 16 (bundled)",
        nodes=1_797, edges=24_678, features=64, classes=10, train=179,
        split="stratified draw with a fixed seed (10 % train, 20 % val, 70 % test)",
        reader="digits"),
    DatasetInfo("synthetic:reddit",
        "random, in the size of Reddit: planted communities, power-law degrees; any fraction as NAME@0.1",
        nodes=232_965, edges=2 * 11_606_919, features=602, classes=41, train=153_431,
        split="random with a fixed seed (65.9 % train, 10.2 % val, 23.9 % test)",
        reader="synthetic"),
    DatasetInfo("synthetic:amazon2m",
        "random, in the size of Amazon2M: planted communities, power-law degrees; any fraction as NAME@0.1",
        nodes=2_449_029, edges=2 * 61_859_140, features=100, classes=47, train=1_670_674,
        split="random with a fixed seed (68.2 % train, 1.6 % val, 30.2 % test)",
        reader="synthetic"),
    DatasetInfo("synthetic:papers100m",
        "random, in the size of ogbn-papers100M: planted communities, few labels; any fraction as NAME@0.1",
        nodes=111_059_956, edges=1_615_685_872, features=128, classes=172, train=1_207_179,
        split="random with a fixed seed (1.1 % train, 0.1 % val, 0.2 % test; the others have no label)",
        reader="synthetic_blocks"),
)
# fmt: on

DATASETS: dict[str, DatasetInfo] = {info.name: info for info in _ALL}
"""The data sets by name."""


def find(name: str) -> DatasetInfo | None:
    """Return the data set of a name, in upper or lower case; None if there is none.

    The name of a synthetic graph may end in ``@`` and the fraction of its nodes and edges: ``synthetic:reddit@0.1``.
    """
    base, at, text = name.lower().partition("@")
    info = DATASETS.get(base)
    if info is None or not at:
        return info
    return _fraction(info, text) if base.startswith("synthetic:") else None


def _fraction(info: DatasetInfo, text: str) -> DatasetInfo:
    try:
        fraction = float(text)
    except ValueError:
        fraction = float("nan")
    if not 0 < fraction <= 1:
        raise InputError(f"{info.name}@{text}: the fraction is {text!r}; expected a number above 0, and at most 1")
    nodes, fewest = round(fraction * info.nodes), _NODES_PER_CLASS * info.classes
    if nodes < fewest:
        least = f"expected at least {fewest}, which is a fraction of {fewest / info.nodes:.2g}"
        raise InputError(f"{info.name}@{text}: {nodes} nodes are too few for {info.classes} classes; {least}")
    name = info.name if fraction == 1 else f"{info.name}@{fraction}"
    edges, train = 2 * round(fraction * (info.edges // 2)), round(fraction * info.train)
    return replace(info, name=name, nodes=nodes, edges=edges, train=train)


def is_file(name_or_path: str | Path) -> bool:
    """Whether `load` takes this for the path of a graph file: it is no data set's name, and no folder."""
    path = Path(name_or_path).expanduser()
    return find(str(name_or_path)) is None and path.suffix.lower() in SUFFIXES and not (path / MANIFEST).exists()


def load(name_or_path: str | Path, data_root: str | Path = "data") -> Graph:
    """Load a data set by name, or a graph from a file or a folder.

    Example:
        >>> load("cora"), load("synthetic:reddit@0.1"), load("my_graph.npz"), load("my_graph")

    A name wins over a file with the same name; write ``./cora`` for the file.

    Args:
        name_or_path: a name as for `find`, the path of a ``.npz`` or ``.pt`` file as for `load_file`, or a folder that
            `gistgnn convert` has made. The tensors of a folder are mapped: they are read when they are used.
        data_root: the folder with one folder per source (``Planetoid``, ``Amazon``, ``ogbn_arxiv``, ...), laid out as
            PyG and OGB do. Missing raw files of PyG are downloaded there. Nothing else is written: it may be read-only.
            Not used for files, ``digits`` and synthetic graphs.
    """
    name = str(name_or_path)
    if info := find(name):
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
        f"{name!r} is neither a data set nor a file{hint}; expected a .npz or .pt file, a graph folder, or one of "
        f"{', '.join(DATASETS)}"
    )


_LOOKED_AT = 50  # clusters whose edges are read


@dataclass(frozen=True)
class StoredSizes:
    """The sizes of a graph that is mapped from a folder of clusters."""

    folder: str
    clusters: int  # c
    inside: float  # the share of the edges that lie inside clusters, of some clusters
    size: int  # bytes of the features, the edges and their data

    @classmethod
    def of(cls, graph: Graph) -> "StoredSizes | None":
        """Return the sizes of a graph's files; None: it is in memory, or not in the order of clusters."""
        ptr, edges, inside, found = graph.cluster_ptr, graph.edges, 0, 0
        if graph.folder is None or ptr is None:
            return None
        for cluster in torch.linspace(0, len(ptr) - 2, _LOOKED_AT).round().long().unique().tolist():
            start, stop = int(ptr[cluster]), int(ptr[cluster + 1])
            source = edges.col[int(edges.rowptr[start]) : int(edges.rowptr[stop])]
            inside, found = inside + int(((source >= start) & (source < stop)).sum()), found + len(source)
        size = sum(tensor.nbytes for tensor in (graph.x, edges.col, *graph.edge_data.values()))
        return cls(str(graph.folder), len(ptr) - 1, inside / max(found, 1), size)


@dataclass(frozen=True)
class GraphSizes:
    """The sizes of a graph."""

    nodes: int  # N
    edges: int  # E, directed
    train: int  # training nodes
    name: str = ""
    features: int = 0  # F
    classes: int = 0  # C, or labels per node
    multi_label: bool = False
    nonzero: float = 1.0  # share of the features that are not 0
    reader: str = "file"  # the module that reads a named data set; "file" for a user's graph
    scored: int | None = None  # validation and test nodes; None: all nodes that are not training nodes
    stored: StoredSizes | None = None  # of a graph in a folder of clusters; None: the graph is in memory

    @classmethod
    def of_graph(cls, graph: Graph) -> "GraphSizes":
        sample = sample_of(graph.x)
        return cls(
            graph.num_nodes, graph.num_edges, int(graph.train.sum()), graph.name, graph.num_features,
            graph.num_classes, graph.multi_label, nonzero=int(torch.count_nonzero(sample)) / sample.numel(),
            scored=int(graph.val.sum()) + int(graph.test.sum()), stored=StoredSizes.of(graph),
        )  # fmt: skip

    @classmethod
    def of_dataset(cls, info: DatasetInfo) -> "GraphSizes":
        """Return the published sizes of a named data set."""
        several = info.task == "multi-label"
        sizes = cls(info.nodes, info.edges, info.train, info.name, info.features, info.classes, several)
        return replace(sizes, nonzero=info.nonzero, reader=info.reader)

    @property
    def degree(self) -> float:
        """Edges into a node, on average."""
        return self.edges / self.nodes

    def training(self) -> "GraphSizes":
        """Return the training nodes' subgraph; both ends of an edge are taken to be in it as two random nodes are."""
        edges = round(self.edges * (self.train / self.nodes) ** 2)
        return replace(self, nodes=self.train, edges=edges, stored=None)
