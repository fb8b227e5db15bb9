"""Comparison of two runs or instances: differences, facts, axes, a number, world documents."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from clawblox.agents.status import AgentStatus
from clawblox.agents.trajectory import TurnIndex
from clawblox.errors import ClawbloxError
from clawblox.rundir.listed_saves import LineageSave
from clawblox.views import svg
from clawblox.views.axis_svg import RIGHT, draw_axis, draw_line
from clawblox.views.formatting import (
    describe_life,
    format_labels,
    format_rough_seconds,
)
from clawblox.views.html import Child, Markup, element, join, link
from clawblox.views.svg import Picture
from clawblox.web.first_differences import (
    KINDS,
    BranchEvent,
    FirstDifference,
    Side,
    align,
    find_call_differences,
    find_first_differences,
)
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pages.run import describe_usage, draw_origins, draw_source
from clawblox.web.pages.save import draw_differences, explained
from clawblox.web.pieces import clock, comparison, state_mark, table
from clawblox.web.recordings import Points, Recordings, read_lanes
from clawblox.web.run_history import (
    ComparedRun,
    Origins,
    find_line,
    find_subject,
    list_subjects,
    read_history,
    read_scores,
)
from clawblox.web.saved import pair_agents, read_world

_MAX_CHARS: Final = 2000
_MAX_AGENTS: Final = 12
_GOALS: Final = ("score", "point", "reward", "goal")
"""Words in the paths of preferred numbers."""

_DIGITS: Final = 6
"""Significant digits of numbers; more are shown if different numbers would look equal."""


def make_page(ask: Ask) -> Page:
    """Return the page that compares the runs or instances ``a`` and ``b``, or a form for them."""
    idents = ask.query.get("a", ""), ask.query.get("b", "")
    form = comparison(ask.links, [*list_subjects(ask, ask.site.runs())], idents)
    if not all(idents):
        return Page("Compare", ask.crumbs(), (Part("choose", form),))
    subjects = [find_subject(ask, ident) for ident in idents]
    parts = {
        "sides": join(map(partial(_name_subject, ask), "AB", subjects)),
        "parting": join(()),
        "number": join(()),
        "facts": _draw_facts(ask, subjects),
    }
    with contextlib.ExitStack() as stack:
        try:
            save, sides = align(_open(ask, subjects, stack))
            parts |= {
                "parting": join(_draw_parting(ask, save, subjects, sides)),
                "axis": join(_draw_axes(save, subjects, sides)),
                "number": join(_draw_number(sides)),
                "prompts": join(_draw_prompts(subjects)),
                "world": join(explained(_draw_worlds(ask, subjects))),
            }
        except (ClawbloxError, OSError, ModuleNotFoundError) as error:
            parts["parting"] = element("p", f"✕ {error}", class_="bad")
    parts["choose"] = element("details", element("summary", "Compare others"), form)
    return Page("Compare", ask.crumbs(), [Part(name, body) for name, body in parts.items()])


def _name_subject(ask: Ask, letter: str, subject: ComparedRun) -> Markup:
    to = ask.links.to("run", subject.run.ident)
    return element("p", element("b", letter), " ", link(subject.name, to))


def _open(ask: Ask, subjects: Sequence[ComparedRun], stack: contextlib.ExitStack) -> Sequence[Side]:
    lines = [find_line(ask.site, one.run, one.instance_name) for one in subjects]
    # A common recording is opened twice, so that each side has its own reader.
    return [Side(*stack.enter_context(Recordings().opened_axis(lives))) for lives in lines]


def _draw_pair(texts: Sequence[str], heads: Sequence[Child]) -> Markup:
    """Return two texts side by side."""
    boxes = (
        (element("p", element("b", letter), " ", head), element("pre", text, class_="diff"))
        for letter, text, head in zip("AB", texts, heads, strict=True)
    )
    return element("div", *(element("div", *box) for box in boxes), class_="sides")


# -- first differences -----------------------------------------------------------------------------


def _draw_parting(
    ask: Ask, save: LineageSave | None, subjects: Sequence[ComparedRun], sides: Sequence[Side]
) -> Iterator[Markup]:
    words: Child = "They have no common fork, so each is compared from its start."
    if save is not None:
        found = Origins(ask.site.runs()).find_archive(save.path)
        words = join(("They fork at ", draw_source(ask, found) if found else save.path.name, "."))
    yield element("p", words, class_="summary")
    ended = [letter for letter, side in zip("AB", sides, strict=True) if not side.axis.pieces]
    if save and ended:
        words = f"{' and '.join(ended)} ended there, so there is nothing to compare after it."
        yield element("p", words)
        return
    source = "the tool calls and results of their agents, because not both have recordings"
    if all(any(side.kept()) for side in sides):
        found_there, source = find_first_differences(sides), "their recordings"
    else:
        found_there = [*_find_in_calls(save, subjects)]
    for kind in KINDS:
        own = (one for one in found_there if one.kind == kind)
        first = min(own, key=lambda one: one.events[0].at, default=None)
        if first is None:
            yield element("p", f"No {kind} differs, by {source}.", class_="muted")
        else:
            yield from _draw_difference(ask, subjects, first, source)


def _draw_difference(
    ask: Ask, subjects: Sequence[ComparedRun], first: FirstDifference, source: str
) -> Iterator[Markup]:
    yield element("h3", f"First {first.kind} that differs: {first.events[0].agent}")
    yield element("p", f"{first.path or 'the whole'}, by {source}", class_="muted")
    moments = map(partial(_link_moment, ask), subjects, first.events)
    yield _draw_pair(_show_both(first.values), [*moments])


def _link_moment(ask: Ask, subject: ComparedRun, event: BranchEvent) -> Child:
    """Return a moment with a link to the log of an agent or the last recording of a side."""
    run, to = subject.run, partial(ask.links.to, "run", subject.run.ident)
    if event.log is not None:
        page = ("agent", ask.site.identify(event.log))
        return link(event.utc, to(*page, at=event.offset, fragment=f"o{event.offset}"))
    words = f"{event.at:.2f} s, {event.utc[:19]}Z"
    for number, recording in reversed([*enumerate(read_history(run).recordings, 1)]):
        if recording.instance in ("", subject.instance_name):
            return link(words, to("replay", str(number), fragment=f"t={event.at:g}"))
    return words


def _find_in_calls(
    save: LineageSave | None, subjects: Sequence[ComparedRun]
) -> Iterator[FirstDifference]:
    """Yield the first differences between each pair of agents."""
    since = [save.created_at if save and save in _list_saves(one) else None for one in subjects]
    for agents in _pair(subjects):
        names = [*(agent.name for agent in agents), *(s.run.directory.name for s in subjects)]
        with contextlib.suppress(ClawbloxError, OSError):
            yield from find_call_differences([agent.dir for agent in agents], since, names)


def _pair(subjects: Sequence[ComparedRun]) -> list[tuple[AgentStatus, AgentStatus]]:
    """Return the pairs of agents with the same name or the same place in the world."""
    first, second = ({agent.name: agent for agent in one.run.agents} for one in subjects)
    pairs = pair_agents(first, second)
    return [(first[own], second[name]) for name, own in pairs.items() if own][:_MAX_AGENTS]


def _show_both(values: Sequence[Any]) -> Sequence[str]:
    """Return two different values, with numbers rounded unless they would look equal."""
    round_all = partial(json.loads, parse_float=lambda text: float(f"{float(text):.{_DIGITS}g}"))
    rounded = [_show(round_all(json.dumps(value))) for value in values]
    return rounded if rounded[0] != rounded[1] else [*map(_show, values)]


def _show(value: Any) -> str:  # noqa: ANN401 - JSON
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    cut = f"{text[:_MAX_CHARS]}… ({len(text)} characters)"
    return "—" if value is None else text if len(text) <= _MAX_CHARS else cut


# -- facts -----------------------------------------------------------------------------------------


def _draw_facts(ask: Ask, subjects: Sequence[ComparedRun]) -> Markup:
    left, right = (dict(_list_facts(ask, subject)) for subject in subjects)
    facts = [(name, left.get(name), right.get(name)) for name in left | right]
    rows = [(*fact, "" if fact[1] == fact[2] else "yes") for fact in facts if any(fact[1:])]
    return join((element("h2", "Facts"), table("Facts", ("Fact", "A", "B", "Differs"), rows)))


def _list_facts(ask: Ask, subject: ComparedRun) -> Iterator[tuple[str, Child]]:
    run, name = subject.run, subject.instance_name
    status = next((status for status in run.run.instances if status.name == name), None)
    for scored, score in read_scores(ask.site, run).items():
        yield f"Score {scored}", f"{score:g}"
    yield from describe_usage(run).items()
    if status is not None:
        ending = describe_life(status.state, status.exit, status.halt)
        yield "State", state_mark(ending, is_bad=status.has_died)
        yield "World", status.world
        yield "Started", clock(status.started_at, is_long=True)
        yield "Ran", format_rough_seconds(status.uptime_s) if status.uptime_s else ""
        yield "Restarts", str(status.restarts or "")
        yield "Seed", "" if status.seed is None else str(status.seed)
        yield "Labels", format_labels(status.labels)
    yield "Came from", join(draw_origins(ask, run, read_history(run)), ", ")
    times = [save.time for save in _list_saves(subject) if save.time is not None]
    yield "Last save at", f"{max(times):.1f} s" if times else ""
    for agent in run.agents[:_MAX_AGENTS]:
        yield f"Agent {agent.name.split('-')[0]}", f"{agent.state}: {agent.reason}".rstrip(": ")


def _list_saves(subject: ComparedRun) -> Sequence[LineageSave]:
    return subject.instance.saves if subject.instance else ()


# -- the axis, and a number on it ------------------------------------------------------------------


def _draw_axes(
    save: LineageSave | None, subjects: Sequence[ComparedRun], sides: Sequence[Side]
) -> Iterator[Markup]:
    yield element("h2", f"One axis{' from the fork on' if save else ''}")
    for letter, subject, side in zip("AB", subjects, sides, strict=True):
        lanes = read_lanes(side.axis, side.recorded)
        picture = draw_axis(side.axis, dict([*lanes.items()][:_MAX_AGENTS]), side.span)
        yield element("p", element("b", letter), f" {subject.name}")
        yield element("div", picture.part(), class_="scroll", tabindex="0")


def _draw_number(sides: Sequence[Side]) -> Iterator[Markup]:
    """Yield a number that agents of both sides saw, preferably with different final values."""
    first, second = map(_read_numbers, sides)

    def rank(key: tuple[str, str]) -> tuple[bool, bool]:
        ends_equal = first[key][-1][1] == second[key][-1][1]
        return ends_equal, not any(word in key[1].lower() for word in _GOALS)

    key = min((key for key in first if key in second), key=rank, default=None)
    if key is None:
        words = "The recorded observations of both have no common number over simulated time."
        yield element("p", words, class_="muted")
        return
    agent, path = key
    lines = first[key], second[key]
    values = [value for points in lines for _, value in points]
    limits, shapes = (min(values), max(values)), list[Markup]()
    is_turned = lines[0][-1][1] < lines[1][-1][1]  # the label of the higher end is above
    for place, (side, points) in enumerate(zip(sides, lines, strict=True)):
        names = f"{svg.line_colour(place)}-line line thin{' stub' if place else ''}"
        line = svg.path(names, draw_line(points, limits, side.span, 6))
        last = f"{'AB'[place]} {points[-1][1]:.4g}"
        shapes.append(svg.group("number", [f"{last}; both {limits[0]:g} to {limits[1]:g}"], line))
        shapes.append(svg.text(RIGHT + 6, 20 + 18 * (place ^ is_turned), last, "ink small"))
    yield element("h2", f"{path} over simulated time")
    ends = " and ".join(f"{'AB'[place]} {points[-1][1]:.4g}" for place, points in enumerate(lines))
    words = f"At the end {ends}, as {agent} saw it. A is the solid line, B the dotted one."
    yield element("p", words, class_="summary")
    picture = Picture(56, f"{path} as {agent} saw it, A and B", shapes)
    yield element("div", picture.part(), class_="scroll", tabindex="0")


def _read_numbers(side: Side) -> Mapping[tuple[str, str], Points]:
    """Return numbers by agent name and path, from the fork on."""
    numbers: dict[tuple[str, str], Points] = {}
    for recording in dict.fromkeys(recording for _, recording in side.kept()):
        for key, points in recording.read_numbers().items():
            if kept := [point for point in points if point[0] >= side.span[0]]:
                numbers.setdefault(key, []).extend(kept)
    return numbers


# -- prompts and worlds ----------------------------------------------------------------------------


def _draw_prompts(subjects: Sequence[ComparedRun]) -> Iterator[Markup]:
    """Yield the first messages to the agents."""
    if pairs := _pair(subjects):
        note = "Prompts of branches differ by design, so they are not searched for differences."
        yield element("h2", "Prompts")
        yield element("p", note, class_="muted")
    for pair in pairs:
        yield element("h3", pair[0].name)
        yield _draw_pair([_show(_read_prompt(agent)) for agent in pair], (None, None))


def _read_prompt(agent: AgentStatus) -> str | None:
    with contextlib.suppress(ClawbloxError, OSError):
        index = TurnIndex(agent.dir)
        index.read_on()
        return next((turn.prompt for turn in index.turns), None)
    return None


def _draw_worlds(ask: Ask, subjects: Sequence[ComparedRun]) -> Iterator[Markup]:
    """Yield the differences of the documents in the last saves with the same simulated time."""
    lists = map(_list_saves, subjects)
    own, other = ({one.time: one for one in saves if one.path.is_file()} for saves in lists)
    times = [time for time in own.keys() & other.keys() if time is not None]
    yield element("h2", "World documents")
    if not times:
        yield element("p", "They have no saves at the same simulated time.", class_="muted")
        return
    paths = [saves[max(times)].path for saves in (own, other)]
    names = " and ".join(path.name for path in paths)
    yield element("p", f"Saves {names}, at {max(times):.1f} s.")
    worlds = (read_world(ask.site.root, path) for path in paths)
    yield draw_differences(*worlds, names=("A", "B"))
