"""The routes of a world: HTTP requests become calls of the hosted world.

This module only translates. Errors of the hosted world become the status codes and texts that the
world interface documents.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clawblox.host_gate import ServerAddress, find_refusal
from clawblox.printable import is_printable
from clawblox.protocol import (
    API_ALIAS_ROUTE,
    API_ROUTE,
    CHAT_MESSAGES_ROUTE,
    CHAT_ROUTE,
    DATASTORE_HEADER,
    HALTED,
    HEALTH_ROUTE,
    INPUT_ROUTE,
    JOIN_ROUTE,
    LEAVE_ROUTE,
    OBSERVE_ROUTE,
    OPERATOR_HEADER,
    REPLAY_ROUTE,
    SESSION_HEADER,
    SNAPSHOT_ROUTE,
    report_fields,
)
from clawblox.server.chat import MAX_CONTENT
from clawblox.server.clocks import WorldClock, make_clock
from clawblox.server.hosted_world import HostedWorld, WorldFull
from clawblox.server.launch_settings import Settings
from clawblox.server.payload import encode_json, encode_large_json, read_json
from clawblox.server.sessions import AgentSession
from clawblox.server.simulation import Halted, InputError
from clawblox.server.snapshot_document import make_snapshot

if TYPE_CHECKING:
    from clawblox.server.replaying import ScriptedReplay

MAX_BODY_BYTES: Final = 64 * 1024
PATIENT: Final = "clawblox.patient"
"""Key in the scope of a request: its answer may stay unread while other clients wait."""
MAX_NAME: Final = 100
"""Maximum length of an agent's name, in characters."""
MAX_MEDIA_URL: Final = 2048
"""Maximum length of the address of a voice message, in characters."""
DEFAULT_MESSAGES: Final = 50
MAX_MESSAGES: Final = 100

_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"frame-ancestors 'self'"),
)
"""Headers of every answer, unless a route sets its own: foreign pages neither read nor frame it."""
_STARTS: Final = ("http.response.start", "websocket.http.response.start")

_log = logging.getLogger("clawblox.server")

BackgroundTask = Callable[[], Coroutine[Any, Any, None]]


def create_app(
    world: HostedWorld, settings: Settings, *, background: Sequence[BackgroundTask] = ()
) -> ASGIApp:
    """Build the ASGI application of a world; the world ticks during its lifespan.

    Args:
        world: The world; restore a snapshot before this call.
        settings: Address, token and clock; nothing is opened or bound here.
        background: Further tasks that start with the world's clock and are cancelled with it.
    """
    clock = make_clock(world, settings.clock or world.simulation.clock)
    api = _Api(world, clock, settings.operator_token)

    async def answer_halted(request: Request, error: Exception) -> Response:
        log = "" if settings.log_name is None else f": {settings.log_name}"
        text = f"Game halted: {error}. See logs for full stack trace{log or '.'}"
        return PlainTextResponse(text, 503)

    routes = [*api.routes(), *world.simulation.routes(world)]
    app = _make_app(routes, settings, clock.run, *background)
    app.exception_handlers = {
        Halted: answer_halted,
        WorldFull: _answer_refusal,
        InputError: _answer_refusal,
        ClientDisconnect: _answer_disconnected,
    }
    app.router.redirect_slashes = False
    return _gate(app, clock.catch_up, ServerAddress(settings.host, settings.port))


def create_replay_app(replay: ScriptedReplay, settings: Settings) -> ASGIApp:
    """Build the application of a world that repeats a recording.

    It serves the progress to operators, and starts the replay with the first request for it, so the
    world is up before long ticks. Every other path answers that the world is up, because the
    readiness probe of a world may use any path.

    Args:
        replay: The replay, not yet started.
        settings: Address and token.
    """
    is_wanted = anyio.Event()

    async def run() -> None:
        await is_wanted.wait()
        await replay.run()

    async def answer(request: Request) -> Response:
        return PlainTextResponse("This world repeats a recording. No agent can join it.\n")

    async def progress(request: Request) -> Response:
        if not _is_operator(request, settings.operator_token):
            raise HTTPException(401, "Invalid operator token")
        is_wanted.set()
        return _json(replay.document())

    routes = [Route(REPLAY_ROUTE, progress), Route("/{path:path}", answer)]
    app = _make_app(routes, settings, run)
    return _gate(app, lambda: None, ServerAddress(settings.host, settings.port))


