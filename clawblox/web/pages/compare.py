"""Two runs, instances or saves: where they part, facts, one axis, numbers, world documents."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from clawblox.agents.status import AgentStatus
from clawblox.agents.trajectory import TurnIndex
from clawblox.agents.values import sum_usage
from clawblox.errors import ClawbloxError
from clawblox.recording.blocks import Track
from clawblox.rundir.saves import LineageSave
from clawblox.views import svg
from clawblox.views.formatting import (
    describe_life,
    format_cost,
    format_count,
    format_labels,
    format_rough_seconds,
)
from clawblox.views.html import Address, Child, Markup, element, join, link
from clawblox.views.svg import Picture
from clawblox.web.axis import make_axis, read_lanes
from clawblox.web.axis_shapes import LEFT, RIGHT, draw_axis
from clawblox.web.descent import RecordedLives, Recordings, find_descent
from clawblox.web.first_calls import find_call_differences
from clawblox.web.first_differences import Alignment, align, find_first_differences
from clawblox.web.observed import Points, draw_line, read_numbers
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import comparison, moment, state_mark, table
from clawblox.web.run_history import read_history
from clawblox.web.saved_worlds import draw_differences, draw_documents
from clawblox.web.subjects import Subject, find_subject, list_subjects
from clawblox.web.workspaces import pair_agents

_MAX_VALUE: Final = 600
_MAX_PROMPT: Final = 4000
_MAX_AGENTS: Final = 12
_MAX_LANES: Final = 12
_MAX_NUMBERS: Final = 4
_GOALS: Final = ("score", "point", "reward", "goal")
"""Words in the paths of numbers that are shown first."""
_ROW: Final = 56.0
_HEIGHT: Final = 40.0

Key = tuple[str, str]


@attrs.frozen
class Found:
    """The first action or observation that differs.

    Attributes:
        kind: ``action`` or ``observation``.
        agent: Name of the agent.
        path: Where in it.
        values: The value there on either side.
        times: When that was on either side.
        places: The page of each moment; None for none.
    """

    kind: str
    agent: str
    path: str
    values: Sequence[Any]
    times: Sequence[str]
    places: Sequence[Address | None]


@attrs.frozen
class Compared:
    """Both sides, with their axes from their fork on and their open recordings."""

    sides: Sequence[Subject]
    aligned: Alignment
    recorded: Sequence[RecordedLives]

    @property
    def are_recorded(self) -> bool:
        """Whether both have a recording after the fork."""
        axes = (self.aligned.first, self.aligned.second)
        return all(
            any(piece.life in recorded.recordings for piece in axis.pieces)
            for axis, recorded in zip(axes, self.recorded, strict=True)
        )


def make_page(ask: Ask, first: str = "", second: str = "") -> Page:
    """Return the page that compares two runs, instances or saves, or lets choose them."""
    first, second = first or ask.query.get("a", ""), second or ask.query.get("b", "")
    form = comparison(ask.links, [*list_subjects(ask, ask.site.runs())], (first, second))
    crumbs = ((ask.site.root.name, ask.links.to()),)
    if not (first and second):
        return Page("Compare", crumbs, (Part("choose", form),))
    sides = [find_subject(ask, ident) for ident in (first, second)]
    with contextlib.ExitStack() as stack:
        try:
            compared = _open(ask, sides, stack)
            parts = [
                Part("sides", join(_name_sides(ask, sides))),
                Part("parting", _draw_parting(ask, compared)),
                Part("facts", _draw_facts(ask, sides)),
                Part("axis", _draw_axes(compared)),
                Part("numbers", _draw_numbers(ask, compared)),
                Part("prompts", _draw_prompts(sides)),
                Part("world", _draw_worlds(ask, compared)),
            ]
        except (ClawbloxError, OSError, ModuleNotFoundError) as error:
            why = element("p", f"✕ {error}", class_="bad")
            names = join(_name_sides(ask, sides))
            parts = [Part("sides", names), Part("why", why), Part("facts", _draw_facts(ask, sides))]
    parts.append(Part("choose", element("details", element("summary", "Compare others"), form)))
    return Page("Compare", crumbs, parts)


def _name_sides(ask: Ask, sides: Sequence[Subject]) -> Iterator[Markup]:
    for number, side in enumerate(sides):
        to = ask.links.to("run", side.run.ident)
        if side.save is not None:
            save = ask.site.identify(side.save.path)
            to = ask.links.to("run", side.run.ident, "save", save)
        yield element("p", _name(number), " ", link(side.name, to))


def _open(ask: Ask, sides: Sequence[Subject], stack: contextlib.ExitStack) -> Compared:
    lineages = [read_history(run).lineage for run in ask.site.runs()]
    axes, recorded = [], []
    for side in sides:
        name = side.instance.name if side.instance else ""
        lives = find_descent(lineages, side.run.directory, name)
        opened = stack.enter_context(Recordings().opened_lives(lives))
        recorded.append(opened)
        axes.append(make_axis(lives, opened.blocks))
    return Compared(sides, align(axes[0], axes[1]), recorded)


# -- where they part -------------------------------------------------------------------------------


def _draw_parting(ask: Ask, compared: Compared) -> Markup:
    save = compared.aligned.save
    if save is None:
        begin = "They have no fork in common, so each is compared from its beginning."
    else:
        at = "" if save.time is None else f" at {save.time:.1f} s of simulated time"
        begin = f"They part at {save.path.name}{at}."
    axes = (compared.aligned.first, compared.aligned.second)
    ended = [name for name, axis in zip("AB", axes, strict=True) if save and not axis.pieces]
    if ended:
        words = f"{' and '.join(ended)} ended there, so there is nothing to compare after it."
        return join((element("p", begin, class_="summary"), element("p", words)))
    if compared.are_recorded:
        source, found = "their recordings", _find_in_recordings(ask, compared)
    else:
        source = "the tool calls and results of their agents, because not both have recordings"
        found = _find_in_calls(ask, compared)
    kinds = {one.kind for one in found}
    missing = [
        element("p", f"No {kind} differs, by {source}.", class_="muted")
        for kind in ("action", "observation")
        if kind not in kinds
    ]
    shown = [_draw_found(one, compared.sides, source) for one in found]
    return join((element("p", begin, class_="summary"), *shown, *missing))


def _draw_found(found: Found, sides: Sequence[Subject], source: str) -> Markup:
    heading = f"First {found.kind} that differs: {found.agent}"
    where = f"{found.path or 'all of it'}, by {source}"
    boxes = [
        element(
            "div",
            element("p", _name(number), " ", at if to is None else link(at, to)),
            element("pre", _show(value), class_="diff"),
        )
        for number, (value, at, to) in enumerate(
            zip(found.values, found.times, found.places, strict=True)
        )
    ]
    return join(
        (
            element("h3", heading),
            element("p", where, class_="muted"),
            element("div", *boxes, class_="sides"),
        )
    )


def _name(number: int) -> Markup:
    return element("b", "AB"[number])


def _show(value: Any) -> str:  # noqa: ANN401 - JSON
    if value is None:
        return "—"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}… ({len(text)} characters)"


def _find_in_recordings(ask: Ask, compared: Compared) -> Iterator[Found] | list[Found]:
    replays = [_link_replay(ask, side) for side in compared.sides]
    return [
        Found(
            one.kind,
            one.agent,
            one.path,
            (one.first, one.second),
            [f"{at.time:.2f} s, {at.utc[:19]}Z" for at in (one.first_at, one.second_at)],
            [
                None if replay is None else ask.links.to(*replay, fragment=f"t={at.time:g}")
                for replay, at in zip(replays, (one.first_at, one.second_at), strict=True)
            ],
        )
        for one in find_first_differences(compared.aligned, *compared.recorded)
    ]


def _link_replay(ask: Ask, side: Subject) -> tuple[str, ...] | None:
    """Return the path of the page of the last recording of a side."""
    name = side.instance.name if side.instance else ""
    recordings = enumerate(read_history(side.run).recordings, 1)
    numbers = [number for number, one in recordings if one.instance in ("", name)]
    return ("run", side.run.ident, "replay", str(numbers[-1])) if numbers else None


def _find_in_calls(ask: Ask, compared: Compared) -> list[Found]:
    sides, save = compared.sides, compared.aligned.save
    since = [
        save.created_at
        if save and any(own.path == save.path for own in read_history(side.run).saves)
        else None
        for side in sides
    ]
    if None not in since and save is not None:  # a fork in the same run directory
        makers = [side.instance.name if side.instance else "" for side in sides]
        since = [save.created_at if name == save.instance else None for name in makers]
    found = []
    for first, second in _pair(sides):
        names = [first.name, second.name, *(side.run.directory.name for side in sides)]
        with contextlib.suppress(ClawbloxError, OSError):
            for one in find_call_differences(first.dir, second.dir, since, names):
                calls = (one.first_call, one.second_call)
                places = [
                    _link_step(ask, side, agent, call.offset)
                    for side, agent, call in zip(sides, (first, second), calls, strict=True)
                ]
                values, times = (one.first, one.second), [call.utc or "" for call in calls]
                found.append(Found(one.kind, first.name, one.path, values, times, places))
    found.sort(key=lambda one: one.times[0])
    kinds = ("action", "observation")
    firsts = (next((one for one in found if one.kind == kind), None) for kind in kinds)
    return [one for one in firsts if one is not None]


def _link_step(ask: Ask, side: Subject, agent: AgentStatus, offset: int) -> Address:
    ident = ask.site.identify(agent.dir)
    place = {"at": offset, "fragment": f"o{offset}"}
    return ask.links.to("run", side.run.ident, "agent", ident, **place)  # type: ignore[arg-type]


def _pair(sides: Sequence[Subject]) -> list[tuple[AgentStatus, AgentStatus]]:
    """Return the agents that both have: by name, or by their place in the world."""
    first, second = ({agent.name: agent for agent in side.run.agents} for side in sides)
    pairs = pair_agents(first, second)
    return [(first[own], second[name]) for name, own in pairs.items() if own][:_MAX_AGENTS]


# -- facts -----------------------------------------------------------------------------------------


def _draw_facts(ask: Ask, sides: Sequence[Subject]) -> Markup:
    columns = [dict(_list_facts(ask, side)) for side in sides]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = []
    for name in names:
        left, right = (column.get(name) for column in columns)
        if left or right:
            rows.append((name, left, right, "" if left == right else "yes"))
    return join((element("h2", "Facts"), table("Facts", ("Fact", "A", "B", "Differs"), rows)))


def _list_facts(ask: Ask, side: Subject) -> Iterator[tuple[str, Child]]:
    status, run = side.status, side.run
    own = sum_usage(agent.own_usage for agent in run.agents)
    inherited = sum_usage(agent.inherited for agent in run.agents)
    history = read_history(run)
    for name, score in side.read_scores(ask.site).items():
        yield f"Score {name}", f"{score:g}"
    yield "Own cost", format_cost(own.cost_usd)
    yield "Own tokens", format_count(own.tokens)
    yield "Own turns", format_count(own.turns)
    yield "Inherited tokens", format_count(inherited.tokens)
    if status is not None:
        yield "State", state_mark(status.state, is_bad=status.has_died)
        yield "Exit", describe_life(status.state, status.exit, status.halt)
        yield "World", status.world
        yield "Started", moment(status.started_at)
        yield "Ran", format_rough_seconds(status.uptime_s) if status.uptime_s else ""
        yield "Restarts", str(status.restarts or "")
        yield "Seed", "" if status.seed is None else str(status.seed)
        yield "Labels", format_labels(status.labels)
    yield "Came from", ", ".join(origin.path.name for origin in history.origins[:3])
    yield "Last save at", _time(max(_saves(side), key=lambda save: save.time or 0.0, default=None))
    for agent in run.agents[:_MAX_AGENTS]:
        yield f"Agent {agent.name.split('-')[0]}", f"{agent.state}: {agent.reason}".rstrip(": ")


def _time(save: LineageSave | None) -> str:
    return "" if save is None or save.time is None else f"{save.time:.1f} s"


def _saves(side: Subject) -> list[LineageSave]:
    return [*side.instance.saves] if side.instance else []


# -- the axis and numbers on it --------------------------------------------------------------------


def _draw_axes(compared: Compared) -> Markup:
    aligned = compared.aligned
    strips: list[Child] = []
    for number, axis in enumerate((aligned.first, aligned.second)):
        lanes = read_lanes(axis, compared.recorded[number]) if axis.is_simulated else {}
        shown = dict([*lanes.items()][:_MAX_LANES])
        picture = draw_axis(axis, shown, aligned.spans[number]).part()
        name = element("p", _name(number), f" {compared.sides[number].name}")
        strips += [name, element("div", picture, class_="scroll", tabindex="0")]
    since = " from the fork on" if aligned.save else ""
    return join((element("h2", f"One axis{since}"), *strips))


def _draw_numbers(ask: Ask, compared: Compared) -> Markup:
    first, second = (
        _read_side(recorded, compared, n) for n, recorded in enumerate(compared.recorded)
    )
    keys = [key for key in first if key in second]
    keys.sort(
        key=lambda key: (
            first[key] == second[key],
            not any(word in key[1].lower() for word in _GOALS),
        )
    )
    if not keys:
        words = "No number is known of both over simulated time, by recordings of observations."
        return element("p", words, class_="muted")
    spans = compared.aligned.spans
    shapes = [
        shape
        for row, key in enumerate(keys[:_MAX_NUMBERS])
        for shape in _draw_number(key, (first[key], second[key]), spans, row * _ROW + 6)
    ]
    height = _ROW * len(keys[:_MAX_NUMBERS]) + 8
    picture = Picture(height, "Numbers that agents saw, A and B", shapes)
    note = element("p", "A: solid line, B: dotted line; as agents saw them", class_="muted")
    scroll = element("div", picture.part(), class_="scroll", tabindex="0")
    return join((element("h2", "Numbers over simulated time"), note, scroll))


def _read_side(recorded: RecordedLives, compared: Compared, number: int) -> Mapping[Key, Points]:
    """Return numbers by the name of the agent and the path, from the fork on."""
    axis = (compared.aligned.first, compared.aligned.second)[number]
    begin = compared.aligned.spans[number][0]
    numbers: dict[Key, Points] = {}
    for life in dict.fromkeys(piece.life for piece in axis.pieces if not piece.is_lost):
        for recording in recorded.recordings.get(life, ()):
            roster = recording.roster()
            for (agent, path), points in read_numbers(recording.reader).items():
                kept = [point for point in points if point[0] >= begin]
                if kept:
                    numbers.setdefault((roster.name(agent), path), []).extend(kept)
    return numbers


def _draw_number(
    key: Key, pair: Sequence[Points], spans: Sequence[tuple[float, float]], top: float
) -> Iterator[Markup]:
    values = [value for points in pair for _, value in points]
    least, most = min(values), max(values)
    yield svg.text(svg.MARGIN, top + 14, _shorten(key[1]), "ink small")
    yield svg.text(svg.MARGIN, top + 30, _shorten(key[0]), "muted small")
    yield svg.path("grid-line hair", f"M{LEFT:g},{top + _HEIGHT:g}H{RIGHT:g}")
    for number, (points, span) in enumerate(zip(pair, spans, strict=True)):
        line = draw_line(points, (least, most), span, (LEFT, RIGHT), top)
        last = f"{'AB'[number]} {points[-1][1]:.4g}"
        names = f"{svg.line_colour(number)}-line line thin{' stub' if number else ''}"
        words = [f"{'AB'[number]} {key[0]} {key[1]}: {least:g} to {most:g}, last {last}"]
        yield svg.group("number", words, svg.path(names, line))
        is_low = points[-1][1] < pair[1 - number][-1][1] or (
            number and pair[0][-1][1] == points[-1][1]
        )
        yield svg.text(RIGHT + 6, top + (32 if is_low else 14), last, "ink small")


def _shorten(text: str) -> str:
    return text if len(text) <= 18 else f"…{text[-17:]}"


# -- prompts and worlds ----------------------------------------------------------------------------


def _draw_prompts(sides: Sequence[Subject]) -> Markup:
    """Return the first messages to the agents, which differ by design."""
    boxes: list[Markup] = []
    for pair in _pair(sides):
        texts = [_read_prompt(agent) for agent in pair]
        if any(texts):
            columns = [
                element("div", _name(number), element("pre", text or "—", class_="diff"))
                for number, text in enumerate(texts)
            ]
            boxes += [element("h3", pair[0].name), element("div", *columns, class_="sides")]
    if not boxes:
        return join(())
    note = "Prompts of branches differ by design, so they are not searched for differences."
    return join((element("h2", "Prompts"), element("p", note, class_="muted"), *boxes))


def _read_prompt(agent: AgentStatus) -> str:
    with contextlib.suppress(ClawbloxError, OSError):
        turns = TurnIndex(agent.dir)
        turns.read_on()
        return (turns.turns[0].prompt or "")[:_MAX_PROMPT] if turns.turns else ""
    return ""


def _draw_worlds(ask: Ask, compared: Compared) -> Markup:
    return join((element("h2", "World documents"), *_compare_worlds(ask, compared)))


def _compare_worlds(ask: Ask, compared: Compared) -> Iterator[Markup]:
    sides = compared.sides
    pair = [side.save for side in sides]
    if None in pair:
        pair = [*_find_common(sides)] or [None, None]
    left, right = pair
    if left is not None and right is not None:
        times = _time(left) if left.time == right.time else f"{_time(left)} and {_time(right)}"
        yield element("p", f"Saves {left.path.name} and {right.path.name}, at {times}.")
        yield draw_documents(ask.site.root, left.path, right.path, ("A", "B"))
        return
    frames = _find_frames(compared)
    if frames is None:
        words = "There is no state of both at the same simulated time, neither saved nor recorded."
        yield element("p", words, class_="muted")
        return
    yield element("p", f"Recorded states at {frames[0]:.2f} s of simulated time.")
    yield draw_differences(frames[1], frames[2], ("A", "B"))


def _find_common(sides: Sequence[Subject]) -> Iterable[LineageSave]:
    """Return the last save of each side with the same simulated time, if there are such."""
    kept = [[save for save in _saves(side) if save.path.is_file()] for side in sides]
    kept = [[s] if (s := side.save) else own for side, own in zip(sides, kept, strict=True)]
    first, second = ({save.time: save for save in own} for own in kept)
    times = [time for time in first if time is not None and time in second]
    return (first[max(times)], second[max(times)]) if times else ()


def _find_frames(compared: Compared) -> tuple[float, Any, Any] | None:
    """Return the last recorded states at the same simulated time, with that time."""
    axes = (compared.aligned.first, compared.aligned.second)
    if not (compared.are_recorded and all(axis.is_simulated for axis in axes)):
        return None
    until = min(axis.end for axis in axes)
    found = []
    for axis, recorded in zip(axes, compared.recorded, strict=True):
        life = [piece.life for piece in axis.pieces if not piece.is_lost and piece.begin <= until]
        recordings = recorded.recordings.get(life[-1], ()) if life else ()
        frames = (
            (record.moment.time, record.fields["frame"])
            for recording in reversed(recordings)
            for record in recording.reader.read_back(Track.FRAMES, until)
            if "frame" in record.fields
        )
        frame = next(frames, None)
        if frame is None:
            return None
        found.append(frame)
        until = frame[0]
    (first_time, first), (second_time, second) = found
    return (first_time, first, second) if first_time == second_time else None
