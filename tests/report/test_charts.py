"""Charts: their colours in light and dark, their axes, and when there is none."""

import re
from pathlib import Path

import numpy as np
import pytest

import gistgnn.report
from gistgnn.report.charts import PALETTE, Chart, Series, draw_charts
from gistgnn.report.pages import comparison_page, curves, experiment_page, run_page
from tests.report.records import comparison_record, experiment_record, run_record

_CSS = (Path(gistgnn.report.__file__).parent / "templates/style.css").read_text()
_VARIABLE = re.compile(r"(--[\w-]+): (#[0-9a-f]{6});")
_LIGHT, _DARK = (dict(_VARIABLE.findall(half)) for half in _CSS.split("@media (prefers", 1))
THEMES = {"light": _LIGHT, "dark": _DARK}


def luminance(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def drawings() -> list[str]:
    pages = (
        run_page(run_record()),
        comparison_page(comparison_record()),
        experiment_page(experiment_record()),
    )
    drawn = [svg for page in pages for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    assert len(drawn) == 6
    return drawn


@pytest.mark.parametrize("theme", THEMES)
def test_charts_have_the_colours_of_the_page(theme: str) -> None:
    colours = THEMES[theme]
    for svg in drawings():
        assert re.findall(r"#[0-9a-f]{3,8}\b(?!\")|rgb|white|black", without_ids(svg)) == []
        used = set(re.findall(r"var\((--[\w-]+)\)", svg))
        assert "--muted" in used
        assert used <= colours.keys()
    background = colours["--background"]
    assert contrast(colours["--muted"], background) >= 4.5, "text"
    for number in range(len(PALETTE)):
        assert contrast(colours[f"--series-{number}"], background) >= 3, "lines"


def without_ids(svg: str) -> str:
    """A drawing without the names by which its parts refer to each other."""
    return re.sub(r"url\(#\w+\)|href=\"#\w+\"", "", svg)


def test_a_light_page_has_the_colours_of_a_notebook() -> None:
    assert [_LIGHT[f"--series-{number}"] for number in range(len(PALETTE))] == list(PALETTE)
    assert _LIGHT["--background"] == "#ffffff"
    assert luminance(_DARK["--background"]) < 0.02


def test_no_two_drawings_of_a_page_share_a_name() -> None:
    for page in (run_page(run_record()), comparison_page(comparison_record())):
        ids = re.findall(r' id="([^"]*)"', page)
        assert ids
        assert len(ids) == len(set(ids))


def test_time_is_a_second_axis_where_the_curve_has_it() -> None:
    figure = curves(run_record(20))
    assert len(figure.axes) == 2
    for axes in figure.axes:
        assert axes.get_xlabel() == "epoch"
        [upper] = axes.child_axes
        assert upper.get_xlabel() == "seconds of training"
        ticks = upper.get_xticks()
        texts = [text.get_text() for text in upper.get_xticklabels()]
        assert len(ticks) > 2
        # An epoch takes 0.015 s in these records.
        assert [float(text) for text in texts] == pytest.approx(0.015 * ticks)


def test_no_second_axis_that_does_not_rise() -> None:
    line = Series("line", [1, 2, 3], [1, 2, 3])
    for top in ([0.0, 0.0, 0.0], [1.0, 3.0, 2.0], [None, 1.0, None]):
        figure = draw_charts([Chart("chart", "x", "y", [line], top_label="s", top_x=top)], "title")
        assert not figure.axes[0].child_axes


def test_a_dot_is_no_chart() -> None:
    assert "<svg" not in run_page(run_record(1))
    assert "Curves" not in run_page(run_record(1))
    assert run_page(run_record(2)).count("<svg") == 2
    assert len(curves(run_record(1)).axes) == 2, "a notebook gets what it asks for"
    content = comparison_record()
    for curve in content["curves"]:
        for name in ("score", "epoch", "seconds"):
            curve[name] = curve[name][:1]
    assert "<svg" not in comparison_page(content)
    record = run_record(3)
    for entries in (record.history, record.per_round):
        for entry in entries[1:]:
            entry.update(loss=None)  # as nan is in result.json
    assert "Training loss" not in run_page(record)


def test_the_loss_is_that_of_every_round() -> None:
    record = run_record(400)
    record.history = record.history[9::10]
    figure = curves(record)
    assert [len(axes.lines[0].get_xdata()) for axes in figure.axes] == [400, 40]
    assert figure.axes[0].lines[0].get_ydata().tolist() == [
        entry["loss"] for entry in record.per_round
    ]
