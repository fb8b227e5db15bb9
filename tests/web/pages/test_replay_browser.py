"""A replay in a browser: the engine's page in its frame, the slider, and a hostile renderer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engine.page.chromium import DEADLINE_S, Chromium, Page
from tests.support.template import Template
from tests.support.waiting import wait_until
from tests.web.replays import engine_world, only_run, record, tally_world
from tests.web.served import Served, served

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.thorough]

HOSTILE = Path(__file__).with_name("hostile_renderer.js")
WALK = [("MoveTo", {"position": [2 * number, 0, 0]}) for number in range(8)]


@contextmanager
def opened(
    browser: Chromium, url: str, *, width: int = 900, height: int = 800
) -> Iterator[tuple[Page, Page]]:
    """Open a page with a frame, and yield both. The frame runs in a separate process."""
    with browser.open("about:blank", width=width, height=height) as page:
        page.call(
            "Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=True, flatten=True
        )
        page.call("Page.navigate", url=url)
        attached = wait_until(
            lambda: [
                event
                for event in page.events("Target.attachedToTarget")
                if event["targetInfo"]["type"] == "iframe"
            ],
            DEADLINE_S,
            "the frame",
        )[0]
        frame = Page(browser, attached["targetInfo"]["targetId"], attached["sessionId"])
        for domain in ("Page", "Runtime", "Network", "Log"):
            frame.call(f"{domain}.enable")
        frame.call("Runtime.runIfWaitingForDebugger")

        def has_loaded() -> bool:
            page.evaluate("0")  # receives the events of all sessions
            return any(
                event["method"] in ("Page.loadEventFired", "Page.frameStoppedLoading")
                for event in browser.events
                if event.get("sessionId") == attached["sessionId"]
            )

        wait_until(has_loaded, DEADLINE_S, "the page in the frame")
        yield page, frame


@pytest.fixture
def race(template: Template, tmp_path: Path) -> Iterator[tuple[Served, str]]:
    """Serve a run of an engine world with the starter's renderer; return the path of its replay."""
    record(engine_world(tmp_path), tmp_path / "runs" / "run", *WALK)
    with served(template, tmp_path / "runs") as app:
        yield app, f"run/{only_run(tmp_path / 'runs')}/replay/1"


def test_the_slider_moves_frame_axis_table_and_trees(
    browser: Chromium, race: tuple[Served, str]
) -> None:
    app, path = race
    with opened(browser, f"{app.address}{path}") as (page, frame):
        frame.wait_for("window.__frames > 5")
        first = frame.wait_for("document.querySelector('#hud-tick').textContent")
        picture = page.screenshot()
        end = page.evaluate("document.querySelector('#slider').max")
        cursor = page.evaluate("document.querySelector('#axis .cursor').getAttribute('d')")
        page.evaluate(
            f"const s = document.querySelector('#slider'); s.value = {float(end)};"
            "s.dispatchEvent(new Event('input'))"
        )
        frame.wait_for(f"document.querySelector('#hud-tick').textContent !== {first!r}")
        page.wait_for(f"document.querySelector('#events').textContent.includes({end!r})")
        moved = page.evaluate("document.querySelector('#axis .cursor').getAttribute('d')")
        assert moved != cursor
        assert page.evaluate("location.hash") == f"#t={float(end):g}"
        assert "MoveTo" in page.evaluate("document.querySelector('#events').textContent")
        assert page.screenshot() != picture
        page.evaluate("document.querySelector('#events a[data-t]').click()")
        page.wait_for(f"location.hash !== '#t={float(end):g}'")
        assert frame.complaints() == []
        assert page.complaints() == []
        asked = {url.split("/")[2] for url in page.requests() + frame.requests() if "://" in url}
        assert asked == {f"127.0.0.1:{app.port}"}


def test_address_with_a_moment_opens_there_and_play_continues(
    browser: Chromium, race: tuple[Served, str]
) -> None:
    app, path = race
    with opened(browser, f"{app.address}{path}#t=0.1") as (page, frame):
        frame.wait_for("window.__frames > 5")
        page.wait_for("document.querySelector('#now').textContent.startsWith('0.1')")
        page.evaluate("document.querySelector('#speed').value = '0.25'")
        page.click("#play")
        page.wait_for("Number(document.querySelector('#slider').value) > 0.15")
        page.click("#play")
        page.wait_for("document.querySelector('#play').textContent === 'Play'")


