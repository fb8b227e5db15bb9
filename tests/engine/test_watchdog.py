"""The watchdog: limits on CPU time and memory for scripts within the step and heap limits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clawblox import World, WorldExitedError
from clawblox.engine.errors import SettingsError
from clawblox.engine.settings import read_settings
from clawblox.engine.watchdog.watcher import Slot, open_slot_file
from clawblox.luau import VM, Places
from clawblox.protocol import WATCHDOG_MARK, WATCHDOG_STATUS
from clawblox.rundir.status import read_run
from tests.support.processes import is_alive
from tests.support.waiting import HANG_S, wait_until

HOME = Path(__file__).parent
HUGE = 1 << 50
CPU = "more than 0.2 s of CPU time in one tick or call ([clawblox] watchdog_cpu_s in world.toml)"
STOPPED = "the watchdog stopped the script"


class Watched:
    """A watched world, in its own process.

    Attributes:
        process: The world.
        helper: Process id of its watchdog.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.helper = int(process.stdout.readline())

    def read_line(self) -> str:
        """Return the next line of the world that was not printed by a script."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def end(self) -> int:
        """Let the world end; return its status."""
        _, _ = self.process.communicate(timeout=HANG_S)
        return self.process.returncode


@contextmanager
def watched(
    directory: Path, main: str, memory: int = HUGE, cpu_s: float = 0.2, patience_s: float = 600
) -> Iterator[Watched]:
    (directory / "main.lua").write_text(main)
    command = [sys.executable, str(HOME / "watched.py"), str(directory), str(cpu_s)]
    command += [str(memory), str(patience_s)]
    with (directory / "errors").open("w") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HOME.parent.parent)},
        )
    try:
        yield Watched(process)
    finally:
        process.kill()
        process.communicate()


def test_watchdog_halts_an_endless_script_and_names_script_and_line(tmp_path):
    with watched(tmp_path, "print(1)\nwhile true do\nend\n") as world:
        assert world.read_line() == "[tick 0] [Lua] 1"
        line = world.read_line()
        assert re.match(r"halted: Failed to load script: main\.lua:[23]: ", line)
        assert f"{STOPPED}: {CPU}; another run may not stop here" in line
        assert not is_alive(world.helper)  # scripts no longer run
        assert world.end() == 0


@pytest.mark.thorough
def test_pcall_cannot_catch_the_watchdog(tmp_path):
    main = "task.wait()\nwhile true do pcall(function() while true do end end) end"
    with watched(tmp_path, main) as world:
        assert re.match(rf"halted: Begin frame error: main\.lua:2: {STOPPED}", world.read_line())


@pytest.mark.thorough
def test_call_without_charge_points_halts_the_world_at_its_end(tmp_path):
    with watched(tmp_path, "local n = 1\nwait_for_the_watchdog()") as world:
        line = world.read_line()
        assert re.match(rf"halted: Failed to load script: main\.lua:[12]: {STOPPED}", line)


@pytest.mark.thorough
def test_endless_call_ends_the_process_with_a_status_and_the_last_known_line(tmp_path):
    with watched(tmp_path, "local n = 1\nfor i = 1, 3 do\nsearch()\nend", patience_s=0.1) as world:
        assert world.end() == WATCHDOG_STATUS
        wait_until(lambda: not is_alive(world.helper))
    reason = f"{WATCHDOG_MARK}{CPU}; last known line: main.lua:"
    assert re.fullmatch(rf"{re.escape(reason)}[123]\n", (tmp_path / "errors").read_text())


@pytest.mark.thorough
def test_process_over_the_memory_limit_stops_at_its_next_charge_point(tmp_path):
    fill = "local t = {}\nwhile true do t[#t + 1] = string.rep('x', 1000) .. #t end"
    with watched(tmp_path, fill, memory=200 << 20, cpu_s=60) as world:
        line = world.read_line()
        assert re.match(
            rf"halted: Failed to load script: main\.lua:2: {STOPPED}: its process", line
        )
        assert "its process has more than 200 MiB of memory" in line
        assert "([clawblox] watchdog_memory_mib in world.toml)" in line


@pytest.mark.thorough
def test_unresponsive_process_over_the_memory_limit_is_ended(tmp_path):
    main = "local long = string.rep('x', 2e8)\nsearch()"
    with watched(tmp_path, main, memory=200 << 20, cpu_s=60, patience_s=0.1) as world:
        assert world.end() == WATCHDOG_STATUS
    assert "its process has more than 200 MiB of memory" in (tmp_path / "errors").read_text()


@pytest.mark.thorough
def test_watchdog_ignores_calls_that_end_in_time(tmp_path):
    with watched(tmp_path, "for i = 1, 1000 do end") as world:
        assert world.read_line() == "played"
        assert is_alive(world.helper)
        assert world.end() == 0
        assert not is_alive(world.helper)
    assert (tmp_path / "errors").read_text() == ""


@pytest.mark.thorough
def test_watchdog_helper_ends_when_its_world_is_killed(tmp_path):
    with watched(tmp_path, "") as world:
        assert world.read_line() == "played"
        assert is_alive(world.helper)
        os.kill(world.process.pid, signal.SIGKILL)
        world.process.wait()
        wait_until(lambda: not is_alive(world.helper))


@pytest.mark.thorough
def test_watchdog_helper_sleeps_between_checks(tmp_path):
    with watched(tmp_path, "") as world:
        assert world.read_line() == "played"
        stat = Path(f"/proc/{world.helper}/stat")
        wait_until(lambda: stat.read_text().rpartition(") ")[2].startswith("S"))


# --------------------------------------------------------------------- as it is supervised

ENDLESS = """
local folder = Instance.new("Folder", workspace)
folder:SetAttribute("ticks", 0)
game:GetService("RunService").Heartbeat:Connect(function()
    folder:SetAttribute("ticks", folder:GetAttribute("ticks") + 1)
end)
game:GetService("Players").PlayerAdded:Connect(function(player)
    while player.Name == "Jonah" do WORK end
end)
"""
HOLDER = """
import math, re
math.frexp = lambda number: re.match("(a+)+$", "a" * 60 + "b")
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("work", "said"),
    [
        ("", "Failed to fire PlayerAdded: main.lua:8: the watchdog stopped the script: more than"),
        ("math.frexp(2)", "the watchdog ended it: more than 1 s of CPU time in one tick or call"),
    ],
    ids=["stopped", "ended"],
)
def test_the_supervisor_names_the_watchdog_and_the_line_and_resumes_the_last_save(
    work, said, tmp_path
):
    directory = tmp_path / "endless"
    directory.mkdir()
    (directory / "main.lua").write_text(ENDLESS.replace("WORK", work))
    limits = f"watchdog_cpu_s = 1\nsteps_per_tick = {1 << 60}"
    (directory / "world.toml").write_text(f'name = "endless"\n[clawblox]\n{limits}\n')
    (tmp_path / "sitecustomize.py").write_text(HOLDER)
    env = {"PYTHONPATH": str(tmp_path)}
    with World(dir=directory) as world:
        batch = world.start_many(1, run_dir=tmp_path / "run", datastore="none", env=env)
        batch.raise_if_failed()
        saved = world.save()
        with pytest.raises(WorldExitedError, match=re.escape(said)):
            world.join("Jonah", timeout=60)
        world.wait()
    (status,) = read_run(tmp_path / "run").instances
    assert status.state == "halted"
    assert said in str(status.halt)
    assert re.search("main.lua:[78]", str(status.halt))
    with World(dir=directory) as world:
        (resumed,) = world.resume_all(tmp_path / "run", env=env).done.values()
        assert resumed.resume_path == saved.path
        world.stop(grace_seconds=5)


