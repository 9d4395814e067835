"""What the experiments on large graphs share: clusters, batches, and how often models are scored (appendix A.3)."""

from collections.abc import Iterable

from gistgnn.graphs import find
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.sampling import ClusterSampling
from gistgnn.settings import Training

CLUSTERS, NODES = 15_000, {"reddit": 232_965, "amazon2m": 2_449_029}  # the paper's c, and the sizes of its graphs


def graphsage(width: int, layers: int) -> ModelConfig:
    """Return the paper's GraphSAGE with `layers` hidden layers."""
    return ModelConfig("graphsage", (width,) * layers, dropout=0.2, norm="layer")


def clusters_of(dataset: str) -> int:
    """Return the number of clusters that gives batches as large as the paper's; unknown graphs get 40."""
    shape = "amazon2m" if "amazon2m" in dataset or "products" in dataset else "reddit"
    info = find(dataset)
    return max(40, round(CLUSTERS * info.nodes / NODES[shape])) if info else 40


def describe_clusters(datasets: Iterable[str], clusters: int | None = None) -> str:
    """Say how many clusters each data set has; None: as many as `clusters_of` gives."""
    counts = ", ".join(f"{clusters or clusters_of(dataset)} of {dataset}" for dataset in datasets)
    return f"Clusters: {counts}, 10 in a batch"


def large_run(
    dataset: str,
    model: ModelConfig,
    sub_gcns: int,
    epochs: int,
    local_steps: int,
    device: str,
    runner: str = "fused",
    evaluations: int = 30,
    clusters: int | None = None,
    lr: float = 0.01,
) -> RunConfig:
    """Return the run of one model on a large graph.

    The epochs are split over the sub-GCNs. The model is scored about `evaluations` times, whatever m is. None as the
    number of clusters is as `clusters_of` gives.
    """
    sampler = ClusterSampling(clusters=clusters or clusters_of(dataset))
    rounds = epochs * sampler.clusters / sampler.clusters_per_batch / sub_gcns / local_steps
    every = max(1, round(rounds / evaluations))
    return RunConfig(
        dataset,
        model,
        sub_gcns,
        device=device,
        training=Training(epochs, local_steps, lr=lr, evaluate_every=every),
        sampler=sampler,
        runner=runner,
        inductive=True,
        standardise=True,
    )
