"""What the pages hold, whatever the record holds."""

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from gistgnn.errors import InputError
from gistgnn.report import charts, write_report
from gistgnn.report.bars import coverage_summary, median
from gistgnn.report.comparison_page import comparison_page
from gistgnn.report.experiment_page import experiment_page
from gistgnn.report.run_page import plot_curves, run_page
from gistgnn.utils.formats import duration, size
from tests.report.records import NEW_KEYS, PROVENANCE, RANKS, comparison_record, experiment_record, run_record

_EVIL = '<script>alert("1")</script> $x_{'


def rendered() -> dict[str, str]:
    return {
        "run": run_page(run_record()),
        "comparison": comparison_page(comparison_record()),
        "experiment": experiment_page(experiment_record()),
    }


def plain(html: str) -> str:
    """The words of a page."""
    words = re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL).replace("\N{NO-BREAK SPACE}", " ")
    return " ".join(words.split())


def replaced(value: Any) -> Any:
    """A record with every text in it replaced by markup."""
    if isinstance(value, dict):
        return {key: item if key in ("method", "score") else replaced(item) for key, item in value.items()}
    if isinstance(value, list):
        return [replaced(item) for item in value]
    return _EVIL if isinstance(value, str) else value


def test_text_of_the_record_is_never_markup() -> None:
    for page in (
        run_page({**replaced(run_record()), "diverged": _EVIL}),
        comparison_page(replaced(comparison_record())),
        experiment_page(replaced(experiment_record())),
    ):
        assert "&lt;script&gt;" in page
        assert "<script" not in page


def test_pages_ask_the_network_for_nothing() -> None:
    for html in rendered().values():
        assert "http:" not in html
        assert "https:" not in html
        assert not re.search(r"@import|url\((?!#)|src=", html)


def test_ids_are_unique_and_references_lead_to_them() -> None:
    for html in rendered().values():
        ids = re.findall(r'\bid="([^"]+)"', html)
        assert len(ids) == len(set(ids))
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', html)) == set(ids)


def test_the_same_record_gives_the_same_page() -> None:
    assert rendered() == rendered()


def test_a_run_tells_its_result_first_then_everything_else() -> None:
    words = plain(rendered()["run"])
    assert words.index("97.93 % test accuracy") < words.index("Curves") < words.index("Partition and coverage")
    assert "best validation score (98.33 %), from round 18 of 20" in words
    assert "d_1: 256 features in 4 blocks of 64" in words
    assert "local steps with their batches 2.4 s · 80 %" in words
    assert "activations, batches, torch itself" in words


@pytest.mark.parametrize("left_out", [*NEW_KEYS, None])
def test_an_older_record_lacks_sections_and_no_more(left_out: str | None) -> None:
    missing = NEW_KEYS if left_out is None else (left_out,)
    record = {key: value for key, value in run_record(3).items() if key not in missing}
    words = plain(run_page(record))
    assert "97.93 %" in words
    for key, word in {"coverage": "were never trained", "seconds": "Where 3"}.items():
        assert (word in words) == (key not in missing)


def test_only_ranks_have_a_curve_of_bytes() -> None:
    assert "by bytes" not in run_page(run_record(3))
    words = plain(run_page(run_record(3, communication=RANKS)))
    assert "Accuracy by bytes" in words
    assert "as if there were 4 workers. Each sends 153 KiB in a round." in words
    traffic = {"workers": 1, "bytes_per_round": 0.0}
    assert "by bytes" not in run_page(run_record(3, communication=RANKS, traffic=traffic))


def test_micro_f1_stands_beside_accuracy_only_where_they_differ() -> None:
    record = run_record(3)
    assert "micro F1" not in plain(run_page(record))
    record["test"] = {**record["test"], "f1_micro": 0.9}  # several labels per node
    assert "accuracy micro F1 macro F1" in plain(run_page(record))


def test_an_interrupted_run_says_so() -> None:
    assert "interrupted after 3 rounds" in plain(run_page(run_record(3, interrupted=True)))


