"""The pages as a reader sees them, in headless Chromium."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, sync_playwright

from gistgnn.report import write_report
from gistgnn.report.pages import comparison_page, experiment_page, run_page
from tests.report.records import comparison_record, experiment_record, run_record

_PAGES = {
    "run": (lambda: run_page(run_record()), 2),
    "comparison": (lambda: comparison_page(comparison_record()), 2),
    "experiment": (lambda: experiment_page(experiment_record()), 2),
}
_LOOK = (Path(__file__).parent / "look.js").read_text()

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium, without a window."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        missing = (
            f"none of {', '.join(names)} is on PATH: install one, for example with apt-get "
            "install chromium"
        )
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def look(
    browser: Browser, address: str, width: int, height: int, scheme: Literal["light", "dark"]
) -> dict[str, Any]:
    """Open a page with all that is shown on demand; return what `look.js` sees.

    Its `events` are the requests and the complaints of the page.
    """
    events: list[str] = []
    with browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme
    ) as context:
        page = context.new_page()
        page.on("console", lambda message: events.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: events.append(f"error: {error}"))
        page.on("request", lambda request: events.append(f"request: {request.url}"))
        page.goto(address)
        seen = page.evaluate(_LOOK)
        events.remove(f"request: {address}")
        return {**seen, "events": events}


@pytest.mark.parametrize("name", _PAGES)
def test_a_page_reads_well_in_light_and_dark(browser: Browser, tmp_path: Path, name: str) -> None:
    page, charts = _PAGES[name]
    write_report(tmp_path / "report.html", page())
    for width, height in ((390, 844), (1280, 900)):
        seen = {
            scheme: look(browser, (tmp_path / "report.html").as_uri(), width, height, scheme)
            for scheme in SCHEMES
        }
        for view in seen.values():
            assert view["events"] == []
            assert view["scroll_width"] <= width
            assert len(view["charts"]) == charts
            for chart in view["charts"]:
                assert chart["width"] > 300
                assert chart["height"] > 150
                assert chart["drawn"]
            assert view["texts"] > 30
            assert not view["faint"], json.dumps(view["faint"][:5])
        assert seen["light"]["background"] != seen["dark"]["background"]
