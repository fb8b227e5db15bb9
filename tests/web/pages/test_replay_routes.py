"""The routes of a replay: states, the files of a frame, and the start of a viewer."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import marked_processes
from tests.support.template import Template
from tests.support.waiting import wait_until
from tests.web.replays import engine_world, only_run, record, tally_world
from tests.web.served import Served, served


@pytest.fixture(scope="module")
def box(
    template: Template, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Served, str, Path]]:
    """Serve a run of an engine world; return the server, the path of its frame, and the world."""
    place = tmp_path_factory.mktemp("box")
    world = engine_world(place, "export const createRenderer = () => ({});")
    record(world, place / "runs" / "run", ("Jump", {}))
    with served(template, place / "runs") as app:
        page = app.text(f"run/{only_run(place / 'runs')}/replay/1")
        frame = re.search(r'src="(/x/[\w-]+/)"', page)
        assert frame is not None
        yield app, frame[1], world


def test_a_frame_has_the_page_of_the_engine_and_the_files_of_its_world(
    box: tuple[Served, str, Path],
) -> None:
    app, frame, world = box
    (world / "assets" / "a.png").write_bytes(b"png")
    page = app.ask_raw(frame, Origin="null", Sec_Fetch_Site="cross-site")
    assert (page.status, b"ui/host.js" in page.body) == (200, True)
    own = f"http://127.0.0.1:{app.port}{frame}"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; ")
    sources = {word for rule in policy.split("; ")[2:] for word in rule.split()[1:]}
    outside = {word for word in sources if "://" in word} - {own, f"http://127.0.0.1:{app.port}"}
    assert not outside
    assert page.headers["cross-origin-resource-policy"] == "cross-origin"
    assert page.headers["access-control-allow-origin"] == "null"
    manifest = app.ask_raw(f"{frame}renderer/manifest").json()
    assert manifest["entry_url"] == "renderer-files/index.js"
    files = {
        "renderer-files/index.js": (b"createRenderer", "text/javascript; charset=utf-8"),
        "ui/three/three.module.min.js": (b"Three.js", "text/javascript; charset=utf-8"),
        "ui/feed.js": (b"postMessage", "text/javascript; charset=utf-8"),
        "assets/a.png": (b"png", "image/png"),
        "assets/player.glb": (b"glTF", "model/gltf-binary"),
    }
    for path, (content, kind) in files.items():
        answer = app.ask_raw(frame + path)
        assert (answer.status, answer.headers["content-type"]) == (200, kind), path
        assert content in answer.body or path == "ui/feed.js"


def test_a_frame_has_no_other_files(box: tuple[Served, str, Path]) -> None:
    app, frame, world = box
    secret = world.parent / "secret"
    secret.write_text("secret")
    assets = world / "assets"
    (assets / "link").symlink_to(secret)
    (assets / "loop").symlink_to(".")
    os.mkfifo(assets / "pipe")
    with (assets / "huge").open("wb") as huge:
        huge.truncate(1 << 40)
    paths = (
        "assets/link", "assets/loop/link", "assets/pipe", "assets/huge", "assets/", "assets",
        "assets/../world.toml", "assets/%2e%2e/world.toml", "assets/..%2fworld.toml",
        "assets//etc/passwd", "assets/%00", "world.toml", "main.lua", "renderer-files/../main.lua",
        "ui/../__init__.py", "ui/", "ui", "renderer", "input", "observe",
    )  # fmt: skip
    for path in paths:
        answer = app.ask_raw(frame + path)
        assert (answer.status, b"secret" in answer.body) == (404, False), path


def test_frame_opens_only_with_its_own_key(box: tuple[Served, str, Path]) -> None:
    app, frame, world = box
    wrong = f"/x/{'A' * 22}/"
    for target in (wrong, f"/x/{app.key}/", "/x/", "/x//", f"/x/{frame[3:-2]}/"):
        assert app.ask_raw(target).status in (403, 404), target
    assert app.ask_raw(f"/{frame[3:-1]}/").status == 403, "its key opens no page"
    assert app.ask_raw(frame, Origin="http://evil.example").status == 403
    assert app.ask_raw(frame, Host="evil.example").status == 421
    assert app.ask_raw(frame, "POST").status == 405
    assert app.ask("", Origin="null").status == 403
    run = only_run(world.parent / "runs")
    assert app.ask(f"run/{run}/replay/1/states?from=0&to=1", Origin="null").status == 403


def test_states_are_json_and_malformed_windows_have_no_page(box: tuple[Served, str, Path]) -> None:
    app, _, world = box
    run = only_run(world.parent / "runs")
    states = app.ask(f"run/{run}/replay/1/states?from=0&to=9")
    assert (states.status, states.headers["content-type"]) == (200, "application/json")
    assert states.json()["states"][0][1]["entities"][0]["type"] == "part"
    for query in ("", "?from=0", "?from=x&to=1", "?from=0&to="):
        assert app.ask(f"run/{run}/replay/1/states{query}").status == 404, query
    assert app.ask(f"run/{run}/replay/7/states?from=0&to=1").status == 404


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a run whose world has a viewer that keeps running."""
    place = tmp_path_factory.mktemp("tally")
    world = tally_world(place, "stay", "{recording}", "{port}")
    record(world, place / "runs" / "run", ("Add", 1))
    return place


