"""The kinds of values in variables of generated code: code trusts them, restoring checks them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variable:
    """A Python variable of generated code.

    Attributes:
        kind: What it holds: a Luau value (``any``), a value of a known type (``num``, ``str``,
            ``bool``, ``nil``, ``table``, ``func``), a number that is not NaN (``counter``), the
            number of a branch (``arm``), the running ``for`` (``loop``), its key (``key``), a
            tuple of arguments (``arguments``), or the result of a function (``many``).
        is_boxed: Whether it holds a box with that, which closures share.
        is_temporary: Whether it belongs to no scope, and is needed wherever it is read.
        function: The number of the function it holds; None if it may hold any.
        loop: For a key, the variable of its loop.
    """

    kind: str
    is_boxed: bool = False
    is_temporary: bool = False
    function: int | None = None
    loop: str = ""
