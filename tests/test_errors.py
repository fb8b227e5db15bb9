"""Errors can be pickled, show all their fields, and form the drawn tree."""

from __future__ import annotations

import builtins
import copy
import inspect
import pickle
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from clawblox import errors
from clawblox.errors import (
    BatchError,
    CheckpointError,
    CheckpointFormatError,
    CheckpointSecretError,
    ClawbloxError,
    ConfigError,
    PlanChangedError,
    UsageError,
    WorldError,
)
from clawblox.results import Finding, PlanChange, ProcessExit

NAMES = [name for name in dir(errors) if name.endswith("Error")]
CLASSES: list[type[ClawbloxError]] = [getattr(errors, name) for name in NAMES]


def each_class(test: Callable[[type[ClawbloxError]], None]) -> Callable[[], None]:
    """Run a test for all classes in one case, because separate cases would repeat the set-up."""

    def run() -> None:
        for kind in CLASSES:
            try:
                test(kind)
            except AssertionError as error:
                error.add_note(f"for {kind.__name__}")
                raise

    return run


SAMPLES: dict[str, Any] = {
    "message": "the world fell over",
    "hint": "pick it up",
    "path": Path("/worlds/panda/world.toml"),
    "key": "run.command",
    "value": ["bash", 7],
    "line": 12,
    "offset": 4096,
    "journal": Path("/experiments/panda/journal.jsonl"),
    "kept": Path("/experiments/panda/journal.lost-20260622T185925Z.jsonl"),
    "changes": (PlanChange("duration", 60.0, 90.0, "amendment"),),
    "others": (ConfigError("missing", key="run.port"), ConfigError("no size", key="limits")),
    "subject": "timeout",
    "status": 503,
    "kind": "limit",
    "retry_at": datetime(2026, 6, 22, 18, 59, 25, tzinfo=UTC),
    "pid": 4711,
    "instance": "w000",
    "agent": "Rocky",
    "agent_dir": Path("/runs/r1/agents/Rocky"),
    "world_dir": Path("/worlds/panda"),
    "command_file": Path("/runs/r1/start.sh"),
    "log_file": Path("/runs/r1/world.log"),
    "url": "http://127.0.0.1:8123/base",
    "port": 8123,
    "phase": "probing",
    "elapsed_s": 1.25,
    "exit": ProcessExit(signal="SIGSEGV"),
    "log_lines": ("first line", "last line"),
    "error_type": "SnapshotError",
    "error_details": ("phase: headers", "bytes received: 7"),
    "failed": {"w003": UsageError("closed"), "w005": ValueError("too\nlate")},
    "body_start": "<html>",
    "text": "no such marble",
    "bytes": 64000,
    "entry": "agents/Rocky/workspace/.env",
    "findings": (
        Finding(
            path="agents/Rocky/workspace/.env",
            rule="github-token",
            fingerprint="0123456789abcdef",
            preview="ghp_… (40 characters)",
            line=3,
        ),
    ),
}
"""A non-default value for every field of every error."""


def parameters(kind: type[ClawbloxError]) -> set[str]:
    """Return the parameters of a constructor, including those passed on by ``**fields``."""
    found: set[str] = set()
    for ancestor in (a for a in kind.__mro__ if "__init__" in vars(a)):
        own = inspect.signature(vars(ancestor)["__init__"]).parameters.values()
        found |= {p.name for p in own if p.kind is not p.VAR_KEYWORD} - {"self"}
        if all(p.kind is not p.VAR_KEYWORD for p in own):
            return found
    raise AssertionError(f"{kind} hands its fields to nobody")


def filled(kind: type[ClawbloxError]) -> ClawbloxError:
    fields = {name: SAMPLES[name] for name in parameters(kind) - {"message"}}
    return kind(SAMPLES["message"], **fields)


def fields_of(error: ClawbloxError) -> dict[str, Any]:
    """Return the fields of an error, with nested errors as text."""
    fields = vars(error)
    errors_in = {name: repr(one) for name, one in fields.get("failed", {}).items()}
    return {**fields, "failed": errors_in, "others": [*map(str, fields.get("others", ()))]}


# --------------------------------------------------------------------------------- fields


@each_class
def test_every_field_is_an_attribute(kind: type[ClawbloxError]) -> None:
    error = filled(kind)
    assert {name: getattr(error, name) for name in parameters(kind)} == {
        name: SAMPLES[name] for name in parameters(kind)
    }


