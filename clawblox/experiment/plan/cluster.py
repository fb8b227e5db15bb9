"""The table ``[cluster]`` of a plan: where its attempts run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

KeySource: TypeAlias = Literal["driver", "node"]
"""Whose environment variables agents on a node get."""


@attrs.frozen(kw_only=True)
class Cluster:
    """The cluster on which attempts run, and what each of them reserves there.

    Attributes:
        address: Address of the cluster: ``"auto"``, or ``"host:port"``.
        cpus: Processors that one attempt reserves.
        memory: Bytes of memory that it reserves; None for none.
        gpus: Graphics processors that it reserves.
        resources: Further resources that it reserves, by the names that the cluster gives them.
        lease: Seconds for which a host lives without a sign of the driver.
        keys: Whose environment variables agents get: those of the driver, or of the node.
        trusted_network: Whether keys may travel without encryption.
    """

    address: str = "auto"
    cpus: float = 1.0
    memory: int | None = None
    gpus: int = 0
    resources: Mapping[str, Any] = attrs.field(factory=dict)
    lease: float = 30.0
    keys: KeySource = "driver"
    trusted_network: bool = False
