"""What a world gives an agent, as a value; and the name under which a sandboxed agent knows it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from clawblox.agents.access.policy import Policy

_MAX_LABEL_CHARS = 63
_NO_NAME = re.compile(r"|localhost|[0-9]+|0x[0-9a-f]*")
"""Labels that mean something else: this machine, or an address in digits."""


@attrs.frozen(kw_only=True)
class Grant:
    """What a world gives an agent.

    Attributes:
        world: Name of the world.
        headers: Headers of each request to the world, which name the agent's session. The world
            changes them when the agent gets another one.
        policy: What the agent may ask.
        upstream: Returns the address of the instance, base path included; None while it does not
            serve. It is called for each request, from any thread, and must not block.
        suspect: Called when the world answers 503, as it does once it has halted. It is called
            from any thread, and must not block.
        sandbox: The table ``[sandbox]`` of the ``world.toml``, its paths made absolute.
    """

    world: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    policy: Policy
    upstream: Callable[[], str | None] = attrs.field(repr=False)
    suspect: Callable[[], None] = attrs.field(default=lambda: None, repr=False)
    sandbox: Mapping[str, Any] = attrs.field(factory=dict)


def host_name(world: str) -> str:
    """Return the host name for a world: its name as a DNS label."""
    ascii_name = unicodedata.normalize("NFKD", world).encode("ascii", "ignore").decode()
    label = re.sub(r"[^a-z0-9]+", "-", ascii_name.lower())[:_MAX_LABEL_CHARS].strip("-")
    return f"world-{label}".rstrip("-") if _NO_NAME.fullmatch(label) else label
