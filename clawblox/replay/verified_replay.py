"""A verified replay: a new process of the world repeats a recording, and clawblox compares.

The process gets a script without results, and records its own run; it gets neither the recording
nor its path. It is trusted only to report that it has reached its end, or cannot.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import attrs

from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.conformance.failed_starts import summarize_start
from clawblox.conformance.live import LiveWorld
from clawblox.errors import ConfigError, RecordingError, WorldError, WorldStartError
from clawblox.foreign_values import clean_text, whole_number
from clawblox.protocol import OPERATOR_HEADER, REPLAY_ENV, REPLAY_ROUTE
from clawblox.recording.blocks import MAX_START_BYTES
from clawblox.recording.reader import RecordingReader
from clawblox.recording.replay_script import FORMAT
from clawblox.replay.comparison import RecordingComparison
from clawblox.replay.new_recording import NewRecording
from clawblox.replay.plan import ReplayPlan, find_obstacle, write_script
from clawblox.replay.results import ReplayProgress
from clawblox.replay.sources import ReplaySource, VerifyOptions, read_saved_start
from clawblox.rundir.lives import Origin
from clawblox.rundir.paths import DATASTORE_DIR_NAME, STATE_DIR_NAME
from clawblox.rundir.recordings import opened_recording
from clawblox.system.scratch import scratch_directory
from clawblox.world.async_world import AsyncWorld
from clawblox.world.private_copies import MissingFilesError, has_files_beside, place_world
from clawblox.world.sources import find_world_dir

_ASK_EVERY_S: Final = 0.1
_GRACE_S: Final = 1.0
_GAME_ID: Final = re.compile(r"[0-9a-f-]{36}")
_NAME: Final = "replay"
_COPY_HINT: Final = (
    " (it ran in a private copy; if it needs files that are not in it, verify it in place:"
    " --in-place)"
)
_MAX_CHARS: Final = 1000
_OUTDATED: Final = (
    "only worlds on the kit or the engine can repeat a recording, with this version of clawblox:"
    " update the clawblox that the world uses"
)

OnProgress: TypeAlias = Callable[[ReplayProgress], None]
"""Called with the progress of a replay from time to time."""


async def replay_recording(
    source: ReplaySource,
    options: VerifyOptions,
    *,
    digest_ticks: Collection[int] = (),
    on_progress: OnProgress = lambda _progress: None,
) -> ReplayProgress:
    """Repeat a recording in a new process of its world, and compare the two recordings.

    Args:
        source: The recording, without an obstacle.
        options: Options for its replay; those of the source hold its variables.
        digest_ticks: Ticks for which digests of the state are wanted.
        on_progress: Called from time to time.

    Returns:
        Its progress, even if the recording cannot be verified.

    Raises:
        ConfigError: Its world is not a world, or cannot be copied.
        ModuleNotFoundError: Zstandard is missing; the message has the command that installs it.
        OSError: A file cannot be written.

    Cancellation: the process is ended, and every file removed.
    """
    try:
        replay = partial(_replay, source, options, digest_ticks, on_progress)
        try:
            return await replay()
        except WorldStartError as error:
            directory = await run_blocking(find_world_dir, source.world)
            if options.in_place or not await has_files_beside(directory):
                raise
            with suppress(MissingFilesError, WorldStartError):  # the first error is clearer
                progress = await replay(is_whole=True)
                progress.has_repository_files = True
                return progress
            raise error from None
    except RecordingError as error:
        return ReplayProgress("impossible", str(error).partition("\n")[0])
    except MissingFilesError as error:
        return ReplayProgress("impossible", f"{error}; verify it in place: --in-place")
    except WorldStartError as error:
        reason = summarize_start("did not start", error)
        hint = "" if options.in_place else _COPY_HINT
        return ReplayProgress("impossible", f"{reason}{hint}")
    except ConfigError as error:
        if error.key != "datastore":
            raise
        return ReplayProgress("impossible", f"its 'datastore' is not possible: {error.headline}")
    except WorldError as error:
        return ReplayProgress("impossible", f"the world does not repeat it: {error}")


async def _replay(
    source: ReplaySource,
    options: VerifyOptions,
    digest_ticks: Collection[int],
    on_progress: OnProgress,
    *,
    is_whole: bool = False,
) -> ReplayProgress:
    """Repeat a recording once, with the files of the world's repository if it needs them."""
    async with AsyncExitStack() as stack:
        scratch = await stack.enter_async_context(scratch_directory("clawblox-verify-"))
        opened = opened_recording(source.found.path, source.run_dir)
        reader = await run_blocking(stack.enter_context, opened)
        if (obstacle := await run_blocking(_prepare, reader, scratch)) is not None:
            return ReplayProgress("impossible", obstacle)
        directory = await run_blocking(find_world_dir, source.world)
        in_place = options.in_place
        world = await place_world(directory, scratch, in_place=in_place, is_whole=is_whole)
        if not in_place:
            await run_blocking(_keep_game_id, reader, world.dir)
        script = scratch / "script.jsonl"
        plan = await run_blocking(_write_script, reader, script, digest_ticks, source.save)
        if plan.is_empty:
            return ReplayProgress("impossible", plan.obstacle)
        await stack.enter_async_context(world)
        started = await world.start(
            name=_NAME,
            env={**source.env, REPLAY_ENV: str(script)},
            record=True,
            datastore=source.datastore,
            health_timeout=options.health_timeout,
        )
        stack.push_async_callback(_stop, world)
        live = LiveWorld(started.url, started)
        stack.callback(live.close)
        made = stack.enter_context(NewRecording(started.run_dir / "recordings", reader.size))
        comparison = await run_blocking(RecordingComparison, reader, plan)
        follower = _Follower(live, made, comparison, plan)
        return await follower.follow(world, options.stall_timeout, on_progress)


