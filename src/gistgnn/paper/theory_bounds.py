"""Section 4 and appendix C: GIST trains the GCN of the analysis, beside its bounds."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from gistgnn import InputError, theory
from gistgnn.compare import RunStore
from gistgnn.paper.experiment import Defaults, Experiment, Table
from gistgnn.paper.theory_laws import SAMPLES, SHARE, SPLITS, list_laws, list_measurements
from gistgnn.report import Chart, Series
from gistgnn.theory import Hyperparameters, Problem, least_eigenvalue, recommended_step
from gistgnn.utils import TaskProgress

COLUMNS = (
    *("data set", "d_1", "m", "ζ"),
    *(f"rounds to {SHARE:.0%}", "… theorem", "… predicted"),
    *("error left", "… predicted", "… theorem", "… corrected", "… proved", "ρ/λ_0"),
)
COLUMNS_OF_LAWS = ("data set", "what is measured", "measured", "to leading order", "the analysis")
Measured = dict[str, Any]


@dataclass(frozen=True, order=True)
class Cell:
    """One setting of the experiment, a row of its table."""

    dataset: str
    d_1: int
    m: int
    zeta: int


@dataclass(frozen=True)
class Theory(Experiment):
    """Compares the training error with the bounds; see `Experiment`.

    It also measures how the error depends on d_1, m and ζ.

    Data sets have the names of `load_problem`; of one that is not built in, `nodes` are taken.
    `epochs` are the local steps of every sub-GCN. The first of `widths` (d_1), of `sub_gcns` (m)
    and of `local_steps` (ζ) are the base, from which one at a time is varied.
    """

    widths: tuple[int, ...] = (16384, 4096, 65536)
    sub_gcns: tuple[int, ...] = (2, 1, 4)
    local_steps: tuple[int, ...] = (1, 4, 16)
    nodes: int = 100

    defaults: ClassVar[Defaults] = {
        "theory": {
            "small": {"datasets": ("complete:6", "karate"), "seeds": 4, "epochs": 96},
            "full": {
                "datasets": ("complete:6", "ring:16", "karate", "cora"),
                "seeds": 10,
                "epochs": 480,
                "sub_gcns": (2, 1, 4, 8),
                "local_steps": (1, 4, 16, 64),
            },
        }
    }

    def run(self, store: RunStore) -> list[Table]:
        """Train at every width, m and ζ, and measure the laws on the first data set."""
        problems = {name: self._problem(name, store) for name in self.datasets}
        if min(self.widths) < max(*self.sub_gcns, *SPLITS):
            most = max(*self.sub_gcns, *SPLITS)
            raise InputError(
                f"widths are {', '.join(map(str, self.widths))}, expected at least {most}, a "
                f"neuron for each sub-GCN: m goes up to {max(self.sub_gcns)} in training, and to "
                f"{max(SPLITS)} in other measurements"
            )
        cells = list(
            dict.fromkeys(
                cell for name in self.datasets for line in self._lines(name) for cell in line
            )
        )
        first = self.datasets[0]
        widths = tuple(sorted(set(self.widths)))
        measurements = list_measurements(problems[first], widths, self.seeds)
        with TaskProgress(self.name, len(cells) + sum(map(len, measurements.values()))) as progress:

            def result(measure: partial[Any]) -> Any:
                # The name of the function is part of the key of a stored measurement.
                value = store.measured(
                    measure.func.__name__.strip("_"), settings_of(measure), measure
                )
                progress.advance()
                return value

            by_cell = {}
            for cell in cells:
                settings = (cell.d_1, cell.m, cell.zeta, self.epochs, self.seeds)
                by_cell[cell] = result(partial(train_cell, problems[cell.dataset], *settings))
            results_of_laws = {
                name: [result(measure) for measure in line] for name, line in measurements.items()
            }
        charts = [chart for name in self.datasets for chart in self._charts(name, by_cell)]
        rows = [_row(cell, measured) for cell, measured in by_cell.items()]
        rows_of_laws = [
            row
            for name, problem in problems.items()
            for row in self.rows_on_bounds(name, problem, by_cell)
        ]
        rows_of_laws += [[first, *row] for row in list_laws(widths, results_of_laws)]
        return [
            Table(COLUMNS, rows, self._note(problems), charts),
            Table(COLUMNS_OF_LAWS, rows_of_laws, self._note_on_laws(first)),
        ]

    def _problem(self, name: str, store: RunStore) -> Problem:
        nodes = None if theory.is_built_in(name) else self.nodes
        problem = theory.load_problem(name, store.data_root, nodes=nodes, scaled=True)
        if not least_eigenvalue(problem, 1) > 0:
            failing = ", ".join(_failing(problem))
            raise InputError(
                f"{name}: λ_0 is 0, and nothing is predicted ({failing} fail): give another --nodes"
            )
        return theory.in_basis_of_rows(problem)

    def _lines(self, name: str) -> list[list[Cell]]:
        """Return the cells that differ from the base in d_1, in m and in ζ.

        Each line has the base, too.
        """
        base = Cell(name, self.widths[0], self.sub_gcns[0], self.local_steps[0])
        return [
            [replace(base, d_1=d_1) for d_1 in self.widths],
            [replace(base, m=m) for m in self.sub_gcns],
            [replace(base, zeta=zeta) for zeta in self.local_steps],
        ]

    def rows_on_bounds(
        self, name: str, problem: Problem, by_cell: Mapping[Cell, Measured]
    ) -> list[list[str]]:
        """Return rows that say how often the errors stay below the bounds.

        The theorem's bound is compared with the mean error of each setting, the proved one with
        the error of each run.
        """
        results = [result for cell, result in by_cell.items() if cell.dataset == name]
        below = [is_below(result["error"], result["printed"]) for result in results]
        judged = sum(result["proved_runs"] for result in results)
        below_proved = sum(result["proved_held"] for result in results)
        failing = ", ".join(_failing(problem)) or "none"
        return [
            [
                name,
                "settings whose mean error stays below the theorem's bound",
                f"{sum(below)} of {len(below)}; assumptions that fail: {failing}",
                "–",
                "all, if no assumption fails",
            ],
            [
                name,
                "runs with ρ < λ_0 whose error stays below the proved bound",
                f"{below_proved} of {judged}, among {self.seeds * len(results)} runs",
                "–",
                "all",
            ],
        ]

    def _charts(self, name: str, by_cell: Mapping[Cell, Measured]) -> list[Chart]:
        lines = self._lines(name)
        settings = [
            f"d_1 = {self.widths[0]:,}",
            f"m = {self.sub_gcns[0]}",
            f"ζ = {self.local_steps[0]}",
        ]
        charts = []
        for i, (symbol, attribute) in enumerate((("d_1", "d_1"), ("m", "m"), ("ζ", "zeta"))):
            other_settings = ", ".join(settings[:i] + settings[i + 1 :])
            key = "printed" if symbol == "d_1" else "predicted"
            against = "the theorem's bound" if symbol == "d_1" else "the prediction"
            results = {
                f"{symbol} = {getattr(cell, attribute):,}": by_cell[cell]
                for cell in sorted(lines[i])
            }
            series = [Series(label, run["steps"], run["error"]) for label, run in results.items()]
            bound = "bound" if key == "printed" else key
            series += [
                Series(f"{bound}, {label}", run["steps"], run[key], dashed=True)
                for label, run in results.items()
            ]
            title = f"{name}: the error by {symbol} ({other_settings}), and {against}"
            charts.append(Chart(title, "local steps, tζ", "‖y − ŷ(t)‖²", series, log_y=True))
        return charts

    def _note(self, problems: dict[str, Problem]) -> str:
        sizes = ", ".join(
            f"{name} ({problem.n} nodes, {problem.d} features)"
            for name, problem in problems.items()
        )
        return (
            "GIST trains the one-hidden-layer GCN of the analysis with gradient descent, in "
            f"float64 with categorical masks: {self.epochs} local steps of every sub-GCN, η = "
            f"1/(λ_max(G^∞) + λ_0/2), means over {self.seeds} seeds. Graphs: {sizes}; the longest "
            "row of X is (1 − ε)/2, and X is in a basis of its rows where it has more features "
            f"than nodes.\n\nRounds to {SHARE:.0%} of the initial error: measured; by the rate of "
            "the theorem, without its error term; predicted: the error at infinite width plus what "
            "GIST adds to leading order in 1/d_1 (heuristic, for rounds far below d_1). Error left "
            "at the end: measured; predicted; the theorem's bound with its constants as printed, "
            "and corrected (docs/paper/theory.md); the proved bound, as a mean over the runs with "
            "ρ = max ‖Ĝ − G^∞‖ below λ_0. γ = 1/2."
        )

    def _note_on_laws(self, dataset: str) -> str:
        return (
            f"The laws are measured on {dataset}. The plateau is the error that remains, and is "
            "settled where the initial error is gone. Several numbers in one row are ratios to the "
            'first setting, unless the row says otherwise; "to leading order" is what 1/d_1 '
            'predicts (heuristic); "the analysis" is what section 4 and appendix C say or imply.'
        )


def train_cell(
    problem: Problem, d_1: int, sub_gcns: int, local_steps: int, epochs: int, seeds: int
) -> Measured:
    """Train from several seeds at one width, m and ζ, and compute the bounds of every round."""
    m = sub_gcns
    zeta = local_steps
    rounds = max(1, epochs // local_steps)
    eta = recommended_step(problem, m)
    lambda_0 = least_eigenvalue(problem, m)
    numbers = Hyperparameters(d_1, m, zeta, eta)
    errors, drift, proved = theory.measure_convergence(problem, numbers, rounds, seeds)
    error = errors.mean(dim=0).tolist()
    initial = theory.expected_initial_error(problem, m)
    printed, corrected = (theory.Bound(problem, numbers, printed=flag) for flag in (True, False))
    bounded = ~proved.isnan().any(dim=1)
    return {
        "eta": eta,
        "steps": [zeta * t for t in range(rounds + 1)],
        "error": error,
        # Every seed draws its own Θ_0, so the mean initial error is not its expectation.
        "printed": [printed.at(t, max(initial, error[0])) for t in range(rounds + 1)],
        "corrected_end": corrected.at(rounds, initial),
        "predicted": theory.predicted_error(problem, numbers, rounds, samples=SAMPLES).tolist(),
        "proved_end": float(proved[bounded, -1].mean()) if bounded.any() else None,
        "proved_runs": int(bounded.sum()),
        "proved_held": int((errors[bounded] <= proved[bounded] * (1 + 1e-12)).all(dim=1).sum()),
        "drift": float(drift.max()) / lambda_0,
        "contraction": printed.contraction,
    }


def settings_of(measure: partial[Any]) -> list[Any]:
    """Return everything that a measurement depends on.

    That is digests of X, the edges and y, and the numbers that it is called with.
    """
    problem, *numbers = measure.args
    tensors = (problem.x, problem.edge_index, problem.y)
    digests = [hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for tensor in tensors]
    return [digests, numbers, measure.keywords, SAMPLES]


def _failing(problem: Problem) -> list[str]:
    return [assumption.name for assumption in theory.check(problem) if not assumption.holds]


def is_below(errors: Sequence[float], bounds: Sequence[float]) -> bool:
    """Return whether an error is never above its bound."""
    return all(error <= bound for error, bound in zip(errors, bounds, strict=True))


def _reached(errors: Sequence[float]) -> int | None:
    return next((t for t, error in enumerate(errors) if error <= SHARE * errors[0]), None)


def _theorem_reaches(result: Measured) -> float:
    return theory.rounds_to(SHARE, result["contraction"]) or math.inf


def _row(cell: Cell, result: Measured) -> list[str]:
    reached = [_reached(result["error"]), _theorem_reaches(result), _reached(result["predicted"])]
    ends = [result[key][-1] for key in ("error", "predicted", "printed")]
    ends += [result["corrected_end"], result["proved_end"]]
    return [
        *(cell.dataset, f"{cell.d_1:,}", str(cell.m), str(cell.zeta)),
        *("–" if rounds is None else f"{rounds:,}" for rounds in reached),
        *("–" if end is None else _figure(end) for end in ends),
        f"{result['drift']:.2f}",
    ]


def _figure(value: float) -> str:
    if 0.01 <= value < 1e5:
        return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"
