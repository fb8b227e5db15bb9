"""The options of commands are the fields of the option classes: names, types, defaults, checks."""

from __future__ import annotations

import re
from typing import Any, get_args

import attrs
import click
import pytest

from clawblox.cli.field_options import FieldOption
from clawblox.cli.options import (
    OrchestratorOptions,
    ResumeOptions,
    StopOptions,
)
from clawblox.config.options import ManyOptions, OnFailure, SaveOptions, StartOptions
from clawblox.conformance.runner import CheckOptions
from clawblox.errors import ConfigError
from clawblox.replay.sources import VerifyOptions
from clawblox.results import RestartMode
from clawblox.team.record import AgentRunOptions
from tests.cli.conftest import Start
from tests.support.all_commands import find_command, find_options

CLASSES: dict[str, list[type]] = {
    "check": [CheckOptions],
    "run": [StartOptions, AgentRunOptions, StopOptions],
    "up": [ManyOptions, OrchestratorOptions],
    "fork": [ManyOptions, OrchestratorOptions],
    "resume": [ResumeOptions, OrchestratorOptions],
    "save": [SaveOptions],
    "stop": [StopOptions],
    "verify": [VerifyOptions],
}

NOT_OFFERED = {
    ("run", "env"): "the world inherits the environment of the command",
    ("run", "detach"): "a world in the foreground ends with the command",
    ("run", "restart"): "a world in the foreground ends when its process does",
    ("run", "max_restarts"): "there are no restarts",
    ("run", "restart_window"): "there are no restarts",
    ("run", "tmux_session"): "--tmux sets it",
    ("fork", "resume"): "forks resume from SOURCE",
    ("save", "max_bytes"): "the control socket of an orchestrator does not take it",
    ("verify", "number"): "--recording sets it",
    ("verify", "world_dir"): "--world sets it",
}

WITHOUT_FIELD = {
    ("check", "html"): "writes the results to a file",
    ("check", "junit"): "writes the results to a file",
    ("check", "expected_file"): "marks the results afterwards",
    ("check", "wants_list"): "whether any check runs",
    ("check", "is_verbose"): "how the command prints",
    ("check", "as_json"): "how the command prints",
    ("run", "tmux"): "for the command line alone",
    ("run", "is_fresh"): "whether it starts",
    ("up", "count"): "a parameter of start_many",
    ("up", "run_dir"): "a parameter of start_many",
    ("up", "choice"): "whether it starts any",
    ("up", "starter_fd"): "how the command runs itself in the background",
    ("fork", "count"): "a parameter of fork",
    ("fork", "new_run_dir"): "a parameter of fork",
    ("fork", "run_id"): "chooses SOURCE",
    ("fork", "starter_fd"): "how the command runs itself in the background",
    ("resume", "labels"): "chooses the instances",
    ("resume", "dry_run"): "previews the start",
    ("resume", "starter_fd"): "how the command runs itself in the background",
    ("save", "as_json"): "how the command prints",
    ("save", "labels"): "chooses the instances",
    ("stop", "labels"): "chooses the instances",
    ("stop", "as_json"): "how the command prints",
    ("stop", "wants_save"): "another operation before the stop",
    ("verify", "number"): "chooses the recording",
    ("verify", "world_dir"): "a parameter of verify_run",
    ("verify", "strict"): "a parameter of verify_run",
    ("verify", "scores"): "a parameter of verify_run",
    ("verify", "function"): "a parameter of verify_run",
    ("verify", "as_json"): "how the command prints",
}

DEFAULTS = {("run", "port"): 8080}
"""Defaults that differ from the class, since a person wants a memorable port."""

ARGUMENTS = {"fork": ["runs/r001", "w000"], "resume": ["runs/r001"], "verify": ["runs/r001"]}

PAIRS = [
    pytest.param(name, one, id=f"{name}-{one.__name__}")
    for name in CLASSES
    for one in CLASSES[name]
]


def parse(name: str, *words: str) -> dict[type, Any]:
    """Return the option objects that a command is called with, by class."""
    params = find_command(name).make_context(name, [*ARGUMENTS.get(name, []), *words]).params
    return {type(value): value for value in params.values() if attrs.has(type(value))}


