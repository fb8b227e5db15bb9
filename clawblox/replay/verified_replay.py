"""A verified replay: the world of a recording repeats it in a new process, and compares.

The world does the work: started with ``WORLD_VERIFY_PATH``, a world on the kit or the engine serves
nothing but its progress. So worlds run here under the same guard and the same stop as anywhere.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import attrs

from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import DEFAULT_HEALTH_TIMEOUT_S, DEFAULT_STALL_TIMEOUT_S
from clawblox.conformance.live import LiveWorld
from clawblox.conformance.start_failures import summarize_start
from clawblox.errors import RecordingError, WorldError, WorldStartError
from clawblox.protocol import (
    DIGEST_TICKS_ENV,
    OPERATOR_HEADER,
    VERIFICATION_ROUTE,
    VERIFY_ENV,
)
from clawblox.recording.blocks import MAX_START_BYTES
from clawblox.recording.replays import MAX_DIGESTS, ReplayProgress, find_obstacle
from clawblox.results import DataStoreBackend
from clawblox.rundir.paths import DATASTORE_DIR_NAME, STATE_DIR_NAME
from clawblox.rundir.recordings import opened_recording
from clawblox.system.scratch import scratch_directory
from clawblox.world.async_world import AsyncWorld
from clawblox.world.private_copies import MissingFilesError, copy_world

_ASK_EVERY_S: Final = 0.1
_GRACE_S: Final = 1.0
_GAME_ID: Final = re.compile(r"[0-9a-f-]{36}")
_NAME: Final = "replay"
_COPY_HINT: Final = (
    " (it ran in a private copy; if it needs files that are not in it, verify it in place:"
    " --in-place)"
)
_KIT_ONLY: Final = "only worlds on the kit or the engine can repeat a recording"

OnProgress: TypeAlias = Callable[[ReplayProgress], None]
"""Called with the progress of a replay, now and then."""


@attrs.frozen(kw_only=True)
class ReplayOptions:
    """How a recording is repeated.

    Attributes:
        in_place: Whether the world runs in its own directory instead of a private copy.
        env: Additional environment variables.
        datastore: Where an engine world keeps the rows of its data stores; None means SQLite.
        health_timeout: Seconds until the new process must be ready.
        stall_timeout: Seconds without any progress after which the replay is given up.
    """

    in_place: bool = False
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    datastore: DataStoreBackend | None = None
    health_timeout: float = DEFAULT_HEALTH_TIMEOUT_S
    stall_timeout: float = DEFAULT_STALL_TIMEOUT_S


async def replay_recording(
    recording: Path,
    world_dir: str | Path,
    options: ReplayOptions,
    *,
    run_dir: Path | None = None,
    digest_ticks: Collection[int] = (),
    on_progress: OnProgress = lambda _progress: None,
) -> ReplayProgress:
    """Repeat a recording in a new process of its world, and compare what the recording has.

    Args:
        recording: The file of the recording, absolute.
        world_dir: The directory of the world, or the address of one in a GitHub repository.
        options: How it is repeated.
        run_dir: The run directory that the file is in; no link below it is followed. None where a
            person has named the file.
        digest_ticks: Ticks for which digests of the state are wanted.
        on_progress: Called now and then.

    Returns:
        How far it came; also for a recording that cannot be verified.

    Raises:
        ConfigError: ``world_dir`` is not a world, or cannot be copied.
        ModuleNotFoundError: Zstandard is missing; the message has the command that installs it.
        OSError: A file cannot be written.

    Cancellation: the process is ended, and every file removed.
    """
    try:
        async with AsyncExitStack() as stack:
            scratch = await stack.enter_async_context(scratch_directory("clawblox-verify-"))
            obstacle = await run_blocking(_prepare, recording, run_dir, scratch)
            if obstacle is not None:
                return ReplayProgress("impossible", obstacle)
            world = AsyncWorld(dir=world_dir, run_dir=scratch / "run")
            if not options.in_place:
                world = await copy_world(world, scratch)
                await run_blocking(_keep_game_id, recording, run_dir, world.dir)
            await stack.enter_async_context(world)
            ticks = ",".join(map(str, sorted(digest_ticks)[:MAX_DIGESTS]))
            started = await world.start(
                name=_NAME,
                env={**options.env, VERIFY_ENV: str(recording), DIGEST_TICKS_ENV: ticks},
                datastore=options.datastore,
                health_timeout=options.health_timeout,
            )
            stack.push_async_callback(_stop, world)
            live = LiveWorld(started.url, started)
            stack.callback(live.close)
            return await _follow(world, live, options.stall_timeout, on_progress)
    except RecordingError as error:
        return ReplayProgress("impossible", str(error).partition("\n")[0])
    except MissingFilesError as error:
        return ReplayProgress("impossible", f"{error}; verify it in place: --in-place")
    except WorldStartError as error:
        reason = summarize_start("did not start", error)
        hint = "" if options.in_place else _COPY_HINT
        return ReplayProgress("impossible", f"{reason}{hint}")
    except WorldError as error:
        return ReplayProgress("impossible", f"the world does not repeat it: {error}")


async def _stop(world: AsyncWorld) -> None:
    """Stop the world, which has nothing to lose and may hang."""
    with anyio.CancelScope(shield=True):
        await world.stop(_NAME, grace_seconds=_GRACE_S)


def _prepare(recording: Path, run_dir: Path | None, scratch: Path) -> str | None:
    """Put the rows of a recording where its world looks; return why it cannot be verified."""
    with opened_recording(recording, run_dir) as reader:
        if (obstacle := find_obstacle(reader)) is not None:
            return obstacle
        rows = reader.start().get("rows")
    if rows is None:
        return None
    if not isinstance(rows, str) or len(rows) > MAX_START_BYTES:
        return "its rows are no text in base64"
    try:
        content = base64.b64decode(rows, validate=True)
    except ValueError as error:
        return f"its rows are no text in base64: {error}"
    directory = scratch / "run" / DATASTORE_DIR_NAME
    directory.mkdir(parents=True)
    (directory / f"{_NAME}.db").write_bytes(content)
    return None


def _keep_game_id(recording: Path, run_dir: Path | None, world: Path) -> None:
    """Give the copy of an engine world the id of the recorded one: spectators see it."""
    with opened_recording(recording, run_dir) as reader:
        state = reader.start()["snapshot"].get("state")
    game_id = state.get("game_id") if isinstance(state, dict) else None
    if isinstance(game_id, str) and _GAME_ID.fullmatch(game_id):
        directory = world / STATE_DIR_NAME
        directory.mkdir(mode=0o700)
        (directory / "game_id").write_text(f"{game_id}\n")


async def _follow(
    world: AsyncWorld, live: LiveWorld, stall_timeout: float, on_progress: OnProgress
) -> ReplayProgress:
    """Return the outcome of a replay, or why its world has none."""
    outcome = ReplayProgress()
    scope = anyio.CancelScope()

    async def note_exit() -> None:
        nonlocal outcome
        ended = await world.wait(_NAME)
        outcome = ReplayProgress("impossible", f"its world ended during the replay: {ended}")
        scope.cancel()

    async with Tasks() as tasks:
        tasks.start_soon(note_exit)
        with scope:
            outcome = await _watch(live, stall_timeout, on_progress)
    return outcome


async def _watch(live: LiveWorld, stall_timeout: float, on_progress: OnProgress) -> ReplayProgress:
    """Ask the world how far it is, until it has finished."""
    headers = {OPERATOR_HEADER: live.operator_token or ""}
    reached: Any = None
    moved_at = anyio.current_time()
    while (left := moved_at + stall_timeout - anyio.current_time()) > 0:
        exchange = None
        with anyio.move_on_after(left):
            exchange = await live.call("GET", VERIFICATION_ROUTE, headers=headers)
        if exchange is not None and exchange.answer is not None:
            try:
                progress = ReplayProgress.parse(exchange.fields)
            except ValueError:
                return ReplayProgress("impossible", _KIT_ONLY)
            if progress.outcome != "running":
                return progress
            on_progress(progress)
            if progress != reached:
                reached, moved_at = progress, anyio.current_time()
        await anyio.sleep(_ASK_EVERY_S)
    return ReplayProgress("impossible", f"the replay made no progress for {stall_timeout:g} s")
