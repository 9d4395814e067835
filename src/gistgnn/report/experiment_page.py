"""The page of a reproduction, from its experiment.json."""

import itertools
from typing import Any

from gistgnn.report.charts import Chart, Series
from gistgnn.report.page import render


def experiment_page(record: dict[str, Any]) -> str:
    """Return the page of a reproduction, from the content of experiment.json: the paper's claims, then the numbers."""
    about = [f"scale: {record['scale']}" if record.get("scale") else "", record.get("machine") or ""]
    return render(
        "experiment.html",
        title=record["title"],
        subtitle=" · ".join(filter(None, about)),
        record=record,
        notes=[part for part in (record.get("note") or "").split("\n\n") if part.strip()],
        charts=[_chart(chart) for chart in record.get("charts") or []],
    )


def _chart(chart: dict[str, Any]) -> Chart:
    """Return a chart of the record; the n-th solid and the n-th dashed line have the same colour."""
    colours = itertools.count(), itertools.count()
    series = []
    for line in chart["series"]:
        dash = int(bool(line.get("dashed")))
        series.append(Series(line["label"], line["x"], line["y"], next(colours[dash]), dash))
    log_x, log_y = bool(chart.get("logx")), bool(chart.get("logy"))
    return Chart(chart["title"], chart["xlabel"], chart["ylabel"], series, log_x=log_x, log_y=log_y)
