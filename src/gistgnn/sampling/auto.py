"""The sampler for the graph at hand: the whole graph in every step while it is small, clusters above."""

from gistgnn.defaults import SMALL_GRAPH
from gistgnn.graphs.named import GraphSizes
from gistgnn.sampling.batch import Batch
from gistgnn.sampling.clusters import ClusterSampling
from gistgnn.sampling.sampler import Expected, RandomBatches, Sampling, expected_batch


class AutoSampling(Sampling):
    """Training on the whole graph up to `SMALL_GRAPH` nodes; by clusters above, or where batches are independent."""

    name = "auto"
    counts = ()

    def choose(self, nodes: int) -> ClusterSampling | None:
        """Return the settings for a graph of some nodes; None: every step sees the whole graph."""
        small = nodes <= SMALL_GRAPH and self.batches == "shared"
        return None if small else ClusterSampling(batches=self.batches)

    def sampler(self, whole: Batch, seed: int, layers: int | None = None) -> RandomBatches:
        """Return the sampler of a user's own loop; a small graph is one cluster."""
        return (self.choose(len(whole.x)) or ClusterSampling(1, 1, "random")).sampler(whole, seed, layers)

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        return expected_batch(self.choose(graph.nodes), graph, layers)


def chosen_sampling(sampling: Sampling | None, nodes: int) -> Sampling | None:
    """Return the settings for a graph of some nodes: those of `AutoSampling` follow from them."""
    return sampling.choose(nodes) if isinstance(sampling, AutoSampling) else sampling
