"""What `gistgnn reproduce theory` measures, keeps and concludes."""

import json
from pathlib import Path
from typing import Any

import pytest

from gistgnn.errors import InputError
from gistgnn.experiments.measurements import Measurements
from gistgnn.experiments.runs import RunStore
from gistgnn.experiments.theory import Theory, train_cell
from gistgnn.experiments.theory_laws import KERNEL_SPLITS, KERNEL_WIDTHS, REMAINING, SPLITS, STEPS, Laws
from gistgnn.theory import Bound, complete, expected_initial_error, recommended_step
from tests.cli.in_process import refused


def test_a_measurement_is_made_once_and_an_interruption_keeps_what_is_finished(tmp_path: Path) -> None:
    made: list[str] = []

    def measure(name: str) -> list[float]:
        made.append(name)
        if name == "two" and made.count("two") == 1:
            raise KeyboardInterrupt
        return [1.5, float(len(made))]

    store = Measurements(tmp_path / "kept")
    wanted = {f"kind {name}": ({"name": name}, lambda name=name: measure(name)) for name in ("one", "two")}
    with pytest.raises(KeyboardInterrupt):
        store.all(wanted, "label")
    found = store.all(wanted, "label")
    assert found == {"kind one": [1.5, 1.0], "kind two": [1.5, 3.0]}
    assert made == ["one", "two", "two"]
    paths = sorted((tmp_path / "kept").iterdir())
    assert [path.name.split("-")[0] for path in paths] == ["kind", "kind"]
    for path in paths:
        path.write_text(path.read_text()[:-5])  # cut short
    assert store.all(wanted, "label") == {"kind one": [1.5, 4.0], "kind two": [1.5, 5.0]}
    assert store.all({"kind one": ({"name": "other"}, lambda: 7)}, "label") == {"kind one": 7}


def test_a_cell_is_what_the_library_computes() -> None:
    p, settings = complete(5), {"d_1": 4096, "sub_gcns": 2, "local_steps": 3}
    found = train_cell(p, **settings, epochs=31, seeds=3)
    eta = recommended_step(p, 2)
    assert found["steps"] == list(range(0, 31, 3))
    bound, initial = Bound.of(p, 2, 3, eta, 4096, printed=True), expected_initial_error(p, 2)
    assert found["printed"][4] == bound.at(4, max(initial, found["error"][0]))
    assert found["predicted"][0] == pytest.approx(initial)
    # what is trained is close to what is predicted, at first and at the end
    assert found["error"][3] == pytest.approx(found["predicted"][3], rel=0.5)
    assert found["error"][-1] == pytest.approx(found["predicted"][-1], rel=0.9)
    assert found["error"][-1] < 1e-3 * found["error"][0]
    assert found["contraction"] == bound.contraction
    assert found["lazy_held"] == found["lazy_runs"]
    assert json.loads(json.dumps(found)) == found


def by_law(remaining: float, zeta: float, m: float, leading: float = 1.0) -> dict[str, Any]:
    """Measurements that follow laws: exponents of d_1, ζ, and of (m−1)²/m²; and how far the leading order is off."""

    def found_to_be(value: float) -> dict[str, float]:
        return {"measured": value, "leading": value * leading}

    found: dict[str, Any] = {
        f"kernel {split} {d_1}": 3.0 * d_1**-0.5 for split in KERNEL_SPLITS for d_1 in KERNEL_WIDTHS
    }
    for split, steps in REMAINING:
        for d_1 in (100, 1000):
            found[f"remaining {split} {steps} {d_1}"] = found_to_be(split * steps * d_1**remaining)
    for kind in ("fixed", "growing"):
        found |= {f"added {kind} {split}": found_to_be(((split - 1) ** 2 / split**2) ** m) for split in SPLITS}
    for kind in ("short", "long"):
        found |= {f"added {kind} {steps}": found_to_be(0.1 * steps**zeta) for steps in STEPS}
    found["local"] = {"trained": 4, "met": 3, "factor": 0.9, "slowest": 0.8}
    found["lemma"] = {"fall": 0.1, "allowed": 0.2}
    return found


def test_the_verdicts_are_those_of_the_measurements() -> None:
    laws = Laws("complete:5", complete(5), (100, 1000), seeds=1)
    as_claimed = laws.verdicts(by_law(-1.0, 1.0, 1.0))
    assert [each.holds for each in as_claimed] == [True] * 11
    wrong = laws.verdicts(by_law(-1.3, 2.0, -1.0, leading=2.0) | {"lemma": {"fall": 0.3, "allowed": 0.2}})
    failed = [each.claim.removeprefix("complete:5: ") for each in wrong if not each.holds]
    assert [claim.split(" ")[0] for claim in failed] == ["Lemma", "the", "what", "what", "what", "ours:"]
    assert "exponent 2.000" in next(each.measured for each in wrong if "η/400" in each.claim)
    assert "0.50 to 0.50 of what remains" in wrong[-1].measured
    one = Laws("complete:5", complete(5), (100,), seeds=1).verdicts(by_law(-1.0, 1.0, 1.0))
    assert [each.holds for each in one].count(None) == 1  # no slope of one width
    none_met = by_law(-1.0, 1.0, 1.0) | {"local": {"trained": 4, "met": 0, "factor": 0.9, "slowest": float("nan")}}
    local = next(each for each in laws.verdicts(none_met) if "local_converge" in each.claim)
    assert local.holds is None
    assert "nan" not in local.measured


def test_every_measurement_is_wanted_once_and_used() -> None:
    laws = Laws("complete:5", complete(5), (100, 1000), seeds=1)
    assert set(laws.wanted()) == set(by_law(-1.0, 1.0, 1.0))
    assert len(laws.charts(by_law(-1.0, 1.0, 1.0))) == 4


def test_what_it_does_not_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ("--out", tmp_path / "out")
    refused(capsys, "complete:2 is not a graph", "reproduce", "theory", "--datasets", "complete:2", *out)
    refused(capsys, "'0' is not an integer >= 1", "reproduce", "theory", "--nodes", 0, *out)
    refused(capsys, "unrecognized arguments: --device", "reproduce", "theory", "--device", "cpu", *out)
    with pytest.raises(InputError, match="neither a data set nor a file"):
        Theory.at("small", datasets=("absent",)).run(RunStore(tmp_path, "data"))
