"""World: AsyncWorld without ``await``.

Each method runs its namesake of AsyncWorld through the portal, with the same signature and types.
World works without a ``with`` block, inside a running event loop such as a notebook's, and with
Ctrl-C. Worlds that a script leaves open are closed when the interpreter exits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from clawblox.concurrency.batch import Batch
from clawblox.concurrency.synchronous import (
    Bridged,
    Mirrored,
    OpenTwin,
    Twin,
    constructing,
    converting,
    immediate,
    make_twin,
    mirrored,
    run,
    streaming,
    synchronous,
)
from clawblox.config.world_toml import WorldConfig
from clawblox.protocol import TickRate
from clawblox.results import Access, Labels, StartedWorld
from clawblox.telemetry.metrics import Metrics
from clawblox.world.agent_client import AsyncAgentClient
from clawblox.world.async_world import AsyncWorld
from clawblox.world.http_clients import HttpClient
from clawblox.world.instance_calls import AsyncStartedInstance, BoundWorld
from clawblox.world.properties import WorldMetadata


class AgentClient(Twin[AsyncAgentClient]):
    """An agent that has joined an instance, as :meth:`World.join` returns it.

    Several threads may use one client at the same time; see :class:`AsyncAgentClient`.

    Args:
        target: The client that does the work.
    """

    name: Mirrored[str] = mirrored(AsyncAgentClient.name)
    instance: Mirrored[str] = mirrored(AsyncAgentClient.instance)
    rejoined: Mirrored[bool] = mirrored(AsyncAgentClient.rejoined)
    access: Mirrored[Access] = mirrored(AsyncAgentClient.access)

    def on(self, instance: str) -> AgentClient:
        """See :meth:`AsyncAgentClient.on`."""

        async def on() -> AgentClient:
            return AgentClient(self._async.on(instance))

        return run(on)

    def http(self) -> HttpClient:
        """Return a blocking httpx client; see :meth:`AsyncAgentClient.http`."""
        return self._async._place.http_clients.give_blocking(self._async._caller())

    def __exit__(self, *exc_info: Any) -> None:
        async def leave() -> None:
            await self._async.__aexit__(*exc_info)

        run(leave)

    observe = synchronous(AsyncAgentClient.observe)
    act = synchronous(AsyncAgentClient.act)
    say = synchronous(AsyncAgentClient.say)
    messages = synchronous(AsyncAgentClient.messages)
    api = synchronous(AsyncAgentClient.api)
    leave = synchronous(AsyncAgentClient.leave)


def _bind(started: AsyncStartedInstance) -> StartedInstance:
    return StartedInstance.bind(started, started)


class StartedInstance(BoundWorld[AsyncStartedInstance], Bridged[AsyncStartedInstance]):
    """The facts of one instance as :class:`World` returned them, with methods.

    Each method calls the method of the same name of the world that returned the value, with the
    name of the instance; the world must be open. The facts never change; ``restart`` returns a new
    value with the new facts. A copy or a pickle has only the facts.
    """

    def http(self, *, timeout: float = 30.0) -> HttpClient:
        """Return a blocking httpx client; see :meth:`AsyncWorld.http`."""
        world = self._ready()._ready()
        caller = world._caller(self.name, timeout)
        return world._open_fleet().http_clients.give_blocking(caller)

    save = synchronous(AsyncStartedInstance.save)
    stop = synchronous(AsyncStartedInstance.stop)
    join = converting(AsyncStartedInstance.join, AgentClient, returns="AgentClient")
    logs = streaming(AsyncStartedInstance.logs, returns="Stream[LogLine]")
    restart = converting(AsyncStartedInstance.restart, _bind, returns="StartedInstance")


def _bind_all(batch: Batch[AsyncStartedInstance]) -> Batch[StartedInstance]:
    return Batch({name: _bind(started) for name, started in batch.done.items()}, batch.failed)


class World(OpenTwin[AsyncWorld], WorldMetadata):
    """A world directory, and its instances that this object started or attached to.

    Every instance that is not detached is stopped at the end of the optional ``with`` block, or
    when the interpreter exits.

    Args:
        dir: Directory with a ``world.toml``, or the address of one in a GitHub repository,
            ``https://github.com/<owner>/<repo>/tree/<ref>/<folder>``. A repository's folder is
            downloaded when the block is entered, or when an attribute is read before that.
        run_dir: Directory of the run, for every call that takes a ``run_dir`` and is given none;
            None leaves them their own defaults.
        max_log_bytes: Size at which a log is cut to its newer half; None never cuts.

    Raises:
        ConfigError: The directory or its ``world.toml`` is missing or wrong.
        FetchError: The folder cannot be downloaded.
    """

    @constructing(AsyncWorld)
    def __init__(self) -> None: ...

    @classmethod
    def attach(cls, run_dir: str | Path) -> Self:
        """See :meth:`AsyncWorld.attach`."""
        world = make_twin(cls, AsyncWorld.attach(run_dir))
        world.open()
        return world

    @property
    def _config(self) -> WorldConfig:
        return self._async._config

    @property
    def _latest(self) -> StartedWorld | None:
        return self._async._latest

    is_open: Mirrored[bool] = mirrored(AsyncWorld.is_open)
    instances: Mirrored[tuple[str, ...]] = mirrored(AsyncWorld.instances)
    labels: Mirrored[dict[str, Labels]] = mirrored(AsyncWorld.labels)
    tick_rates: Mirrored[dict[str, TickRate]] = mirrored(AsyncWorld.tick_rates)
    metrics: Mirrored[Metrics] = mirrored(AsyncWorld.metrics)

    def http(self, instance: str | None = None, *, timeout: float = 30.0) -> HttpClient:
        """Return a blocking httpx client; see :meth:`AsyncWorld.http`."""
        world = self._ready()
        caller = world._caller(instance, timeout)
        return world._open_fleet().http_clients.give_blocking(caller)

    start = converting(AsyncWorld.start, _bind, returns="StartedInstance")
    start_many = converting(AsyncWorld.start_many, _bind_all, returns="Batch[StartedInstance]")
    fork = converting(AsyncWorld.fork, _bind_all, returns="Batch[StartedInstance]")
    resume_all = converting(AsyncWorld.resume_all, _bind_all, returns="Batch[StartedInstance]")
    stop = synchronous(AsyncWorld.stop)
    wait = synchronous(AsyncWorld.wait)
    restart = converting(AsyncWorld.restart, _bind, returns="StartedInstance")
    stop_all = synchronous(AsyncWorld.stop_all)
    drain = synchronous(AsyncWorld.drain)
    interrupt = immediate(AsyncWorld.interrupt)
    kill_now = immediate(AsyncWorld.kill_now)
    connect = synchronous(AsyncWorld.connect)
    join = converting(AsyncWorld.join, AgentClient, returns="AgentClient")
    leave = synchronous(AsyncWorld.leave)
    save = synchronous(AsyncWorld.save)
    simulation_time = synchronous(AsyncWorld.simulation_time)
    checkpoint = synchronous(AsyncWorld.checkpoint)
    remove_checkpoint = synchronous(AsyncWorld.remove_checkpoint)
    save_all = synchronous(AsyncWorld.save_all, returns="Batch[SavedSnapshot]")
    autosave = synchronous(AsyncWorld.autosave)
    record_run = synchronous(AsyncWorld.record_run)
    lineage = synchronous(AsyncWorld.lineage)
    logs = streaming(AsyncWorld.logs, returns="Stream[LogLine]")
    events = streaming(AsyncWorld.events, returns="Stream[WorldEvent]")
