"""The keys of live tables on real terminals, and the modes of the terminal at the end."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands.test_experiment import KEYS, write_plan
from tests.cli.conftest import Start
from tests.support.processes import marked_processes
from tests.support.terminals import CTRL_C, Terminal, terminal
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import make_world

UP, DOWN, ENTER, ESCAPE, CTRL_Z = "\x1b[A", "\x1b[B", "\r", "\x1b", "\x1a"

pytestmark = pytest.mark.thorough


@pytest.fixture
def table(tmp_path: Path, run_dir: Path) -> Iterator[Terminal]:
    """Run two instances in a table."""
    world = make_world(tmp_path)
    with terminal("up", str(world), "-n", "2", "--run-dir", str(run_dir)) as one:
        one.wait_for("2 instances ready after")
        one.wait_for("w001  ready")
        yield one


@pytest.fixture
def running(tmp_path: Path, run_dir: Path, start: Start) -> Iterator[Path]:
    """Run an instance without a table; return its run directory."""
    command = start("up", str(make_world(tmp_path)), "--run-dir", str(run_dir))
    command.wait_for("1 instance ready after")
    yield run_dir
    command.interrupt()


def end(one: Terminal) -> None:
    """Type Ctrl-C, and check the remains of the table."""
    one.type(CTRL_C)
    assert one.wait() == 130
    one.assert_left_clean()
    assert not one.displays("▸")
    assert not one.displays("? shows the keys")


def test_a_row_is_selected_and_its_log_is_shown(table: Terminal) -> None:
    table.wait_for("? shows the keys")
    assert not table.echoes
    table.type(DOWN + DOWN + ENTER)
    table.wait_for("▸ w001")
    table.wait_for("w001: ")
    table.wait_for("Spectator frontend: http://")
    assert sum("Spectator" in line for line in table.screen) == 1
    table.type(UP)
    table.wait_for("▸ w000")
    table.type("a")
    table.wait_for("has no agents")
    table.type("?")
    table.wait_for("s save · f fork · r restart · x stop")
    end(table)
    assert not marked_processes()


def test_a_filter_hides_rows_until_escape(table: Terminal) -> None:
    table.type("/w000" + ENTER)
    table.wait_for("filter: w000 · ? shows the keys")
    assert [line[:4] for line in table.screen if "  ready  " in line] == ["w000"]
    table.type(ESCAPE)
    table.wait_for("w001  ready")
    end(table)


def test_table_actions_do_the_same_as_the_commands(
    table: Terminal, run_dir: Path, call: Start
) -> None:
    table.type(DOWN + "s")
    table.wait_for("w000: saved ")
    table.type("f")
    table.wait_for("w002: forked from w000, ready at http://")
    table.type("r")
    table.wait_for("w000: restarted from ")
    table.type("x")
    table.wait_for("stop w000? (y/n)")
    table.type("n")
    wait_until(lambda: not table.displays("(y/n)"))
    table.type("xy")
    table.wait_for("w000: stopped in ")
    assert "exited" in call("ps", str(run_dir)).out
    table.type("r")
    table.wait_for("w000: restart failed: instance 'w000' is not ready, or was stopped")
    assert table.displays("w001  ready")
    end(table)


def test_the_log_of_a_hostile_world_is_made_printable(tmp_path: Path, run_dir: Path) -> None:
    world = make_world(tmp_path)
    program = world / "loud.py"
    program.write_text(
        "import sys, time\nsys.stdout.write('\\x1b]0;owned\\x07\\x1b[2Jhostile ' + 'x' * 5000)\n"
        "print(flush=True)\nimport http.server as h\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers(); self.wfile.write(b'# API')\n"
        "    def log_message(self, *args): pass\n"
        "import os\n"
        "h.ThreadingHTTPServer(('127.0.0.1', int(os.environ['WORLD_PORT'])), H).serve_forever()\n"
    )
    command = f"command = [{str(sys.executable)!r}, 'loud.py']"
    (world / "world.toml").write_text(f"name = 'loud'\n[run]\n{command}\n".replace("'", '"'))
    with terminal("up", str(world), "--run-dir", str(run_dir)) as one:
        one.wait_for("w000  ready")
        one.type(DOWN + ENTER)
        one.wait_for("\\x1b]0;owned\\x07\\x1b[2Jhostile xxx")
        assert max(map(len, one.screen)) < 100
        assert "\x1b]0" not in one.written
        end(one)


def test_keys_are_read_only_from_a_terminal(tmp_path: Path, run_dir: Path) -> None:
    world = make_world(tmp_path)
    program = ("sh", "-c", 'exec "$0" "$@" </dev/null', sys.executable, "-m", "clawblox")
    with terminal("up", str(world), "--run-dir", str(run_dir), program=program) as one:
        one.wait_for("1 instance ready after")
        assert one.echoes
        assert not one.displays("? shows the keys")
        one.type(CTRL_C)
        assert one.wait() == 130


# -- the modes of the terminal --------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
def test_a_signal_that_ends_a_watched_table_restores_the_terminal(
    running: Path, number: signal.Signals
) -> None:
    with terminal("ps", "-w", str(running)) as one:
        one.wait_for("? shows the keys")
        assert not one.echoes
        one.process.send_signal(number)
        assert one.wait() == (130 if number == signal.SIGINT else -number)
        assert one.modes_are_restored


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_stops_instances_restores_the_terminal(
    table: Terminal, number: signal.Signals
) -> None:
    table.process.send_signal(number)
    assert table.wait() == 128 + number
    table.assert_left_clean()


def test_the_end_of_the_instances_restores_the_terminal(table: Terminal) -> None:
    table.type(DOWN + "xy")
    table.wait_for("w000: stopped in")
    table.type(DOWN + "xy")
    assert table.wait() == 0
    table.assert_left_clean()


def test_an_error_restores_the_terminal(tmp_path: Path) -> None:
    world = make_world(tmp_path, "--exit-at-once", "4")
    with terminal("up", str(world)) as one:
        assert one.wait() == 1
        assert one.modes_are_restored


def test_command_that_kills_itself_restores_the_terminal(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, threading\n"
        "from clawblox.cli import main\n"
        "from clawblox.cli.running import runner\n"
        "from clawblox.telemetry import log_watch\n"
        "runner._LAST_RESORT_S = 0.2\n"
        "def hang(*_):\n"
        "    pathlib.Path('stuck').touch()\n"
        "    threading.Event().wait()\n"
        "log_watch._look_at = hang\n"
        "main(sys.argv[1:])\n"
    )
    world = make_world(tmp_path)
    with terminal("up", str(world), program=(sys.executable, "-c", code)) as one:
        wait_until(Path("stuck").exists, HANG_S, what="a thread is stuck")
        assert not one.echoes
        one.type(CTRL_C)
        one.wait_for("Stopping all instances")
        one.type(CTRL_C)
        assert one.wait() == 130
        assert one.modes_are_restored
    wait_until(lambda: not marked_processes(), what="the guard ends the world")


def test_ctrl_z_restores_the_terminal_until_the_command_continues(running: Path) -> None:
    # This shell does not change the modes of a terminal.
    with terminal(program=("sh", "-i"), env={"PS1": "", "ENV": ""}) as shell:
        shell.type(shlex.join([sys.executable, "-m", "clawblox", "ps", "-w", str(running)]) + "\n")
        for _ in range(2):
            wait_until(lambda: not shell.echoes, HANG_S, what="the table reads keys")
            shell.wait_for("? shows the keys")
            shell.type(DOWN)
            shell.wait_for("▸ w000")
            shell.type(CTRL_Z)
            wait_until(lambda: shell.echoes, HANG_S, what="the terminal echoes")
            shell.type("echo a$((1 + 1))b\n")
            shell.wait_for("a2b")
            shell.type("clear; fg\n")
        wait_until(lambda: not shell.echoes, HANG_S, what="the table reads keys")
        shell.wait_for("▸ w000")
        shell.type(CTRL_C)
        wait_until(lambda: shell.echoes, HANG_S)
        shell.type("exit 7\n")
        assert shell.wait() == 7


# -- experiments ----------------------------------------------------------------------------------


def test_the_chains_of_an_experiment_are_shown_forked_and_stopped(tmp_path: Path) -> None:
    write_plan(tmp_path / "cwd", duration="60s")
    with terminal("experiment", "run", "exp.toml", env=KEYS) as one:
        one.wait_for("working")
        one.type(DOWN + ENTER)
        one.wait_for("▸ r1")
        one.wait_for("w000.log")
        one.type("a")
        one.wait_for("agents of r1")
        one.wait_for("Eko")
        one.type("f")
        one.wait_for("fork failed: ")
        one.type("?")
        one.wait_for("f fork · p pause · x stop")
        one.type("xy")
        one.wait_for("resume:   clawblox experiment resume experiments/memory")
        one.wait()
        one.assert_left_clean()


def test_pause_key_pauses_an_experiment_of_another_process(tmp_path: Path, start: Start) -> None:
    write_plan(tmp_path / "cwd", duration="60s")
    run = start("experiment", "run", "exp.toml", env=KEYS)
    run.wait_for("r1 generation 1 works")
    with terminal("experiment", "status", "-w", "experiments/memory") as one:
        one.wait_for("? shows the keys")
        one.type("p")
        one.type(DOWN + "p")
        one.wait_for("r1: pauses at a checkpoint")
        assert one.wait() == 0
        one.assert_left_clean()
    run.wait()
