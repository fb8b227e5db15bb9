"""Options stand once: what the API, requests and records call them is what the classes say."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from clawblox import AsyncWorld, ConfigError
from clawblox.config.options import ManyOptions, SaveOptions, SharedOptions, StartOptions
from clawblox.config.world_toml import read_world_config
from clawblox.instance.launch import plan_launch
from clawblox.rundir.requests import check_members
from tests.support import make_world

# What a call takes beside the options, and which options it does not take, with the reason.
CALLS: list[tuple[Callable[..., Any], type, set[str], set[str]]] = [
    (AsyncWorld.start, StartOptions, {"_tmux_session"}, set()),
    (AsyncWorld.start_many, ManyOptions, {"instances", "run_dir", "progress"}, set()),
    # Its snapshot is the checkpoint.
    (AsyncWorld.fork, ManyOptions, {"checkpoint", "count", "run_dir", "progress"}, {"resume"}),
    (AsyncWorld.save, SaveOptions, {"instance"}, set()),
    (AsyncWorld.save_all, SaveOptions, {"instances", "progress"}, set()),
]


@pytest.mark.parametrize(
    ("call", "options", "more", "fewer"), CALLS, ids=[call.__name__ for call, *_ in CALLS]
)
def test_a_call_takes_the_options_with_their_defaults(
    call: Callable[..., Any], options: type, more: set[str], fewer: set[str]
) -> None:
    parameters = dict(inspect.signature(call).parameters)
    del parameters["self"]
    fields = {field.name: field for field in attrs.fields(options) if field.name not in fewer}
    assert parameters.keys() - more == fields.keys()
    for name, field in fields.items():
        assert parameters[name].default == field.default, name


def test_every_option_of_many_is_shared_or_theirs() -> None:
    shared = {field.name for field in attrs.fields(SharedOptions)}
    for options, own in ((StartOptions, 9), (ManyOptions, 2)):
        names = {field.name for field in attrs.fields(options)}
        assert shared < names
        assert len(names - shared) == own


def test_a_record_holds_every_option_by_its_name_and_no_value_of_a_variable(
    tmp_path: Path,
) -> None:
    options = StartOptions(env={"API_KEY": "hush"}, record=True, resume=None)
    launch = plan_launch(read_world_config(make_world(tmp_path)), options)
    recorded = launch.recorded_options
    assert recorded.keys() == {field.name for field in attrs.fields(StartOptions)}
    assert recorded["env"] == ["API_KEY"]
    assert "hush" not in str(recorded)


def test_a_request_takes_the_options_by_their_names() -> None:
    fork = {field.name for field in attrs.fields(ManyOptions)} - {"resume", "detach"}
    check_members("fork", {**dict.fromkeys(fork), "checkpoint": None, "count": 1})
    check_members("save", dict.fromkeys(field.name for field in attrs.fields(SaveOptions)))


def test_a_wrong_value_is_refused_when_the_options_are_made_and_named() -> None:
    for name, value in (("port", 70000), ("health_timeout", "3"), ("name", "../up"), ("host", "")):
        with pytest.raises(ConfigError, match=rf"^{name}: ") as caught:
            StartOptions(**{name: value})
        assert (caught.value.key, caught.value.value) == (name, value)
