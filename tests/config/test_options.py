"""An option has one definition, which calls, requests, records and documentation follow."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from clawblox.config.options import ManyOptions, SaveOptions, SharedOptions, StartOptions
from clawblox.config.world_toml import read_world_config
from clawblox.errors import ConfigError
from clawblox.instance.launch import plan_launch
from clawblox.rundir.requests import ALLOWED, NEEDED
from docs.option_docstrings import TARGETS, Target, render
from tests.support.worlds import make_world


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.call.__qualname__)
def test_a_call_takes_the_options_of_its_classes_with_their_defaults(target: Target) -> None:
    parameters = {parameter.name: parameter for parameter in target.parameters}
    assert parameters.keys() == target.fields.keys()
    for name, field in target.fields.items():
        default = parameters[name].default
        assert default == (
            parameters[name].empty if field.default is attrs.NOTHING else field.default
        )


def test_the_documentation_of_options_is_copied_from_their_classes() -> None:
    for path, text in render().items():
        assert path.read_text() == text, "python -m docs.option_docstrings"


def test_every_option_of_a_start_of_many_is_shared_or_per_instance() -> None:
    shared = {field.name for field in attrs.fields(SharedOptions)}
    for options, own in ((StartOptions, 10), (ManyOptions, 2)):
        names = {field.name for field in attrs.fields(options)}
        assert shared < names
        assert len(names - shared) == own


def test_a_record_contains_all_options_but_no_values_of_variables(
    tmp_path: Path,
) -> None:
    options = StartOptions(env={"API_KEY": "hush"}, record=True, resume=None)
    launch = plan_launch(read_world_config(make_world(tmp_path)), options)
    recorded = launch.recorded_options
    assert recorded.keys() == {field.name for field in attrs.fields(StartOptions)}
    assert recorded["env"] == ["API_KEY"]
    assert "hush" not in str(recorded)


def test_a_request_accepts_the_options_by_name() -> None:
    fork = {field.name for field in attrs.fields(ManyOptions)} - {"resume", "detach"}
    assert {*ALLOWED["fork"], *NEEDED["fork"]} == {*fork, "checkpoint", "count"}
    assert {*ALLOWED["save"]} == {*attrs.fields_dict(SaveOptions), "instances"}


def test_the_constructor_of_options_names_an_invalid_value() -> None:
    for name, value in (("port", 70000), ("health_timeout", "3"), ("name", "../up"), ("host", "")):
        with pytest.raises(ConfigError, match=rf"^{name}: ") as caught:
            StartOptions(**{name: value})
        assert (caught.value.key, caught.value.value) == (name, value)
