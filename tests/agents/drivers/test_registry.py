"""Drivers are found by name."""

from __future__ import annotations

import pytest

from clawblox.agents.drivers import DRIVERS, find_driver
from clawblox.agents.options import DRIVER_NAMES
from clawblox.checkpoint.collect.conversations import FORMATS
from clawblox.errors import ConfigError


def test_each_driver_is_found_by_the_name_of_its_program():
    for name, driver in DRIVERS.items():
        assert find_driver(name) is driver
        assert driver.program.driver == name


@pytest.mark.parametrize(("name", "likely"), [("cluade", "claude"), ("zebra", None), (None, None)])
def test_an_unknown_driver_is_an_error_that_lists_all_drivers(name, likely):
    with pytest.raises(ConfigError, match=r"agent: .*claude") as caught:
        find_driver(name)
    assert caught.value.hint == (f"did you mean {likely}?" if likely else None)


def test_each_driver_states_whether_archives_contain_its_conversations() -> None:
    archived = {name for name, driver in DRIVERS.items() if driver.archives_conversation}
    assert archived == {session_format.backend for session_format in FORMATS.values()}


def test_each_driver_states_whether_its_conversations_can_be_branched() -> None:
    branched = {name for name, driver in DRIVERS.items() if driver.can_branch}
    assert branched == {"claude", "codex", "kimi", "opencode"}


def test_only_a_command_without_resume_cannot_be_continued() -> None:
    start = {"start": ["my-agent", "{prompt}"]}
    resume = {"resume": ["my-agent", "{session}", "{prompt}"], "session": r"session: (\S+)"}
    commands = dict.fromkeys(DRIVERS) | {"command": start, "acp": ["my-agent"]}
    continued = {name for name, driver in DRIVERS.items() if driver.can_continue(commands[name])}
    assert continued == set(DRIVERS) - {"command"}
    assert DRIVERS["command"].can_continue({**start, **resume})
    with pytest.raises(ConfigError, match="command"):
        DRIVERS["command"].can_continue(None)


def test_the_options_know_the_names_of_all_drivers() -> None:
    assert set(DRIVER_NAMES) == DRIVERS.keys()
