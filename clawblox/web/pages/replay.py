"""The page of a recording: the world at a moment, and all events on its time axis.

The page can also start the world's own viewer; before, it shows the viewer's command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from time import monotonic
from typing import Final

import attrs

from clawblox.errors import ClawbloxError
from clawblox.printable import printable, printable_lines
from clawblox.recording.reader import Record
from clawblox.rundir.recordings import FoundRecording
from clawblox.views.axis import Axis, Sent, format_position
from clawblox.views.axis_svg import draw_axis
from clawblox.views.html import Child, Markup, PageAddress, element, join, link, void
from clawblox.views.recordings import WorldAt, describe_event, read_world_at
from clawblox.web.frames import LOOK_S, RecordedWorld, RunningViewer, find_world
from clawblox.web.page import Ask, Page, Part
from clawblox.web.pieces import and_more, code, facts, state_mark, table, tree
from clawblox.web.recordings import OpenRecording, read_lanes
from clawblox.web.run_history import find_line, read_history
from clawblox.web.site import NoSuchPage, RunSummary, first
from clawblox.world.viewer import ViewerCommand

_MAX_AGENTS: Final = 12
_MAX_LANES: Final = 24
_MAX_LISTED: Final = 20
_SPEEDS: Final = ("1", "2", "5", "10", "60", "0.25")
_TIME: Final = re.compile(r"-?\d{1,15}(?:\.\d{1,20})?(?:e-\d\d?)?", re.ASCII)

_Lanes = Mapping[str, Sequence[Sent]]


@attrs.frozen
class ReplayedRecording:
    """A recording of a run.

    Attributes:
        ask: The request.
        run: The run.
        number: The number of the recording in the run.
        found: The recording.
    """

    ask: Ask
    run: RunSummary
    number: str
    found: FoundRecording

    @property
    def running(self) -> RunningViewer | None:
        """The viewer that was started for the recording."""
        viewers = self.ask.viewers
        return viewers.find(self.run.ident, self.number) if viewers else None

    @property
    def is_live(self) -> bool:
        """True if the recording can grow."""
        return self.found.sha256 is None and self.run.is_live

    def address(self, *path: str, **query: str) -> PageAddress:
        """Return the address of the recording's page, or of a page below."""
        return self.ask.links.to("run", self.run.ident, "replay", self.number, *path, **query)

    def opened(self) -> AbstractContextManager[OpenRecording]:
        """Open the recording for a block; see :meth:`Recordings.opened`."""
        return self.ask.site.recordings.opened(self.found, self.run.directory)

    def find_world(self) -> RecordedWorld:
        """Return the world of the recording. Blocks.

        Raises:
            ClawbloxError: The recording cannot be read; OSError and ModuleNotFoundError as well.
        """
        with self.opened() as recording:
            digest = recording.world_files
        return find_world(self.found, self.run.directory, digest, int(monotonic() / LOOK_S))


def find_replay(ask: Ask, ident: str, number: str) -> ReplayedRecording:
    """Return a recording by the ids in an address. Blocks.

    Raises:
        NoSuchPage: There is no such recording.
    """
    run = ask.site.find_run(ident)
    numbered = enumerate(read_history(run).recordings, 1)
    found = (one for place, one in numbered if str(place) == number)
    why = f"{run.name} has no recording {number}; start a world with --record"
    return ReplayedRecording(ask, run, number, first(found, why))


def find_viewer(ask: Ask, ident: str, number: str) -> tuple[ReplayedRecording, ViewerCommand]:
    """Return a recording and the command of the viewer of its world. Blocks.

    Raises:
        NoSuchPage: There is no viewer, or this server starts no viewers.
        ClawbloxError: The recording cannot be read; OSError and ModuleNotFoundError as well.
    """
    replay = find_replay(ask, ident, number)
    world = replay.find_world()
    if ask.viewers is None or world.viewer is None:
        raise NoSuchPage(world.problem or "No viewer of this world can be started from here.")
    return replay, world.viewer


def make_page(ask: Ask, ident: str, number: str = "1") -> Page:
    """Return the page of a recording.

    Args:
        ask: The request; ``t`` is the moment in seconds of simulation time.
        ident: The run's name in addresses.
        number: The recording.
    """
    replay = find_replay(ask, ident, number)
    try:
        parts = _make_parts(replay)
    except (ClawbloxError, OSError, ModuleNotFoundError) as error:
        parts = [Part("why", element("p", f"✕ {error}", class_="bad"))]
    run, is_live = replay.run, replay.is_live or replay.running is not None
    return Page(f"Replay of {run.name}", ask.crumbs(run), parts, is_live=is_live)


