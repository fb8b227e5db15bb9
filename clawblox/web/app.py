"""The server of the pages. It reads one directory, and changes nothing in it.

On request it starts the viewer of a world, which ends with it.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import Final
from urllib.parse import parse_qsl

import attrs
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError, UsageError
from clawblox.host_gate import ServerAddress
from clawblox.server.connections import run_server
from clawblox.server.launch_settings import Settings
from clawblox.server.static_files import guess_media_type
from clawblox.views.html import Address, document
from clawblox.web import routes
from clawblox.web.frames import FrameKeys, Viewers, frame_headers, read_frame_file
from clawblox.web.gate import Keys, guarded
from clawblox.web.page import STATIC_FILES, Ask, Page, draw_page, draw_part, read_static
from clawblox.web.pages.replay import find_replay, find_viewer
from clawblox.web.shared_address import find_pages
from clawblox.web.site import NoSuchPage, Site

_MAX_QUERY_CHARS: Final = 8192
_MAX_KEPT: Final = 16
"""How many drawn pages are kept until the site changes."""


class ServerLinks:
    """The addresses of pages on this server; see :class:`clawblox.web.page.Links`.

    Args:
        key: The key of the pages.

    Attributes:
        frames: The keys of renderers.
    """

    def __init__(self, key: str) -> None:
        self.frames = FrameKeys()
        self._key = key

    def to(self, *path: str, fragment: str = "", **query: str | int | None) -> Address:
        """Return the address of a page."""
        return Address.make("", self._key, *(path or ("",)), fragment=fragment, **query)

    def file(self, name: str) -> Address:
        """Return the address of a static file."""
        return Address.make("", self._key, "static", name)

    def frame(self, run: str, number: str) -> Address:
        """Return the address of a recording's renderer, with a key of its own."""
        return Address.make("", "x", self.frames.make(run, number), "")


def create_app(
    site: Site, keys: Keys, address: ServerAddress, names: Collection[str] = ()
) -> ASGIApp:
    """Return the application.

    Args:
        site: What it shows.
        keys: The keys of its pages.
        address: The address that it is served at.
        names: Further host names under which it may be asked for.
    """
    pages = _Pages(site, ServerLinks(keys.key))
    app = Starlette(
        routes=[
            Route("/static/{name}", pages.static),
            Route("/changes", pages.changes),
            Route("/open", pages.open),
            Route("/x/{key}/{path:path}", pages.frame),
            Route("/run/{run}/replay/{number}/states", pages.states),
            Route("/run/{run}/replay/{number}/viewer", pages.start_viewer, methods=["POST"]),
            Route("/run/{run}/replay/{number}/viewer/open", pages.open_viewer),
            Route("/{path:path}", pages.page),
        ],
        lifespan=lambda _app: pages.viewers.open(),
    )
    return guarded(app, address, keys, names)


