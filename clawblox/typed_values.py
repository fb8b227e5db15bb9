"""Plain values, such as those of JSON, as values of a type that is prepared at import.

msgspec analyses a type when it first decodes or converts to it, and not under a lock: two threads
that do so at the same time can end the process with SIGSEGV. So every type is analysed while a
module is imported: by a ``msgspec.json.Decoder`` of the module, or by :func:`converter`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")


def converter(
    kind: type[_T], *, dec_hook: Callable[[type[Any], Any], Any] | None = None
) -> Callable[[object], _T]:
    """Return a function that converts a plain value to a type; any thread may call it.

    It raises ``msgspec.ValidationError`` for a value of another shape. Call this at import.

    Args:
        kind: The type.
        dec_hook: Converts to types that msgspec does not know, as for ``msgspec.convert``.
    """
    msgspec.json.Decoder(kind, dec_hook=dec_hook)  # only this analyses the type now
    return partial(msgspec.convert, type=kind, dec_hook=dec_hook)
