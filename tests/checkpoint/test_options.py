"""The options of archives: twins, errors that name the option, and tracebacks without secrets."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from rich.console import Console
from rich.traceback import Traceback

from clawblox import checkpoint
from clawblox.checkpoint import load_checkpoint, save_checkpoint
from clawblox.errors import ConfigError
from tests.checkpoint.runs import Run, make_run

TWINS = ["load_checkpoint", "read_metadata", "save_checkpoint"]


@pytest.mark.parametrize("name", TWINS)
def test_an_async_twin_has_the_signature_and_documentation_of_its_function(name: str):
    function, twin = getattr(checkpoint, name), getattr(checkpoint, f"async_{name}")
    assert inspect.signature(twin) == inspect.signature(function)
    assert inspect.iscoroutinefunction(twin)
    assert twin.__name__ == f"async_{name}"
    documented, own = inspect.getdoc(twin), inspect.getdoc(function)
    assert documented is not None
    assert own is not None
    assert "Cancellation: " in documented
    assert " Blocks." not in documented
    assert documented.partition("Args:")[2].startswith(own.partition("Args:")[2].rstrip())


def test_a_wrong_argument_of_a_load_is_named(tmp_path: Path):
    run = make_run(tmp_path)
    archive = run.save()
    for key, options in {
        "limits": {"limits": 7},
        "progress": {"progress": 7},
    }.items():
        with pytest.raises(ConfigError) as told:
            load_checkpoint(archive, tmp_path / "new", **options)
        assert told.value.key == key
    with pytest.raises(ConfigError) as told:
        run.save("b", progress="loud")
    assert told.value.key == "progress"


def test_a_wait_for_an_idle_moment_must_be_finite(tmp_path: Path):
    run = make_run(tmp_path)
    for wait in (math.inf, math.nan, -1, True, "5"):
        with pytest.raises(ConfigError, match=r"idle_wait: must be .*seconds, 0 or more"):
            run.save(idle_wait=wait)


SECRET = "correct-horse-battery-7"


def fail(done: int, total: int) -> None:
    raise KeyError


SECRETS = (SECRET,)


def save_here(run: Run) -> None:
    save_checkpoint(run.archive(), known_secrets=[*SECRETS], progress=fail)


def save_in_a_loop(run: Run) -> None:
    async def save() -> None:
        await checkpoint.async_save_checkpoint(
            run.archive(), known_secrets=[*SECRETS], progress=fail
        )

    anyio.run(save)


@pytest.mark.thorough
@pytest.mark.parametrize("save", [save_here, save_in_a_loop])
def test_the_locals_in_a_traceback_show_no_known_secret(
    tmp_path: Path, save: Callable[[Run], None]
):
    with pytest.raises(KeyError) as told:
        save(make_run(tmp_path))
    error = told.value
    with (tmp_path / "out").open("w") as file:
        console = Console(record=True, width=200, file=file)
        console.print(
            Traceback.from_exception(
                type(error), error, error.__traceback__, show_locals=True, locals_max_string=None
            )
        )
    shown = console.export_text()
    assert "<1 secrets>" in shown
    assert SECRET not in shown
