"""The server of the pages. It reads a directory without changing it.

On request, the server starts the viewer of a world, which ends with the server.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError, UsageError
from clawblox.host_gate import ServerAddress
from clawblox.server.connections import run_server
from clawblox.server.launch_settings import Settings
from clawblox.server.static_files import guess_media_type
from clawblox.views.html import PageAddress, document
from clawblox.web import routes
from clawblox.web.frames import FrameKeys, RecordedWorld, Viewers, frame_headers, read_frame_file
from clawblox.web.gate import FRAME_PREFIX, Keys, guarded
from clawblox.web.page import STATIC_FILES, Ask, Page, Query, draw_page, draw_part, read_static
from clawblox.web.pages.replay import find_replay, find_viewer, read_states
from clawblox.web.shared_address import find_pages
from clawblox.web.site import NoSuchPage, Site

_MAX_KEPT: Final = 16
"""Number of drawn pages to keep until the site changes."""


class ServerLinks:
    """The addresses of pages on this server; see :class:`clawblox.web.page.Links`.

    Args:
        key: The key of the pages.

    Attributes:
        frames: Keys of the renderers' frames.
    """

    def __init__(self, key: str) -> None:
        self.frames = FrameKeys()
        self._key = key

    def to(self, *path: str, fragment: str = "", **query: str | int | None) -> PageAddress:
        """Return the address of a page."""
        return PageAddress.make("", self._key, *(path or ("",)), fragment=fragment, **query)

    def file(self, name: str) -> PageAddress:
        """Return the address of a static file."""
        return PageAddress.make("", self._key, "static", name)

    def frame(self, run: str, number: str, world: RecordedWorld) -> PageAddress:
        """Return the address of a recording's renderer, with a separate key."""
        return PageAddress.make("", "x", self.frames.make(run, number), "")


