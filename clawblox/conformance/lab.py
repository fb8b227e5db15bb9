"""A world under test: its instances, and what several checks learn from them only once."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, TypeAlias, TypeVar

import anyio
import attrs

from clawblox.conformance.actions import configured_actions, documented_actions
from clawblox.conformance.live import NAMES, Action, LiveWorld, Player, read_time
from clawblox.conformance.registry import CouldNotRun, NotApplicable
from clawblox.errors import SnapshotRefusedError
from clawblox.protocol import API_ROUTE, OPERATOR_TOKEN_ENV
from clawblox.results import SavedSnapshot, StartedWorld
from clawblox.system.sockets import connect
from clawblox.world.async_world import AsyncWorld

LOOK_S: Final = 0.3
"""Real time in seconds between two looks that show whether a world runs by itself."""
STOP_GRACE_S: Final = 5.0
_WATCH_S: Final = 0.005
_STARTS: Final = 3
"""Instances that run at the same time."""

_T = TypeVar("_T")
ClockKind: TypeAlias = Literal["lockstep", "realtime"]


@attrs.define
class Findings:
    """The amount of evidence for an exact restore, which the verdict states.

    Attributes:
        equal_answers: Answers of a restored lock-step world that were equal to the byte.
        equal_times: Simulated times at which the documents of two lives were equal.
        equal_landings: Pairs of restores whose inputs landed together and that continued equally.
        limits: Reasons why the evidence is weaker than it could be.
    """

    equal_answers: int = 0
    equal_times: int = 0
    equal_landings: int = 0
    limits: list[str] = attrs.field(factory=list)


@attrs.frozen
class Refusal:
    """How a world refused a snapshot.

    Attributes:
        text: The first line of the error.
        was_open: Whether its port accepted a connection before.
    """

    text: str
    was_open: bool


class PortWatch:
    """Watches whether a port accepts a connection.

    Args:
        port: A port on the loopback.

    Attributes:
        was_open: Whether it ever did.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.was_open = False

    async def run(self) -> None:
        """Try until cancelled."""
        while not self.was_open:
            with suppress(OSError):
                connection = await connect("127.0.0.1", self._port)
                connection.close()
                self.was_open = True
            await anyio.sleep(_WATCH_S)


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Lab:
    """A world under test.

    Args:
        world: The open world; None for an instance at an address.
        url: Address of that instance; empty with a world.
        scratch: Directory for snapshots and other files of the checks.
        seed: Seed of every choice.
        health_timeout: Seconds until an instance must be ready.

    Attributes:
        world: The same as the argument.
        scratch: The same as the argument.
        seed: The same as the argument.
        findings: The evidence for an exact restore, filled by the checks.
        probe_log: Log of the instance that most checks use; None before its start.
    """

    def __init__(
        self,
        world: AsyncWorld | None,
        *,
        url: str = "",
        scratch: Path,
        seed: int,
        health_timeout: float,
    ) -> None:
        self.world = world
        self.scratch = scratch
        self.seed = seed
        self.findings = Findings()
        self.probe_log: Path | None = None
        self._url = url
        self._health_timeout = health_timeout
        self._probe: LiveWorld | None = None
        self._probe_lock = anyio.Lock()
        self._places = anyio.Semaphore(_STARTS)
        self._results: dict[str, Any] = {}
        self._locks: dict[str, anyio.Lock] = {}

    @property
    def config(self) -> Mapping[str, Any]:
        """The ``world.toml``; empty for an address."""
        return {} if self.world is None else self.world.config

    def random(self, purpose: str) -> Random:
        """Return the source of all choices for a purpose; it depends on the seed only."""
        return Random(f"{self.seed}/{purpose}")  # noqa: S311 - no secrets

    # -- instances ----------------------------------------------------------------------------

    def _require_world(self) -> AsyncWorld:
        if self.world is None:
            raise CouldNotRun("it needs the directory of the world, to start instances of its own")
        return self.world

    @asynccontextmanager
    async def start(
        self, *, resume: SavedSnapshot | Path | None = None, env: Mapping[str, str] | None = None
    ) -> AsyncIterator[LiveWorld]:
        """Start an instance for a block; it is stopped at the end of the block.

        Args:
            resume: The snapshot to restore; None starts a fresh world.
            env: Additional environment variables.

        Raises:
            CouldNotRun: The world is an address.
            WorldStartError: The instance does not become ready.

        Cancellation: the instance is stopped.
        """
        world = self._require_world()
        async with self._places:
            live = _connect(await self._start(resume, env))
            try:
                yield live
            finally:
                live.close()
                with anyio.CancelScope(shield=True):
                    await world.stop(live.name, grace_seconds=STOP_GRACE_S)

    async def _start(
        self, resume: SavedSnapshot | Path | None, env: Mapping[str, str] | None
    ) -> StartedWorld:
        return await self._require_world().start(
            resume=resume, env=env, health_timeout=self._health_timeout
        )

    async def try_resume(self, resume: Path) -> Refusal | None:
        """Return how a world refuses a snapshot; None if it starts with it.

        Args:
            resume: The file, whatever it contains.

        Raises:
            CouldNotRun: The world is an address.
            WorldStartError: The world neither refuses it nor becomes ready.
        """
        world = self._require_world()
        port = _find_free_port()
        refusal: Refusal | None = None
        async with self._places, anyio.create_task_group() as tasks:
            watch = PortWatch(port)
            tasks.start_soon(watch.run)
            try:
                started = await world.start(
                    resume=resume, port=port, health_timeout=self._health_timeout
                )
                await world.stop(started.name, grace_seconds=STOP_GRACE_S)
            except SnapshotRefusedError as error:
                refusal = Refusal(str(error).partition("\n")[0], watch.was_open)
            tasks.cancel_scope.cancel()
        return refusal

    @asynccontextmanager
    async def probe(self) -> AsyncIterator[LiveWorld]:
        """Give a block the instance that most checks use, to itself; it runs on afterwards.

        Raises:
            WorldStartError: It does not become ready.
        """
        async with self._probe_lock:
            yield await self._open_probe()

    async def _open_probe(self) -> LiveWorld:
        if self._probe is not None and not await self._has_ended(self._probe):
            return self._probe
        self._close_probe()
        if self.world is None:
            self._probe = LiveWorld(self._url)
        else:
            started = await self._start(None, None)
            self.probe_log = started.log_file
            self._probe = _connect(started)
        return self._probe

    async def _has_ended(self, live: LiveWorld) -> bool:
        if self.world is None:
            return False
        return (await live.call("GET", API_ROUTE)).answer is None

    def _close_probe(self) -> None:
        if self._probe is not None:
            self._probe.close()
        self._probe = None

    async def save(self, live: LiveWorld) -> SavedSnapshot:
        """Save a running instance as an orchestrator does, and return the verified file.

        Raises:
            WorldError: It cannot be saved.
        """
        return await self._require_world().save(dir=self.scratch / "saves", instance=live.name)

    # -- what is learned once -----------------------------------------------------------------

    async def once(self, key: str, learn: Callable[[], Awaitable[_T]]) -> _T:
        """Return the result of a function that is called at most once for a key.

        An error of it is raised again for every caller.
        """
        async with self._locks.setdefault(key, anyio.Lock()):
            if key not in self._results:
                try:
                    self._results[key] = await learn()
                except Exception as error:  # noqa: BLE001 - each caller gets it
                    self._results[key] = error
        result = self._results[key]
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]

    async def api_doc(self) -> str:
        """Return the documentation that agents read; empty if the world serves none."""

        async def read() -> str:
            async with self.probe() as live:
                exchange = await live.call("GET", API_ROUTE)
            return exchange.content.decode(errors="replace") if exchange.is_accepted else ""

        return await self.once("api_doc", read)

    async def actions(self) -> tuple[Action, ...]:
        """Return the inputs that the checks may send; empty if none are known."""
        configured = configured_actions(self.config)
        return configured or documented_actions(await self.api_doc())

    async def require_actions(self) -> tuple[Action, ...]:
        """Return the inputs that the checks may send.

        Raises:
            CouldNotRun: None are known.
        """
        actions = await self.actions()
        if not actions:
            raise CouldNotRun(
                "no inputs are known: list some in world.toml, [conformance] actions ="
                ' [{ type = "…", data = … }], or show them in the documentation for agents'
            )
        return actions

    async def clock(self) -> ClockKind:
        """Return whether the world runs by itself or stands still without inputs.

        Raises:
            CouldNotRun: It cannot be seen.
            Failed: No agent can join.
        """

        async def look() -> ClockKind:
            async with self.probe() as live:
                player = await live.join("Look")
                first = await player.observe()
                await anyio.sleep(LOOK_S)
                second = await player.observe()
                await player.leave()
            times = [read_time(exchange.fields) for exchange in (first, second)]
            if None in times:
                times = [None, None] if first.content == second.content else [None, 0.0]
            return "lockstep" if times[0] == times[1] else "realtime"

        return await self.once("clock", look)

    async def require_clock(self, kind: ClockKind) -> None:
        """Require a clock.

        Raises:
            NotApplicable: The world has the other one.
        """
        if await self.clock() != kind:
            reason = {
                "lockstep": "the world runs by itself, so it is compared at equal simulated times",
                "realtime": "the world stands still between inputs, so its bytes are compared",
            }
            raise NotApplicable(reason[kind])

    async def join_two(self, live: LiveWorld) -> list[Player]:
        """Let two agents join; only one if the world has no place for a second."""
        first = await live.join(NAMES[0])
        if self.config.get("max_players") == 1:
            return [first]
        return [first, await live.join(NAMES[1])]


def _connect(started: StartedWorld) -> LiveWorld:
    return LiveWorld(started.url, started.env[OPERATOR_TOKEN_ENV], started.name)
