"""The page of a reproduction, from its experiment.json."""

import json
from typing import Any

from gistgnn.report.blocks import Block, Chart, Charts, Code, Table, Text, Verdict, Verdicts
from gistgnn.report.charts import Series, line_chart
from gistgnn.report.page import Page, Section


def experiment_page(record: dict[str, Any]) -> Page:
    """Return the page of a reproduction: what holds of the paper's claims, then the numbers.

    Args:
        record: what experiment.json holds.
    """
    charts = [_chart(chart) for chart in record.get("charts") or []]
    sections = [
        Section("", _verdicts(record)),
        Section("Numbers", _numbers(record)),
        Section("Charts", [Charts(charts)] if charts else []),
        Section("How to run it again", [Code(record["command"])] if record.get("command") else []),
        Section("Configuration", [Code(json.dumps(record.get("config", {}), indent=2, ensure_ascii=False))]),
    ]
    about = [f"scale: {record['scale']}" if record.get("scale") else "", record.get("machine") or ""]
    subtitle = " · ".join(part for part in about if part)
    return Page(record["title"], subtitle, [section for section in sections if section.blocks])


def _verdicts(record: dict[str, Any]) -> list[Block]:
    verdicts = [
        Verdict(verdict["claim"], verdict["holds"], verdict.get("measured", ""))
        for verdict in record.get("verdicts") or []
    ]
    return (
        [Text("What the paper claims, by criteria of ours, and what these runs say."), Verdicts(verdicts)]
        if verdicts
        else []
    )


def _numbers(record: dict[str, Any]) -> list[Block]:
    rows, note = record.get("rows") or [], record.get("note") or ""
    table: list[Block] = [Table(record["columns"], rows, record["title"])] if rows else []
    return [*table, *(Text(part) for part in note.split("\n\n") if part.strip())]


def _chart(chart: dict[str, Any]) -> Chart:
    """A chart of the record; lines that come in pairs, one of them dashed, share a colour by their order."""
    colours: dict[bool, int] = {False: 0, True: 0}
    series = []
    for line in chart["series"]:
        dashed = bool(line.get("dashed"))
        series.append(Series(line["label"], line["x"], line["y"], colours[dashed], int(dashed)))
        colours[dashed] += 1
    log_x, log_y = bool(chart.get("logx")), bool(chart.get("logy"))
    return line_chart(chart["title"], series, chart["xlabel"], chart["ylabel"], log_x=log_x, log_y=log_y)
