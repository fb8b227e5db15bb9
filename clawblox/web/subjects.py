"""What can be compared: a run, an instance of one, or a save; and agents by their calls.

Calls are for branches without recordings. The n-th call of an agent is compared with the n-th call
of the other one, and so are results. Names and directories of the agents, ids, addresses and times
differ by design.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.agents.trajectory import TurnIndex, read_window
from clawblox.differences import ABSENT, find_differences
from clawblox.errors import ClawbloxError
from clawblox.rundir.lineage import InstanceLineage
from clawblox.rundir.saves import LineageSave
from clawblox.rundir.status import InstanceStatus
from clawblox.web.first_differences import ADDRESS, UTC_TIME, Kind
from clawblox.web.page import Ask
from clawblox.web.run_history import read_history
from clawblox.web.site import NoSuchPage, RunSummary, Site

_MAX_RUNS: Final = 200
_MAX_INSTANCES: Final = 12
_MAX_BYTES: Final = 16 << 20
"""How much of each log is read."""
_BORDERS: Final = " \t\n\"'`=(:,"
"""Characters before a path."""
_UUID: Final = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")


@attrs.frozen
class Subject:
    """One of the two that are compared.

    Attributes:
        ident: Its name in addresses.
        run: Its run.
        instance: Its instance; None if the run has none.
        save: The save; None if it is a run or an instance.
    """

    ident: str
    run: RunSummary
    instance: InstanceLineage | None
    save: LineageSave | None = None

    @property
    def name(self) -> str:
        """Its name for people."""
        several = len(self.run.run.instances) > 1
        save = self.save.path.name if self.save else ""
        names = (self.run.name, self.instance_name if several else "", save)
        return " · ".join(filter(None, names))

    @property
    def instance_name(self) -> str:
        """The name of its instance; empty for none."""
        return self.instance.name if self.instance else ""

    @property
    def status(self) -> InstanceStatus | None:
        """The status of its instance; None if it is not known."""
        instances = self.run.run.instances
        return next((status for status in instances if status.name == self.instance_name), None)

    def read_scores(self, site: Site) -> Mapping[str, float]:
        """Return the scores of its generation in an experiment. Blocks."""
        if self.run.part is not None:
            with contextlib.suppress(ClawbloxError):
                record = site.read_record(self.run.part.experiment)
                for row in record.results().rows():
                    if record.directory / row.run_dir == self.run.directory:
                        return row.scores
        return {}


def find_subject(ask: Ask, ident: str) -> Subject:
    """Return what an address names. Blocks.

    Raises:
        NoSuchPage: It names nothing that can be compared.
    """
    for run in sorted(ask.site.runs(), key=lambda run: run.ident != ident):
        for subject in _subjects_of(ask.site, run):
            if subject.ident == ident:
                return subject
    raise NoSuchPage(f"There is no run, instance or save {ident} in {ask.site.root.name}")


def _subjects_of(site: Site, run: RunSummary) -> Iterator[Subject]:
    history = read_history(run)
    instances = {instance.name: instance for instance in history.lineage.instances}
    first = next(iter(instances.values()), None)
    yield Subject(run.ident, run, first)
    for name, instance in instances.items():
        yield Subject(_identify(site, run, name), run, instance)
    for save in history.saves:
        whose = instances.get(save.instance, first)
        yield Subject(site.identify(save.path), run, whose, save)


def list_subjects(ask: Ask, runs: Iterable[RunSummary]) -> Iterator[tuple[str, str]]:
    """Yield what can be chosen of some runs, the first 200: name in addresses, and words."""
    for run in [*runs][:_MAX_RUNS]:
        name = run.directory.name if run.part else run.name
        yield run.ident, name
        if len(run.run.instances) > 1:
            for status in run.run.instances[:_MAX_INSTANCES]:
                yield _identify(ask.site, run, status.name), f"{name} · {status.name}"


def _identify(site: Site, run: RunSummary, instance: str) -> str:
    return site.identify(run.directory / f"#{instance}")


# -- the calls of agents ---------------------------------------------------------------------------


@attrs.frozen
class Call:
    """A tool call, or the result of one.

    Attributes:
        kind: Which of the two.
        value: Tool and arguments, or the result.
        utc: When it arrived; empty if that is not known.
        offset: Its place in the log.
    """

    kind: Kind
    value: Any
    utc: str
    offset: int


@attrs.frozen
class CallDifference:
    """The first call or result in which two agents differ.

    Attributes:
        kind: Which of the two.
        path: Where in it; empty for all of it.
        values: The value there for either agent, as JSON; None where there is none.
        calls: The whole call or result of either.
    """

    kind: Kind
    path: str
    values: Sequence[Any]
    calls: tuple[Call, Call]


def find_call_differences(
    agents: Sequence[Path], since: Sequence[str | None], names: Sequence[str]
) -> Iterator[CallDifference]:
    """Yield the first call and the first result that differ, as far as any does. Blocks.

    Args:
        agents: Directories of both agents.
        since: The UTC time of the fork for the one of them that went on; None for one that began
            there. Times of saves are whole seconds.
        names: Names of both, and of their runs.

    Raises:
        OSError: A file of an agent cannot be read.
        ClawbloxError: No agent has run there, or a later version of clawblox wrote its files.
    """
    sides = [[*_read_calls(path, at)] for path, at in zip(agents, since, strict=True)]
    kinds: tuple[Kind, Kind] = ("action", "observation")
    for kind in kinds:
        left, right = ([call for call in side if call.kind == kind] for side in sides)
        for pair in zip(left, right, strict=False):
            if found := find_differences(*(_plain(call.value, names) for call in pair)):
                values = [
                    None if value is ABSENT else value
                    for value in (found[0].before, found[0].after)
                ]
                yield CallDifference(kind, found[0].path, values, pair)
                break


def _read_calls(directory: Path, since: str | None) -> Iterator[Call]:
    """Yield the calls and the results of an agent, without those that it was loaded with."""
    turns = TurnIndex(directory)
    turns.read_on()
    start = turns.first_start or 0
    if since is not None:
        found = turns.find_time(f"{since[:19]}.000Z")
        if found is None:  # it has done nothing since
            return
        start = found
    last, has_later = start, True
    while has_later and last - start < _MAX_BYTES:
        window = read_window(turns, last)
        last, has_later = window.last, window.has_later and window.last > last
        for step in window.steps:
            yield from _list_calls(step)


def _list_calls(step: Mapping[str, Any]) -> Iterator[Call]:
    at, offset = step.get("timestamp") or "", step.get("extra", {}).get("raw_offset", 0)
    for call in step.get("tool_calls", ()):
        value = {key: call.get(key) for key in ("function_name", "arguments")}
        yield Call("action", value, at, offset)
    for result in step.get("observation", {}).get("results", ()):
        yield Call("observation", result.get("content"), at, offset)


def _plain(value: Any, names: Sequence[str]) -> Any:  # noqa: ANN401 - JSON
    """Return a value without what differs by design; the depth of records is bounded."""
    if isinstance(value, str):
        for name in sorted(filter(None, names), key=len, reverse=True):
            *parts, last = value.split(name)
            value = "".join(f"{_without_path(part)}NAME" for part in parts) + last
        return _UUID.sub("an id", UTC_TIME.sub("a time", ADDRESS.sub("an address", value)))
    if isinstance(value, dict):
        return {key: _plain(item, names) for key, item in value.items()}
    return [_plain(item, names) for item in value] if isinstance(value, list) else value


def _without_path(text: str) -> str:
    """Return a text without the path at its end, which leads to what follows."""
    start = max(map(text.rfind, _BORDERS)) + 1
    slash = text.find("/", start)
    return text if slash < 0 else text[:slash]
