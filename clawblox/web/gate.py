"""The requirements for every request, and the headers of every answer."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clawblox.host_gate import ServerAddress, find_refusal
from clawblox.views.html import document, element, join

FRAME_PREFIX: Final = "/x/"
"""Path of the sandboxed pages of renderers, each below its own key."""
_ONCE_S: Final = 60.0
_KEY_BYTES: Final = 16
_METHODS: Final = ("GET", "HEAD", "POST")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'self'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types server"
)
_HEADERS: Final = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_PAGE_HEADERS: Final = _HEADERS | {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
_FRAME_IGNORES: Final = {"origin": "null", "sec-fetch-site": "cross-site"}
"""Headers from a sandboxed frame, which has an opaque origin and only the key of its replay."""


class Keys:
    """The key of the pages, and words that open a page once. Thread-safe.

    The browser is opened with such a word, because other users can read its command line.

    Args:
        clock: Returns monotonic seconds.

    Attributes:
        key: Part of every page's address: 128 random bits, constant while the process runs.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.key = secrets.token_urlsafe(_KEY_BYTES)
        self._clock = clock
        self._once: dict[str, tuple[float, str]] = {}

    def open_once(self, path: str = "") -> str:
        """Return a word that opens a page once, within a minute.

        Args:
            path: The page, relative to the first page.
        """
        word = secrets.token_urlsafe(_KEY_BYTES)
        self._once[word] = self._clock() + _ONCE_S, path
        return word

    def use(self, word: str) -> str | None:
        """Return the page of a word, with the key; None if the word is invalid."""
        until, path = self._once.pop(word, (0.0, ""))
        return f"/{self.key}/{path}" if self._clock() < until else None

    def has_key(self, path: str) -> bool:
        """Return whether a path starts with the key."""
        piece = path.lstrip("/").partition("/")[0]
        return secrets.compare_digest(piece.encode(), self.key.encode())


def guarded(
    app: ASGIApp, address: ServerAddress, keys: Keys, names: Collection[str] = ()
) -> ASGIApp:
    """Return an application that serves the pages only to authorized requests.

    Args:
        app: The application with the pages; it gets paths without the key.
        address: The address of this server.
        keys: The keys.
        names: Further accepted host names of this server.
    """
    allowed = frozenset(name.lower() for name in names)

    def is_own(authority: str) -> bool:
        named = {authority.lower(), authority.lower().rpartition(":")[0]}
        return address.matches(authority) or not allowed.isdisjoint(named)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
            return
        is_frame = scope["path"].startswith(FRAME_PREFIX)
        refusal = _refuse(scope, is_own, keys, is_frame=is_frame)
        if not is_frame:
            scope = {**scope, "path": scope["path"].removeprefix(f"/{keys.key}")}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS if is_frame else _PAGE_HEADERS)
            await send(message)

        await (refusal or app)(scope, receive, send_with_headers)

    return answer


def _refuse(
    scope: Scope, is_own: Callable[[str], bool], keys: Keys, *, is_frame: bool
) -> Response | None:
    headers, method = Headers(scope=scope), scope["method"]

    def read(name: str) -> list[str]:
        ignored = _FRAME_IGNORES.get(name) if is_frame else None
        return [value for value in headers.getlist(name) if value != ignored]

    foreign = find_refusal(is_own, method, read, has_pages=True)
    if foreign is not None:
        return PlainTextResponse(foreign[1], foreign[0])
    if method not in _METHODS or (is_frame and method == "POST"):
        return PlainTextResponse("Method not allowed", 405, {"Allow": "GET, HEAD"})
    if is_frame or keys.has_key(scope["path"]):
        return None
    query = scope["query_string"].decode("latin-1")
    word = query.removeprefix("once=") if scope["path"] == "/" else ""
    target = keys.use(word)
    return _explain_key() if target is None else RedirectResponse(target, 303)


def _explain_key() -> Response:
    why = "It belongs to an earlier start of clawblox app, or is incomplete. Start the app again:"
    back = (
        "To return to this place, replace the first part of this path with the key in the address "
        "that it prints. An address that “copy link” gave stays valid:"
    )
    body = [element("h1", "This address is no longer valid")]
    for words, command in ((why, "DIR"), (back, "DIR --open '#…'")):
        body += [element("p", words), element("pre", f"clawblox app {command}")]
    page = document("No longer valid · clawblox", join(()), *body, policy=None)
    return HTMLResponse(page, 403)
