"""Hints use the caller's terms: flags on the command line, arguments in Python."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawblox import Agent, AsyncExperiment, Checkpointer, World, errors
from clawblox.cli import flags
from clawblox.cli.flags import find_command, in_flags
from clawblox.replay import verify_run
from clawblox.web.bundle import write_bundle
from tests.cli.conftest import Start
from tests.support.all_commands import find_command as command_called
from tests.support.worlds import make_world

PACKAGE = Path(flags.__file__).parents[1]
LIBRARY = [
    path
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).parts[0] not in ("cli", "engine", "luau", "server")
]
ARGUMENT = re.compile(r"(?<![\w?&.:/-])([a-z][a-z_]*)=")
FLAG = re.compile(r"(?<![\w-])--[a-z]")


@pytest.fixture(scope="module")
def hints() -> list[tuple[str, str]]:
    """Return the place and text of each hint of the library."""
    return [*find_hints()]


def find_hints() -> Iterator[tuple[str, str]]:
    for path in LIBRARY:
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "hint" in text.lower() else ():
            if (value := _hint(node)) is not None:
                for part in ast.walk(value):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield f"{path.name}:{value.lineno}", part.value


def _hint(node: ast.AST) -> ast.expr | None:
    """Return the value of an argument ``hint``, or of a constant ``_HINT``."""
    if isinstance(node, ast.keyword) and node.arg == "hint":
        return node.value
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_HINT":
        return node.value
    return None


def test_arguments_in_hints_exist_in_the_api(
    hints: list[tuple[str, str]],
) -> None:
    classes = [Agent, World, Checkpointer, AsyncExperiment]
    functions = [
        verify_run,
        write_bundle,
        *(member for of in classes for _, member in inspect.getmembers(of, inspect.isfunction)),
    ]
    known = {name for function in functions for name in inspect.signature(function).parameters}
    named = {name: place for place, hint in hints for name in ARGUMENT.findall(hint)}
    assert len(named) > 10
    assert {name: place for name, place in named.items() if name not in known} == {}


def test_library_hints_name_no_flags(hints: list[tuple[str, str]]) -> None:
    assert [(place, hint) for place, hint in hints if FLAG.search(hint)] == []


@pytest.mark.parametrize(
    ("command", "hint", "said"),
    [
        ("run", "choose another run_dir=, in a place", "choose another --run-dir, in a place"),
        ("experiment fork", "stop r1, and fork with parallel=1; or use sandbox=True",
         "stop r1, and fork with --parallel 1"),
        ("up", "stop it, or choose another run_dir=, or another name=",
         "stop it, or choose another --run-dir"),
        ("run", "agents with sandbox=True have addresses", "agents with --sandbox have addresses"),
        ("run", "make the agent with sandbox=False, as before",
         "make the agent without --sandbox, as before"),
        ("run", 'add "resume" and "session" to command=',
         'add "resume" and "session" to --agent-command'),
        ("run", "leave out reseed=, or set reseed = true if the world reads WORLD_RESEED",
         "leave out --reseed, or set reseed = true if the world reads WORLD_RESEED"),
        ("play", "name an instance with instance=", "name an instance with INSTANCE"),
        ("act", "try again when it is ready; a client waits for that with wait_restart=",
         "try again when it is ready"),
        ("save", 'list it as excluded with on_unarchivable="record"', None),
        ("run", "the request was /join?name=Rocky", "the request was /join?name=Rocky"),
    ],
)  # fmt: skip
def test_hints_name_the_flags_of_the_command(command: str, hint: str, said: str | None) -> None:
    error = errors.UsageError("no", hint=hint)
    assert in_flags(error, command_called(command)).hint == said
    assert error.hint == hint


def test_the_subject_of_a_wrong_argument_is_its_flag() -> None:
    run = command_called("run")
    wrong = errors.ConfigError("must be less", key="reseed", value=9)
    assert in_flags(wrong, run).headline == "--reseed: must be less"
    wrong = errors.ConfigError("two strings", key="env.A B")
    assert in_flags(wrong, command_called("up")).headline == "--env A B: two strings"
    file = errors.ConfigError("a table", key="record", path=Path("w/world.toml"))
    assert in_flags(file, run).headline == "record: a table"


def test_the_command_of_a_command_line_is_found_in_its_group() -> None:
    from clawblox.cli import main

    context = main.make_context("clawblox", ["--help"], resilient_parsing=True)
    found = find_command(main, context, ("ckpt", "extract", "inspect", "--keep", "x"))
    assert found.name == "extract"
    assert find_command(main, context, ("no-such",)) is main


@pytest.mark.thorough
def test_errors_on_the_command_line_name_flags(start: Start, tmp_path: Path) -> None:
    world = str(make_world(tmp_path))
    unwritable = start("run", world, "--run-dir", "/proc/nowhere")
    assert unwritable.wait() != 0
    assert "\n  hint: choose another --run-dir, in a place that can be written" in unwritable.err
    engine_only = start("run", world, "--datastore", "none")
    assert engine_only.wait() == 2
    assert engine_only.err.startswith("Error: --datastore: only for worlds of the built-in engine")
    variable = start("up", world, "--env", "WORLD_HOST=::1")
    assert variable.wait() == 2
    assert variable.err.endswith("start sets this variable itself\n  hint: use --host\n")


@pytest.mark.parametrize(("typed", "meant"), [("rnu", "run"), ("sp", "ps"), ("statr", None)])
def test_error_of_a_misspelled_command_suggests_the_nearest_command(
    typed: str, meant: str | None, call: Start
) -> None:
    refused = call(typed)
    assert refused.wait() == 2
    assert (f"Did you mean {meant!r}?" in refused.err) == (meant is not None)
