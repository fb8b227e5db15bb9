"""The 3D view of a recording in a bundle: from the disk, and from a server without headers."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawblox.web.bundle import write_bundle
from tests.engine.page.chromium import Chromium, Page
from tests.support.waiting import wait_until
from tests.web.pages.test_replay_browser import HOSTILE, WALK, Foreign, foreign, opened, targets
from tests.web.pages.test_run_browser import browser, is_true
from tests.web.replays import engine_world, record
from tests.web.test_bundle_browser import open_page, served_files

__all__ = ["browser", "foreign"]

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.thorough]

DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


@pytest.fixture(params=["file", "http"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Return a function that records a world, bundles it and returns the address of its replay."""
    out = tmp_path / "out"
    with served_files(request.param, out) as base:

        def make(renderer: str = "", files: dict[str, bytes] | None = None) -> str:
            world = engine_world(tmp_path, renderer)
            for name, data in (files or {}).items():
                (world / name).parent.mkdir(parents=True, exist_ok=True)
                (world / name).write_bytes(data)
            record(world, tmp_path / "runs" / "run", *WALK)
            write_bundle(tmp_path / "runs", out)
            return base + min(file.name for file in out.glob("replay-*"))

        yield make


def seek(page: Page, time: str) -> None:
    page.evaluate(
        f"{{ const s = document.querySelector('#slider'); s.value = {float(time)};"
        "s.dispatchEvent(new Event('input')); }"
    )


def check(url: str, *pages: Page) -> None:
    """Check that pages have no errors and request only files of the bundle."""
    base = url.rpartition("/")[0]
    for page in pages:
        assert page.complaints() == []
        asked = [one for one in page.requests() if not one.startswith((base, "about:", "data:"))]
        assert [one for one in asked if not one.startswith("blob:null/")] == []


def test_the_starter_draws_and_the_slider_and_play_move_it(
    browser: Chromium, make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawblox.web.frame_file._WINDOW_S", 0.1)
    url = make()
    with opened(browser, url) as (page, frame):
        frame.wait_for("window.__frames > 5")
        first = page.wait_for("document.querySelector('iframe').dataset.shown")
        shown = "document.querySelector('#hud-tick').textContent"
        tick = frame.wait_for(f"{shown} !== '\u2013' && {shown}")
        picture = page.screenshot()
        end = page.evaluate("document.querySelector('#slider').max")
        seek(page, end)
        page.wait_for(f"document.querySelector('iframe').dataset.shown !== {first!r}")
        frame.wait_for(f"{shown} !== {tick!r}")
        assert frame.evaluate("document.querySelector('#hud-players').textContent") == "1"
        page.wait_for(f"location.hash === '#t={float(end):g}'")
        assert page.evaluate("document.querySelector('#now').textContent").endswith(" s")
        assert page.screenshot() != picture
        seek(page, "0.0")
        page.wait_for(f"document.querySelector('iframe').dataset.shown === {first!r}")
        page.evaluate("document.querySelector('#speed').value = '0.25'")
        page.click("#play")
        page.wait_for("Number(document.querySelector('iframe').dataset.shown) > 0.15")
        page.wait_for("document.querySelector('#play').textContent === 'Play'")
        check(url, page, frame)
        page.evaluate("document.querySelector('#events a[data-t]').click()")
        wait_until(lambda: is_true(page, "!location.hash"), what="the page of another moment")


def test_moments_without_states_have_a_note(
    browser: Chromium, make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawblox.web.frame_file._WINDOW_S", 0.1)
    monkeypatch.setattr("clawblox.web.frame_file._MAX_WINDOWS", 2)
    url = make()
    with opened(browser, url) as (page, frame):
        frame.wait_for("window.__frames > 5")
        seek(page, page.evaluate("document.querySelector('#slider').max"))
        words = page.evaluate("document.querySelector('#now').textContent")
        assert words.endswith("; the bundle has states until 0.20 s")
        page.wait_for("Number(document.querySelector('iframe').dataset.shown) > 0.15")
        check(url, page, frame)


def test_a_hostile_renderer_is_not_in_a_bundle_and_the_engine_draws_its_world(
    browser: Chromium, make: Callable[..., str], foreign: Foreign, tmp_path: Path
) -> None:
    url = make(HOSTILE.read_text().replace("FOREIGN", foreign.origin))
    before = targets(browser)
    with opened(browser, url) as (page, frame):
        frame.wait_for("window.__frames > 5")
        assert frame.evaluate("[self.origin, window.results, window.seen]") == ["null", None, None]
        assert "need a program" in page.evaluate("document.querySelector('footer').textContent")
        assert targets(browser) <= before + 2
        check(url, page, frame)
    assert (foreign.asked, foreign.packets()) == ([], [])
    text = b"".join(file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert foreign.origin.encode() not in text


def test_state_can_load_only_assets_of_its_world(
    browser: Chromium, make: Callable[..., str], foreign: Foreign
) -> None:
    url = make(files={"assets/dot.png": base64.b64decode(DOT), "assets/a b.svg": b"<svg/>"})
    with opened(browser, url) as (page, frame):
        frame.wait_for("window.__frames > 5")
        asset = "await (await fetch(new Request('assets/{}'))).blob()"
        sizes = [asset.format(name) for name in ("dot.png", "a%20b.svg")]
        sizes_now = f"(async () => [({sizes[0]}).size, ({sizes[1]}).type])()"
        assert frame.evaluate(sizes_now) == [len(base64.b64decode(DOT)), "image/svg+xml"]
        image = "Object.assign(new Image(), {src: 'assets/dot.png'})"
        width = f"(async () => {{ const i = {image}; await i.decode(); return i.width; }})()"
        assert frame.evaluate(width) == 1
        check(url, page, frame)
        for ask in (f"fetch('{foreign.origin}/x')", f"fetch('{url}')"):
            assert frame.evaluate(f"{ask}.then(() => 'came', () => 'refused')") == "refused"
        far = image.replace("assets/dot.png", f"{foreign.origin}/x")
        assert frame.evaluate(f"{far}.decode().then(() => 1, () => 0)") == 0
    assert foreign.asked == []


def test_the_file_with_the_page_starts_only_in_a_frame_without_an_origin(
    browser: Chromium, make: Callable[..., str], tmp_path: Path
) -> None:
    base, _, _ = make().rpartition("/")
    name = next((tmp_path / "out").glob("*-frame.html")).name
    (tmp_path / "out" / "around.html").write_text(f"<iframe src='{name}'></iframe>")
    said = "document.body.textContent.includes('open index.html')"
    with open_page(browser, f"{base}/", name) as page:
        assert is_true(page, said)
        assert page.evaluate("window.__frames") is None
    if base.startswith("http"):
        with open_page(browser, f"{base}/", "around.html") as page:
            page.wait_for(said.replace("document", "frames[0].document"))
            assert page.evaluate("frames[0].__frames") is None
