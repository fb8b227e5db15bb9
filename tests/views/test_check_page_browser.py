"""The web page of a report in a browser: it fits the screen, without scripts and requests."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from clawblox.conformance import Report
from clawblox.views.check_page import render_page
from tests.conformance.reports import HOSTILE, failing_report, make_result
from tests.engine.page.chromium import Chromium
from tests.engine.page.conftest import browser  # noqa: F401 - a fixture

pytestmark = pytest.mark.thorough

FIELDS = ("requirement", "evidence", "request", "path", "expected", "got")


def hostile_report() -> Report:
    """Return a report with hostile text, long words and large values in every field."""
    texts = (HOSTILE, "x" * 3000, "<img src=http://127.0.0.1:1/x onerror=alert(1)>" * 20, HOSTILE)
    results = [
        make_result(f"restore.{status}", status, **dict.fromkeys(FIELDS, text * 3))
        for text in texts
        for status in ("failed", "could_not_run", "not_applicable", "passed")
    ]
    verdict = attrs.evolve(failing_report().verdict, sentence=HOSTILE + "y" * 500)
    return attrs.evolve(
        failing_report(), world=HOSTILE, target=HOSTILE, verdict=verdict, checks=tuple(results)
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("report", [failing_report(), hostile_report()], ids=["usual", "hostile"])
def test_check_page_fits_the_screen_without_scripts_or_requests(
    browser: Chromium,  # noqa: F811
    tmp_path: Path,
    report: Report,
    width: int,
    dark: bool,
) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_page(report))
    with browser.open(file.as_uri(), width=width, height=800, dark=dark) as page:
        page.wait_for("document.querySelector('details') !== null")
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.querySelectorAll('script, img, iframe').length") == 0
        colours = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert colours == ("rgb(14, 18, 23)" if dark else "rgb(255, 255, 255)")
        assert page.complaints() == []
        assert page.requests() == [file.as_uri()]
