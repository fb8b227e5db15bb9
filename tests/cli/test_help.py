"""Help texts, the version, the guide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import attrs
import click

from clawblox import __version__
from clawblox.cli import main
from clawblox.rundir.status import InstanceState, InstanceStatus
from docs import command_options
from tests.cli.conftest import Start
from tests.support.all_commands import COMMANDS, every_command, find_command, find_options

MARK = re.compile(r"<!-- options: (.*) -->")
GUIDE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def take_options(name: str) -> list[click.Option]:
    """Return the options of a command that are for people."""
    return [option for option in find_options(name) if not option.hidden]


def test_the_help_is_printed(call: Start) -> None:
    for words in ([], ["run"]):
        command = call(*words, "--help", env={"COLUMNS": "80"})
        assert (command.wait(), command.err) == (0, ""), words
        assert f"  clawblox {' '.join(words)}" in command.out.partition("Examples:")[2], words


def test_every_option_is_explained() -> None:
    for name in COMMANDS:
        ends = (".", "]")
        assert [one.name for one in take_options(name) if not (one.help or "").endswith(ends)] == []


def test_every_help_fits_the_screen_and_shows_examples() -> None:
    for name, command in (("", main), *every_command()):
        context = click.Context(command, info_name=name, terminal_width=80)
        text = command.get_help(context)
        assert max(map(len, text.splitlines())) <= 80, name
        assert "  clawblox " in text.partition("Examples:")[2], name
        assert "Raises" not in text, name
        assert "...\n" not in text.partition("Commands:")[2], f"{name}: a summary is cut"


def test_every_option_is_in_a_section() -> None:
    for name in ("run", "up", "fork", "resume"):
        context = click.Context(find_command(name), info_name=name)
        _, _, last = find_command(name).get_help(context).partition("\nOther:\n")
        # click caches the help option of the first call, which has -h only if the whole program
        # ran.
        words = last.split("\n\n")[0].replace("-h, ", "").split()
        assert words == ["--help", "Show", "this", "message", "and", "exit."], name


def test_the_overview_lists_every_command_in_a_section(call: Start) -> None:
    out = call("--help").out
    words = [line[2:].partition(" ")[0] for line in out.splitlines()]
    assert [word for word in words if word in COMMANDS] == COMMANDS


def test_the_version_is_printed(call: Start) -> None:
    assert call("--version").out == f"clawblox {__version__}\n"


def test_a_shell_completes_options_after_a_wrong_value(call: Start) -> None:
    words = "clawblox run --health-timeout 0 --gr"
    env = {"_CLAWBLOX_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"}
    command = call(env=env)
    assert command.out == "plain,--grace\n"
    assert command.err == ""


def test_an_unknown_command_is_a_usage_error(call: Start) -> None:
    command = call("fly")
    assert command.wait() == 2
    assert "Error: No such command 'fly'.\n" in command.err
    assert "Error: No such command 'stpo'. Did you mean 'stop'?\n" in call("stpo").err


def section_of(name: str) -> str:
    """Return the section of a command in the guide."""
    return GUIDE.partition(f"\n## clawblox {name}\n")[2].partition("\n## ")[0]


def test_the_option_tables_of_the_guide_are_generated() -> None:
    assert command_options.render_page(GUIDE) == GUIDE, "run python -m docs.command_options"
    marked = {name for names in MARK.findall(GUIDE) for name in names.split(", ")}
    assert {name for name in COMMANDS if take_options(name)} <= marked


def test_the_guide_lists_the_commands_with_the_summaries_of_the_help() -> None:
    text = main.get_help(click.Context(main, terminal_width=100))
    summaries = dict(re.findall(r"^  (\w+) +(\S.*)\.$", text, re.M))
    rows = dict(re.findall(r"^\| \[`clawblox (\w+).*?\) \| (.*) \|$", GUIDE, re.M))
    assert {name: text.replace("`", "") for name, text in rows.items()} == {
        name: summaries[name][0].lower() + summaries[name][1:] for name in COMMANDS
    }


def test_the_guide_names_every_state_and_every_field_of_ps() -> None:
    section = section_of("ps")
    names = [*get_args(InstanceState), *(field.name for field in attrs.fields(InstanceStatus))]
    assert [name for name in names if f"`{name}`" not in section] == []
