"""The host page and the renderers in a browser, connected to a stub of a world."""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from clawblox.cli import main
from tests.engine.page.chromium import Chromium, Page
from tests.engine.page.conftest import Serve, World

pytestmark = pytest.mark.thorough

START = (0, 3, 26)
"""Spawn position of players in the starter world."""
RENDERER = Path(__file__).with_name("renderer")


def pixel(page: Page, x: int, y: int) -> tuple[int, int, int]:
    """Return the colour of the page at a point."""
    png = page.screenshot(clip={"x": x, "y": y, "width": 1, "height": 1, "scale": 1})
    at, data = 8, b""
    while at < len(png):
        size, kind = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        if kind == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        at += 12 + size
    _, red, green, blue, *_ = zlib.decompress(data)
    return red, green, blue


def is_grass(colour: tuple[int, int, int]) -> bool:
    """Return whether a colour is clearly more green than red and blue."""
    red, green, blue = colour
    return green - max(red, blue) > 20


def check(page: Page, world: World) -> None:
    """Check that the page has no errors and did not contact other hosts."""
    assert page.complaints() == []
    hosts = {url.split("/")[2] for url in page.requests() if not url.startswith("blob:")}
    assert hosts == {f"127.0.0.1:{world.port}"}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_starter_renders_the_world_without_contacting_other_hosts(
    browser: Chromium, serve: Serve, dark: bool
) -> None:
    world = serve()
    with browser.open(world.url, dark=dark) as page:
        page.wait_for("window.__frames > 30")
        page.wait_for("document.querySelector('#hud-parts').textContent === '25'")
        world.wait_for(lambda: is_grass(pixel(page, 425, 190)), "the grass beside the panels")
        sky = pixel(page, 300, 6)
        assert (sky[2] > sky[0]) is not dark, "blue by day, red at dusk"
        panel = page.evaluate("getComputedStyle(document.body).color")
        assert panel == ("rgb(238, 242, 248)" if dark else "rgb(23, 33, 46)")
        check(page, world)


def test_a_local_player_walks_jumps_clicks_chats_and_leaves(
    browser: Chromium, serve: Serve
) -> None:
    world = serve()
    with browser.open(world.url, width=1000, height=500) as page:
        page.wait_for("window.__frames > 1")
        assert page.evaluate("document.querySelector('#chat-text').disabled")
        page.evaluate("document.querySelector('#play-name').value = 'Pip'")
        page.click("#play .main")
        page.wait_for("document.querySelector('#gui[data-playing] button.element')")

        page.press("KeyW", "w", hold=True)
        world.wait_for(lambda: world.posted("MoveTo"), "a walk")
        page.release("KeyW", "w")
        world.wait_for(lambda: world.posted("Stop"), "its end")
        page.press("Space", " ")
        world.wait_for(lambda: world.posted("Jump"), "a jump")

        page.click("#gui button.element")
        world.wait_for(lambda: world.posted("GuiClick"), "a click")
        assert world.posted("GuiClick") == [{"type": "GuiClick", "data": {"element_id": 73}}]
        page.wait_for("document.querySelector('#gui').textContent.includes('Coins: 1')")

        page.press("Enter", "Enter")
        page.wait_for("document.activeElement.id === 'chat-text'")
        page.call("Input.insertText", text="<b>Hello</b> wasd")
        page.evaluate("document.querySelector('#chat-form').requestSubmit()")
        page.wait_for("document.querySelector('#chat-log li:not(.empty)')")
        text = page.evaluate("document.querySelector('#chat-log').textContent")
        assert text == "Pip<b>Hello</b> wasd"
        assert len(world.posted("Jump")) == 1, "typing is no playing"

        check(page, world)
        page.call("Page.navigate", url="about:blank")
        world.wait_for(lambda: world.posted("/leave"), "the page to leave the world")


