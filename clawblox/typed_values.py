"""Converts plain values, such as those of JSON, to types that are prepared at import.

msgspec analyses a type without a lock when it first decodes or converts to it, so two threads that
do this at the same time can crash the process with SIGSEGV. Every type is therefore analysed during
an import: by a ``msgspec.json.Decoder`` of the module, or by :func:`converter`.
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
    """Return a thread-safe function that converts a plain value to a type. Call this at import.

    The function raises ``msgspec.ValidationError`` for a value of the wrong shape.

    Args:
        kind: The type.
        dec_hook: Converts to types unknown to msgspec, as for ``msgspec.convert``.
    """
    msgspec.json.Decoder(kind, dec_hook=dec_hook)  # this analyses the type now
    return partial(msgspec.convert, type=kind, dec_hook=dec_hook)
