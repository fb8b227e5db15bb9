"""Frozen values returned by the public API."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import attrs

from clawblox.printable import printable, printable_name
from clawblox.protocol import MaskedEnvironment

EventKind = Literal[
    "started",
    "ready",
    "start_failed",
    "exited",
    "sidecar_exited",
    "unresponsive",
    "halted",
    "restarting",
    "resuming",
    "gave_up",
    "saved",
    "save_failed",
    "rows_shared",
    "autosave_paused",
    "autosave_resumed",
    "stopped",
    "rejoined",
    "session_lost",
    "ramp_slowed",
    "ramp_recovered",
    "lagged",
    "fell_behind",
    "caught_up",
    "overcommitted",
    "script_error",
]
"""Kinds of :class:`WorldEvent`."""

RestartMode = Literal["never", "fresh", "checkpoint"]
"""Restart policy of an instance that dies: never, fresh, or from its last good snapshot."""

DataStoreBackend = Literal["sqlite", "postgres", "none"]
"""Storage for the rows of an engine world's data stores."""

Rung = Literal["not_running", "already_exited", "terminated", "killed"]
"""The rung of the stop ladder that ended an instance."""


SnapshotLike: TypeAlias = str | Path | Mapping[str, Any]
"""A snapshot: its path, or the result of ``save``, whose digest is then checked."""

Labels: TypeAlias = Mapping[str, str | int | float | bool]
"""A caller's description of an instance, such as model, seed and condition."""


