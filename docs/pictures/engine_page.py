"""Takes ``engine_page.webp``: the starter world of the engine in a browser, with four players.

    python -m docs.pictures.engine_page

It needs Chromium. The world and the page are the real ones; only the page is told that a graphics
card draws it, so that it draws as finely as it can.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from clawblox.cli import main
from tests.engine.page.chromium import Chromium, Page
from tests.optional import require_program
from tests.support.sockets import free_port, is_listening
from tests.support.waiting import wait_until
from tests.support.worlds import ask

PICTURE: Final = Path(__file__).with_name("engine_page.webp")
_CARD: Final = """{
  const { prototype } = WebGL2RenderingContext;
  const { getParameter } = prototype;
  prototype.getParameter = function (name) {
    return name === 37446 ? "a graphics card" : getParameter.call(this, name);
  };
}"""
_GUESTS: Final = {"Rocky": (15, 12), "Pearl": (-9, 19), "Sandy": (19, -7)}


def _act(port: int, session: str, kind: str, data: object = None) -> dict[str, Any]:
    headers = {"X-Session": session, "Content-Type": "application/json"}
    body = json.dumps({"type": kind, "data": data}).encode()
    seen: dict[str, Any] = ask(port, "POST", "/input", headers=headers, body=body).json()
    return seen


def _walk(port: int, name: str, x: float, z: float) -> None:
    session = ask(port, "POST", f"/join?name={name}").json()["session"]

    def is_there() -> bool:
        seen = _act(port, session, "MoveTo", {"position": [x, 0, z]})["player"]["position"]
        return math.hypot(seen[0] - x, seen[2] - z) < 1

    wait_until(is_there, what=f"{name} to come to {x}, {z}")
    headers = {"X-Session": session, "Content-Type": "application/json"}
    body = json.dumps({"content": f"{name} here, ready to climb!"}).encode()
    ask(port, "POST", "/chat", headers=headers, body=body)


def _look(page: Page) -> bytes:
    page.wait_for("window.__frames > 2")
    page.evaluate("document.querySelector('#play').requestSubmit()")
    page.wait_for("document.querySelector('#gui').textContent.includes('Coins: ')")
    page.wait_for("document.querySelector('#chat-log').children.length >= 3")
    frames = page.evaluate("window.__frames")
    page.wait_for(f"window.__frames > {frames} + 2")
    return page.screenshot(format="webp", quality=82)


def take(directory: Path) -> bytes:
    """Return the picture; ``directory`` is empty and takes the world and the browser's files."""
    world, port = directory / "island", free_port()
    CliRunner().invoke(main, ["init", "--engine", str(world)], catch_exceptions=False)
    command = [sys.executable, "-m", "clawblox.engine", str(world), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: is_listening(port), what="the world to listen")
        browser = Chromium(require_program("chromium"), directory)
        try:
            for name, place in _GUESTS.items():
                _walk(port, name, *place)
            url = f"http://127.0.0.1:{port}/"
            with browser.open(url, width=1280, height=720, script=_CARD) as page:
                return _look(page)
        finally:
            browser.close()
            process.terminate()


if __name__ == "__main__":
    place = Path(tempfile.mkdtemp())
    PICTURE.write_bytes(take(place))
    shutil.rmtree(place, ignore_errors=True)
