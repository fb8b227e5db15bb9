"""A chain whose task runs, with the attempt that it makes now."""

from __future__ import annotations

from datetime import timedelta

import anyio
import attrs

from clawblox.experiment.history.state import ChainState
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.schedule.generation import GenerationRunner
from clawblox.experiment.schedule.pauses import Close, Pause
from clawblox.system.clock import Clock
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)


@attrs.define(kw_only=True)
class RunningChain:
    """A chain whose task runs.

    Attributes:
        chain: The chain.
        waiting: Cancelled to end the task while no attempt runs.
        runner: The attempt that runs; None while none does.
        awaits: What it waits for, such as ``for a node``; empty if that needs no words.
        is_over: Set when its task has ended.
    """

    chain: Chain
    waiting: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    runner: GenerationRunner | None = None
    awaits: str = ""
    is_over: anyio.Event = attrs.field(factory=anyio.Event)

    async def outlast_hosts(self, state: ChainState, since: float, clock: Clock) -> None:
        """Wait until no host can live any longer that an earlier session has left.

        Args:
            state: The state of the chain.
            since: Time by the clock at which the session began: no other gave signs from then on.
            clock: The clock.

        Cancellation: they may live.
        """
        for attempt in state.attempts:
            ends_at = since + attempt.host.get("bound_s", 0.0)
            rest_s = ends_at - clock.monotonic()
            if attempt.ending is None and rest_s > 0.0:
                until = (clock.utc() + timedelta(seconds=rest_s)).astimezone()
                what = f"the end of {attempt.run_id} on node {attempt.node}"
                self.awaits = f"until {until:%H:%M:%S} for {what}"
                _log.warning("chain waits", chain=self.chain.name, reason=self.awaits)
                await clock.sleep_until(ends_at)
        self.awaits = ""

    def interrupt(self, request: Close | Pause) -> None:
        """Hand a request to its attempt; without one, end its task."""
        if self.runner is None:
            self.waiting.cancel()
        else:
            self.runner.mailbox.put(request)