def format_label(value: str | int | float | bool) -> str:
    """Return the value of a label in the form in which it is typed."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def has_labels(labels: Labels, wanted: Labels) -> bool:
    """Return whether all wanted labels are present, compared as typed."""
    return all(
        name in labels and format_label(labels[name]) == format_label(value)
        for name, value in wanted.items()
    )


@attrs.frozen
class ProcessExit:
    """The end of a world's process.

    Attributes:
        status: Exit status; None if a signal ended it or the status could not be read.
        signal: Name of the signal that ended it, for example ``SIGKILL``.
    """

    status: int | None = None
    signal: str | None = None

    def __str__(self) -> str:
        if self.signal == "SIGKILL":
            return "killed by SIGKILL (by a person, a program, or for lack of memory)"
        if self.signal is not None:
            return f"killed by {self.signal}"
        return "exit status unknown" if self.status is None else f"exit status {self.status}"


def describe_end(exit: ProcessExit | None, halt: str | None) -> str:  # noqa: A002 - its name
    """Return a description of an instance's end.

    Args:
        exit: Exit of the process; None if unknown.
        halt: Reason for an earlier halt of the world, or None.
    """
    return str(exit or ProcessExit()) if halt is None else f"halted: {halt}"


def describe_ending(detail: Mapping[str, Any]) -> str:
    """Return a printable line that describes an instance's end and its cause.

    Args:
        detail: The detail of the ``exited`` or ``stopped`` event.
    """
    end = printable(describe_end(detail.get("exit"), detail.get("halt")))
    if "rung" in detail:
        return f"was stopped by another process: {end}"
    if detail.get("halt") is not None:
        return end
    if detail["unresponsive"]:
        return "was stopped because it did not respond"
    return f"ended by itself: {end}"


@attrs.frozen
class _FieldMapping(Mapping[str, Any]):
    """A frozen value that is also a mapping of its fields."""

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - fields differ in type
        if key not in self._keys():
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())

    def _keys(self) -> list[str]:
        return [field.name for field in attrs.fields(type(self))]


@attrs.frozen
class LoadedCheckpoint(_FieldMapping):
    """The state that was loaded from an archive; also the mapping ``load_checkpoint`` returns.

    Attributes:
        world_snapshot: The snapshot of the world; None if the archive does not contain one.
        agents: Directories of the agents, by name.
        metadata: The archive's ``metadata.json``.
        excluded: Files that are not in the run directory, each with ``path`` and ``reason``.
        lost_sessions: Reasons why conversations were left out, by agent name.
        git_hosts: Hosts, with ports, from which git will fetch the missing objects of a partial
            clone, by agent name and git directory in the workspace.
        verified: Whether the archive contains a digest for every member.
    """

    world_snapshot: Path | None
    agents: Mapping[str, Path]
    metadata: Mapping[str, Any]
    excluded: Sequence[Mapping[str, str]]
    lost_sessions: Mapping[str, str]
    git_hosts: Mapping[str, Mapping[str, Sequence[str]]]
    verified: bool


@attrs.frozen
class StartedWorld:
    """The facts of one running instance.

    Attributes:
        name: Name of the instance, unique in its run directory.
        url: Local address, base path included, without a trailing slash.
        host: Address to which the world binds.
        port: Port to which the world binds.
        pid: Process of the world.
        command: The outer command that was run, with ``{python}`` replaced by an interpreter.
        start_command: The template command, as in ``World(dir=…)``.
        delegated: Whether ``[run].command`` of the ``world.toml`` was used.
        run_command: The command as written in ``world.toml``; None without one.
        env: Environment of the command, with its actual values. Its ``repr`` and ``env.masked()``
            mask tokens and other variables with a secret name.
        run_dir: Run directory, as passed to ``clawblox ps`` and :meth:`AsyncWorld.attach`.
        instance_dir: Directory with the manifest, logs and recordings of this instance: the run
            directory itself, or its ``worlds/<name>`` for an instance of many.
        command_file: Script that repeats the launch by hand.
        log_file: Output of the world's processes.
        record_dir: Directory of the recordings; None if the instance does not record.
        resume_path: Snapshot that was restored; None for a fresh start.
        ready_s: Seconds from the call of ``start`` until the world was ready.
        loaded: The state loaded from the archive given as ``resume``; None without an archive.
        labels: Labels given at the start.
        seed: Seed of the random state; None if the random state comes from a snapshot, or the world
            takes no seed. Hide the seed from agents, because it makes the world predictable.
    """

    name: str
    url: str
    host: str
    port: int
    pid: int
    command: list[str]
    start_command: list[str]
    delegated: bool
    run_command: list[str] | None
    env: MaskedEnvironment
    run_dir: Path
    instance_dir: Path
    command_file: Path
    log_file: Path
    record_dir: Path | None
    resume_path: Path | None
    ready_s: float
    loaded: LoadedCheckpoint | None = attrs.field(default=None, hash=False)
    labels: Labels = attrs.field(factory=dict, hash=False)
    seed: int | None = None

    def __repr__(self) -> str:  # on one line, without the environment
        labels = f", labels={dict(self.labels)!r}" if self.labels else ""
        return f"StartedWorld({self.name!r}, {self.url!r}{labels})"


@attrs.frozen
class SavedSnapshot(_FieldMapping):
    """A snapshot that is on disk and in the manifest; also a mapping of its fields.

    Attributes:
        path: The file, absolute.
        format: The document's own ``format``, or ``world-snapshot``.
        time: The document's own ``time`` (simulation time), or None.
        size_bytes: Size of the file.
        sha256: Digest of the file, in hexadecimal.
        created_at: UTC time of the save, ``2026-06-22T18:59:25Z``.
        instance: Name of the instance that was saved.
        rows_sha256: Digest of the copy of the data stores' rows, a file next to the snapshot with
            the same name plus ``.rows.db``. None, and not an item of the mapping, without a copy.
        rows_size_bytes: Size of that copy.
    """

    path: Path
    format: str
    time: float | None
    size_bytes: int
    sha256: str
    created_at: str
    instance: str
    rows_sha256: str | None = None
    rows_size_bytes: int | None = None

    def __repr__(self) -> str:
        time = "" if self.time is None else f", time={self.time:g}"
        return f"SavedSnapshot({self.instance!r}{time}, {str(self.path)!r})"

    def _keys(self) -> list[str]:
        without_rows = self.rows_sha256 is None
        return [name for name in super()._keys() if not (without_rows and name.startswith("rows_"))]


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return dict(values)


@attrs.frozen(eq=False)
class Access(Mapping[str, Any]):
    """An agent's access to an instance; also the mapping that ``connect`` returns.

    An access equals any mapping with the same items.

    Attributes:
        session: Session of the agent, to be sent as ``X-Session``.
        agent_id: The world's id of the agent; None if the world gave none.
        name: Name of the agent in the world.
        headers: Headers of the agent's requests, which identify its session.
        base_url: Address of the instance for the agent.
        internal_base_url: Address of the instance on this machine.
        more: All other fields of the world's answer; also items of the mapping.
        rejoined: Whether the player was already in the world; not an item of the mapping.
    """

    session: str
    agent_id: Any
    name: str
    headers: dict[str, str] = attrs.field(converter=_copy, repr=False)
    base_url: str
    internal_base_url: str
    more: dict[str, Any] = attrs.field(factory=dict, converter=_copy, repr=False)
    rejoined: bool = False

    def _items(self) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in attrs.fields_dict(type(self))}
        del named["rejoined"]
        return {**named.pop("more"), **named}

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - fields differ in type
        return self._items()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items())

    def __len__(self) -> int:
        return len(self._items())


@attrs.frozen
class StopResult:
    """The result of stopping an instance.

    Attributes:
        instance: Name of the instance; empty if no instance was running.
        rung: The rung of the ladder that ended the instance.
        exit: Exit of the world's process; None if unknown.
        killed: Processes that ignored SIGTERM and were killed, as ``pid command``.
        elapsed_s: Seconds that the stop took.
    """

    instance: str
    rung: Rung
    exit: ProcessExit | None = None
    killed: tuple[str, ...] = ()
    elapsed_s: float = 0.0


@attrs.frozen
class LogLine:
    """One line of a world's log.

    Attributes:
        instance: Name of the instance.
        text: The line without its newline, with undecodable bytes replaced.
        offset: Position of the line's first byte in the log file.
        at: UTC time by which the line had arrived, ``2026-06-22T18:59:25.104Z``; None if unknown.
        event: None for a line of the world. For a line added by clawblox, which is not in the file,
            the event of the instance at that position: ``exited``, ``stopped``, ``restarted``,
            ``resumed`` or ``interrupted``.
    """

    instance: str
    text: str
    offset: int
    at: str | None = None
    event: str | None = None


def _read_only(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(values))


@attrs.frozen(kw_only=True)
class Event:
    """An event of an instance or an agent.

    Attributes:
        time: UTC time, ISO 8601.
        kind: Kind of the event.
        subject: Full name of the instance or agent; empty for an event of the world as a whole.
        data: Further facts, plain values by name, for example ``exit`` or ``path``.
    """

    time: str
    kind: str
    subject: str
    data: Mapping[str, Any] = attrs.field(factory=dict, converter=_read_only, hash=False)


@attrs.frozen(kw_only=True)
class WorldEvent(Event):
    """An event of an instance, or of a world as a whole; see :class:`Event`.

    Attributes:
        kind: Kind of the event.
        labels: Labels of the instance.
    """

    kind: EventKind
    labels: Labels = attrs.field(factory=dict, converter=_read_only, hash=False)


@attrs.frozen(kw_only=True)
class Excluded:
    """A file that was left out of an archive, or that a load left in the archive.

    Attributes:
        path: Name in the archive, for example ``agents/<name>/workspace/.venv``; archives and
            results contain it in the escaped form of :meth:`fields`.
        reason: Reason, in a few words.
    """

    path: str
    reason: str

    def fields(self) -> dict[str, str]:
        """Return path and reason; in the path, hidden characters and bad UTF-8 are escaped."""
        return {"path": printable_name(self.path), "reason": self.reason}


@attrs.frozen(kw_only=True)
class SavedCheckpoint(os.PathLike[str]):
    """A complete archive of a world and its agents; usable as its path.

    Attributes:
        path: The archive, absolute.
        size_bytes: Size of the archive.
        sha256: Digest of the archive, in hexadecimal.
        metadata: The archive's ``metadata.json``, as returned by ``read_metadata``.
        excluded: Files of the agents that were left out.
    """

    path: Path
    size_bytes: int
    sha256: str
    metadata: Mapping[str, Any] = attrs.field(repr=False, hash=False)
    excluded: tuple[Excluded, ...] = attrs.field(repr=False)

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def mid_turn(self) -> tuple[str, ...]:
        """Names of the agents whose conversations were cut in the middle of a turn."""
        agents: Mapping[str, Mapping[str, Any]] = self.metadata["agents"]
        return tuple(sorted(name for name, state in agents.items() if state["mid_turn"]))


PlanChangeKind = Literal["free", "amendment", "never"]
"""Permission of a resume to change a field: freely, if accepted by name, or never."""


@attrs.frozen
class PlanChange:
    """A field of a plan that differs from the plan with which its experiment was started.

    Attributes:
        field: The field, such as ``duration`` or ``agents.Eko.budget.turns``.
        old: Recorded value in plain form; None if it was not set.
        new: New value; None if it is not set.
        kind: Whether a resume may change the field.
    """

    field: str
    old: Any
    new: Any
    kind: PlanChangeKind

    @property
    def accept_as(self) -> str:
        """The name by which the change is accepted: ``duration``, ``budget``, ``save``, …."""
        first, *rest = self.field.split(".")
        return rest[1] if first == "agents" and len(rest) > 1 else first


@attrs.frozen(kw_only=True)
class Finding:
    """Text that looks like a credential, or a file that cannot be searched for credentials.

    Attributes:
        path: Name in the archive; ``outer.zip!inner.txt`` for a file in a decoded container.
        rule: The rule that matched, for example ``github-token``; ``unscannable`` for a file that
            cannot be searched.
        fingerprint: 16 hexadecimal digits that identify rule and secret without revealing it; for
            an unscannable file, rule and content.
        preview: First four characters and length of the secret; for an unscannable file, the
            reason.
        line: Line in the (decoded) content, from 1; None if the content has no lines.
        offset: Byte offset in the (decoded) content.
    """

    path: str
    rule: str
    fingerprint: str
    preview: str
    line: int | None = None
    offset: int = 0

    def __str__(self) -> str:
        place = f"line {self.line}" if self.line is not None else f"byte {self.offset}"
        path, rule = (ascii(text)[1:-1] for text in (self.path, self.rule))
        return f"{path}: {place}: {rule} {self.preview} ({self.fingerprint})"
