"""The page of a recording: the world at a moment, and everything on its axis of time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from clawblox.errors import ClawbloxError
from clawblox.recording.reader import Record
from clawblox.rundir.recordings import FoundRecording
from clawblox.rundir.status import OVER
from clawblox.views.formatting import count_words, format_count
from clawblox.views.html import Address, Child, Markup, element, join, link, void
from clawblox.views.recordings import WorldAt, describe_event, read_world_at
from clawblox.web.axis import Axis, LanePoint
from clawblox.web.axis_shapes import LEFT, RIGHT, draw_axis
from clawblox.web.number_plots import draw_numbers, read_numbers
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import facts, table
from clawblox.web.recorded import OpenRecording, list_replays
from clawblox.web.recorded_world import RecordedWorld, find_world
from clawblox.web.replay_axis import read_axis
from clawblox.web.site import NoSuchPage, RunSummary
from clawblox.web.value_tree import draw_tree

_MAX_AGENTS: Final = 12
_MAX_LANES: Final = 24
_MAX_LISTED: Final = 20
_SPEEDS: Final = ("1", "2", "5", "10", "60", "0.25")
_TIME: Final = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?")
_UTC: Final = re.compile(r"[\d:.TZ+-]{10,40}")


@attrs.frozen
class Replay:
    """A recording of a run.

    Attributes:
        run: The run.
        number: Its number there.
        found: The recording.
        count: How many recordings the run has.
    """

    run: RunSummary
    number: str
    found: FoundRecording
    count: int

    @property
    def is_live(self) -> bool:
        """Whether it can grow."""
        return self.found.sha256 is None and any(
            status.state not in OVER
            for status in self.run.run.instances
            if self.found.instance in ("", status.name)
        )

    def address(self, ask: Ask, *path: str, time: float | None = None) -> Address:
        """Return the address of its page, or of one below it."""
        given = None if time is None else format_time(time)
        return ask.links.to("run", self.run.ident, "replay", self.number, *path, t=given)


def format_time(time: float) -> str:
    """Return a simulation time as addresses have it."""
    return f"{time:.3f}".rstrip("0").rstrip(".")


def find_replay(ask: Ask, ident: str, number: str) -> Replay:
    """Return a recording by the ids in an address. Blocks.

    Raises:
        NoSuchPage: There is none.
    """
    run = ask.site.find_run(ident)
    replays = list_replays(run.directory)
    found = replays.get(number)
    if found is None:
        raise NoSuchPage(f"{run.name} has no recording {number}; start a world with --record")
    return Replay(run, number, found, len(replays))


def crumbs(ask: Ask, run: RunSummary) -> Sequence[tuple[str, Address]]:
    """Return the pages above those of a recording."""
    return (ask.site.root.name, ask.links.to()), (run.name, ask.links.to("run", run.ident))


def make_page(ask: Ask, ident: str, number: str = "") -> Page:
    """Return the page of a recording.

    Args:
        ask: What it is asked for: ``t`` is the moment in seconds of simulation time; ``utc`` is one
            of the host.
        ident: The run's name in addresses.
        number: The recording; empty for the one with the moment ``utc``, or else the first.
    """
    number = number or _choose(ask, ident)
    replay = find_replay(ask, ident, number)
    above = crumbs(ask, replay.run)
    title = f"Replay of {replay.run.name}"
    try:
        axis, lanes = read_axis(ask.site, replay.run, replay.found)
        with ask.site.recordings.opened(replay.found, replay.run.directory) as recording:
            parts = list(_make_parts(ask, replay, recording, axis, lanes))
    except ClawbloxError as error:
        why = element("p", "✕ ", str(error), class_="bad")
        return Page(title, above, (Part("why", why),), is_live=replay.is_live)
    return Page(title, above, parts, is_live=replay.is_live)


def _choose(ask: Ask, ident: str) -> str:
    run = ask.site.find_run(ident)
    replays = list_replays(run.directory)
    for number, found in replays.items():
        try:
            with ask.site.recordings.opened(found, run.directory) as recording:
                if _find_utc(ask, recording) is not None:
                    return number
        except ClawbloxError:
            continue
    return next(iter(replays), "1")


def _find_utc(ask: Ask, recording: OpenRecording) -> float | None:
    utc = ask.query.get("utc", "")
    return recording.find_time(utc) if _UTC.fullmatch(utc) else None


def find_moment(ask: Ask, recording: OpenRecording) -> float:
    """Return the moment that an address names, within the recording; its first by default."""
    begin, end = recording.span
    given = ask.query.get("t", "")
    time = float(given) if _TIME.fullmatch(given) else _find_utc(ask, recording)
    return begin if time is None else min(max(time, begin), end)


def _make_parts(
    ask: Ask,
    replay: Replay,
    recording: OpenRecording,
    axis: Axis,
    lanes: Mapping[str, Sequence[LanePoint]],
) -> Iterator[Part]:
    world = find_world(replay.found, replay.run.directory, recording.start.get("world_files"))
    time = find_moment(ask, recording)
    frame = None
    if world.has_renderer and recording.has_frames:
        frame = ask.links.frame(replay.run.ident, replay.number)
    at = read_world_at(recording.reader, time, recording.roster(time))
    yield Part("facts", _draw_facts(ask, replay, recording))
    yield Part("world", _draw_world(ask, replay, world, recording, has_frame=frame is not None))
    yield Part("player", _draw_player(ask, replay, recording, frame, time), cursor="-")
    yield Part("axis", _draw_axis(axis, lanes))
    yield Part("events", _draw_events(ask, replay, at))
    yield Part("seen", join(_draw_seen(at, has_frame=frame is not None)))
    if frame is None:
        yield Part("numbers", _draw_numbers(recording, (axis.begin, axis.end)))


def _draw_facts(ask: Ask, replay: Replay, recording: OpenRecording) -> Markup:
    begin, end = recording.span
    index = recording.reader.index
    agents = {sent.name for sent in recording.sent}
    pairs: list[tuple[str, Child]] = [
        ("Recording", f"{replay.number} of {replay.count}"),
        ("Others", _link_others(ask, replay)),
        ("Instance", replay.found.instance),
        ("Simulated", element("span", f"{begin:.2f} to {end:.2f} s", id="span",
                              data_begin=repr(begin), data_end=repr(end))),
        ("Host", f"{_utc(index[0].header.first.utc)} to {_utc(index[-1].header.last.utc)}"),
        ("Inputs and messages", format_count(len(recording.sent)) or "0"),
        ("Agents", ", ".join(sorted(agents)[:_MAX_AGENTS])),
    ]  # fmt: skip
    torn = recording.reader.torn_at is not None and not replay.is_live
    note = "Its end is incomplete: its writer was killed." if torn else None
    return join((facts(pairs), element("p", note, class_="muted") if note else None))


def _link_others(ask: Ask, replay: Replay) -> Child:
    numbers = [str(number) for number in range(1, min(replay.count, _MAX_LISTED) + 1)]
    others = [
        link(number, attrs.evolve(replay, number=number).address(ask))
        for number in numbers
        if number != replay.number
    ]
    return join(others, ", ") if others else None


def _utc(utc: str) -> str:
    return utc[:19].replace("T", " ")


def _draw_world(
    ask: Ask,
    replay: Replay,
    world: RecordedWorld,
    recording: OpenRecording,
    *,
    has_frame: bool,
) -> Markup:
    """Say why nothing is drawn, what has changed since, and what else can show the recording."""
    notes: list[Child] = []
    if world.problem:
        notes.append(element("p", "◇ ", world.problem, class_="lost"))
    elif world.change:
        notes.append(element("p", "◇ ", world.change, class_="warning"))
    can_draw = world.has_renderer and recording.has_frames  # though not where no frame can be
    if not has_frame and not world.problem and not can_draw:
        why = "has no renderer" if recording.has_frames else "recorded no states of the world"
        notes.append(
            element("p", f"The world {why}: what its agents saw is shown.", class_="muted")
        )
    if world.viewer is not None and ask.viewers is not None:
        to = link("Start the world's own viewer…", replay.address(ask, "viewer"))
        notes.append(element("p", to))
    return join(notes)


def _draw_player(
    ask: Ask, replay: Replay, recording: OpenRecording, frame: Address | None, time: float
) -> Markup:
    begin, end = recording.span
    speeds = [element("option", f"{speed} times", value=speed) for speed in _SPEEDS]
    shown = None
    if frame is not None:
        name = "The world at the moment, drawn by its own renderer"
        shown = element("iframe", src=frame, sandbox="allow-scripts", title=name, class_="stage")
    slider = void(
        "input",
        type="range",
        name="t",
        id="slider",
        min=format_time(begin),
        max=format_time(end),
        step="any",
        value=format_time(time),
        aria_label="Moment, in seconds of simulated time",
    )
    controls = element(
        "form",
        element("button", "Play", type="button", id="play", hidden=""),
        element("span", f"{time:.2f} s", id="now"),
        slider,
        element("select", *speeds, id="speed", aria_label="Speed", hidden=""),
        element("button", "Show", type="submit", id="show"),
        method="get",
        action=replay.address(ask),
        class_="row player",
        data_states=replay.address(ask, "states").text,
    )
    script = element("script", src=ask.links.file("replay.js"), defer="")
    return join((shown, controls, script))


def _draw_axis(axis: Axis, lanes: Mapping[str, Sequence[LanePoint]]) -> Markup:
    shown = dict(list(lanes.items())[:_MAX_LANES])
    more = count_words(len(lanes) - len(shown), "more agent")
    edges = {"data_begin": repr(axis.begin), "data_end": repr(axis.end)}
    strip = element("div", draw_axis(axis, shown).part(), class_="scroll", id="strip", **edges)
    return join((strip, element("p", f"and {more}") if len(lanes) > len(shown) else None))


def _draw_events(ask: Ask, replay: Replay, at: WorldAt) -> Markup:
    rows = [_draw_event(ask, replay, at, record, "") for record in at.before]
    rows.append((element("b", f"{at.time:.3f}"), None, None, element("b", "▶ this moment")))
    rows += [_draw_event(ask, replay, at, record, "after") for record in at.after]
    headings = ("Simulated, s", "Host, UTC", "Agent", "What")
    return join((element("h2", "Inputs and events"), table("Inputs and events", headings, rows)))


def _draw_event(
    ask: Ask, replay: Replay, at: WorldAt, record: Record, kind: str
) -> Sequence[Child]:
    moment = record.moment
    what = describe_event(record.fields)
    return (
        _link_moment(ask, replay, moment.time),
        element("time", moment.utc[11:23], datetime=moment.utc, data_fixed=""),
        _link_agent(ask, replay, at.roster.raw_name(str(record.fields.get("agent_id"))), record),
        element("span", what, class_="muted") if kind else what,
    )


def _link_moment(ask: Ask, replay: Replay, time: float) -> Markup:
    return link(f"{time:.3f}", replay.address(ask, time=time), data_t=format_time(time))


def _link_agent(ask: Ask, replay: Replay, name: str, record: Record) -> Child:
    """Return the name of an agent; of an agent of clawblox, linked to its steps of that time."""
    for agent in replay.run.agents:
        if agent.name == name:
            to = ("run", replay.run.ident, "agent", ask.site.identify(agent.dir))
            return link(name, ask.links.to(*to, utc=record.moment.utc))
    return name


def _draw_seen(at: WorldAt, *, has_frame: bool) -> Iterator[Child]:
    yield element("h2", "What agents saw")
    if not at.observations:
        yield element("p", "No agent in the world has seen anything yet.", class_="muted")
    for record in at.observations[:_MAX_AGENTS]:
        ident = str(record.fields.get("agent_id"))
        earlier = at.earlier.get(ident)
        since = "" if earlier is None else f", changes since {earlier.moment.time:.3f} s marked"
        heading = f"{at.roster.name(ident)} at {record.moment.time:.3f} s{since}"
        before = None if earlier is None else earlier.fields.get("observation")
        tree = draw_tree(f"seen-{ident}", record.fields.get("observation"), before)
        yield element("h3", heading)
        yield tree
    if len(at.observations) > _MAX_AGENTS:
        more = count_words(len(at.observations) - _MAX_AGENTS, "more agent")
        yield element("p", f"and {more}", class_="muted")
    if at.frame is not None and not has_frame:
        yield element("h3", f"The world at {at.frame.moment.time:.3f} s, as a spectator sees it")
        yield draw_tree("frame", at.frame.fields.get("frame"))


def _draw_numbers(recording: OpenRecording, span: tuple[float, float]) -> Markup:
    numbers = read_numbers(recording.reader)
    if not numbers:
        return join(())
    roster = recording.roster(float("inf"))
    names = {agent: roster.name(agent) for agent, _ in numbers}
    picture = draw_numbers(numbers, names, span, (LEFT, RIGHT))
    heading = element("h2", "Numbers that agents saw")
    return join((heading, element("div", picture.part(), class_="scroll")))
