"""Whether an instance lives, as its run directory tells; whichever process runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from clawblox.errors import WorldExitedError
from clawblox.results import describe_end
from clawblox.rundir.records import InstanceRecord, read_record
from clawblox.rundir.status import is_over, is_ready
from clawblox.telemetry.logs import last_lines

PresenceState: TypeAlias = Literal["serving", "away", "over"]
"""``away`` has died and may be restarted, or is being stopped; ``over`` does not come back."""

_LOG_LINES = 10


@attrs.frozen
class Presence:
    """An instance at one moment.

    Attributes:
        record: Its record.
        state: Whether it serves.
    """

    record: InstanceRecord
    state: PresenceState

    @property
    def number(self) -> tuple[str, int]:
        """What tells one life from the next: the run and the restarts in it."""
        return self.record.run_id, self.record.restarts

    @property
    def will_restart(self) -> bool:
        """Whether its orchestrator restarts it, as long as the restart budget lasts."""
        has_policy = self.record.options.get("restart", "never") != "never"
        is_under_way = self.record.state == "starting" and self.record.restarts > 0
        return self.state == "away" and (has_policy or is_under_way)

    @property
    def end(self) -> str:
        """How it ended, as far as known."""
        return describe_end(self.record.exit, self.record.halt) or "its process is gone"


def look(run_dir: Path, record: InstanceRecord) -> Presence:
    """Look at an instance again. Blocks.

    Args:
        run_dir: The run directory.
        record: What was known of it.
    """
    latest = read_record(run_dir, record.name) or record
    if is_ready(latest) and latest.halt is None:
        return Presence(latest, "serving")
    return Presence(latest, "over" if is_over(latest) else "away")


def exited_error(presence: Presence, log_start: int) -> WorldExitedError:
    """Return the error of a call to an instance that does not serve. Blocks: it reads the log.

    Args:
        presence: The instance, as it is now.
        log_start: Where the log of the life that has ended begins.
    """
    record = presence.record
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
        log_lines=last_lines(Path(record.log_file), start=log_start, count=_LOG_LINES),
    )
