"""Detection of times, paths and secrets of the host in any usual form."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox.conformance.host_traces import (
    find_body_leaves,
    find_host_path,
    find_host_time,
    find_secret,
)

NOW = datetime(2026, 11, 28, 10, 40, 54, tzinfo=UTC)
SECONDS = int(NOW.timestamp())


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (SECONDS, "in seconds"),
        (SECONDS + 0.25, "in seconds"),
        (SECONDS - 86_000, "in seconds"),
        (SECONDS * 10**3, "in ms"),
        (SECONDS * 10**6, "in us"),
        (SECONDS * 10**9, "in ns"),
        (str(SECONDS), "in seconds"),
        (f"posted at {SECONDS}.123 by Ada", "in seconds"),
        (f"message-{SECONDS * 1000}", "in ms"),
        ("2026-11-28T10:40:54Z", "as ISO 8601"),
        ("2026-11-28T10:40:54.104+00:00", "as ISO 8601"),
        ("saved 2026-11-28 10:40", "as ISO 8601"),
        ("2026-11-28T20:40:54", "as ISO 8601"),  # a local time east of Greenwich
        ("2026-11-28", "as a date"),
        ("Sat, 28 Nov 2026 10:40:54 GMT", "as a date of HTTP"),
        ("Sat Nov 28 10:40:54 2026", "as a date of C"),
    ],
)
def test_time_near_now_is_detected(value: Any, form: str) -> None:
    trace = find_host_time("body.x", value, NOW)
    assert trace is not None
    assert trace.path == "body.x"
    assert trace.what.endswith(form)


@pytest.mark.parametrize(
    "value",
    [
        0,
        12.5,
        True,
        None,
        SECONDS + 90_000,
        -SECONDS,
        10**400,
        float("nan"),
        f"a{SECONDS}",  # part of a word
        f"{SECONDS}.5.1",
        "aa1b77e-1790000000-d3",
        "2026-11-30T10:40:54Z",
        "2026-13-28T10:40:54Z",
        "0000-00-00",
        "Sat, 99 Foo 2026 10:40:54 GMT",
        "Foo Bar 28 10:40:54 2026",
        "the 2026-11-28",
    ],
)
def test_other_values_are_not_host_times(value: Any) -> None:
    assert find_host_time("body.x", value, NOW) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=10)
@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_can_be_searched(body: bytes) -> None:
    for path, value in find_body_leaves(body):
        find_host_time(path, value, NOW)
        find_host_path(path, value)
        find_secret(path, value, {"a secret": "0"})


def test_leaves_have_paths_and_include_keys() -> None:
    body = json.dumps({"a": [{"b": 1}], "/home/ada/x": "y"}).encode()
    leaves = list(find_body_leaves(body))
    assert ("body.a[0].b", 1) in leaves
    assert ("body", "/home/ada/x") in leaves
    assert list(find_body_leaves(b"no JSON")) == [("body", "no JSON")]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/home/ada/world/world.py", "/home/ada/world/world.py"),
        ('File "/usr/lib/python3/json.py", line 3', "/usr/lib/python3/json.py"),
        ("see /tmp/w-1/log", "/tmp/w-1/log"),
    ],
)
def test_host_path_is_detected(text: str, path: str) -> None:
    trace = find_host_path("body.x", text)
    assert trace is not None
    assert path in trace.what


@pytest.mark.parametrize(
    "text", ["/api.md", "/observe", "http://x/home/ada/y", "a/home/ada/y", "/home/", "/tmp", 7]
)
def test_route_is_not_a_host_path(text: Any) -> None:
    assert find_host_path("body.x", text) is None


def test_a_secret_is_found_and_never_shown() -> None:
    trace = find_secret("body.x", "token=s3cret!", {"the token": "s3cret"})
    assert trace is not None
    assert trace.what == "the token"
    assert "s3cret" not in repr(trace)
