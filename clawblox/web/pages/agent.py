"""The page of an agent: why it is as it is, its turns over time, its steps, and how to go on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

import attrs

from clawblox.agents.narration import narrate
from clawblox.agents.run_agent import read_run_agent
from clawblox.agents.status import AgentStatus
from clawblox.agents.trajectory import AgentTurn, TurnIndex, Window, read_window
from clawblox.agents.trajectory.records import read_records
from clawblox.errors import ClawbloxError
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import format_utc_ms, parse_since
from clawblox.telemetry.line_borders import find_line_start
from clawblox.telemetry.log_segments import list_segments, log_end
from clawblox.views.agent_strip import Strip, draw_strip
from clawblox.views.agent_words import (
    Step,
    describe_budget,
    describe_turn_shortly,
    explain_state,
    late_results,
    offset_of,
    one_line,
    pretty,
    seconds_of,
    texts_of,
)
from clawblox.views.formatting import count_words, format_cost, format_count, suggest
from clawblox.views.html import Address, Child, Markup, element, join, link, void
from clawblox.web.agent_log import AgentLog, opened_agent, read_address
from clawblox.web.agent_steps import StepDrawer, draw_checkpoint, fork_command
from clawblox.web.files import make_finder, search
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pages.run import draw_origins
from clawblox.web.pieces import code, facts, moment, state_mark
from clawblox.web.shared_address import share
from clawblox.web.site import NoSuchPage, RunSummary

_MAX_TURNS: Final = 80
_MAX_WHY: Final = 500
_MAX_NOW: Final = 220
_MAX_FOUND: Final = 40
_MAX_SOUGHT: Final = 200
_AROUND: Final = 90
"""Characters on each side of a match."""
_TAIL_BYTES: Final = 1 << 15
_GROWN_BYTES: Final = 1 << 16
_PART_CHARS: Final = 60_000
_FIRST_RECORDS: Final = 200
_STILL: Final = "-"
"""The cursor of steps that do not grow."""
_NUMBER: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?")


def make_page(ask: Ask, ident: str, agent_ident: str) -> Page:
    """Return the page of an agent; without parameters it shows the end of its log.

    ``at`` is the byte of the first step, ``before`` one to end before; ``since`` is a UTC time or a
    duration until now, ``minute`` one since the first turn, ``t`` a simulated time, ``utc`` a time
    of the host. ``q`` is what to search, from byte ``next`` on.
    """
    run = ask.site.find_run(ident)
    agent = ask.site.find_agent(run, agent_ident)
    try:
        with opened_agent(ask.site, run, agent) as log:
            parts = [*_make_parts(_View(ask, run, agent, agent_ident, log))]
    except (ClawbloxError, OSError) as error:
        why = error.headline if isinstance(error, ClawbloxError) else str(error)
        body = element("p", f"Its log cannot be shown: {why[:_MAX_WHY]}", class_="muted")
        parts = [Part("why", _explain(agent, None)), Part("log", body)]
    return Page(
        agent.name,
        ((ask.site.root.name, ask.links.to()), (run.name, ask.links.to("run", run.ident))),
        parts,
        is_live=not agent.is_over and "q" not in ask.query,
        share=share(run, "agent", agent.name),
    )


@attrs.frozen
class _View:
    """What is asked for, and of which agent."""

    ask: Ask
    run: RunSummary
    agent: AgentStatus
    ident: str
    log: AgentLog

    @property
    def turns(self) -> TurnIndex:
        """Its turns."""
        return self.log.turns

    def to(self, *more: str, fragment: str = "", **query: str | int | None) -> Address:
        """Return the address of this page, or of one below it."""
        path = ("run", self.run.ident, "agent", self.ident, *more)
        return self.ask.links.to(*path, fragment=fragment, **query)

    def to_turn(self, turn: AgentTurn) -> Address:
        """Return the address of the first step of a turn."""
        return self.to(at=turn.start, fragment=f"turn-{turn.start}")

    def drawer(self, window: Window, orphans: Collection[str] = ()) -> StepDrawer:
        """Return what draws the steps of a window, having seen those before it.

        Args:
            window: The window.
            orphans: Its results of calls that were drawn before.
        """
        drawer = StepDrawer(
            *(self.ask, self.run, self.ident, self.turns, self.log.world),
            *(read_address(self.agent.dir), window.unanswered, orphans),
        )
        if window.has_earlier:
            earlier = read_window(self.turns, before=window.first, max_bytes=_TAIL_BYTES)
            drawer.pass_over(earlier.steps)
        return drawer


def _make_parts(view: _View) -> Iterator[Part]:
    tail = read_window(view.turns, max_bytes=_TAIL_BYTES)
    yield Part("why", _explain(view.agent, view.turns))
    yield Part("facts", _draw_facts(view, tail))
    if "q" in view.ask.query:
        yield Part("find", _draw_forms(view))
        yield Part("found", _draw_found(view))
        return
    at, before = _find_place(view)
    window = view.log.read_window(at, before)
    is_tail = (at is None and before is None) or not window.has_later
    yield Part("strip", _draw_strip(view, window))
    yield Part("find", _draw_forms(view))
    yield Part("outline", _draw_outline(view, window))
    yield _draw_steps(view, window, is_tail=is_tail)
    yield Part("end", _draw_end(view, window, tail, is_tail=is_tail))


# -- the head ------------------------------------------------------------------------------------


def _explain(agent: AgentStatus, turns: TurnIndex | None) -> Markup:
    """Say in a sentence why it is as it is."""
    last = turns.turns[-1] if turns is not None and turns.turns else None
    state = element("b", state_mark(agent.state))
    why = explain_state(agent, last)
    return element("p", state, why, " · latest ", moment(agent.time), class_="summary")


def _draw_facts(view: _View, tail: Window) -> Markup:
    agent, own = view.agent, view.agent.own_usage
    read = own.input_tokens + own.cached_tokens + own.cache_write_tokens
    share_cached = f" {100 * own.cached_tokens // read} % cached" if read else ""
    inherited = agent.inherited
    more = f" and {format_cost(inherited.cost_usd)} inherited" if inherited.cost_usd else ""
    log = view.turns.directory.log_file
    records = [*islice(read_records(view.turns.directory.events_file), _FIRST_RECORDS)]
    models = [one.data["model"] for one in records if isinstance(one.data.get("model"), str)]
    context, _ = view.turns.read_events(tail.last, tail.last, is_end=False)
    shown = facts(
        (
            ("Program", f"{agent.driver} {context.version[:40]}".rstrip()),
            ("Model", models[-1][:60] if models else None),
            ("Turns", str(own.turns)),
            ("Output", format_count(own.output_tokens)),
            ("Input", _with_note(format_count(read), share_cached)),
            ("Cost", _with_note(format_cost(own.cost_usd) or "not reported", more)),
            ("Budget", _describe_budget(view)),
            ("Log", format_bytes(log_end(log))),
            ("Sandbox", agent.sandbox),
            ("Conversation", (agent.session_id or "")[:8]),
            ("Came from", join(draw_origins(view.ask, view.run, view.log.world.history), ", ")),
        )
    )
    return join((shown, _draw_now(view, tail), _draw_commands(view)))


def _with_note(value: str, note: str) -> Child:
    small = element("small", note, class_="muted") if note else None
    return join((value, small)) if value else None


def _describe_budget(view: _View) -> str:
    with suppress(ClawbloxError):
        recorded = read_run_agent(view.run.directory)
        if recorded is not None and recorded.options.agent_name == view.agent.name:
            return describe_budget(recorded, view.agent.usage)
    return ""


def _draw_now(view: _View, tail: Window) -> Markup | None:
    """Return its last call or words."""
    for step in reversed(tail.steps):
        words, link_to = step["message"], view.to(fragment=f"o{offset_of(step)}")
        for call in step.get("tool_calls", ())[-1:]:
            data = {"name": call["function_name"], "arguments": call["arguments"]}
            words = " ".join(line.text for line in narrate("tool.called", data))
        if words and step["source"] == "agent":
            name = "last" if view.agent.is_over else "now"
            return element(
                "p", link(element("b", name), link_to), " ", one_line(words, _MAX_NOW), id="latest"
            )
    return None


def _draw_commands(view: _View) -> Markup:
    saved = [one for one in view.log.world.checkpoints if one.removed_at is None]
    commands = {
        "Tell it": "" if view.agent.is_over else suggest("agent send", view.agent.dir, "TEXT"),
        "Stop it": "" if view.agent.is_over else suggest("agent stop", view.agent.dir),
        "Go on from its latest checkpoint": fork_command(view.run, saved[-1]) if saved else "",
        "Export its trajectory": suggest("agent trajectory", view.agent.dir),
    }
    rows = [
        element("div", element("dt", words), element("dd", code(command)))
        for words, command in commands.items()
        if command
    ]
    body = element("dl", *rows, class_="commands")
    return element("details", element("summary", "How to go on"), body, id="commands")


# -- places --------------------------------------------------------------------------------------


def _find_place(view: _View) -> tuple[int | None, int | None]:
    """Return the first byte that is asked for, or the one to end before; the end without any."""
    at, before = view.ask.whole("at"), view.ask.whole("before")
    if at is not None or before is not None:
        return at, None if at is not None else before
    utc = _find_time(view)
    return None if utc is None else view.turns.find_time(utc), None


def _find_time(view: _View) -> str | None:
    query = view.ask.query
    with suppress(ValueError):
        if since := query.get("since") or query.get("utc"):
            return parse_since(since)
    number, begin = _NUMBER.fullmatch(query.get("minute", "")), None
    if view.turns.turns:
        begin = seconds_of(view.turns.turns[0].started_at)
    if number and begin is not None:
        return format_utc_ms(round((begin + 60 * float(number[0])) * 1e9))
    number = _NUMBER.fullmatch(query.get("t", ""))
    place = view.log.world.axis.place_time(float(number[0])) if number else None
    return place.utc if place else None


def _draw_forms(view: _View) -> Markup:
    def field(kind: str, name: str, words: str, button: str) -> Markup:
        more = {"step": "any"} if kind == "number" else {}
        value = view.ask.query.get(name, "")
        given = void(
            "input", type=kind, name=name, value=value, placeholder=words, aria_label=words, **more
        )
        go = element("button", button, type="submit")
        return element("form", given, go, method="get", action=view.to())

    fields = [field("search", "q", "Search what it said, did and got", "Search")]
    fields.append(field("number", "minute", "minute", "Go to minute"))
    if view.log.world.axis.is_simulated:
        fields.append(field("number", "t", "simulated s", "Go to simulated time"))
    return element("div", *fields, class_="row")


def _draw_strip(view: _View, window: Window) -> Markup:
    world, timed = view.log.world, [one for one in window.steps if "timestamp" in one]

    def simulated(utc: str) -> float | None:
        found = world.find_time(utc)
        return None if found is None else found[1].position

    strip = Strip(
        turns=view.turns.turns,
        latest=view.agent.time,
        calls=[one["timestamp"] for one in timed for _ in one.get("tool_calls", ())],
        checkpoints=[(save.created_at or "", save.path.name) for save in world.checkpoints],
        view=(timed[0]["timestamp"], timed[-1]["timestamp"]) if timed else None,
        simulated=simulated,
        address=view.to_turn,
    )
    legend = (
        "▭ a turn; its fill is output · ▼ a message · ○ a checkpoint · ┃ a call of the steps below "
        "(line); under it: retry, limit or error"
    )
    note = "" if world.axis.is_simulated else f" · {world.axis.note}"
    picture = element("div", draw_strip(strip).part(), class_="scroll", tabindex="0")
    return join((picture, element("p", legend, note, class_="muted small")))


def _draw_outline(view: _View, window: Window) -> Markup:
    turns = view.turns.turns
    first = turns.index(shown) if (shown := view.turns.find_turn(window.first)) else 0
    first = max(0, first - _MAX_TURNS // 2)
    rows = []
    for turn in turns[first : first + _MAX_TURNS]:
        words = (element("b", str(turn.number)), element("span", describe_turn_shortly(turn)))
        is_shown = turn.start < window.last and (turn.end is None or turn.end > window.first)
        place = f"turn-{turn.start}"
        to = Address(f"#{place}") if is_shown else view.to_turn(turn)
        kind = "shown" if is_shown else None
        rows.append(element("li", link(join(words), to, data_turn=place, class_=kind)))
    behind = len(turns) - first - len(rows)
    more = (
        element("li", link(f"{first} earlier", view.to_turn(turns[0]))) if first else None,
        *rows,
        element("li", link(f"{behind} later", view.to())) if behind > 0 else None,
    )
    return element("nav", element("ol", *more), aria_label="Turns")


# -- steps ---------------------------------------------------------------------------------------


def _draw_steps(view: _View, window: Window, *, is_tail: bool) -> Part:
    cursor = view.ask.cursors.get("steps")
    if cursor == _STILL:
        return Part("steps", join(()), _STILL)
    if cursor is not None and cursor.isascii() and cursor.isdigit() and len(cursor) <= 15:
        grown = read_window(view.turns, int(cursor), max_bytes=_GROWN_BYTES)
        drawn = view.drawer(grown, late_results(grown.steps)).draw(grown.steps)
        return Part("steps", join(drawn), str(grown.last))
    size = log_end(view.turns.directory.log_file)
    where = (
        f"{count_words(len(window.steps), 'step')}, {format_bytes(window.first)} to "
        f"{format_bytes(window.last)} of {format_bytes(size)}"
    )
    ways = [element("span", where)]
    if window.has_earlier:
        earlier = view.to(before=window.first, fragment="end")
        ways.append(link("↑ earlier", earlier, data_key="earlier"))
        ways.append(link("first", view.to(at=0)))
    ways.append(link("↓ end", Address("#end")))
    drawn = view.drawer(window).draw(window.steps)
    body = join((element("p", join(ways, " · "), class_="muted"), *drawn))
    return Part("steps", body, str(window.last) if is_tail else _STILL)


def _draw_end(view: _View, window: Window, tail: Window, *, is_tail: bool) -> Markup:
    """Return what follows the steps: later ones, checkpoints, or how it ended."""
    if not is_tail:
        later = link("↓ later", view.to(at=window.last), data_key="later")
        return element("p", join((later, link("latest", view.to(fragment="end"))), " · "))
    last = max((step.get("timestamp") or "" for step in tail.steps), default="")
    saved = [one for one in view.log.world.checkpoints if (one.created_at or "")[:19] >= last[:19]]
    state = _explain(view.agent, view.turns) if view.agent.is_over else None
    if state is None and view.turns.is_within_turn:
        turn = view.turns.turns[-1]
        words = f"◐ turn {turn.number} is under way, begun "
        state = element("p", words, moment(turn.started_at))
    return join((*(draw_checkpoint(view.run, one) for one in saved), state))


# -- search, and long texts ----------------------------------------------------------------------


def _draw_found(view: _View) -> Markup:
    wanted, start = view.ask.query["q"][:_MAX_SOUGHT], view.ask.whole("next") or 0
    back = link("all steps", view.to())
    if not wanted.strip():
        return element("p", "Type what to search. ", back)
    log = view.turns.directory.log_file
    root, find = view.ask.site.root, make_finder(wanted)
    found = search(root, list_segments(log), find, start, most=_MAX_FOUND)
    rows = []
    for offset in dict.fromkeys(find_line_start(log, match.start) for match in found.found):
        steps = read_window(view.turns, offset, max_bytes=1).steps
        rows += [row for step in steps[:1] for row in _draw_matches(view, step, wanted, offset)]
    if found.reached is None:
        words, more = f"{count_words(len(rows), 'place')} from here to the end", None
    else:
        words = f"{count_words(len(rows), 'place')} up to {format_bytes(found.reached)}"
        more = link("search on", view.to(q=wanted, next=found.reached), data_key="later")
    head = element("p", join((words, more, back), " · "))
    return join((head, element("ol", *rows, class_="found")))


def _draw_matches(view: _View, step: Step, wanted: str, offset: int) -> Iterator[Markup]:
    for name, text in texts_of(step).items():
        at = text.lower().find(wanted.lower())
        if at >= 0:
            before, after = text[max(0, at - _AROUND) : at], text[at + len(wanted) :][:_AROUND]
            match = element("mark", text[at : at + len(wanted)])
            turn = f"turn {step['extra'].get('turn', '?')}, {name.partition('-')[0]}"
            to = view.to(at=offset, fragment=f"o{offset_of(step)}")
            where = link(turn, to, class_="at")
            yield element("li", where, " ", before.lstrip(), match, after)
            return


def make_part(ask: Ask, ident: str, agent_ident: str) -> Page:
    """Return the page of a long text of a step, in windows.

    ``at`` is the step, ``what`` the name of the text in it, ``start`` the first character.
    """
    run = ask.site.find_run(ident)
    agent = ask.site.find_agent(run, agent_ident)
    name, start, at = ask.query.get("what", ""), ask.whole("start") or 0, ask.whole("at") or 0
    try:
        with opened_agent(ask.site, run, agent) as log:
            view = _View(ask, run, agent, agent_ident, log)
            steps = read_window(log.turns, at).steps
    except (ClawbloxError, OSError) as error:
        raise NoSuchPage(f"The log of {agent.name} cannot be read: {error}") from error
    text = next((texts_of(one).get(name) for one in steps if offset_of(one) == at), None)
    if text is None:
        raise NoSuchPage(f"{agent.name} has no such text at byte {at} of its log")
    shown, end = pretty(text), start + _PART_CHARS
    ways: list[Child] = [f"{start} to {min(end, len(shown))} of {len(shown)} characters"]
    ways.append(link("its step", view.to(at=at, fragment=f"o{at}")))
    if start:
        to = view.to("part", at=at, what=name, start=max(0, start - _PART_CHARS))
        ways.append(link("↑ earlier", to, data_key="earlier"))
    if end < len(shown):
        to = view.to("part", at=at, what=name, start=end)
        ways.append(link("↓ later", to, data_key="later"))
    head = element("p", join(ways, " · "), class_="muted")
    body = join((head, element("pre", shown[start:end])))
    above = ((run.name, ask.links.to("run", run.ident)), (agent.name, view.to()))
    return Page(f"{name.partition('-')[0]} at byte {at}", above, (Part("text", body),))
