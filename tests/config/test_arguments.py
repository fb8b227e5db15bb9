"""Values of arguments: valid values, and errors that name the argument."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clawblox.config.arguments import (
    check_count,
    check_duration,
    check_env,
    check_host,
    check_labels,
    check_path,
    check_port,
    check_read_path,
    check_seconds,
    check_size,
    check_text,
    parse_label,
)
from clawblox.errors import ConfigError

NOT_UTF8 = os.fsdecode(b"run\xff")


@pytest.mark.parametrize(
    ("take", "value", "taken"),
    [
        (check_count, 1, 1),
        (partial(check_count, at_most=3), 3, 3),
        (partial(check_count, at_least=0), 0, 0),
        (check_seconds, 0.5, 0.5),
        (check_seconds, math.inf, math.inf),
        (partial(check_seconds, may_be_zero=True), 0, 0),
        (check_duration, 90, 90.0),
        (check_duration, "90", 90.0),
        (check_duration, "90s", 90.0),
        (check_duration, "30m", 1800.0),
        (check_duration, "1.5h", 5400.0),
        (check_duration, "2d", 172800.0),
        (partial(check_duration, may_be_zero=True), "0s", 0.0),
        (check_size, 1, 1),
        (check_size, "1 B", 1),
        (check_size, "500MB", 500_000_000),
        (check_size, "1.5 GiB", 3 << 29),
        (check_size, "2 kB", 2000),
        (check_size, "2KiB", 2048),
        (check_size, "1TB", 10**12),
        (check_path, "runs/über uns", Path("runs/über uns")),
        (check_path, Path("runs"), Path("runs")),
        (check_read_path, NOT_UTF8, Path(NOT_UTF8)),
        (check_text, "", ""),
        (check_text, "/w1", "/w1"),
    ],
)
def test_valid_values_are_accepted(take: Callable[[Any, str], Any], value: Any, taken: Any) -> None:
    assert take(value, "it") == taken


@pytest.mark.parametrize(
    ("take", "value"),
    [
        *((check_count, value) for value in (0, -1, 1.0, "3", True, None)),
        *((partial(check_count, at_most=3), value) for value in (0, 4)),
        *((check_seconds, value) for value in (0, -1, math.nan, "5", True, None)),
        *((partial(check_seconds, may_be_zero=True), value) for value in (-1, math.nan, None)),
        *((check_size, value) for value in (0, -1, 1.5, True, None, "", "0 B", "5", "1G", "1 mB")),
        *((check_size, value) for value in ("0.1 B", "-1 MB", "1e3 MB", " 1 MB", "MB", "٣ MB")),
        *((check_text, value) for value in ("a b", "a\n", "ä", 5, None)),
        *((check_path, value) for value in ("", 5, None, NOT_UTF8, Path(NOT_UTF8), "a\0b")),
        *((check_read_path, value) for value in ("", 5, None, b"a", "a\0b", Path("a\0b"))),
        (check_duration, 0),
        (check_duration, "0m"),
        (check_duration, "-1m"),
        (check_duration, "1w"),
        (check_duration, "1 h"),
        (check_duration, math.inf),
        (check_duration, math.nan),
        (check_duration, True),
        (check_duration, None),
    ],
)
def test_the_error_names_an_argument_with_an_invalid_value(
    take: Callable[[Any, str], Any], value: Any
) -> None:
    with pytest.raises(ConfigError) as caught:
        take(value, "it")
    assert caught.value.key == "it"
    first, *_ = str(caught.value).splitlines()
    assert first.startswith("it: ")
    assert value == "" or first.endswith(f", not {value!r}") or isinstance(value, Path)


def test_a_long_value_is_cut() -> None:
    with pytest.raises(ConfigError) as caught:
        check_count("x" * 1000, "count")
    first, *_ = str(caught.value).splitlines()
    assert first.startswith("count: must be a whole number, 1 or more, not 'xxx")
    assert len(first) < 120


def test_a_port_is_an_integer_in_range() -> None:
    assert [check_port(value) for value in (None, 0, 1, 65535)] == [None, None, 1, 65535]
    for value in (-1, 65536, 80.0, "80", True):
        with pytest.raises(ConfigError, match=r"^port: must be 1 to 65535"):
            check_port(value)


@pytest.mark.parametrize("value", ["", None, 5, "local host"])
def test_an_invalid_host_is_refused(value: Any) -> None:
    assert check_host("::1", "host") == "::1"
    with pytest.raises(ConfigError, match=r"^host: "):
        check_host(value, "host")


def test_variables_are_a_mapping() -> None:
    assert check_env(None) == {}
    assert check_env({"TEAM": "red"}) == {"TEAM": "red"}
    for value in (5, [("TEAM", "red")]):
        with pytest.raises(ConfigError, match=r"^env: "):
            check_env(value)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------- labels


def test_labels_are_short_texts_numbers_and_booleans() -> None:
    labels = {
        "model": "fable 5 (beta)",
        "seed": 2**64 - 1,
        "t": -0.5,
        "ok": True,
        "n" * 63: "é \U0001f469\u200d\U0001f680",
    }
    assert check_labels(labels) == labels
    assert check_labels(None) == {}


@pytest.mark.parametrize(
    ("labels", "key"),
    [
        (["a"], "labels"),
        ("model=a", "labels"),
        ({f"l{number}": 1 for number in range(17)}, "labels"),
        *(({name: 1}, "labels") for name in ("", "a b", "1a", "_a", "ä", "a" * 64, 5, None)),
        *(
            ({"a": value}, "labels.a")
            for value in ("", "x" * 201, "a\nb", "\x1b[31m", math.nan, math.inf, 2**64, None, [1])
        ),
    ],
)
def test_the_error_names_an_invalid_label(labels: Any, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_labels(labels)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-0.5", -0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("false", False),
        ("007", "007"),
        ("1_000", "1_000"),
        ("nan", "nan"),
        ("True", "True"),
        ("", ""),
        ("1e", "1e"),
    ],
)
def test_a_typed_label_is_parsed_by_its_form(text: str, value: object) -> None:
    assert parse_label(text) == value
    assert type(parse_label(text)) is type(value)
