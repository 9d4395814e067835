"""What all samplers have in common: their settings, and batches that are made in the background."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from torch import Tensor

from gistgnn.graphs.named import GraphSizes
from gistgnn.sampling.batch import Batch
from gistgnn.storage.record import BatchFacts
from gistgnn.utils.checks import check_settings
from gistgnn.utils.prefetch import prefetch
from gistgnn.utils.random_streams import generator
from gistgnn.utils.tensors import Array


@dataclass(frozen=True)
class Expected:
    """About how large a batch is, before there is a graph."""

    # One number; or, where every layer has its own edges, each layer's input nodes, then the output
    # nodes.
    nodes: tuple[int, ...]
    edges: tuple[int, ...]  # of every layer, or one number where all layers have the same
    loss_nodes: int  # training nodes
    steps: int  # of an epoch
    # Edges are sampled and have weights. Otherwise the batch has all edges between its nodes.
    sampled: bool = False
    # The first layer's sums over neighbours are computed once, for the whole graph.
    precomputed: bool = False

    @classmethod
    def whole(cls, graph: GraphSizes) -> "Expected":
        """Return the size of the whole graph, an upper bound for any batch."""
        return cls((graph.nodes,), (graph.edges,), graph.train, 1)

    @classmethod
    def subgraph(
        cls,
        graph: GraphSizes,
        nodes: float,
        edges: float,
        steps: int = 0,
        *,
        sampled: bool = False,
        precomputed: bool = False,
    ) -> "Expected":
        """Return the size of a subgraph that has its share of the training nodes."""
        share = min(nodes / graph.nodes, 1)
        count = max(1, round(graph.nodes * share))
        steps = steps or max(1, round(graph.nodes / count))
        return cls(
            (count,),
            (max(1, round(edges)),),
            round(graph.train * share),
            steps,
            sampled=sampled,
            precomputed=precomputed,
        )

    @classmethod
    def layered(cls, graph: GraphSizes, nodes: list[float], edges: list[float]) -> "Expected":
        """Return the size of a batch by layers, from the output nodes down.

        ``nodes`` are the nodes that each layer reaches, ``edges`` those of each layer.
        """
        counts = [min(round(count), graph.nodes) for count in nodes]
        numbers = tuple(max(1, min(round(count), graph.edges)) for count in reversed(edges))
        steps = max(1, -(-graph.train // counts[0]))
        return cls(
            tuple(reversed(counts)), numbers, min(counts[0], graph.train), steps, sampled=True
        )

    def sizes(self, graph: GraphSizes) -> GraphSizes:
        """Return the sizes of a batch of the graph, or of its first layer, the largest."""
        return replace(graph, nodes=self.nodes[0], edges=self.edges[0], train=self.loss_nodes)


class Sampler(ABC):
    """Gives the batches of a run's steps; `RandomBatches` is the base class of most samplers."""

    steps_per_epoch: int  # in which every training node is seen about once
    facts: BatchFacts | None = None  # what was chosen for the graph, as result.json holds it
    # About the most nodes and edges of a batch on a GPU, if they are known.
    largest_batch: tuple[int, int] | None = None

    @abstractmethod
    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        """Yield the batches of the steps first_step, ..., first_step + steps - 1.

        Each follows from its step alone. Close the generator if you leave it early: it may have a
        thread at work.
        """

    @abstractmethod
    def select_columns(self, columns: Tensor) -> "Sampler":
        """Return the same sampler with the input features ``columns`` alone (d_0 partitioned)."""

    def for_sub_gcn(self, i: int) -> "Sampler":
        """Return the sampler of sub-GCN i.

        It is this one, or one with other batches where they are independent.
        """
        return self

    def with_independent_batches(self) -> Self:
        """Return the same sampler with independent batches, if its batches are random."""
        return self

    def for_round(self) -> "Sampler":
        """Return a sampler of the same batches, which gives those of a round several times.

        It is this one where a batch follows from its step alone.
        """
        return self

    def with_smaller_batches(self, times: int) -> "Sampler | None":
        """Return the same sampler with batches of about 1 / `times` of the nodes.

        An epoch has as many more steps. Returns None if the user has given the size of a batch, or
        if it cannot be changed.
        """
        return None