# ------------------------------------------------------------------------------- its parts


def test_slot_is_shared_between_processes_and_its_text_is_printable():
    descriptor = open_slot_file()
    ours, theirs = Slot(descriptor), Slot(descriptor)
    os.close(descriptor)
    assert (theirs.call, theirs.asked, theirs.place) == (0, (0, 0), "")
    ours.call, ours.place = 7, "a\x1b[2J.lua:3"
    theirs.asked = 7, 1
    assert (theirs.call, ours.asked, theirs.place) == (7, (7, 1), "a?[2J.lua:3")
    ours.place = "x" * 5000
    assert theirs.place == "x" * 512
    ours.close()
    theirs.close()


def test_the_observer_sees_each_call_and_each_thousand_steps():
    vm = VM()
    places: list[str | None] = []
    known = Places()
    vm.observer = lambda frame: places.append(known.find(frame))
    vm.call(vm.load("local n = 0\nwhile n < 2500 do\nn += 1\nend", "=a"))
    vm.call(vm.load("for i = 1, 2500 do end\nfor i = 1, 100 do end", "=b"))
    assert places == ["a:2", "a:2", "a:2", "b:1"]


def test_interrupt_raises_its_reason_and_ends_the_batch_of_steps():
    vm = VM()
    seen: list[object] = []

    def interrupt(*_: object) -> None:
        vm.interrupt("enough")

    vm.globals["interrupt"] = interrupt
    vm.globals["note"] = seen.append
    function = vm.load("interrupt()\nfor i = 1, 10 do note(i) end", "=a")
    with pytest.raises(Exception, match="a:2: enough"):
        vm.call(function)
    assert seen == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("watchdog_cpu_s = 0.5", "clawblox.watchdog_cpu_s must be a finite number, 1 or more, not"),
        ("watchdog_cpu_s = inf", "must be a finite number, 1 or more, not inf"),
        ("watchdog_cpu_s = '9'", "must be a finite number, 1 or more, not '9'"),
        ("watchdog_memory_mib = 0", "watchdog_memory_mib must be a whole number above 0, not 0"),
    ],
)  # fmt: skip
def test_invalid_watchdog_limit_names_its_key(tmp_path, text, complaint):
    (tmp_path / "main.lua").write_text("")
    (tmp_path / "world.toml").write_text(f'name = "w"\n[clawblox]\n{text}\n')
    with pytest.raises(SettingsError, match=re.escape(complaint)):
        read_settings(tmp_path)


def test_the_memory_limit_of_the_watchdog_follows_the_heap(tmp_path):
    (tmp_path / "main.lua").write_text("")
    for text, mib in (("", 2048), ("memory_mib = 1024", 4096), ("watchdog_memory_mib = 700", 700)):
        (tmp_path / "world.toml").write_text(f'name = "w"\n[clawblox]\n{text}\n')
        settings = read_settings(tmp_path)
        assert settings.watchdog_memory_bytes == mib << 20
        assert settings.watchdog_cpu_s == 10.0