def _make_parts(replay: ReplayedRecording) -> list[Part]:
    ask, world, (axis, lanes) = replay.ask, replay.find_world(), _read_axis(replay)
    with replay.opened() as recording:
        (begin, end), given = recording.span, _find_time(ask, "t")
        time = begin if given is None else min(max(given, begin), end)
        can_draw = world.has_renderer and recording.has_frames
        frame = ask.links.frame(replay.run.ident, replay.number, world) if can_draw else None
        at = read_world_at(recording.reader, time, recording.roster(time))
        return [
            Part("facts", _draw_facts(replay, recording)),
            Part("world", join(_draw_world(replay, world, recording))),
            Part("player", _draw_player(replay, recording, frame, time), cursor="-"),
            Part("axis", _draw_axis(axis, lanes)),
            Part("events", _draw_events(replay, at)),
            Part("seen", join(_draw_seen(at, has_frame=frame is not None))),
        ]


def _read_axis(replay: ReplayedRecording) -> tuple[Axis, _Lanes]:
    """Return the axis of the instance that made a recording, and its agents' inputs. Blocks."""
    site, instances = replay.ask.site, read_history(replay.run).lineage.instances
    name = replay.found.instance or next((one.name for one in instances), "")
    with site.recordings.opened_axis(find_line(site, replay.run, name)) as (axis, recorded):
        return axis, read_lanes(axis, recorded)


def read_states(ask: Ask, run: str, number: str) -> bytes:
    """Return states of a recording as JSON, from ``from`` to ``to``. Blocks.

    Raises:
        NoSuchPage: There is no such recording, or no such moments.
        ClawbloxError: The recording cannot be read; OSError and ModuleNotFoundError as well.
    """
    since, until = (_find_time(ask, name) for name in ("from", "to"))
    if since is None or until is None:
        raise NoSuchPage("The moments must be seconds of simulation time.")
    with find_replay(ask, run, number).opened() as recording:
        return recording.read_states(since, until)


def _find_time(ask: Ask, name: str) -> float | None:
    given = ask.query.get(name, "")
    return float(given) if _TIME.fullmatch(given) else None


def _draw_facts(replay: ReplayedRecording, recording: OpenRecording) -> Markup:
    (begin, end), index = recording.span, recording.reader.index
    count = len(read_history(replay.run).recordings)
    span = {"id": "span", "data_begin": repr(begin), "data_end": repr(end)}
    hosts = (index[0].header.first.utc, index[-1].header.last.utc)
    numbers = map(str, range(1, min(count, _MAX_LISTED) + 1))
    others = [link(n, attrs.evolve(replay, number=n).address()) for n in numbers]
    is_torn = recording.reader.torn_at is not None and not replay.is_live
    pairs: list[tuple[str, Child]] = [
        ("Recording", f"{replay.number} of {count}"),
        ("All recordings", join(others, ", ") if others[1:] else None),
        ("Instance", replay.found.instance),
        ("Simulated", element("span", f"{begin:.2f} to {end:.2f} s", **span)),
        ("Host", " to ".join(utc[:19].replace("T", " ") for utc in hosts)),
        ("End", "incomplete: its writer was killed" if is_torn else None),
    ]
    return facts(pairs)


def _draw_world(
    replay: ReplayedRecording, world: RecordedWorld, recording: OpenRecording
) -> Iterator[Markup]:
    """Yield the reason if the world is not drawn, its changes since, and its own viewer."""
    if world.problem:
        yield element("p", "◇ ", world.problem, class_="lost")
    elif not (world.has_renderer and recording.has_frames):
        why = "has no renderer" if recording.has_frames else "recorded no states of the world"
        yield element(
            "p", f"The world {why}, so the observations of its agents are shown.", class_="muted"
        )
    if world.change:
        yield element("p", "◇ ", world.change, class_="warning")
    if world.viewer is not None and replay.ask.viewers is not None:
        summary = element("summary", "The world's own viewer")
        is_open = "" if replay.running else None
        drawn = _draw_viewer(replay, world.viewer)
        yield element("details", summary, *drawn, id="viewer", open=is_open)


