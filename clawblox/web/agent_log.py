"""The content of an agent's files, cached so that a page reads only new bytes."""

from __future__ import annotations

import functools
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs

from clawblox.agents.access.agent_access import MAX_RECORD_BYTES
from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentStatus
from clawblox.agents.trajectory import StepWindow, TurnIndex, read_window
from clawblox.errors import ClawbloxError
from clawblox.foreign_values import parse_json
from clawblox.rundir.listed_saves import LineageSave
from clawblox.rundir.manifest import read_manifest
from clawblox.rundir.manifest_entries import objects_in, read_text
from clawblox.rundir.records import path_mover
from clawblox.system.regular_files import read_regular
from clawblox.views.agent_words import to_seconds
from clawblox.views.axis import Axis, Sent
from clawblox.views.descent import find_descent
from clawblox.views.html import PageAddress
from clawblox.web.page import Ask
from clawblox.web.recordings import Recordings
from clawblox.web.run_history import RunHistory, read_history
from clawblox.web.site import RunSummary

_KEPT: Final = 8
"""Number of agents whose turns stay in memory."""
_WINDOW_BYTES: Final = 160 << 10
_MAX_STEPS: Final = 120
"""Maximum number of steps of a window; a window with more steps is read again, shorter."""
_NEAR: Final = 50
"""Number of inputs to search on each side of a time for the input of a log line."""
_NO_AXIS: Final = Axis((), (), (), is_simulated=False)


@attrs.frozen
class AgentWorld:
    """Facts about an agent's world from the manifests and recordings of its run.

    Attributes:
        history: The history of the run.
        axis: The time axis of the agent's instance.
        recordings: Recordings on the axis: number, first and last UTC time, inputs of the agent.
    """

    history: RunHistory
    axis: Axis = _NO_AXIS
    recordings: Sequence[tuple[int, str, str, Sequence[Sent]]] = ()

    @property
    def checkpoints(self) -> Sequence[LineageSave]:
        """The archives of the run, oldest first."""
        return [save for save in reversed(self.history.saves) if not save.instance]

    def find_time(self, utc: str | None, words: str = "") -> tuple[int, float] | None:
        """Return the recording and the simulated time of a moment; None if it was not recorded.

        Args:
            utc: The moment; for an input or a message, its approximate time.
            words: The words of the input or message; empty if there was none.
        """
        place = self.axis.place(utc or "") if self.axis.is_simulated else None
        if utc and place and not place.is_paused:
            for number, first, last, sent in self.recordings:
                if first <= utc <= last:
                    at, moment = bisect_left(sent, utc, key=lambda one: one.utc), to_seconds(utc)
                    near = sent[max(0, at - _NEAR) : at + _NEAR]
                    same = [one for one in near if one.words == words]
                    same.sort(key=lambda one: abs((to_seconds(one.utc) or 0.0) - (moment or 0.0)))
                    return number, same[0].time if same else place.position
        return None


@attrs.frozen
class AgentView:
    """An agent and its turns, for the request of a page."""

    ask: Ask
    run: RunSummary
    agent: AgentStatus
    turns: TurnIndex

    @functools.cached_property
    def world(self) -> AgentWorld:
        """The agent's world. Blocks."""
        return _read_world(self.run, self.turns.directory.path, self.ask.site.recordings)

    def read_window(self, at: int | None, before: int | None) -> StepWindow:
        """Return a window with a limited number of steps. Blocks.

        Args:
            at: As for :func:`~clawblox.agents.trajectory.read_window`.
            before: As for the same function.

        Raises:
            OSError: A file of the agent cannot be read.
            ClawbloxError: A later clawblox wrote a file of the agent.
        """
        for part in (1, 4, 16, 64):
            window = read_window(self.turns, at, before=before, max_bytes=_WINDOW_BYTES // part)
            if len(window.steps) <= _MAX_STEPS:
                break
        return window

    @property
    def path(self) -> Sequence[str]:
        """The path of the agent's page."""
        return "run", self.run.ident, "agent", self.ask.site.identify(self.agent.dir)

    def to(self, *more: str, fragment: str = "", **query: str | int | None) -> PageAddress:
        """Return the address of the agent's page, or of a page below."""
        return self.ask.links.to(*self.path, *more, fragment=fragment, **query)


@contextmanager
def opened_agent(ask: Ask, run: RunSummary, agent: AgentStatus) -> Iterator[AgentView]:
    """Yield an agent with its log read to the end; other readers wait for the block. Blocks.

    Raises:
        OSError: A file is outside the directory of the site, or cannot be read.
        ClawbloxError: No agent has run there, or a later clawblox wrote a file.
    """
    files = AgentDir(agent.dir)
    for path in (files.log_file, files.events_file):
        if not path.resolve().is_relative_to(ask.site.root):
            raise PermissionError(f"{path} is not below {ask.site.root}")
    turns, lock = _keep(agent.dir)
    with lock:
        turns.read_on()
        yield AgentView(ask, run, agent, turns)


@functools.lru_cache(maxsize=_KEPT)
def _keep(directory: Path) -> tuple[TurnIndex, threading.Lock]:
    return TurnIndex(directory), threading.Lock()


def read_address(directory: Path) -> str:
    """Return the address of its world that an agent was given; empty if there is none. Blocks."""
    with suppress(OSError, ValueError):
        content = read_regular(AgentDir(directory).access_file, max_bytes=MAX_RECORD_BYTES)
        match parse_json(content):
            case {"base_url": str(address)}:
                return address
    return ""


def _find_instance(run: RunSummary, directory: Path) -> str:
    """Return the instance that an agent acts in; empty if there is none."""
    move, instances, known = path_mover(run.directory), run.run.instances, list[object]()
    for home in dict.fromkeys((run.directory, *(status.instance_dir for status in instances))):
        with suppress(ClawbloxError):  # the manifest does not exist until an instance is up
            manifest = read_manifest(home)
            for entry in objects_in(manifest.agents):
                place = read_text(entry, "dir")
                if place is not None and move(manifest.resolve(place)) == directory:
                    known.append(entry.get("run_id"))
    own = [status.name for status in instances if status.run_id in known]
    return next(iter([*own, *(status.name for status in instances)]), "")


def _read_world(run: RunSummary, directory: Path, recordings: Recordings) -> AgentWorld:
    history, spans = read_history(run), list[tuple[int, str, str, Sequence[Sent]]]()
    numbers = {found.path: number for number, found in enumerate(history.recordings, 1)}
    lives = find_descent((history.lineage,), run.directory, _find_instance(run, directory))
    try:
        with recordings.opened_axis(lives) as (axis, recorded):
            for one in (one for some in recorded.values() for one in some):
                headers = [entry.header for entry in one.reader.index]
                last = max(header.last.utc for header in headers)
                sent = [sent for sent in one.sent if sent.name == directory.name]
                spans.append((numbers[one.reader.path], headers[0].first.utc, last, sent))
            return AgentWorld(history, axis, spans)
    except (ClawbloxError, OSError, LookupError, ModuleNotFoundError):  # the page shows the error
        return AgentWorld(history)
