"""The stages of an instance, as values: it has its name; it may have processes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import attrs

from clawblox.config.world_toml import LivenessRule
from clawblox.instance.environment import world_command
from clawblox.instance.health import Probe
from clawblox.instance.launch import Launch
from clawblox.instance.listening import Elsewhere, find_elsewhere
from clawblox.instance.processes import WorldProcesses
from clawblox.protocol import MaskedEnvironment, WorldEnvironment
from clawblox.results import StartedWorld
from clawblox.rundir.claims import Claim
from clawblox.snapshot.transfer import SnapshotSource
from clawblox.system.process_tree import Mark, Proc


@attrs.frozen
class Named:
    """The stage in which an instance has its name.

    Attributes:
        claim: The claim of the name.
        command_file: Script that reruns the launch.
        log_file: File for the world's output.
    """

    claim: Claim
    command_file: Path
    log_file: Path


@attrs.frozen(eq=False)
class Running:
    """The stage in which an instance may have processes.

    Attributes:
        launch: The plan of its start.
        name: Its name.
        named: Its claim and its files.
        port: Its port.
        url: Its local address, base path included, without a trailing slash.
        environment: The contract variables of its processes.
        processes: Its own process and its sidecars.
    """

    launch: Launch
    name: str
    named: Named
    port: int
    url: str
    environment: WorldEnvironment
    processes: WorldProcesses

    @property
    def mark(self) -> Mark:
        """The mark of its processes."""
        return self.processes.tree.mark

    @property
    def is_over(self) -> bool:
        """Whether the world's process has ended."""
        return self.processes.world is None or self.processes.world.has_exited

    def find_elsewhere(self, processes: Iterable[Proc]) -> Elsewhere | None:
        """Return where the world listens if that is only elsewhere. Blocks.

        Args:
            processes: Live processes, the world's among them.

        Raises:
            OSError: They cannot be looked at, for lack of file descriptors.
        """
        world, host = self.processes.world, self.launch.options.host
        return None if world is None else find_elsewhere(host, self.port, world.pid, processes)

    @cached_property
    def probe(self) -> Probe:
        """The probe for its readiness."""
        ready = self.launch.config.ready
        return Probe(
            host=self.launch.options.host,
            port=self.port,
            path=self.launch.options.base_path + ready.path if ready.log is None else None,
            log_pattern=re.compile(ready.log, re.MULTILINE) if ready.log is not None else None,
            log_file=self.named.log_file,
            log_start=self.processes.log_start,
            interval=ready.interval,
            is_inherited=self.launch.hands_listener_over,
        )

    def liveness_probe(self, rule: LivenessRule) -> Probe:
        """Return the probe for its liveness."""
        path = self.launch.options.base_path + rule.path
        token = self.environment.operator_token
        return attrs.evolve(self.probe, path=path, log_pattern=None, operator_token=token)

    def snapshot_source(self) -> SnapshotSource:
        """Return where to fetch snapshots of it."""
        return SnapshotSource(
            instance=self.name,
            host=self.launch.options.host,
            port=self.port,
            base_path=self.launch.options.base_path,
            operator_token=self.environment.operator_token,
            has_own_rows=self.environment.datastore_path is not None,
        )

    def started_world(self, ready_s: float) -> StartedWorld:
        """Return its public facts.

        Args:
            ready_s: Seconds from the call that started it to its readiness.
        """
        launch, config = self.launch, self.launch.config
        world = self.processes.world
        return StartedWorld(
            name=self.name,
            url=self.url,
            host=launch.options.host,
            port=self.port,
            pid=world.pid if world is not None else 0,
            command=world_command(launch),
            start_command=list(config.start_command),
            delegated=config.is_delegated,
            run_command=config.run_command and list(config.run_command),
            env=MaskedEnvironment({**launch.options.env, **self.environment.complete()}),
            run_dir=launch.run_dir,
            instance_dir=launch.instance_dir,
            command_file=self.named.command_file,
            log_file=self.named.log_file,
            record_dir=launch.record_dir,
            resume_path=launch.resume_path,
            ready_s=ready_s,
            labels=launch.options.labels,
            seed=launch.seed,
        )
