"""``clawblox resume``, ``up --continue`` and ``up --fresh``: output, questions and refusals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from clawblox.cli.running.resuming import choose
from clawblox.errors import UsageError
from tests.cli.conftest import Start, assert_nothing_runs, read_instances
from tests.support.terminals import terminal
from tests.support.worlds import make_world


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return make_world(tmp_path)


@pytest.fixture
def crash(start: Start, call: Start, world: Path, run_dir: Path) -> None:
    """Run w000 to w003, save w001 and w002, stop w003 on purpose, and kill the orchestrator."""
    command = start("up", str(world), "-n", "4", "--run-dir", str(run_dir))
    command.wait_for("4 instances ready after")
    call("save", str(run_dir), "w001", "w002")
    call("stop", str(run_dir), "w003")
    command.process.kill()
    command.wait()
    assert_nothing_runs()


def save_of(run_dir: Path, name: str) -> Path:
    (path,) = (run_dir / "worlds" / name / "checkpoints").iterdir()
    return path


@pytest.mark.usefixtures("crash")
def test_resume_shows_each_instance_with_its_save_and_runs_them(
    start: Start, call: Start, run_dir: Path
) -> None:
    save_of(run_dir, "w002").unlink()
    preview = call("resume", str(run_dir), "--dry-run")
    saved = save_of(run_dir, "w001").name
    lost = r"from the start of its run: w002-\S+\.json is missing"
    expected = (
        rf"Resuming 3 of 4 instances of {run_dir}:\n"
        r"  w000  from the start of its run: it has no save\n"
        rf"  w001  from {saved}, sim time 0, saved \d+s ago\n"
        rf"  w002  {lost}\n"
        r"Left alone: w003 \(was stopped on purpose\)\n"
    )
    assert re.fullmatch(expected, preview.out)
    assert preview.wait() == 0
    assert {one["state"] for one in read_instances(run_dir).values()} == {"interrupted", "exited"}
    command = start("resume", str(run_dir))
    command.wait_for("3 instances ready after")
    assert re.match(expected, command.out)
    assert re.search(r"^Resuming 3 instances\. Ctrl-C ", command.out, re.M)
    assert re.search(
        r"^20\S+Z w002 resuming from the start of its run: w002-\S+ is missing$", command.out, re.M
    )
    assert re.search(rf"^20\S+Z w001 resuming from {Path(saved).name}$", command.out, re.M)
    refused = call("resume", str(run_dir))
    assert refused.wait() == 1
    assert f"is held by pid {command.process.pid} " in refused.err
    # Ctrl-C is an interruption, so the next command continues.
    assert command.interrupt() == 130
    again = call("resume", str(run_dir), "--dry-run")
    assert "Resuming 3 of 4 instances of" in again.out
    assert re.search(rf"w001  from {saved}, sim time 0, [\d.]+s before it ended$", again.out, re.M)
    assert [one["restarts"] for one in read_instances(run_dir).values()] == [1, 1, 1, 0]


@pytest.mark.usefixtures("crash")
@pytest.mark.thorough
def test_resume_in_the_background_returns_when_all_are_ready(call: Start, run_dir: Path) -> None:
    command = call("resume", str(run_dir), "--detach", "--autosave", "100")
    assert command.wait() == 0
    assert re.search(r"^3 instances ready after", command.out, re.M)
    assert {name: one["state"] for name, one in read_instances(run_dir).items()} == {
        "w000": "ready",
        "w001": "ready",
        "w002": "ready",
        "w003": "exited",
    }
    assert call("stop", str(run_dir)).wait() == 0
    assert_nothing_runs()
    nothing = call("resume", str(run_dir))
    assert nothing.wait() == 1
    assert nothing.err.startswith(
        f"Error: Nothing to resume in '{run_dir}': "
        "w000, w001, w002, w003 (was stopped on purpose)\n"
        f"  hint: to resume an instance anyway: clawblox resume {run_dir} w000\n"
    )


@pytest.mark.thorough
@pytest.mark.usefixtures("crash")
def test_resume_errors_name_the_problem(
    call: Start, start: Start, tmp_path: Path, world: Path, run_dir: Path
) -> None:
    unknown = call("resume", str(run_dir), "w009")
    assert unknown.wait() == 2
    assert "no instance 'w009'" in unknown.err
    other = make_world(tmp_path, name="others")
    command = start("run", str(other), "--port", "0", "--run-dir", str(run_dir), "--name", "red")
    command.wait_for("is ready at")
    assert command.interrupt() == 130
    several = call("resume", str(run_dir))
    assert several.wait() == 2
    assert "others (red); counter (w000, w001, w002)" in several.err
    shutil.rmtree(world)
    gone = call("resume", str(run_dir), "w000")
    assert gone.wait() == 1
    assert f"The world of w000 is gone: there is no world.toml in '{world}'" in gone.err
    missing = call("resume", str(tmp_path / "nowhere"))
    assert missing.wait() == 1
    assert "does not exist" in missing.err


@pytest.mark.thorough
@pytest.mark.usefixtures("crash")
def test_up_refuses_an_interrupted_run_without_a_choice(
    start: Start, call: Start, world: Path, run_dir: Path
) -> None:
    words = ("up", str(world), "-n", "2", "--run-dir", str(run_dir))
    refused = call(*words)
    assert refused.wait() == 2
    first = f"Error: '{run_dir}' has 3 interrupted instances: w000, w001, w002\n"
    assert refused.err.startswith(first)
    assert "--continue resumes them; --fresh starts new instances" in refused.err
    nowhere = call("up", words[1], "--continue")
    assert nowhere.wait() == 2
    assert nowhere.err.startswith("Error: --continue: must be given with the run directory of the")
    goes_on = start(*words, "--continue")
    goes_on.wait_for("3 instances ready after")
    assert "Resuming 3 of 4 instances of" in goes_on.out
    assert goes_on.interrupt() == 130
    begun = {name: one["run_id"] for name, one in read_instances(run_dir).items()}
    fresh = start(*words, "--fresh")
    fresh.wait_for("2 instances ready after")
    assert fresh.interrupt() == 130
    now = {name: one["run_id"] for name, one in read_instances(run_dir).items()}
    assert [name for name in now if now[name] == begun[name]] == ["w002", "w003"]
    preview = call("resume", str(run_dir), "--dry-run")
    assert "Resuming 2 of 4 instances" in preview.out
    assert "Left alone: w002, w003 (was stopped on purpose)" in preview.out


@pytest.mark.usefixtures("crash")
@pytest.mark.thorough
def test_up_in_the_background_passes_the_choice_on(call: Start, world: Path, run_dir: Path) -> None:
    words = ("up", str(world), "--run-dir", str(run_dir), "--detach")
    assert call(*words).wait() == 2
    assert call(*words, "--continue").wait() == 0
    assert read_instances(run_dir)["w000"]["restarts"] == 1
    assert call("stop", str(run_dir)).wait() == 0


@pytest.mark.thorough
@pytest.mark.usefixtures("crash")
def test_up_asks_on_a_terminal_about_interrupted_instances(world: Path, run_dir: Path) -> None:
    words = ("up", str(world), "--run-dir", str(run_dir))
    with terminal(*words) as screen:
        screen.wait_for("Continue them, or start fresh? (c/f)")
        screen.type("x\r")
        screen.wait_for("answer c or f")
        screen.type("c\r")
        screen.wait_for("3 instances ready after")
        screen.type("\x03")
        assert screen.wait() == 130
    with terminal(*words) as screen:
        screen.wait_for("Continue them, or start fresh? (c/f)")
        screen.type("\x03")
        assert screen.wait() == 130
    with terminal(*words) as screen:
        screen.wait_for("Continue them, or start fresh? (c/f)")
        screen.type("\x04")  # the input ends
        screen.wait_for("--continue resumes them; --fresh starts new instances in their place")
        assert screen.wait() == 2
    assert [one["restarts"] for one in read_instances(run_dir).values()] == [1, 1, 1, 0]


@pytest.mark.thorough
def test_run_refuses_to_start_over_an_interrupted_world(
    start: Start, call: Start, world: Path, run_dir: Path
) -> None:
    words = ("run", str(world), "--port", "0", "--run-dir", str(run_dir))
    command = start(*words)
    command.wait_for("is ready at")
    assert command.interrupt() == 130
    begun = read_instances(run_dir)["w000"]["run_id"]
    for place in (("--run-dir", str(run_dir)), ("--record-dir", str(run_dir / "recordings"))):
        refused = call("run", str(world), "--port", "0", *place)
        assert refused.wait() == 2
        assert refused.err.startswith(
            f"Error: '{run_dir}' has 1 interrupted instance: w000\n"
            f"  hint: clawblox resume {run_dir} resumes them; --fresh starts in their place\n"
        )
    assert read_instances(run_dir)["w000"]["run_id"] == begun
    again = start(*words, "--fresh")
    again.wait_for("is ready at")
    assert read_instances(run_dir)["w000"]["run_id"] != begun
    call("save", str(run_dir))
    again.process.kill()
    again.wait()
    assert_nothing_runs()
    path = next((run_dir / "checkpoints").iterdir())
    resumed = start("resume", str(run_dir))
    resumed.wait_for("1 instance ready after")
    assert f"  w000  from {path.name}, sim time 0, " in resumed.out
    resumed.send(signal.SIGTERM)
    assert resumed.wait() == 143
    anew = start(*words, "--resume", str(path))
    anew.wait_for("is ready at")
    assert call("stop", str(run_dir)).wait() == 0
    assert anew.wait() == 0
    assert call("resume", str(run_dir)).wait() == 1


@pytest.mark.thorough
def test_an_inner_run_starts_over_together_with_the_outer_run(
    start: Start, world: Path, run_dir: Path
) -> None:
    words = ("run", str(world), "--port", "0")
    env = {"CLAWBLOX_MANIFEST_PATH": str(run_dir / ".clawblox" / "manifest.json")}
    command = start(*words, env=env)
    command.wait_for("is ready at")
    command.wait_for("Spectator frontend")
    saved = start("save", str(run_dir))
    assert saved.wait() == 0
    assert command.interrupt() == 130
    again = start(*words, env=env)
    again.wait_for("is ready at")
    assert "This run starts over.\nTo continue from its last save: --resume " in again.err
    assert again.interrupt() == 130


def test_up_asks_no_question_without_interrupted_instances(tmp_path: Path) -> None:
    assert choose(tmp_path, None) == "fresh"
    assert choose(tmp_path, "continue") == "continue"


def test_choose_names_the_command_with_details(tmp_path: Path, run_dir: Path) -> None:
    journal = run_dir / ".clawblox" / "instances" / "records.jsonl"
    journal.parent.mkdir(parents=True)
    record = {
        **dict.fromkeys(("world", "world_dir", "host", "base_path", "url", "boot_id"), "x"),
        **dict.fromkeys(("cookie", "command_file", "log_file", "control"), "x"),
        **dict.fromkeys(("port", "pid", "start_time", "log_start", "restarts"), 0),
        **dict.fromkeys(("index", "ended_at", "resume_path", "exit"), None),
        "instance_dir": str(run_dir),
        "state": "interrupted",
        "started_at": "2026-06-22T18:59:25Z",
        "is_detached": False,
        "orchestrator_pid": os.getppid(),
    }
    names = [f"w{at:03}" for at in range(10)]
    journal.write_text("".join(json.dumps({**record, "name": name}) + "\n" for name in names))
    with pytest.raises(UsageError, match=r"w007 and 2 more") as caught:
        choose(run_dir, None)
    assert f"clawblox resume {run_dir} --dry-run" in str(caught.value)
