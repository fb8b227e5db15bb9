"""An agent of an attempt: its activity, usage, budget and end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.options import CommonAgentOptions
from clawblox.agents.usage import Budget
from clawblox.agents.values import AgentEvent, StartedAgent, Usage
from clawblox.errors import AgentError, ClawbloxError
from clawblox.errors.general import shorten
from clawblox.experiment.live.attempt_errors import MAX_REASON_CHARS, failure_cause
from clawblox.experiment.plan.parts import AgentSpec
from clawblox.experiment.schedule.ports import (
    AgentActivity,
    AgentEnded,
    AgentFailed,
    AgentTurned,
    AttemptError,
    ProviderError,
    Signal,
)

_TURNS: Final = frozenset({"turn.started", "turn.finished", "process.exited"})
_MAX_EVENTS: Final = 256
_LEAST_USD: Final = 1e-9


@attrs.define(eq=False)
class AttemptAgent:
    """An agent of an attempt.

    Args:
        spec: The agent in the plan.
        agent: The agent.
        before: Its usage before the attempt.
        account: Name of the account that it uses.
        env: Its environment variables.

    Attributes:
        events: Its latest events.
    """

    spec: AgentSpec
    agent: AsyncAgent
    before: Usage
    account: str
    env: Mapping[str, str] = attrs.field(repr=False)
    events: deque[AgentEvent] = attrs.field(
        factory=lambda: deque(maxlen=_MAX_EVENTS), init=False, repr=False
    )
    _watch: anyio.Event | None = attrs.field(default=None, init=False)
    _is_stopping: bool = attrs.field(default=False, init=False)
    _budget_used: str | None = attrs.field(default=None, init=False)
    _first_started_at: float | None = attrs.field(default=None, init=False)

    @property
    def name(self) -> str:
        """Its display name."""
        return str(self.spec.name)

    @property
    def full_name(self) -> str:
        """Its full name, run suffix included."""
        return self.agent.name

    @property
    def dir(self) -> Path:
        """Its directory."""
        return self.agent.dir

    @property
    def usage(self) -> Usage:
        """Its usage since the start of the attempt."""
        return self._reading.minus(self.before)

    @property
    def _reading(self) -> Usage:
        now = self.agent.usage
        return self.before if now == Usage() else now

    def activity(self) -> AgentActivity:
        """Return its present activity."""
        is_over = self.agent.state in ("idle", "stopped", "failed")
        return AgentActivity(
            name=self.name,
            is_over=is_over,
            is_working=not (is_over or self.agent.is_between_turns),
            provider_wait_s=self.agent.provider_wait_s,
            account=self.account,
        )

    # -- what it may use --------------------------------------------------------------------------

    def set_budget(self, used: Usage, active_s: float) -> None:
        """Limit its usage in the generation.

        Args:
            used: Its usage in the generation before the attempt.
            active_s: Active seconds of the generation before the attempt.
        """
        budget = _continued(self.spec.budget, self.before, used, -active_s / 60)
        self.agent.set_budget(budget)

    def set_save_budget(self, budget: Budget | None) -> None:
        """Limit its usage from now on."""
        begun_at = self._first_started_at
        minutes = 0.0 if begun_at is None else (anyio.current_time() - begun_at) / 60
        self.agent.set_budget(_continued(budget, self._reading, Usage(), minutes))

    # -- its starts -------------------------------------------------------------------------------

    async def start(self, system_prompt: str) -> StartedAgent:
        """Start its conversation.

        Raises:
            AttemptError: It could not be started; no process or file remains.
            ProviderError: A limit or an expired login; no process or file remains.

        Cancellation: no process or file remains.
        """
        self._note_start()
        with self.blamed():
            return await self.agent.start(
                self.spec.prompt, system_prompt=system_prompt, env=self.env
            )

    async def send(self, text: str | None) -> StartedAgent:
        """Send it a message; a stopped agent is restarted to continue its conversation with it.

        Args:
            text: The message; None means the default message.

        Raises:
            AttemptError: It could not be started.
            ProviderError: A limit or an expired login.

        Cancellation: it may have received the message.
        """
        self._note_start()
        with self.blamed():
            return await self.agent.send(text, env=self.env)

    def _note_start(self) -> None:
        self._is_stopping = False
        if self._first_started_at is None:
            self._first_started_at = anyio.current_time()

    async def stop(self, grace_s: float) -> None:
        """Stop it. Idempotent.

        Args:
            grace_s: Seconds between TERM and KILL.

        Cancellation: it is stopped regardless.
        """
        self._is_stopping = True
        reason = self._budget_used or "stopped by its experiment"
        result = await self.agent.stop(grace_seconds=grace_s, reason=reason)
        if result.ended_by == "budget" and self._budget_used is None:
            self._budget_used = result.reason  # the save prompt starts it again
        if self._watch is not None:  # the watch must not confuse the next start with this one
            await self._watch.wait()

    def require_version(self, started: StartedAgent) -> None:
        """Check that its program has the version of the plan.

        Raises:
            AttemptError: It has another version.
        """
        pinned = self.spec.version
        if pinned is not None and started.version != pinned:
            expected = f"must be {pinned}, as the plan says, not {started.version}"
            raise AttemptError("setup", f"agents.{self.name}.version: {expected}")

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Raise an error of the block as an :class:`AttemptError` caused by this agent.

        Raises:
            AttemptError: The block raised an error.
            ProviderError: The error is a limit or an expired login.
        """
        try:
            yield
        except ClawbloxError as error:
            failure = self._describe(error)
            if failure.is_passing:
                raise ProviderError(failure) from error
            text = f"{self.name}: {failure.text}"
            raise AttemptError(failure_cause(error), text) from error

    def _describe(self, error: Exception | None) -> AgentFailed:
        return AgentFailed(
            name=self.name,
            kind=error.kind if isinstance(error, AgentError) else None,
            text=shorten(str(error), MAX_REASON_CHARS),
            retry_at=error.retry_at if isinstance(error, AgentError) else None,
            account=self.account,
        )

    # -- what it reports --------------------------------------------------------------------------

    async def watch_turns(
        self, report: Callable[[Signal], object], pass_on: Callable[[AgentEvent], object]
    ) -> None:
        """Report its turns and its waits for the provider, until it is closed.

        Args:
            report: Called with each signal.
            pass_on: Called with each event.

        Cancellation: reporting stops.
        """
        was_waiting = False
        async with self.agent.events() as events:
            async for event in events:
                self.events.append(event)
                pass_on(event)
                is_waiting = self.agent.is_waiting_for_provider
                if event.kind in _TURNS or is_waiting is not was_waiting:
                    was_waiting = is_waiting
                    report(AgentTurned())

    async def watch_end(self, report: Callable[[Signal], object]) -> None:
        """Report its end once, unless it is already watched or was stopped deliberately.

        Cancellation: its end is not reported.
        """
        if self._watch is not None:
            return
        self._watch = is_over = anyio.Event()
        try:
            result = await self.agent.wait()
            if self._is_stopping:
                return
        finally:
            self._watch = None
            is_over.set()
        if result.state == "failed":
            report(self._describe(self.agent.failure))
        else:
            is_budget = result.ended_by == "budget"
            report(AgentEnded(name=self.name, is_budget=is_budget, text=result.reason))


