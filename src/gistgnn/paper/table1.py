"""Table 1: which feature dimensions to partition, for a three-layer GCN (256, 256) on small graphs (appendix A.3).

The paper does not give learning rate and weight decay. Each row chooses them by validation accuracy, on seeds that the
table does not use: every candidate trains once, and at full scale the best three train twice more. Rows that partition
hidden layers alone are trained a second time with the norm of the authors' code, which the text does not mention.
"""

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gistgnn import InputError
from gistgnn.compare import Record, RunStore, score_of
from gistgnn.paper.experiment import Claim, Experiment, Outcome, Verdict, judge
from gistgnn.paper.published import TABLE1 as PAPER
from gistgnn.paper.published import TABLE1_ROWS as ROWS
from gistgnn.paper.published import TABLE1_SD as SD
from gistgnn.paper.published import WORKERS
from gistgnn.paper.small_graphs import DROPOUT, listed, ranked, small_run, train_all
from gistgnn.runs import RunConfig
from gistgnn.utils import mean_sd

Cell = tuple[str, int, str]  # a data set, a place in ROWS and a norm
Candidate = tuple[float, float]  # learning rate, weight decay
Dims = tuple[int, ...]  # the dimensions d_l that are partitioned
Means = Mapping[tuple[int, Dims], float]  # accuracy in percent of one data set, by m and dimensions

CANDIDATES: dict[str, tuple[Candidate, ...]] = {
    "full": tuple(itertools.product((0.005, 0.01, 0.025, 0.05, 0.1), (0.0, 5e-4, 5e-3))),  # provenance.md has reasons
    "small": ((0.01, 5e-4), (0.05, 5e-4), (0.05, 0.0), (0.1, 0.0)),
}
SEARCH_SEEDS = (1000, 1001, 1002)  # every candidate trains with the first, finalists with all
FINALISTS = {"full": 3, "small": 1}
COLUMNS = ("data set", "m", "d_0", "d_1", "d_2", "norm", "accuracy", "best over rounds", "paper", "lr", "decay")

BASELINE, HIDDEN = (1, ()), (1, 2)
TEXT, PUBLIC = "none", "whole"  # the norm of the text, and that of the authors' code
WITH_INPUTS: tuple[Dims, ...] = ((0, 1, 2), (0, 1))
NO_LOSS = 2.0  # points; "no performance deterioration", "perform similarly": the paper's Cora loses 1.94 at m = 8
NEARLY = 0.5  # points; "optimal performance": on CiteSeer at m = 2, splitting d_0 too is 0.13 better
SIGNIFICANT = 10.0  # points; "significantly degrades test accuracy"


@dataclass(frozen=True)
class Table1(Experiment):
    """Table 1; see `Experiment`."""

    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("cora",), "seeds": 2, "epochs": 400},
        "full": {"datasets": tuple(PAPER), "seeds": 5, "epochs": 400},
    }

    def __post_init__(self) -> None:
        if unknown := [name for name in self.datasets if name not in PAPER]:
            raise InputError(f"data set is '{unknown[0]}', expected one of {', '.join(PAPER)}")

    def run(self, store: RunStore) -> Outcome:
        """Choose the learning rates and weight decays, then train every row with every seed."""
        hidden = [(index, PUBLIC) for index, (_, dims) in enumerate(ROWS) if 0 not in dims]
        lines = [*((index, TEXT) for index in range(len(ROWS))), *hidden]
        cells = [(dataset, *line) for dataset in self.datasets for line in lines]
        chosen = self._choose(store, cells)
        runs = {cell: self.config(cell, *chosen[cell]) for cell in cells}
        records = train_all(store, runs, range(self.seeds), f"{self.seeds} seeds")
        scores = {cell: list(map(score_of, seeds)) for cell, seeds in records.items()}
        rows = [_row(cell, chosen[cell], scores[cell], records[cell]) for cell in cells]
        return Outcome(COLUMNS, rows, self._note(), self.verdicts(scores))

    def verdicts(self, scores: Mapping[Cell, Sequence[float]]) -> list[Verdict]:
        """Judge the paper's claims, by the accuracy of each seed in percent."""
        ours: dict[tuple[str, str], dict[tuple[int, Dims], float]] = {}
        for (dataset, index, norm), own in scores.items():
            ours.setdefault((dataset, norm), {})[ROWS[index]] = statistics.mean(own)
        verdicts = []
        for (dataset, norm), means in ours.items():
            paper, where = dict(zip(ROWS, PAPER[dataset], strict=True)), f"{dataset}, the public code's norm"
            verdicts += judge(dataset if norm == TEXT else where, _claims(paper, means))
        return [*verdicts, _often_better({dataset: means for (dataset, norm), means in ours.items() if norm == TEXT})]

    def config(self, cell: Cell, lr: float, weight_decay: float, seed: int = 0) -> RunConfig:
        dataset, index, norm = cell
        m, partitioned = ROWS[index]
        zeta = 100 if dataset == "ogbn-arxiv" else 20
        run = small_run(self, dataset, (256, 256), m, zeta, lr, weight_decay)
        return replace(run, model=replace(run.model, norm=norm), partitioned=partitioned, seed=seed)

    def _choose(self, store: RunStore, cells: Sequence[Cell]) -> dict[Cell, Candidate]:
        """Return the candidate of every row with the best validation accuracy."""
        best = {cell: list(CANDIDATES[self.scale]) for cell in cells}
        for count, seeds in ((len(CANDIDATES[self.scale]), SEARCH_SEEDS[:1]), (FINALISTS[self.scale], SEARCH_SEEDS)):
            if count > 1:
                pairs = [(cell, candidate) for cell in cells for candidate in best[cell][:count]]
                runs = {(cell, candidate): self.config(cell, *candidate) for cell, candidate in pairs}
                best = ranked(train_all(store, runs, seeds, f"choosing among {count} learning rates"))
        return {cell: candidates[0] for cell, candidates in best.items()}

    def _note(self) -> str:
        searched = f"one run of each (seed {SEARCH_SEEDS[0]})"
        if (finalists := FINALISTS[self.scale]) > 1:
            searched += f", two more of the best {finalists} (seeds {SEARCH_SEEDS[1]} and {SEARCH_SEEDS[2]})"
        rates, decays = map(listed, zip(*CANDIDATES[self.scale], strict=True))
        return (
            f"Test accuracy in percent of a three-layer GCN (256, 256), {self.epochs} epochs split over the sub-GCNs, "
            f"dropout {DROPOUT:g} on hidden features (the paper does not give it), mean ± standard deviation over "
            f'{self.seeds} seeds. A tick marks a partitioned dimension. "whole" is the norm of the authors\' code, one '
            "mean and deviation over all nodes and features; the text does not mention it. The paper's ± are in points "
            "here: it prints ogbn-arxiv's so, and the others' as fractions. "
            '"accuracy" is taken at the best validation score; "best over rounds" is the best test score, which the '
            f"authors' scripts print. Each row chooses learning rate and weight decay from {rates} and {decays} by "
            f"validation accuracy: {searched}."
        )


