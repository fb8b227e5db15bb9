"""What the variables of generated code may hold; the code trusts it, so documents have to obey."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variable:
    """A Python variable of generated code.

    Attributes:
        kind: What it holds: a Luau value (``any``), one of a known type (``num``, ``str``,
            ``bool``, ``nil``, ``table``, ``func``), a number that is not NaN (``counter``), the
            number of a branch (``arm``), the running ``for`` (``loop``), its key (``key``), a
            tuple of arguments (``arguments``), or what a function returned (``many``).
        is_boxed: Whether it holds a box of that, which closures share.
        is_temporary: Whether it is in no scope: it is needed wherever it is read.
        function: The number of the function it holds; None if it may be any.
        loop: For a key, the variable of its loop.
    """

    kind: str
    is_boxed: bool = False
    is_temporary: bool = False
    function: int | None = None
    loop: str = ""