def test_a_page_says_where_its_result_comes_from() -> None:
    record = run_record(3, provenance=PROVENANCE)
    for words in (plain(run_page(record)), plain(comparison_page({**comparison_record(), "provenance": PROVENANCE}))):
        assert "How to run it again" in words
        for part in (
            "0.1.0",
            "2026-11-23T01:02:03+00:00",
            "a CPU, 2 threads",
            "torch 2.13.0, numpy 2.0",
            "abc123, with",
        ):
            assert part in words
    assert "gistgnn train --dataset digits" in plain(run_page(record))
    assert "git commit" not in plain(run_page(run_record(3, provenance={**PROVENANCE, "git": None})))


def test_models_are_written_as_in_the_literature() -> None:
    record = run_record(3)
    record["config"] = {**record["config"], "model": {**record["config"]["model"], "name": "graphsage"}}
    assert "digits: GraphSAGE 256-256" in plain(run_page(record))


def test_pictures_and_pages_have_the_same_colours() -> None:
    css = (Path(charts.__file__).parent / "templates" / "style.css").read_text()
    light = css[: css.index("@media")]
    assert re.findall(r"--series-\d: (#\w+);", light) == list(charts.PALETTE)


def test_inference_of_one_model_is_one_time() -> None:
    record = comparison_record()
    for row, seconds in zip(record["rows"], (0.5, 0.7, 0.6, 0.9, 0.5, 0.8), strict=False):
        row["inference_seconds"] = [seconds]
    same = {**record, "rows": [row for row in record["rows"] if row["method"] != "ensemble"]}
    assert "Inference, one pass over the graph" not in plain(comparison_page(same))
    ensemble = {**record["rows"][1], "method": "ensemble", "inference_seconds": [2.0]}
    assert "Inference, one pass over the graph" in plain(comparison_page({**same, "rows": [*same["rows"], ensemble]}))


def test_one_seed_has_no_deviation() -> None:
    record = comparison_record()
    keys = ("score", "seconds", "inference_seconds", "peak_memory_bytes", "seconds_to")
    record["rows"] = [{**row, **{key: row[key][:1] for key in keys}} for row in record["rows"]]
    assert "±" not in plain(comparison_page(record))


def test_a_run_that_diverged_at_once_has_no_score_and_says_why() -> None:
    record = run_record(
        0, test=None, validation=None, last={}, best_round=-1, rounds=0, diverged="the loss is nan in round 1"
    )
    words = plain(run_page(record))
    assert "No score" in words
    assert "Training diverged: the loss is nan in round 1." in words
    assert "there are no curves" in words


def test_missing_numbers_are_gaps() -> None:
    record = run_record(5)
    record["history"][2].update(loss=float("nan"), test=None)
    record["history"][3]["loss"] = float("inf")
    assert "nan" not in plain(run_page(record))


@pytest.mark.parametrize(("evaluations", "most"), [(1, 100_000), (400, 200_000), (3000, 300_000)])
def test_pages_stay_small(evaluations: int, most: int) -> None:
    counts = {str(k): 1 / (evaluations + 1) for k in range(evaluations + 1)}
    coverage = {"rounds": evaluations, "parameters": 10**9, "counts": counts}
    html = run_page(run_record(evaluations, coverage=coverage))
    assert len(html.encode()) < most
    assert html.count("<use") < 2000, "many points have no markers"


def test_multi_label_graphs_are_judged_by_micro_f1() -> None:
    record = run_record(2)
    record["graph"]["multi_label"] = True
    assert "test micro F1 of the model" in plain(run_page(record))


def test_the_median_is_of_parameters_and_bins_lose_nothing() -> None:
    assert median({0: 0.4, 1: 0.2, 7: 0.4}) == 1
    shares = {str(k): 1 / 101 for k in range(101)}
    bars = coverage_summary({"rounds": 100, "counts": shares})["bars"]
    assert len(bars) <= 20
    assert sum(float(bar.value.removesuffix("\N{NO-BREAK SPACE}%")) for bar in bars) == pytest.approx(100, abs=0.2)
    words = plain(run_page(run_record(100, coverage={"rounds": 100, "parameters": 10, "counts": shares})))
    assert "0.99 % were never trained. The median parameter was trained in 50 of 100 rounds" in words


