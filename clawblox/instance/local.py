"""An instance as its supervisor uses it: bring up, watch, capture; and its memory limit.

``instance`` acquires its resources, and the launcher does the blocking work of a start. The
supervisor releases the resources of a failed start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import anyio
import attrs

from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.world_toml import LivenessRule
from clawblox.errors import WorldExitedBeforeReadyError, WorldIdentityError, WorldStartError
from clawblox.instance.bookkeeping import Tell
from clawblox.instance.environment import world_command
from clawblox.instance.failures import (
    exited_before_ready,
    halted_before_ready,
    identity_error,
    never_ready,
    ready_timeout,
)
from clawblox.instance.health import (
    HaltedAtStart,
    ProbePacer,
    ReadinessProbe,
    StrangerAnswers,
    ask_report,
    wait_until_unresponsive,
)
from clawblox.instance.instance import Instance
from clawblox.instance.launch import Launch
from clawblox.instance.launcher import Ending, Launcher
from clawblox.instance.lifecycle import FAILED_START_GRACE_S, LifecycleState
from clawblox.instance.listening import GONE_AFTER_S, ListenerWatch, NeverReady
from clawblox.instance.ramp import StartPace
from clawblox.protocol import HealthReport, MaskedEnvironment
from clawblox.results import EventKind, StartedWorld
from clawblox.snapshot.capture import SnapshotSource
from clawblox.supervision.tree import Grace, current_finder
from clawblox.system.ports import describe_owner, describe_process
from clawblox.system.process import Process
from clawblox.system.process_tree import Mark, Search, find_trees, measure_usage
from clawblox.telemetry.own_log import OwnLog

_PORT_ATTEMPTS = 3
_END_S: Final = 1.0
_MEMORY_INTERVAL_S: Final = 1.0
_MB: Final = 1_000_000

_log = OwnLog(__name__)


class LocalInstance(Instance):
    """An instance, as its supervisor uses it.

    Args:
        launcher: Starts the instance.
        *args: The positional arguments of :class:`Instance`.
        **options: The keyword arguments of :class:`Instance`.
    """

    def __init__(self, launcher: Launcher, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._launcher = launcher

    # -- bring up -----------------------------------------------------------------------

    async def start_up(self, move: Callable[[LifecycleState], None], tell: Tell) -> None:
        """Start it, keeping already acquired resources, and return when it is ready.

        Args:
            move: Called with each new state.
            tell: Sends its events.

        Raises:
            WorldStartError: The world ended or halted, was not ready in time, or another process
                answers on its port.
            PortBusy: The requested port is still in use.
            Exception: Any exception from :meth:`Instance.bring_up`;
                :func:`failures.start_failure` turns it into a public error.

        Cancellation: leaves the start incomplete; :meth:`end` and :meth:`release` undo it.
        """
        if self.launch.options.port is not None and self._lease is None:
            await run_blocking(self.take_name)
            await self.wait_for_port()
        for attempts_left in reversed(range(_PORT_ATTEMPTS)):
            failure = await self._try_start(move, tell)
            if failure is None:
                return
            if not attempts_left or not await self._has_lost_port(failure):
                raise failure
            _log.info("port lost; retrying", instance=self.name)
            with anyio.CancelScope(shield=True):
                await self.end(Grace(FAILED_START_GRACE_S))
                await run_blocking(self.begin_anew)
            move(LifecycleState.LEASING)

    async def _try_start(
        self, move: Callable[[LifecycleState], None], tell: Tell
    ) -> WorldStartError | None:
        """Start it; return a failure that another port may avoid, or None when it is ready."""
        is_spawned = False

        def on_spawned() -> None:
            nonlocal is_spawned
            is_spawned = True
            move(LifecycleState.SPAWNING)
            move(LifecycleState.PROBING)
            tell("started", port=self.port)

        def on_pace(pace: StartPace) -> None:
            kind: EventKind = "ramp_slowed" if pace.is_slow else "ramp_recovered"
            tell(kind, limit=pace.limit, pressure=pace.pressure)

        try:
            ending = await self._launcher.run(self, on_spawned=on_spawned, on_pace=on_pace)
            if ending is Ending.EXITED:
                await self.wait_exit()
                return exited_before_ready(self)
            if ending is Ending.LATE:
                processes = await current_finder().find(self.running.mark)
                return await run_blocking(ready_timeout, self, processes)
        except HaltedAtStart as halted:
            raise halted_before_ready(self, str(halted)) from halted
        except NeverReady as never:
            raise never_ready(self, never.obstacle) from never
        except StrangerAnswers as stranger:
            if not str(stranger) and await self._ends_now():
                return exited_before_ready(self)
            failure = identity_error(self, stranger)
            failure.__cause__ = stranger
            return failure
        except Exception:
            if self._lease is not None and not is_spawned:
                move(LifecycleState.SPAWNING)  # the spawn failed
            raise
        return None

    async def _ends_now(self) -> bool:
        """Return whether the process is ending, which it does just after it stops listening."""
        with anyio.move_on_after(_END_S):
            await self.wait_exit()
        return self.exit is not None

    async def _has_lost_port(self, failure: WorldStartError) -> bool:
        """Return whether another process took the port between the lease and the world's bind."""
        may_be = isinstance(failure, WorldExitedBeforeReadyError | WorldIdentityError)
        if self.keeps_port or self.launch.hands_listener_over or not may_be:
            return False
        return bool(await run_blocking(describe_owner, self.port))

    def prepare_restart(self, launch: Launch) -> None:
        """Prepare for another :meth:`start_up`, after :meth:`end`: same name, same port. Blocks.

        Args:
            launch: The plan of that start.
        """
        self.keeps_port = True
        self.begin_anew()
        self.launch = launch
        self.restarts += 1

    def started_world(self, ready_s: float) -> StartedWorld:
        """Return its public description; ``ready_s`` is the time from start to readiness.

        Raises:
            UsageError: The instance is not running.
        """
        launch, config, running = self.launch, self.launch.config, self.running
        world = running.processes.world
        return StartedWorld(
            name=self.name,
            url=self.url,
            host=launch.options.host,
            port=self.port,
            pid=world.pid if world is not None else 0,
            command=world_command(launch),
            start_command=list(config.start_command),
            delegated=config.run_command is not None,
            run_command=config.run_command and list(config.run_command),
            env=MaskedEnvironment({**launch.options.env, **running.environment.complete()}),
            run_dir=launch.run_dir,
            instance_dir=launch.instance_dir,
            command_file=running.named.command_file,
            log_file=running.named.log_file,
            record_dir=launch.record_dir,
            resume_path=launch.resume_path,
            ready_s=ready_s,
            labels=launch.options.labels,
            seed=launch.seed,
        )

    # -- watch --------------------------------------------------------------------------

    async def watch_sidecars(self, tell: Tell) -> None:
        """Send an event when a sidecar ends, until cancelled.

        Args:
            tell: Sends its events.

        Cancellation: the sidecars continue.
        """

        async def watch(name: str, sidecar: Process) -> None:
            exit_ = await sidecar.wait()
            tell("sidecar_exited", sidecar=name, exit=exit_)

        async with Tasks() as tasks:
            for name, sidecar in self.sidecars.items():
                tasks.start_soon(watch, name, sidecar)
            await anyio.sleep_forever()

    async def wait_unresponsive(
        self,
        rule: LivenessRule,
        pacer: ProbePacer,
        on_report: Callable[[HealthReport], Awaitable[None]],
    ) -> tuple[str, str | None]:
        """Probe its liveness until it halts or stops responding.

        Args:
            rule: The rule by which it counts as hung.
            pacer: Decides when a probe is due.
            on_report: Called with the report of each good answer.

        Returns:
            The result of the last probe, and the reason of the halt, or None if unresponsive.

        Cancellation: leaves no connection open.
        """
        probe = self._liveness_probe(rule)
        seen = await wait_until_unresponsive(probe, rule, pacer, on_report)
        return seen, probe.report.halt

    async def wait_listener_gone(self) -> str | None:
        """Wait until none of its processes listens on its port; return a description.

        The result is None if the world's process has ended.

        Cancellation: has no effect.
        """
        running = self.running
        world = running.processes.world
        assert world is not None
        is_proven = self.record is None and not running.probe.is_inherited
        host, mark = self.launch.options.host, running.mark
        watch = ListenerWatch(host, self.port, mark, world.pid, is_proven)
        if not await watch.wait_gone(self.wait_exit):
            return None
        return (
            f"none of its processes has listened on port {self.port} for {GONE_AFTER_S} s,"
            f" although {await run_blocking(describe_process, world.pid)} is running"
        )

    async def ask_report(self, rule: LivenessRule, seconds: float) -> HealthReport | None:
        """Return its report; None if it is unhealthy or does not answer in ``seconds``.

        A halted world reports its halt.

        Cancellation: leaves no connection open.
        """
        return await ask_report(self._liveness_probe(rule), seconds)

    def _liveness_probe(self, rule: LivenessRule) -> ReadinessProbe:
        running = self.running
        path = self.launch.options.base_path + rule.path
        token = running.environment.operator_token
        return attrs.evolve(running.probe, path=path, log_pattern=None, operator_token=token)

    # -- capture ------------------------------------------------------------------------

    def snapshot_source(self) -> SnapshotSource:
        """Return the source of its snapshots.

        Raises:
            UsageError: The instance is not running.
        """
        environment = self.running.environment
        return SnapshotSource(
            instance=self.name,
            host=self.launch.options.host,
            port=self.port,
            base_path=self.launch.options.base_path,
            operator_token=environment.operator_token,
            has_own_rows=environment.datastore_path is not None,
        )