def test_walks_are_relative_to_the_camera(browser: Chromium, serve: Serve) -> None:
    world = serve()
    with browser.open(world.url) as page:
        page.wait_for("window.__frames > 1")
        walks = page.evaluate(
            """(async () => {
              const { createPlay } = await import("/ui/play.js");
              const play = createPlay({
                root: new URL("/", location.href),
                player: () => ({ position: [10, 3, 20] }),
                heading: () => [1, 0],
                onError: console.error,
                onChange: () => {},
              });
              await play.join("Compass");
              const sent = [];
              const real = window.fetch;
              window.fetch = (url, options) => {
                if (String(url).endsWith("/input")) sent.push(JSON.parse(options.body));
                return real(url, options);
              };
              const stops = () => sent.filter(({ type }) => type === "Stop").length;
              const walks = [];
              for (const code of ["KeyW", "KeyD"]) {
                const before = stops();
                const from = sent.length;
                const event = (kind) => new KeyboardEvent(kind, { code, bubbles: true });
                document.body.dispatchEvent(event("keydown"));
                while (sent.length === from) await new Promise(requestAnimationFrame);
                document.body.dispatchEvent(event("keyup"));
                while (stops() === before) await new Promise(requestAnimationFrame);
                walks.push(sent[from].data.position);
              }
              window.fetch = real;
              await play.leave();
              return walks;
            })()"""
        )
        first, right = walks
        assert first == [18, 3, 20], "W goes where the camera looks, here +X"
        assert right == [10, 3, 28], "D goes to the right of that, here +Z"


def test_page_shows_the_reason_of_a_halt_and_polls_after_losing_the_socket(
    browser: Chromium, serve: Serve
) -> None:
    world = serve()
    with browser.open(world.url) as page:
        page.wait_for("document.querySelector('#connection').textContent === 'Live'")
        world.order("drop")
        page.wait_for("document.querySelector('#connection').textContent === 'Live, by polling'")
        before = page.evaluate("window.__frames")
        page.wait_for(f"window.__frames > {before} + 2")
        world.order("halt")
        page.wait_for("!document.querySelector('#notice').hidden")
        assert page.evaluate("document.querySelector('#notice-title').textContent") == (
            "The world has halted"
        )
        assert "main:7: oops" in page.evaluate("document.querySelector('#notice-text').textContent")
        world.order("resume")
        page.wait_for("document.querySelector('#notice').hidden")
        page.wait_for("document.querySelector('#connection').textContent.startsWith('Live')")


def test_renderer_module_gets_a_single_three_js_and_the_full_context(
    browser: Chromium, serve: Serve
) -> None:
    world = serve(RENDERER)
    with browser.open(world.url, width=320, height=200) as page:
        page.wait_for("window.__module?.meshes === 25 && window.__frames > 3")
        report = page.evaluate("window.__module")
        assert report["oneThree"]
        assert (report["apiVersion"], report["name"]) == (1, "Coin Island")
        assert report["calls"][:2] == ["mount", "onResize"]
        assert report["size"] == [320, 200, 1]
        assert report["lerp"] == [1, 2, 3]
        assert report["color"] == [1, 0, 0]
        assert report["rooted"] == "Rocky"
        assert report["kinds"].keys() == {"fire", "reload", "idle", "walk", "jump"}
        red, green, blue = pixel(page, 160, 8)
        assert min(red, blue) > green + 60, "the background is the renderer's magenta"

        page.press("KeyE", "e")
        world.wait_for(lambda: world.posted("Wave"), "a tap")
        page.press("KeyR", "r", hold=True)
        world.wait_for(lambda: len(world.posted("Run")) >= 3, "a hold")
        page.release("KeyR", "r")
        assert world.posted("Wave") == [{"type": "Wave", "data": {"hand": "left"}}]
        check(page, world)


def test_a_broken_renderer_module_is_replaced_by_the_starter(
    browser: Chromium, serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "index.js").write_text("export const createRenderer = 7;")
    with browser.open(serve(tmp_path).url) as page:
        page.wait_for("window.__frames > 2")
        page.wait_for("!document.querySelector('#renderer-error').hidden")
        reason = page.evaluate("document.querySelector('#renderer-error').textContent")
        assert "/renderer-files/index.js has no function createRenderer" in reason


