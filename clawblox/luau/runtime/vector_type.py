"""The members of vectors in a VM whose host gives them some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.values import Vector, describe_key, key_value
from clawblox.luau.runtime.raw import make_raw


class VectorType:
    """What vectors are called, and what they have besides their components.

    All its functions get and return Luau values, without conversions.

    Args:
        name: The name that ``typeof`` returns.
        properties: Getters by name; each gets the vector.
        methods: Plain Python functions by name; each gets the vector and the arguments. They become
            raw functions called ``name:method``, which snapshots find again here.

    Attributes:
        functions: The methods by their full names.

    Raises:
        HostError: A method is no plain function, or is registered under another name.
    """

    def __init__(
        self,
        name: str,
        *,
        properties: Mapping[str, Callable[[Vector], Any]] | None = None,
        methods: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.name = name
        self.properties = dict(properties or {})
        self.methods = {
            key: make_raw(f"{name}:{key}", method) for key, method in (methods or {}).items()
        }
        self.functions = {f"{name}:{key}": method for key, method in self.methods.items()}

    def read(self, vector: Vector, key: Any) -> Any:
        """Return a member that is neither a component in a capital letter nor a property.

        Raises:
            RuntimeFault: Vectors have no such member.
        """
        if key in ("x", "y", "z"):
            return getattr(vector, key)
        method = self.methods.get(key)
        if method is not None:
            return method
        raise RuntimeFault(f"attempt to index {self.name} with {describe_key(key_value(key))}")


PLAIN_VECTORS = VectorType("vector")
"""Vectors as the reference has them: nothing but their components."""
