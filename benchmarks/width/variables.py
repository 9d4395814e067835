"""Makes the graph of variable names, of which a model predicts those of local variables.

    python -m benchmarks.width.variables variables.npz

It is made of the source of installed Python packages. A node is a node of a syntax tree, or a local
variable of a function. It has edges to its parent, to the statement or expression before it, and a
variable to all its uses, in both directions. Features: what kind of node it is, which part of its
parent, and the names in it that are no local variables, TF-IDF, 64 components. Class of a variable:
its name, if that is one of the 500 most frequent. Whole files are for training, validation or test.
The packages are those that gistgnn needs, so only their versions change the graph. Their licences:
BSD-3-Clause, MIT, and Matplotlib's.
"""

import ast
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

PACKAGES = ("scipy", "matplotlib", "networkx", "sklearn", "numpy", "torch_geometric", "torch.nn")
NAMES = 500
COMPONENTS = 64
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Source:
    """The nodes and edges of all files that were read."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}  # what a node shows, and its number
        self.kind: list[int] = []  # of every node
        self.edges: list[tuple[int, int]] = []
        self.variables: list[tuple[int, str, int]] = []  # node, name, number of the file

    def node(self, shows: str) -> int:
        """Add a node."""
        self.kind.append(self.kinds.setdefault(shows, len(self.kinds)))
        return len(self.kind) - 1

    def add(self, tree: ast.AST, file: int) -> None:
        """Add the syntax tree of a file."""
        self._visit(tree, "", None, {}, file)

    def _visit(
        self, tree: ast.AST, part: str, parent: int | None, variables: dict[str, int], file: int
    ) -> int:
        if isinstance(tree, FUNCTIONS):
            variables = dict(variables)  # an inner function sees the variables of the outer one
            for name in sorted(local_names(tree)):
                variables[name] = self.node("variable")
                self.variables.append((variables[name], name, file))
        names = [getattr(tree, key, None) for key in ("id", "arg")]
        name = next((name for name in names if isinstance(name, str)), "")
        hidden = name in variables and not isinstance(tree, ast.keyword)
        shown = " ".join(str(getattr(tree, key, None) or "") for key in ("attr", "name", "module"))
        shown_name = "" if hidden else name
        kind = type(tree).__name__
        number = self.node(f"{kind} .{part} {shown_name} {shown} {constant(tree)}")
        if parent is not None:
            self.edges.append((parent, number))
        if hidden:
            self.edges.append((variables[name], number))
        before = None
        for field, child in children(tree):
            here = self._visit(child, field, number, variables, file)
            if before is not None:
                self.edges.append((before, here))
            before = here
        return number


def children(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the parts of a node that say something, each with its field."""
    for field, value in ast.iter_fields(tree):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.expr_context):
                yield field, child


def constant(tree: ast.AST) -> str:
    """Return the type of a constant, and its value if it is short."""
    if not isinstance(tree, ast.Constant):
        return ""
    text = str(tree.value)
    return f"{type(tree.value).__name__} {text if len(text) < 12 else ''}"


def local_names(function: ast.AST) -> set[str]:
    """Return the names that a function binds, its arguments included."""
    names = set()
    for tree in ast.walk(function):
        if isinstance(tree, ast.arg):
            names.add(tree.arg)
        elif isinstance(tree, ast.Name) and isinstance(tree.ctx, ast.Store):
            names.add(tree.id)
    return names - {"self", "cls"}


def files() -> list[Path]:
    """Return the files of the packages."""
    paths: list[Path] = []
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            sys.exit(f"pip install {name} first")
        paths += sorted(Path(spec.origin).parent.rglob("*.py"))
    return paths


def main(out: str) -> None:
    """Write the graph to the file ``out``."""
    sys.setrecursionlimit(20_000)
    source = Source()
    read = files()
    for number, path in enumerate(read):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            source.add(ast.parse(path.read_text(encoding="utf-8")), number)
    kind = np.array(source.kind)
    words = TfidfVectorizer(token_pattern=r"\S+", min_df=3).fit_transform(source.kinds)
    x = TruncatedSVD(COMPONENTS, random_state=0).fit_transform(words).astype(np.float32)[kind]
    pairs = np.fromiter(chain.from_iterable(source.edges), np.int64).reshape(-1, 2).T
    edges = np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1)
    names = Counter(name for _, name, _ in source.variables).most_common(NAMES)
    frequent = {name: rank for rank, (name, _) in enumerate(names)}
    group = np.array(random.Random(0).choices(range(3), (0.6, 0.2, 0.2), k=len(read)))
    y = np.zeros(len(kind), np.int64)
    part = np.full(len(kind), -1)
    for node, name, file in source.variables:
        if name in frequent:
            y[node] = frequent[name]
            part[node] = group[file]
    masks = {name: part == number for number, name in enumerate(("train", "val", "test"))}
    np.savez(out, x=x, edge_index=edges, y=y, **masks)
    labelled = (part >= 0).sum()
    sizes = f"{len(kind)} nodes, {edges.shape[1]} edges"
    print(f"{sizes}, {labelled} variables of {NAMES} names, {len(read)} files")


if __name__ == "__main__":
    main(*sys.argv[1:])