def test_a_snapshot_buffer_interpolates_between_two_states(browser: Chromium, serve: Serve) -> None:
    with browser.open(serve().url) as page:
        page.wait_for("window.__frames > 0")
        quarter = [[0, 0, 1], [0, 1, 0], [-1, 0, 0]]
        far = {"id": 3, "position": [500, 0, 0]}
        before = {"id": 1, "position": [0, 0, 0]}, {"id": 2, "position": [4, 4, 4]}
        after = (
            {"id": 1, "position": [4, 2, 0], "rotation": quarter},
            {"id": 2, "position": [4, 4, 4]},
        )
        states = [
            {"tick": 1, "entities": [*before, {**far, "position": [0, 0, 0]}], "players": []},
            {"tick": 7, "entities": [*after, far], "players": []},
        ]
        found = page.evaluate(
            f"""(async () => {{
              const {{ createSnapshotBuffer }} = await import("/ui/runtime/state.js");
              const buffer = createSnapshotBuffer({{ maxSnapshots: 2, interpolationDelayMs: 100 }});
              const [a, b] = {json.dumps(states)};
              const empty = buffer.interpolated();
              buffer.push({{ ...a, tick: 0 }}, 900);
              buffer.push(a, 1000);
              buffer.push(a, 1030);
              buffer.push(b, 1100);
              const ticks = [];
              buffer.forEachRecent((state) => ticks.push(state.tick));
              return {{
                empty,
                ticks,
                size: buffer.size(),
                around: [buffer.previous().tick, buffer.latest().tick],
                half: buffer.interpolated(1150),
                early: buffer.interpolated(1050).tick,
                late: buffer.interpolated(1300).entities[0].position,
                same: buffer.interpolated(1150).entities[1] === b.entities[1],
              }};
            }})()"""
        )
        assert found["empty"] is None
        assert (found["size"], found["ticks"], found["around"]) == (2, [7, 1], [1, 7])
        assert (found["early"], found["late"], found["same"]) == (1, [4, 2, 0], True)
        moved, _, teleported = found["half"]["entities"]
        assert moved["position"] == [2, 1, 0]
        half = 0.5**0.5
        assert moved["rotation"][0] == pytest.approx([half, 0, half])
        assert teleported["position"] == [500, 0, 0], "too far for a movement"


def test_page_draws_parts_with_the_shapes_of_the_engine(browser: Chromium, serve: Serve) -> None:
    with browser.open(serve().url) as page:
        page.wait_for("window.__frames > 0")
        boxes = page.evaluate(
            """(async () => {
              const THREE = await import("three");
              const { geometryFromRender } = await import("/ui/runtime/meshes.js");
              const found = {};
              for (const primitive of ["block", "ball", "cylinder", "wedge", "ring"]) {
                const geometry = geometryFromRender(THREE, { primitive }, [4, 2, 6]);
                geometry.computeBoundingBox();
                const { max } = geometry.boundingBox;
                const { position } = geometry.attributes;
                const top = [];
                for (let k = 0; k < position.count; k += 1) {
                  if (position.getY(k) > max.y - 1e-6) top.push(position.getX(k));
                }
                found[primitive] = { max: max.toArray(), top: Math.max(...top) };
              }
              return found;
            })()"""
        )
        extents = {name: box["max"] for name, box in boxes.items()}
        assert extents["block"] == [2, 1, 3]
        assert extents["ball"] == pytest.approx([2, 2, 2], abs=0.01), "its radius is half of Size.X"
        assert extents["cylinder"] == pytest.approx([2, 1, 2], abs=0.02), "its axis is Y"
        assert extents["wedge"] == pytest.approx([2, 1, 3])
        assert boxes["wedge"]["top"] == -2, "a wedge is high at -X"
        assert extents["ring"] == pytest.approx([2, 1, 2], abs=0.01)


def test_starter_world_of_the_engine_can_be_watched_and_played(
    browser: Chromium, serve: Serve, tmp_path: Path
) -> None:
    CliRunner().invoke(main, ["init", "--engine", str(tmp_path / "isle")], catch_exceptions=False)
    world = serve(world=tmp_path / "isle")
    with browser.open(world.url) as page:
        page.wait_for("window.__frames > 3")
        assert page.evaluate("document.title") == "Coin Island"
        page.evaluate("document.querySelector('#play').requestSubmit()")
        page.wait_for("document.querySelector('#gui').textContent.includes('Coins: 0')")
        world.wait_for(lambda: math.dist(world.position(), START) < 1, "the start")
        page.evaluate("document.querySelector('canvas').focus()")
        page.press("KeyS", "s", hold=True)
        world.wait_for(lambda: math.dist(world.position(), START) > 5, "a walk")
        page.release("KeyS", "s")
        page.click("#gui button")
        world.wait_for(lambda: math.dist(world.position(), START) < 1, "the way back")
        check(page, world)
        world.end()
        page.wait_for("document.querySelector('#connection').dataset.state === 'lost'")
