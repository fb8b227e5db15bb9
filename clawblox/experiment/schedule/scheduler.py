"""Runs the chains of an experiment at the same time, within the limits of its plan.

Each chain has a task, which waits for a slot, runs an attempt, and asks ``machine`` for the next
step, until the chain is done, has failed or is paused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import anyio
import anyio.abc
import attrs

from clawblox.experiment.history.lines import About, usage_data
from clawblox.experiment.history.machine import CloseAttempt, Commit, Finished, next_step
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.recorder import JournalRecorder
from clawblox.experiment.history.state import AttemptState, ExperimentState
from clawblox.experiment.layout import free_attempt_name, run_prefix
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.schedule.accounts import Accounts, LongPauseError
from clawblox.experiment.schedule.admission import Admission, Slot, make_slot
from clawblox.experiment.schedule.callbacks import Callbacks
from clawblox.experiment.schedule.generation import GenerationRunner
from clawblox.experiment.schedule.pauses import Close, PauseRequest, blame_journal
from clawblox.experiment.schedule.ports import (
    THIS_MACHINE,
    AttemptBackend,
    AttemptError,
    ProviderError,
    Room,
)
from clawblox.experiment.schedule.spending import Spending
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import TimeSource, parse_utc
from clawblox.telemetry.own_log import OwnLog

_LOOK_AT_DISK_S: Final = 30.0
_WARN_AT: Final = 0.8
"""Share of the money that triggers a warning."""
_BLOCKING: Final[frozenset[str]] = frozenset({"secret", "checkpoint"})
"""Reasons of pauses that a person must resolve."""

_log = OwnLog(__name__)


@attrs.define(kw_only=True)
class _RunningChain:
    """A chain with a running task.

    Attributes:
        chain: The chain.
        waiting: Cancelled to end the task while no attempt runs.
        runner: The running attempt, or None.
        awaits: The reason of its wait, such as ``for a node``; empty if it needs no words.
        is_over: Set when the task has ended.
    """

    chain: Chain
    waiting: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    runner: GenerationRunner | None = None
    awaits: str = ""
    is_over: anyio.Event = attrs.field(factory=anyio.Event)

    def interrupt(self, request: Close | PauseRequest) -> None:
        """Pass a request to its attempt; without an attempt, end its task."""
        if self.runner is None:
            self.waiting.cancel()
        else:
            self.runner.mailbox.put(request)


class Scheduler:
    """Runs chains.

    Args:
        plans: The plans of the experiment.
        backend: Makes the attempts.
        recorder: Writes the lines.
        clock: The clock of the experiment.
        callbacks: The hooks.
        wall_s: Seconds of earlier runs of the experiment.
        warn: Called with the kind and the text of a warning: ``budget.warning``, ``disk.low``,
            ``node.lost``, ``machine.changed``.

    Attributes:
        pauses: Why each chain is paused, by its name; meaningless for chains that are over.
        halted: Why no more attempts start; None while they do.
        accounts: The accounts of the agents.
        spending: The costs so far.
    """

    def __init__(
        self,
        plans: Plans,
        backend: AttemptBackend,
        recorder: JournalRecorder,
        clock: TimeSource,
        callbacks: Callbacks,
        *,
        wall_s: float = 0.0,
        warn: Callable[[str, str], object] = lambda _kind, _text: None,
    ) -> None:
        plan = plans.present
        self._plans = plans
        self._limits = plan.limits
        self._backend = backend
        self._recorder = recorder
        self._clock = clock
        self._callbacks = callbacks
        self._started_at = clock.monotonic()
        self._begun_at = self._started_at - wall_s
        self._running: dict[str, _RunningChain] = {}
        self._admission = Admission(plan.limits, self._can_start, self._halt_if_stuck)
        self._tasks: anyio.abc.TaskGroup | None = None
        # None until the first check of the disk; nothing starts before it.
        self._is_disk_low = False if plan.limits.min_free is None else None
        self._warn = warn
        self._has_warned = False
        self.pauses: dict[str, PauseRequest] = {}
        self.failures: dict[str, str] = {}
        self.halted: PauseRequest | None = None
        self.accounts = Accounts(clock, plan.retry.longest_pause)
        self.spending = Spending(plans)

    @property
    def state(self) -> ExperimentState:
        """The state of the experiment."""
        return self._plans.state

    @property
    def runners(self) -> Mapping[str, GenerationRunner]:
        """The running attempts, by chain."""
        return {
            name: running.runner
            for name, running in self._running.items()
            if running.runner is not None
        }

    @property
    def awaits(self) -> Mapping[str, str]:
        """Known reasons for which chains wait before their next attempts, by chain."""
        return {
            name: running.awaits
            for name, running in self._running.items()
            if running.awaits and running.runner is None
        }

    # -- from the start to the end --------------------------------------------------------------

    async def run(self, chains: Collection[Chain]) -> None:
        """Run chains until each is done, has failed or is paused.

        Args:
            chains: The chains; :meth:`add` adds more.

        Raises:
            OSError: The journal could not be written.

        Cancellation: all worlds and agents are ended; their attempts are interrupted.
        """
        async with anyio.create_task_group() as watch:
            watch.start_soon(self._watch_wall)
            watch.start_soon(self._watch_disk)
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                await self.spending.count_left(self._backend.usage)
                for chain in chains:
                    self.add(chain)
            self._tasks = None
            watch.cancel_scope.cancel()

    def add(self, chain: Chain) -> None:
        """Run another chain; ignored unless :meth:`run` is running."""
        if self._tasks is not None and chain.name not in self._running:
            running = self._running[chain.name] = _RunningChain(chain=chain)
            self._tasks.start_soon(self._run_task, running)

    async def _run_task(self, running: _RunningChain) -> None:
        name = running.chain.name
        try:
            with running.waiting:
                await self._run_chain(running)
        except OSError as error:
            self.halt(blame_journal(error))
        except Exception as error:  # noqa: BLE001 - a defect ends this chain and no other
            _log.defect("chain failed", error, chain=name)
            self.failures[name] = f"{type(error).__name__}: {error}"
        finally:
            del self._running[name]
            running.is_over.set()
            self.accounts.release(name)
            self._admission.grant()
        self._halt_if_stuck()

    # -- pauses and halts -----------------------------------------------------------------------

    def pause(self, pause: PauseRequest, chains: Collection[str] | None = None) -> None:
        """Pause chains: their attempts make a checkpoint and stop.

        Args:
            pause: The reason.
            chains: Their names; None means all.
        """
        for name, running in list(self._running.items()):
            if chains is None or name in chains:
                self.pauses.setdefault(name, pause)
                running.interrupt(pause)

    def halt(self, pause: PauseRequest) -> None:
        """Start no more attempts, and pause all running attempts.

        Args:
            pause: The reason.
        """
        self.halted = self.halted or pause
        self.pause(pause)

    async def wait_idle(self, chains: Collection[str]) -> None:
        """Wait until the tasks of some chains have ended.

        Cancellation: has no effect.
        """
        for name in chains:
            if (running := self._running.get(name)) is not None:
                await running.is_over.wait()

    def close_all(self, pause: PauseRequest) -> None:
        """Start no more attempts, and close all running generations, with their save prompts.

        Args:
            pause: The reason.
        """
        if self.halted is not None:
            return
        self.halted = pause
        for name, running in list(self._running.items()):
            self.pauses.setdefault(name, pause)
            running.interrupt(Close(reason=pause.reason))

    def _halt_if_stuck(self) -> None:
        """Halt if nothing runs and nothing can start, for lack of a login or of money."""
        if not self._running or self._admission.taken or self.halted is not None:
            return
        if all(map(self._waits_for_login, self._running.values())):
            self.halt(PauseRequest(reason="auth", text="all remaining chains wait for a login"))
        elif self._admission.waiting and not any(map(self._affords, self._admission.waiting)):
            self.halt(PauseRequest(reason="dollars", text=self.spending.describe()))

    def _waits_for_login(self, running: _RunningChain) -> bool:
        if running.runner is not None or self.accounts.is_probing(running.chain.name):
            return False
        accounts = self._backend.accounts(running.chain)
        return self.accounts.blocking(accounts, running.chain.name) == "auth"

    async def _watch_wall(self) -> None:
        if (wall := self._limits.wall) is None:
            return
        ends_at = self._begun_at + wall
        while self._clock.monotonic() < ends_at:
            await self._clock.sleep_until(ends_at)
        text = f"the experiment has run for {wall:g} s, its limits.wall"
        self.close_all(PauseRequest(reason="wall", text=text))

    async def _watch_disk(self) -> None:
        while (least := self._limits.min_free) is not None:
            free = await self._backend.free_bytes()
            text = f"{format_bytes(free)} are free, but limits.min_free is {format_bytes(least)}"
            if free < least and not self._is_disk_low:
                self._warn("disk.low", text)
            self._is_disk_low = free < least
            if self._is_disk_low and not self._admission.taken:
                self.halt(PauseRequest(reason="disk", text=text))
                return
            self._admission.grant()
            await self._clock.sleep_until(self._clock.monotonic() + _LOOK_AT_DISK_S)

    def _can_start(self, slot: Slot) -> bool:
        return self.halted is None and self._is_disk_low is False and self._affords(slot)

    def _affords(self, slot: Slot) -> bool:
        """Return whether the money suffices for an attempt and all running attempts."""
        return self.spending.affords(sum(other.usd for other in self._admission.taken) + slot.usd)

    # -- one chain ------------------------------------------------------------------------------

    async def _run_chain(self, running: _RunningChain) -> None:
        chain = running.chain
        await self._outlast_hosts(running)
        while True:
            match next_step(self._plans, chain):
                case Finished(status=status):
                    if status == "failed" and self._plans.present.retry.on_failure == "stop_all":
                        self.halt(PauseRequest(reason="request", text=f"{chain.name} has failed"))
                    return
                case CloseAttempt(attempt=attempt):
                    await self._close_attempt(attempt)
                case Commit(order=order):
                    await self._commit(order)
                case AttemptOrder() as order:
                    if self._is_blocked(running):
                        return
                    await self._await_turn(running)
                    await self._run_attempt(running, order)

    async def _outlast_hosts(self, running: _RunningChain) -> None:
        """Wait until no host of an earlier run can still be running."""
        for attempt in self.state.chain(running.chain.name).attempts:
            # No other process has given signs of a driver since this run started.
            ends_at = self._started_at + attempt.host.get("bound_s", 0.0)
            rest_s = ends_at - self._clock.monotonic()
            if attempt.ending is None and rest_s > 0.0:
                until = (self._clock.utc() + timedelta(seconds=rest_s)).astimezone()
                what = f"the end of {attempt.attempt_id} on node {attempt.node}"
                running.awaits = f"until {until:%H:%M:%S} for {what}"
                _log.warning("chain waits", chain=running.chain.name, reason=running.awaits)
                await self._clock.sleep_until(ends_at)
        running.awaits = ""

    def _is_blocked(self, running: _RunningChain) -> bool:
        """Return whether the chain must pause now, and note the reason."""
        name = running.chain.name
        ending = self.state.chain(name).last_ending
        if ending is not None and ending.type == "paused" and self.state.is_of_run(ending):
            cause = PauseRequest(
                reason=ending.data["reason"], text=str(ending.data.get("text", ""))
            )
            if cause.reason in _BLOCKING:
                self.pauses[name] = cause
            elif cause.reason == "disk":
                self.halt(cause)
        if self.halted is not None:
            self.pauses.setdefault(name, self.halted)
        return name in self.pauses

    async def _await_turn(self, running: _RunningChain) -> None:
        """Wait until the chain may start an attempt, except for its slot."""
        chain = running.chain
        ending = self.state.chain(chain.name).last_ending
        if ending is not None and ending.type == "failed" and self.state.is_of_run(ending):
            self._admission.grant()
            await self._clock.sleep_until(self._clock.monotonic() + chain.plan.retry.delay)

        async def check_login() -> bool:
            try:
                with suppress(AttemptError):  # the attempt reports the error
                    await self._backend.check(chain)
            except ProviderError:
                return False
            return True

        try:
            self._halt_if_stuck()
            accounts = self._backend.accounts(chain)
            if self.accounts.blocking(accounts, chain.name) is not None:
                self._admission.grant()
            await self.accounts.wait(accounts, chain.name, check_login)
        except LongPauseError:
            reason = self.accounts.blocking(self._backend.accounts(chain), chain.name) or "limit"
            what = "login has been expired" if reason == "auth" else "account has been limited"
            text = f"its {what} for more than {chain.plan.retry.longest_pause:g} s"
            self.pauses.setdefault(chain.name, PauseRequest(reason=reason, text=text))
            running.waiting.cancel()
            await anyio.lowlevel.checkpoint()

    async def _close_attempt(self, attempt: AttemptState) -> None:
        usage = await self._backend.usage(attempt.chain, attempt.attempt_id)
        await self._recorder.write(
            "interrupted",
            {"usage": usage_data(usage)},
            About(attempt.chain, attempt.generation, attempt.attempt_id),
        )

    async def _commit(self, order: AttemptOrder) -> None:
        usage = tuple(await self._backend.usage(order.chain.name, order.attempt_id))
        await self._make_runner(order, usage=usage).finish()

    async def _run_attempt(self, running: _RunningChain, order: AttemptOrder) -> None:
        chain = running.chain
        slot = make_slot(self._plans, chain, order.generation)
        await self._admission.acquire(slot)
        runs_world = order.phase != "score" or self._callbacks.has_score
        try:
            running.awaits = "for a node"
            room_given = self._backend.room(chain) if runs_world else nullcontext(THIS_MACHINE)
            async with room_given as room:
                await anyio.lowlevel.checkpoint_if_cancelled()  # paused at the same moment
                opened = self.state.find_attempt(chain.name, order.generation, order.attempt_id)
                if opened is not None and opened.host != room.host:
                    await self._close_attempt(opened)  # its line names another node
                    return
                # From here on the attempt decides its end; pauses do not cut off its lines.
                runner = await self._open(running, order, room)
                await runner.run()
                await self._note_end(runner)
        finally:
            running.runner, running.awaits = None, ""
            self.spending.end(chain.name)
            self.accounts.release(chain.name)
            self._admission.release(slot)

    async def _open(
        self, running: _RunningChain, order: AttemptOrder, room: Room
    ) -> GenerationRunner:
        """Write the first line of an attempt, and return its runner."""
        is_new = not order.attempt_id
        if is_new:
            name = self._choose_name(running.chain, order.generation)
            order = attrs.evolve(order, attempt_id=name)
        note_progress = partial(self._note_progress, running)
        runner = self._make_runner(order, room=room, on_progress=note_progress)
        running.runner = runner
        if is_new:
            facts = order.describe()
            if room.host:
                facts["host"] = room.host
            if differs := self._find_difference(order, room):
                facts["differs"] = differs
            about = About(order.chain.name, order.generation, order.attempt_id)
            await self._recorder.write("opened", facts, about)
            if differs:
                text = f"{order.attempt_id} continues on another {differs}"
                self._warn("machine.changed", text)
        return runner

    def _find_difference(self, order: AttemptOrder, room: Room) -> str:
        """Return how a machine differs from the origin's machine, if known."""
        ref = order.origin
        source = ref and self.state.find_attempt(ref.chain, ref.generation, ref.attempt)
        before = source.host.get("machine", {}) if source else {}
        return "; ".join(
            f"{name}: {now}, before {before[name]}"
            for name, now in room.machine.items()
            if before.get(name, now) != now
        )

    def _choose_name(self, chain: Chain, generation: int) -> str:
        plan, taken = chain.plan, {a.attempt_id for a in self.state.chain(chain.name).attempts}
        layout = self._plans.present.layout
        prefix = run_prefix(plan.name, chain.name, layout, given=plan.run_prefix)
        return free_attempt_name(prefix, generation, self._clock.utc(), taken)

    def _make_runner(self, order: AttemptOrder, **more: Any) -> GenerationRunner:
        return GenerationRunner(
            order, self._backend, self._recorder, self._clock, self._callbacks, **more
        )

    # -- after an attempt -----------------------------------------------------------------------

    def _note_progress(self, running: _RunningChain) -> None:
        """Close everything if the money is spent, and note which accounts work again."""
        runner = running.runner
        assert runner is not None
        self.spending.note(running.chain, runner.usage)
        if self.spending.has_reached(1.0):
            self.close_all(PauseRequest(reason="dollars", text=self.spending.describe()))
        if self.spending.has_reached(_WARN_AT) and not self._has_warned:
            self._has_warned = True
            self._warn("budget.warning", self.spending.describe())
        self._clear_accounts(runner)

    def _clear_accounts(self, runner: GenerationRunner) -> None:
        """Note that the tried accounts work, if the attempt's agents have got answers."""
        if not self.accounts.is_probing(runner.order.chain.name):
            return
        accounts = self._backend.accounts(runner.order.chain)
        for account, usage in zip(accounts, runner.usage, strict=False):
            if usage.output_tokens and self.accounts.clear(account):
                assert self._tasks is not None
                self._tasks.start_soon(self._write_cleared, account)

    async def _write_cleared(self, account: str) -> None:
        try:
            await self._recorder.write("account.cleared", {"account": account})
        except OSError as error:
            self.halt(blame_journal(error))

    async def _note_end(self, runner: GenerationRunner) -> None:
        """Note which accounts are limited, or work, according to the end of an attempt."""
        name = runner.order.chain.name
        ending = self.state.chain(name).last_ending
        facts = {} if ending is None or ending.type != "paused" else ending.data
        if ending is not None and ending.data.get("cause") == "node":
            self._warn("node.lost", f"{runner.order.attempt_id}: {ending.data['text']}")
        reason, account = facts.get("reason"), facts.get("account")
        if reason in ("limit", "auth") and account is not None:
            until = facts.get("until")
            self.accounts.limit(account, reason, parse_utc(until), chain=name)
            limit = {"account": account, "reason": reason, "until": until}
            await self._recorder.write("account.limited", limit)
        else:
            self._clear_accounts(runner)
