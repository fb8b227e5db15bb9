"""Endpoints: addresses in a sandbox, and the hosts to which they lead. Pure.

Each host name gets its own address in the sandbox's loopback network, on which the orchestrator
listens. Programs thus reach their permitted hosts under the usual names and ports, with or without
proxy support, and with end-to-end TLS. A numeric address becomes an address of the sandbox.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

import attrs

_HTTPS_PORT: Final = 443
_PORTS: Final = {"http": 80, "https": _HTTPS_PORT}
_FIRST: Final = ipaddress.IPv4Address("127.0.1.1")
"""Address of the world; the hosts of model APIs get the following addresses."""


@attrs.frozen
class Endpoint:
    """An address in the sandbox on which the orchestrator listens.

    Attributes:
        address: The address, numeric.
        port: The port, the same at both ends.
        host: The host at the far end; ``""`` for the agent's world.
        is_tls: Whether only TLS for that host is allowed.
    """

    address: str
    port: int
    host: str
    is_tls: bool = False

    @property
    def has_name(self) -> bool:
        """True if programs use a name rather than the address."""
        return self.host not in ("", "localhost", self.address)


WORLD_ENDPOINT: Final = Endpoint(str(_FIRST), 80, "")


def find_endpoints(hosts: Iterable[str], env: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Return the endpoints of a program in addition to its world.

    Args:
        hosts: Hosts of its model's APIs, by name, at the HTTPS port.
        env: Variables of the program. Variables named ``…BASE_URL`` add hosts.

    Raises:
        ValueError: A variable's address cannot be reached from a sandbox; the text names the
            variable and the reason.
    """
    wanted = {(host, _HTTPS_PORT): True for host in hosts}
    for name, value in sorted(env.items()):
        if name.endswith("BASE_URL") and value:
            host, port, is_tls = _far_end(name, value)
            wanted[host, port] = is_tls and wanted.get((host, port), True)
    addresses: dict[str, str] = {}
    for host, _ in wanted:
        addresses.setdefault(host, _inner_address(host, len(addresses)))
    return tuple(
        Endpoint(addresses[host], port, host, is_tls=is_tls and addresses[host] != host)
        for (host, port), is_tls in wanted.items()
    )


def _far_end(name: str, value: str) -> tuple[str, int, bool]:
    """Return host and port of a URL, and whether it uses TLS."""
    try:
        url = urlsplit(value)
        host, port = url.hostname or "", url.port or _PORTS[url.scheme]
        if not re.fullmatch(r"[a-z0-9_.:-]+", host):
            raise ValueError("no host")
    except (KeyError, ValueError) as error:
        # The error omits the value, which may contain a password.
        raise ValueError(f"{name} must be an http:// or https:// address") from error
    if ":" in host and host != "::1":
        raise ValueError(f"{name} must have a host name, not the IPv6 address {host}")
    return host, port, url.scheme == "https"


def _inner_address(host: str, number: int) -> str:
    """Return the address of ``host`` in the sandbox; for a name, the address with this number."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return str(_FIRST + 1 + number)
