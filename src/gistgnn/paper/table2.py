"""Table 2: GIST on Reddit and Amazon2M against one device (section 5.2, appendix A.4).

A smaller graph than the paper's has proportionally fewer clusters, so that batches are as large.
docs/paper/provenance.md says where each setting comes from.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gistgnn import InputError
from gistgnn.compare import RunStore
from gistgnn.paper import large_graphs as large
from gistgnn.paper.experiment import scores_of
from gistgnn.paper.large_graphs import ComparisonOfRuns, GroupKey, TrainedRun
from gistgnn.paper.published import SUB_GCNS, TABLE2_AMAZON2M, TABLE2_REDDIT, Rows, published_cells
from gistgnn.report import Chart
from gistgnn.runs import ModelConfig, RunConfig

# At the small scale GAT gets this many times GraphSAGE's epochs, and a ζ that many times smaller.
GAT_FACTOR = 4
HEADS = 4  # of GAT
OF_GAT = f"GAT has {HEADS} heads, which share its features"


@dataclass(frozen=True)
class LargeGraphs(ComparisonOfRuns):
    """One half of Table 2; see `Experiment`.

    `layers` are every L; `differences` from the paper are listed by scale.
    """

    layers: tuple[int, ...] = (2,)
    local_steps: int = 500
    clusters: int | None = None
    clusters_per_batch: int = large.IN_BATCH

    paper: ClassVar[Mapping[tuple[str, int, int], Rows]]
    differences: ClassVar[Mapping[str, str]]
    columns = (
        "data set",
        "model",
        "d",
        "L",
        "m",
        "F1",
        "time",
        "speed-up",
        "paper: F1",
        "time",
        "speed-up",
    )

    @abstractmethod
    def models_and_widths(self) -> list[tuple[str, int]]:
        """Return every model, by name and width."""

    def config(self, dataset: str, name: str, width: int, layers: int, m: int) -> RunConfig:
        model = _gat(width, layers) if name == "gat" else large.graphsage(width, layers)
        training = large.large_training(self.epochs, self.local_steps)
        sampler = large.cluster_sampling(dataset, self.clusters, self.clusters_per_batch)
        return replace(large.large_run(dataset, model, m, training, sampler), device=self.device)

    def groups(self) -> dict[GroupKey, list[RunConfig]]:
        models = [(*model, layers) for model in self.models_and_widths() for layers in self.layers]
        keys = [(dataset, *model) for dataset in self.datasets for model in models]
        return {key: [self.config(*key, m) for m in SUB_GCNS] for key in keys}

    def rows(self, key: GroupKey, group: Sequence[TrainedRun], store: RunStore) -> list[list[str]]:
        baseline = group[0].row
        rows = []
        for trained in group:
            m = trained.config.sub_gcns
            settings = [*map(str, key), "–" if m == 1 else str(m)]
            paper = published_cells(self.paper.get(key[1:]), m)
            rows.append([*settings, *large.cells_of_one_device(trained, baseline), *paper])
        return rows

    def chart(self, key: GroupKey, group: Sequence[TrainedRun]) -> Chart:
        """Return the first seed's test scores by training time."""
        series = [
            scores_of(
                trained.row.label,
                trained.records[0],
                "train_seconds",
                dashed=trained.config.sub_gcns == 1,
            )
            for trained in group
        ]
        title = "{1} {2}, L = {3}, {0}".format(*key)
        return Chart(title, "seconds of training", "test F1 (%)", series, log_x=True)

    def note(self) -> str:
        clusters = large.describe_clusters(self.datasets, self.clusters, self.clusters_per_batch)
        return (
            f"Micro-F1 on the test nodes in percent at the best validation score, {self.epochs} "
            f"epochs split over the sub-GCNs, ζ = {self.local_steps}, Adam at 0.01, dropout 0.2; "
            f"{self.seeds} seed(s). A speed-up in parentheses costs more than 1 point. Times are "
            f"of training on one machine, sub-GCNs fused; the paper has 8 V100. {clusters} (the "
            f"paper: 15,000 of the whole graph, 10 in a batch). {self.differences[self.scale]}"
        )


