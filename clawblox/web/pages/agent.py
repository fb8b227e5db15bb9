"""The page of an agent: its state and reason, its turns over time, its steps, and next commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from clawblox.agents.status import AgentStatus
from clawblox.agents.trajectory import AgentTurn, StepWindow, read_window
from clawblox.errors import ClawbloxError
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import format_utc_ms, parse_since
from clawblox.team.record import read_team
from clawblox.telemetry.log_segments import log_end
from clawblox.views.agent_strip import Strip, draw_strip
from clawblox.views.agent_words import (
    describe_budget,
    describe_call,
    describe_turn_shortly,
    explain_state,
    one_line,
    pretty,
    read_calls,
    read_offset,
    read_texts,
    to_seconds,
)
from clawblox.views.formatting import count_words, format_cost, format_count, suggest
from clawblox.views.html import Child, Markup, PageAddress, element, join, link, void
from clawblox.web.agent_log import AgentView, opened_agent
from clawblox.web.agent_steps import StepDrawer, draw_checkpoint
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pages.log import draw_search
from clawblox.web.pages.run import draw_origins
from clawblox.web.pieces import commands, facts, moment, state_mark
from clawblox.web.run_history import RunSave
from clawblox.web.shared_address import share
from clawblox.web.site import NoSuchPage

_MAX_TURNS: Final = 80
_MAX_WHY: Final = 500
_MAX_NOW: Final = 220
_TAIL_BYTES: Final = 1 << 15
_GROWN_BYTES: Final = 1 << 16
_PART_CHARS: Final = 60_000
_STILL: Final = "-"
"""The cursor of steps that no longer grow."""
_CURSOR: Final = re.compile("[0-9]{1,15}")
_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_LEGEND: Final = (
    "▭ a turn; its fill is output · ▼ a message · ○ a checkpoint · ✕ the world died, > was started "
    "again · ┃ a call of the steps below (line); under it: retry, limit or error"
)


def make_page(ask: Ask, ident: str, agent_ident: str) -> Page:
    """Return the page of an agent; without parameters it shows the end of the log.

    ``at`` is the byte of the first step; ``before`` is the byte before which the steps end.
    ``since`` is a UTC time or a duration until now, ``minute`` a number of minutes since the first
    turn, ``t`` a simulated time, and ``utc`` a host time.
    """
    run = ask.site.find_run(ident)
    agent = ask.site.find_agent(run, agent_ident)
    try:
        with opened_agent(ask, run, agent) as view:
            parts = [*_make_parts(view)]
    except (ClawbloxError, OSError) as error:
        words = f"Its log cannot be shown: {error}"[:_MAX_WHY]
        parts = [Part("why", _explain(agent, None)), Part("log", element("p", words))]
    return Page(
        agent.name,
        ask.crumbs(run),
        parts,
        is_live=not agent.is_over,
        share=share(run, "agent", agent.name),
    )


def _make_parts(view: AgentView) -> Iterator[Part]:
    tail = read_window(view.turns, max_bytes=_TAIL_BYTES)
    at, before = view.ask.whole("at"), view.ask.whole("before")
    if at is None and before is None and (utc := _find_time(view)):
        at = view.turns.find_time(utc)
    window = view.read_window(at, before)
    is_tail = (at is None and before is None) or not window.has_later
    yield Part("why", _explain(view.agent, view.turns.last))
    yield Part("facts", join((_draw_facts(view), _draw_now(view, tail), _draw_commands(view))))
    yield Part("strip", _draw_strip(view, window))
    yield Part("find", _draw_forms(view))
    yield Part("outline", _draw_outline(view, window))
    yield _make_steps(view, window, is_tail=is_tail)
    yield Part("end", join(_draw_end(view, window, tail, is_tail=is_tail)))


# -- the head ------------------------------------------------------------------------------------


def _explain(agent: AgentStatus, last: AgentTurn | None) -> Markup:
    """Return a sentence about the reason of the agent's state."""
    state = element("b", state_mark(agent.state))
    why = explain_state(agent, last)
    return element("p", state, why, " · latest ", moment(agent.time), class_="summary")


def _draw_facts(view: AgentView) -> Markup:
    agent, own, context = view.agent, view.agent.own_usage, view.turns.context
    read = own.tokens - own.output_tokens
    cached = f" {100 * own.cached_tokens // read} % cached" if read else ""
    came = format_cost(agent.inherited.cost_usd or None)
    inherited = came and f" and {came} inherited"
    budget = ""
    with suppress(ClawbloxError):
        team = read_team(view.run.directory)
        recorded = None if team is None else team.find(agent.name)
        if recorded is not None and recorded.budget is not None:
            budget = describe_budget(recorded.budget, agent.usage)
    pairs = (
        ("Program", f"{agent.driver} {context.version[:40]}".rstrip()),
        ("Model", context.model[:60]),
        ("Turns", str(own.turns)),
        ("Output", format_count(own.output_tokens)),
        ("Input", _noted(format_count(read), cached)),
        ("Cost", _noted(format_cost(own.cost_usd) or "not reported", inherited)),
        ("Budget", budget),
        ("Sandbox", agent.sandbox),
        ("Conversation", (agent.session_id or "")[:8]),
        ("Came from", join(draw_origins(view.ask, view.run, view.world.history), ", ")),
    )
    return facts(pairs)