class Server:
    """Serves the pages of a directory on a bound socket. Handlers block, except for coroutines.

    Args:
        root: The directory.
        listener: A socket that is bound to 127.0.0.1.
        names: Further accepted host names, or ``host:port``.

    Attributes:
        site: The site.
        port: The port.
        app: The application.
    """

    def __init__(self, root: Path, listener: socket.socket, names: Collection[str] = ()) -> None:
        self.site, self.port = Site(root), int(listener.getsockname()[1])
        self._listener, self._keys, self._viewers = listener, Keys(), Viewers()
        self._links = ServerLinks(self._keys.key)
        self._keep_page = functools.lru_cache(_MAX_KEPT)(self._make_page)
        own = ServerAddress("127.0.0.1", self.port)
        self.app = guarded(self._make_app(), own, self._keys, names)

    @property
    def address(self) -> str:
        """The address of the first page, with the key."""
        return f"http://127.0.0.1:{self.port}/{self._keys.key}/"

    def open_once(self, path: str = "") -> str:
        """Return an address for a browser, valid once and for a minute.

        Args:
            path: The target page, relative to the first page.
        """
        return f"http://127.0.0.1:{self.port}/?once={self._keys.open_once(path)}"

    def find_shared(self, address: str) -> str:
        """Return the page of a shared address, relative to the first page. Blocks.

        Args:
            address: The address; see ``shared_address``.

        Raises:
            UsageError: There is no such page.
        """
        try:
            pages = find_pages(self._ask(), address)
        except NoSuchPage as error:
            raise UsageError(str(error)) from error
        page = pages[0][1] if len(pages) == 1 else self._links.to("open", address=address)
        return page.text.removeprefix(f"/{self._keys.key}/")

    def serve(self, on_listening: Callable[[], None]) -> None:
        """Serve until SIGTERM or SIGINT. Blocks.

        Args:
            on_listening: Called when clients can connect.
        """
        settings = Settings(host="127.0.0.1", port=self.port)
        run_server(self.app, self._listener, settings, on_listening, lambda: False)

    def _make_app(self) -> Starlette:
        below = "/run/{run}/replay/{number}"
        answers = {
            "/static/{name}": _answer_static,
            "/changes": self._answer_changes,
            "/open": self._answer_shared,
            "/x/{key}/{path:path}": self._answer_frame,
            f"{below}/states": self._answer_states,
            f"{below}/viewer/open": self._open_viewer,
            "/{path:path}": self._answer_page,
        }
        routes = [Route(path, partial(run_blocking, answer)) for path, answer in answers.items()]
        return Starlette(
            routes=[*routes, Route(f"{below}/viewer", self._start_viewer, methods=["POST"])],
            exception_handlers=dict.fromkeys((ClawbloxError, NoSuchPage, OSError), self._refuse),
            lifespan=lambda _app: self._viewers.open(),
        )

    def _ask(self, query: Query | None = None, cursors: Query | None = None) -> Ask:
        return Ask(self.site, self._links, query or {}, cursors or {}, self._viewers)

    def _answer_page(self, request: Request) -> Response:
        """Answer with a page."""
        return self._draw(self._find_page(request.url.path, dict(request.query_params)))

    def _refuse(self, request: Request, error: Exception) -> Response:
        """Answer that there is no such page; the answer to a frame has no addresses of pages."""
        if request.url.path.startswith(FRAME_PREFIX):
            return PlainTextResponse("Not found", 404)
        return self._draw(routes.make_missing(self._ask(), str(error)), 404)

    def _answer_shared(self, request: Request) -> Response:
        """Answer a shared address with its page, or with a choice of several."""
        pages = find_pages(self._ask(), request.query_params.get("address", ""))
        is_one = len(pages) == 1
        return RedirectResponse(pages[0][1].text, 303) if is_one else self._answer_page(request)

    def _find_page(self, path: str, query: Query, cursors: Query | None = None) -> Page:
        if routes.is_of_site(path):
            return self._keep_page(path, tuple(sorted(query.items())), self.site.version())
        return routes.make_page(self._ask(query, cursors), path)

    def _make_page(self, path: str, query: tuple[tuple[str, str], ...], _version: int) -> Page:
        return routes.make_page(self._ask(dict(query)), path)

    def _draw(self, page: Page, status: int = 200) -> Response:
        head, body = draw_page(page, self._links)
        return HTMLResponse(document(f"{page.title} · clawblox", head, body, policy=None), status)

    def _answer_changes(self, request: Request) -> Response:
        """Answer with the changed parts of a page, or with status 204 if there are none.

        Of a growing part, only the new content is sent. Parameters: ``page`` is the path and query
        of the page below the key, and ``seen`` has ``name:version`` of each part; the version of a
        growing part is its cursor.
        """
        given = request.query_params
        path, _, text = given.get("page", "").partition("?")
        pairs = (pair.partition(":") for pair in given.get("seen", "").split(","))
        seen = {name: version for name, _, version in pairs}
        page = self._find_page(path, dict(parse_qsl(text)), seen)
        changed = [part for part in page.parts if seen.get(part.name) != part.version]
        drawn = [draw_part(part).html for part in changed]
        return JSONResponse(drawn) if drawn else Response(status_code=204)

    def _answer_states(self, request: Request) -> Response:
        """Answer with states of a recording from ``from`` to ``to``, in simulated seconds."""
        content = read_states(self._ask(dict(request.query_params)), **request.path_params)
        return Response(content, media_type="application/json")

    def _answer_frame(self, request: Request) -> Response:
        """Answer with a file of a renderer, which may load only files below its key."""
        key, path = request.path_params["key"], request.path_params["path"]
        replay = find_replay(self._ask(), *self._links.frames.find(key))
        name, content = read_frame_file(replay.find_world(), path)
        headers = frame_headers(request.headers.get("host", ""), key, path)
        return Response(content, headers=headers, media_type=guess_media_type(name))

    async def _start_viewer(self, request: Request) -> Response:
        """Start the viewer of a recording's world, and redirect to the recording's page."""
        key = request.path_params["run"], request.path_params["number"]
        replay, viewer = await run_blocking(find_viewer, self._ask(), *key)
        self._viewers.start(key, viewer, replay.found.path)
        return RedirectResponse(replay.address().text, 303)

    def _open_viewer(self, request: Request) -> Response:
        """Redirect to the address of a running viewer."""
        running = self._viewers.find(**request.path_params)
        if running is None or running.state != "running":
            raise NoSuchPage("This viewer is not running.")
        return RedirectResponse(running.address, 303)


def _answer_static(request: Request) -> Response:
    """Answer with a static file."""
    name = request.path_params["name"]
    if name not in STATIC_FILES:
        raise NoSuchPage("There is no such file.")
    return Response(read_static(name), media_type=guess_media_type(name))