def _make_app(
    routes: Sequence[BaseRoute], settings: Settings, *background: BackgroundTask
) -> Starlette:
    """Return an application below the base path, with tasks that run during its lifespan."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            for task in background:
                tasks.start_soon(task)
            yield
            tasks.cancel_scope.cancel()

    return Starlette(
        routes=[Mount(settings.base_path, routes=routes)] if settings.base_path else routes,
        lifespan=lifespan,
    )


class _Api:
    def __init__(self, world: HostedWorld, clock: WorldClock, operator_token: bytes | None) -> None:
        self._world = world
        self._clock = clock
        self._operator_token = operator_token

    def routes(self) -> list[BaseRoute]:
        return [  # the busiest first: a request is compared with one after the other
            Route(OBSERVE_ROUTE, self.observe),
            Route(INPUT_ROUTE, self.input, methods=["POST"]),
            Route(API_ROUTE, self.api_doc),
            Route(API_ALIAS_ROUTE, self.api_doc),
            Route(HEALTH_ROUTE, self.health),
            Route(JOIN_ROUTE, self.join, methods=["POST"]),
            Route(LEAVE_ROUTE, self.leave, methods=["POST"]),
            Route(CHAT_ROUTE, self.chat, methods=["POST"]),
            Route(CHAT_MESSAGES_ROUTE, self.chat_messages),
            Route(SNAPSHOT_ROUTE, self.snapshot),
        ]

    async def api_doc(self, request: Request) -> Response:
        text = self._world.simulation.api_doc
        if text is None:
            raise HTTPException(404, "No skill.md found")
        return PlainTextResponse(text, media_type="text/markdown")

    async def health(self, request: Request) -> Response:
        reason = self._world.failure
        if reason is None:
            return _json({"status": "ok", **self._report(request)})
        return _json({"status": HALTED, "reason": reason}, status=503)

    def _report(self, request: Request) -> dict[str, float | str]:
        """Return facts for the operator only: agents see neither real time nor script errors."""
        if not _is_operator(request, self._operator_token):
            return {}
        return report_fields(self._clock.rate(), self._world.simulation.script_errors)

    async def join(self, request: Request) -> Response:
        self._world.check()
        if request.headers.get(SESSION_HEADER):
            session = self._find_session(request)
        else:
            session = self._world.join(_read_name(request))
        return _json({"session": session.session, "agent_id": session.agent_id})

    async def leave(self, request: Request) -> Response:
        self._world.leave(self._find_session(request))
        return _json({"success": True})

    async def observe(self, request: Request) -> Response:
        return _json_bytes(self._world.observe(self._find_session(request)))

    async def input(self, request: Request) -> Response:
        self._find_session(request)
        body = await _read_object(request)  # the agent may leave during any await
        action = _read_text(body, "type")
        session, data = self._find_session(request), body.get("data")
        observed = await self._clock.submit(session, action, data, partial(self._observe, request))
        return _json_bytes(observed)

    def _observe(self, request: Request) -> bytes:
        """Return the observation that answers an input, whose agent may have been removed."""
        return self._world.observe(self._find_session(request), is_fresh=True)

    async def chat(self, request: Request) -> Response:
        self._find_session(request)
        body = await _read_object(request)
        content = _read_text(body, "content").strip()
        if not content:
            raise HTTPException(400, "Message content cannot be empty")
        if len(content) > MAX_CONTENT:
            raise HTTPException(400, f"Message content exceeds {MAX_CONTENT} characters")
        media_url = _read_media_url(body)
        message = self._world.say(self._find_session(request), content, media_url)
        return _json({"id": message.id, "created_at": message.created_at})

    async def chat_messages(self, request: Request) -> Response:
        chat, query = self._world.chat, request.query_params
        limit = _read_limit(query.get("limit", str(DEFAULT_MESSAGES)))
        session = self._world.sessions.find(request.headers.get(SESSION_HEADER, ""))
        after, listener = query.get("after"), None if session is None else session.agent_id
        try:
            if after is None:
                messages = chat.latest(limit, listener)
            else:
                messages = chat.after(after, limit, listener)
        except ValueError:
            raise HTTPException(400, "`after` must be a message id or a time") from None
        return _json({"messages": [message.answer() for message in messages]})

    async def snapshot(self, request: Request) -> Response:
        if not _is_operator(request, self._operator_token):
            raise HTTPException(401, "Invalid operator token")
        request.scope[PATIENT] = True  # an orchestrator may write it to a slow disk
        try:
            document = make_snapshot(self._world)
            wanted = request.headers.get(DATASTORE_HEADER)
            copy_rows = None if wanted is None else self._world.simulation.rows_copier()
            if copy_rows is not None and wanted is not None:
                await to_thread.run_sync(copy_rows, Path(os.fsdecode(unquote_to_bytes(wanted))))
            body = await to_thread.run_sync(encode_large_json, document)
        except Halted:
            raise
        except Exception as error:
            _log.exception("the snapshot failed: the world keeps running")
            raise HTTPException(500, f"No snapshot: {type(error).__name__}: {error}") from error
        headers = {"Cache-Control": "no-store"}
        if copy_rows is not None:
            headers[DATASTORE_HEADER] = "made"
        return Response(body, media_type="application/json", headers=headers)

    def _find_session(self, request: Request) -> AgentSession:
        session_id = request.headers.get(SESSION_HEADER)
        if not session_id:
            raise HTTPException(401, "Missing X-Session header")
        session = self._world.sessions.find(session_id)
        if session is None:
            if self._world.sessions.has_ended(session_id):
                raise HTTPException(400, "Not in any instance of this game")
            raise HTTPException(401, "Invalid session")
        return session


def _is_operator(request: Request, token: bytes | None) -> bool:
    given = request.headers.getlist(OPERATOR_HEADER)
    if token is None or len(given) != 1:
        return False
    return hmac.compare_digest(given[0].encode("latin-1"), token)


def _gate(app: ASGIApp, catch_up: Callable[[], None], address: ServerAddress) -> ASGIApp:
    """Return an application that passes on requests to this world, each after the due ticks."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] in _STARTS:
                message = {**message, "headers": _with_defaults(message.get("headers", ()))}
            await send(message)

        read = Headers(scope=scope).getlist
        refusal = find_refusal(address.matches, scope.get("method", ""), read, has_pages=True)
        if refusal is None:
            catch_up()
        chosen = app if refusal is None else PlainTextResponse(refusal[1], refusal[0])
        await chosen(scope, receive, send_with_headers)

    return answer


