"""Measures recordings in formats of other programs after their instance has ended.

Worlds on the kit, and clawblox's own recorder, compute digests while they write, so their files are
not read again. Files of other worlds are read in the background.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

import anyio
import attrs
import msgspec

from clawblox.concurrency.threads import current_batcher, run_interruptible
from clawblox.errors import ManifestError
from clawblox.rundir.manifest_updates import recording_update
from clawblox.rundir.manifest_writer import ManifestWriters
from clawblox.rundir.recordings import FoundRecording, digest_recording, list_recordings
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.handle import InstanceHandle

MEASURE_S: Final = 60.0
"""Longest time for reading the recordings of one instance, in seconds."""
CLOSING_S: Final = 0.25
"""Longest time for reading the recordings when the orchestrator ends, in seconds."""
_MAX_FILES: Final = 100
"""Maximum number of recordings that are read for one instance."""

_log = OwnLog(__name__)


class _Limit(msgspec.Struct):
    """The deadline for reading files, in seconds of ``time.monotonic``."""

    ends_at: float

    def shorten(self) -> None:
        self.ends_at = min(self.ends_at, monotonic() + CLOSING_S)

    def check(self) -> None:
        if monotonic() > self.ends_at:
            raise InterruptedError


async def run_measured(handle: InstanceHandle, writers: ManifestWriters) -> None:
    """Run an instance to its end, and measure the recordings of its world.

    Tasks that wait for the end of the instance are woken first.

    Args:
        handle: The instance.
        writers: The writers of manifests.

    Cancellation: ends the instance, and measures for a quarter of a second.
    """
    is_closing = True
    try:
        await handle.supervisor.run()
        is_closing = False
    finally:
        if handle.instance.exit is not None:  # otherwise it is left running, or has never run
            with anyio.CancelScope(shield=is_closing):
                timeout = CLOSING_S if is_closing else MEASURE_S
                await measure_recordings(handle.instance_dir, writers, timeout=timeout)


async def measure_recordings(
    instance_dir: Path, writers: ManifestWriters, *, timeout: float = MEASURE_S
) -> None:
    """Register the current size and digest of the recordings of other programs.

    Args:
        instance_dir: The directory with the manifest; links below it are not followed.
        writers: The writers of manifests.
        timeout: Longest time in seconds; files not read by then get no digest.

    Cancellation: continues for a quarter of a second if there is a recording to measure.
    """
    limit = _Limit(monotonic() + timeout)
    with _log.contain("recordings not measured", expected=(ManifestError,)):
        if foreign := await current_batcher().run(_find_foreign, instance_dir):
            measure = partial(_measure, foreign, instance_dir, writers, limit)
            await run_interruptible(measure, limit.shorten)


def _find_foreign(instance_dir: Path) -> list[FoundRecording]:
    foreign = [found for found in list_recordings(instance_dir) if not found.is_readable]
    inside = [found for found in foreign if found.path.is_relative_to(instance_dir)]
    return inside[-_MAX_FILES:]


def _measure(
    foreign: Iterable[FoundRecording], instance_dir: Path, writers: ManifestWriters, limit: _Limit
) -> None:
    for found in foreign:
        try:
            digest = digest_recording(found, instance_dir, limit.check)
        except InterruptedError:
            _log.warning("recording not measured in time", path=str(found.path))
            return
        except OSError as error:  # a directory, for example: a format may have several files
            _log.debug("recording not measured", path=str(found.path), error=str(error))
            continue
        if digest is not None:
            update = recording_update(path=found.path, **attrs.asdict(digest))
            writers.apply(instance_dir, update, durable=False)
