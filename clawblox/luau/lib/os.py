"""The ``os`` library: clocks and dates, without access to the machine."""

from __future__ import annotations

import re
import time
from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.machine import current
from clawblox.luau.core.numbers import to_number
from clawblox.luau.core.operators import account_text
from clawblox.luau.core.values import LuaTable, raw_get
from clawblox.luau.lib.support import arguments as arg

_DATE_BYTES = 700  # of a date as a table
_EPOCH = 719469  # 1970-01-01 in the day count of `_days`
_OPTIONS = "aAbBcdHIjmMpSUwWxXyYzZ%"


def clock(*_: Any) -> float:
    """Return a time in seconds, for measuring durations."""
    return current.vm.clock()


def time_(*args: Any) -> Any:
    """Return the current time, or the time in a table of UTC fields.

    Raises:
        RuntimeFault: The argument is not a table, or a field of the date is missing.
    """
    if not args or args[0] is None:
        return float(int(current.vm.wall_clock()))
    table = arg.table(args, 0, "time")
    defaults = {"sec": 0, "min": 0, "hour": 12, "day": None, "month": None, "year": None}
    second, minute, hour, day, month, year = (
        _field(table, name, default) for name, default in defaults.items()
    )
    days = _days(year, month, day)
    seconds = days * 86400 + hour * 3600 + minute * 60 + second
    return float(seconds) if days >= 0 and seconds >= 0 else None


def _days(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 to a date; month and day may be out of range."""
    years, month = divmod(month - 3, 12)  # in years that start in March, after the leap day
    year += years
    days = 365 * year + year // 4 - year // 100 + year // 400
    return days + (153 * month + 2) // 5 + day - _EPOCH


def _field(table: LuaTable, name: str, default: int | None) -> int:
    value = raw_get(table, name)
    number = to_number(value)
    if number is not None:
        return arg.to_integer(number)
    if default is None:
        raise RuntimeFault(f"field '{name}' missing in date table")
    return default


def date(*args: Any) -> Any:
    """Return a date in UTC as text, or as a table (``*t``).

    The time zone of the machine is not part of the state, so a leading ``!`` only allows times
    before 1970.

    Raises:
        RuntimeFault: The format is not a string, or has an unknown option; or the time is not a
            number.
    """
    form = arg.optional_string(args, 0, "date", "%c")
    stamp = arg.optional_number(args, 1, "date", current.vm.wall_clock())
    utc = form.startswith("!")
    form = form.removeprefix("!")
    try:
        seconds = int(stamp)
        parts = time.gmtime(seconds)
    except (OverflowError, ValueError, OSError):
        return None
    if seconds < 0 and not utc:
        return None
    if form == "*t":
        return _date_table(parts)
    charge_work(len(form))
    return _format(form, parts)


def _date_table(parts: time.struct_time) -> LuaTable:
    current.vm.allocate(_DATE_BYTES)
    table = LuaTable()
    for name, value in (
        ("sec", parts.tm_sec), ("min", parts.tm_min), ("hour", parts.tm_hour),
        ("day", parts.tm_mday), ("month", parts.tm_mon), ("year", parts.tm_year),
        ("wday", (parts.tm_wday + 1) % 7 + 1), ("yday", parts.tm_yday),
    ):  # fmt: skip
        table[name] = float(value)
    table["isdst"] = False
    return table


def _format(form: str, parts: time.struct_time) -> str:
    def convert(option: re.Match[str]) -> str:
        if option[1] not in _OPTIONS:
            arg.wrong(0, "date", "invalid conversion specifier")
        return time.strftime(option[0], parts)

    return account_text(re.sub("%(.)", convert, form, flags=re.DOTALL))


def difftime(*args: Any) -> float:
    """Return the whole seconds between two times.

    Raises:
        RuntimeFault: The first argument is not a number, or the second argument is neither nil nor
            a number.
    """
    later = arg.integer(args, 0, "difftime")
    return float(later - arg.optional_integer(args, 1, "difftime", 0))
