"""The reports in the docs say what the code would say today: `make reports` makes them anew."""

import re
import shlex
from html import unescape
from pathlib import Path

import pytest

from gistgnn.cli import main, reproduce
from tests.paper.published_rows import Finished

PAGES = sorted(Path(__file__).parents[2].glob("docs/reports/*.html"))


def words(text: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_report_has_the_words_of_todays_code(page: Path, tmp_path: Path) -> None:
    html = page.read_text()
    (command,) = {words(line) for line in re.findall(r"gistgnn reproduce [^<]*", html)}
    experiment = reproduce._experiment(main.make_parser().parse_args(shlex.split(command)[1:]))
    outcome = experiment.run(Finished(tmp_path, "data"))
    assert (experiment.name, experiment.title) == (page.stem, words(re.findall(r"<title>(.*?)</title>", html)[0]))
    claims = re.findall(r'<li><strong class="(?:yes|no|open)">.*?</strong>(.*?)(?:<span|</li>)', html, re.DOTALL)
    assert [words(claim) for claim in claims] == [words(verdict.claim) for verdict in outcome.verdicts]
    columns = [words(cell) for cell in re.findall(r"<th[^>]*>(.*?)</th>", html)]
    assert columns[: len(outcome.columns)] == [words(column) for column in outcome.columns]
    assert all(words(note) in words(html) for note in outcome.note.split("\n\n"))
