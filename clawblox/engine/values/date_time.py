"""``DateTime``: a moment in milliseconds since 1970; ``now`` is simulation time.

The only time zone is UTC, and the only language is English.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

import attrs

from clawblox.engine.values.value import (
    Check,
    Getters,
    Value,
    checked,
    expect_contents,
    instance_check,
    number,
    operator,
    optional,
    string,
)
from clawblox.luau import LuaTable, RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.machine import current
from clawblox.luau.core.operators import account_text

_FIRST: Final = -17_987_443_200_000.0
_LAST: Final = 253_402_300_799_999.0
"""Last moment of the year 9999, in milliseconds since 1970; the first year is 1400."""
_TABLE_BYTES: Final = 700
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@attrs.define(eq=False, repr=False)
class DateTime(Value):
    """A whole number of milliseconds since 1970."""

    milliseconds: float

    type_name = "DateTime"
    getters: ClassVar[Getters] = {
        "UnixTimestamp": lambda value: float(math.floor(value.milliseconds / 1000.0)),
        "UnixTimestampMillis": lambda value: value.milliseconds,
    }

    def fill(self, *values: Any) -> None:
        """Restore the contents."""
        expect_contents(values, float)
        if not (_FIRST <= values[0] <= _LAST and values[0].is_integer()):
            raise ValueError(f"there is no DateTime {values[0]}")
        (self.milliseconds,) = values


_date_time: Check = instance_check(DateTime, "DateTime")


def _make(milliseconds: float, function: str) -> DateTime:
    if not _FIRST <= milliseconds <= _LAST:
        raise RuntimeFault(f"{function}: the year must be from 1400 to 9999")
    return DateTime(float(math.trunc(milliseconds)))


@checked(DateTime.constructors, "now")
def _now() -> DateTime:
    return _make(current.vm.wall_clock() * 1000.0, "now")


@checked(DateTime.constructors, "fromUnixTimestamp", number)
def _from_seconds(seconds: float) -> DateTime:
    whole = math.trunc(seconds) if math.isfinite(seconds) else seconds
    return _make(whole * 1000.0, "fromUnixTimestamp")


@checked(DateTime.constructors, "fromUnixTimestampMillis", number)
def _from_milliseconds(milliseconds: float) -> DateTime:
    return _make(milliseconds, "fromUnixTimestampMillis")


def _from_parts(function: str, *parts: float) -> DateTime:
    """Return a moment from its year, month, day, hour, minute, second and millisecond."""
    if not all(map(math.isfinite, parts)):
        raise RuntimeFault(f"{function}: there is no such date")
    *date, milliseconds = map(int, parts)
    try:
        moment = datetime(*date, tzinfo=UTC)  # type: ignore[arg-type, misc]
        moment += timedelta(milliseconds=milliseconds)
    except (ValueError, OverflowError):
        raise RuntimeFault(f"{function}: there is no such date") from None
    if not 0 <= milliseconds < 1000:  # noqa: PLR2004, RUF100
        raise RuntimeFault(f"{function}: there is no such date")
    return _make((moment - _EPOCH) / _MILLISECOND, function)


_first, _zero = optional(number, 1.0), optional(number, 0.0)
_PARTS: Final = (optional(number, 1970.0), _first, _first, _zero, _zero, _zero, _zero)


def _add_parts(name: str) -> None:
    """Add a constructor from parts; the local time of a world is UTC."""

    @checked(DateTime.constructors, name, *_PARTS)
    def _from_named_parts(
        year: float,
        month: float,
        day: float,
        hour: float,
        minute: float,
        second: float,
        millisecond: float,
    ) -> DateTime:
        return _from_parts(name, year, month, day, hour, minute, second, millisecond)


_add_parts("fromUniversalTime")
_add_parts("fromLocalTime")


_ISO: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,3})\d*)?)?"
    r"(?:[Zz]|([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)


@checked(DateTime.constructors, "fromIsoDate", string)
def _from_iso_date(text: str) -> DateTime | None:
    charge_work(len(text))
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    *date, fraction, sign, hours, minutes = found.groups()
    parts = [float(part or 0) for part in date]
    try:
        moment = _from_parts("fromIsoDate", *parts, float((fraction or "0").ljust(3, "0")))
        offset = (int(hours or 0) * 60 + int(minutes or 0)) * 60_000.0
        return _make(moment.milliseconds + (offset if sign == "-" else -offset), "fromIsoDate")
    except RuntimeFault:
        return None


def _moment(value: DateTime) -> datetime:
    return _EPOCH + timedelta(milliseconds=value.milliseconds)


@checked(DateTime.methods, "ToLocalTime", _date_time)
@checked(DateTime.methods, "ToUniversalTime", _date_time)
def _to_table(value: DateTime) -> LuaTable:
    current.vm.allocate(_TABLE_BYTES)
    moment = _moment(value)
    names = ("Year", "Month", "Day", "Hour", "Minute", "Second")
    table = LuaTable({name: float(getattr(moment, name.lower())) for name in names})
    table["Millisecond"] = float(moment.microsecond // 1000)
    return table


@checked(DateTime.methods, "ToIsoDate", _date_time)
def _to_iso_date(value: DateTime) -> str:
    return _format(value, "YYYY-MM-DD[T]HH:mm:ss[Z]")


# Formats as in moment.js

_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_DAYS: Final = (
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
)  # fmt: skip


def _hour(moment: datetime) -> int:
    return (moment.hour + 11) % 12 + 1


_FIELDS: Final[dict[str, Callable[[datetime], str]]] = {
    "YYYY": lambda at: f"{at.year:04}",
    "YY": lambda at: f"{at.year % 100:02}",
    "MMMM": lambda at: _MONTHS[at.month - 1],
    "MMM": lambda at: _MONTHS[at.month - 1][:3],
    "MM": lambda at: f"{at.month:02}",
    "M": lambda at: str(at.month),
    "DD": lambda at: f"{at.day:02}",
    "D": lambda at: str(at.day),
    "dddd": lambda at: _DAYS[at.weekday()],
    "ddd": lambda at: _DAYS[at.weekday()][:3],
    "HH": lambda at: f"{at.hour:02}",
    "H": lambda at: str(at.hour),
    "hh": lambda at: f"{_hour(at):02}",
    "h": lambda at: str(_hour(at)),
    "mm": lambda at: f"{at.minute:02}",
    "m": lambda at: str(at.minute),
    "ss": lambda at: f"{at.second:02}",
    "s": lambda at: str(at.second),
    "SSS": lambda at: f"{at.microsecond // 1000:03}",
    "A": lambda at: "AM" if at.hour < 12 else "PM",  # noqa: PLR2004, RUF100
    "a": lambda at: "am" if at.hour < 12 else "pm",  # noqa: PLR2004, RUF100
}
_WHOLE: Final = {
    "LTS": "h:mm:ss A",
    "LT": "h:mm A",
    "LLLL": "dddd, MMMM D, YYYY h:mm A",
    "LLL": "MMMM D, YYYY h:mm A",
    "LL": "MMMM D, YYYY",
    "L": "MM/DD/YYYY",
    "llll": "ddd, MMM D, YYYY h:mm A",
    "lll": "MMM D, YYYY h:mm A",
    "ll": "MMM D, YYYY",
    "l": "M/D/YYYY",
}
_TOKEN: Final = re.compile(
    r"\[([^\]]*)\]|" + "|".join(sorted((*_FIELDS, *_WHOLE), key=len, reverse=True))
)


def _format(value: DateTime, form: str) -> str:
    charge_work(len(form))
    moment = _moment(value)

    def write(token: re.Match[str]) -> str:
        if token[1] is not None:
            return token[1]
        whole = _WHOLE.get(token[0])
        return _FIELDS[token[0]](moment) if whole is None else _TOKEN.sub(write, whole)

    return account_text(_TOKEN.sub(write, form))


_locale = optional(string, "en-us")


@checked(DateTime.methods, "FormatLocalTime", _date_time, string, _locale)
@checked(DateTime.methods, "FormatUniversalTime", _date_time, string, _locale)
def _format_in_english(value: DateTime, form: str, locale: str) -> str:
    return _format(value, form)


@operator(DateTime, "__lt", _date_time, _date_time)
def _is_before(first: DateTime, second: DateTime) -> bool:
    return first.milliseconds < second.milliseconds


@operator(DateTime, "__le", _date_time, _date_time)
def _is_not_after(first: DateTime, second: DateTime) -> bool:
    return first.milliseconds <= second.milliseconds
