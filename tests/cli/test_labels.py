"""Labels on the command line: given to ``up``, shown by ``ps``, and used as a filter."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Start, read_instances
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import make_world

START = """
import sys
from clawblox import World
world = World(sys.argv[1], run_dir=sys.argv[2])
specs = [{"labels": {"model": model, "ok": ok}} for model in ("fable", "opus") for ok in (0, True)]
world.start_many(specs, labels={"seed": 3}, detach=True).raise_if_failed()
"""


@pytest.fixture
def labelled(tmp_path: Path, run_dir: Path, call: Start) -> Iterator[str]:
    """Return a run directory with four running instances with labels."""
    words = [sys.executable, "-c", START, str(make_world(tmp_path)), str(run_dir)]
    subprocess.run(words, check=True, timeout=HANG_S)
    yield str(run_dir)
    call("stop", str(run_dir))


def names_in(text: str) -> list[str]:
    return [line[:4] for line in text.splitlines() if line.startswith("w0")]


@pytest.mark.thorough
def test_ps_shows_labels_and_filters_by_them(labelled: str, call: Start) -> None:
    out = call("ps", labelled).out
    assert "seed=3 model=fable ok=0" in out
    assert "seed=3 model=opus ok=true" in out
    assert names_in(call("ps", labelled, "--filter", "model=opus").out) == ["w002", "w003"]
    both = call("ps", labelled, "--filter", "model=opus", "--filter", "ok=true").out
    assert names_in(both) == ["w003"]
    nothing = call("ps", labelled, "--filter", "model=none")
    assert (nothing.wait(), nothing.out) == (0, "No instance here has model=none.\n")


@pytest.mark.thorough
def test_filter_selects_instances_by_label_in_every_command(
    labelled: str, run_dir: Path, call: Start
) -> None:
    assert names_in(call("save", labelled, "--filter", "model=fable").out) in (
        ["w000", "w001"],
        ["w001", "w000"],
    )
    assert names_in(call("logs", labelled, "--filter", "ok=true", "-n", "1").out) == [
        "w001",
        "w003",
    ]
    assert names_in(call("stop", labelled, "--filter", "ok=0").out) == ["w000", "w002"]
    assert [name for name, one in read_instances(run_dir).items() if one["state"] == "ready"] == [
        "w001",
        "w003",
    ]
    waited = call("wait", labelled, "--filter", "ok=0")
    assert names_in(waited.out) == ["w000", "w002"]


@pytest.mark.thorough
def test_resume_filter_selects_interrupted_instances_by_label(
    labelled: str, run_dir: Path, call: Start
) -> None:
    known = read_instances(run_dir)
    for name in ("w000", "w003"):
        os.kill(known[name]["pid"], signal.SIGKILL)
    wait_until(
        lambda: (
            read_instances(run_dir)["w000"]["pid"] is read_instances(run_dir)["w003"]["pid"] is None
        )
    )
    for label, names in (("seed=3", ["w000", "w003"]), ("model=opus", ["w003"])):
        shown = call("resume", labelled, "--dry-run", "--filter", label).out
        assert (
            re.findall(r"^  (\w+)  from the start of its run: it has no save$", shown, re.M)
            == names
        )
    nothing = call("resume", labelled, "--filter", "model=fable", "--filter", "ok=true")
    assert nothing.wait() == 1
    text = f"Error: No instance to resume in '{run_dir}' has model=fable ok=true\n"
    assert nothing.err.startswith(text)


@pytest.mark.thorough
def test_an_unknown_label_is_an_error_that_names_the_existing_labels(
    labelled: str, call: Start
) -> None:
    for command in ("save", "logs", "stop", "wait", "restart", "resume"):
        refused = call(command, labelled, "--filter", "modle=opus")
        assert refused.wait() != 0
        assert "has modle=opus; the labels there are: model, ok, seed" in refused.err
    assert call("stop", labelled, "--filter", "model").wait() == 2


@pytest.mark.thorough
def test_up_gives_instances_their_labels(
    tmp_path: Path, run_dir: Path, start: Start, call: Start
) -> None:
    world = str(make_world(tmp_path))
    up = start("up", world, "--run-dir", str(run_dir), "--label", "model=a b", "--label", "seed=3")
    up.wait_for("ready after")
    assert read_instances(run_dir)["w000"]["labels"] == {"model": "a b", "seed": 3}
    assert up.interrupt() == 130
    refused = call("up", world, "--run-dir", str(tmp_path / "other"), "--label", "a b=1")
    assert refused.wait() == 2
    assert "'--label'" in refused.err
