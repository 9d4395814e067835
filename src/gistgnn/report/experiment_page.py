"""The page of a reproduction, from its experiment.json."""

import itertools
from typing import Any

from gistgnn.report import render
from gistgnn.report.charts import DASHES, Chart, Series


def experiment_page(record: dict[str, Any]) -> str:
    """Return the page of a reproduction, from the content of experiment.json: the paper's claims, then the numbers."""
    return render(
        "experiment.html",
        title=record["title"],
        subtitle=f"scale: {record['scale']} · {record['machine']}",
        record=record,
        notes=record["note"].split("\n\n"),
        charts=[_chart(chart) for chart in record["charts"]],
    )


def _chart(chart: dict[str, Any]) -> Chart:
    """Return a chart of the record; the n-th solid and the n-th dashed line have the same colour."""
    colours = itertools.count(), itertools.count()
    lines = [
        Series(line["label"], line["x"], line["y"], next(colours[line["dashed"]]), DASHES[line["dashed"]])
        for line in chart["series"]
    ]
    return Chart(chart["title"], chart["xlabel"], chart["ylabel"], lines, chart["logx"], chart["logy"])
