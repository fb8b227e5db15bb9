"""The instances of a world under test, and their environment variables."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
import anyio.lowlevel
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance.disguise import draw_names, draw_variable
from clawblox.conformance.disk import DiskSearch
from clawblox.conformance.failed_starts import (
    STOP_GRACE_S,
    RefusedStart,
    describe_start,
    try_start,
)
from clawblox.conformance.live import MAX_SNAPSHOT_BYTES, MOST_TIMEOUTS, LiveWorld, Player
from clawblox.conformance.masking import SecretMask, find_secrets
from clawblox.conformance.registry import CouldNotRun, NotMet
from clawblox.errors import (
    ConfigError,
    UsageError,
    WorldExitedBeforeReadyError,
    WorldReadyTimeoutError,
    WorldStartError,
)
from clawblox.results import SavedSnapshot, StartedWorld, StopResult
from clawblox.rundir.claims import instance_names
from clawblox.system.clock import utc_now
from clawblox.world.async_world import AsyncWorld
from clawblox.world.private_copies import MissingFilesError, TrialOptions, copy_world

SAVE_TIMEOUT_S: Final = 30.0
"""Maximum duration of the transfer of a snapshot, in seconds; a check makes several transfers."""
_NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"
_STARTS: Final = 3
"""Number of instances that run at the same time."""


def _bytecode_cache(scratch: Path) -> dict[str, str]:
    """Return variables that cache the bytecode of a world in Python across starts.

    Unless the environment forbids bytecode, Python writes it next to the sources anyway.
    """
    if not os.environ.get(_NO_BYTECODE):
        return {}
    return {_NO_BYTECODE: "", "PYTHONPYCACHEPREFIX": str(scratch / "bytecode")}


@attrs.define(eq=False, kw_only=True)
class Instances:
    """The instances of a world under test.

    Attributes:
        world: The open world; None for an instance at an address.
        options: Options for its starts.
        scratch: Directory for snapshots and other files of the checks.
        seed: Seed of every choice.
        files: Digests of the world's files before any instance was started, by path.
        disk: Searches the files that its runs write; None for an instance at an address.
        listeners: Inodes of the Unix listeners before any instance was started.
        fault: Why the ``world.toml`` cannot be used, in which case there is no world; empty if it
            can.
        source: The directory of which ``world`` is a private copy; None if it is not a copy.
        is_whole: Whether the copy contains the files of the repository because the world needs
            them.
        start_failure: Why no instance could be started; None if a start succeeded or none was
            tried.
        is_startable: Whether starts are tried at all.
        since: UTC time in seconds since 1970 before the first start.
        secret: A variable with the name of a secret for the instances, as ``{name: value}``. No
            world needs the variable, and its value must never be visible.
        names: Names of the agents.
        env: Additional environment variables of the instances.
        lives: The instances that checks have contacted, including ended instances.
        places: Limits the number of instances that run at the same time.
        mask: The secrets of all instances so far, which are masked in results.
    """

    world: AsyncWorld | None
    options: TrialOptions
    scratch: Path
    seed: int
    files: Mapping[str, str] = attrs.field(factory=dict)
    disk: DiskSearch | None = None
    listeners: Collection[int] = ()
    fault: str = ""
    source: Path | None = None
    is_whole: bool = False
    start_failure: WorldStartError | None = None
    is_startable: bool = attrs.field(init=False)
    since: float = attrs.field(init=False, factory=lambda: utc_now().timestamp())
    secret: Mapping[str, str] = attrs.field(init=False, repr=False)
    names: tuple[str, ...] = attrs.field(init=False)
    env: Mapping[str, str] = attrs.field(init=False, repr=False)
    lives: list[LiveWorld] = attrs.field(init=False, factory=list)
    places: anyio.Semaphore = attrs.field(init=False, factory=partial(anyio.Semaphore, _STARTS))
    mask: SecretMask = attrs.field(init=False, factory=SecretMask)
    # A world reuses the name of a dead instance for the next instance, which would then be stopped
    # in its place.
    _names: Iterator[str] = attrs.field(init=False, factory=partial(instance_names, ()))

    def __attrs_post_init__(self) -> None:
        self.is_startable = self.start_failure is None
        self.secret = {draw_variable(self.random("variable"), os.environ): secrets.token_hex(16)}
        self.names = draw_names(self.random("names"))
        self.env = {**self.secret, **_bytecode_cache(self.scratch)}
        self.mask.add_all(self.secret)

    @property
    def config(self) -> Mapping[str, Any]:
        """The ``world.toml``; empty for an address."""
        return {} if self.world is None else self.world.config

    def random(self, purpose: str) -> Random:
        """Return the source of all choices for a purpose, which depends only on the seed."""
        return Random(f"{self.seed}/{purpose}")  # noqa: S311 - no secrets

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

    def require_start(self) -> AsyncWorld:
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
        self,
        *,
        resume: SavedSnapshot | Path | None = None,
        base_path: str = "",
        timeout: float | None = None,
    ) -> AsyncIterator[LiveWorld]:
        """Start an instance for a block; it is stopped at the end of the block.

        Args:
            resume: The snapshot to restore; None starts a fresh world.
            base_path: Prefix of its routes.
            timeout: Seconds until it must be ready; None means the usual time.

        Raises:
            CouldNotRun: The world is an address.
            Failed: The instance does not become ready with the snapshot.
            WorldStartError: The instance does not become ready.

        Cancellation: the instance is stopped.
        """
        world = self.require_start()
        async with self.places:
            try:
                started = await self.begin(world, timeout, resume=resume, base_path=base_path)
            except (WorldExitedBeforeReadyError, WorldReadyTimeoutError) as error:
                if resume is None:
                    raise
                raise NotMet(describe_start("did not start from its own save", error)) from None
            live = await self.reach(started.url, started)
            try:
                yield live
            finally:
                live.close()
                try:
                    await self.search_disk()
                finally:
                    live.stopped = await self.stop(live)
                await self.search_disk()

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

    async def reach(self, url: str, started: StartedWorld | None = None) -> LiveWorld:
        """Return an instance, and mask its secrets in reports from now on.

        Args:
            url: Its address.
            started: The facts of its start; None if others started the instance.
        """
        live = LiveWorld(url, started, self.names, self.mask)
        self.lives.append(live)
        if started is not None:
            self.mask.add_all(find_secrets(started.env))
        await self.search_disk()
        return live

    async def stop(self, live: LiveWorld) -> StopResult | None:
        """Stop an instance, even when cancelled; return None if the closing world stops it."""
        with anyio.CancelScope(shield=True), suppress(UsageError):
            return await self.require_world().stop(live.name, grace_seconds=STOP_GRACE_S)
        await anyio.lowlevel.checkpoint_if_cancelled()
        return None

    async def stop_all(self) -> None:
        """Stop all running instances."""
        if self.world is not None:
            await self.world.stop_all(grace_seconds=STOP_GRACE_S)

    async def search_disk(self) -> None:
        """Search the files that the runs have written so far for secrets."""
        if self.disk is not None:
            await run_blocking(self.disk.search_changed, self.mask.variables)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Allow no other instance during a block, except the probe instance."""
        async with AsyncExitStack() as stack:
            for _ in range(_STARTS):
                await stack.enter_async_context(self.places)
            yield

    def next_name(self) -> str:
        """Return a new, unused name for an instance."""
        return next(self._names)

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
        self.require_start()
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
        return None if self.source is None else await self._copy(directory)

    async def _copy(self, scratch: Path, **options: Any) -> AsyncWorld:
        directory = self.source or self.require_world().dir
        try:
            return await copy_world(directory, scratch, is_whole=self.is_whole, **options)
        # The directory has changed in the meantime.
        except (ConfigError, MissingFilesError, OSError) as error:
            raise CouldNotRun(f"the world cannot be copied again: {error}") from None

    async def try_resume(self, resume: Path) -> RefusedStart | None:
        """Start the world with a snapshot and return its refusal; None if it becomes ready.

        Args:
            resume: The file, with any content.

        Raises:
            CouldNotRun: The world is an address.
            WorldStartError: The world neither refuses the snapshot nor becomes ready.
        """
        async with self.places:
            return await self.try_start(self.require_start(), resume)

    async def try_start(self, world: AsyncWorld, resume: Path | None) -> RefusedStart | None:
        """Start a world or a variant of it and return its refusal; see :func:`try_start`."""
        return await try_start(world, partial(self.begin, world, resume=resume))

    async def save_instance(self, live: LiveWorld) -> SavedSnapshot:
        """Save a running instance like an orchestrator, and return the verified file.

        Raises:
            CouldNotRun: The instance hangs.
            WorldError: The instance cannot be saved.
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
        """Return the secrets of an instance, by their descriptions."""
        given = {} if live.started is None else find_secrets(live.started.env)
        secrets = {**given, **self.secret}
        return {f"the value of {name}": value for name, value in secrets.items()}

    def count_players(self) -> int:
        """Return the number of agents that the checks let join: two if there is room."""
        return 1 if self.config.get("max_players") == 1 else 2

    async def join_two(self, live: LiveWorld) -> list[Player]:
        """Let two agents join, or only one if the world has no room for a second."""
        return [await live.join(name) for name in self.names[: self.count_players()]]
