"""Verified replays: the world of a recording repeats it in a new process, and compares.

The world does the work: started with ``WORLD_VERIFY_PATH``, a world on the kit or the engine serves
nothing but its progress. So worlds run here under the same guard and the same stop as anywhere.
"""

from __future__ import annotations

import base64
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import DEFAULT_HEALTH_TIMEOUT_S
from clawblox.conformance.live import LiveWorld
from clawblox.errors import RecordingError, WorldError
from clawblox.protocol import (
    DATASTORE_ENV,
    OPERATOR_HEADER,
    VERIFICATION_ROUTE,
    VERIFY_ENV,
)
from clawblox.recording.reader import RecordingReader
from clawblox.recording.replays import ReplayProgress
from clawblox.system.regular_files import open_regular
from clawblox.world.async_world import AsyncWorld
from clawblox.world.sources import copy_sources

_ASK_EVERY_S: Final = 0.1
_SILENCE_S: Final = 120.0
"""Longest time in seconds without any progress."""
_KIT_ONLY: Final = "only worlds on the kit or the engine can repeat a recording"


@attrs.frozen
class VerifiedReplay:
    """The result of a verified replay of one recording.

    Attributes:
        recording: The recording.
        progress: How far the replay came, and its outcome.
        seconds: How long it took, in seconds of real time.
    """

    recording: Path
    progress: ReplayProgress
    seconds: float

    def document(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        seconds = round(self.seconds, 3)
        return {"recording": str(self.recording), **self.progress.document(), "seconds": seconds}


OnProgress: TypeAlias = Callable[[ReplayProgress], None]
"""Called with the progress of a replay, now and then."""


async def verify_recording(
    recording: Path,
    world_dir: str | Path,
    *,
    in_place: bool = False,
    health_timeout: float = DEFAULT_HEALTH_TIMEOUT_S,
    on_progress: OnProgress = lambda _result: None,
) -> VerifiedReplay:
    """Repeat a recording in a new process of its world, and compare what the recording has.

    Args:
        recording: The file of the recording.
        world_dir: The directory of the world, or the address of one in a GitHub repository.
        in_place: Whether the world runs in its own directory instead of a private copy.
        health_timeout: Seconds until the new process must be ready.
        on_progress: Called now and then.

    Returns:
        The result; also for a recording that cannot be verified.

    Raises:
        ConfigError: ``world_dir`` is no world, or cannot be copied.
        OSError: The recording cannot be read.

    Cancellation: the process is ended, and every file removed.
    """
    begun = time.monotonic()
    try:
        progress = await _replay(
            recording, world_dir, on_progress, in_place=in_place, health_timeout=health_timeout
        )
    except RecordingError as error:
        progress = ReplayProgress("impossible", str(error).partition("\n")[0])
    except WorldError as error:
        progress = ReplayProgress("impossible", f"the world does not repeat it: {error}")
    return VerifiedReplay(recording, progress, time.monotonic() - begun)


async def _replay(
    recording: Path,
    world_dir: str | Path,
    on_progress: OnProgress,
    *,
    in_place: bool,
    health_timeout: float,
) -> ReplayProgress:
    async with AsyncExitStack() as stack:
        directory = tempfile.TemporaryDirectory(prefix="clawblox-verify-")
        scratch = Path(await run_blocking(stack.enter_context, directory))
        env = await run_blocking(_prepare, recording, scratch)
        place: str | Path = world_dir
        if not in_place:
            place = scratch / "world"
            await run_blocking(copy_sources, AsyncWorld(dir=world_dir).dir, place)
        world = AsyncWorld(dir=place, run_dir=scratch / "run")
        await stack.enter_async_context(world)
        started = await world.start(env=env, health_timeout=health_timeout)
        live = LiveWorld(started.url, started)
        stack.callback(live.close)
        return await _watch(live, on_progress)


def _prepare(recording: Path, scratch: Path) -> dict[str, str]:
    """Check the begin of a recording, and return the variables for its world."""
    fd = open_regular(recording)
    try:
        start = RecordingReader(fd, recording).start()
    finally:
        os.close(fd)
    env = {VERIFY_ENV: str(recording.absolute())}
    rows = start.get("rows")
    if isinstance(rows, str):
        path = scratch / "rows.db"
        path.write_bytes(base64.b64decode(rows))
        env[DATASTORE_ENV] = str(path)
    return env


async def _watch(live: LiveWorld, on_progress: OnProgress) -> ReplayProgress:
    """Ask the world how far it is, until it has finished."""
    seen, moved_at = b"", anyio.current_time()
    while True:
        headers = {OPERATOR_HEADER: live.operator_token or ""}
        exchange = await live.call("GET", VERIFICATION_ROUTE, headers=headers)
        if exchange.answer is None:
            return ReplayProgress("impossible", exchange.failure)
        try:
            progress = ReplayProgress.parse(exchange.fields)
        except ValueError:
            return ReplayProgress("impossible", _KIT_ONLY)
        if progress.outcome != "running":
            return progress
        on_progress(progress)
        if exchange.content != seen:
            seen, moved_at = exchange.content, anyio.current_time()
        elif anyio.current_time() - moved_at > _SILENCE_S:
            progress.outcome = "impossible"
            progress.reason = f"the replay made no progress for {_SILENCE_S:g} s"
            return progress
        await anyio.sleep(_ASK_EVERY_S)
