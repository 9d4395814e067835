"""Replaces the edges of a graph by features of K hops, as SIGN does.

    python -m benchmarks.width.hops places.npz places_sign.npz 2

On the new graph a GCN computes the output of each node from its features alone. The new features
are x, Āx, ... Ā^K x, with Ā = D^(-1/2) A D^(-1/2), each scaled to unit variance. Nodes without a
class are left out. It also prints the test scores of what needs no features: the most frequent
class, and label propagation, where a node takes the class with the largest sum over K hops. Source:
SIGN (Frasca et al., 2020).
"""

import sys
from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp


def main(graph: str, out: str, hops: str) -> None:
    """Write the file ``out``."""
    read = np.load(graph, allow_pickle=False)
    source, target = read["edge_index"]
    nodes = len(read["x"])
    root = np.bincount(target, minlength=nodes).clip(1) ** -0.5
    weights = (root[source] * root[target]).astype(np.float32)
    adj = sp.csr_matrix((weights, (target, source)), (nodes, nodes))
    labelled = read["train"] | read["val"] | read["test"]
    x = read["x"]
    parts = []
    for hop in range(int(hops) + 1):
        x = adj @ x if hop else x
        parts.append(x[labelled])
    features = np.concatenate(parts, axis=1)
    features = (features - features.mean(axis=0)) / features.std(axis=0).clip(1e-6)
    loop = np.zeros((2, 1), np.int64)  # A graph file needs an edge: node 0 has one to itself.
    masks = {name: read[name][labelled] for name in ("train", "val", "test")}
    np.savez(out, x=features, edge_index=loop, y=read["y"][labelled], **masks)
    constant, propagated = without_features(adj, read, int(hops))
    scores = f"one class {constant:.1%}, label propagation {propagated:.1%}"
    sizes = f"{len(features)} nodes, {features.shape[1]} features"
    print(f"{sizes}; test scores without them: {scores}")


def without_features(
    adj: sp.csr_matrix, read: Mapping[str, np.ndarray], hops: int
) -> tuple[float, float]:
    """Return the test accuracy of the most frequent training class, and of label propagation."""
    y = read["y"]
    train = read["train"].nonzero()[0]
    test = read["test"].nonzero()[0]
    labels = sp.csr_matrix(
        (np.ones(len(train), np.float32), (train, y[train])), (len(y), y.max() + 1)
    )
    frequent = np.bincount(y[train]).argmax()
    right = 0
    for nodes in np.array_split(test, max(len(test) // 2000, 1)):
        reach = adj[nodes]
        votes = sp.csr_matrix((len(nodes), y.max() + 1), dtype=np.float32)
        for hop in range(hops):
            reach = reach @ adj if hop else reach
            votes = votes + reach @ labels
        predicted = np.where(
            votes.getnnz(axis=1), np.asarray(votes.argmax(axis=1)).ravel(), frequent
        )
        right += int((predicted == y[nodes]).sum())
    return float((y[test] == frequent).mean()), right / len(test)


if __name__ == "__main__":
    main(*sys.argv[1:])