def _draw_viewer(replay: ReplayedRecording, viewer: ViewerCommand) -> Iterator[Child]:
    """Yield the command of the world's own viewer, and a button to start it or its address."""
    running = replay.running
    words = (running and running.words) or viewer.fill(replay.found.path, "{port}")
    where, command = (code(printable(text)) for text in (str(viewer.cwd), shlex.join(words)))
    yield facts((("Command", command), ("In the directory", where)))
    if running is None or running.state != "running":
        note = "This starts a program on this machine, with your rights, until clawblox app ends."
        button = element("button", "Start this program", type="submit")
        yield element("p", note)
        yield element("form", button, method="post", action=replay.address("viewer"), class_="row")
    elif running.port and viewer.has_port:
        address = link(running.address, replay.address("viewer", "open"))
        yield element("p", "It was given the address ", address)
    if running is not None:
        yield element("p", state_mark(running.state), " ", running.why)
        yield element("pre", printable_lines(running.output.decode(errors="replace")))


def _draw_player(
    replay: ReplayedRecording, recording: OpenRecording, frame: PageAddress | None, time: float
) -> Markup:
    begin, end = map(format_position, recording.span)
    speeds = (element("option", f"{speed}x", value=speed) for speed in _SPEEDS)
    stage = {"sandbox": "allow-scripts", "title": "The world at the moment", "class_": "stage"}
    span = {"min": begin, "max": end, "value": format_position(time), "step": "any"}
    name = "Moment, in seconds of simulated time"
    controls = (
        element("button", "Play", type="button", id="play", hidden=""),
        element("span", f"{time:.2f} s", id="now"),
        void("input", type="range", name="t", id="slider", aria_label=name, **span),
        element("select", *speeds, id="speed", aria_label="Speed", hidden=""),
        element("button", "Show", type="submit", id="show"),
    )
    states, to = replay.address("states").text, replay.address()
    form = {"method": "get", "class_": "row player", "data_states": states}
    pieces = (
        element("iframe", src=frame, **stage) if frame is not None else None,
        element("form", *controls, action=to, **form),
        element("script", src=replay.ask.links.file("replay.js"), defer=""),
    )
    return join(pieces)


def _draw_axis(axis: Axis, lanes: _Lanes) -> Markup:
    shown = dict([*lanes.items()][:_MAX_LANES])
    edges = {"data_begin": repr(axis.begin), "data_end": repr(axis.end)}
    strip = element("div", draw_axis(axis, shown).part(), class_="scroll", id="strip", **edges)
    return join((strip, and_more(len(lanes) - len(shown))))


def _draw_events(replay: ReplayedRecording, at: WorldAt) -> Markup:
    rows = [_draw_event(replay, at, record) for record in (*at.before, *at.after)]
    now = (element("b", f"{at.time:.3f}"), None, None, element("b", "▶ this moment"))
    rows.insert(len(at.before), now)
    headings = ("Simulated, s", "Host, UTC", "Agent", "What")
    return join((element("h2", "Inputs and events"), table("Inputs and events", headings, rows)))


def _draw_event(replay: ReplayedRecording, at: WorldAt, record: Record) -> Sequence[Child]:
    moment, what = record.moment, describe_event(record.fields)
    who: Child = at.roster.names.get(str(record.fields.get("agent_id")), "")
    for agent in (one for one in replay.run.agents if one.name == who):
        place = ("run", replay.run.ident, "agent", replay.ask.site.identify(agent.dir))
        who = link(agent.name, replay.ask.links.to(*place, utc=moment.utc))
    time = format_position(moment.time)
    return (
        link(f"{moment.time:.3f}", replay.address(t=time), data_t=time),
        element("time", moment.utc[11:23], datetime=moment.utc, data_fixed=""),
        who,
        element("span", what, class_="muted") if moment.time > at.time else what,
    )


def _draw_seen(at: WorldAt, *, has_frame: bool) -> Iterator[Child]:
    yield element("h2", "Observations of agents")
    if not at.observations:
        yield element("p", "No agent in the world has an observation yet.", class_="muted")
    for record in at.observations[:_MAX_AGENTS]:
        ident, since, before = str(record.fields.get("agent_id")), "", None
        if (earlier := at.earlier.get(ident)) is not None:
            since = f", changes since {earlier.moment.time:.3f} s marked"
            before = earlier.fields.get("observation")
        yield element("h3", f"{at.roster.name(ident)} at {record.moment.time:.3f} s{since}")
        yield tree(f"seen-{ident}", record.fields.get("observation"), before)
    yield and_more(len(at.observations) - _MAX_AGENTS)
    if at.frame is not None and not has_frame:
        yield element("h3", f"The world at {at.frame.moment.time:.3f} s, as a spectator sees it")
        yield tree("frame", at.frame.fields.get("frame"))
