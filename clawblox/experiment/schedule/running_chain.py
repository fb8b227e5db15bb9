"""A chain whose task runs, with the attempt that it makes now."""

from __future__ import annotations

import anyio
import attrs

from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.schedule.generation import GenerationRunner
from clawblox.experiment.schedule.pauses import Close, Pause


@attrs.define(kw_only=True)
class RunningChain:
    """A chain whose task runs.

    Attributes:
        chain: The chain.
        waiting: Cancelled to end the task while no attempt runs.
        runner: The attempt that runs; None while none does.
        pause: Why it is to pause; None if it is not.
        usd: Cost of the attempt that runs, in US dollars.
        is_over: Set when its task has ended.
    """

    chain: Chain
    waiting: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    runner: GenerationRunner | None = None
    pause: Pause | None = None
    usd: float = 0.0
    is_over: anyio.Event = attrs.field(factory=anyio.Event)

    def interrupt(self, request: Close | Pause) -> None:
        """Hand a request to its attempt; without one, end its task."""
        if self.runner is None:
            self.waiting.cancel()
        else:
            self.runner.mailbox.put(request)
