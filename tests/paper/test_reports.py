"""The reports in the docs say what the code would say today: `make reports` makes them anew."""

import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from gistgnn.cli import main, reproduce
from gistgnn.graphs import Graph, load
from gistgnn.paper import appendix_b
from tests.paper.finished_runs import Finished

PAGES = sorted(Path(__file__).parents[2].glob("docs/paper/reports/*.html"))
NUMBER = {"measured": 1.0, "leading": 1.0, "transient": 0.0}
CELL: dict[str, Any] = {
    **{name: [1.0, 0.1] for name in ("steps", "error", "printed", "predicted")},
    "corrected_end": 1.0,
    "proved_end": None,
    "proved_runs": 0,
    "proved_held": 0,
    "drift": 1.0,
    "contraction": 0.5,
}
MEASURED: dict[str, Any] = {
    "remaining": NUMBER,
    "added": NUMBER,
    "rounds": [1, 2],
    "measure_kernel_distance": 1.0,
    "train_cell": CELL,
    "measure_contraction": {"met": 1, "trained": 1, "slowest": 0.5, "factor": 0.5},
    "limit_error_term": {"fall": 1.0, "allowed": 1.0},
}


class Measured(Finished):
    """A store in which every measurement of the theory is finished, too."""

    def graph(self, dataset: str) -> Graph:
        return load("digits")

    def measured(self, name: str, settings: Any, measure: Any) -> Any:
        return MEASURED[name]


def words(text: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


@pytest.mark.usefixtures("large_machine")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_report_has_the_words_of_todays_code(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appendix_b, "inference_alone", lambda runs, graph: [1.0] * len(runs))
    html = page.read_text()
    (command,) = {words(line) for line in re.findall(r"gistgnn reproduce [^<]*", html)}
    experiment = reproduce._experiment(main.make_parser().parse_args(shlex.split(command)[1:]))
    tables = experiment.run(Measured(tmp_path, "data"))
    assert experiment.name == page.stem
    assert experiment.title == words(re.findall(r"<title>(.*?)</title>", html)[0])
    shown = re.findall(r"<table>(.*?)</table>", html.partition("<h2>Charts</h2>")[0], re.DOTALL)
    assert len(shown) == len(tables)
    for text, table in zip(shown, tables, strict=True):
        columns = re.findall(r'<th scope="col">(.*?)</th>', text)
        assert [words(column) for column in columns] == [words(column) for column in table.columns]
        assert text.count('<th scope="row">') == len(table.rows)
        assert all(words(note) in words(html) for note in table.note.split("\n\n"))
    if experiment.name == "theory":  # what is measured has the same names
        for row in tables[-1].rows:
            assert words(row[1]) in words(html)
