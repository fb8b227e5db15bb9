"""The exceptions of the VM, and how a chunk's name looks in messages.

Exception
├── LuaError            a Luau error value on its way to a ``pcall`` or to the host
│   ├── RuntimeFault    an error of the runtime, still without its position
│   ├── OutOfMemory
│   └── LuauSyntaxError a chunk that does not compile
├── SnapshotError       a state or document that cannot be saved or restored
└── HostError           the host misused the interface
"""

from __future__ import annotations

from typing import Any

_CHUNK_ID_SIZE = 256
MAX_MESSAGE = 511  # bytes of a message of the runtime, as in the reference


class LuaError(Exception):
    """A Luau error.

    Attributes:
        value: The Luau value that was raised, a ``str`` of bytes in most cases.
        traceback: The Luau stack at the point of the error, newest call first; ``""`` if unknown.
        located: Whether the position belongs in front of the text, or is there already.
    """

    def __init__(self, value: Any, *, located: bool = True) -> None:
        super().__init__(value)
        self.value = value
        self.traceback = ""
        self.located = located
        self.c_calls = 0  # how deep in callbacks it was raised, where that matters

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return self.value.encode("latin-1", "replace").decode("utf-8", "replace")
        return f"Luau error value: {self.value!r}"


class RuntimeFault(LuaError):  # noqa: N818 - it becomes an error when it has its position
    """An error of the runtime itself; its text still lacks the position of the running line."""

    def __init__(self, message: str) -> None:
        super().__init__(message[:MAX_MESSAGE], located=False)


class OutOfMemory(LuaError):  # noqa: N818 - it says the condition
    """The heap is full; this error has no position."""

    def __init__(self) -> None:
        super().__init__("not enough memory")


class LuauSyntaxError(LuaError):
    """A chunk that does not compile.

    Attributes:
        line: Its line, counted from 1.
        reason: The text without the position.
    """

    def __init__(self, chunk_name: str, line: int, reason: str) -> None:
        super().__init__(f"{chunk_id(chunk_name)}:{line}: {reason}")
        self.line = line
        self.reason = reason


class SnapshotError(Exception):
    """A VM that cannot be saved now, or a document that cannot be restored here."""


class HostError(Exception):
    """The host used the interface in a way it does not allow."""


def chunk_id(name: str) -> str:
    """Return a chunk name as positions show it: ``=x`` and ``@x`` are x, else it is source text."""
    room = _CHUNK_ID_SIZE - 1
    if name.startswith("="):
        return name[1 : 1 + room]
    if name.startswith("@"):
        path = name[1:]
        return path if len(path) <= room else "..." + path[len(path) - room + 3 :]
    line = name.split("\n", 1)[0].split("\r", 1)[0]
    room -= len('[string "..."]')
    if len(line) < len(name) or len(line) > room:
        return f'[string "{line[:room]}..."]'
    return f'[string "{line}"]'