@each_class
def test_a_message_alone_is_enough(kind: type[ClawbloxError]) -> None:
    assert str(kind("the world fell over")).splitlines()[0] == "the world fell over"


SUBJECTS = (
    {name: "agent Rocky" for name in NAMES if name.startswith("Agent")}
    | dict.fromkeys(("ControlError", "OrchestratorSuspendedError"), "timeout")
    | {"ConfigError": "run.command", "FetchError": SAMPLES["url"]}
    | {
        name: str(SAMPLES["path"])
        for name in NAMES
        if name in ("ManifestError", "RecordingError")
        or issubclass(getattr(errors, name), CheckpointError)
    }
)
"""Subject of each error; other errors of a world have the instance as subject."""


@each_class
def test_the_first_line_names_the_subject(kind: type[ClawbloxError]) -> None:
    subject = SUBJECTS.get(kind.__name__, "w000" if issubclass(kind, WorldError) else None)
    line = str(filled(kind)).splitlines()[0]
    assert line == (f"{subject}: the world fell over" if subject else "the world fell over")


def test_a_file_is_the_subject_without_a_key() -> None:
    error = ConfigError("not UTF-8", path=Path("/w/world.toml"), line=3)
    assert str(error) == "/w/world.toml:3: not UTF-8"


def test_a_value_in_the_first_line_is_not_repeated() -> None:
    assert str(ConfigError("seconds above 0, not '3'", key="timeout", value="3")) == (
        "timeout: seconds above 0, not '3'"
    )
    assert "  value: 3" in str(ConfigError("one of 2 or 3", key="count", value=3)).splitlines()


@each_class
def test_every_error_pickles_with_all_its_fields(kind: type[ClawbloxError]) -> None:
    error = filled(kind)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(error, protocol))
        assert type(back) is kind
        assert fields_of(back) == fields_of(error)
        assert (str(back), back.args) == (str(error), error.args)


@each_class
def test_every_error_can_be_copied(kind: type[ClawbloxError]) -> None:
    error = filled(kind)
    assert fields_of(copy.deepcopy(error)) == fields_of(error)


@given(message=st.text(), hint=st.none() | st.text(), line=st.text())
def test_any_text_survives_pickling(message: str, hint: str | None, line: str) -> None:
    error = WorldError(message, hint=hint, log_lines=(line,))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


# ---------------------------------------------------------------------------------- texts


def texts_of(name: str) -> list[str]:
    """Return the texts of a field's sample that the message must contain."""
    match name:
        case "log_lines" | "error_details" | "findings" | "others":
            return list(map(str, SAMPLES[name]))
        case "changes":
            return ["duration: was 60.0, is 90.0", "--accept duration"]
        case "failed":
            return ["w003: UsageError: closed", "w005: ValueError: too"]
        case "retry_at":
            return ["2026-06-22T18:59:25Z"]
        case "elapsed_s":
            return ["1.25 s"]
        case _:
            return [str(SAMPLES[name])]


@each_class
def test_the_message_shows_every_field(kind: type[ClawbloxError]) -> None:
    text = str(filled(kind))
    parts = [part for name in parameters(kind) for part in texts_of(name)]
    assert [part for part in parts if part not in text] == []


@each_class
def test_the_message_comes_first_and_the_hint_last(kind: type[ClawbloxError]) -> None:
    lines = str(filled(kind)).splitlines()
    assert lines[0].endswith("the world fell over")
    assert lines[-1] == "  hint: pick it up"


@each_class
def test_an_unknown_field_is_not_mentioned(kind: type[ClawbloxError]) -> None:
    assert "None" not in str(kind("the world fell over"))


def test_the_port_is_named_before_there_is_an_address() -> None:
    assert "port: 8123" in str(WorldError("busy", port=8123))


def test_locating_an_error_keeps_its_known_fields() -> None:
    error = WorldError("ended", phase="probing")
    error.locate(phase="spawning", port=8123)
    assert (error.phase, error.port) == ("probing", 8123)
    assert "port: 8123" in str(error)


def test_the_line_follows_the_file() -> None:
    error = ConfigError("wrong", path=Path("/w/world.toml"), key="name", line=3)
    assert "  file: /w/world.toml:3" in str(error).splitlines()


@each_class
def test_the_log_comes_right_after_the_first_line(kind: type[ClawbloxError]) -> None:
    if not issubclass(kind, WorldError):
        return
    lines = str(kind("ended", phase="probing", log_lines=("one", "two"))).splitlines()
    assert lines[:4] == ["ended", "  last log lines:", "    | one", "    | two"]
    assert "  phase: probing" in lines[4:]


