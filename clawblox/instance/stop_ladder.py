"""The stop ladder of one instance, and why it failed, if it did."""

from __future__ import annotations

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import WorldStopError
from clawblox.instance.failures import stop_error
from clawblox.instance.instance import Instance
from clawblox.system.process import Grace, TreeEnd
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)


class StopLadder:
    """Ends all processes of one instance.

    Args:
        instance: The instance.

    Attributes:
        failure: Why the latest climb did not end all of them; None if it did.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self.failure: Exception | None = None

    async def end(self, grace: Grace) -> TreeEnd:
        """End the processes; a failure is kept for those who stop the instance.

        Where they cannot be looked for, what clawblox started is killed.

        Args:
            grace: Time between TERM and KILL.

        Cancellation: stops climbing; call it shielded.
        """
        self.failure = None
        try:
            end = await self._instance.end(grace)
        except Exception as error:  # noqa: BLE001 - whatever it is, as much as can be is ended
            self._instance.kill()
            if not isinstance(error, OSError):
                _log.defect("processes not looked for", error, instance=self._instance.name)
            reason = getattr(error, "strerror", None) or repr(error)
            await self._fail(f"its processes cannot be looked at: {reason}")
            return TreeEnd("killed")
        if end.survivors:
            await self._fail(f"not even SIGKILL ended {', '.join(end.survivors)}")
        else:
            await self._instance.wait_exit()
        return end

    async def _fail(self, reason: str) -> None:
        name = self._instance.name
        self.failure = WorldStopError(f"it could not be stopped: {reason}", instance=name)
        _log.error("stop failed", instance=name, reason=reason)
        self.failure = await run_blocking(stop_error, self._instance, reason)