@attrs.frozen
class Server:
    """The pages of a directory on a bound socket.

    Attributes:
        site: The site.
        listener: The socket.
        keys: The keys of the pages.
        app: The application.
    """

    site: Site
    listener: socket.socket
    keys: Keys
    app: ASGIApp

    @property
    def port(self) -> int:
        """The port."""
        return int(self.listener.getsockname()[1])

    @property
    def origin(self) -> str:
        """The first part of every address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """The address of the first page, with the key."""
        return f"{self.origin}/{self.keys.key}/"

    def open_once(self, path: str = "") -> str:
        """Return an address for a browser, valid once and for a minute.

        Args:
            path: The page to which it leads, relative to the first one.
        """
        return f"{self.origin}/?once={self.keys.open_once(path)}"

    def find_shared(self, address: str) -> str:
        """Return the page that an address to send leads to, relative to the first one. Blocks.

        Args:
            address: The address; see ``shared_address``.

        Raises:
            UsageError: It leads nowhere.
        """
        ask = Ask(self.site, ServerLinks(self.keys.key))
        try:
            pages = [page for _, page in find_pages(ask, address)]
        except NoSuchPage as error:
            raise UsageError(str(error)) from error
        page = pages[0] if len(pages) == 1 else ask.links.to("open", address=address)
        return page.text.removeprefix(f"/{self.keys.key}/")

    def serve(self, on_listening: Callable[[], None]) -> None:
        """Serve until SIGTERM or SIGINT. Blocks.

        Args:
            on_listening: Called when clients can connect.
        """
        settings = Settings(host="127.0.0.1", port=self.port)
        run_server(self.app, self.listener, settings, on_listening, lambda: False)


def open_site(root: Path, listener: socket.socket, names: Collection[str] = ()) -> Server:
    """Return the pages of a directory.

    Args:
        root: The directory.
        listener: A socket that is bound to 127.0.0.1.
        names: Further host names, or ``host:port``, under which they may be asked for.
    """
    keys, port = Keys(), int(listener.getsockname()[1])
    site = Site(root)
    app = create_app(site, keys, ServerAddress("127.0.0.1", port), names)
    return Server(site, listener, keys, app)


class _Pages:
    def __init__(self, site: Site, links: ServerLinks) -> None:
        self.viewers = Viewers()
        self._site = site
        self._links = links
        self._kept: dict[object, tuple[int, Page]] = {}
        self._lock = threading.Lock()

    def _ask(
        self, query: dict[str, str] | None = None, cursors: dict[str, str] | None = None
    ) -> Ask:
        return Ask(self._site, self._links, query or {}, cursors or {}, self.viewers)

    async def page(self, request: Request) -> Response:
        """Answer with a page."""
        return await run_blocking(partial(self._answer, request))

    def _answer(self, request: Request) -> Response:
        try:
            page = self._make(request.url.path, dict(request.query_params))
        except NoSuchPage as error:
            return self._refuse(error)
        return HTMLResponse(self._draw(page))

    def _refuse(self, error: NoSuchPage) -> Response:
        page = routes.make_missing(self._ask(), str(error))
        return HTMLResponse(self._draw(page), 404)

    async def open(self, request: Request) -> Response:
        """Answer an address to send with its page, or with a choice of several."""
        return await run_blocking(partial(self._open, request))

    def _open(self, request: Request) -> Response:
        ask = self._ask(dict(request.query_params))
        try:
            pages = find_pages(ask, ask.query.get("address", ""))
        except NoSuchPage as error:
            return self._refuse(error)
        if len(pages) > 1:
            return self._answer(request)
        return RedirectResponse(pages[0][1].text, 303)

    def _make(
        self, path: str, query: dict[str, str], cursors: dict[str, str] | None = None
    ) -> Page:
        key, version = (path, *sorted(query.items())), self._site.version()
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and kept[0] == version:
            return kept[1]
        page = routes.make_page(self._ask(query, cursors), path)
        if page.is_of_site:
            with self._lock:
                self._kept.pop(key, None)
                self._kept[key] = version, page
                while len(self._kept) > _MAX_KEPT:
                    del self._kept[next(iter(self._kept))]
        return page

    def _draw(self, page: Page) -> str:
        head, body = draw_page(page, self._links)
        return document(f"{page.title} · clawblox", head, body, policy=None)

    async def changes(self, request: Request) -> Response:
        """Answer with the parts of a page that have changed, 204 without any.

        Parameters: ``page`` is path and query of the page below the key; ``seen`` has
        ``name:version`` of each part, and ``at`` has ``name:cursor`` of each part that grows.
        """
        return await run_blocking(partial(self._find_changes, dict(request.query_params)))

    def _find_changes(self, given: Mapping[str, str]) -> Response:
        path, _, text = given.get("page", "").partition("?")
        if len(text) > _MAX_QUERY_CHARS:
            return PlainTextResponse("Query too long", 414)
        query = dict(parse_qsl(text))
        seen, cursors = (_read_pairs(given.get(name, "")) for name in ("seen", "at"))
        try:
            page = self._make(path, query, cursors)
        except NoSuchPage:
            return Response(status_code=410)
        parts = [part for part in page.parts if seen.get(part.name) != part.version]
        if not parts:
            return Response(status_code=204)
        document = [
            {
                "name": part.name,
                "html": part.body.html if part.cursor else draw_part(part).html,
                "version": part.version,
                "cursor": part.cursor,
            }
            for part in parts
        ]
        return Response(json.dumps(document), media_type="application/json")

    async def states(self, request: Request) -> Response:
        """Answer with states of a recording from ``from`` to ``to``, in simulated seconds."""
        return await run_blocking(partial(self._read_states, request))

    def _read_states(self, request: Request) -> Response:
        try:
            since, until = (float(request.query_params.get(name, "")) for name in ("from", "to"))
            replay = find_replay(self._ask(), *request.path_params.values())
            with self._site.recordings.opened(replay.found, replay.run.directory) as recording:
                content = recording.read_states(since, until)
        except (ClawbloxError, NoSuchPage, OSError, ValueError):
            return PlainTextResponse("Not found", 404)
        return Response(content, media_type="application/json")

    async def frame(self, request: Request) -> Response:
        """Answer with a file of a renderer, which may load only what is below its key."""
        return await run_blocking(partial(self._read_frame_file, request))

    def _read_frame_file(self, request: Request) -> Response:
        key, path = request.path_params["key"], request.path_params["path"]
        try:
            replay = find_replay(self._ask(), *self._links.frames.find(key))
            world = replay.find_world(self._ask())
            if world.config is None:
                raise NoSuchPage(world.problem)
            name, content = read_frame_file(world.config, path)
            headers = frame_headers(request.headers.get("host", ""), key, path)
        except (ClawbloxError, NoSuchPage, OSError):
            return PlainTextResponse("Not found", 404)
        return Response(content, headers=headers, media_type=guess_media_type(name))

    async def start_viewer(self, request: Request) -> Response:
        """Start the viewer of a recording's world, and lead back to the page that says so."""
        run, number = request.path_params["run"], request.path_params["number"]
        try:
            replay = await run_blocking(partial(find_replay, self._ask(), run, number))
            viewer = await run_blocking(partial(find_viewer, self._ask(), replay))
            await self.viewers.start((run, number), viewer, replay.found.path)
        except (ClawbloxError, NoSuchPage) as error:
            return PlainTextResponse(str(error), 409)
        return RedirectResponse(replay.address(self._ask(), "viewer").text, 303)

    async def open_viewer(self, request: Request) -> Response:
        """Lead to the address that a running viewer was given."""
        running = self.viewers.find(*request.path_params.values())
        if running is None or running.state != "running":
            return PlainTextResponse("This viewer does not run", 404)
        return RedirectResponse(running.address, 303)

    async def static(self, request: Request) -> Response:
        """Answer with a static file."""
        name = request.path_params["name"]
        if name not in STATIC_FILES:
            return PlainTextResponse("Not found", 404)
        content = await run_blocking(partial(read_static, name))
        return Response(content, media_type=guess_media_type(PurePath(name).name))


def _read_pairs(text: str) -> dict[str, str]:
    """Return ``name:value`` pairs that commas separate."""
    pairs = (pair.partition(":") for pair in text.split(",") if pair)
    return {name: value for name, _, value in pairs}