# -- memory -------------------------------------------------------------------------------------

LimitedInstances: TypeAlias = Mapping[Instance, Callable[[str], None]]
"""Instances, each with a function that ends the instance for a reason."""


async def watch_memory(find: Callable[[], LimitedInstances]) -> None:
    """Measure the memory of instances once a second, from their starts, until cancelled.

    Args:
        find: Returns the instances.

    Cancellation: waits for a running measurement.
    """
    while True:
        await anyio.sleep(_MEMORY_INTERVAL_S)
        with _log.contain("memory not measured", expected=(OSError,)):
            ends = find()
            marks = {
                instance: instance.running.mark
                for instance in ends
                if instance.launch.config.memory_limit_bytes is not None
                and not instance.is_over
                and instance.halt is None
            }
            used = await run_blocking(_measure_trees, [*marks.values()]) if marks else []
            for (instance, mark), used_bytes in zip(marks.items(), used, strict=True):
                if (reason := _find_excess(instance, mark, used_bytes)) is not None:
                    ends[instance](reason)


def _measure_trees(marks: Sequence[Mark]) -> list[int]:
    """Return the resident memory of instances in bytes, with shared passes over ``/proc``."""
    trees = find_trees([Search((mark,)) for mark in marks])
    return [measure_usage(process.pid for process in tree)[0] for tree in trees]


def _find_excess(instance: Instance, measured: Mark, used_bytes: int) -> str | None:
    """Return the reason to end an instance; None if within its limit or restarted since."""
    limit_bytes = instance.launch.config.memory_limit_bytes
    is_same = not instance.is_over and instance.running.mark == measured
    if limit_bytes is None or used_bytes <= limit_bytes or not is_same:
        return None
    return (
        f"its processes used {used_bytes / _MB:.0f} MB of memory, "
        f"and [limits] memory of its world.toml is {limit_bytes / _MB:.0f} MB"
    )