class FullGraph(Sampler):
    """Full-batch training: every step sees the whole graph, and an epoch is one step.

    It is c = 1 in Algorithm 1.
    """

    steps_per_epoch = 1

    def __init__(self, batch: Batch) -> None:
        self.batch = batch.in_memory()

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        for _ in range(steps):
            yield self.batch

    def select_columns(self, columns: Tensor) -> "FullGraph":
        return FullGraph(self.batch.select_columns(columns))


@dataclass(frozen=True, kw_only=True)
class Sampling(ABC):
    """The settings of a sampler, which `GIST.fit` takes.

    A new sampler is a file with a subclass of this class and one of `RandomBatches`, and a line in
    `registry`. A sampler by layers is a subclass of `LayeredSampling` alone.

    Args:
        batches: "shared": all sub-GCNs see the same batches in the same order, as in the authors'
            code; "independent": each sub-GCN draws its own.
    """

    name: ClassVar[str]  # of the sampler in `--sampler`, in result.json and in the registry

    batches: Literal["shared", "independent"] = "shared"

    def __post_init__(self) -> None:
        check_settings(self)

    @abstractmethod
    def sampler(self, full_batch: Batch, seed: int, layers: int | None = None) -> "RandomBatches":
        """Return the sampler for a graph.

        ``full_batch`` is what training sees of the graph, on the device where the models run.
        ``layers`` are the graph layers of the model, the output layer included, if they are known.
        """

    def as_dict(self) -> dict[str, Any]:
        """Return what result.json and checkpoints hold of the settings."""
        return {"name": self.name, **asdict(self)}

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        """Return about how large batches will be.

        They are as large as the graph, unless a subclass knows better.
        """
        return Expected.whole(graph)


def expected_batch(sampling: Sampling | None, graph: GraphSizes, layers: int) -> Expected:
    """Return about how large a sampler's batches will be.

    Without a sampler every step sees the whole graph.
    """
    return Expected.whole(graph) if sampling is None else sampling.expected(graph, layers)


class RandomBatches(Sampler):
    """Random batches, which a thread makes two batches ahead.

    A batch follows from (seed, step) alone.
    """

    def __init__(self, seed: int, *, independent: bool = False) -> None:
        self._seed = seed
        self._independent = independent
        self._stream: tuple[int, ...] = ()
        self._columns: Tensor | None = None

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        made = map(self.make, self._drawn(first_step, steps))
        columns = self._columns
        return prefetch(
            made if columns is None else (batch.select_columns(columns) for batch in made)
        )

    def select_columns(self, columns: Tensor) -> Self:
        return self._changed(_columns=columns)

    def for_sub_gcn(self, i: int) -> Self:
        if not self._independent:
            return self
        # The copy gives these batches whatever sub-GCN asks it.
        return self._changed(_stream=(i,), _independent=False)

    def with_independent_batches(self) -> Self:
        return self._changed(_independent=True)

    @abstractmethod
    def _drawn(self, first_step: int, steps: int) -> Iterator[Any]:
        """Yield for every step what was drawn for its batch, such as some clusters."""

    @abstractmethod
    def make(self, drawn: Any) -> Batch:
        """Return the batch of what was drawn."""

    def _generator(self, purpose: str, *key: int) -> np.random.Generator:
        """Return the random numbers for one purpose at one place of the run."""
        return generator(self._seed, purpose, *key, *self._stream)

    def _shuffled(
        self, count: int, per_batch: int, first_step: int, steps: int
    ) -> Iterator[tuple[int, Array]]:
        """Yield every step with its group of 0, ..., count - 1.

        An epoch is a random permutation, cut into groups.
        """
        per_epoch = -(-count // per_batch)
        shuffled = -1
        order = np.empty(0, np.int64)
        for step in range(first_step, first_step + steps):
            epoch, group = divmod(step, per_epoch)
            if epoch != shuffled:
                shuffled = epoch
                order = self._generator("batches", epoch).permutation(count)
            yield step, order[group * per_batch : (group + 1) * per_batch]

    def _changed(self, **attributes: Any) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, **attributes)
        return other
