"""The serial numbers by which scripts see which object is which."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def read_serial(value: Any) -> int | None:
    """Return the serial number of an object; None while it has none."""
    if isinstance(value, FunctionType):
        serial: int | None = value.__dict__.get("serial")
        return serial
    return getattr(value, "_serial", None)


def set_serial(value: Any, serial: int) -> None:
    """Give an object a serial number.

    Raises:
        AttributeError: The value is not an object.
    """
    if isinstance(value, FunctionType):
        value.__dict__["serial"] = serial
    else:
        value._serial = serial
