"""Checks of ports and the loopback, and of worlds left behind that still use them."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from clawblox import protocol
from clawblox.checks import CheckResult, missing, ok, warning
from clawblox.cli.doctor import Checks
from clawblox.errors import ManifestError
from clawblox.rundir.records import InstanceRecord, read_records
from clawblox.system.ports import LEASE_RANGE, ephemeral_range, every_listener
from clawblox.system.process_tree import all_processes, read_process, read_variables

_SHOWN = 3
_FEW_PORTS = 100

CHECKS: Final = Checks()
_network_check = partial(CHECKS.add, "Network")


@_network_check(
    "free ports",
    "Further instances fail with 'no free port'.",
    "Stop what listens on these ports.",
    is_required=True,
)
def look_for_free_ports(leased: range = LEASE_RANGE) -> CheckResult:
    """Count the ports that worlds can get, on which no process listens."""
    taken = {port for port, _ in every_listener() if port in leased}
    free = len(leased) - len(taken)
    text = f"{free} of {len(leased)} free, {leased.start} to {leased.stop - 1}"
    if not free:
        return missing(text)
    return ok(text) if free >= _FEW_PORTS else warning(text)


@_network_check(
    "port ranges",
    "An outgoing connection can take the port of a world that starts.",
    "Separate them: sysctl net.ipv4.ip_local_port_range='32768 60999'.",
)
def look_at_range(leased: range = LEASE_RANGE, ephemeral: range | None = None) -> CheckResult:
    """Compare the ports of worlds with those that the kernel gives to outgoing connections."""
    ephemeral = ephemeral or ephemeral_range()
    shared = range(max(leased.start, ephemeral.start), min(leased.stop, ephemeral.stop))
    text = f"the kernel uses {ephemeral.start} to {ephemeral.stop - 1}"
    return warning(f"{text}, {len(shared)} of ours") if shared else ok(text)


@_network_check(
    "IPv4 loopback",
    "No world can be started with its default address.",
    "Bring the loopback up: ip link set lo up.",
    is_required=True,
)
def look_for_loopback(host: str = "127.0.0.1") -> CheckResult:
    """Listen on an address and connect to it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener, socket.socket(family) as client:
        listener.bind((host, 0))
        listener.listen()
        client.settimeout(1.0)
        client.connect(listener.getsockname())
    return ok(host)


@CHECKS.add(
    "Processes",
    "left behind",
    "Worlds without an orchestrator keep their ports and use the processor.",
    "End them with the commands above.",
)
def _look_for_orphans() -> CheckResult:
    orphans = dict(_find_orphans())
    if not orphans:
        return ok("none")
    commands = sorted({f"clawblox stop {shlex.quote(run_dir)}" for run_dir in orphans.values()})
    pids = ", ".join(map(str, list(orphans)[:_SHOWN]))
    more = f" and {len(orphans) - _SHOWN} more" if len(orphans) > _SHOWN else ""
    return warning(f"pid {pids}{more}: {'; '.join(commands)}")


def _find_orphans() -> Iterator[tuple[int, str]]:
    """Yield processes of instances whose orchestrator is gone, with their run directory."""
    for pid in all_processes():
        variables = read_variables(pid)
        cookie = variables.get(protocol.INSTANCE_ENV)
        manifest = variables.get(protocol.MANIFEST_ENV)
        if cookie and manifest:
            instance_dir = Path(manifest).parent.parent  # the run's own if it has one instance
            for run_dir in (instance_dir, instance_dir.parent.parent):
                with suppress(ManifestError):  # a later version of clawblox wrote it
                    if any(_is_orphan(record, cookie) for record in read_records(run_dir)):
                        yield pid, str(run_dir)


def _is_orphan(record: InstanceRecord, cookie: str) -> bool:
    is_its_own = record.cookie == cookie and not record.is_detached
    return is_its_own and read_process(record.orchestrator_pid) is None
