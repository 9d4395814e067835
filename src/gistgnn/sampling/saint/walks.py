"""GraphSAINT by random walks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.sampling.batch import Share, unshared
from gistgnn.sampling.saint.batches import Draw, SaintSampling
from gistgnn.sampling.saint.edges import step
from gistgnn.sampling.sampler import Array
from gistgnn.sampling.structure import Structure
from gistgnn.utils.random_streams import generator

_CHUNK = 2**20  # walks that are counted at once


class WalkDraw(Draw):
    """Draws the nodes of one random walk from a random node; each step goes to a random in-neighbour.

    The probabilities have no closed form. Before training they are counted over many walks, the same number from every
    node, so that weights are exact up to the noise of these counts.

    Args:
        structure: the graph.
        length: steps of a walk.
        coverage: counted walks from every node.
        seed: of these walks.
        share: counts once on a machine.
    """

    def __init__(self, structure: Structure, length: int, coverage: int, seed: int, share: Share = unshared) -> None:
        edges = structure.edges
        counts = share(lambda: _counted(edges, length, coverage, generator(seed, "counted walks")))
        self._length, self._plain, self.touches = length, edges, counts["touches"].numpy()
        self.edges = sp.csr_matrix((counts["together"].numpy(), edges.indices, edges.indptr), shape=edges.shape)

    def nodes(self, count: int, rng: np.random.Generator) -> Array:
        """Return the nodes of ``count`` walks."""
        return np.concatenate(_walks(self._plain, rng.integers(self._plain.shape[0], size=count), self._length, rng))

    def together(self, part: sp.csr_matrix, rows: Array, nodes: Array) -> Array:
        """Return the counted shares."""
        return part.data.astype(np.float64)


def _walks(edges: sp.csr_matrix, roots: Array, length: int, rng: np.random.Generator) -> list[Array]:
    """Return where walks from the roots are after 0, 1, ..., length steps: [n] each."""
    walks = [roots]
    for _ in range(length):
        walks.append(step(edges, walks[-1], rng))
    return walks


def _fresh(walks: list[Array], t: int) -> Array:
    """Return which walks are at a new node after t steps: [n] bool."""
    fresh = np.ones(len(walks[t]), bool)
    for earlier in walks[:t]:
        fresh &= walks[t] != earlier
    return fresh


def _counted(edges: sp.csr_matrix, length: int, coverage: int, rng: np.random.Generator) -> dict[str, Tensor]:
    """Return the shares of walks that touch each node, [N] float64, and both ends of each edge, [E] float32."""
    nodes = edges.shape[0]
    visits, together = np.zeros(nodes, np.int64), np.zeros(edges.nnz, np.float32)
    numbers = sp.csr_matrix((np.arange(1, edges.nnz + 1), edges.indices, edges.indptr), shape=edges.shape)
    roots = np.tile(np.arange(nodes), coverage)
    for start in range(0, len(roots), _CHUNK):
        walks = _walks(edges, roots[start : start + _CHUNK], length, rng)
        fresh = [_fresh(walks, t) for t in range(length + 1)]
        for t, walk in enumerate(walks):
            visits += np.bincount(walk[fresh[t]], minlength=nodes)
            for s in range(t):
                both = fresh[s] & fresh[t]
                for one, other in ((walks[s][both], walk[both]), (walk[both], walks[s][both])):
                    entries = np.asarray(numbers[one, other]).ravel()
                    np.add.at(together, entries[entries > 0] - 1, 1)
    return {"touches": torch.from_numpy(visits / len(roots)), "together": torch.from_numpy(together / len(roots))}


@dataclass(frozen=True)
class SaintWalkSampling(SaintSampling):
    """GraphSAINT's random-walk sampler; see `WalkDraw` and `SaintBatches`.

    Args:
        batch_size: walks of a batch.
        walk_length: steps of a walk.
        sample_coverage: walks from every node that are counted before training.
        batches: see `Sampling`.
    """

    name = "saint-rw"
    counts = ("batch_size", "walk_length", "sample_coverage")

    batch_size: int = 2000
    walk_length: int = 2
    sample_coverage: int = 20

    def draw(self, structure: Structure, seed: int, share: Share) -> Draw:
        """See `SaintSampling.draw`."""
        return WalkDraw(structure, self.walk_length, self.sample_coverage, seed, share)

    @property
    def touched(self) -> int:
        """See `SaintSampling.touched`."""
        return (self.walk_length + 1) * self.batch_size
