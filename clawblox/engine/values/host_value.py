"""Stand-in until luau has it."""

from __future__ import annotations

from typing import Any, Self

from clawblox.luau import Userdata


class HostValue(Userdata):
    __slots__ = ()

    @classmethod
    def empty(cls) -> Self:
        return cls.__new__(cls)

    def contents(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def fill(self, *values: Any) -> None:
        raise NotImplementedError