def make_agent(spec: AgentSpec, name: str, directory: Path, tmux: str | None = None) -> AsyncAgent:
    """Return an unopened agent of a plan.

    Args:
        spec: The agent in the plan.
        name: Its full name.
        directory: Its directory.
        tmux: tmux session that shows it, or None.
    """
    common = {option: getattr(spec, option) for option in attrs.fields_dict(CommonAgentOptions)}
    return AsyncAgent(
        agent=spec.driver, name=name, dir=directory, tmux=tmux, command=spec.command, **common
    )


def _continued(budget: Budget | None, reading: Usage, used: Usage, minutes: float) -> Budget | None:
    """Return a budget as limits of a ledger, less the usage already counted.

    Args:
        budget: The budget; None sets no limit.
        reading: The ledger's reading from which the remaining budget counts.
        used: The usage already counted.
        minutes: Minutes on the agent's own clock from which the budget's minutes count.
    """
    if budget is None:
        return None
    limits: dict[str, Any] = {}
    for name, (limit, before, spent, least) in {
        "tokens": (budget.tokens, reading.tokens, used.tokens, 1),
        "output_tokens": (budget.output_tokens, reading.output_tokens, used.output_tokens, 1),
        "turns": (budget.turns, reading.turns, used.turns, 1),
        "usd": (budget.usd, reading.cost_usd or 0.0, used.cost_usd or 0.0, _LEAST_USD),
        "minutes": (budget.minutes, minutes, 0.0, _LEAST_USD),
    }.items():
        if limit is not None:
            limits[name] = max(least, before + max(0, limit - spent))
    return Budget(**limits)
