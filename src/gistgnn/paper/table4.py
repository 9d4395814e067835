"""Table 4: GIST with layer sampling: a GCN 256 wide, with two to four hidden layers, trained by LADIES (appendix A.6).

On graphs of Reddit's shape the learning rate is 0.001, as LADIES' authors have it, because scores keep falling back at
0.01; there, features are standardised and training is inductive, as in the GIST authors' code for clusters.
"""

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

from gistgnn import Training
from gistgnn.compare import speedup
from gistgnn.paper import large_graphs as large
from gistgnn.paper.experiment import Claim, Verdict, judge
from gistgnn.paper.large_graphs import GroupedExperiment, GroupKey, Groups, Line, RunGroup
from gistgnn.paper.published import COMMENTED_NOTE, SUB_GCNS, TABLE2_REDDIT, TABLE4, published_cells
from gistgnn.report import COSTLY
from gistgnn.runs import ModelConfig, RunConfig
from gistgnn.sampling import LadiesSampling

WIDTH, DROPOUT = 256, 0.2
LADIES, CLUSTERS = "LADIES", "clusters"  # what the batches of a group are
COMMENTED_OUT = " (commented out in the paper's source)"


# No local steps: 500 on graphs of Reddit's shape, 50 on smaller ones, which take fewer steps.
@dataclass(frozen=True)
class Ladies(GroupedExperiment):
    """Table 4; see `Experiment`. GraphSAGE on clusters, as in Table 2, trains beside it, to compare speed-ups."""

    layers: tuple[int, ...] = (2, 3, 4)
    local_steps: int | None = None

    columns = ("data set", "batches", "L", "m", "F1", "time", "speed-up", "paper: F1", "time", "speed-up")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("synthetic:reddit@0.2",), "seeds": 1, "epochs": 30, "layers": (2,), "local_steps": 50},
        "full": {"datasets": ("reddit",), "seeds": 1, "epochs": 80},
    }

    def verdicts(self, groups: Groups) -> list[Verdict]:
        pairs = [(*key[:2], group, groups.get((*key[:2], CLUSTERS))) for key, group in groups.items() if LADIES in key]
        return [verdict for pair in pairs for verdict in _judge(*pair)]

    def groups(self) -> dict[GroupKey, list[RunConfig]]:
        keys = itertools.product(self.datasets, self.layers, (LADIES, CLUSTERS))
        return {key: [self.config(*key, m) for m in SUB_GCNS] for key in keys}

    def config(self, dataset: str, layers: int, batches: str, sub_gcns: int) -> RunConfig:
        """Return the run of one row; on clusters it is Table 2's."""
        reddit = "reddit" in dataset
        zeta = self.local_steps or (500 if reddit else 50)
        if batches == CLUSTERS:
            return large.large_run(dataset, large.graphsage(WIDTH, layers), sub_gcns, self.epochs, zeta, self.device)
        model = ModelConfig("gcn", (WIDTH,) * layers, dropout=DROPOUT)
        training = Training(self.epochs, zeta, lr=0.001 if reddit else 0.01, evaluate_every=1, **large.PLAIN)
        return RunConfig(
            dataset, model, sub_gcns, device=self.device, training=training, sampler=LadiesSampling(), runner="fused",
            inductive=reddit, standardise=reddit, width_scaling="none",
        )  # fmt: skip

    def _cells(self, key: GroupKey, line: Line) -> list[str]:
        dataset, layers, batches = key
        paper = TABLE4.get(layers) if batches == LADIES else TABLE2_REDDIT.get(("graphsage", WIDTH, layers))
        m = line.name[1]
        own = [dataset, batches, str(layers), "baseline" if m == 1 else str(m), *line.cells]
        return [*own, *published_cells(paper, m)]

    def _note(self) -> str:
        zeta = self.local_steps or "500 on Reddit's shape, 50 elsewhere"
        return (
            f"Micro-F1 on the test nodes in percent at the best validation score, of a GCN with {WIDTH} features, "
            f"{self.epochs} epochs split over the sub-GCNs, on batches of LADIES: 512 output nodes, 512 nodes for each "
            "of the L + 1 graph layers, rows normalised. Adam at 0.01 (0.001 on Reddit's shape), "
            f"scored after every round, ζ = {zeta}, dropout {DROPOUT:g}; {self.seeds} seed(s). The rows on clusters "
            "are Table 2's GraphSAGE. Times are of training, sub-GCNs fused. A speed-up in parentheses costs more than "
            f"1 point. The paper's numbers are on Reddit, with as many GPUs as sub-GCNs. {COMMENTED_NOTE} Its 3.67x at "
            "L = 4, m = 4 is a slip: its times give 3.07x."
        )


def _judge(dataset: str, layers: int, ladies: RunGroup, clusters: RunGroup | None) -> list[Verdict]:
    """Judge what section 5.4 says; `clusters` are runs on batches of clusters with the same m."""
    # The caption's "without deteriorating the F1 score" cannot be meant to the point: at L = 3 its own table loses 3.05
    # and 2.85. So F1 may fall by what it falls there.
    where, base, verdicts = f"{dataset}, L = {layers}", ladies.base, list[Verdict]()
    paper = dict(zip(SUB_GCNS, TABLE4.get(layers, ()), strict=False))
    for m, row in ladies.gist.items() if paper else ():
        speed, most = paper[m].speedup, round(paper[1].f1 - paper[m].f1, 2)
        text, holds = f"the paper's speed-up of {speed:.2f}x", large.faster(row) >= speed
        faster = Claim(text, holds, speedup(row, base), [base, row])
        text, lost = f"F1 falls by no more than in the paper, {most:.2f} points", large.lost(base, row)
        own = f"{where}, m = {m}{COMMENTED_OUT if paper[m].commented else ''}"
        verdicts += judge(own, [faster, Claim(text, lost <= most, large.points_lost(base, [row]))])
    whole = bool(paper) and paper[1].commented
    # "speedup increases ... from m = 2 to m = 4 ... without significant deterioration to model performance"
    two, four = ladies.gist[2], ladies.gist[4]
    both, more = f"{speedup(two, base)} and {speedup(four, base)}", large.faster(four) > large.faster(two)
    kept, scores = large.lost(two, four) <= COSTLY, f"{two.mean:.2f} and {four.mean:.2f}"
    # "the observed speedup actually exceeds that of GIST with graph partitioning"
    lines = [line for line in ladies.lines if whole or line.name[1] not in paper or not paper[line.name[1]].commented]
    names = ", ".join(str(line.name[1]) for line in lines[1:])
    gains = f"layer sampling gains more speed than graph partitioning, with m = {names}"
    claims = [
        Claim("m = 4 is faster than m = 2", more, both, ladies.every[:3]),
        Claim(f"m = 4 loses at most {COSTLY:g} point of F1 against m = 2", kept, scores),
        large.gains_more(gains, RunGroup(lines), clusters, "graph partitioning"),
    ]
    return [*verdicts, *judge(where + (COMMENTED_OUT if whole else ""), claims)]
