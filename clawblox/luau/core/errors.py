"""The exceptions of the VM, and the form of chunk names in messages.

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
        located: Whether the text already starts with its position.
        c_calls: The depth of callbacks at which it was raised, for handlers.
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
    """An error raised by the runtime itself, with a text that still lacks the position."""

    def __init__(self, message: str) -> None:
        super().__init__(message[:MAX_MESSAGE], located=False)


class OutOfMemory(LuaError):  # noqa: N818 - the name states the condition
    """The heap is full. The error lacks a position."""

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
    """The VM cannot be saved at this time, or the document cannot be restored."""


class HostError(Exception):
    """The host has misused the interface."""


def chunk_id(name: str) -> str:
    """Return a chunk's name for positions: x for ``=x`` and ``@x``, else source text."""
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