def test_the_first_of_many_failures_are_named_and_the_rest_counted() -> None:
    failed: dict[str, Exception] = {f"w{n:03}": UsageError("closed") for n in range(64)}
    lines = str(BatchError.of(failed, 70)).splitlines()
    assert lines[0] == "64 of 70 instances failed"
    assert lines[1:11] == [f"  w{n:03}: UsageError: closed" for n in range(10)]
    assert lines[11:] == ["  and 54 more"]


def test_a_failure_is_reported_by_its_first_line() -> None:
    error = BatchError("", failed={"w000": ValueError("too\nlate")})
    assert str(error).splitlines()[1:] == ["  w000: ValueError: too"]


def test_a_failure_names_its_instance_once() -> None:
    failed = {"w000": WorldError("ended", instance="w000"), "w001": ConfigError("no", key="dir")}
    assert str(BatchError("", failed=failed)).splitlines()[1:] == [
        "  w000: WorldError: ended",
        "  w001: ConfigError: dir: no",
    ]


def test_the_log_of_the_first_instance_that_has_one_is_quoted() -> None:
    late = WorldError("late", instance="w001", log_lines=("> 2 | x.y = 1", "  3 | end"))
    failed = {"w000": UsageError("closed"), "w001": late, "w002": late}
    assert str(BatchError("", failed=failed)).splitlines()[4:] == [
        "  last log lines of w001:",
        "    | > 2 | x.y = 1",
        "    |   3 | end",
    ]


def test_a_failure_without_a_message_is_named_by_its_class() -> None:
    assert "  w000: TimeoutError: " in str(BatchError("", failed={"w000": TimeoutError()}))


def test_the_error_of_a_batch_is_caused_by_its_first_failure() -> None:
    first = TimeoutError("late")
    failed = {"w007": first, "w000": UsageError("closed")}
    assert BatchError.of(failed, 2).__cause__ is first
    assert BatchError.of(failed, 2).failed == failed


def test_a_long_value_is_cut() -> None:
    error = ConfigError("wrong", value="x" * 10_000)
    assert len(str(error)) < 300
    assert "..." in str(error)
    assert error.value == "x" * 10_000


# ----------------------------------------------------------------------------------- tree


def drawn_tree() -> dict[str, set[str]]:
    """Read the drawing in the module's docstring: the bases of each class."""
    tree: dict[str, set[str]] = {}
    branch: list[str] = []
    drawing = (errors.__doc__ or "").partition("::\n\n")[2].partition("\n\n")[0]
    for line in drawing.splitlines():
        entry = re.match(r"\s{4}([ │├└─]*)(\w+)(?: \((\w+)\))?", line)
        assert entry, line
        depth = len(entry[1]) // 4
        branch[depth:] = [entry[2]]
        tree[entry[2]] = {branch[depth - 1] if depth else "Exception"} | {entry[3]} - {None}
    return tree


def test_the_drawn_tree_matches_the_classes() -> None:
    real = {kind.__name__: {base.__name__ for base in kind.__bases__} for kind in CLASSES}
    assert drawn_tree() == real


def test_every_exception_of_the_module_is_public() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
    }
    assert defined == set(NAMES)


@each_class
def test_every_error_is_documented(kind: type[ClawbloxError]) -> None:
    assert kind.__doc__
    assert not hasattr(builtins, kind.__name__)


MISTAKES = (ConfigError, PlanChangedError, UsageError)


@each_class
def test_the_command_line_ends_with_2_for_a_mistake_of_the_caller(
    kind: type[ClawbloxError],
) -> None:
    assert kind("").exit_code == (2 if issubclass(kind, MISTAKES) else 1)


def test_the_message_shows_the_first_findings_and_counts_the_rest() -> None:
    found = [attrs.evolve(SAMPLES["findings"][0], line=line) for line in range(1, 31)]
    text = str(CheckpointSecretError("the world fell over", findings=found))
    assert "line 20: " in text
    assert "line 21: " not in text
    assert "and 10 more" in text


def test_the_name_of_an_entry_is_escaped_for_terminals() -> None:
    text = str(CheckpointFormatError("no", entry="\x1b[2J" + "x" * 100))
    assert "\x1b" not in text
    assert len(text.splitlines()[1]) < 80