@pytest.fixture
def viewer(template: Template, tally: Path) -> Iterator[tuple[Served, str]]:
    """Serve the run; return the page of its recording."""
    with served(template, tally / "runs") as app:
        yield app, f"run/{only_run(tally / 'runs')}/replay/1"


def test_a_viewer_starts_after_a_confirmation_and_ends_with_the_app(
    viewer: tuple[Served, str], tally: Path
) -> None:
    app, page = viewer
    asked = app.text(page)
    recording = tally / "runs/run/recordings/recording-0001.jsonl.zst"
    assert f"viewer.py stay {recording}" in asked
    assert f"{tally / 'world'}" in asked
    assert "This starts a program" in asked
    assert "Start this program" in asked
    for _ in range(3):
        app.ask(page)
        app.ask(page, "HEAD")
    assert marked_processes() == set(), "looking starts nothing"
    assert app.ask(f"{page}/viewer", "POST").status == 303
    wait_until(lambda: len(marked_processes()) >= 2)
    before = marked_processes()
    shown = app.text(page)
    address = re.search(r"http://127\.0\.0\.1:(2\d{4}|3[01]\d{3})/", shown)
    assert address is not None
    assert "Start this program" not in shown
    assert app.ask(f"{page}/viewer/open").headers["location"] == address[0]
    assert (app.ask(f"{page}/viewer", "POST").status, marked_processes()) == (303, before), (
        "one at a time"
    )
    app.process.terminate()
    app.process.wait()
    assert marked_processes() == set()


def test_a_killed_app_leaves_no_viewer(viewer: tuple[Served, str]) -> None:
    app, page = viewer
    assert app.ask(f"{page}/viewer", "POST").status == 303
    wait_until(lambda: len(marked_processes()) >= 2)
    app.process.send_signal(signal.SIGKILL)
    app.process.wait()
    wait_until(lambda: not marked_processes())


def test_a_foreign_page_cannot_start_a_viewer(viewer: tuple[Served, str]) -> None:
    app, page = viewer
    foreign = (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
    )
    for headers in foreign:
        assert app.ask(f"{page}/viewer", "POST", **headers).status == 403, headers
    assert app.ask_raw(f"/wrong/{page}/viewer", "POST").status == 403
    assert app.ask_raw(f"/x/wrong/{page}/viewer", "POST").status == 405
    assert app.ask(f"{page}0/viewer", "POST").status == 404
    assert app.ask(f"{page}/viewer/open").status == 404
    assert marked_processes() == set()


def test_page_shows_why_a_viewer_cannot_start(viewer: tuple[Served, str], tally: Path) -> None:
    app, page = viewer
    config = tally / "world" / "world.toml"
    before = config.read_text()
    config.write_text(re.sub(r"(\[replay\]\ncommand = ).*", r'\1["./nothing"]', before))
    assert app.ask(f"{page}/viewer", "POST").status == 303
    wait_until(lambda: "The viewer cannot be started" in app.text(page))
    assert "Start this program" in app.text(page)
    config.write_text(before)
