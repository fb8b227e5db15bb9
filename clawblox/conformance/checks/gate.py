"""Checks of the gates: requests that a world must refuse."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import combinations
from typing import Final

from clawblox.conformance.context import CheckContext
from clawblox.conformance.disguise import draw_word
from clawblox.conformance.exchange import Exchange
from clawblox.conformance.live import (
    JSON_BODY,
    AgentInput,
    LiveWorld,
    Player,
    is_missing,
    require_accepted,
    require_control,
    require_refused,
)
from clawblox.conformance.registry import AreaChecks, CouldNotRun, NotApplicable, NotMet
from clawblox.protocol import (
    API_ROUTE,
    CHAT_ROUTE,
    INPUT_ROUTE,
    LEAVE_ROUTE,
    OBSERVE_ROUTE,
    OPERATOR_HEADER,
    SESSION_HEADER,
    SNAPSHOT_ROUTE,
)

CHECKS: Final = AreaChecks("gate")

_QUERIES: Final = ("token", "operator_token", "operator", OPERATOR_HEADER)
_HEADERS: Final = ("X-Token", "X-Auth-Token", "X-Api-Key", "Operator-Token", SESSION_HEADER)
_FOREIGN_HOST: Final = "rebound.example"
_FOREIGN_ORIGIN: Final = "http://elsewhere.example"
_LARGE_BODY_BYTES: Final = 1 << 20
_LEAST_SESSION_CHARS: Final = 16
_LEAST_DIFFERENT_CHARS: Final = 8


async def _ask_snapshot(
    live: LiveWorld, headers: dict[str, str] | None = None, query: str = ""
) -> Exchange:
    return await live.call("GET", SNAPSHOT_ROUTE, headers=headers, query=query)


def _make_wrong_tokens(token: str) -> dict[str, str]:
    """Return wrong tokens by their description; some differ only slightly from the right token."""
    wrong = {
        "a wrong token": secrets.token_urlsafe(len(token))[: len(token)],
        "a blank token": "",
        "all but the last character of the token": token[:-1],
        "the token and one more character": f"{token}x",
        "the token in the other case": token.swapcase(),
    }
    return {what: value for what, value in wrong.items() if value != token}


@CHECKS.must(
    "snapshot_token",
    f"GET {SNAPSHOT_ROUTE} is accepted only with the right {OPERATOR_HEADER}.",
)
async def check_snapshot_tokens(ctx: CheckContext) -> str:
    """Ask for a snapshot with the right token, with wrong ones and without one."""
    async with ctx.probe.use() as live:
        wrong = _make_wrong_tokens(live.operator_token)
        require_accepted(await live.snapshot(), "the right token")
        require_refused(await _ask_snapshot(live), "a request without a token")
        for what, value in wrong.items():
            require_refused(await _ask_snapshot(live, {OPERATOR_HEADER: value}), what)
    return f"the right token was accepted; no token and {len(wrong)} wrong tokens were refused"


@CHECKS.should(
    "token_forms",
    f"The operator's token is accepted only in the header {OPERATOR_HEADER}: queries and cookies"
    " end up in logs, or are sent by browsers.",
)
async def check_token_forms(ctx: CheckContext) -> str:
    """Send the right token in other places."""
    async with ctx.probe.use() as live:
        token = live.operator_token
        require_control(await live.snapshot(), f"the token in {OPERATOR_HEADER}")
        headers = {
            "Authorization": f"Bearer {token}",
            "Cookie": f"{OPERATOR_HEADER}={token}; operator_token={token}; token={token}",
            **dict.fromkeys(_HEADERS, token),
        }
        for name in _QUERIES:
            exchange = await _ask_snapshot(live, query=f"{name}={token}")
            if exchange.is_accepted:  # the query would reveal the token
                raise NotMet(f"the token was accepted as {name}= in the query")
            require_refused(exchange, f"the token as {name}= in the query")
        for name, value in headers.items():
            require_refused(await _ask_snapshot(live, {name: value}), f"the token in {name}")
        exchange = await _ask_snapshot(live, {"Authorization": token})
        require_refused(exchange, "the bare token in Authorization")
    return f"{len(_QUERIES) + len(headers) + 1} other places were refused"


@asynccontextmanager
async def _acting(ctx: CheckContext) -> AsyncIterator[tuple[Player, AgentInput]]:
    """Yield an agent with a session, and an input that the world accepts from it.

    Raises:
        CouldNotRun: It accepts no known input, so the refusal of other agents would prove nothing.
    """
    actions = await ctx.inputs.require_actions()
    async with ctx.probe.playing() as players:
        for action in actions:
            if (await players[0].act(action)).is_accepted:
                yield players[0], action
                return
        raise CouldNotRun(f"the world refused all {len(actions)} known inputs")


async def _ask_everything(
    player: Player, action: AgentInput, session: str | None
) -> list[tuple[str, Exchange]]:
    """Send the requests of agents with another session, or without; return the existing routes."""
    live = player.live
    headers = {} if session is None else {SESSION_HEADER: session}
    exchanges = [
        (f"GET {OBSERVE_ROUTE}", await live.call("GET", OBSERVE_ROUTE, headers=headers)),
        (f"POST {INPUT_ROUTE}", await live.post(INPUT_ROUTE, action.body, headers=headers)),
        (f"POST {CHAT_ROUTE}", await live.post(CHAT_ROUTE, {"content": "me"}, headers=headers)),
        (f"POST {LEAVE_ROUTE}", await live.call("POST", LEAVE_ROUTE, headers=headers)),
    ]
    return [(what, exchange) for what, exchange in exchanges if not is_missing(exchange)]


@CHECKS.must("sessions", f"Agents observe, act, talk and leave only with their {SESSION_HEADER}.")
async def check_missing_sessions(ctx: CheckContext) -> str:
    """Send the requests of agents without a session."""
    async with _acting(ctx) as (player, action):
        require_control(await player.observe(), "an observation with a session")
        exchanges = await _ask_everything(player, action, None)
    for what, exchange in exchanges:
        require_refused(exchange, f"{what} without a session")
    return f"{len(exchanges)} requests without a session were refused"


@CHECKS.must("unknown_session", "A session that the world never issued is refused.")
async def check_unknown_sessions(ctx: CheckContext) -> str:
    """Send the requests of agents with made-up sessions, one of which looks like a real one."""
    count = 0
    async with _acting(ctx) as (player, action):
        require_control(await player.observe(), "an observation with a known session")
        for session in (_make_session(player.session), draw_word(ctx.instances.random("session"))):
            for what, exchange in await _ask_everything(player, action, session):
                require_refused(exchange, f"{what} with an unknown session")
                count += 1
    return f"{count} requests with unknown sessions were refused"


def _make_session(like: str) -> str:
    """Return a session that was never issued but has the form of a real one."""
    digits = re.sub("[0-9]", lambda _: secrets.choice("0123456789"), like)
    made = re.sub("[a-f]", lambda _: secrets.choice("abcdef"), digits)
    return made if made != like else f"{like}0"


@CHECKS.should(
    "adoption",
    "POST /join with an unknown session is refused, or returns a fresh session, since another"
    " agent could choose the same session.",
)
async def check_adoption(ctx: CheckContext) -> str:
    """Join with a session that was never issued."""
    async with ctx.probe.playing() as players:
        live = players[0].live
        session = _make_session(players[0].session)
        exchange = await live.visit("Adopted", session=session)
    if not exchange.is_accepted:
        require_refused(exchange, "a join with an unknown session")
        return f"the session was refused with {exchange.status}"
    if exchange.fields.get("session") == session:
        raise NotMet("the world adopted a session that it had never issued", exchange=exchange)
    return "the world issued another session instead"


@CHECKS.should(
    "fresh_sessions",
    "Sessions issued after a restore are new: an agent of another run must not know them.",
    needs_directory=True,
)
async def check_fresh_sessions(ctx: CheckContext) -> str:
    """Compare the sessions of the next agent in the original and in two restored worlds."""
    late_joiners = await (await ctx.comparison()).require_late_joiners()
    lives = ("the original after the save", "a restored world", "another restored world")
    named = zip(lives, (late_joiner.player.session for late_joiner in late_joiners), strict=True)
    for (first, one), (second, other) in combinations(named, 2):
        if one == other:
            raise NotMet(f"{second} issued the same session as {first}")
    count = len(late_joiners)
    return f"{count} runs from the same save issued different sessions to their next agents"


@CHECKS.should(
    "foreign_host",
    "Requests with a foreign Host are refused, so that a web page whose name resolves to this"
    " machine cannot play.",
)
async def check_foreign_hosts(ctx: CheckContext) -> str:
    """Send requests of an agent with a foreign ``Host``."""
    async with ctx.probe.playing() as players:
        player = players[0]
        require_control(await player.observe(), "an observation with the world's own Host")
        headers = {SESSION_HEADER: player.session}
        for route in (API_ROUTE, OBSERVE_ROUTE):
            exchange = await player.live.call("GET", route, headers=headers, host=_FOREIGN_HOST)
            require_refused(exchange, f"GET {route} with Host: {_FOREIGN_HOST}")
    return f"2 requests with Host: {_FOREIGN_HOST} were refused"


@CHECKS.should("foreign_origin", "Requests with the Origin of a foreign web page are refused.")
async def check_foreign_origins(ctx: CheckContext) -> str:
    """Send requests of an agent with a foreign ``Origin``."""
    async with _acting(ctx) as (player, action):
        require_control(await player.observe(), "an observation without an Origin")
        headers = {SESSION_HEADER: player.session, "Origin": _FOREIGN_ORIGIN}
        observed = await player.live.call("GET", OBSERVE_ROUTE, headers=headers)
        acted = await player.live.post(INPUT_ROUTE, action.body, headers=headers)
    require_refused(observed, f"GET {OBSERVE_ROUTE} with Origin: {_FOREIGN_ORIGIN}")
    require_refused(acted, f"POST {INPUT_ROUTE} with Origin: {_FOREIGN_ORIGIN}")
    return f"2 requests with Origin: {_FOREIGN_ORIGIN} were refused"


@CHECKS.should("large_body", "A body of 1 MB is refused, and the world continues.")
async def check_large_bodies(ctx: CheckContext) -> str:
    """Send an input with much padding."""
    async with _acting(ctx) as (player, action):
        body = json.dumps({**action.body, "padding": "x" * _LARGE_BODY_BYTES}).encode()
        headers = {**JSON_BODY, SESSION_HEADER: player.session}
        exchange = await player.live.call("POST", INPUT_ROUTE, headers=headers, body=body)
        after = await player.observe()
    require_accepted(after, "an observation after a body of 1 MB")
    if exchange.answer is None:  # the connection was cut, which counts as a refusal
        return f"the connection was closed: {exchange.failure}"
    if exchange.is_accepted:  # the request is too long for the report
        raise NotMet(f"an input of {len(body)} bytes was accepted with {exchange.status}")
    require_refused(exchange, f"an input of {len(body)} bytes")
    return f"it was refused with {exchange.status}"


@CHECKS.should(
    "limits",
    "No more agents than max_players of world.toml can join.",
    needs_directory=True,
)
async def check_limits(ctx: CheckContext) -> str:
    """Let one more agent join than the world has places."""
    limit = ctx.instances.require_world().config.get("max_players")
    if limit is None:
        raise NotApplicable("world.toml has no max_players")
    baseline = await ctx.baseline()
    if baseline.overflow is None:
        raise CouldNotRun(
            f"{limit} agents could not join: {baseline.failure or 'there are too many'}"
        )
    require_refused(baseline.overflow, f"a join after {limit} agents")
    return f"after {limit} agents, the next was refused with {baseline.overflow.status}"


@CHECKS.should("session_ids", "Sessions cannot be guessed: they are long, and no counters.")
async def check_session_ids(ctx: CheckContext) -> str:
    """Compare the sessions of three agents."""
    async with ctx.probe.playing() as players:
        sessions = [player.session for player in players]
        issued = (await players[0].live.visit("Guest")).fields.get("session")
        sessions += [issued] if isinstance(issued, str) else []
    if len(sessions) < 2:
        raise CouldNotRun("only one agent could join")
    shortest = min(map(len, sessions))
    if shortest < _LEAST_SESSION_CHARS:
        raise NotMet(f"a session has only {shortest} characters")
    different = min(_count_different(*pair) for pair in combinations(sessions, 2))
    if different < _LEAST_DIFFERENT_CHARS:
        raise NotMet(f"two sessions differ in only {different} of {shortest} characters")
    return (
        f"{len(sessions)} sessions of {shortest} characters or more differ in at least {different}"
    )


def _count_different(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(first != second for first, second in pairs) + abs(len(one) - len(other))
