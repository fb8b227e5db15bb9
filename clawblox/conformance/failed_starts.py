"""Failed starts: starts that a world may refuse, and the reasons in words."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.errors import WorldExitedBeforeReadyError, WorldStartError
from clawblox.results import ProcessExit, StartedWorld
from clawblox.system.ports import take_free_port
from clawblox.system.sockets import connect
from clawblox.world.async_world import AsyncWorld

STOP_GRACE_S: Final = 5.0
_WATCH_S: Final = 0.005
_TELLING: Final = re.compile(
    r"error|exception|fatal|panic|not found|no such|no module|cannot|can't|denied|refused"
    r"|already in use|unknown",
    re.IGNORECASE,
)
_MAX_LINE_CHARS: Final = 300


@attrs.frozen
class RefusedStart:
    """A world's refusal of a snapshot.

    Attributes:
        text: The first line of the error.
        exit: How its process ended; None if unknown.
        was_open: Whether its port accepted a connection before the refusal.
    """

    text: str
    exit: ProcessExit | None
    was_open: bool


class PortWatch:
    """Watches whether a port accepts a connection.

    Args:
        port: A port on the loopback.

    Attributes:
        was_open: Whether the port has ever accepted a connection.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.was_open = False

    async def run(self) -> None:
        """Try to connect until the port accepts a connection, or until cancelled."""
        while not self.was_open:
            self.was_open = await is_open("127.0.0.1", self._port)
            await anyio.sleep(_WATCH_S)


async def is_open(host: str, port: int) -> bool:
    """Return whether a port accepts a connection."""
    try:
        (await connect(host, port)).close()
    except OSError:
        return False
    return True


def find_free_port() -> int:
    """Return a free loopback port outside the range of outgoing connections. Blocks.

    Raises:
        NoFreePort: All ports are taken.
    """
    lease = take_free_port("127.0.0.1")
    lease.release()  # leased again by the start of the world
    return lease.port


async def try_start(
    world: AsyncWorld, begin: Callable[..., Awaitable[StartedWorld]]
) -> RefusedStart | None:
    """Start a world and return its refusal; None if it became ready.

    Args:
        world: The world.
        begin: Starts an instance of the world at a ``port``.

    Raises:
        WorldStartError: The world neither ended nor became ready.

    Cancellation: a started process runs until the world is closed.
    """
    port = await run_blocking(find_free_port)
    refusal: RefusedStart | None = None
    failure: WorldStartError | None = None
    async with anyio.create_task_group() as tasks:
        watch = PortWatch(port)
        tasks.start_soon(watch.run)
        try:
            started = await begin(port=port)
            await world.stop(started.name, grace_seconds=STOP_GRACE_S)
        except WorldExitedBeforeReadyError as error:
            refusal = RefusedStart(str(error).partition("\n")[0], error.exit, watch.was_open)
        except WorldStartError as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return refusal


def summarize_start(what: str, error: WorldStartError) -> str:
    """Return a sentence about a failed start, with the most informative line of the log.

    Args:
        what: The predicate of the sentence, such as ``did not become ready``.
        error: The error of the start.
    """
    sentence = f"the world {what}: {error.message}"
    line = _find_telling_line(error.log_lines)
    return f"{sentence}: {line}" if line else sentence


def describe_start(what: str, error: WorldStartError) -> str:
    """Return why a world did not start, without paths of temporary files.

    Args:
        what: The predicate of the sentence, such as ``did not become ready``.
        error: The error of the start.
    """
    lines = [f"the world {what}: {error.message}"]
    if error.log_lines:
        lines += ["last log lines:", *(f"  | {line}" for line in error.log_lines)]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    return "\n".join(lines)


def _find_telling_line(lines: Sequence[str]) -> str:
    """Return the last line that names an error, else the last line; empty without lines."""
    said = [line.strip() for line in lines if line.strip()]
    telling = (line for line in reversed(said) if _TELLING.search(line))
    line = next(telling, said[-1] if said else "")
    return line if len(line) <= _MAX_LINE_CHARS else f"{line[:_MAX_LINE_CHARS]}…"
