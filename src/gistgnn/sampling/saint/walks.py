"""GraphSAINT by random walks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gistgnn.sampling.batch import Share, alone
from gistgnn.sampling.drawn import Array, check_count
from gistgnn.sampling.saint.batches import Draw, SaintSampling
from gistgnn.sampling.saint.edges import step
from gistgnn.sampling.structure import Structure
from gistgnn.utils.random_streams import generator

_CHUNK = 2**20  # walks that are counted at once


class WalkDraw(Draw):
    """The nodes of one random walk from a random node, each step to a random in-neighbour.

    What a walk touches has no closed form, and is counted over many walks, the same number from every node, before
    training. So weights are exact but for the noise of these counts.

    Args:
        structure: the graph.
        length: steps of a walk.
        coverage: walks from every node that are counted.
        seed: of these walks.
        share: gives what is counted.
    """

    def __init__(self, structure: Structure, length: int, coverage: int, seed: int, share: Share = alone) -> None:
        edges = structure.edges
        found = share(lambda: _counted(edges, length, coverage, generator(seed, "counted walks")))
        self._length, self._plain, self.touches = length, edges, found["touches"].numpy()
        self.edges = sp.csr_matrix((found["together"].numpy(), edges.indices, edges.indptr), shape=edges.shape)

    def nodes(self, count: int, rng: np.random.Generator) -> Array:
        """The nodes of so many walks."""
        return np.concatenate(_walks(self._plain, rng.integers(self._plain.shape[0], size=count), self._length, rng))

    def together(self, part: sp.csr_matrix, rows: Array, nodes: Array) -> Array:
        """As counted."""
        return part.data.astype(np.float64)


def _walks(edges: sp.csr_matrix, roots: Array, length: int, rng: np.random.Generator) -> list[Array]:
    """Where walks from the roots are after 0, 1, ..., length steps: [n] each."""
    walks = [roots]
    for _ in range(length):
        walks.append(step(edges, walks[-1], rng))
    return walks


def _fresh(walks: list[Array], t: int) -> Array:
    """Which walks are after t steps where they have not been before: [n] bool."""
    fresh = np.ones(len(walks[t]), bool)
    for earlier in walks[:t]:
        fresh &= walks[t] != earlier
    return fresh


def _counted(edges: sp.csr_matrix, length: int, coverage: int, rng: np.random.Generator) -> dict[str, Tensor]:
    """The shares of walks that touch each node, [N] float64, and both ends of each edge, [E] float32."""
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
        sample_coverage: walks from every node by which its chances are counted before training.
        batches: see `Sampling`.

    Raises:
        InputError: a value out of its range.
    """

    name = "saint-rw"

    batch_size: int = 2000
    walk_length: int = 2
    sample_coverage: int = 20

    def __post_init__(self) -> None:
        """Check every value."""
        super().__post_init__()
        for name in ("walk_length", "sample_coverage"):
            check_count(name, getattr(self, name))

    def draw(self, structure: Structure, seed: int, share: Share) -> Draw:
        """See `SaintSampling.draw`."""
        return WalkDraw(structure, self.walk_length, self.sample_coverage, seed, share)

    @property
    def touched(self) -> int:
        """See `SaintSampling.touched`."""
        return (self.walk_length + 1) * self.batch_size
