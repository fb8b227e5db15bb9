"""The world of a recording as it is now: whether it is there, unchanged, and can be shown."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

import attrs

from clawblox.config.world_toml import WorldConfig, read_world_config
from clawblox.errors import ClawbloxError
from clawblox.replay.sources import find_changed_files
from clawblox.rundir.recordings import FoundRecording
from clawblox.web.frames import has_renderer
from clawblox.world.recorded_worlds import find_recorded_world
from clawblox.world.viewer import ViewerCommand

_FRESH_S: Final = 10.0
"""How long an answer is used again: the digests of a large world take a tenth of a second."""
_MAX_KEPT: Final = 64


@attrs.frozen
class RecordedWorld:
    """The world of a recording.

    Attributes:
        config: Its ``world.toml``; None if it is gone or not known.
        problem: Why that is so, for people.
        change: What has changed since the recording, for people; empty if nothing is known to have.
    """

    config: WorldConfig | None = None
    problem: str = ""
    change: str = ""

    @property
    def has_renderer(self) -> bool:
        """Whether its recorded states can be drawn."""
        return self.config is not None and has_renderer(self.config)

    @property
    def viewer(self) -> ViewerCommand | None:
        """Its own program that shows a recording; None if it has none."""
        words = None if self.config is None else self.config.replay_command
        return (
            None
            if words is None or self.config is None
            else ViewerCommand(tuple(words), self.config.dir)
        )


_kept: dict[tuple[Path, object], tuple[float, RecordedWorld]] = {}
_lock: Final = threading.Lock()


def find_world(found: FoundRecording, run_dir: Path, digest: object) -> RecordedWorld:
    """Return the world of a recording. Blocks.

    Args:
        found: The recording.
        run_dir: The run directory that lists it.
        digest: The digest of the world's files, as the recording has it.
    """
    key, now = (found.path, digest if isinstance(digest, str) else None), time.monotonic()
    with _lock:
        looked_at, world = _kept.get(key, (-_FRESH_S, None))
        if world is not None and now < looked_at + _FRESH_S:
            return world
    world = _look(found, run_dir, digest)
    with _lock:
        _kept[key] = now, world
        for oldest in [*_kept][:-_MAX_KEPT]:
            del _kept[oldest]
    return world


def _look(found: FoundRecording, run_dir: Path, digest: object) -> RecordedWorld:
    try:
        config = read_world_config(find_recorded_world(found, run_dir))
    except ClawbloxError as error:
        return RecordedWorld(problem=error.headline)
    changed = find_changed_files(found, digest, str(config.dir)) or ()
    return RecordedWorld(config, change=_describe(config, changed))


def _describe(config: WorldConfig, changed: tuple[str, ...]) -> str:
    if not changed:
        return ""
    if changed == (".",):
        return f"The files of {config.dir} have changed since this was recorded."
    more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"{config.dir} has changed since this was recorded: {changed[0]}{more}."
