"""Requests to the data store database, and answers, in the form of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.datastore.store import (
    INFO_SHAPE,
    Answer,
    Info,
    Read,
    ReadSorted,
    Request,
    Row,
    StoreError,
    WriteRequest,
)
from clawblox.engine.saved_state import Stored
from clawblox.engine.slots import Slots

_REQUESTS: Final[dict[str, type[Any]]] = {"read": Read, "write": WriteRequest, "sorted": ReadSorted}
_SCORE: Final = shapes.optional(shapes.number)
_PLACE: Final = shapes.optional((_SCORE, shapes.text))
_SHAPES: Final = {
    "read": (shapes.text, shapes.text),
    "write": (shapes.text, shapes.text, shapes.text, shapes.whole, shapes.text),
    "sorted": (shapes.text, shapes.flag, shapes.whole, _SCORE, _SCORE, _PLACE),
}


def write_request(request: Request) -> list[Any]:
    """Return the JSON of a request, without trailing defaults."""
    kind = next(kind for kind, cls in _REQUESTS.items() if isinstance(request, cls))
    values = list(attrs.astuple(request))
    defaults = [field.default for field in attrs.fields(type(request))]
    while values[-1] == defaults[len(values) - 1]:
        del values[-1]
    return [kind, *values]


def read_request(saved: Any) -> Request:
    """Return a request from its JSON.

    Raises:
        ValueError: The snapshot is damaged.
    """
    shapes.check_shape(saved, _SHAPE, "a request to a data store")
    values = (tuple(value) if isinstance(value, list) else value for value in saved[1:])
    request: Request = _REQUESTS[saved[0]](*values)
    return request


def _variants() -> Iterator[shapes.Shape]:
    """Yield the shapes of requests with none, some and all of their defaults omitted."""
    for kind, members in _SHAPES.items():
        fields = attrs.fields(_REQUESTS[kind])
        least = sum(field.default is attrs.NOTHING for field in fields)
        for count in range(least, len(members) + 1):
            yield (shapes.constant(kind), *members[:count])


_SHAPE: Final = shapes.one_of(*_variants())


def _write_answer(slots: Slots, answer: Answer | StoreError) -> Any:
    if isinstance(answer, StoreError):
        return {"error": str(answer)}
    if not isinstance(answer, Row):
        return answer
    if answer.info == Info():
        return answer.value
    return {"value": answer.value, "info": list(attrs.astuple(answer.info))}


def _read_answer(slots: Slots, saved: Any) -> Answer | StoreError:
    if isinstance(saved, list):
        return [(key, value) for key, value in saved]
    if isinstance(saved, dict) and "error" in saved:
        return StoreError(saved["error"])
    if isinstance(saved, dict):
        return Row(saved["value"], Info(*saved["info"]))
    return None if saved is None else Row(saved)


REQUEST: Final = Stored(
    _SHAPE,
    lambda slots, request: write_request(request),
    lambda slots, saved: read_request(saved),
)
ANSWER: Final = Stored(
    shapes.one_of(
        shapes.optional(shapes.text),
        [(shapes.text, shapes.text)],
        {"error": shapes.text},
        {"value": shapes.text, "info": INFO_SHAPE},
    ),
    _write_answer,
    _read_answer,
)
