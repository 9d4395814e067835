"""What the experiments on large graphs share: clusters, batches, and how often models are scored (appendix A.4)."""

from collections.abc import Iterable
from dataclasses import replace

from gistgnn import Phase, Training
from gistgnn.graphs import find
from gistgnn.runs import ModelConfig, RunConfig
from gistgnn.sampling import ClusterSampling

ENOUGH = 128  # features of a part: wider ones learn no more in an epoch (RESULTS.md, "The frontier ...")
ATTENDING = 64  # least features of a part with attention
RATE, OF = 0.0025, 256  # highest learning rate of a part, and of this width; it falls with the width
NARROW_SHARE = 0.75  # of the epochs, with parts that are narrower than ENOUGH

PHASES_NOTE = (
    "Rows in phases are not the paper's method: with the same number of steps, one narrow part trains and is copied "
    "into all blocks (docs/how-to/phases.md)."
)

IN_BATCH = 10  # clusters, in the text (A.4)
CLUSTERS, NODES = 15_000, {"reddit": 232_965, "amazon2m": 2_449_029}  # the paper's c, and the sizes of its graphs


def graphsage(width: int, layers: int) -> ModelConfig:
    """Return GraphSAGE with `layers` hidden layers; norm and dropout are those of the authors' code."""
    return ModelConfig("graphsage", (width,) * layers, dropout=0.2, norm="layer")


def clusters_of(dataset: str) -> int:
    """Return the number of clusters that gives batches as large as the paper's; unknown graphs get 40."""
    shape = "amazon2m" if "amazon2m" in dataset or "products" in dataset else "reddit"
    info = find(dataset)
    return max(40, round(CLUSTERS * info.nodes / NODES[shape])) if info else 40


def describe_clusters(datasets: Iterable[str], clusters: int | None = None, in_batch: int = IN_BATCH) -> str:
    """Say how many clusters each data set has, and each batch; None: as many as `clusters_of` gives."""
    counts = ", ".join(f"{clusters or clusters_of(dataset)} of {dataset}" for dataset in datasets)
    return f"Clusters: {counts}, {in_batch} in a batch"


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
    clusters_per_batch: int = IN_BATCH,
    lr: float = 0.01,
) -> RunConfig:
    """Return the run of one model on a large graph.

    The epochs are split over the sub-GCNs. The model is scored about `evaluations` times, whatever m is. None as the
    number of clusters is as `clusters_of` gives.
    """
    sampler = ClusterSampling(clusters or clusters_of(dataset), clusters_per_batch)
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


def in_phases(run: RunConfig) -> RunConfig:
    """Return a run of our own recipe, with as many steps and as narrow ones, in place of the paper's method.

    One part of 1/m of the width trains and is copied into all m blocks. If it has fewer than `ENOUGH` features, it does
    so at a constant rate, and wider parts take the last steps: see "At equal epochs" in benchmarks/RESULTS.md. GAT is
    unstable at constant and at higher rates, and learns little with fewer than `ATTENDING` features ("Table 2" there):
    its part is not narrower, and has the run's rate and a cosine.
    """
    m, epochs, lr = run.sub_gcns, run.training.epochs, run.training.lr
    attends, width = run.model.name == "gat", min(run.model.hidden)
    last = _parts(m, width * run.model.heads, ATTENDING) if attends else _parts(m, width, ENOUGH)

    def rate(width: int) -> float:
        return lr if attends else min(lr, RATE) * OF / width

    phases: tuple[Phase, ...] = (Phase(last, epochs, rate(width // last), "cosine", copies=last > 1),)
    if last < m and not attends:
        narrow = Phase(m, NARROW_SHARE * epochs, rate(width // m), "constant", copies=True)
        phases = narrow, replace(phases[0], epochs=epochs - narrow.epochs)
    every = run.training.evaluate_every
    every = every if every == "auto" else int(every) * m  # one part has m times the rounds of m parts
    return replace(run, training=replace(run.training, phases=phases, cross_weights="zero", evaluate_every=every))


def _parts(m: int, width: int, least: int) -> int:
    """The largest divisor of m by which a width is cut into parts of at least so many features; or 1."""
    return next(few for few in range(m, 0, -1) if m % few == 0 and (width // few >= least or few == 1))
