"""Chromium without a window, driven over pipes by its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import signal
import time
from pathlib import Path
from typing import Any

DEADLINE_S = 120.0
"""Time limit of each operation, to catch hangs, in seconds."""

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--remote-debugging-pipe",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--mute-audio",
)

_WAIT = """new Promise((resolve, reject) => {
  const test = () => { try { return %s; } catch { return false; } };
  const end = performance.now() + %s;
  (function look() {
    const value = test();
    if (value) resolve(value);
    else if (performance.now() > end) reject(new Error("stays false: " + %s));
    else setTimeout(look, 15);
  })();
})"""


class Chromium:
    """A browser; ``open`` returns pages.

    It is not a child of this process, because the checks for leaked processes would count the
    changing children of the browser. It ends when its pipes are closed.

    Args:
        program: Path of its program.
        profile: An empty directory, outside those of tests.
    """

    def __init__(self, program: Path, profile: Path) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        env = {"PATH": os.defpath, "HOME": str(profile), "TMPDIR": str(profile)}
        command = [str(program), *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        with open(os.devnull, "r+b") as quiet:
            self._group = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", 'cd / && "$0" "$@" 0<&0 &', *command],
                env,
                file_actions=[
                    *((os.POSIX_SPAWN_DUP2, quiet.fileno(), number) for number in (0, 1, 2)),
                    (os.POSIX_SPAWN_DUP2, to_browser, 103),
                    (os.POSIX_SPAWN_DUP2, from_browser, 104),
                    (os.POSIX_SPAWN_DUP2, 103, 3),
                    (os.POSIX_SPAWN_DUP2, 104, 4),
                ],
                setpgroup=0,
            )
        os.waitpid(self._group, 0)
        os.close(to_browser)
        os.close(from_browser)
        self._numbers = itertools.count(1)
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read(DEADLINE_S)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _read(self, timeout: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while b"\0" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            chunk = os.read(self._in, 1 << 20)
            if not chunk:
                raise EOFError("Chromium has ended")
            self._rest += chunk
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(
        self, url: str, *, width: int = 480, height: int = 320, dark: bool = False, script: str = ""
    ) -> Page:
        """Open a page in a new tab, after running an optional script."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        page = Page(self, target, attached["sessionId"])
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        page.call("Page.navigate", url=url)
        return page

    def close(self) -> None:
        """End the browser and wait for its end."""
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            self.call("Browser.close")
            while True:
                self._read(DEADLINE_S)
        os.close(self._out)
        os.close(self._in)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)


class Page:
    """A page of the browser; a context manager that closes the page."""

    def __init__(self, browser: Chromium, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> Any:
        """Wait until a JavaScript expression is true; return its value."""
        return self.evaluate(_WAIT % (condition, DEADLINE_S * 500, json.dumps(condition)))

    def press(self, code: str, key: str, *, hold: bool = False) -> None:
        self.call("Input.dispatchKeyEvent", type="keyDown", code=code, key=key)
        if not hold:
            self.release(code, key)

    def release(self, code: str, key: str) -> None:
        self.call("Input.dispatchKeyEvent", type="keyUp", code=code, key=key)

    def click(self, selector: str) -> None:
        """Press and release the left button at the centre of an element."""
        found = json.dumps(selector)
        x, y = self.evaluate(
            f"(() => {{ const box = document.querySelector({found}).getBoundingClientRect();"
            "  return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, **params: Any) -> bytes:
        """Return an image of the page; see ``Page.captureScreenshot``."""
        return base64.b64decode(self.call("Page.captureScreenshot", **params)["data"])

    def events(self, method: str) -> list[dict[str, Any]]:
        """Return the page's events with a name, oldest first."""
        self.evaluate("0")
        return [
            event["params"]
            for event in self._browser.events
            if event.get("sessionId") == self._session and event["method"] == method
        ]

    def complaints(self) -> list[str]:
        """Return the errors of console, scripts and network."""
        console = [
            str([argument.get("value", argument.get("description")) for argument in call["args"]])
            for call in self.events("Runtime.consoleAPICalled")
            if call["type"] == "error"
        ]
        thrown = [
            str(event["exceptionDetails"]) for event in self.events("Runtime.exceptionThrown")
        ]
        logged = [
            f"{event['entry']['text']} {event['entry'].get('url', '')}"
            for event in self.events("Log.entryAdded")
            if event["entry"]["level"] == "error"
        ]
        return console + thrown + logged

    def requests(self) -> list[str]:
        """Return the URLs of all requests of the page, including WebSockets."""
        sent = [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]
        return sent + [event["url"] for event in self.events("Network.webSocketCreated")]

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *exc: object) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