def _gat(width: int, layers: int, norm: str = "none") -> ModelConfig:
    return ModelConfig(
        "gat", (width // HEADS,) * layers, dropout=0.2, norm=norm, heads=HEADS, activation="elu"
    )


@dataclass(frozen=True)
class Reddit(LargeGraphs):
    """The half on Reddit: GraphSAGE and GAT.

    `models` are the models' names. A width of GAT is that of all heads.
    """

    models: tuple[str, ...] = ("graphsage", "gat")
    widths: tuple[int, ...] = (256,)

    def __post_init__(self) -> None:
        odd = [width for width in self.widths if width % HEADS]
        if odd and "gat" in self.models:
            raise InputError(
                f"width is {odd[0]}, expected a multiple of {HEADS}, the number of GAT's heads"
            )

    paper = TABLE2_REDDIT
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {
            "datasets": ("synthetic:reddit@0.1",),
            "seeds": 1,
            "epochs": 24,
            "local_steps": 50,
            "layers": (2,),
        },
        "full": {
            "datasets": ("reddit",),
            "seeds": 1,
            "epochs": 80,
            "local_steps": 500,
            "layers": (2, 3, 4),
        },
    }
    differences: ClassVar[dict[str, str]] = {
        "small": "The paper's numbers are for Reddit itself, 80 epochs, ζ = 500; the synthetic "
        "graph has Reddit's "
        "shape and a fifth of its edges, and these runs see 20 to 30 times fewer nodes. "
        f"{OF_GAT}, layer norms, batches ten times as large, {GAT_FACTOR} times as many epochs, a "
        f"ζ {GAT_FACTOR} times "
        "smaller, and a learning rate of 0.001.",
        "full": f"{OF_GAT}.",
    }

    def models_and_widths(self) -> list[tuple[str, int]]:
        return [(name, width) for name in self.models for width in self.widths]

    def config(self, dataset: str, name: str, width: int, layers: int, m: int) -> RunConfig:
        """See `LargeGraphs`; at the small scale GAT trains as `differences` says."""
        if self.scale == "full" or name != "gat":
            return super().config(dataset, name, width, layers, m)
        clusters = max(40, (self.clusters or large.default_clusters(dataset)) // 10)
        sampler = large.cluster_sampling(dataset, clusters, self.clusters_per_batch)
        local_steps = max(1, self.local_steps // GAT_FACTOR)
        training = large.large_training(GAT_FACTOR * self.epochs, local_steps, lr=0.001)
        model = _gat(width, layers, norm="layer")
        return replace(large.large_run(dataset, model, m, training, sampler), device=self.device)


@dataclass(frozen=True)
class Amazon2M(LargeGraphs):
    """The half on Amazon2M: GraphSAGE, narrow and wide."""

    widths: tuple[int, ...] = (400, 4096)

    paper = TABLE2_AMAZON2M
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {
            "datasets": ("synthetic:amazon2m@0.02",),
            "seeds": 1,
            "epochs": 20,
            "local_steps": 50,
        }
        | {"layers": (2,), "widths": (400, 1024), "clusters": 1500},
        "full": {
            "datasets": ("amazon2m",),
            "seeds": 1,
            "epochs": 400,
            "local_steps": 5000,
            "layers": (2, 3, 4),
        },
    }
    differences: ClassVar[dict[str, str]] = {
        "small": "The paper's numbers are for Amazon2M itself, 400 epochs, ζ = 5000, and for 400 "
        "and 4096 features; "
        "the synthetic graph has Amazon2M's shape. Its batches are a fifth of the paper's, for "
        "enough rounds.",
        "full": "",
    }

    def models_and_widths(self) -> list[tuple[str, int]]:
        return [("graphsage", width) for width in self.widths]
