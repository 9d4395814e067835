"""What the pages hold, whatever the record holds."""

import json
import re
from html import unescape
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

from gistgnn.report.names import summary
from gistgnn.report.pages import _memory, comparison_page, experiment_page, run_page
from gistgnn.storage.record import record_of
from gistgnn.training.metric import scores_of_classes
from gistgnn.utils.formats import duration
from tests.report.records import (
    PROVENANCE,
    comparison_record,
    experiment_record,
    run_content,
    run_record,
)

_EVIL = '<script>alert("1")</script> $x_{'


def rendered() -> dict[str, str]:
    return {
        "run": run_page(run_record()),
        "comparison": comparison_page(comparison_record()),
        "experiment": experiment_page(experiment_record()),
    }


def plain(html: str) -> str:
    """The words of a page."""
    words = re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL)
    return " ".join(words.replace("\N{NO-BREAK SPACE}", " ").split())


def words_of_run(evaluations: int = 3, **changes: Any) -> str:
    return plain(run_page(run_record(evaluations, **changes)))


def replaced(value: Any) -> Any:
    """A record with every text in it replaced by markup, but those that name a choice."""
    if isinstance(value, dict):
        return {
            key: item if key in ("method", "metric", "score") else replaced(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [replaced(item) for item in value]
    return _EVIL if isinstance(value, str) else value


def test_text_of_the_record_is_never_markup() -> None:
    for page in (
        run_page(record_of({**replaced(run_content()), "diverged": _EVIL})),
        comparison_page(replaced(comparison_record())),
        experiment_page(replaced(experiment_record())),
    ):
        assert "&lt;script&gt;" in page
        assert "<script" not in page


def test_pages_are_the_same_again_and_load_nothing() -> None:
    pages = rendered()
    assert pages == rendered()
    for html in pages.values():
        # A chart names parts of itself: url(#...).
        assert not re.search(r"https?:|@import|url\((?!#)|href=\"(?!data:|#)|\ssrc=", html)


def test_a_run_tells_its_result_first_then_everything_else() -> None:
    words = words_of_run(20)
    assert (
        words.index("GIST, m = 4 97.93 %")
        < words.index("What was trained")
        < words.index("Curves")
        < words.index("Details")
        < words.index("d_1: 256 features in 4 blocks of 64")
    )
    assert "the best validation score, from round 18 of 20" in words
    assert "local steps with their batches 2.4 s · 80 %" in words
    assert (
        "Θ, the weights of the full model, has 84,746 parameters. 0.32 % were never trained. The "
        "share is an expected value" in words
    )
    assert "of ζ = 1 local step," in words, "ζ is explained where it stands"
    html = rendered()["run"]
    code = html[html.rindex("<code>") + 6 : html.rindex("</code>")]
    assert json.loads(unescape(code)) == run_record().config, "the configuration can be copied"


def test_scores_and_models_have_the_names_of_the_literature() -> None:
    record = run_record(3)
    assert "micro F1" not in plain(run_page(record)), "it is the accuracy"
    record.config["model"]["name"] = "graphsage"
    record.test["f1_micro"] = 0.9  # several labels per node
    words = plain(run_page(record))
    assert "digits: GraphSAGE 256-256" in words
    assert "test micro F1 test macro F1" in words
    record.metric.name = "f1_micro"
    words = plain(run_page(record))
    assert words.index("test micro F1") < words.index("test accuracy"), "what selects comes first"


def test_how_a_run_ended_and_where_its_result_comes_from() -> None:
    assert "interrupted after 3 rounds" in words_of_run(interrupted=True)
    assert "because its time was up" in words_of_run(stopped_early=True, stopped_by="max_seconds")
    unscored: dict[str, Any] = {
        "test": {},
        "validation": {},
        "last": {},
        "best_round": -1,
        "rounds": 0,
    }
    words = words_of_run(0, **unscored, diverged="the loss is nan in round 1")
    assert "No score" in words
    assert "Training diverged: the loss is nan in round 1." in words
    assert "Curves" not in words
    facts = (
        "0.1.0",
        "2026-11-23T01:02:03+00:00",
        "a CPU, 2 threads",
        "torch 2.13.0, numpy 2.0",
        "abc123, with",
    )
    for words in (words_of_run(), plain(comparison_page(comparison_record()))):
        for part in ("How to run it again", *facts):
            assert part in words
    assert "git commit" not in words_of_run(provenance={**PROVENANCE, "git": None})


def test_missing_numbers_are_gaps() -> None:
    record = run_record(5)
    for entries in (record.history, record.per_round):
        entries[2].update(loss=float("nan"))
        entries[3].update(loss=None)  # as nan is in result.json
    assert "nan" not in plain(run_page(record))


@pytest.mark.parametrize(("evaluations", "most"), [(1, 100_000), (1000, 250_000)])
def test_pages_stay_small(evaluations: int, most: int) -> None:
    assert len(run_page(run_record(evaluations)).encode()) < most


@pytest.mark.parametrize(
    ("share", "says", "random"),
    [
        (0.0, "All of them were trained.", False),
        (1e-7, "&lt; 0.01 % were never trained.", True),
        (0.25, "25.00 % were never trained.", True),
        (1.0, "100.00 % were never trained.", False),
    ],
)
def test_the_share_that_was_never_trained_is_said(share: float, says: str, random: bool) -> None:
    coverage = {"rounds": 7, "parameters": 5, "never_trained": share}
    record = run_record(3, coverage=coverage)
    words = plain(run_page(record))
    assert f"has 5 parameters. {says}" in words
    assert ("an expected value" in words) == random
    assert ("never trained" in summary(record)) == (share > 0)
    ensemble = {**record.config, "method": "ensemble"}
    words = words_of_run(coverage=coverage, config=ensemble)
    assert "an expected value" not in words, "its blocks stay"


def test_what_was_chosen_is_shown() -> None:
    config = run_record().config
    config |= {"sub_gcns": 1, "sampler": {"name": "auto"}, "standardise": None}
    record = run_record(
        config={
            **config,
            "training": {**config["training"], "lr": 0.005, "schedule": "cosine", "budget": 20.0},
        },
        batches={"clusters": 20, "clusters_per_batch": 10, "label_entropy": None},
        standardised=True,
        budget={
            "sub_gcns": 2,
            "reason": "a part of width 128 trains",
            "batch_divisor": 1,
            "step_seconds": {"2": 0.01},
            "scores": {"2": 0.9},
            "cycles": 1,
            "parts": 1,
        },
        local_steps=29,
        coverage={"rounds": 20, "parameters": 5, "never_trained": 0.65},
    )
    words = unescape(plain(run_page(record)))
    for part in (
        "of ζ = 29 local steps",
        "learning rate 0.005, cosine",
        "chosen a part of width 128 trains",
        "a budget, m = 2",
        "65.00 % lie between blocks and are zero: the model is narrow models side by side.",
        '"sampler": { "name": "clusters", "clusters": 20, "clusters_per_batch": 10 }',
        '"standardise": true',
    ):
        assert part in words
    assert "never trained" not in words
    text = summary(record)
    for part in (
        "a part of width 128",
        "of ζ = 29 local steps",
        "learning rate 0.005, cosine",
        "zero between blocks  65.00",
    ):
        assert part in text.replace("\N{NO-BREAK SPACE}", " ")


def test_pages_say_what_is_best_what_a_speed_up_costs_and_the_papers_numbers() -> None:
    words = plain(rendered()["experiment"])
    assert "2 80.86 ± 0.42 80.82 ± 0.38 80.10 ± 0.60 0.76" in words
    words = plain(rendered()["comparison"])
    assert "The best score has GIST, m = 4 ." in words
    assert "The fastest that loses no more than 1 point is ensemble, m = 4 ." in words
    assert words.count("91.86 ± 0.00") == 1
    assert "GIST, m = 8 89.94 ± 0.00 11.90 ± 0.07 (6.9×) 7.48 (1 of 3) –" in words


def test_times_have_the_unit_that_suits_them() -> None:
    seconds = {
        0: "0 s",
        2e-5: "20 µs",
        0.9996e-3: "1 ms",
        0.012: "12 ms",
        0.9994: "999 ms",
        0.9996: "1 s",
        3.007: "3.01 s",
        125: "2 min 5 s",
        3 * 3600 + 61: "3 h 1 min",
    }
    assert {value: duration(value) for value in seconds} == seconds


def test_a_score_stands_once() -> None:
    scores = {"accuracy": 0.9123, "f1_micro": 0.9123, "f1_macro": 0.8234}
    validation = {"accuracy": 0.9345, "f1_micro": 0.9345, "f1_macro": 0.8456}
    last = {"test": {"accuracy": 0.7123}, "validation": {"accuracy": 0.7345}}
    words = words_of_run(20, test=scores, validation=validation, last=last)
    for percents in ("91.23 %", "82.34 %", "93.45 %", "84.56 %", "71.23 %", "73.45 %"):
        assert words.count(percents) == 1
    words = words_of_run(20, test=scores, validation=validation, last=last, best_round=20)
    assert "last round" not in words


def test_hard_classes_come_first_with_what_they_were_mistaken_for() -> None:
    missed = [{}, {"2": 30, "0": 12, "-1": 8}, {"1": 2}, {}]
    f1 = [0.99, 0.5, 0.94, 0.0]
    nodes = [100, 100, 100, 0]  # the last class has no node, and is not hard
    classes = [
        {"nodes": count, "f1": score, "missed": errors}
        for count, score, errors in zip(nodes, f1, missed, strict=True)
    ]
    graph = {**run_content(3)["graph"], "classes": 4, "class_names": ["ant", "bee", "cow", "dog"]}
    words = words_of_run(classes=classes, graph=graph)
    assert "bee 100 50.00 % cow (30), ant (12), no class (8)" in words
    assert words.index("Hard classes") < words.index("bee 100") < words.index("Curves")
    other = words.index("Other classes")
    assert words.index("ant 100 99.00 %") > other
    assert words.index("cow 100 94.00 % bee (2)") > other
    assert words.index("dog 0") > other
    classes[1]["f1"] = 0.95
    words = words_of_run(classes=classes, graph=graph)
    assert "Hard classes" not in words
    assert "Other classes" not in words


def test_memory_adds_up_to_the_most_that_the_process_held() -> None:
    record = run_record(3)
    assert {"process", "graph", "theta", "sub_gcns"} <= record.memory.keys()
    assert 2**20 < record.memory["process"] < record.peak_memory_bytes
    bars = _memory(record)
    assert sum(bars.values()) == record.peak_memory_bytes
    assert "batches and activations" in bars
    old = record_of({**run_content(3), "memory": {"graph": 2**20, "theta": 2**10}})
    assert _memory(old) == {"graph": 2**20, "\N{GREEK CAPITAL LETTER THETA}": 2**10}


def test_older_files_have_a_report() -> None:
    content = run_content(3)
    content["classes"] = [{"nodes": 10, "f1": 0.9}, {"nodes": 10, "f1": 0.5}]
    content["memory"] = {"graph": 2**20}
    del content["per_round"]
    bare = {name: content[name] for name in content.keys() - {"classes", "provenance"}}
    for version in (1, 2):
        words = plain(run_page(record_of({**content, "version": version})))
        assert "Training loss" in words, "that of every evaluation"
        assert "class test nodes F1 1 10 50.00 %" in words
        assert "mistaken for" not in words
        words = plain(run_page(record_of({**bare, "version": version})))
        assert "Training loss" in words
        assert "Hard classes" not in words


@settings(max_examples=50, deadline=None)
@given(data=st.data(), classes=st.integers(2, 12))
def test_errors_of_classes_are_those_of_the_confusion_matrix(
    data: st.DataObject, classes: int
) -> None:
    truth = data.draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=80))
    guess = data.draw(
        st.lists(st.integers(-1, classes - 1), min_size=len(truth), max_size=len(truth))
    )
    scores = scores_of_classes(torch.tensor(truth), torch.tensor(guess), classes)
    labels = range(-1, classes)
    counts = confusion_matrix(truth, guess, labels=labels)[1:]  # no node is of class -1
    for number, (of_class, row) in enumerate(zip(scores, counts, strict=True)):
        row[number + 1] = 0  # what is right
        missed = of_class["missed"]
        expected = dict(zip(map(str, labels), row.tolist(), strict=True))
        assert missed.items() <= expected.items()
        assert [*missed.values()] == sorted(row[row > 0].tolist(), reverse=True)[:5]