def test_bars_of_the_coverage_stand_for_what_can_be_seen() -> None:
    """All rounds have a bar of their own, and long tails none, so that the others tell the rest apart."""
    counts = {"0": 1e-7, "3": 1e-6, "30": 0.2, "31": 0.3, "32": 0.2, "70": 1e-9, "1000": 0.3}
    bars = coverage_summary({"rounds": 1000, "counts": counts})["bars"]
    assert [bar.label for bar in bars] == ["never", "30 rounds", "31 rounds", "32 rounds", "all 1,000 rounds"]
    assert bars[0].value == "< 0.01\N{NO-BREAK SPACE}%"
    assert [bar.length for bar in bars[1:]] == pytest.approx([2 / 3, 1, 2 / 3, 1])


@pytest.mark.parametrize("rounds", [0, 1])
def test_coverage_of_few_rounds(rounds: int) -> None:
    coverage = {"rounds": rounds, "parameters": 5, "counts": {str(rounds): 1.0}}
    words = plain(run_page(run_record(1, coverage=coverage)))
    assert ("never 100.00 %" if rounds == 0 else "1 round 100.00 %") in words


def test_a_comparison_says_what_is_best_and_what_a_speed_up_costs() -> None:
    words = plain(rendered()["comparison"])
    assert "GIST, m = 4, the best score here, 3.4× as fast as one device (91.40 ± 0.30 %)" in words
    assert "GIST, m = 8 89.94 ± 0.30 11.90 ± 0.24 (6.9×) – –" in words
    assert "(2 of 3)" in words


def test_a_comparison_without_curves_or_baseline_or_scores() -> None:
    record = {**comparison_record(), "curves": [], "baseline": None}
    assert "Score by" not in comparison_page(record)
    record["rows"] = [{**row, "score": [None], "speedup": None} for row in record["rows"]]
    assert "No score" in comparison_page(record)
    assert "No score" in comparison_page({**record, "rows": []})


def test_a_reproduction_tells_its_verdicts_in_words() -> None:
    words = plain(rendered()["experiment"])
    for verdict in ("holds GIST matches", "does not hold GIST is ahead", "not shown The gap grows"):
        assert verdict in words


def test_the_configuration_can_be_copied() -> None:
    html = rendered()["run"]
    code = html[html.rindex("<code>") + 6 : html.rindex("</code>")]
    assert json.loads(unescape(code)) == run_record()["config"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (2e-5, "20 µs"),
        (0.012, "12 ms"),
        (3.007, "3.01 s"),
        (125, "2 min 5 s"),
        (3 * 3600 + 61, "3 h 1 min"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 bytes"), (1023, "1,023 bytes"), (1536, "1.5 KiB"), (487 * 2**20, "487 MiB")]
)
def test_sizes(count: float, words: str) -> None:
    assert size(count) == words


@pytest.mark.parametrize("evaluations", [0, 1, 30])
@pytest.mark.parametrize("method", ["gist", "ensemble"])
def test_curves_are_drawn_whatever_was_evaluated(tmp_path: Path, evaluations: int, method: str) -> None:
    record = run_record(evaluations, best_round=-1 if evaluations == 0 else 1)
    plot_curves({**record, "config": {**record["config"], "method": method}}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    page = experiment_page(experiment_record())
    write_report(tmp_path / "new" / "report.html", page)
    assert (tmp_path / "new" / "report.html").read_text(encoding="utf-8") == page
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError):
        write_report(tmp_path / "file" / "report.html", page)


def test_matplotlib_is_imported_only_when_a_page_is_made() -> None:
    code = "import sys, gistgnn.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
