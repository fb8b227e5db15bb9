"""A bundle in a browser: from the disk without a network, and from any static server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clawblox.web.bundle import write_bundle
from tests.engine.page.chromium import Chromium, Page
from tests.support.waiting import HANG_S, wait_until
from tests.web.pages.test_run_browser import browser, is_true
from tests.web.sites import write_log

__all__ = ["browser"]

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.thorough]

SERVER = """
import http.server, sys
from functools import partial
handler = partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of three runs, one with a log of several windows."""
    top = tmp_path_factory.mktemp("bundle")
    lines = b"".join(b"line %06d <script>window.evil=1</script>\n" % n for n in range(8000))
    write_log(top / "lab" / "r1", "w000", lines)
    write_log(top / "lab" / "r2", "w001", b"other\n", world="zebra")
    write_log(top / "lab" / "r3", "w002", b"third\n", world="adder")
    write_bundle(top / "lab", top / "out")
    return top / "out"


@pytest.fixture(params=["file", "http"])
def base(request: pytest.FixtureRequest, bundle: Path) -> Iterator[str]:
    """Return the address of the bundle, on the disk or on a static server."""
    with served_files(request.param, bundle) as base:
        yield base


@contextmanager
def served_files(scheme: str, directory: Path) -> Iterator[str]:
    """Yield the address of a directory on the disk, or on a static server that sends no headers."""
    if scheme == "file":
        yield f"file://{directory}/"
        return
    command = [sys.executable, "-c", SERVER, str(directory)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/"
        server.terminate()
        server.wait(HANG_S)


def open_page(browser: Chromium, base: str, name: str, *, width: int = 1280) -> Page:
    """Open a page of a bundle; from the disk, without a network."""
    page = browser.open("about:blank", width=width, height=900)
    if base.startswith("file:"):
        page.call(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )
    page.call("Page.navigate", url=base + name)
    arrived = "document.readyState === 'complete' && location.href !== 'about:blank'"
    wait_until(lambda: is_true(page, arrived), what="the page")
    return page


def check(page: Page, base: str) -> None:
    """Check that a page has no errors, no foreign scripts, and requests only for its files."""
    assert page.evaluate("window.evil") is None
    assert page.complaints() == []
    assert [url for url in page.requests() if not url.startswith((base, "about:"))] == []


def shown(page: Page) -> list[str]:
    rows = "document.querySelectorAll('#runs tbody tr')"
    found = page.evaluate(f"[...{rows}].filter(r => !r.hidden).map(r => r.children[0].textContent)")
    return list(found)


def test_rows_are_filtered_and_sorted_and_keys_work(browser: Chromium, base: str) -> None:
    with open_page(browser, base, "index.html") as page:
        assert len(shown(page)) == 3
        page.press("Slash", "/")
        page.evaluate(
            "document.activeElement.value = 'zebra';"
            "document.activeElement.dispatchEvent(new Event('input', {bubbles: true}))"
        )
        assert shown(page) == ["r2"]
        page.evaluate(
            "document.activeElement.value = '';"
            "document.activeElement.dispatchEvent(new Event('input', {bubbles: true}));"
            "document.activeElement.blur()"
        )
        page.evaluate("document.querySelectorAll('#runs thead th')[2].click()")
        assert shown(page)[0] == "r3"
        page.press("KeyJ", "j")
        assert page.evaluate("document.querySelectorAll('.chosen').length") == 1
        page.press("Slash", "?")
        page.wait_for("document.querySelector('dialog#keys').open")
        assert page.evaluate("getComputedStyle(document.body).maxWidth") == "1320px"
        check(page, base)


@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_of_a_bundle_fits_without_errors(
    browser: Chromium, base: str, bundle: Path, width: int
) -> None:
    kinds = {file.name.partition("-")[0]: file.name for file in bundle.glob("*.html")}
    for name in kinds.values():
        with open_page(browser, base, name, width=width) as page:
            fits = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert fits, name
            check(page, base)


def test_windows_of_a_log_are_linked(browser: Chromium, base: str, bundle: Path) -> None:
    last = next(file.name for file in bundle.glob("log-*") if "line 007999" in file.read_text())
    with open_page(browser, base, last) as page:
        page.press("BracketLeft", "[")
        page.wait_for("!document.body.textContent.includes('line 007999')")
        check(page, base)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("#w001-id/run", "r2"),
        ("#w001-id", "r2"),
        ("#w000-id/log/w000", "line 007999"),
        ("#w000-id/log/w000/o0", "line 000000"),
        ("#nobody/run", "no page for the address"),
    ],
)
def test_shared_address_opens_its_page_in_a_bundle(
    browser: Chromium, base: str, address: str, text: str
) -> None:
    with open_page(browser, base, f"index.html{address}") as page:
        condition = f"document.querySelector('main').textContent.includes({text!r})"
        wait_until(lambda: is_true(page, condition), what="the page that was sent")
        assert ("index.html" in page.evaluate("location.href")) == ("no page" in text)
        check(page, base)
