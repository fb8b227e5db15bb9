"""Watches one instance from its readiness to the exit of the world's process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.world_toml import LivenessRule
from clawblox.instance.bookkeeping import Bookkeeping
from clawblox.instance.health import wait_until_unresponsive
from clawblox.instance.instance import Instance
from clawblox.instance.pacer import ProbePacer
from clawblox.instance.rates import Rates
from clawblox.instance.startup import Tell
from clawblox.instance.watchdog_end import read_watchdog_end
from clawblox.system.process import Process


class Watch:
    """One watch of an instance.

    Args:
        instance: The instance, which is ready.
        pacer: Hurries its liveness probes.
        books: Its bookkeeping.
        tell: Called with each event.
        note_halt: Called with the reason when it has halted.
        end: Ends the instance when it hangs or has halted, which is then handled like any exit.

    Attributes:
        is_unresponsive: Whether the instance was ended because it did not respond.
    """

    def __init__(
        self,
        instance: Instance,
        pacer: ProbePacer,
        books: Bookkeeping,
        tell: Tell,
        note_halt: Callable[[str], Awaitable[None]],
        end: Callable[[], Awaitable[None]],
    ) -> None:
        self._instance = instance
        self._pacer = pacer
        self._rates = Rates(instance, books, tell)
        self._tell = tell
        self._note_halt = note_halt
        self._end = end
        self.is_unresponsive = False

    async def run(self) -> None:
        """Watch until the world's process has ended.

        Cancellation: the processes continue; an instance that is being ended is ended first.
        """
        async with Tasks() as tasks:
            for name, sidecar in self._instance.sidecars.items():
                tasks.start_soon(partial(self._watch_sidecar, name, sidecar))
            if (rule := self._instance.launch.liveness) is not None:
                tasks.start_soon(partial(self._watch_liveness, rule))
            await self._instance.wait_exit()
        reason = await run_blocking(read_watchdog_end, self._instance)
        if reason is not None:
            await self._note_halt(reason)

    async def _watch_sidecar(self, name: str, sidecar: Process) -> None:
        self._tell("sidecar_exited", sidecar=name, exit=await sidecar.wait())

    async def _watch_liveness(self, rule: LivenessRule) -> None:
        probe = self._instance.running.liveness_probe(rule)
        self._pacer.begin()
        try:
            seen = await wait_until_unresponsive(probe, rule, self._pacer, self._rates.note)
            if probe.halt is not None:
                await self._note_halt(probe.halt)
        finally:
            self._pacer.end()
            self._rates.end()
        if probe.halt is None:
            self.is_unresponsive = True
            self._tell("unresponsive", seen=seen, failures=rule.failure_threshold)
        await self._end()