def _row(cell: Cell, chosen: Candidate, accuracy: Sequence[float], records: Sequence[Record]) -> list[str]:
    """Return the cells of a row; `accuracy` is of each seed, in percent."""
    dataset, index, norm = cell
    m, partitioned = ROWS[index]
    best = [100 * max((entry["test"] for entry in record["history"]), default=0.0) for record in records]
    ticks = ["✓" if dim in partitioned else "" for dim in (0, 1, 2)]
    paper = f"{PAPER[dataset][index]:.2f} ± {SD[dataset][index]:.2f}"
    scores = [mean_sd(accuracy), mean_sd(best), paper]
    return [dataset, "baseline" if m == 1 else str(m), *ticks, norm, *scores, *(f"{value:g}" for value in chosen)]


def _claims(paper: Means, means: Means) -> Iterator[Claim]:
    """Yield what section 5.1 says of a data set, beside the paper's own numbers; of d_0 where it is partitioned."""
    # "other feature dimensions cause no performance deterioration when partitioned". The table itself loses up to 5.04
    # points, on ogbn-arxiv, so what it loses there is allowed.
    allowed, losses = {m: max(NO_LOSS, loss) for m, loss in _losses(paper).items()}, _losses(means)
    most, base = ", ".join(f"{points:g}" for points in allowed.values()), f"baseline {means[BASELINE]:.2f}"
    text = f"partitioning d_1 and d_2 costs at most {most} points with m = 2, 4, 8"
    yield Claim(text, all(losses[m] <= allowed[m] for m in WORKERS), f"{base}; points lost: {_each(losses)}")
    # "all models trained with GIST perform similarly for practical settings of m"
    spread, scores = max(NO_LOSS, _spread(paper)), {m: means[m, HIDDEN] for m in WORKERS}
    text = f"GIST performs similarly for every m (within {spread:g} points)"
    yield Claim(text, _spread(means) <= spread, _each(scores))
    if (2, WITH_INPUTS[0]) not in means:
        return
    # "Partitioning on all hidden layers except the input layer leads to optimal performance" (caption)
    text = f"partitioning d_1 and d_2 alone is best, with every m (no other is {NEARLY:g} points better)"
    ahead = _ahead(means, WITH_INPUTS)
    yield Claim(text, all(points >= -NEARLY for points in ahead.values()), f"ahead of the next by {_each(ahead)}")
    for dims in WITH_INPUTS:
        # "Partitioning input features (d_0) significantly degrades test accuracy ..., more ... with larger m"
        names, costs = ", ".join(f"d_{dim}" for dim in dims), _ahead(means, [dims])
        grows = all(before < after for before, after in itertools.pairwise(costs.values()))
        yield Claim(
            f"partitioning {names} costs more with larger m, and {SIGNIFICANT:g} points or more at m = 8",
            grows and round(means[BASELINE] - means[8, dims], 2) >= SIGNIFICANT,
            f"{base}, m = 8 {means[8, dims]:.2f}; against d_1 and d_2 alone: {_each(costs)}",
        )


def _often_better(ours: Mapping[str, Means]) -> Verdict:
    """Judge "Models trained with GIST often exceed the performance of models trained with standard ... methodology"."""
    claim = "GIST is often better than one device: in at least half of all rows"
    if missing := sorted(set(PAPER) - set(ours)):
        return Verdict(claim, None, f"the paper says it of four data sets; not run: {', '.join(missing)}")
    better = [means[m, HIDDEN] > means[BASELINE] for means in ours.values() for m in WORKERS]
    return Verdict(claim, 2 * sum(better) >= len(better), f"{sum(better)} of {len(better)}")


def _losses(means: Means) -> dict[int, float]:
    return {m: round(means[BASELINE] - means[m, HIDDEN], 2) for m in WORKERS}


def _spread(means: Means) -> float:
    scores = [means[m, HIDDEN] for m in WORKERS]
    return round(max(scores) - min(scores), 2)


def _ahead(means: Means, others: Sequence[Dims]) -> dict[int, float]:
    """Return by how many points partitioning d_1 and d_2 alone is better than the best of other choices, by m."""
    return {m: round(means[m, HIDDEN] - max(means[m, dims] for dims in others), 2) for m in WORKERS}


def _each(points: Mapping[int, float]) -> str:
    return ", ".join(f"m = {m}: {value:.2f}" for m, value in points.items())
