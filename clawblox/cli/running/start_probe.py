"""How a start is going: what the readiness probe sees, and the last line of the log.

It probes the world as the readiness probe does, but less often. Everything here blocks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import attrs

from clawblox.config.world_toml import ReadyRule, read_world_config
from clawblox.errors import ConfigError
from clawblox.instance.health import Probe, look_once
from clawblox.instance.listening import find_elsewhere
from clawblox.printable import printable
from clawblox.rundir.records import InstanceRecord, read_record
from clawblox.rundir.status import InstanceStatus
from clawblox.system.process_tree import all_processes
from clawblox.telemetry.logs import last_lines

_PROBE_INTERVAL_S = 1.0
_PROBE_TIMEOUT_S = 0.5
_SLOW_S = 2.0
"""How long a start takes before the table tells more of it."""
_MAX_NOTES = 4
_NOTE_TIMEOUT_S = 0.05


class StartProbe:
    """Looks at the start of an instance.

    Args:
        record: The instance.
        ready: When its world counts as ready.
        secrets: Values to mask.
        timeout: How long a probe may take, in seconds.
    """

    def __init__(
        self,
        record: InstanceRecord,
        ready: ReadyRule,
        secrets: Collection[str] = (),
        *,
        timeout: float = _PROBE_TIMEOUT_S,
    ) -> None:
        self._record = record
        self._seen = ""
        self._log_file, self._log_start = Path(record.log_file), record.log_start
        self._secrets = secrets
        self._timeout = timeout
        self._probed_at = -_PROBE_INTERVAL_S
        self._probe = Probe(
            host=record.host,
            port=record.port,
            path=record.base_path + ready.path if ready.log is None else None,
            log_pattern=re.compile(ready.log) if ready.log is not None else None,
            log_file=self._log_file,
            log_start=record.log_start,
        )

    def look(self) -> list[str]:
        """Return what the last probe saw, then the last line of the log if there is one.

        Raises:
            OSError: This process lacks descriptors, or the log cannot be read.
        """
        if time.monotonic() >= self._probed_at + _PROBE_INTERVAL_S:
            self._seen = self._see()
            self._probed_at = time.monotonic()
        lines = last_lines(self._log_file, start=self._log_start, count=1, secrets=self._secrets)
        return [self._seen, *map(printable, lines)]

    def _see(self) -> str:
        """Probe once and return what was seen, or where the world listens instead."""
        if look_once(self._probe, self._timeout):
            return self._probe.seen
        record, processes = self._record, all_processes().values()
        elsewhere = find_elsewhere(record.host, record.port, record.pid, processes)
        return str(elsewhere or self._probe.seen)


@attrs.define
class _SlowStart:
    since: float
    probe: StartProbe | None = None


class SlowStarts:
    """Tells of the starts that take long, a few at a time."""

    def __init__(self) -> None:
        self._starts: dict[tuple[Path, str, str], _SlowStart] = {}

    def look(self, statuses: Sequence[InstanceStatus]) -> dict[tuple[Path, str], str]:
        """Return how slow starts are going, by run directory and name.

        Args:
            statuses: All instances.
        """
        now = time.monotonic()
        starting = {
            (status.run_dir, status.name, status.started_at): status
            for status in statuses
            if status.state in ("starting", "restarting") and status.pid is not None
        }
        known = {key: self._starts.get(key) or _SlowStart(now) for key in starting}
        self._starts = known
        slow = [
            (starting[key], start)
            for key, start in known.items()
            if max(now - start.since, starting[key].uptime_s or 0.0) >= _SLOW_S
        ]
        return {
            (status.run_dir, status.name): _describe(status, start)
            for status, start in slow[:_MAX_NOTES]
        }


def _describe(status: InstanceStatus, start: _SlowStart) -> str:
    try:
        if start.probe is None:
            record = read_record(status.run_dir, status.name)
            if record is None:
                return ""
            ready = read_world_config(status.world_dir).ready
            start.probe = StartProbe(record, ready, timeout=_NOTE_TIMEOUT_S)
        return " | ".join(start.probe.look())
    except (ConfigError, OSError):
        return ""
