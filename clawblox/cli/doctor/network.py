"""Checks of ports and of the loopback."""

from __future__ import annotations

import socket
from functools import partial
from typing import Final

from clawblox.cli.doctor.check import Check, CheckResult, missing, ok, warning
from clawblox.system.ports import LEASE_RANGE, ephemeral_range, every_listener

_FEW_PORTS = 100


def look_for_free_ports(leased: range) -> CheckResult:
    """Count the ports that worlds can get, on which no process listens."""
    taken = {port for port, _ in every_listener() if port in leased}
    free = len(leased) - len(taken)
    found = f"{free} of {len(leased)} free, {leased.start} to {leased.stop - 1}"
    if not free:
        return missing(found)
    return ok(found) if free >= _FEW_PORTS else warning(found)


def look_at_range(leased: range, ephemeral: range) -> CheckResult:
    """Compare the ports of worlds with those that the kernel gives to outgoing connections."""
    shared = range(max(leased.start, ephemeral.start), min(leased.stop, ephemeral.stop))
    found = f"the kernel uses {ephemeral.start} to {ephemeral.stop - 1}"
    return warning(f"{found}, {len(shared)} of ours") if shared else ok(found)


def look_for_loopback(host: str) -> CheckResult:
    """Listen on an address and connect to it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener, socket.socket(family) as client:
        listener.bind((host, 0))
        listener.listen()
        client.settimeout(1.0)
        client.connect(listener.getsockname())
    return ok(host)


_GROUP: Final = "Network"

NETWORK_CHECKS: Final = (
    Check(
        _GROUP,
        "free ports",
        partial(look_for_free_ports, LEASE_RANGE),
        "Further instances fail with 'no free port'.",
        "Stop what listens on these ports.",
        is_required=True,
    ),
    Check(
        _GROUP,
        "port ranges",
        lambda: look_at_range(LEASE_RANGE, ephemeral_range()),
        "An outgoing connection can take the port of a world that starts.",
        "Separate them: sysctl net.ipv4.ip_local_port_range='32768 60999'.",
    ),
    Check(
        _GROUP,
        "IPv4 loopback",
        partial(look_for_loopback, "127.0.0.1"),
        "No world can be started with its default address.",
        "Bring the loopback up: ip link set lo up.",
        is_required=True,
    ),
    Check(
        _GROUP,
        "IPv6 loopback",
        partial(look_for_loopback, "::1"),
        "No world can be started with --host ::1.",
        "Enable it if you need it: sysctl net.ipv6.conf.lo.disable_ipv6=0.",
    ),
)
