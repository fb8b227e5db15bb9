"""Luau values as JSON text, and back.

A table whose keys are all positive whole numbers is an array, with null in its holes. Every other
table is an object with sorted keys; an empty table is ``{}``. Whole numbers are written without
``.0``. Fields and elements that are null are read as nil.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from clawblox.luau import FALSE_KEY, TRUE_KEY, LuaTable
from clawblox.luau.core.numbers import format_number
from clawblox.luau.core.operators import shown_type
from clawblox.server.payload import refuse_constant

MAX_DEPTH: Final = 128
"""Maximum nesting of tables; a table that contains itself is nested deeper."""
_PLAIN_INTEGERS: Final = 2.0**53
_STEPS_PER_VALUE: Final = 5  # writing a value
_READ_PER_STEP: Final = 4  # reading characters

Charge: TypeAlias = Callable[[int], None]
"""Charges the running script steps for a number of values, before they are processed."""


def to_text(text: str) -> str:
    """Return a Luau string as text.

    Raises:
        ValueError: The bytes are not UTF-8.
    """
    try:
        return text if text.isascii() else text.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise ValueError("a string is not valid UTF-8") from None


def array_length(table: LuaTable) -> int | None:
    """Return the highest key of a table whose keys are all positive whole numbers, else None."""
    highest = 0.0
    for key in table:
        if key.__class__ is not float or key < 1.0 or not key.is_integer():
            return None
        highest = max(highest, key)
    return int(highest) or None


def key_text(key: Any) -> str | None:
    """Return the key of a table as the key of an object, or None if that is impossible."""
    if key.__class__ is float:
        return format_number(key)
    if key is TRUE_KEY or key is FALSE_KEY:
        return "true" if key is TRUE_KEY else "false"
    return key if isinstance(key, str) else None


def write_text(value: Any, charge: Charge, *, strict: bool) -> str:
    """Return a Luau value as JSON text.

    Args:
        value: The value.
        charge: Charges the steps.
        strict: Whether values without a JSON form are an error. If not, they become null, keys
            without a JSON form are omitted, and invalid UTF-8 is replaced.

    Raises:
        ValueError: The value has no JSON form, or is nested too deeply.
        LuaError: The script has used up its steps.
    """
    return _Writer(charge, strict).write(value, MAX_DEPTH)


class _Writer:
    def __init__(self, charge: Charge, strict: bool) -> None:
        self._charge = charge
        self._strict = strict

    def write(self, value: Any, depth: int) -> str:
        if value is None:
            return "null"
        if value.__class__ is bool:
            return "true" if value else "false"
        if value.__class__ is float:
            return self._number(value)
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, LuaTable):
            if depth == 0:
                raise ValueError(f"tables are nested more than {MAX_DEPTH} deep")
            length = array_length(value)
            if length is None:
                return self._object(value, depth - 1)
            self._charge(length * _STEPS_PER_VALUE)
            items = (self.write(value.get(float(at)), depth - 1) for at in range(1, length + 1))
            return f"[{','.join(items)}]"
        return self._without_form(value)

    def _number(self, value: float) -> str:
        if -_PLAIN_INTEGERS <= value <= _PLAIN_INTEGERS and value.is_integer():
            return str(int(value)) if value or math.copysign(1.0, value) > 0 else "-0"
        if math.isfinite(value):
            return repr(value)
        return self._without_form(value)

    def _string(self, value: str) -> str:
        self._charge(len(value) // 64)
        try:
            text = to_text(value)
        except ValueError:
            if self._strict:
                raise
            text = value.encode("latin-1").decode("utf-8", "replace")
        return json.dumps(text, ensure_ascii=False)

    def _object(self, table: LuaTable, depth: int) -> str:
        self._charge(len(table) * _STEPS_PER_VALUE)
        fields = {}
        for key, value in list(table.items()):  # a charge may repack the table
            name = key_text(key)
            if name is not None:
                fields[name] = self.write(value, depth)
            elif self._strict:
                raise ValueError(f"a {_kind(key)} cannot be a key")
        items = (f"{self._string(name)}:{fields[name]}" for name in sorted(fields))
        return f"{{{','.join(items)}}}"

    def _without_form(self, value: Any) -> str:
        if self._strict:
            raise ValueError(f"{_kind(value)} has no JSON form")
        return "null"


def _kind(value: Any) -> str:
    return format_number(value) if isinstance(value, float) else shown_type(value)


def read_text(text: str, charge: Charge, *, sort: bool = False) -> Any:
    """Return JSON text as a Luau value.

    Args:
        text: The text.
        charge: Charges the steps.
        sort: Whether to sort the fields of objects instead of keeping the order of the text.

    Raises:
        ValueError: The text is not JSON, is nested too deeply, or has a number beyond a double.
        LuaError: The script has used up its steps.
    """
    charge(len(text) // _READ_PER_STEP)
    try:
        value = json.loads(
            text, parse_int=_number, parse_float=_number, parse_constant=refuse_constant
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _from_json(value, sort, MAX_DEPTH)


def _from_json(value: Any, sort: bool, depth: int) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode().decode("latin-1")
    if not isinstance(value, list | dict):
        return value
    if depth == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        pairs = enumerate(value, 1)
        return LuaTable(
            {float(at): _from_json(item, sort, depth - 1) for at, item in pairs if item is not None}
        )
    fields = sorted(value.items()) if sort else value.items()
    return LuaTable(
        {
            _from_json(key, sort, 0): _from_json(item, sort, depth - 1)
            for key, item in fields
            if item is not None
        }
    )


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value
