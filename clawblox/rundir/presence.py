"""Checks whether instances of any process are running, and waits until they have ended for good.

The kernel reports the end of a process through its pidfd. Restarts, and ends noted by an
orchestrator, are found in the records, which are read at most twice a second.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self, TypeAlias

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import WorldExitedError
from clawblox.results import ProcessExit, describe_end
from clawblox.rundir.find_runs import shown_log
from clawblox.rundir.records import InstanceRecord, read_record, read_records
from clawblox.rundir.status import (
    OVER,
    InstanceState,
    is_over,
    is_ready,
    judge_state,
    select_records,
)
from clawblox.system.process_tree import is_same_process
from clawblox.telemetry.logs import last_lines

PresenceState: TypeAlias = Literal["serving", "away", "over"]
"""``away``: it died and may be restarted, or is being stopped; ``over``: it ended for good."""

_LOG_LINES = 10


@attrs.frozen
class Presence:
    """An instance at one moment.

    Attributes:
        record: Record of the instance.
        state: State of the instance.
    """

    record: InstanceRecord
    state: PresenceState

    @property
    def number(self) -> tuple[str, int]:
        """The run id and the number of restarts, which identify one start of the instance."""
        return self.record.run_id, self.record.restarts

    @property
    def will_restart(self) -> bool:
        """True if the orchestrator restarts the instance as long as the restart budget lasts."""
        has_policy = self.record.options.get("restart", "never") != "never"
        is_under_way = self.record.state == "starting" and self.record.restarts > 0
        return self.state == "away" and (has_policy or is_under_way)

    @property
    def end(self) -> str:
        """Description of the instance's end."""
        return describe_end(self.record.exit, self.record.halt)


def read_presence(run_dir: Path, record: InstanceRecord) -> Presence:
    """Return the current presence of an instance. Blocks.

    Args:
        run_dir: The run directory.
        record: Last known record of the instance.
    """
    latest = read_record(run_dir, record.name) or record
    if is_ready(latest) and latest.halt is None:
        return Presence(latest, "serving")
    return Presence(latest, "over" if is_over(latest) else "away")


def exited_error(run_dir: Path, presence: Presence, log_start: int) -> WorldExitedError:
    """Return the error for a call to an instance that is not serving. Blocks to read the log.

    Args:
        run_dir: The run directory.
        presence: Current presence of the instance.
        log_start: Offset in the log at which the output since the last start begins.
    """
    record = presence.record
    log = shown_log(run_dir, Path(record.log_file))
    if presence.state == "over":
        text = f"the world has ended: {presence.end}"
    elif presence.state == "serving" or presence.will_restart:
        text = "the world has died and is being restarted"
    else:
        text = "the world is not ready"
    return WorldExitedError(
        text,
        instance=record.name,
        world_dir=Path(record.world_dir),
        log_file=Path(record.log_file),
        url=record.url,
        exit=record.exit,
        log_lines=last_lines(log, start=log_start, count=_LOG_LINES) if log else (),
    )


# -- waiting for ends ------------------------------------------------------------------------------


_LOOK_INTERVAL_S = 0.5
_GATHER_S = 0.05
"""Seconds for an orchestrator to record the end of a process, and for more instances to end."""


@attrs.frozen
class EndedInstance:
    """An instance that has ended for good.

    Attributes:
        name: Name of the instance.
        state: Final state.
        exit: Exit of the world's process; None if unknown.
        halt: Reason for the halt, in the world's words; None without a halt.
    """

    name: str
    state: InstanceState
    exit: ProcessExit | None
    halt: str | None = None


class EndWatch:
    """Waits for the ends of instances of a run directory; a context manager.

    Planned and restarting instances are included. The watch only reads. The constructor blocks.

    Args:
        run_dir: The run directory.
        names: Names of the instances; empty means all.

    Attributes:
        left: Names of the instances that had not ended at the last check, sorted.

    Raises:
        UsageError: A named instance does not exist.
    """

    def __init__(self, run_dir: Path, names: Sequence[str] = ()) -> None:
        select_records(run_dir, names)
        self._run_dir = run_dir
        self._names = frozenset(names)
        self._told: set[str] = set()
        self.left: list[str] = []
        self._watched: dict[int, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        self._epoll = select.epoll()
        return self

    def __exit__(self, *_: object) -> None:
        for pidfd in self._watched:
            os.close(pidfd)
        self._epoll.close()

    async def next_ends(self) -> list[EndedInstance]:
        """Wait until more instances have ended, and return them.

        Returns:
            The newly ended instances, sorted by name; empty when all have ended.

        Raises:
            OSError: The processes cannot be checked because file descriptors have run out.

        Cancellation: has no effect.
        """
        while True:
            with anyio.CancelScope(shield=True):  # at least one check, however short the timeout
                ended, can_be_seen = await run_blocking(self._look)
            looked_at = anyio.current_time()
            if ended or not self.left:
                return ended
            with anyio.move_on_after(math.inf if can_be_seen else _LOOK_INTERVAL_S):
                await anyio.wait_readable(self._epoll.fileno())
            elapsed = anyio.current_time() - looked_at
            await anyio.sleep(max(_GATHER_S, _LOOK_INTERVAL_S - elapsed))
            for pidfd, _ in self._epoll.poll(0):
                del self._watched[pidfd]
                os.close(pidfd)

    def _look(self) -> tuple[list[EndedInstance], bool]:
        """Return the ended instances, and whether the kernel reports all further ends. Blocks."""
        records = {record.name: record for record in read_records(self._run_dir)}
        wanted = self._names or records.keys()
        ended, can_be_seen = [], True
        self.left = []
        for name in sorted(wanted - self._told):
            record = records.get(name)
            if record is None:  # its orchestrator died before the planned start
                ended.append(EndedInstance(name, "failed", None))
            elif (state := judge_state(record)) in OVER:
                ended.append(EndedInstance(name, state, record.exit, record.halt))
            else:
                self.left.append(name)
                can_be_seen &= self._is_watched(record)
        self._told.update(end.name for end in ended)
        return ended, can_be_seen

    def _is_watched(self, record: InstanceRecord) -> bool:
        """Watch the process of a record if it is alive; return whether it is watched."""
        process = record.pid, record.start_time
        if process not in self._watched.values() and record.is_alive:
            # Without a descriptor, fall back to polling the records.
            with contextlib.suppress(OSError):
                pidfd = os.pidfd_open(record.pid)
                try:
                    if is_same_process(*process):
                        self._epoll.register(pidfd, select.EPOLLIN)
                        self._watched[pidfd] = process
                finally:
                    if pidfd not in self._watched:
                        os.close(pidfd)
        return process in self._watched.values()