def _noted(value: str, note: str) -> Child:
    return value and join((value, element("small", note, class_="muted")))


def _draw_now(view: AgentView, tail: StepWindow) -> Markup | None:
    """Return the agent's last call or words."""
    name = element("b", "last" if view.agent.is_over else "now")
    for step in reversed(tail.steps):
        calls = [describe_call(call) for call in read_calls(step)]
        if step["source"] == "agent" and (words := [step["message"], *calls][-1]):
            to = view.to(fragment=f"o{read_offset(step)}")
            return element("p", link(name, to), " ", one_line(words, _MAX_NOW), id="latest")
    return None


def _draw_commands(view: AgentView) -> Markup:
    place, is_over = view.agent.dir, view.agent.is_over
    saved = [one for one in view.world.history.saves if not (one.instance or one.removed_at)]
    suggested = {
        "Send it a message": "" if is_over else suggest("agent send", place, "TEXT"),
        "Stop it": "" if is_over else suggest("agent stop", place),
        "Continue from its latest checkpoint": RunSave(view.run, saved[0]).command if saved else "",
        "Export its trajectory": suggest("trajectory", place),
    }
    head = element("summary", "To continue")
    return element("details", head, commands(suggested), id="commands")


# -- places --------------------------------------------------------------------------------------


def _find_time(view: AgentView) -> str | None:
    """Return the requested UTC time; None if no time is requested."""
    query, axis = view.ask.query, view.world.axis
    with suppress(ValueError):
        if utc := query.get("since") or query.get("utc"):
            return parse_since(utc)
    minute, simulated = (_NUMBER.fullmatch(query.get(name, "")) for name in ("minute", "t"))
    if minute and (begin := _find_begin(view)) is not None:
        return format_utc_ms(round((begin + 60 * float(minute[0])) * 1e9))
    place = axis.place_time(float(simulated[0])) if simulated else None
    return place.utc if place else None


def _find_begin(view: AgentView) -> float | None:
    """Return the start of the first turn in seconds since 1970; None if unknown."""
    return to_seconds(view.turns.turns[0].started_at) if view.turns.turns else None


def _draw_forms(view: AgentView) -> Markup:
    begin, end = _find_begin(view), to_seconds(view.agent.time)
    last = "" if begin is None or end is None else f", 0 to {(end - begin) // 60:.0f}"
    fields = {"minute": f"minute{last}"}
    if view.world.axis.is_simulated:
        fields["t"] = "simulated time"
    forms = [draw_search(view.ask, "/".join(view.path))]
    for name, words in fields.items():
        value = view.ask.query.get(name, "")
        given = {"name": name, "value": value, "placeholder": words, "aria_label": words}
        field = void("input", type="number", step="any", **given)
        go = element("button", f"Go to {words.partition(',')[0]}", type="submit")
        forms.append(element("form", field, go, method="get", action=view.to(fragment="steps")))
    return element("div", *forms, class_="row")


def _draw_strip(view: AgentView, window: StepWindow) -> Markup:
    world, timed = view.world, [one for one in window.steps if "timestamp" in one]
    strip = Strip(
        turns=view.turns.turns,
        latest=view.agent.time,
        calls=[one["timestamp"] for one in timed for _ in read_calls(one)],
        marks=[*_list_marks(view)],
        view=(timed[0]["timestamp"], timed[-1]["timestamp"]) if timed else None,
        simulated=lambda utc: found[1] if (found := world.find_time(utc)) else None,
        address=lambda turn: _to_turn(view, turn),
    )
    note = "" if world.axis.is_simulated else f" · {world.axis.note}"
    picture = element("div", draw_strip(strip).part(), class_="scroll", tabindex="0")
    return join((picture, element("p", _LEGEND, note, class_="muted small")))


def _list_marks(view: AgentView) -> Iterator[tuple[str, str, str]]:
    for save in view.world.checkpoints:
        yield "save", save.created_at or "", f"checkpoint {save.path.name}"
    for point in view.world.axis.points:
        if point.kind in ("crash", "restart"):
            yield point.kind, point.place.utc, f"the world {point.label}"


def _to_turn(view: AgentView, turn: AgentTurn) -> PageAddress:
    return view.to(at=turn.start, fragment=f"turn-{turn.start}")


