"""Reports: report.html of a run, a comparison or a reproduction, from its JSON record.

A report is one file without scripts, and it loads nothing. The modules that return its HTML import matplotlib, which is
slow: import them where a report is written.
"""

from pathlib import Path

from gistgnn.storage.whole_files import replacing

REPORT = "report.html"


def write_report(path: Path, html: str) -> None:
    """Write a page into a file, usually named `REPORT`, whole or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    with replacing(path) as temporary:
        temporary.write_text(html, encoding="utf-8", errors="backslashreplace")
