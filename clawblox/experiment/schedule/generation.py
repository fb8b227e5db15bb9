"""Carries out one attempt at a generation, step by step, with a world and agents.

It decides when steps happen, and writes a line after each step; ``machine`` explains how an
experiment continues after a kill between two lines.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import attrs

from clawblox.agents.values import Usage
from clawblox.errors import CheckpointSecretError, ClawbloxError, WorldExitedError
from clawblox.experiment.history.lines import (
    About,
    CheckpointKind,
    FailureCause,
    JournalLine,
    LineType,
    usage_data,
)
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.history.recorder import JournalRecorder
from clawblox.experiment.layout import failed_name
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.plan.save_times import PAUSE_IDLE_WAIT_S
from clawblox.experiment.schedule.callbacks import Callbacks, HookError
from clawblox.experiment.schedule.pauses import (
    Close,
    Message,
    PauseError,
    PauseRequest,
    blame_provider,
)
from clawblox.experiment.schedule.ports import (
    THIS_MACHINE,
    AgentEnded,
    AgentFailed,
    Attempt,
    AttemptBackend,
    AttemptError,
    NodeLost,
    ProviderError,
    Room,
    SavedCheckpointFile,
    WorldEnded,
)
from clawblox.experiment.schedule.spending import add_usage
from clawblox.experiment.schedule.timing import ActiveClock, Mailbox
from clawblox.system.clock import TimeSource, format_utc
from clawblox.telemetry.own_log import OwnLog

_LOOK_S: Final = 30.0
"""Seconds between calls of the stop hook and between requests for the world's time."""
_MAX_FAILED_SAVES: Final = 3
_NEED_DISK: Final[frozenset[FailureCause]] = frozenset({"world", "agent", "start"})
"""Causes that a full disk can explain."""
_FULL_DISK_BYTES: Final = 1 << 20
"""A disk with fewer free bytes counts as full."""

_log = OwnLog(__name__)