async def _stop(world: AsyncWorld) -> None:
    """Stop the world, which needs no save and may hang."""
    with anyio.CancelScope(shield=True):
        await world.stop(_NAME, grace_seconds=_GRACE_S)


def _prepare(reader: RecordingReader, scratch: Path) -> str | None:
    """Put a recording's rows in its world's place; return why it cannot be verified, or None."""
    if (obstacle := find_obstacle(reader)) is not None:
        return obstacle
    rows = reader.start().get("rows")
    if rows is None:
        return None
    if not isinstance(rows, str) or len(rows) > MAX_START_BYTES:
        return "its rows are not base64 text"
    try:
        content = base64.b64decode(rows, validate=True)
    except ValueError as error:
        return f"its rows are not base64 text: {error}"
    directory = scratch / "run" / DATASTORE_DIR_NAME
    directory.mkdir(parents=True)
    (directory / f"{_NAME}.db").write_bytes(content)
    return None


def _keep_game_id(reader: RecordingReader, world: Path) -> None:
    """Give the copy of an engine world the recorded id, which spectators see."""
    state = reader.start()["snapshot"].get("state")
    game_id = state.get("game_id") if isinstance(state, dict) else None
    if isinstance(game_id, str) and _GAME_ID.fullmatch(game_id):
        directory = world / STATE_DIR_NAME
        directory.mkdir(mode=0o700)
        (directory / "game_id").write_text(f"{game_id}\n")


def _write_script(
    reader: RecordingReader, script: Path, digest_ticks: Collection[int], save: Origin | None
) -> ReplayPlan:
    saved = None if save is None else read_saved_start(save)
    with script.open("xb") as file:
        script.chmod(0o600)
        return write_script(reader, file, digest_ticks=digest_ticks, saved=saved)


@attrs.define(eq=False)
class _Follower:
    """Follows a new process while it repeats a recording.

    Args:
        live: The world.
        made: The recording that it makes.
        comparison: Gets the records.
        plan: The parts that are repeated.
    """

    _live: LiveWorld
    _made: NewRecording
    _comparison: RecordingComparison
    _plan: ReplayPlan
    _is_done: bool = attrs.field(init=False, default=False)

    async def follow(
        self, world: AsyncWorld, stall_timeout: float, on_progress: OnProgress
    ) -> ReplayProgress:
        """Return the outcome of the replay, or the reason why it has none."""
        reason = ""
        scope = anyio.CancelScope()

        async def note_exit() -> None:
            nonlocal reason
            reason = f"its world ended during the replay: {await world.wait(_NAME)}"
            scope.cancel()

        async with Tasks() as tasks:
            tasks.start_soon(note_exit)
            with scope:
                reason = await self._watch(stall_timeout, on_progress)
        return await run_blocking(self._finish, reason)

    def _finish(self, reason: str) -> ReplayProgress:
        while self._made.compare(self._comparison):
            pass
        return self._comparison.finish(is_done=self._is_done, reason=self._made.problem or reason)

    async def _watch(self, stall_timeout: float, on_progress: OnProgress) -> str:
        """Compare the new records until the process has finished; return why it has not, or ""."""
        reached: tuple[int, int] | None = None
        moved_at = anyio.current_time()
        while (left := moved_at + stall_timeout - anyio.current_time()) > 0:
            status = await self._ask(left)
            if isinstance(status, str):
                return status
            is_more = True
            while is_more:
                is_more = await run_blocking(self._made.compare, self._comparison)
            if self._made.problem or self._comparison.is_decided:
                return self._made.problem
            if self._is_done:
                return ""
            tick = self._comparison.progress.tick = max(self._comparison.progress.tick, status)
            on_progress(self._comparison.progress)
            if (tick, self._comparison.compared) != reached:
                reached, moved_at = (tick, self._comparison.compared), anyio.current_time()
            await anyio.sleep(_ASK_EVERY_S)
        return f"the replay made no progress for {stall_timeout:g} s"

    async def _ask(self, timeout: float) -> int | str:
        """Return the tick that the process has reached, or why it cannot repeat the recording.

        Args:
            timeout: Maximum wait for an answer, in seconds.
        """
        exchange = None
        headers = {OPERATOR_HEADER: self._live.operator_token or ""}
        with anyio.move_on_after(timeout):
            exchange = await self._live.call("GET", REPLAY_ROUTE, headers=headers)
        if exchange is None or exchange.answer is None:
            self._live.timeouts = 0  # after a long tick, keep asking
            return 0
        fields = exchange.fields
        if fields.get("format") != FORMAT:
            return _OUTDATED
        self._is_done = fields.get("is_done") is True
        if problem := fields.get("problem"):
            return clean_text(str(problem), max_chars=_MAX_CHARS)
        tick = whole_number(fields.get("tick"), high=self._plan.end_tick)
        return 0 if tick is None else tick
