"""The instances of a world under test: those of one check, and the one that most checks share."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio.lowlevel

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance.attempts import Refusal, try_start
from clawblox.conformance.disguise import draw_names, draw_variable
from clawblox.conformance.disk import DiskSearch
from clawblox.conformance.live import (
    CALL_TIMEOUT_S,
    MAX_SNAPSHOT_BYTES,
    MOST_TIMEOUTS,
    LiveWorld,
    Player,
)
from clawblox.conformance.masking import SecretMask, find_secrets
from clawblox.conformance.once import Once
from clawblox.conformance.registry import CouldNotRun, Failed
from clawblox.conformance.start_failures import describe_start
from clawblox.conformance.verdict import Findings
from clawblox.errors import (
    ConfigError,
    UsageError,
    WorldExitedBeforeReadyError,
    WorldReadyTimeoutError,
    WorldStartError,
)
from clawblox.protocol import API_ROUTE
from clawblox.results import SavedSnapshot, StartedWorld, StopResult
from clawblox.rundir.claims import instance_names
from clawblox.system.clock import utc_now
from clawblox.world.async_world import AsyncWorld
from clawblox.world.private_copies import MissingFilesError, TrialOptions, copy_world

STOP_GRACE_S: Final = 5.0
SAVE_TIMEOUT_S: Final = 30.0
"""Longest transfer of a snapshot, in seconds: several have to fit into the time of a check."""
_NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"
_PATIENCE_S: Final = 5.0
_PATIENCE: Final = 6
_STARTS: Final = 3
"""Instances that run at the same time."""
_MOST_SILENT: Final = 2
"""Instances that are given up before the world is; one at an address cannot be replaced."""


async def _stop(world: AsyncWorld, live: LiveWorld) -> StopResult | None:
    """Stop an instance, also when cancelled; None if its world is being closed and stops it."""
    with anyio.CancelScope(shield=True), suppress(UsageError):
        return await world.stop(live.name, grace_seconds=STOP_GRACE_S)
    await anyio.lowlevel.checkpoint_if_cancelled()
    return None


def _bytecode_cache(scratch: Path) -> dict[str, str]:
    """Return variables with which a world in Python is compiled once, and not at every start.

    Where bytecode may be written, it is written next to the sources anyway.
    """
    if not os.environ.get(_NO_BYTECODE):
        return {}
    return {_NO_BYTECODE: "", "PYTHONPYCACHEPREFIX": str(scratch / "bytecode")}


class Instances:
    """The instances of a world under test.

    Args:
        world: The open world; None for an instance at an address.
        url: Address of that instance; empty with a world.
        scratch: Directory for snapshots and other files of the checks.
        seed: Seed of every choice.
        options: Options for its starts.
        files: Digests of the world's files, by path.
        disk: Searches what its lives write; None for an instance at an address.
        listeners: Inodes of the Unix listeners before any instance was started.
        fault: Why the ``world.toml`` cannot be used; there is no world then.
        source: The directory of which ``world`` is a private copy; None if it is not a copy.
        is_whole: Whether that copy has the files of the repository because it needs them to start.
        start_failure: Why the world cannot be started; None if it may start.

    Attributes:
        world: The same as the argument.
        scratch: The same as the argument.
        seed: The same as the argument.
        options: The same as the argument.
        files: Digests of the world's files before any instance was started, by path.
        secret: A variable with a secret name that the instances get, as ``{name: value}``; no world
            needs it, and its value must never be seen.
        names: Names of the agents.
        env: All additional variables that they get.
        fault: Why the ``world.toml`` cannot be used; empty if it can.
        start_failure: Why no instance could be started; None if one could, or none was.
        is_startable: Whether starts are tried at all.
        since: UTC time in seconds since 1970 before the first start.
        places: Limits the instances that run at the same time.
        findings: The evidence for an exact restore, filled by the checks.
        disk: The same as the argument.
        listeners: The same as the argument.
        lives: The instances that were talked to, those that have ended included.
        mask: The secrets of all instances so far, which no result shows.
        once: Calls functions once for all checks.
        runs_by_itself: Whether the world was seen to run without inputs.
    """

    def __init__(
        self,
        world: AsyncWorld | None,
        *,
        url: str = "",
        scratch: Path,
        seed: int,
        options: TrialOptions,
        files: Mapping[str, str] | None = None,
        disk: DiskSearch | None = None,
        listeners: Collection[int] = (),
        fault: str = "",
        source: Path | None = None,
        is_whole: bool = False,
        start_failure: WorldStartError | None = None,
    ) -> None:
        self.world = world
        self.start_failure = start_failure
        self.is_startable = start_failure is None
        self.scratch = scratch
        self.seed = seed
        self.files = files or {}
        self.fault = fault
        self.since = utc_now().timestamp()
        variable = draw_variable(self.random("variable"), os.environ)
        self.secret = {variable: secrets.token_hex(16)}
        self.names = draw_names(self.random("names"))
        self.env = {**self.secret, **_bytecode_cache(scratch)}
        self.findings = Findings()
        self.lives: list[LiveWorld] = []
        self.disk = disk
        self.listeners = listeners
        self.mask = SecretMask()
        self.mask.add_all(self.secret)
        self._url = url
        self._source = source
        self._is_whole = is_whole
        self.options = options
        self._probe: LiveWorld | None = None
        self._has_started = False
        self._probe_failure: WorldStartError | None = None
        self._probe_lock = anyio.Lock()
        self._silent = 0
        self.places = anyio.Semaphore(_STARTS)
        # A world gives the name of an instance that died to the next one, which would be stopped
        # in its place.
        self._names = instance_names(())
        self.once = Once()
        self.runs_by_itself = False

    async def close(self) -> None:
        """Stop every instance that still runs, and close the connections."""
        if self._probe is not None:
            self._probe.close()
        if self.world is not None:
            await self.world.stop_all(grace_seconds=STOP_GRACE_S)

    @property
    def config(self) -> Mapping[str, Any]:
        """The ``world.toml``; empty for an address."""
        return {} if self.world is None else self.world.config

    def random(self, purpose: str) -> Random:
        """Return the source of all choices for a purpose; it depends on the seed only."""
        return Random(f"{self.seed}/{purpose}")  # noqa: S311 - no secrets

    @property
    def slowness(self) -> float:
        """Real seconds for a simulated one in the slowest life of a world that runs by itself."""
        paces = [live.pace.seen_slowness for live in self.lives] if self.runs_by_itself else []
        return max(paces, default=1.0)

    # -- instances ----------------------------------------------------------------------------

    def require_world(self) -> AsyncWorld:
        """Return the world.

        Raises:
            CouldNotRun: The world is an address, or its ``world.toml`` cannot be used.
        """
        if self.fault:
            raise CouldNotRun("world.toml cannot be used")
        if self.world is None:
            raise CouldNotRun("it needs the directory of the world, to start instances of its own")
        return self.world

    def _require_start(self) -> AsyncWorld:
        """Return the world.

        Raises:
            CouldNotRun: The world is an address, or its ``world.toml`` cannot be used.
            WorldStartError: No instance of it could be started.
        """
        if self.start_failure is not None:
            raise self.start_failure
        return self.require_world()

    @asynccontextmanager
    async def start(
        self, *, resume: SavedSnapshot | Path | None = None, base_path: str = ""
    ) -> AsyncIterator[LiveWorld]:
        """Start an instance for a block; it is stopped at the end of the block.

        Args:
            resume: The snapshot to restore; None starts a fresh world.
            base_path: Prefix of its routes.

        Raises:
            CouldNotRun: The world is an address.
            Failed: The instance does not become ready with the snapshot.
            WorldStartError: The instance does not become ready.

        Cancellation: the instance is stopped.
        """
        world = self._require_start()
        async with self.places:
            try:
                timeout = self.patience if base_path else None
                started = await self.begin(world, timeout, resume=resume, base_path=base_path)
            except (WorldExitedBeforeReadyError, WorldReadyTimeoutError) as error:
                if resume is None:
                    raise
                raise Failed(describe_start("did not start from its own save", error)) from None
            live = await self._reach(started)
            try:
                yield live
            finally:
                live.close()
                try:
                    await self.search_disk()
                finally:
                    live.stopped = await _stop(world, live)
                await self.search_disk()

    async def search_disk(self) -> None:
        """Search what the lives have written so far for their secrets."""
        if self.disk is not None:
            await run_blocking(self.disk.look, self.mask.variables)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Let no other instance run during a block, but the one that most checks use."""
        async with AsyncExitStack() as stack:
            for _ in range(_STARTS):
                await stack.enter_async_context(self.places)
            yield

    def next_name(self) -> str:
        """Return a name for an instance that no other has or had."""
        return next(self._names)

    @property
    def patience(self) -> float:
        """Seconds after which an instance that may never be ready is given up."""
        ready_s = self._probe.started.ready_s if self._probe and self._probe.started else 0.0
        return min(self.options.health_timeout, max(_PATIENCE_S, _PATIENCE * ready_s))

    @asynccontextmanager
    async def variant(self, name: str, change: Callable[[Any], None]) -> AsyncIterator[AsyncWorld]:
        """Open a copy of the world with another ``world.toml`` for a block.

        Args:
            name: Name of its directory.
            change: Changes the document.

        Raises:
            CouldNotRun: The world is an address, or its directory cannot be copied now.
            WorldStartError: No instance of the world could be started.
        """
        self._require_start()
        variant = await self._copy(self.scratch, name=name, change=change)
        async with self.places, variant:
            yield variant

    async def copy_again(self, directory: Path) -> AsyncWorld | None:
        """Return another private copy of the world; None if it runs in its own directory.

        Args:
            directory: The directory for the copy.

        Raises:
            CouldNotRun: The directory of the world cannot be copied now.
        """
        return None if self._source is None else await self._copy(directory)

    async def _copy(self, scratch: Path, **options: Any) -> AsyncWorld:
        directory = self._source or self.require_world().dir
        try:
            return await copy_world(directory, scratch, is_whole=self._is_whole, **options)
        except (ConfigError, MissingFilesError, OSError) as error:  # it has changed meanwhile
            raise CouldNotRun(f"the world cannot be copied again: {error}") from None

    async def try_resume(self, resume: Path) -> Refusal | None:
        """Return how a world refuses a snapshot; None if it starts with it.

        Args:
            resume: The file, whatever it contains.

        Raises:
            CouldNotRun: The world is an address.
            WorldStartError: The world neither refuses it nor becomes ready.
        """
        async with self.places:
            return await self.try_start(self._require_start(), resume)

    async def try_start(self, world: AsyncWorld, resume: Path | None) -> Refusal | None:
        """Return how a world or a variant of it ends before it is ready; see :func:`try_start`."""
        return await try_start(world, partial(self.begin, world, resume=resume))

    async def begin(
        self, world: AsyncWorld, timeout: float | None = None, **options: Any
    ) -> StartedWorld:
        """Start an instance of a world or of a variant of it, with the variables of all instances.

        Args:
            world: The world.
            timeout: Seconds until it must be ready; None means the usual time.
            **options: Further options of the start.
        """
        timeout = timeout or self.options.health_timeout
        return await world.start(
            name=self.next_name(), env=self.env, health_timeout=timeout, **options
        )

    @asynccontextmanager
    async def probe(self) -> AsyncIterator[LiveWorld]:
        """Give a block the instance that most checks use, to itself; it runs on afterwards.

        Raises:
            WorldStartError: It does not become ready.
        """
        async with self._probe_lock:
            yield await self._open_probe()

    async def _open_probe(self) -> LiveWorld:
        if self._probe is not None and not await self._is_lost(self._probe):
            return self._probe
        await self._end_probe()
        if self._silent >= _MOST_SILENT:
            raise CouldNotRun(
                f"the world left {MOST_TIMEOUTS} requests without an answer within"
                f" {CALL_TIMEOUT_S:g} s each, so it is not asked again"
            )
        if self.world is None and self._url:
            self._probe = await self._reach_address()
            return self._probe
        if self._probe_failure is not None:
            raise self._probe_failure
        try:
            started = await self.begin(self._require_start())
        except WorldStartError as error:
            self._probe_failure = error
            if not self._has_started:
                self.start_failure = error
            raise
        self._has_started = True
        self._probe = await self._reach(started)
        return self._probe

    async def _reach(self, started: StartedWorld) -> LiveWorld:
        """Return a started instance, whose secrets no report shows from now on."""
        live = LiveWorld(started.url, started, names=self.names, mask=self.mask)
        self.lives.append(live)
        self.mask.add_all(find_secrets(started.env))
        await self.search_disk()
        return live

    async def _reach_address(self) -> LiveWorld:
        """Return the instance at the address.

        Raises:
            WorldStartError: Nothing answers there.
        """
        live = LiveWorld(self._url, names=self.names, mask=self.mask)
        self.lives.append(live)
        exchange = await live.call("GET", API_ROUTE)
        if exchange.answer is None:
            live.close()
            raise WorldStartError(f"no world answers at {self._url}: {exchange.failure}")
        return live

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[list[Player]]:
        """Give a block the agents of the instance that most checks use, to itself.

        There are two, or one if the world has no place for a second. They stay joined, so that
        checks do not fill the world; one that leaves must be removed from the list.

        Raises:
            CouldNotRun: An agent cannot join; ``contract.join`` reports it.
            WorldStartError: The instance does not become ready.
        """
        async with self.probe() as live:
            try:
                await self.fill(live)
            except Failed as failure:
                raise CouldNotRun(failure.evidence) from None
            yield live.players

    async def fill(self, live: LiveWorld) -> None:
        """Let agents join the instance that most checks use, until it has those that they need.

        Raises:
            Failed: An agent cannot join.
        """
        while len(live.players) < self.count_players():
            taken = {player.name for player in live.players}
            name = next(name for name in self.names if name not in taken)
            live.players.append(await live.join(name))

    async def _is_lost(self, live: LiveWorld) -> bool:
        """Return whether an instance has ended, or hangs too often to be worth the wait."""
        if self.world is not None:
            return (await live.call("GET", API_ROUTE)).answer is None
        return live.is_given_up

    async def end_probe(self) -> None:
        """Stop the instance that most checks use; a check that needs it starts another."""
        async with self._probe_lock:
            await self._end_probe()

    async def _end_probe(self) -> None:
        """Stop the instance that most checks use, if there is one."""
        probe, self._probe = self._probe, None
        if probe is None:
            return
        probe.close()
        if probe.is_given_up:
            self._silent += 1 if self.world is not None else _MOST_SILENT
        if self.world is not None:
            await _stop(self.world, probe)

    async def save(self, live: LiveWorld) -> SavedSnapshot:
        """Save a running instance as an orchestrator does, and return the verified file.

        Raises:
            CouldNotRun: The instance hangs.
            WorldError: It cannot be saved.
        """
        if live.is_given_up:
            raise CouldNotRun(f"{MOST_TIMEOUTS} requests before the save had no answer in time")
        return await self.require_world().save(
            dir=self.scratch / "saves",
            instance=live.name,
            timeout=SAVE_TIMEOUT_S,
            max_bytes=MAX_SNAPSHOT_BYTES,
        )

    def find_secrets(self, live: LiveWorld) -> dict[str, str]:
        """Return the secrets that an instance got, by their descriptions."""
        given = {} if live.started is None else find_secrets(live.started.env)
        secrets = {**given, **self.secret}
        return {f"the value of {name}": value for name, value in secrets.items()}

    def count_players(self) -> int:
        """Return the number of agents that the checks let join: two, if there is place."""
        return 1 if self.config.get("max_players") == 1 else 2
