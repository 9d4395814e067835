"""Makes a synthetic graph whose classes come from a wide random network: a teacher.

    python -m benchmarks.width.teacher teacher.npz

A node has 8 normal features and edges to 8 random nodes. The teacher sees the features of 0 to 2
hops, each scaled to unit variance, and has one hidden layer of 1,024 tanh units with random
weights; the class of a node is the largest of 100 outputs, each centred. So there is no noise, and
what a student lacks is width or time.
"""

import sys

import numpy as np
import scipy.sparse as sp

NODES = 120_000
FEATURES = 8
DEGREE = 8
HIDDEN = 1024
CLASSES = 100
GAIN = 1.0


def main(out: str) -> None:
    """Write the graph to the file ``out``."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((NODES, FEATURES)).astype(np.float32)
    target = np.repeat(np.arange(NODES), DEGREE)
    source = rng.integers(NODES, size=len(target))
    edges = sp.csr_matrix((np.ones(len(target)), (target, source)), (NODES, NODES))
    edges = edges.maximum(edges.T).tocoo()
    degree = np.bincount(edges.row, minlength=NODES)
    weights = (degree[edges.row] * degree[edges.col]) ** -0.5
    adj = sp.csr_matrix((weights, (edges.row, edges.col)), (NODES, NODES))
    hops = [x, adj @ x, adj @ (adj @ x)]
    seen = np.concatenate([hop / hop.std(axis=0) for hop in hops], axis=1)
    first = rng.standard_normal((seen.shape[1], HIDDEN)) * GAIN / seen.shape[1] ** 0.5
    logits = np.tanh(seen @ first) @ rng.standard_normal((HIDDEN, CLASSES))
    y = ((logits - logits.mean(axis=0)) / logits.std(axis=0)).argmax(axis=1)
    parts = np.split(rng.permutation(NODES), [int(0.6 * NODES), int(0.8 * NODES)])
    masks = {
        name: np.isin(np.arange(NODES), nodes)
        for name, nodes in zip(("train", "val", "test"), parts, strict=True)
    }
    np.savez(out, x=x, edge_index=np.stack([edges.row, edges.col]).astype(np.int64), y=y, **masks)
    largest = np.bincount(y).max() / NODES
    print(f"{NODES} nodes, {edges.nnz} edges, {CLASSES} classes, the largest with {largest:.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