def _draw_outline(view: AgentView, window: StepWindow) -> Markup:
    turns, shown = view.turns.turns, view.turns.find_turn(window.first)
    first = max(0, turns.index(shown) - _MAX_TURNS // 2) if shown else 0
    rows = [link(f"{first} earlier", _to_turn(view, turns[0]))] if first else []
    for turn in turns[first : first + _MAX_TURNS]:
        words = (element("b", str(turn.number)), element("span", describe_turn_shortly(turn)))
        is_shown = turn.start < window.last and (turn.end is None or turn.end > window.first)
        place, kind = f"turn-{turn.start}", "shown" if is_shown else None
        to = PageAddress(f"#{place}") if is_shown else _to_turn(view, turn)
        rows.append(link(join(words), to, data_turn=place, class_=kind))
    if later := len(turns[first + _MAX_TURNS :]):
        rows.append(link(f"{later} later", view.to()))
    return element("nav", element("ol", *(element("li", row) for row in rows)), aria_label="Turns")


# -- steps ---------------------------------------------------------------------------------------


def _make_steps(view: AgentView, window: StepWindow, *, is_tail: bool) -> Part:
    cursor = view.ask.cursors.get("steps", "")
    if cursor == _STILL:
        return Part("steps", join(()), _STILL)
    if _CURSOR.fullmatch(cursor):
        grown = read_window(view.turns, int(cursor), max_bytes=_GROWN_BYTES)
        return Part("steps", join(_draw_steps(view, grown)), str(grown.last))
    size = format_bytes(log_end(view.turns.directory.log_file))
    place = f"{format_bytes(window.first)} to {format_bytes(window.last)} of {size}"
    ways: list[Child] = [f"{count_words(len(window.steps), 'step')}, {place}"]
    if window.has_earlier:
        earlier = view.to(before=window.first, fragment="end")
        ways.append(link("↑ earlier", earlier, data_key="earlier"))
        ways.append(link("first", view.to(at=0)))
    ways.append(link("↓ end", PageAddress("#end")))
    head = element("p", join(ways, " · "), class_="muted")
    body = join((head, *_draw_steps(view, window)))
    return Part("steps", body, str(window.last) if is_tail else _STILL)


def _draw_steps(view: AgentView, window: StepWindow) -> Iterator[Markup]:
    drawer = StepDrawer(view.turns, view, window.unanswered)
    if window.has_earlier:
        earlier = read_window(view.turns, before=window.first, max_bytes=_TAIL_BYTES)
        drawer.pass_over(earlier.steps, window.steps)
    return drawer.draw(window.steps)


def _draw_end(
    view: AgentView, window: StepWindow, tail: StepWindow, *, is_tail: bool
) -> Iterator[Child]:
    """Yield the parts after the steps: a link to later steps, or checkpoints and the end."""
    if not is_tail:
        later = link("↓ later", view.to(at=window.last), data_key="later")
        yield element("p", later, " · ", link("latest", view.to(fragment="end")))
        return
    latest = max((step.get("timestamp") or "" for step in tail.steps), default="")
    for one in view.world.checkpoints:
        if (one.created_at or "")[:19] >= latest[:19]:
            yield draw_checkpoint(view.run, one)
    turn = view.turns.last
    if view.agent.is_over:
        yield _explain(view.agent, turn)
    elif turn is not None and turn.ended_at is None:
        yield element("p", f"◐ turn {turn.number} is under way, started ", moment(turn.started_at))


def make_part(ask: Ask, ident: str, agent_ident: str) -> Page:
    """Return the page of a long text of a step, in windows.

    ``at`` is the step, ``what`` the name of the text, and ``start`` the first character.
    """
    run = ask.site.find_run(ident)
    agent = ask.site.find_agent(run, agent_ident)
    name, at, start = ask.query.get("what", ""), ask.whole("at") or 0, ask.whole("start") or 0
    try:
        with opened_agent(ask, run, agent) as view:
            steps = read_window(view.turns, at).steps
    except (ClawbloxError, OSError) as error:
        raise NoSuchPage(f"The log of {agent.name} cannot be read: {error}") from error
    text = next((read_texts(one).get(name) for one in steps if read_offset(one) == at), None)
    if text is None:
        raise NoSuchPage(f"{agent.name} has no such text at byte {at} of its log")
    shown, end = pretty(text), start + _PART_CHARS
    words = f"{start} to {min(end, len(shown))} of {len(shown)} characters"
    ways: list[Child] = [words, link("its step", view.to(at=at, fragment=f"o{at}"))]
    for way, place in (("↑ earlier", start - _PART_CHARS), ("↓ later", end)):
        if -_PART_CHARS < place < len(shown):
            to = view.to("part", at=at, what=name, start=max(0, place))
            ways.append(link(way, to, data_key=way[2:]))
    head = element("p", join(ways, " · "), class_="muted")
    body = join((head, element("pre", shown[start:end])))
    above = (*ask.crumbs(run), (agent.name, view.to()))
    return Page(f"{name.partition('-')[0]} at byte {at}", above, (Part("text", body),))
