"""Records the requests and observations of agents if their world does not record itself.

Requests are noted in the proxies of agents and in the clients of ``AsyncWorld.join``. A note takes
a few microseconds; all other work happens in worker threads, whose failures do not affect agents.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ManifestError
from clawblox.foreign_values import clean_text
from clawblox.recording import FORMAT
from clawblox.recording.background import BackgroundWriter
from clawblox.recording.blocks import ORCHESTRATOR_WRITER, Track
from clawblox.recording.writer import BLOCK_AGE_S, BLOCK_BYTES, FileDigest, create_next
from clawblox.rundir.manifest_updates import recording_update
from clawblox.rundir.manifest_writer import ManifestWriters
from clawblox.system.clock import utc_now
from clawblox.system.request import Answer
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.access import Actor
from clawblox.world.exchanges import AgentExchange, ExchangeKind, NewRecord, Transcript, route_kinds

_log = OwnLog(__name__)

_LOOK_EVERY_S: Final = 1.0
"""Seconds between two polls for notes of other threads, which cannot wake the writer."""
_UNAVAILABLE: Final = {"unavailable": "the world does not record itself"}


@attrs.frozen(kw_only=True)
class RecordedLife:
    """The facts of an instance that the recording from one start to its end needs.

    Attributes:
        instance: Name of the instance.
        world: Name of the world.
        directory: Directory of the recording; it must exist.
        api: The routes of the world.
        resumed: Whether the world was restored from a snapshot.
        time: Simulation time at the start, in seconds; 0 if not known.
        reseed: Seed given at the start; None without a seed.
        secrets: Sessions and tokens that must not be recorded.
        register: Registers the file, and at its end also the digest. Blocks, and reports its own
            failures.
    """

    instance: str
    world: str
    directory: Path
    api: Mapping[str, Any]
    resumed: bool
    time: float
    reseed: int | None
    secrets: Iterable[str] = attrs.field(repr=False)
    register: Callable[[Path, FileDigest | None], None]


class AgentRecorder:
    """The recording of an instance between a start and its end; :meth:`run` is the writing task.

    Args:
        life: The facts of the instance.

    Attributes:
        is_open: Set when the file is open, or cannot be opened.
        failure: Error of opening the file; None if it was opened.
    """

    def __init__(self, life: RecordedLife) -> None:
        self.is_open = anyio.Event()
        self.failure: OSError | ModuleNotFoundError | None = None
        self._life = life
        self._kinds = route_kinds(life.api)
        self._transcript = Transcript(life.secrets, time=life.time)
        self._writer: BackgroundWriter | None = None
        self._thread = threading.get_ident()
        self._scope = anyio.CancelScope()
        self._lock = threading.Lock()
        self._notes: list[AgentExchange] = []
        self._notes_bytes = 0
        self._notes_due_at = float("inf")
        self._is_over = False
        self._exit: str | None = None
        self._halt: str | None = None

    # Notes, in any thread

    def note(
        self, actor: Actor, method: str, route: str, body: bytes | None, answer: Answer | None
    ) -> None:
        """Note a request of an agent. Thread-safe; never waits or raises.

        Args:
            actor: The agent.
            method: The method of the request.
            route: Route of the request, without the query.
            body: Body of the request.
            answer: The answer; None if there was none, although the request may have been received.
        """
        if (kind := self._kinds.get((method, route))) is not None:
            status, content = (None, b"") if answer is None else (answer.status, answer.body)
            self._note(kind, actor, body=body, status=status, answer=content)

    def note_join(self, actor: Actor, *, rejoined: bool) -> None:
        """Note that an agent has joined; see :meth:`note`.

        Args:
            actor: The agent.
            rejoined: Whether the agent was in the world before.
        """
        self._note(ExchangeKind.JOIN, actor, rejoined=rejoined)

    def note_leave(self, actor: Actor) -> None:
        """Note that an agent has left; see :meth:`note`."""
        self._note(ExchangeKind.LEAVE, actor, status=200)

    def _note(self, kind: ExchangeKind, actor: Actor, **facts: Any) -> None:
        instance = self._life.instance
        with _log.contain(
            "recording ended by a defect", on_defect=self._give_up, instance=instance
        ):
            exchange = AgentExchange(kind=kind, actor=actor, utc=utc_now(), at=monotonic(), **facts)
            if self._put(exchange) and threading.get_ident() == self._thread and self._writer:
                self._writer.wake()

    def _give_up(self, _error: Exception) -> None:
        self._is_over = True

    def _put(self, exchange: AgentExchange) -> bool:
        """Queue a note; return whether the next write is due earlier than before."""
        is_seen = exchange.kind is ExchangeKind.OBSERVE
        due_at = exchange.at + BLOCK_AGE_S[Track.OBSERVATIONS if is_seen else Track.INPUTS]
        with self._lock:
            if self._is_over or (self._writer is not None and self._writer.is_over):
                return False
            self._notes.append(exchange)
            self._notes_bytes += exchange.size_bytes
            if self._notes_bytes >= BLOCK_BYTES:
                due_at = exchange.at
            is_news = due_at < self._notes_due_at
            self._notes_due_at = min(due_at, self._notes_due_at)
            waiting_bytes = self._notes_bytes
        if self._writer is not None:
            self._writer.limit(waiting_bytes)
        return is_news

    # The task

    def end(self, *, exit: str | None, halt: str | None) -> None:  # noqa: A002 - its name
        """End the recording when the world's process has ended; a second call has no effect.

        Args:
            exit: Exit of the process if it was not stopped; None if it was, or is left running.
            halt: Reason for a halt of the world; None without a halt.
        """
        if not self._scope.cancel_called:
            self._exit, self._halt = exit, halt
            self._scope.cancel()

    async def run(self) -> None:
        """Write the recording until its end.

        Cancellation: ends the recording after writing the queued notes.
        """
        try:
            with self._scope:
                await run_blocking(self._open)
                self.is_open.set()
                if self._writer is not None:
                    await self._writer.run(
                        self._write_notes, due_at=self._due_at, look_every_s=_LOOK_EVERY_S
                    )
        finally:
            self.is_open.set()
            with anyio.CancelScope(shield=True):
                await run_blocking(self._close)

    def _open(self) -> None:
        try:
            file = create_next(self._life.directory)
        except (OSError, ModuleNotFoundError) as error:
            self.failure = error
            return
        self._writer = writer = BackgroundWriter(file, self._report_end)
        try:
            for record in self._start():
                writer.start(record.moment, record.fields)
        except OSError as error:
            self.failure = error
            writer.end(error.strerror or str(error))
            return
        self._life.register(file.path, None)

    def _start(self) -> Iterable[NewRecord]:
        life = self._life
        return self._transcript.event(
            "start",
            utc_now(),
            format=FORMAT,
            writer=ORCHESTRATOR_WRITER,
            world=clean_text(life.world),
            world_format=None,
            scene_hash=None,
            resumed=life.resumed,
            reseed=life.reseed,
            clock=None,
            snapshot=_UNAVAILABLE,
            rows=_UNAVAILABLE,
        )

    def _due_at(self) -> float | None:
        due_at = None if self._writer is None else self._writer.due_at
        earliest = self._notes_due_at if due_at is None else min(due_at, self._notes_due_at)
        return None if earliest == float("inf") else earliest

    async def _write_notes(self) -> None:
        await run_blocking(self._write)

    def _write(self) -> None:
        if self._writer is not None:
            self._add_notes(self._writer)
            self._writer.write(self._writer.take())

    def _add_notes(self, writer: BackgroundWriter) -> None:
        with self._lock:
            notes, self._notes = self._notes, []
            self._notes_bytes, self._notes_due_at = 0, float("inf")
        end = _log.contain("recording ended by a defect", on_defect=lambda e: writer.end(repr(e)))
        with end:
            for note in notes:
                _add(writer, self._transcript.records(note), note.at)

    def _close(self) -> None:
        with self._lock:
            self._is_over = True
        if (writer := self._writer) is None:
            return
        try:
            self._add_notes(writer)
            transcript, now = self._transcript, utc_now()
            if self._halt is not None:
                _add(writer, transcript.event("halted", now, error=transcript.mask(self._halt)))
            left_out = transcript.left_out
            _add(writer, transcript.event("end", now, exit=self._exit, left_out=left_out))
            if left_out:
                _log.warning("requests not recorded", path=str(writer.path), number=left_out)
        finally:
            if (digest := writer.close()) is not None:
                self._life.register(writer.path, digest)

    def _report_end(self, reason: str) -> None:
        path, instance = str(self._writer and self._writer.path), self._life.instance
        _log.error("the recording ends here", instance=instance, path=path, reason=reason)


def register_recording(
    writers: ManifestWriters, instance_dir: Path, path: Path, digest: FileDigest | None
) -> None:
    """Register a recording in the manifest of its instance; log a failure. Blocks."""
    is_inside = path.is_relative_to(instance_dir)
    events = str(path.relative_to(instance_dir) if is_inside else path)
    with _log.contain("recording not registered", expected=(ManifestError,), path=str(path)):
        content = {} if digest is None else attrs.asdict(digest)
        update = recording_update(path=path, events=events, format=FORMAT, **content)
        writers.apply(instance_dir, update, durable=False)


def _add(writer: BackgroundWriter, records: Iterable[NewRecord], now: float | None = None) -> None:
    for record in records:
        writer.add(record.track, record.moment, record.fields, now)