@attrs.define(eq=False)
class GenerationRunner:
    """Runs one attempt at a generation, until a line ends it.

    Args:
        order: The opened attempt.
        backend: Makes the attempt.
        recorder: Writes its lines.
        clock: The clock of the generation.
        callbacks: The hooks of the experiment.
        room: The place where the attempt runs.
        usage: Usage of each agent in the attempt, if it has ended before.
        on_progress: Called after each reading of the agents' usage.

    Attributes:
        mailbox: Receives requests to close or pause, from any task of the event loop.
        active_clock: Counts the active seconds.
        usage: Usage of each agent since the start of the attempt.
        world_time: Last known simulation time; None before.
    """

    order: AttemptOrder
    _backend: AttemptBackend
    _recorder: JournalRecorder
    _clock: TimeSource
    _callbacks: Callbacks
    _room: Room = THIS_MACHINE
    usage: tuple[Usage, ...] = ()
    _on_progress: Callable[[], object] = lambda: None
    mailbox: Mailbox[Message] = attrs.field(init=False)
    active_clock: ActiveClock = attrs.field(init=False)
    world_time: float | None = attrs.field(init=False)
    _plan: Plan = attrs.field(init=False)
    _close_reason: str = attrs.field(init=False)
    _attempt: Attempt = attrs.field(init=False)
    _failed_saves: int = attrs.field(default=0, init=False)
    _save_at: float = attrs.field(default=math.inf, init=False)
    _look_at: float = attrs.field(default=math.inf, init=False)
    _ended: set[str] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.mailbox = Mailbox(self._clock)
        self.active_clock = ActiveClock(self._clock, self.order.active_s, self.order.idle_s)
        self.world_time = self.order.world_time
        self._plan = self.order.chain.plan
        self._close_reason = self.order.close_reason

    # -- facts for tables -----------------------------------------------------------------

    @property
    def used(self) -> tuple[Usage, ...]:
        """Usage of each agent in the generation, without failed attempts."""
        return add_usage(self.order.used, self.usage)

    @property
    def attempt(self) -> Attempt | None:
        """The live attempt; None before it is open."""
        return getattr(self, "_attempt", None)

    # -- the steps --------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out the steps, and write the line that ends the attempt.

        Raises:
            OSError: A line could not be written.

        Cancellation: world and agents are ended; no line ends the attempt, so it counts as
        interrupted.
        """
        try:
            if self.order.phase != "score" or self._callbacks.has_score:
                await self._write("prepared", await self._backend.prepare(self.order))
                await self._live()
            await self._commit()
        except AttemptError as error:
            await self._note_failure(error)
        except ProviderError as error:
            await self._pause(blame_provider(error.failure, self._clock.utc(), self._room.node))
        except PauseError as error:
            await self._pause(error.pause)
        except OSError as error:
            await self._note_os_error(error)
        except Exception as error:  # noqa: BLE001 - a defect ends this attempt and no other
            _log.defect("attempt failed", error, attempt=self.order.attempt_id)
            await self._fail("defect", f"{type(error).__name__}: {error}")

    async def _note_failure(self, error: AttemptError) -> None:
        """Write why the attempt failed; on a full disk, pause the attempt instead."""
        if error.cause in _NEED_DISK and await self._backend.free_bytes() < _FULL_DISK_BYTES:
            await self._pause(PauseRequest(reason="disk", text=f"the disk is full: {error.text}"))
        else:
            await self._fail(error.cause, error.text)

    async def _note_os_error(self, error: OSError) -> None:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            await self._pause(PauseRequest(reason="disk", text=f"the disk is full: {error}"))
        else:
            await self._fail("start", str(error))

    async def _live(self) -> None:
        async with self._backend.open(self.order, self.mailbox.put, self._room) as attempt:
            self._attempt = attempt
            try:
                await self._take_steps()
            except PauseError as error:
                # Save before the pause, unless a failed save caused the pause.
                if self.active_clock.is_running and error.pause.reason != "checkpoint":
                    self.active_clock.stop()
                    await self._checkpoint("pause")
                raise
            finally:
                self.usage = tuple(attempt.usage())

    async def _take_steps(self) -> None:
        await self._start()
        if self.order.phase == "work":
            await self._work()
        if self.order.phase != "score":
            await self._save()
        await self._score()

    async def _start(self) -> None:
        await self._attempt.set_budgets(self.order.used, is_saving=self.order.phase == "save")
        await self._write("working", await self._attempt.start())

    async def _work(self) -> None:
        self.active_clock.start()
        self._close_reason = await self._wait_for_end()
        self.active_clock.stop()
        await self._attempt.stop_agents()
        if self._plan.checkpoint.boundary and self._plan.save is not None:
            await self._save_or_pause("boundary")
        await self._read_world_time()
        facts = {"reason": self._close_reason, "world_time": self.world_time, **self._seconds()}
        await self._write("closing", facts)

    async def _save(self) -> None:
        save = self._plan.save
        if save is not None:
            if self.order.phase == "work":
                await self._attempt.set_budgets(self.order.used, is_saving=True)
                await self._attempt.send(save.prompt)
            await self._wait_for_saving()
            await self._attempt.stop_agents()
            await self._read_world_time()  # no checkpoint may contain it
            await self._write("saved", {"world_time": self.world_time})
        if self._plan.checkpoint.end:
            await self._save_or_pause("end")

    async def _score(self) -> None:
        scored = await self._callbacks.score(self._attempt)
        if scored is not None:
            await self._write("scored", scored)

    async def finish(self) -> None:
        """Commit an attempt that has taken all other steps.

        Raises:
            OSError: The line could not be written.

        Cancellation: the generation is either committed or not.
        """
        try:
            await self._commit()
        except AttemptError as error:
            await self._fail(error.cause, error.text)

    async def _commit(self) -> None:
        attempt_id = self.order.attempt_id
        if self.order.phase == "score":
            assert self.order.origin is not None
            attempt_id = self.order.origin.attempt
        validated = await self._backend.validate(self.order.chain, attempt_id)
        generation = self._recorder.state.chain(self.order.chain.name).latest
        assert generation is not None
        await self._write(
            "committed",
            {
                **validated,
                **await self._totals(attempt_id),
                "used": usage_data(self.used),
                "files": attempt_id,
                "ended_by": self._close_reason,
                "world_time": self.world_time,
                "started_at": generation.attempts[0].opened.at,
                "ended_at": format_utc(self._clock.utc()),
            },
        )

    async def _read_world_time(self) -> None:
        if (time := await self._attempt.world_time()) is not None:
            self.world_time = time

    # -- the active phase -------------------------------------------------------------------

    async def _wait_for_end(self) -> str:
        """Make checkpoints until the generation closes, and return the reason."""
        self._look_at = self._clock.monotonic() + _LOOK_S
        self._save_at = self._next_save(1.0)
        while True:
            self.usage = tuple(self._attempt.usage())
            self._on_progress()
            self._note_activity()
            if reason := await self._find_end():
                return reason
            if self._clock.monotonic() >= self._save_at:
                self._save_at = self._next_save(1.0 if await self._checkpoint("periodic") else 0.5)
                continue
            message = await self.mailbox.take(self._next_deadline())
            if message is not None and (reason := self._take(message)):
                return reason

    def _next_deadline(self) -> float:
        deadlines = [
            self.active_clock.reaches(self._active_limit_s),
            self._save_at,
            self._patience_ends,
        ]
        if self._asks_world:
            deadlines.append(self._look_at)
        return min(deadlines)

    @property
    def _active_limit_s(self) -> float:
        """Active seconds of the generation at which the save phase starts."""
        if self._plan.save is None:
            return self._plan.duration
        return max(self._plan.duration - self._plan.saving_s, self.order.active_s + 1.0)

    @property
    def _asks_world(self) -> bool:
        return self._plan.stop.world_time is not None or self._callbacks.has_stop

    @property
    def _patience_ends(self) -> float:
        """Time at which an agent's wait for its provider becomes a pause, by the clock."""
        longest = max((a.provider_wait_s for a in self._attempt.activity()), default=0.0)
        if not longest:
            return math.inf
        return self._clock.monotonic() + self._plan.retry.pause_after - longest

    def _note_activity(self) -> None:
        present = [agent for agent in self._attempt.activity() if not agent.is_over]
        waits = [agent.provider_wait_s for agent in present]
        self.active_clock.set_idle(bool(waits) and min(waits) > 0.0)
        longest = max(present, key=lambda agent: agent.provider_wait_s, default=None)
        if longest is not None and longest.provider_wait_s >= self._plan.retry.pause_after:
            text = f"{longest.name} has waited {longest.provider_wait_s:.0f} s for its provider"
            raise PauseError(PauseRequest(reason="limit", text=text, account=longest.account))

    async def _find_end(self) -> str:
        """Return why the generation closes now, or an empty string."""
        if self.active_clock.active_s >= self._active_limit_s:
            return "duration"
        if self._has_no_agents():
            return "agents_ended"
        if not self._asks_world or self._clock.monotonic() < self._look_at:
            return ""
        self._look_at = self._clock.monotonic() + _LOOK_S
        limit = self._plan.stop.world_time
        if limit is not None:
            await self._read_world_time()
            if self.world_time is not None and self.world_time >= limit:
                return "world_time"
        return await self._ask_hook()

    async def _ask_hook(self) -> str:
        try:
            reason = await self._callbacks.stop(self._attempt)
        except HookError as error:
            await self._write("hook.failed", {"hook": "stop", "error": str(error)})
            return ""
        return f"stop: {reason}" if reason else ""

    def _has_no_agents(self) -> bool:
        policy = self._plan.stop.agents_ended
        # An agent ends before its reason, such as a failure or a budget, is reported.
        over = [agent.name in self._ended for agent in self._attempt.activity()]
        return (policy == "all" and all(over)) or (policy == "any" and any(over))

    def _take(self, message: Message) -> str:
        """Process a message; return why the generation closes, or an empty string."""
        match message:
            case WorldEnded() | NodeLost():
                is_world = isinstance(message, WorldEnded)
                raise AttemptError("world" if is_world else "node", message.text)
            case AgentFailed():
                raise self._failure(message)
            case AgentEnded():
                self._ended.add(message.name)
                return "budget" if message.is_budget else ""
            case Close(reason=reason):
                return reason
            case PauseRequest():
                raise PauseError(message)
            case _:  # a turn: call the stop hook again
                if self._callbacks.has_stop:
                    self._look_at = self._clock.monotonic()
                return ""

    def _failure(self, failure: AgentFailed) -> Exception:
        if failure.is_passing:
            return PauseError(blame_provider(failure, self._clock.utc(), self._room.node))
        return AttemptError("agent", f"{failure.name}: {failure.text}")

    # -- the save phase ---------------------------------------------------------------------

    async def _wait_for_saving(self) -> None:
        assert self._plan.save is not None
        remaining_s = max(1.0, self._plan.duration - self.order.active_s)
        deadline = self._clock.monotonic() + min(self._plan.saving_s, remaining_s)
        while self._clock.monotonic() < deadline:
            if not self._plan.save.full and not any(
                agent.is_working for agent in self._attempt.activity()
            ):
                return
            message = await self.mailbox.take(deadline)
            if isinstance(message, AgentFailed) and not message.is_passing:
                continue  # agents can save without the world
            if message is not None:
                self._take(message)

    # -- checkpoints ------------------------------------------------------------------------

    def _next_save(self, share: float) -> float:
        every = self._plan.checkpoint.every
        return math.inf if every is None else self._clock.monotonic() + every * share

    async def _save_or_pause(self, kind: CheckpointKind) -> None:
        """Make a required checkpoint; pause the generation after three failures."""
        while not await self._checkpoint(kind) and self._plan.checkpoint.required:
            pass

    async def _checkpoint(self, kind: CheckpointKind) -> bool:
        """Try to make a checkpoint; return whether it was made."""
        idle_wait = PAUSE_IDLE_WAIT_S
        if kind == "periodic":  # but not beyond the start of the save phase
            remaining_s = self._active_limit_s - self.active_clock.active_s
            idle_wait = max(0.0, min(self._plan.checkpoint.idle_wait, remaining_s))
        try:
            saved = await self._attempt.checkpoint(
                kind, lambda: self.active_clock.active_s, idle_wait=idle_wait
            )
        except WorldExitedError as error:
            raise AttemptError("world", str(error)) from error
        except (ClawbloxError, OSError) as error:
            await self._note_failed_save(kind, error)
            return False
        self._failed_saves = 0
        self.world_time = saved.world_time
        await self._write("checkpoint", self._describe(kind, saved))
        await self._retain()
        return True

    def _describe(self, kind: CheckpointKind, saved: SavedCheckpointFile) -> Mapping[str, Any]:
        self.usage = tuple(self._attempt.usage())
        return {
            **attrs.asdict(saved),
            "kind": kind,
            "reason": self._close_reason if kind in ("boundary", "end") else "",
            **self._seconds(),
            "usage": usage_data(self.used),
        }

    async def _note_failed_save(self, kind: CheckpointKind, error: Exception) -> None:
        is_secret = isinstance(error, CheckpointSecretError)
        self._failed_saves += not is_secret
        facts = {"kind": kind, "error": str(error), "secret": is_secret}
        await self._write("checkpoint.failed", facts)
        if kind == "pause" or not self._plan.checkpoint.required:
            return
        if is_secret and kind in ("boundary", "end"):
            raise PauseError(PauseRequest(reason="secret", text=str(error)))
        if self._failed_saves >= _MAX_FAILED_SAVES:
            raise PauseError(PauseRequest(reason="checkpoint", text=str(error)))

    async def _retain(self) -> None:
        """Remove the oldest periodic archives, except sources of forks."""
        keep = self._plan.checkpoint.keep
        generation = self._recorder.state.chain(self.order.chain.name).latest
        if keep is None or generation is None:
            return
        archives = [
            point for point in generation.attempts[-1].checkpoints if point.kind == "periodic"
        ]
        oldest = archives[: max(0, len(archives) - keep)]
        if oldest:
            await self._recorder.derive()  # the pointer names the latest archive, which is kept
        for point in oldest:
            ref = point.ref
            is_unused = partial(lambda ref, state: ref not in state.fork_sources, ref)
            facts = {"file": ref.file}
            if await self._write("checkpoint.removed", facts, condition=is_unused) is not None:
                await self._attempt.remove_checkpoint(ref.file)

    # -- ends -------------------------------------------------------------------------------

    async def _fail(self, cause: FailureCause, text: str) -> None:
        moved_to = failed_name(self.order.attempt_id, self._clock.utc())
        facts = {"cause": cause, "text": text, "moved_to": moved_to}
        facts |= await self._totals(self.order.attempt_id)
        await self._write("failed", facts)
        await self._backend.set_aside(self.order.chain.name, self.order.attempt_id, moved_to)
        await self._recorder.derive()  # the pointer names the new path

    async def _pause(self, pause: PauseRequest) -> None:
        totals = await self._totals(self.order.attempt_id)
        await self._write("paused", {**attrs.asdict(pause), **totals})

    async def _totals(self, attempt_id: str) -> dict[str, Any]:
        errors = await self._backend.script_errors(self.order.chain.name, attempt_id)
        facts = {} if errors is None else {"script_errors": attrs.asdict(errors)}
        return {"usage": usage_data(self.usage), **self._seconds(), **facts}

    def _seconds(self) -> dict[str, float]:
        return {"elapsed_s": self.active_clock.active_s, "idle_s": self.active_clock.idle_s}

    async def _write(
        self, kind: LineType, data: Mapping[str, Any] | None = None, **options: Any
    ) -> JournalLine | None:
        about = About(self.order.chain.name, self.order.generation, self.order.attempt_id)
        return await self._recorder.write(kind, data, about, **options)
