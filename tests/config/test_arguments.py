"""Values that callers give: what is taken, and what is refused by the name of its argument."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clawblox.config.arguments import (
    count_of,
    env_of,
    file_of,
    host_of,
    path_of,
    port_of,
    seconds_of,
    text_of,
)
from clawblox.errors import ConfigError

NOT_UTF8 = os.fsdecode(b"run\xff")


@pytest.mark.parametrize(
    ("take", "value", "taken"),
    [
        (count_of, 1, 1),
        (partial(count_of, at_most=3), 3, 3),
        (partial(count_of, at_least=0), 0, 0),
        (seconds_of, 0.5, 0.5),
        (seconds_of, math.inf, math.inf),
        (partial(seconds_of, may_be_zero=True), 0, 0),
        (path_of, "runs/über uns", Path("runs/über uns")),
        (path_of, Path("runs"), Path("runs")),
        (file_of, NOT_UTF8, Path(NOT_UTF8)),
        (text_of, "", ""),
        (text_of, "/w1", "/w1"),
    ],
)
def test_what_can_be_is_taken(take: Callable[[Any, str], Any], value: Any, taken: Any) -> None:
    assert take(value, "it") == taken


@pytest.mark.parametrize(
    ("take", "value"),
    [
        *((count_of, value) for value in (0, -1, 1.0, "3", True, None)),
        *((partial(count_of, at_most=3), value) for value in (0, 4)),
        *((seconds_of, value) for value in (0, -1, math.nan, "5", True, None)),
        *((partial(seconds_of, may_be_zero=True), value) for value in (-1, math.nan, None)),
        *((text_of, value) for value in ("a b", "a\n", "ä", 5, None)),
        *((path_of, value) for value in ("", 5, None, NOT_UTF8, Path(NOT_UTF8), "a\0b")),
        *((file_of, value) for value in ("", 5, None, b"a", "a\0b", Path("a\0b"))),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(take: Callable[[Any, str], Any], value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        take(value, "it")
    assert caught.value.key == "it"


def test_a_port_is_a_whole_number_that_can_be_one() -> None:
    assert [port_of(value) for value in (None, 0, 1, 65535)] == [None, None, 1, 65535]
    for value in (-1, 65536, 80.0, "80", True):
        with pytest.raises(ConfigError, match="key: port"):
            port_of(value)


@pytest.mark.parametrize("value", ["", None, 5, "local host"])
def test_a_host_is_not_nothing(value: Any) -> None:
    assert host_of("::1") == "::1"
    with pytest.raises(ConfigError, match="key: host"):
        host_of(value)


def test_variables_are_a_mapping() -> None:
    assert env_of(None) == {}
    assert env_of({"TEAM": "red"}) == {"TEAM": "red"}
    for value in (5, [("TEAM", "red")]):
        with pytest.raises(ConfigError, match="key: env"):
            env_of(value)  # type: ignore[arg-type]
