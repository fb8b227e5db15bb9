"""``on_pause``, ``on_failure`` and ``on_done`` of a plan: commands and addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawblox.errors import ConfigError
from clawblox.experiment import AgentSpec, Plan

TEXT = """\
world = "world"
on_done = {value}
[[agents]]
driver = "claude"
"""


def plan(target: Any) -> Plan:
    return Plan("/worlds/panda", [AgentSpec("claude")], on_done=target)


def test_relative_program_is_resolved_from_the_directory_of_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(TEXT.format(value='["./bin/tell", "./word"]'))
    loaded = Plan.load(path)
    assert loaded.on_done == (str(tmp_path / "bin" / "tell"), "./word")
    assert Plan.loads(loaded.dumps(base=tmp_path), base=tmp_path) == loaded


def test_program_name_is_looked_up_in_path_and_an_address_is_kept(tmp_path: Path) -> None:
    for value, target in (
        ('["tell"]', ("tell",)),
        ('"https://a.org/x?y=1"', "https://a.org/x?y=1"),
    ):
        loaded = Plan.loads(TEXT.format(value=value), base=tmp_path)
        assert loaded.on_done == target
        assert Plan.loads(loaded.dumps()) == loaded
    assert Plan.loads(TEXT.format(value="false"), base=tmp_path).on_done is None


def test_relative_program_in_python_is_resolved_from_the_current_directory() -> None:
    assert plan(["./tell", "x"]).on_done == (str(Path.cwd() / "tell"), "x")


@pytest.mark.parametrize(
    "target", ["./tell.sh", "", [], [""], ["tell", 5], ["a\0b"], {"url": "x"}, True, 5, [["tell"]]]
)
def test_a_target_that_is_neither_a_command_nor_an_address_is_refused(target: Any) -> None:
    with pytest.raises(ConfigError, match=r"on_done: must be a list of words, such as .*https://"):
        plan(target)


@pytest.mark.parametrize(
    "address",
    [
        *("ftp://a.org", "file:///etc/passwd", "https://", "https://a.org/#x", "https://a.org/a b"),
        *("https://a.org:0/", "https://a.org:99999/", "https://ä.org", "https://a.org/\n"),
    ],
)
def test_an_address_that_is_not_a_valid_web_url_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="on_done: must be an address such as https://"):
        plan(address)


def test_a_wrong_address_is_refused_without_its_path() -> None:
    for address in (
        "https://a.org:99999/sk-secret",
        "wss://a.org/sk-secret",
        "https://a.org/sk-secret#",
    ):
        with pytest.raises(ConfigError, match="must be an address such as") as caught:
            plan(address)
        assert "sk-secret" not in str(caught.value)


def test_an_address_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigError, match="without a user name and a password") as caught:
        plan("https://me:sk-secret@a.org/")
    assert "sk-secret" not in str(caught.value)