def _with_defaults(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    own = list(headers)
    names = {name.lower() for name, _ in own}
    return own + [header for header in _HEADERS if header[0] not in names]


async def _read_object(request: Request) -> dict[str, Any]:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(415, "Expected a request with `Content-Type: application/json`")
    try:
        value = read_json(await _read_body(request))
    except ValueError as error:
        raise HTTPException(400, f"Malformed JSON: {error}") from None
    if not isinstance(value, dict):
        raise HTTPException(422, "Expected a JSON object")
    return value


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise HTTPException(413, f"The body has more than {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _read_text(body: dict[str, Any], key: str) -> str:
    if key not in body:
        raise HTTPException(422, f"Missing field `{key}`")
    value = body[key]
    if not isinstance(value, str):
        raise HTTPException(422, f"`{key}` must be a string")
    return value


def _read_media_url(body: dict[str, Any]) -> str | None:
    if body.get("media_url") is None:
        return None
    url = _read_text(body, "media_url")
    if len(url) > MAX_MEDIA_URL or not re.fullmatch(r"https://[!-~]+", url):
        raise HTTPException(
            400, f"`media_url` must be an https address of at most {MAX_MEDIA_URL} characters"
        )
    return url


def _read_name(request: Request) -> str:
    name = request.query_params.get("name", "").strip()
    if not name:
        raise HTTPException(400, "Missing query parameter `name`")
    if len(name) > MAX_NAME or not is_printable(name):
        raise HTTPException(400, f"`name` must have 1 to {MAX_NAME} printable characters")
    return name


def _read_limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
        raise HTTPException(400, "`limit` must be a positive number")
    return min(int(text), MAX_MESSAGES)


def _json(value: object, status: int = 200) -> Response:
    return _json_bytes(encode_json(value), status)


def _json_bytes(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


async def _answer_refusal(request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), 400)


async def _answer_disconnected(request: Request, error: Exception) -> Response:
    return Response(status_code=408)  # the client is gone; the world did nothing wrong
