"""The pages of runs and logs in a browser: updates, layout, links and no errors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clawblox.web.app import Server
from tests.engine.page.chromium import Chromium, Page
from tests.engine.page.conftest import browser
from tests.rundir.test_records import alive
from tests.support.waiting import HANG_S, wait_until
from tests.web.sites import only_run, write_log

__all__ = ["alive", "browser"]

pytestmark = pytest.mark.needs("chromium")

HOSTILE = (
    b"<script>window.evil=1</script><img src=http://example.com/x onerror=evil()>"
    b"\x1b[2J\xe2\x80\xae\n"
)

Serve = Callable[[Path], Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that serves a directory in a separate thread."""
    ends: list[Callable[[], None]] = []

    def start(root: Path) -> Server:
        import socket

        import uvicorn

        listener = socket.create_server(("127.0.0.1", 0))
        site = Server(root, listener)
        server = uvicorn.Server(uvicorn.Config(site.app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()

        def end() -> None:
            server.should_exit = True
            thread.join(HANG_S)
            listener.close()

        ends.append(end)
        return site

    yield start
    for end in ends:
        end()


def check(page: Page) -> None:
    """Check that a page fits, without refused requests, errors or requests to other hosts."""
    assert page.evaluate("document.documentElement.scrollWidth") <= page.evaluate("innerWidth")
    assert page.evaluate("window.evil") is None
    assert page.events("Log.entryAdded") == []
    assert page.events("Runtime.exceptionThrown") == []
    urls = [event["request"]["url"] for event in page.events("Network.requestWillBeSent")]
    assert all(url.startswith("http://127.0.0.1:") for url in urls), urls


def is_true(page: Page, expression: str) -> bool:
    """Return whether an expression is true, even while the page navigates."""
    with contextlib.suppress(RuntimeError):
        return bool(page.evaluate(expression))
    return False


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1280, 390])
def test_the_pages_of_a_run_fit_and_run_no_foreign_script(
    tmp_path: Path, browser: Chromium, serve: Serve, width: int
) -> None:
    write_log(tmp_path / "run", "w000", HOSTILE * 5 + b"x" * 5000 + b"\n", halt="y" * 3000)
    site = serve(tmp_path)
    run = only_run(site.site).ident
    log = f"run/{run}/log/w000"
    found = f"search?q=script&place={log}"
    for path in (f"run/{run}", log, found, "search?q=script", "open?address=x"):
        page = browser.open(f"{site.address}{path}", width=width, height=900)
        page.wait_for("document.readyState === 'complete' && document.querySelector('main')")
        if path.startswith("open"):
            assert page.evaluate("document.body.innerText.includes('has the id')")
        else:
            check(page)


@pytest.mark.thorough
def test_a_log_opens_at_its_end_and_follows(
    tmp_path: Path, browser: Chromium, serve: Serve, alive: dict[str, Any]
) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(300))
    log = write_log(tmp_path / "run", "w000", lines, state="ready", exit=None, **alive)
    site = serve(tmp_path)
    page = browser.open(
        f"{site.address}run/{only_run(site.site).ident}/log/w000", width=1280, height=600
    )
    page.wait_for("scrollY > 0 && innerHeight + scrollY >= document.body.scrollHeight - 40")
    with log.open("ab") as file:
        file.write(b"a new line\n")
    page.wait_for("document.querySelector('#log').innerText.includes('a new line')")
    assert page.evaluate("document.querySelectorAll('#log .line').length") == 301
    check(page)


@pytest.mark.thorough
def test_shared_address_in_the_fragment_of_the_first_page_opens_its_place(
    tmp_path: Path, browser: Chromium, serve: Serve
) -> None:
    write_log(tmp_path / "run", "w000", b"one\ntwo\nthree\n")
    site = serve(tmp_path)
    page = browser.open(f"{site.address}#w000-id/log/w000/o4", width=1280, height=600)
    found = "document.querySelector('.line.chosen')?.innerText.includes('two')"
    wait_until(lambda: is_true(page, found), what="the page of the log")
    assert page.evaluate("location.hash") == "#o4"
    page.wait_for("!document.querySelector('#share').hidden")  # the script of the page has run
    script = "navigator.clipboard.writeText = async (text) => { window.copied = text; }"
    page.evaluate(f"{script}; 0")
    page.evaluate("document.querySelector('#share').click()")
    assert page.wait_for("window.copied") == "#w000-id/log/w000/o4"
    check(page)
