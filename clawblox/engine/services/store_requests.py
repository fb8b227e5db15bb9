"""Requests to the database of data stores, and its answers, in a snapshot."""

from __future__ import annotations

from typing import Any, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.datastore.store import (
    Answer,
    Read,
    ReadSorted,
    Request,
    StoreError,
    WriteRequest,
)
from clawblox.engine.saved_state import Stored
from clawblox.engine.slots import Slots

_REQUESTS: Final = {"read": Read, "write": WriteRequest, "sorted": ReadSorted}
_PLAIN_PAGE: Final = (shapes.constant("sorted"), shapes.text, shapes.flag, shapes.whole)
_LIMIT: Final = shapes.optional(shapes.number)
_PLACE: Final = shapes.optional((_LIMIT, shapes.text))
_SHAPE: Final = shapes.one_of(
    (shapes.constant("read"), shapes.text, shapes.text),
    (shapes.constant("write"), shapes.text, shapes.text, shapes.text),
    _PLAIN_PAGE,
    (*_PLAIN_PAGE, _LIMIT, _LIMIT, _PLACE),
)


def write_request(request: Request) -> list[Any]:
    """Return the JSON of a request; what it may have besides is left out while it is None."""
    kind = next(kind for kind, cls in _REQUESTS.items() if isinstance(request, cls))
    optional = [field.name for field in attrs.fields(type(request)) if field.default is None]
    is_plain = all(getattr(request, name) is None for name in optional)
    values = attrs.astuple(request)
    return [kind, *(values[: len(values) - len(optional)] if is_plain else values)]


def read_request(saved: Any) -> Request:
    """Return the request of its JSON.

    Raises:
        ValueError: The snapshot is damaged.
    """
    shapes.check_shape(saved, _SHAPE, "a request to a data store")
    values = (tuple(value) if isinstance(value, list) else value for value in saved[1:])
    request: Request = _REQUESTS[saved[0]](*values)
    return request


def _write_answer(slots: Slots, answer: Answer | StoreError) -> Any:
    return {"error": str(answer)} if isinstance(answer, StoreError) else answer


def _read_answer(slots: Slots, saved: Any) -> Answer | StoreError:
    if isinstance(saved, dict):
        return StoreError(saved["error"])
    return [(key, value) for key, value in saved] if isinstance(saved, list) else saved


REQUEST: Final = Stored(
    _SHAPE,
    lambda slots, request: write_request(request),
    lambda slots, saved: read_request(saved),
)
ANSWER: Final = Stored(
    shapes.one_of(
        shapes.optional(shapes.text), [(shapes.text, shapes.text)], {"error": shapes.text}
    ),
    _write_answer,
    _read_answer,
)
