"""The table ``[cluster]`` of a plan. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.config.arguments import (
    check_choice,
    check_count,
    check_duration,
    check_flag,
    check_kind,
    check_size,
    checked,
    mismatch,
)
from clawblox.config.options import DEFAULT_HOST
from clawblox.errors import ConfigError
from clawblox.experiment.plan.values import (
    check_not_negative,
    join_keys,
    to_duration,
    to_frozen,
    to_number,
    to_optional,
)

KeySource: TypeAlias = Literal["driver", "node"]
"""Source of the environment variables of agents on a node."""

_SHORTEST_LEASE_S: Final = 10.0
"""A connection that loses packets can be silent for 6 s; a shorter lease ends healthy hosts."""
_LONGEST_LEASE_S: Final = 3600.0
_CLIENT: Final = "ray://"
_ADDRESS: Final = re.compile(r"auto|(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_MAX_PORT: Final = 65_535


def _check_address(value: object, key: str) -> None:
    expected = '"auto" or "host:port"'
    if isinstance(value, str) and value.startswith(_CLIENT):
        hint = (
            "Ray's client has a different interface: run the experiment on a node of the cluster, "
            "or submit it as a job (ray job submit)"
        )
        raise mismatch(key, expected, value, hint=hint)
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 1 <= int(match[1] or 1) <= _MAX_PORT:
        raise mismatch(key, expected, value)


def _check_resources(value: object, key: str) -> None:
    check_kind(value, key, kind=Mapping, expected="a mapping of names to amounts")
    for name, amount in value.items():  # type: ignore[attr-defined]
        if not isinstance(name, str) or not name:
            raise mismatch(key, "names of resources", name)
        check_not_negative(amount, join_keys(key, name))


def _check_lease(value: object, key: str) -> None:
    if not _SHORTEST_LEASE_S <= check_duration(value, key) <= _LONGEST_LEASE_S:
        expected = f"{_SHORTEST_LEASE_S:g} to {_LONGEST_LEASE_S:g} seconds"
        hint = (
            "a shorter lease ends healthy attempts when the network is slow for a few seconds; "
            "with a longer lease, a lost node is noticed later"
        )
        raise mismatch(key, expected, value, hint=hint)


def _to_bytes(value: int | str | None) -> int | None:
    return None if to_optional(value) is None else check_size(value, "memory")


@attrs.frozen(kw_only=True)
class Cluster:
    """The cluster whose nodes run the attempts, and the resources that each attempt reserves.

    Attributes:
        address: Address of the cluster: ``"auto"`` for the cluster of this machine, or
            ``"host:port"``.
        cpus: Processors that an attempt reserves.
        memory: Bytes of memory that an attempt reserves, also as text (``"3GB"``); None reserves
            none.
        gpus: Graphics processors that an attempt reserves.
        resources: Further resources that an attempt reserves: amounts by the cluster's names of
            resources.
        lease: Seconds that an attempt continues while its node does not hear from the experiment,
            10 to 3600.
        keys: Source of the agents' environment variables: the ``driver``, which is the process that
            runs the experiment, or the ``node``.
        trusted_network: Whether keys may travel to the nodes without encryption.

    Raises:
        ConfigError: A value is invalid; the error names the field and the value.
    """

    address: str = attrs.field(default="auto", validator=checked(_check_address))
    cpus: float = attrs.field(
        default=1.0, converter=to_number, validator=checked(check_not_negative)
    )
    memory: int | None = attrs.field(default=None, converter=_to_bytes)
    gpus: int = attrs.field(default=0, validator=checked(check_count, at_least=0))
    resources: Mapping[str, Any] = attrs.field(
        factory=dict, converter=to_frozen, validator=checked(_check_resources)
    )
    lease: float = attrs.field(default=30.0, converter=to_duration, validator=checked(_check_lease))
    keys: KeySource = attrs.field(
        default="driver", validator=checked(check_choice, choices=("driver", "node"))
    )
    trusted_network: bool = attrs.field(default=False, validator=checked(check_flag))


def require_fit(tmux: object, port: object, host: object) -> None:
    """Refuse fields of a plan with a cluster that only work on this machine.

    Args:
        tmux: The field ``tmux`` of the plan.
        port: The port of its world.
        host: The address to which its world binds.

    Raises:
        ConfigError: One of the fields is given; the error names it.
    """
    given = {
        "tmux": (tmux, "sessions would be on nodes, where nobody sees them"),
        "world.port": (port, "each world leases a free port of its node"),
        "world.host": (None if host == DEFAULT_HOST else host, "worlds bind to the loopback"),
    }
    for key, (value, why) in given.items():
        if value is not None:
            raise ConfigError(f"must be left out with a cluster: {why}", key=key, value=value)
