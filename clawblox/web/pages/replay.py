"""The page of a recording: the world at a moment, and everything on its axis of time.

A page below it says what the world's own viewer runs before it is started, and where it is then.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Final

import attrs

from clawblox.errors import ClawbloxError
from clawblox.printable import printable
from clawblox.recording.reader import Record
from clawblox.rundir.recordings import FoundRecording
from clawblox.views.formatting import format_count
from clawblox.views.html import Address, Child, Markup, element, join, link, void
from clawblox.views.recordings import WorldAt, describe_event, read_world_at
from clawblox.web.axis import Axis, make_axis, read_lanes
from clawblox.web.axis_shapes import draw_axis
from clawblox.web.descent import OpenRecording, Sent, find_descent
from clawblox.web.frames import LOOK_S, RecordedWorld, find_world
from clawblox.web.observed import draw_tree
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import and_more, code, facts, state_mark, table
from clawblox.web.run_history import read_history
from clawblox.web.site import NoSuchPage, RunSummary
from clawblox.world.viewer import ViewerCommand

_MAX_AGENTS: Final = 12
_MAX_LANES: Final = 24
_MAX_LISTED: Final = 20
_SPEEDS: Final = ("1", "2", "5", "10", "60", "0.25")
_TIME: Final = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?")

_Lanes = Mapping[str, Sequence[Sent]]


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
        return self.found.sha256 is None and self.run.is_live

    def address(self, ask: Ask, *path: str, time: float | None = None) -> Address:
        """Return the address of its page, or of one below it."""
        given = None if time is None else _format_time(time)
        return ask.links.to("run", self.run.ident, "replay", self.number, *path, t=given)

    def crumbs(self, ask: Ask) -> Sequence[tuple[str, Address]]:
        """Return the pages above its page."""
        run = self.run
        return (ask.site.root.name, ask.links.to()), (run.name, ask.links.to("run", run.ident))

    def find_world(self, ask: Ask) -> RecordedWorld:
        """Return its world. Blocks.

        Raises:
            ClawbloxError: The recording cannot be read; OSError and ModuleNotFoundError as well.
        """
        with ask.site.recordings.opened(self.found, self.run.directory) as recording:
            digest = recording.world_files
        return find_world(self.found, self.run.directory, digest, int(monotonic() / LOOK_S))


def _format_time(time: float) -> str:
    """Return a simulation time as addresses have it."""
    return f"{time:.3f}".rstrip("0").rstrip(".")


def find_replay(ask: Ask, ident: str, number: str) -> Replay:
    """Return a recording by the ids in an address. Blocks.

    Raises:
        NoSuchPage: There is none.
    """
    run = ask.site.find_run(ident)
    recordings = read_history(run).recordings
    for place, found in enumerate(recordings, 1):
        if str(place) == number:
            return Replay(run, number, found, len(recordings))
    raise NoSuchPage(f"{run.name} has no recording {number}; start a world with --record")


def make_page(ask: Ask, ident: str, number: str = "1") -> Page:
    """Return the page of a recording.

    Args:
        ask: What it is asked for: ``t`` is the moment in seconds of simulation time.
        ident: The run's name in addresses.
        number: The recording.
    """
    replay = find_replay(ask, ident, number)
    try:
        parts = _make_parts(ask, replay)
    except (ClawbloxError, OSError, ModuleNotFoundError) as error:
        parts = [Part("why", element("p", f"✕ {error}", class_="bad"))]
    title = f"Replay of {replay.run.name}"
    return Page(title, replay.crumbs(ask), parts, is_live=replay.is_live)


def _make_parts(ask: Ask, replay: Replay) -> list[Part]:
    world, (axis, lanes) = replay.find_world(ask), _read_axis(ask, replay)
    with ask.site.recordings.opened(replay.found, replay.run.directory) as recording:
        time = _find_moment(ask, recording)
        can_draw = world.has_renderer and recording.has_frames
        frame = ask.links.frame(replay.run.ident, replay.number) if can_draw else None
        at = read_world_at(recording.reader, time, recording.roster(time))
        return [
            Part("facts", _draw_facts(ask, replay, recording)),
            Part("world", join(_draw_world(ask, replay, world, recording))),
            Part("player", _draw_player(ask, replay, recording, frame, time), cursor="-"),
            Part("axis", _draw_axis(axis, lanes)),
            Part("events", _draw_events(ask, replay, at)),
            Part("seen", join(_draw_seen(at, has_frame=frame is not None))),
        ]


def _read_axis(ask: Ask, replay: Replay) -> tuple[Axis, _Lanes]:
    """Return the axis of the instance that made a recording, and what its agents sent. Blocks."""
    lineages = [read_history(run).lineage for run in _find_ancestors(ask, replay.run)]
    instances = lineages[0].instances
    name = replay.found.instance or (instances[0].name if instances else "")
    lives = find_descent(lineages, replay.run.directory, name)
    with ask.site.recordings.opened_lives(lives) as recorded:
        axis = make_axis(lives, recorded.blocks)
        return axis, read_lanes(axis, recorded)


def _find_ancestors(ask: Ask, run: RunSummary) -> Sequence[RunSummary]:
    """Return a run, and the runs that its instances come from. Blocks."""
    found = {run.ident: run}
    wanted = [run]
    while wanted:
        paths = [origin.path for origin in read_history(wanted.pop()).origins]
        for other in ask.site.runs() if paths else ():
            is_parent = any(path.is_relative_to(other.directory) for path in paths)
            if is_parent and other.ident not in found:
                found[other.ident] = other
                wanted.append(other)
    return [*found.values()]


def _find_moment(ask: Ask, recording: OpenRecording) -> float:
    """Return the moment that an address names, within the recording; its first by default."""
    begin, end = recording.span
    given = ask.query.get("t", "")
    return min(max(float(given), begin), end) if _TIME.fullmatch(given) else begin


def _draw_facts(ask: Ask, replay: Replay, recording: OpenRecording) -> Markup:
    begin, end = recording.span
    index = recording.reader.index
    agents = sorted({sent.name for sent in recording.sent})
    span = {"id": "span", "data_begin": repr(begin), "data_end": repr(end)}
    hosts = (index[0].header.first.utc, index[-1].header.last.utc)
    pairs: list[tuple[str, Child]] = [
        ("Recording", f"{replay.number} of {replay.count}"),
        ("Others", _link_others(ask, replay)),
        ("Instance", replay.found.instance),
        ("Simulated", element("span", f"{begin:.2f} to {end:.2f} s", **span)),
        ("Host", " to ".join(utc[:19].replace("T", " ") for utc in hosts)),
        ("Inputs and messages", format_count(len(recording.sent)) or "0"),
        ("Agents", ", ".join(agents[:_MAX_AGENTS])),
    ]
    torn = recording.reader.torn_at is not None and not replay.is_live
    note = "Its end is incomplete: its writer was killed."
    return join((facts(pairs), element("p", note, class_="muted") if torn else None))


def _link_others(ask: Ask, replay: Replay) -> Child:
    numbers = [str(number) for number in range(1, min(replay.count, _MAX_LISTED) + 1)]
    others = (attrs.evolve(replay, number=one) for one in numbers if one != replay.number)
    links = [link(other.number, other.address(ask)) for other in others]
    return join(links, ", ") if links else None


def _draw_world(
    ask: Ask, replay: Replay, world: RecordedWorld, recording: OpenRecording
) -> Iterator[Markup]:
    """Say why nothing is drawn, what has changed since, and what else can show the recording."""
    if world.problem:
        yield element("p", "◇ ", world.problem, class_="lost")
    elif not (world.has_renderer and recording.has_frames):
        why = "has no renderer" if recording.has_frames else "recorded no states of the world"
        yield element("p", f"The world {why}: what its agents saw is shown.", class_="muted")
    if world.change:
        yield element("p", "◇ ", world.change, class_="warning")
    if world.viewer is not None and ask.viewers is not None:
        yield element("p", link("Start the world's own viewer…", replay.address(ask, "viewer")))


def _draw_player(
    ask: Ask, replay: Replay, recording: OpenRecording, frame: Address | None, time: float
) -> Markup:
    begin, end = map(_format_time, recording.span)
    speeds = [element("option", f"{speed} times", value=speed) for speed in _SPEEDS]
    shown, title = None, "The world at the moment, drawn by its own renderer"
    if frame is not None:
        shown = element("iframe", src=frame, sandbox="allow-scripts", title=title, class_="stage")
    span = {"min": begin, "max": end, "value": _format_time(time), "step": "any"}
    name = "Moment, in seconds of simulated time"
    controls = element(
        "form",
        element("button", "Play", type="button", id="play", hidden=""),
        element("span", f"{time:.2f} s", id="now"),
        void("input", type="range", name="t", id="slider", aria_label=name, **span),
        element("select", *speeds, id="speed", aria_label="Speed", hidden=""),
        element("button", "Show", type="submit", id="show"),
        method="get",
        action=replay.address(ask),
        class_="row player",
        data_states=replay.address(ask, "states").text,
    )
    script = element("script", src=ask.links.file("replay.js"), defer="")
    return join((shown, controls, script))


def _draw_axis(axis: Axis, lanes: _Lanes) -> Markup:
    shown = dict([*lanes.items()][:_MAX_LANES])
    edges = {"data_begin": repr(axis.begin), "data_end": repr(axis.end)}
    strip = element("div", draw_axis(axis, shown).part(), class_="scroll", id="strip", **edges)
    return join((strip, and_more(len(lanes) - len(shown))))


def _draw_events(ask: Ask, replay: Replay, at: WorldAt) -> Markup:
    rows = [_draw_event(ask, replay, at, record) for record in (*at.before, *at.after)]
    now = (element("b", f"{at.time:.3f}"), None, None, element("b", "▶ this moment"))
    rows.insert(len(at.before), now)
    headings = ("Simulated, s", "Host, UTC", "Agent", "What")
    return join((element("h2", "Inputs and events"), table("Inputs and events", headings, rows)))


def _draw_event(ask: Ask, replay: Replay, at: WorldAt, record: Record) -> Sequence[Child]:
    moment, what = record.moment, describe_event(record.fields)
    name = at.roster.names.get(str(record.fields.get("agent_id")), "")
    to = replay.address(ask, time=moment.time)
    return (
        link(f"{moment.time:.3f}", to, data_t=_format_time(moment.time)),
        element("time", moment.utc[11:23], datetime=moment.utc, data_fixed=""),
        _link_agent(ask, replay, name, record),
        element("span", what, class_="muted") if moment.time > at.time else what,
    )


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
        yield element("h3", heading)
        yield draw_tree(f"seen-{ident}", record.fields.get("observation"), before)
    yield and_more(len(at.observations) - _MAX_AGENTS)
    if at.frame is not None and not has_frame:
        yield element("h3", f"The world at {at.frame.moment.time:.3f} s, as a spectator sees it")
        yield draw_tree("frame", at.frame.fields.get("frame"))


# -- the world's own viewer ------------------------------------------------------------------------


def make_viewer_page(ask: Ask, ident: str, number: str) -> Page:
    """Return the page of the viewer of a recording's world."""
    replay = find_replay(ask, ident, number)
    viewer = find_viewer(ask, replay)
    running = ask.viewers.find(ident, number) if ask.viewers else None
    words = viewer.fill(replay.found.path, None)
    parts: list[Child] = []
    if running is not None:
        words = running.words or words
        parts.append(element("p", state_mark(running.state), " ", running.why))
        if running.state == "running" and viewer.has_port:
            given = link(running.address, replay.address(ask, "viewer", "open"))
            parts.append(element("p", "It was given the address ", given))
        parts.append(element("pre", running.text) if running.text else None)
    where, command = (printable(text) for text in (str(viewer.cwd), shlex.join(words)))
    parts.append(facts((("Command", code(command)), ("In the directory", code(where)))))
    if running is None or running.state != "running":
        note = (
            "This starts a program on this machine, with your rights: the command [replay] of the "
            "world that made the recording. It ends when clawblox app ends."
        )
        button = element("button", "Start this program", type="submit")
        to = replay.address(ask, "viewer")
        parts.append(element("p", note))
        parts.append(element("form", button, method="post", action=to, class_="row"))
    above = (*replay.crumbs(ask), (f"replay {number}", replay.address(ask)))
    part = Part("viewer", join(parts))
    return Page("The world's own viewer", above, (part,), is_live=running is not None)


def find_viewer(ask: Ask, replay: Replay) -> ViewerCommand:
    """Return the command of the viewer of a recording's world. Blocks.

    Raises:
        NoSuchPage: The world has none, or is not there; or this server starts none.
    """
    if ask.viewers is None:
        raise NoSuchPage("Nothing can be started from here.")
    try:
        world = replay.find_world(ask)
    except (ClawbloxError, OSError, ModuleNotFoundError) as error:
        raise NoSuchPage(str(error)) from error
    if world.viewer is None:
        raise NoSuchPage(world.problem or "The world has no [replay] command in its world.toml.")
    return world.viewer