def test_a_world_without_a_renderer_follows_the_slider_on_a_narrow_screen(
    template: Template, browser: Chromium, tmp_path: Path
) -> None:
    actions = [("Add", number) for number in range(1, 9)]
    record(tally_world(tmp_path, "x"), tmp_path / "runs" / "run", *actions)
    with served(template, tmp_path / "runs") as app:
        url = f"{app.address}run/{only_run(tmp_path / 'runs')}/replay/1#t=1"
        with browser.open(url, width=390, height=800) as page:
            page.wait_for("document.querySelector('#events').textContent.includes('1.000')")
            page.wait_for("document.querySelector('#seen details, #seen .tree mark')")
            page.wait_for("document.querySelector('#axis .cursor')")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert page.complaints() == []


class Foreign:
    """A host that must not be reached; records data that it receives by TCP or UDP."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._packets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._packets.bind(self._listener.getsockname())
        self._packets.setblocking(False)
        self.origin = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[bytes] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(2)
                try:
                    data = connection.recv(1000)
                except OSError:
                    data = b"(connected)"
                if data == b"end":
                    return
                self.asked.append(data.split(b"\r\n")[0] or b"(connected)")

    def packets(self) -> list[bytes]:
        """Return the first received UDP packet, if any."""
        try:
            return [self._packets.recv(1000)]
        except BlockingIOError:
            return []

    def close(self) -> None:
        self._packets.close()
        with socket.create_connection(self._listener.getsockname()) as last:
            last.sendall(b"end")
        self._thread.join()
        self._listener.close()


@pytest.fixture
def foreign() -> Iterator[Foreign]:
    host = Foreign()
    yield host
    host.close()


def test_every_attempt_of_a_hostile_renderer_fails(
    template: Template, browser: Chromium, tmp_path: Path, foreign: Foreign
) -> None:
    world = engine_world(tmp_path, "placeholder")
    record(world, tmp_path / "runs" / "run", ("Jump", {}))
    with served(template, tmp_path / "runs") as app:
        text = HOSTILE.read_text().replace("FOREIGN", foreign.origin)
        own = f"http://127.0.0.1:{app.port}"
        (world / "renderer" / "index.js").write_text(text.replace("APP", own))
        url = f"{app.address}run/{only_run(tmp_path / 'runs')}/replay/1"
        before = targets(browser)
        with opened(browser, url) as (page, frame):
            results = wait_until(lambda: frame.evaluate("window.results"), DEADLINE_S)
            assert len(results) > 45
            for name, result in results.items():
                assert result.startswith("failed: "), (name, result)
            assert page.evaluate("location.href").startswith(url), "the page is where it was"
            assert page.evaluate("document.querySelector('h1').textContent").startswith("Replay")
            assert frame.evaluate("location.pathname").startswith("/x/")
            assert app.key not in frame.evaluate("document.referrer + JSON.stringify(seen)")
            page.evaluate("seekTest = document.querySelector('#play').click()")
            page.wait_for("document.querySelector('#play').textContent === 'Pause'")
            assert not page.events("Page.downloadWillBegin")
            assert not frame.events("Page.downloadWillBegin")
            assert targets(browser) <= before + 2, "no window was opened"
        assert (foreign.asked, foreign.packets()) == ([], [])


def targets(browser: Chromium) -> int:
    infos = browser.call("Target.getTargets")["targetInfos"]
    return sum(info["type"] in ("page", "iframe") for info in infos)


@pytest.mark.parametrize("goal", ["foreign", "app"])
def test_a_renderer_cannot_leave_its_frame(
    template: Template, browser: Chromium, tmp_path: Path, foreign: Foreign, goal: str
) -> None:
    world = engine_world(tmp_path, "placeholder")
    record(world, tmp_path / "runs" / "run", ("Jump", {}))
    with served(template, tmp_path / "runs") as app:
        to = f"{foreign.origin}/gone" if goal == "foreign" else app.address
        (world / "renderer" / "index.js").write_text(f"location.href = '{to}';")
        url = f"{app.address}run/{only_run(tmp_path / 'runs')}/replay/1"
        with browser.open(url) as page:
            refused = "violates the following Content Security Policy"
            wait_until(lambda: refused in str(page.complaints()), DEADLINE_S, "the refusal")
            assert page.evaluate("location.href").startswith(url)
        assert foreign.asked == []
