"""What `gistgnn reproduce theory` measures, keeps and concludes."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gistgnn.compare import RunStore
from gistgnn.paper.theory_bounds import Cell, Theory, settings_of, train_cell
from gistgnn.paper.theory_laws import (
    GENTLE_STEPS,
    KERNEL_SPLITS,
    KERNEL_WIDTHS,
    REMAINING,
    SPLITS,
    STEPS,
    list_laws,
)
from gistgnn.theory import (
    Bound,
    Hyperparameters,
    complete,
    expected_initial_error,
    recommended_step,
)
from tests.cli.in_process import refused


def test_a_cell_is_what_the_library_computes() -> None:
    p = complete(5)
    settings = {"d_1": 4096, "sub_gcns": 2, "local_steps": 3}
    result = train_cell(p, **settings, epochs=31, seeds=3)
    eta = recommended_step(p, 2)
    assert result["steps"] == list(range(0, 31, 3))
    bound = Bound(p, Hyperparameters(**settings, step_size=eta), printed=True)
    initial = expected_initial_error(p, 2)
    assert result["printed"][4] == bound.at(4, max(initial, result["error"][0]))
    assert result["predicted"][0] == pytest.approx(initial)
    # What is trained is close to what is predicted, at first and at the end.
    assert result["error"][3] == pytest.approx(result["predicted"][3], rel=0.5)
    late = [sum(result[key][-2:]) for key in ("error", "predicted")]
    assert late[1] / 3 < late[0] < late[1] * 3
    assert late[0] < 2e-3 * result["error"][0]
    assert result["contraction"] == bound.contraction
    assert result["proved_held"] == result["proved_runs"]
    assert json.loads(json.dumps(result)) == result


def test_an_interruption_keeps_what_is_finished(tmp_path: Path) -> None:
    made: list[int] = []

    def measure(problem: Any, d_1: int) -> list[float]:
        made.append(d_1)
        if made == [64, 16]:
            raise KeyboardInterrupt
        return [d_1, float("inf")]

    def measured(problem: Any, d_1: int) -> Any:
        request = partial(measure, problem, d_1)
        return RunStore(tmp_path, "data").measured("measure", settings_of(request), request)

    p = complete(5)
    with pytest.raises(KeyboardInterrupt):
        _ = [measured(p, d_1) for d_1 in (64, 16)]
    assert [measured(p, d_1) for d_1 in (64, 16)] == [[64, float("inf")], [16, float("inf")]]
    assert made == [64, 16, 16]
    measured(replace(p, x=p.x * 0.5), 64)  # a graph that has changed
    assert made == [64, 16, 16, 64]
    for path in tmp_path.iterdir():
        path.write_text(path.read_text()[:-5])  # cut short
    measured(p, 64)
    assert made == [64, 16, 16, 64, 64]


def by_law(
    remaining: float,
    zeta: float,
    m: float,
    leading: float = 1.0,
    transient: float = 0.0,
    widths: tuple[int, ...] = (100, 1000),
) -> dict[str, Any]:
    """Return measurements that follow laws with these exponents of d_1, ζ and (m−1)²/m².

    leading and transient are multiples of the measured values.
    """

    def result(value: float) -> dict[str, float]:
        return {"measured": value, "leading": value * leading, "transient": value * transient}

    claimed = {split: ((split - 1) ** 2 / split**2) ** m for split in (2, 4, 8)}
    results: dict[str, Any] = {
        f"kernel {split}": [3.0 * d_1**-0.5 for d_1 in KERNEL_WIDTHS] for split in KERNEL_SPLITS
    }
    for split, steps in REMAINING:
        line = [result(claimed[split] * steps**zeta * d_1**remaining) for d_1 in widths]
        results[f"remaining {split} {steps}"] = line
    at_1000 = 1000**remaining
    results["gentle ζ"] = [result(claimed[2] * steps**zeta * at_1000) for steps in GENTLE_STEPS]
    results["gentle m"] = [result(claimed[split] * at_1000) for split in SPLITS]
    results |= {
        f"{kind} m": [result(claimed[split]) for split in SPLITS] for kind in ("own", "added")
    }
    results |= {
        f"added {kind}": [result(0.1 * steps**zeta) for steps in STEPS]
        for kind in ("short", "long")
    }
    results |= {
        name: [[20, 120], [12, 120], [11, 120]] for name in ("rate", "rate fixed", "rate own")
    }
    results["rate d_1"] = [[9 - index, 120] for index, _ in enumerate(widths)]
    local = {"trained": 4, "met": 3, "factor": 0.9, "slowest": 0.8}
    return {**results, "local": [local], "lemma": [{"fall": 0.1, "allowed": 0.2}]}


def rows_by_name(widths: tuple[int, ...], results: dict[str, Any]) -> dict[str, list[str]]:
    """Return three cells for each name of what is measured.

    They are the measurement, its value to leading order, and what the analysis says.
    """
    rows = list(list_laws(widths, results))
    assert all(len(row) == 4 for row in rows)
    by_name = {row[0]: row[1:] for row in rows}
    assert len(by_name) == len(rows)
    return by_name


def test_the_rows_are_those_of_the_measurements() -> None:
    widths = (100, 1000)
    rows = rows_by_name(widths, by_law(-1.0, 1.0, 1.0))
    assert len(rows) == 17
    assert (
        rows["‖Ĝ − G^∞‖: exponent of d_1"][0]
        == "-0.500 for m = 1, -0.500 for m = 2, -0.500 for m = 4"
    )
    slopes = "-1.000 for m = 2, ζ = 1, -1.000 for m = 2, ζ = 4, -1.000 for m = 4, ζ = 1"
    assert rows["plateau: exponent of d_1"] == [slopes, slopes, "−1"]
    assert rows["plateau: ζ = 2, 4 (η/16)"] == ["2, 4"] * 3
    assert rows["plateau: m = 4, 8 (η/16)"] == ["2.25, 3.06"] * 3
    assert rows["what a round adds: exponent of ζ, 1 to 4 (η/400)"] == ["1.000", "1.000", "1"]
    assert rows["rounds to 5%, by m (η/4 for every m)"][0] == "m = 2: 20, m = 4: 12, m = 8: 11"
    wrong = by_law(-1.3, -2.0, -1.0, leading=2.0)
    wrong["gentle ζ"][0]["measured"] *= 0.7
    wrong["lemma"] = [{"fall": 0.3, "allowed": 0.2}]
    wrong |= {"rate fixed": [[42, 400], [87, 400], [None, 400]]}
    wrong["local"] = [{"trained": 4, "met": 3, "factor": 0.9, "slowest": 0.91}]
    rows = rows_by_name(widths, wrong)
    assert (
        rows["rounds to 5%, by m (η/4 for every m)"][0]
        == "m = 2: 42, m = 4: 87, m = 8: more than 400"
    )
    eta = next(cells for name, cells in rows.items() if name.startswith("plateau: η/16"))
    assert eta == ["0.7", "1", "1"]
    assert rows["what a round adds: exponent of ζ, 1 to 4 (η/400)"] == ["-2.000", "-2.000", "1"]
    lemma = next(cells for name, cells in rows.items() if "error_term_bound" in name)
    assert lemma == ["0.3", "–", "at most 0.2"]
    local = next(cells for name, cells in rows.items() if "local_converge" in name)
    assert (
        local[0]
        == "3 of 4 sub-GCNs meet its conditions; the slowest step contracts 0.90 times as much"
    )
    compared = next(cells for name, cells in rows.items() if "beside the leading order" in name)
    assert compared[0] == "0.35 to 0.50 times the leading order"


def test_what_cannot_be_measured_is_not() -> None:
    one = rows_by_name((100,), by_law(-1.0, 1.0, 1.0, widths=(100,)))
    assert "plateau: exponent of d_1" not in one  # no slope of one width
    widths = (100, 1000)
    early = rows_by_name(widths, by_law(-1.0, 1.0, 1.0, transient=0.2))
    unsettled = [cells for cells in early.values() if "not settled" in cells[0]]
    assert [cells[:2] for cells in unsettled] == [
        ["not settled: the initial error is not gone after 60 rounds", "–"]
    ] * 4
    none_met = by_law(-1.0, 1.0, 1.0) | {
        "local": [{"trained": 4, "met": 0, "factor": 0.9, "slowest": float("nan")}]
    }
    local = next(
        cells for name, cells in rows_by_name(widths, none_met).items() if "local_converge" in name
    )
    assert local[0] == "0 of 4 sub-GCNs meet its conditions"


def test_nothing_is_predicted_without_a_positive_kernel(
    tmp_path: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cora = (
        "--datasets", "cora", "--data-root", shared_data, "--nodes", 300,
        "--out", tmp_path / "out",
    )  # fmt: skip
    refused(
        capsys,
        "cora: λ_0 is 0, and nothing is predicted",
        "reproduce",
        "theory",
        *cora,
        leaves=tmp_path,
    )


def test_the_rows_on_bounds_count_settings_and_runs() -> None:
    p = complete(5)
    theory = Theory.at("theory", "small", widths=(100,), sub_gcns=(2,), local_steps=(1, 2), seeds=3)
    below = {"error": [1.0, 0.5], "printed": [2.0, 0.5], "proved_runs": 2, "proved_held": 1}
    above = below | {"error": [1.0, 0.6], "proved_runs": 3, "proved_held": 3}
    cells = {Cell("complete:5", 100, 2, 1): below, Cell("complete:5", 100, 2, 2): above}
    theorem, proved = theory.rows_on_bounds("complete:5", p, cells)
    assert theorem[2] == "1 of 2; assumptions that fail: none"
    assert proved[2] == "4 of 5, among 6 runs"
