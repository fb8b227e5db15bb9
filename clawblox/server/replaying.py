"""A replay: a world repeats the inputs of a recording, and records the result.

The script has the first state, or the seed of a fresh world, and the inputs of agents. Clawblox
wrote it, and compares the new recording with the earlier one. No clock runs: ticks follow each
other as fast as they can.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, assert_never

import anyio
from anyio import to_thread

from clawblox.protocol import SEEDS
from clawblox.recording.replay_script import FORMAT, Do, ReplayOrder, ScriptStart, parse_order
from clawblox.recording.writer import create_next
from clawblox.server.hosted_world import HostedWorld
from clawblox.server.recording import RecordingWriter
from clawblox.server.sessions import AgentSession
from clawblox.server.simulation import Clock, Halted
from clawblox.server.snapshot_document import (
    SnapshotRefusal,
    restore_document,
    with_new_secrets,
)

_TICKS_BETWEEN_PAUSES: Final = 4
_ORDERS_READ: Final = 500
_SLICE_S: Final = 0.02
"""Maximum seconds, plus one tick, for which no other task runs."""

_log = logging.getLogger("clawblox.server")


class UnperformableScript(Exception):  # noqa: N818 - names the condition
    """This world cannot perform the script; the text is the reason."""


class ScriptedReplay:
    """Performs a script in a world.

    Args:
        world: The world, neither begun nor restored.
        script: The file of the script.
        directory: Directory of the new recording.
        clock: What made the time of the recorded world pass; None for the simulation's own clock.

    Attributes:
        problem: Why it was not performed to its end; may be empty.
        is_done: Whether it has ended, and the new recording is closed.
    """

    def __init__(
        self, world: HostedWorld, script: Path, directory: Path, clock: Clock | None = None
    ) -> None:
        self.problem = ""
        self.is_done = False
        self._world = world
        self._script = script
        self._directory = directory
        self._clock = clock
        self._digest_ticks: frozenset[int] = frozenset()
        self._slice_end = 0.0
        self._file: BinaryIO | None = None
        self._recorder: RecordingWriter | None = None

    def document(self) -> dict[str, Any]:
        """Return the progress as a JSON object."""
        return {
            "format": FORMAT,
            "tick": self._world.tick,
            "is_done": self.is_done,
            "problem": self.problem,
        }

    def begin(self) -> None:
        """Start like the recorded world, and write the start of the new recording. Blocks."""
        with self._noting_problems():
            self._file = self._script.open("rb")
            start = ScriptStart.parse(self._file.readline())
            self._begin(start)
            self._recorder = self._record(start)

    async def run(self) -> None:
        """Perform the rest, in slices that let other tasks run.

        Cancellation: ends between two ticks.
        """
        if self._recorder is not None:
            with self._noting_problems():
                await self._perform(self._recorder)
        if self._file is not None:
            self._file.close()
        self.is_done = True

    @contextmanager
    def _noting_problems(self) -> Iterator[None]:
        """Run a block; record the reason if it fails."""
        try:
            yield
        except UnperformableScript as unrepeatable:
            self.problem = str(unrepeatable)
        except Halted as halted:
            self.problem = f"the world halts: {halted}"
        except Exception as error:  # noqa: BLE001 - the author's code may raise anything
            _log.exception("the replay failed")
            self.problem = f"the replay failed: {type(error).__name__}: {error}"

    async def _perform(self, recorder: RecordingWriter) -> None:
        is_clean = False
        try:
            while orders := await to_thread.run_sync(self._read_orders):
                for order in orders:
                    await self._advance(order.tick, recorder)
                    if self._world.tick == order.tick:  # else the world has halted, or has not
                        with suppress(Halted):  # it is recorded
                            self._do(order, recorder)
                    await self._pause(recorder)
            is_clean = True
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(partial(recorder.close, is_clean=is_clean))
        if recorder.is_over:
            raise UnperformableScript("its recording ended early; its log has the reason")

    def _read_orders(self) -> Sequence[ReplayOrder]:
        """Return the next orders; none at the end."""
        assert self._file is not None
        return [parse_order(line) for line in islice(self._file, _ORDERS_READ)]

    # -- the start ----------------------------------------------------------------------------

    def _begin(self, start: ScriptStart) -> None:
        """Start like the recorded world.

        The snapshot of a fresh world cannot be restored if its files have changed.

        Raises:
            Unrepeatable: The world cannot restore the snapshot, or begin with the seed.
            Halted: A fresh world halts as it begins.
        """
        snapshot = start.snapshot
        if snapshot is None or (not start.is_resumed and self._has_changed(snapshot)):
            self._reseed(start.seed)
            self._world.begin()
        else:
            self._restore(snapshot)
            if start.is_reseeded:
                self._reseed(start.seed)

    def _has_changed(self, snapshot: Mapping[str, Any]) -> bool:
        recorded = snapshot.get("scene_hash")
        return isinstance(recorded, str) and recorded != self._world.simulation.content_hash()

    def _reseed(self, seed: int | None) -> None:
        if seed is None or seed not in SEEDS:
            text = "the recording names no seed with which the world could begin again"
            raise UnperformableScript(text)
        try:
            self._world.reseed(seed)
        except NotImplementedError:
            raise UnperformableScript(
                f"the world cannot start again with the seed {seed}"
            ) from None

    def _restore(self, snapshot: dict[str, Any]) -> None:
        try:
            restore_document(self._world, with_new_secrets(snapshot))
        except SnapshotRefusal as error:
            text = f"the world refuses the snapshot of the recording: {error}"
            raise UnperformableScript(text) from None

    def _record(self, start: ScriptStart) -> RecordingWriter:
        world = self._world
        recorder = RecordingWriter(world, create_next(self._directory), frames_on_request=True)
        recorder.start(resumed=start.is_resumed, reseed=start.seed, clock=self._clock)
        world.pending.clear()  # the script has each where it was applied
        world.recorder = recorder
        self._digest_ticks = frozenset(start.digest_ticks)
        self._note_digest(recorder)
        return recorder

    # -- orders -------------------------------------------------------------------------------

    async def _advance(self, tick: int, recorder: RecordingWriter) -> None:
        world = self._world
        with suppress(Halted):  # it is recorded
            while world.tick < tick and world.failure is None:
                world.step()
                self._note_digest(recorder)
                if world.tick % _TICKS_BETWEEN_PAUSES == 0:
                    await self._pause(recorder)

    async def _pause(self, recorder: RecordingWriter) -> None:
        """Write due records, and let other tasks run, if they have waited for long enough."""
        if (now := anyio.current_time()) > self._slice_end:
            await recorder.write_due()
            self._slice_end = now + _SLICE_S

    def _note_digest(self, recorder: RecordingWriter) -> None:
        """Record a digest of the state, if another recording may start from it."""
        if self._world.tick in self._digest_ticks and self._world.failure is None:
            recorder.digest()

    def _do(self, order: ReplayOrder, recorder: RecordingWriter) -> None:
        """Perform an order; without its agent, which the world may have removed, do nothing.

        Raises:
            Halted: The world stops, or has stopped.
        """
        fields = order.fields
        if order.do is Do.FRAME:
            recorder.frame(**fields)
        elif order.do is Do.JOIN:
            secret = secrets.token_hex(16)
            self._world.admit(AgentSession(secret, fields["agent_id"], fields["name"]))
            self._note_digest(recorder)
        elif order.do not in (Do.REACH, Do.END):
            session = self._world.sessions.find_agent(fields["agent_id"])
            if session is not None:
                self._act(order, session, recorder)

    def _act(self, order: ReplayOrder, session: AgentSession, recorder: RecordingWriter) -> None:
        world, fields = self._world, order.fields
        match order.do:
            case Do.OBSERVE:
                world.observe(session, is_fresh=True)
                return
            case Do.AUDIENCE:
                with world.running("audience", agent_id=session.agent_id):
                    world.simulation.audience(session.agent_id)
                return
            case Do.LEAVE:
                world.leave(session)
            case Do.INPUT:
                world.queue(session, fields["action"], fields["data"])
                world.apply_inputs()
            case Do.CHAT:
                world.say(session, fields["content"], fields["media_url"])
            case Do.JOIN | Do.FRAME | Do.REACH | Do.END:
                raise AssertionError(order.do)
            case _:
                assert_never(order.do)
        self._note_digest(recorder)
