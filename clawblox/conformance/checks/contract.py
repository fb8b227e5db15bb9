"""Checks of the routes: the answers to correct and slightly incorrect requests of agents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import anyio

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance.context import CheckContext
from clawblox.conformance.exchange import Exchange
from clawblox.conformance.failed_starts import PortWatch, find_free_port, is_open, summarize_start
from clawblox.conformance.live import (
    CALL_TIMEOUT_S,
    JSON_BODY,
    LiveWorld,
    Player,
    is_missing,
    require_accepted,
    require_control,
    require_refused,
)
from clawblox.conformance.registry import AreaChecks, CouldNotRun, NotApplicable, NotMet
from clawblox.differences import ValueDifference
from clawblox.errors import (
    WorldCallError,
    WorldExitedBeforeReadyError,
    WorldReadyTimeoutError,
    WorldStartError,
)
from clawblox.protocol import (
    API_ALIAS_ROUTE,
    API_ROUTE,
    INPUT_ROUTE,
    JOIN_ROUTE,
    LEAVE_ROUTE,
    SESSION_HEADER,
)
from clawblox.snapshot.header import InvalidDocument, parse_header
from clawblox.system.connection import AnswerTooLargeError, Connection, Delivery
from clawblox.system.request import MAX_ANSWER_BYTES, make_request, parse_address

CHECKS: Final = AreaChecks("contract")

_BASE_PATH: Final = "/worlds/w1"
_OTHER_LOOPBACK: Final = "127.0.0.2"
"""Address that is reachable only if a world listens on every address instead of 127.0.0.1."""
_MOST_ACTIONS: Final = 8
_TEXT: Final = "Is anybody here?"
_LONG_BODY: Final = json.dumps({"padding": "x" * 6000}).encode()
_BODIED: Final = (
    (INPUT_ROUTE, ""),  # refused without a session
    (JOIN_ROUTE, "name=Bodied"),
    ("/no-such-route", ""),
)
"""Routes and queries of requests whose body the world may ignore."""
_MALFORMED: Final[Sequence[tuple[str, str, bytes]]] = (
    ("an input that is cut off", "application/json", b'{"type": "Wait", "data":'),
    ("an input that is a list", "application/json", b"[]"),
    ("an input without a type", "application/json", b'{"data": {}}'),
    ("an input whose type is a number", "application/json", b'{"type": 7}'),
    ("an input that is not UTF-8", "application/json", b'{"type": "\xff\xfe"}'),
    ("an input without a body", "application/json", b""),
    ("an input as a form", "application/x-www-form-urlencoded", b"type=Wait"),
)


@CHECKS.must("ready", f"A world becomes ready: GET {API_ROUTE} is answered with 200.")
async def check_readiness(ctx: CheckContext) -> str:
    """Ask for the documentation without any header of the interface."""
    try:
        async with ctx.probe.use() as live:
            exchange = await live.call("GET", API_ROUTE)
    except WorldStartError as error:
        if not ctx.instances.is_startable:  # the world has never started
            raise
        raise NotMet(summarize_start("did not become ready", error)) from None
    if exchange.status != 200:
        raise NotMet(f"the answer was {exchange.outcome}", exchange=exchange)
    after = "" if live.started is None else f" {live.started.ready_s:.2f} s after its start"
    return f"it answered 200{after}"


@CHECKS.should("alias", f"{API_ALIAS_ROUTE} returns the same document as {API_ROUTE}.")
async def check_alias(ctx: CheckContext) -> str:
    """Compare the two documents."""
    async with ctx.probe.use() as live:
        document, alias = [await live.call("GET", route) for route in (API_ROUTE, API_ALIAS_ROUTE)]
    require_accepted(alias, f"GET {API_ALIAS_ROUTE}")
    if document.content != alias.content:
        sizes = f"{len(document.content)} and {len(alias.content)} bytes"
        raise NotMet(f"the two documents differ ({sizes})", exchange=alias)
    return f"both have the same {len(alias.content)} bytes"


@CHECKS.must(
    "join",
    f"POST {JOIN_ROUTE} needs no body and returns a session and an agent id, both texts that are"
    " unique to each agent.",
)
async def check_join(ctx: CheckContext) -> str:
    """Compare the answers to the joins of two agents."""
    async with ctx.probe.use() as live:
        await ctx.probe.fill(live)
        agents = list(live.players)
    for player in agents:
        if not player.agent_id:
            raise NotMet(f"the answer to the join of {player.name} has no text as agent_id")
    if len(agents) < 2:
        return "one agent got a session and an agent id; the world has no place for a second"
    for what in ("session", "agent_id"):
        if len({getattr(player, what) for player in agents}) < len(agents):
            names = " and ".join(player.name for player in agents)
            raise NotMet(f"{names} got the same {what}")
    return f"{len(agents)} agents got sessions and agent ids that differ"


@CHECKS.should(
    "rejoin",
    f"POST {JOIN_ROUTE} with a known {SESSION_HEADER} returns the same session and agent.",
)
async def check_rejoin(ctx: CheckContext) -> str:
    """Join with a session that is in use."""
    async with ctx.probe.playing() as players:
        player = players[0]
        exchange = await player.rejoin()
        fields = exchange.fields
        if exchange.is_accepted and fields.get("session") not in (None, player.session):
            await Player(player.live, player.name, str(fields["session"]), "").leave()
    require_accepted(exchange, "a join with a known session")
    known = {"session": player.session, "agent_id": player.agent_id}
    for key, value in known.items():
        if fields.get(key) != value:
            difference = None
            if key == "agent_id":  # sessions are secret
                difference = ValueDifference(f"body.{key}", value, fields.get(key))
            evidence = f"the answer has another {key} than the first join"
            raise NotMet(evidence, exchange=exchange, difference=difference)
    return "session and agent id were the same"


class _NotStrictError(ValueError):
    """A document is not strict JSON; the text has the reason."""


def _refuse_constant(text: str) -> None:
    raise _NotStrictError(f"it has {text}, which is not JSON")


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        repeated = max(counts, key=counts.__getitem__)
        raise _NotStrictError(f"an object has the key {repeated!r} twice")
    return document


def require_object(exchange: Exchange, what: str) -> dict[str, Any]:
    """Return the JSON object in an answer.

    Args:
        exchange: The request.
        what: The answer in words, as the start of a sentence.

    Raises:
        Failed: The answer is not a UTF-8 JSON object without ``NaN`` and duplicate keys.
    """
    try:
        document = json.loads(
            exchange.content.decode(),
            parse_constant=_refuse_constant,
            object_pairs_hook=_refuse_repeated,
        )
    except (ValueError, RecursionError) as error:
        reason = f": {error}" if isinstance(error, _NotStrictError) else f": {exchange.outcome}"
        raise NotMet(f"{what} is not strict JSON{reason}", exchange=exchange) from None
    if not isinstance(document, dict):
        raise NotMet(f"{what} is not a JSON object: {exchange.outcome}", exchange=exchange)
    return document


@CHECKS.must("observe", "An observation is a JSON object in strict JSON.")
async def check_observation(ctx: CheckContext) -> str:
    """Parse the observations of the agents strictly."""
    async with ctx.probe.playing() as players:
        exchanges = [await player.observe() for player in players]
    for player, exchange in zip(players, exchanges, strict=True):
        require_accepted(exchange, f"an observation of {player.name}")
        require_object(exchange, f"the observation of {player.name}")
    return f"{len(exchanges)} observations of {len(exchanges[0].content)} bytes are objects"


@CHECKS.should(
    "time",
    "Observations contain the simulated time, as a number time or tick at the top level.",
)
async def check_observed_time(ctx: CheckContext) -> str:
    """Look for the simulated time in an observation."""
    async with ctx.probe.playing() as players:
        exchange = await players[0].observe()
    require_accepted(exchange, "an observation")
    time = exchange.time
    if time is None:
        keys = ", ".join(list(exchange.fields)[:12]) or "none"
        raise NotMet(f"neither key exists; the keys are: {keys}", exchange=exchange)
    return f"the time was {time:g}"


@CHECKS.must(
    "input",
    "An accepted input is answered with a fresh observation whose time has not gone back; in a"
    " world that stands still between inputs, inputs advance the time.",
)
async def check_inputs(ctx: CheckContext) -> str:
    """Send each known input, and compare the times of the answers."""
    actions = (await ctx.inputs.require_actions())[:_MOST_ACTIONS]
    comparison = await ctx.comparison()
    async with ctx.probe.playing() as players:
        before = await players[0].observe()
        exchanges = [await player.act(action) for action in actions for player in players]
    accepted = [exchange for exchange in exchanges if exchange.is_accepted]
    if not accepted:
        outcome = exchanges[0].outcome
        raise CouldNotRun(f"the world refused all {len(exchanges)} inputs; the first: {outcome}")
    for exchange in accepted:
        require_object(exchange, "the answer to an input")
    times = [exchange.time for exchange in (before, *accepted)]
    stated = [time for time in times if time is not None]
    if len(stated) < len(times):
        raise CouldNotRun(f"{len(accepted)} inputs were accepted, but not all answers have a time")
    for exchange, earlier, later in zip(accepted, stated, stated[1:], strict=False):
        if later < earlier:
            difference = ValueDifference("body.time", earlier, later)
            raise NotMet("time went back", exchange=exchange, difference=difference)
    if not comparison.runs_by_itself and stated[-1] == stated[0]:
        evidence = f"after {len(accepted)} accepted inputs the time was still {stated[0]:g}"
        raise NotMet(evidence, exchange=accepted[-1])
    return (
        f"{len(accepted)} of {len(exchanges)} inputs were accepted, at times from {stated[1]:g} to"
        f" {stated[-1]:g}"
    )


@CHECKS.must(
    "malformed",
    f"A malformed POST {INPUT_ROUTE} is refused with 4xx, and the world continues.",
)
async def check_malformed_inputs(ctx: CheckContext) -> str:
    """Send inputs that no agent should send."""
    async with ctx.probe.playing() as players:
        player = players[0]
        for what, content_type, body in _MALFORMED:
            headers = {SESSION_HEADER: player.session, "Content-Type": content_type}
            exchange = await player.live.call("POST", INPUT_ROUTE, headers=headers, body=body)
            if is_missing(exchange):
                raise CouldNotRun(f"the world takes no inputs: {exchange.outcome}")
            require_refused(exchange, what)
            require_accepted(await player.observe(), f"an observation after {what}")
    return f"{len(_MALFORMED)} malformed inputs were refused"


@CHECKS.must("chat", "A chat message reaches the other agents, with its content and a created_at.")
async def check_chat(ctx: CheckContext) -> str:
    """Let one agent talk and the other listen."""
    async with ctx.probe.playing() as players:
        speaker, listener = players[0], players[-1]
        said = await speaker.say(_TEXT)
        heard, own = await listener.hear(), await speaker.hear()
    if is_missing(said) and is_missing(heard):
        raise NotApplicable(f"the world has no chat: {said.outcome}")
    require_accepted(said, "a chat message")
    require_accepted(heard, "the question for chat messages")
    if (message := _find_message(heard)) is None:
        if ctx.instances.config.get("speech") and _find_message(own) is not None:
            raise CouldNotRun("only the author heard it, and world.toml limits who hears whom")
        raise NotMet("the other agent did not get the message", exchange=heard)
    if "created_at" not in message:
        keys = ", ".join(map(str, message))
        raise NotMet(f"the message has no created_at; its keys are: {keys}", exchange=heard)
    if speaker is listener:
        raise NotApplicable("max_players is 1: there is no other agent, and its author heard it")
    return f"the other agent heard it, with created_at {message['created_at']!r}"


def _find_message(exchange: Exchange) -> dict[str, Any] | None:
    messages = exchange.fields.get("messages")
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("content") == _TEXT:
            return message
    return None


@CHECKS.must("leave", "After POST /leave the session is no longer valid.")
async def check_leave(ctx: CheckContext) -> str:
    """Let an agent leave, and observe with its session."""
    async with ctx.probe.playing() as players:
        player = players[-1]
        require_control(await player.observe(), "an observation before the agent left")
        left = await player.leave()
        if is_missing(left):
            raise NotApplicable(f"agents cannot leave the world: {left.outcome}")
        players.remove(player)
        after = await player.observe()
    require_accepted(left, f"POST {LEAVE_ROUTE}")
    require_refused(after, "an observation after the agent left")
    return f"the session was refused with {after.status}"


@CHECKS.must(
    "keep_alive",
    "After a POST with a body of some KB, accepted or refused, the connection can be used for the"
    " next request, or Connection: close announces its end.",
)
async def check_kept_connections(ctx: CheckContext) -> str:
    """Send two requests on one connection, the first with a body that the world may ignore."""
    announced = 0
    async with ctx.probe.use() as live:
        for route, query in _BODIED:
            first, second = await _ask_twice(live, route, query)
            session = first.fields.get("session") if route == JOIN_ROUTE else None
            if isinstance(session, str):
                await Player(live, "Bodied", session, "").leave()
            if second is None:
                announced += 1
            elif second.status != 200:
                evidence = (
                    f"after POST {route} with {len(_LONG_BODY)} bytes ({first.status}), the next"
                    f" request on the connection failed: {second.outcome}"
                )
                raise NotMet(evidence, exchange=first)
    kept = len(_BODIED) - announced
    return f"{kept} connections were kept, and the end of {announced} was announced"


async def _ask_twice(live: LiveWorld, route: str, query: str) -> tuple[Exchange, Exchange | None]:
    """Return the answers to two requests on one connection; the second is None if it was closed."""
    address = parse_address(live.url)
    connection = Connection(address.host, address.port)

    async def ask(method: str, route: str, query: str, body: bytes | None) -> Exchange:
        headers = {} if body is None else JSON_BODY
        request = make_request(address, method, route, query, headers)
        answer, failure = None, ""
        try:
            with anyio.fail_after(CALL_TIMEOUT_S):
                answer = await connection.exchange(
                    request, request.encode(body), MAX_ANSWER_BYTES, Delivery()
                )
        except AnswerTooLargeError as error:
            raise CouldNotRun(error.headline) from None
        except (WorldCallError, TimeoutError) as error:
            failure = str(error) or f"no answer within {CALL_TIMEOUT_S:g} s"
        url = f"{live.url}{route}{'?' if query else ''}{query}"
        return Exchange(method, url, headers, body, None, answer, failure)

    try:
        first = await ask("POST", route, query, _LONG_BODY)
        if first.answer is None:
            raise NotMet(f"POST {route} with a body: {first.failure}", exchange=first)
        if not connection.is_open:
            return first, None
        return first, await ask("GET", API_ROUTE, "", None)
    finally:
        connection.close()


@CHECKS.must(
    "environment",
    "Only WORLD_HOST and WORLD_PORT decide where a world listens.",
    needs_directory=True,
)
async def check_environment(ctx: CheckContext) -> str:
    """Check the address on which the probe instance listens."""
    async with ctx.probe.use() as live:
        assert live.started is not None
        port = live.started.port
        if await is_open(_OTHER_LOOPBACK, port):
            raise NotMet(f"WORLD_HOST was 127.0.0.1, but it listens on {_OTHER_LOOPBACK} as well")
    return f"it listened on port {port} of 127.0.0.1, and not on {_OTHER_LOOPBACK}"


@CHECKS.should("base_path", "WORLD_BASE_PATH is the prefix of every route.", needs_directory=True)
async def check_base_path(ctx: CheckContext) -> str:
    """Start the world with a base path, and play below it."""
    async with ctx.probe.use():  # shows how long a start takes
        pass
    try:
        async with ctx.instances.start(base_path=_BASE_PATH, timeout=ctx.probe.patience) as live:
            player = await live.join(ctx.instances.names[0])
            require_accepted(await player.observe(), f"an observation below {_BASE_PATH}")
    except (WorldExitedBeforeReadyError, WorldReadyTimeoutError) as error:
        reason = str(error).partition("\n")[0]
        raise NotMet(f"with WORLD_BASE_PATH={_BASE_PATH} it was not ready: {reason}") from None
    return f"an agent joined and observed below {_BASE_PATH}"


@CHECKS.should(
    "flags",
    "Flags of the world's command override the environment: --port counts, not WORLD_PORT.",
    needs_directory=True,
)
async def check_flags(ctx: CheckContext) -> str:
    """Start a copy of the world whose command ends in ``--port``."""
    if ctx.instances.require_world().run_command is None:
        raise NotApplicable("the world has no command of its own")
    async with ctx.probe.use():  # shows how long a start takes
        pass
    flag, environment = [await run_blocking(find_free_port) for _ in range(2)]

    def append_flag(document: Any) -> None:  # noqa: ANN401 - of tomlkit
        document["run"]["command"] = [*document["run"]["command"], "--port", str(flag)]
        document["run"].pop("listen", None)  # an inherited socket would be bound to WORLD_PORT

    variant = ctx.instances.variant("flags", append_flag)
    async with variant as world, anyio.create_task_group() as tasks:
        watch = PortWatch(flag)
        reason = ""

        async def start() -> None:
            nonlocal reason
            try:
                await ctx.instances.begin(world, ctx.probe.patience, port=environment)
                reason = f"it served on WORLD_PORT={environment}, not on --port {flag}"
            except WorldExitedBeforeReadyError as error:
                line = error.log_lines[-1] if error.log_lines else str(error.exit)
                reason = f"it does not accept --port: {line}"
            except WorldStartError as error:
                reason = str(error).partition("\n")[0]
            if not watch.was_open:
                tasks.cancel_scope.cancel()

        tasks.start_soon(start)
        await watch.run()
        tasks.cancel_scope.cancel()
    if watch.was_open:
        return f"with --port {flag} and WORLD_PORT={environment} it served on {flag}"
    if reason.startswith("it takes no"):
        raise NotApplicable(reason)
    raise NotMet(reason)


@CHECKS.should(
    "snapshot_header",
    "A snapshot is strict JSON with a text format and a number time at the top level.",
)
async def check_snapshot_header(ctx: CheckContext) -> str:
    """Read the top level of a snapshot, also with the parser of saves."""
    async with ctx.probe.use() as live:
        exchange = await live.snapshot()
    require_accepted(exchange, "the request for a snapshot")
    document = require_object(exchange, "the snapshot")
    try:
        header = parse_header(exchange.content)
    except InvalidDocument as error:  # for example nested thousands of levels deep
        raise NotMet(f"the snapshot is not strict JSON: {error}", exchange=exchange) from None
    if header.format is None:
        raise NotMet(f"its format is {document.get('format')!r}, not a text", exchange=exchange)
    if header.time is None:
        raise NotMet(f"its time is {document.get('time')!r}, not a number", exchange=exchange)
    return f"its format is {header.format}, its time {header.time:g}"


@CHECKS.should(
    "scene_identity",
    "A snapshot identifies the content of its world, for example by a scene hash.",
    needs_directory=True,
)
async def check_identity(ctx: CheckContext) -> str:
    """Look for a hash that stays the same while the world changes."""
    identity = (await ctx.baseline()).find_identity()
    if not identity:
        raise NotMet("no text at its top level looks like a hash of the content and stays the same")
    return f"it has {', '.join(f'{key} = {value[:16]}' for key, value in identity.items())}"


@CHECKS.must(
    "answer_size",
    f"An answer to an agent has at most {MAX_ANSWER_BYTES >> 20} MiB, the limit of clawblox and of"
    " the agents that it runs.",
    is_last=True,
)
async def check_answer_sizes(ctx: CheckContext) -> str:
    """Observe and read the chat, and compare the sizes of all answers to the checks."""
    reason = None
    try:
        async with ctx.probe.playing() as players:
            await players[0].observe()
            await players[0].hear()
    except CouldNotRun as failure:
        reason = failure
    for live in ctx.instances.lives:
        if live.too_large is not None:
            raise NotMet(live.too_large.failure, exchange=live.too_large)
    if reason is not None:
        raise reason
    return f"the largest answer had {max(live.largest_bytes for live in ctx.instances.lives)} bytes"