@pytest.mark.parametrize("name", CLASSES)
def test_the_options_of_a_command_are_the_fields_of_its_classes(name: str) -> None:
    fields = {field.name for one in CLASSES[name] for field in attrs.fields(one)}
    left_out = {option for command, option in NOT_OFFERED if command == name}
    extra = {option for command, option in WITHOUT_FIELD if command == name}
    of_fields = {str(one.name) for one in find_options(name) if isinstance(one, FieldOption)}
    others = {str(one.name) for one in find_options(name) if not isinstance(one, FieldOption)}
    assert left_out <= fields
    assert of_fields == fields - left_out
    assert others == extra


@pytest.mark.parametrize(("name", "owner"), PAIRS)
def test_without_options_a_command_gets_the_defaults_of_the_class(name: str, owner: type) -> None:
    own = {option: value for (command, option), value in DEFAULTS.items() if command == name}
    own = {option: value for option, value in own.items() if option in attrs.fields_dict(owner)}
    assert parse(name)[owner] == owner(**own)


@pytest.mark.parametrize(("name", "owner"), PAIRS)
def test_the_help_shows_the_defaults_of_the_class(name: str, owner: type) -> None:
    context = click.Context(find_command(name), info_name=name)
    for option in find_options(name):
        if isinstance(option, FieldOption) and option.owner is owner and not option.is_flag:
            default = getattr(owner(), str(option.name))
            default = DEFAULTS.get((name, str(option.name)), default)
            record = option.get_help_record(context)
            assert record is not None
            shown = re.search(r"default: (.*?)\]", record[1])
            if option.multiple:
                assert shown is None
            elif default in (None, ""):
                assert shown is not None
                assert shown[1].startswith("(")
            else:
                assert shown is not None
                assert shown[1] == str(default).removesuffix(".0")


def test_option_choices_come_from_the_field_type() -> None:
    choices = {
        one.name: one.type for one in find_options("up") if isinstance(one.type, click.Choice)
    }
    assert list(choices["restart"].choices) == list(get_args(RestartMode))
    assert list(choices["on_failure"].choices) == list(get_args(OnFailure))


@pytest.mark.parametrize(
    ("name", "owner", "option", "text", "value"),
    [
        ("run", StartOptions, "port", "65536", 65536),
        ("run", StartOptions, "health_timeout", "0", 0.0),
        ("run", StartOptions, "port_wait", "-1", -1.0),
        ("run", StartOptions, "name", "a/b", "a/b"),
        ("run", StartOptions, "record_dir", "", ""),
        ("run", StopOptions, "grace_seconds", "nan", float("nan")),
        ("up", ManyOptions, "max_restarts", "0", 0),
        ("up", ManyOptions, "host", "", ""),
        ("up", OrchestratorOptions, "autosave", "0", 0.0),
        ("up", OrchestratorOptions, "keep", "0", 0),
        ("up", OrchestratorOptions, "metrics_port", "65536", 65536),
        ("fork", ManyOptions, "reseed", "-1", -1),
        ("save", SaveOptions, "timeout", "0", 0.0),
        ("save", SaveOptions, "dir", "", ""),
        ("stop", StopOptions, "grace_seconds", "-1", -1.0),
    ],
)
def test_value_refused_by_the_option_class_names_the_option(
    name: str, owner: type, option: str, text: str, value: object
) -> None:
    with pytest.raises(ConfigError) as complaint:
        owner(**{option: value})
    flag = "--grace" if option == "grace_seconds" else f"--{option.replace('_', '-')}"
    with pytest.raises(click.BadParameter) as refusal:
        parse(name, flag, text)
    message = refusal.value.format_message()
    assert f"'{flag}'" in message
    assert complaint.value.message in message
    shown = {f" not {one}" for one in (text, repr(text), repr(value))}
    assert not text or message.endswith(tuple(shown))
    assert message.count(", not ") <= 1


@pytest.mark.parametrize("words", [("up", "--count", "0"), ("logs", "--tail", "-1")])
def test_a_wrong_count_is_reported_once(call: Start, words: tuple[str, ...]) -> None:
    refused = call(*words)
    assert refused.wait() == 2
    assert refused.err.endswith(f", not {words[-1]}\n")
    assert refused.err.count(", not ") == 1


def test_a_variable_that_the_world_contract_sets_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="start sets this variable itself"):
        parse("up", "--env", "WORLD_PORT=1")


def test_error_of_a_wrong_environment_variable_names_its_option(call: Start) -> None:
    command = call("run", env={"WORLD_PORT": "65536"})
    assert command.wait() == 2
    assert "Error: Invalid value for '--port'" in command.err
