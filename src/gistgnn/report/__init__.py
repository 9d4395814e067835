"""One self-contained report.html for a run, a comparison or a reproduction; no JavaScript, nothing from the network.

`run_page`, `comparison_page` and `experiment_page` turn a JSON record into a page. They import matplotlib, which is
slow: import them when a report is written.
"""

from pathlib import Path

from gistgnn.io.whole_files import replacing
from gistgnn.report.page import Page

REPORT = "report.html"


def write_report(path: Path, page: Page) -> None:
    """Write a page into a file, whole or not at all.

    Args:
        path: the file, by habit named `REPORT`.
        page: what `run_page`, `comparison_page` or `experiment_page` returned.

    Raises:
        InputError: it cannot be written there.
    """
    with replacing(path) as temporary:
        temporary.write_text(page.render(), encoding="utf-8")


__all__ = ["REPORT", "Page", "write_report"]
