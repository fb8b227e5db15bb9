"""The exceptions of the VM, and how a chunk's name looks in messages.

Exception
├── LuaError            a Luau error on its way to a ``pcall`` or to the host
│   ├── RuntimeFault    an error raised by the runtime, still without its position
│   ├── OutOfMemory
│   └── LuauSyntaxError a chunk that does not compile
├── VMSnapshotError       a state or document that cannot be saved or restored
└── HostError           the host misused the interface
"""

from __future__ import annotations

from typing import Any

_CHUNK_ID_SIZE = 256
FULL = "not enough memory"
MAX_MESSAGE = 511  # bytes of a message of the runtime, as in the reference


class LuaError(Exception):
    """A Luau error on its way to a ``pcall`` or to the host.

    Attributes:
        value: The Luau value that was raised, in most cases a ``str`` of bytes.
        traceback: The Luau stack where it was raised, newest call first; ``""`` if unknown.
        raiser: The name of the built-in function that raised it; ``""`` if generated code did.
        located: Whether the text begins with its position already.
        c_calls: The depth of callbacks at which it was raised, where handlers need to know.
    """

    def __init__(self, value: Any, *, located: bool = True) -> None:
        super().__init__(value)
        self.value = value
        self.traceback = ""
        self.raiser = ""
        self.located = located
        self.c_calls = 0

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return self.value.encode("latin-1", "replace").decode("utf-8", "replace")
        shown = "nil" if self.value is None else repr(self.value)
        return f"Luau error value: {shown}"


class RuntimeFault(LuaError):  # noqa: N818 - it becomes an error with its position
    """An error raised by the runtime itself; its text still lacks the position."""

    def __init__(self, message: str) -> None:
        super().__init__(message[:MAX_MESSAGE], located=False)


class OutOfMemory(LuaError):  # noqa: N818 - the name states the condition
    """The heap is full. The error has no position."""

    def __init__(self) -> None:
        super().__init__(FULL)


class LuauSyntaxError(LuaError):
    """A chunk that does not compile.

    Attributes:
        line: The line of the error, counted from 1.
        reason: The text without the position.
    """

    def __init__(self, chunk_name: str, line: int, reason: str) -> None:
        super().__init__(f"{chunk_id(chunk_name)}:{line}: {reason}")
        self.line = line
        self.reason = reason


class VMSnapshotError(Exception):
    """A VM that cannot be saved now, or a document that cannot be restored here."""


class HostError(Exception):
    """The host used the interface in a way that is not allowed."""


def chunk_id(name: str) -> str:
    """Return a chunk's name as positions show it: ``=x`` and ``@x`` as x, else source text."""
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
