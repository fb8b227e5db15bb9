"""``clawblox restart``, and the notes of ``logs`` about restarts."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from clawblox.rundir.records import close_stale_records
from tests.cli.conftest import Served, Start, read_instances
from tests.support.processes import is_alive
from tests.support.sockets import is_listening
from tests.support.waiting import wait_until
from tests.support.worlds import ask, make_world

Serve = Callable[..., Served]
NAMES = ["w000", "w001", "w002"]


def saves_of(run_dir: Path, name: str) -> list[Path]:
    return sorted((run_dir / "worlds" / name / "checkpoints").glob("*.json"))


def test_restart_saves_the_named_instance_and_restores_it(
    up: Start, start: Start, call: Start, run_dir: Path
) -> None:
    command = up()
    following = start("logs", str(run_dir), "-f")
    wait_until(lambda: following.out.count("Spectator frontend") == 3, what="all logs are read")
    before = read_instances(run_dir)
    restarted = call("restart", str(run_dir), "w001")
    assert (restarted.wait(), restarted.err) == (0, "")
    (save,) = saves_of(run_dir, "w001")
    url = re.escape(before["w001"]["url"])
    line = rf"w001: restarted from \S*{save.name}, ready at {url} \([\d.]+s\)\n"
    assert re.fullmatch(line, restarted.out)
    after = read_instances(run_dir)
    assert [after[name]["restarts"] for name in NAMES] == [0, 1, 0]
    assert not is_alive(before["w001"]["pid"])
    command.wait_for(f" w001 restarting from {save.name}")
    following.wait_for(f"w001 -- restarted from checkpoints/{save.name} --")
    wait_until(lambda: following.out.count("Spectator frontend") == 4, what="its log goes on")
    assert command.interrupt() == 130
    assert following.wait() == 0
    ours = [line for line in following.out.splitlines() if re.match(r"w\d+ -- ", line)]
    assert ours[:2] == [
        "w001 -- stopped: exit status 0 --",
        f"w001 -- restarted from checkpoints/{save.name} --",
    ]
    assert sorted(ours[2:]) == [f"{name} -- stopped: exit status 0 --" for name in NAMES]
    merged = call("logs", str(run_dir), "-t").out.splitlines()
    times = [found[1] for line in merged if (found := re.search(r" (\d{4}-\S+Z) ", line))]
    assert len(times) == len(merged) == len(following.out.splitlines())
    assert times == sorted(times)


@pytest.mark.thorough
def test_restart_without_names_restarts_running_and_dead_instances(
    up: Start, call: Start, run_dir: Path
) -> None:
    command = up()
    os.kill(read_instances(run_dir)["w002"]["pid"], signal.SIGKILL)
    command.wait_for(" w002 ended by itself")
    wait_until(lambda: read_instances(run_dir)["w002"]["state"] == "exited", what="it is put away")
    restarted = call("restart", str(run_dir), "--fresh", "--json")
    assert (restarted.wait(), restarted.err) == (0, "")
    found = json.loads(restarted.out)
    assert [one["instance"] for one in found] == NAMES
    assert all(one["error"] is None and one["resume_path"] is None for one in found)
    after = read_instances(run_dir)
    assert {name: after[name]["state"] for name in NAMES} == dict.fromkeys(NAMES, "ready")
    assert [one["url"] for one in found] == [after[name]["url"] for name in NAMES]
    assert not any(saves_of(run_dir, name) for name in NAMES)
    lines = call("logs", str(run_dir), "w002", "--json").out.splitlines()
    events = [event for line in lines if (event := json.loads(line)["event"])]
    assert events == ["exited", "restarted"]
    assert call("logs", str(run_dir), "w002", "--grep", "SIGKILL").out == (
        "-- exited: killed by SIGKILL (by a person, a program, or for lack of memory) --\n"
    )
    assert command.interrupt() == 130


@pytest.mark.thorough
def test_failed_restart_ends_only_its_instance(
    up: Start, call: Start, run_dir: Path, tmp_path: Path
) -> None:
    command = up()
    refused = tmp_path / "of-another-world.json"
    refused.write_text('{"format": "none"}')
    restarted = call("restart", str(run_dir), "w001", "--resume", str(refused))
    assert restarted.wait() == 1
    assert restarted.err.startswith("w001: not restarted: ")
    command.wait_for("w001 will not be restarted: its restart failed")
    assert call("save", str(run_dir), "w000", "w002").wait() == 0
    assert [read_instances(run_dir)[name]["state"] for name in NAMES] == [
        "ready",
        "exited",
        "ready",
    ]
    again = call("restart", str(run_dir), "w000", "w001")
    assert (again.wait(), again.err) == (0, "")
    assert [read_instances(run_dir)[name]["state"] for name in NAMES] == ["ready"] * 3
    assert command.interrupt() == 130
    assert "display failed" not in command.err


@pytest.mark.thorough
def test_restart_takes_a_snapshot_and_a_seed(up: Start, call: Start, run_dir: Path) -> None:
    command = up(toml_extra="reseed = true")
    assert call("save", str(run_dir), "w001").wait() == 0
    (save,) = saves_of(run_dir, "w001")
    resume = ("--resume", os.path.relpath(save))
    restarted = call("restart", str(run_dir), "w001", *resume, "--reseed", "9")
    assert (restarted.wait(), restarted.err) == (0, "")
    assert restarted.out.startswith("w001: restarted from ")
    assert saves_of(run_dir, "w001") == [save]
    assert read_instances(run_dir)["w001"]["seed"] == 9
    for words, message in [
        (("--save",), "--save: must be left out with --resume"),
        (("--fresh",), "resume: must be left out with fresh"),
    ]:
        refused = call("restart", str(run_dir), *resume, *words)
        assert refused.wait() == 2, words
        assert message in refused.err
    assert command.interrupt() == 130


@pytest.mark.thorough
def test_an_instance_that_cannot_be_saved_keeps_running(
    up: Start, call: Start, run_dir: Path
) -> None:
    command = up()
    before = read_instances(run_dir)
    ask(before["w001"]["port"], "POST", "/__set?snapshot=empty")
    restarted = call("restart", str(run_dir), "w000", "w001")
    assert restarted.wait() == 1
    assert restarted.err.startswith("w001: not restarted: ")
    assert restarted.out.startswith("w000: restarted from ")
    assert read_instances(run_dir)["w001"]["pid"] == before["w001"]["pid"]
    again = call("restart", str(run_dir), "w001", "--no-save")
    assert (again.wait(), again.err) == (0, "")
    assert again.out.startswith("w001: restarted fresh, ready at ")
    assert command.interrupt() == 130


@pytest.mark.thorough
def test_a_world_in_the_foreground_is_restarted_and_its_output_continues(
    serve: Serve, call: Start
) -> None:
    served = serve()
    restarted = call("restart", served.run_dir)
    assert (restarted.wait(), restarted.err) == (0, "")
    wait_until(lambda: served.command.out.count("counter world, process") == 2, what="its output")
    assert is_listening(served.port)
    assert served.command.interrupt() == 130


@pytest.mark.thorough
def test_restart_is_refused_without_an_orchestrator(serve: Serve, call: Start) -> None:
    served = serve()
    served.command.interrupt()
    named = call("restart", served.run_dir, "w000")
    assert named.wait() == 1
    assert named.err.startswith("w000: not restarted: its orchestrator is no longer running")
    assert f"clawblox resume {served.run_dir} w000" in named.err
    every = call("restart", served.run_dir)
    assert every.wait() == 1
    assert every.err.startswith(
        f"Error: no orchestrator is running in {served.run_dir}, so nothing can "
    )
    contradiction = call("restart", served.run_dir, "--fresh", "--save")
    assert contradiction.wait() == 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--grep", "("),
            "must be a regular expression, not '(': missing ), unterminated subpattern",
        ),
        (
            ("--since", "yesterday"),
            "must be a duration like 90s, 10m, 2h or 1d, or a UTC time like ",
        ),
        (("--since", "10"), ", not '10'"),
        (("--since", "999999999d"), ", not '999999999d'"),
    ],
)
def test_restart_refuses_unknown_instances_and_contradicting_options(
    call: Start, words: tuple[str, ...], message: str
) -> None:
    refused = call("logs", ".", *words)
    assert refused.wait() == 2
    assert message in refused.err


@pytest.mark.thorough
def test_logs_selects_by_time_and_by_pattern(serve: Serve, call: Start) -> None:
    served = serve("--flood-lines", "300")
    served.command.interrupt()
    everything = call("logs", served.run_dir).out
    for since in ("1h30m", "2020-01-01", "2020-01-01T00:00:00Z"):
        assert call("logs", served.run_dir, "--since", since).out == everything
    assert call("logs", served.run_dir, "--since", "2999-01-01").out == ""
    assert call("logs", served.run_dir, "--since", "0s").out == ""
    found = call("logs", served.run_dir, "--grep", "(?i)SPECTATOR|stopped$", "-n", "2").out
    assert found.splitlines()[0].startswith("Spectator frontend")
    assert found.splitlines()[1:] == ["stopped"]
    (index,) = Path(served.world, ".clawblox", "logs").glob("*.index")
    index.unlink()
    blank = call("logs", served.run_dir, "-t", "-n", "1")
    assert blank.out == f"{'':24} stopped\n"
    assert blank.err == "No times are known for the logs of: w000\n"


@pytest.mark.thorough
@pytest.mark.parametrize("notice", ["start", "stop"])
def test_logs_have_a_note_after_an_interruption(
    up: Start, call: Start, run_dir: Path, notice: str
) -> None:
    command = up()
    before = read_instances(run_dir)
    command.process.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(is_alive(one["pid"]) for one in before.values()), what="they end")
    assert call("restart", str(run_dir), "w001").wait() == 1
    if notice == "stop":
        call("stop", str(run_dir))
    else:
        close_stale_records(run_dir)
    lines = [
        json.loads(line) for line in call("logs", str(run_dir), "w001", "--json").out.splitlines()
    ]
    assert lines[0]["text"].startswith("counter world")
    ours = [line["text"] for line in lines if line["event"] is not None]
    assert ours == ["interrupted: its orchestrator was killed"]


@pytest.mark.thorough
def test_logs_have_a_note_about_the_stop_of_a_detached_instance(
    tmp_path: Path, call: Start
) -> None:
    run = tmp_path / "run"
    started = call("up", str(make_world(tmp_path)), "--detach", "--run-dir", str(run))
    assert started.wait() == 0
    call("stop", str(run))
    found = call("logs", str(run)).out.splitlines()
    assert found[-1].startswith("-- stopped")
