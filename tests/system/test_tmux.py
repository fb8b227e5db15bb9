"""Instances in windows of a real tmux server, whose files are in a directory of the test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import clawblox.system.tmux
from clawblox import (
    AsyncWorld,
    StartedWorld,
    WorldCommandError,
    WorldExitedBeforeReadyError,
    WorldStartError,
)
from clawblox.rundir.records import read_records
from clawblox.system.tmux import TmuxError, close_window, open_window
from tests.support.processes import (
    command_line,
    descendants,
    is_alive,
    live_processes,
    marked_processes,
)
from tests.support.sockets import is_listening
from tests.support.tmux import SESSION, Tmux, pane, windows
from tests.support.waiting import HANG_S, wait_until, wait_until_async
from tests.support.worlds import MISBEHAVING, ask, make_world

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.needs("tmux"),
]

CANARY = "canary-5d0b7c1e9a3f4286"


async def start(world: AsyncWorld, tmp_path: Path, **arguments: Any) -> StartedWorld:
    return await world.start(**{"run_dir": tmp_path / "run", "_tmux_session": SESSION, **arguments})


# --------------------------------------------------------------------------------- windows


async def test_the_session_is_created_and_ends_with_its_only_window(
    tmp_path: Path, tmux: Tmux
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await start(world, tmp_path)
        assert windows(tmux) == ["world-0"]
        assert ask(started.port, "GET", "/api.md").status == 200
        assert (await world.save())["format"] == "counter-v1"
        result = await world.stop()
        assert result.rung == "terminated"
        assert result.exit is not None
        assert result.exit.status == 0
        assert windows(tmux) == []
        assert not is_listening(started.port)
        assert not marked_processes()
    left = {path.name for path in (tmp_path / "run" / "logs").iterdir()}
    assert left == {"w000.log", "w000.log.index"}


async def test_the_window_shows_control_characters_of_the_world_as_escapes(
    tmp_path: Path, tmux: Tmux
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await start(world, tmp_path)
        with started.log_file.open("ab") as log:
            log.write(b"\x1b]0;title\x07\x1b[2Jone \xc3\xa9\r\n\xe2\x80\xaetwo\n")
        await wait_until_async(lambda: r"\u202etwo" in pane(tmux, "world-0"))
        shown = pane(tmux, "world-0")
        assert r"\x1b]0;title\x07\x1b[2Jone é" in shown
        assert "title" not in tmux("list-panes", "-a", "-F", "#{pane_title}")


async def test_a_session_that_exists_keeps_its_windows(tmp_path: Path, tmux: Tmux) -> None:
    tmux("new-session", "-d", "-s", SESSION, "-n", "mine", "sleep 60")
    tmux("new-session", "-d", "-s", f"{SESSION}-2", "-n", "other", "sleep 60")
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await start(world, tmp_path)
        assert windows(tmux) == ["mine", "world-0"]
        assert windows(tmux, f"{SESSION}-2") == ["other"]
    assert windows(tmux) == ["mine"]


async def test_a_session_whose_name_has_the_same_prefix_is_not_used(
    tmp_path: Path, tmux: Tmux
) -> None:
    tmux("new-session", "-d", "-s", f"{SESSION}-2", "-n", "other", "sleep 60")
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await start(world, tmp_path)
        assert windows(tmux) == ["world-0"]
        assert windows(tmux, f"{SESSION}-2") == ["other"]


@pytest.mark.thorough
async def test_further_instances_have_the_next_numbers(tmp_path: Path, tmux: Tmux) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await start(world, tmp_path, name="first")
        await start(world, tmp_path, name="second")
        assert windows(tmux) == ["world-0", "world-1"]
        await world.stop(instance="first")
        assert windows(tmux) == ["world-1"]
        await start(world, tmp_path, name="third")
        assert sorted(windows(tmux)) == ["world-0", "world-1"]


@pytest.mark.thorough
async def test_instances_that_start_together_share_the_new_session(
    tmp_path: Path, tmux: Tmux
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(start, world, tmp_path)
        assert sorted(windows(tmux)) == ["world-0", "world-1", "world-2", "world-3"]


@pytest.mark.thorough
async def test_the_next_start_reuses_the_window_name(tmp_path: Path, tmux: Tmux) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        for _ in range(5):
            await start(world, tmp_path)
            assert windows(tmux) == ["world-0"]
            await world.stop(grace_seconds=1)
            assert windows(tmux) == []


async def test_sidecars_have_windows_that_end_with_the_world(tmp_path: Path, tmux: Tmux) -> None:
    sidecars: Mapping[str, list[str]] = {"frontend": [], "feed": []}

    def programs() -> list[str]:
        commands = [command_line(pid) for pid in marked_processes()]
        return [command for command in commands if command.startswith(sys.executable)]

    async with AsyncWorld(dir=make_world(tmp_path, sidecars=sidecars)) as world:
        started = await start(world, tmp_path)
        assert windows(tmux) == ["world-0", "frontend", "feed"]
        await wait_until_async(lambda: len(programs()) == 3)
        assert (await world.stop()).rung == "terminated"
        assert windows(tmux) == []
    logs = {path.name for path in started.log_file.parent.iterdir()}
    assert logs == {"w000.log", "w000.log.index", "w000-frontend.log", "w000-feed.log"}


HOSTILE = """
set-option -g remain-on-exit on
set-option -g automatic-rename on
set-option -g allow-rename on
set-option -g base-index 7
set-option -g default-command 'sleep 60'
"""


async def test_user_configuration_neither_renames_nor_keeps_the_window(
    tmp_path: Path, tmux: Tmux
) -> None:
    (tmp_path / "home" / ".tmux.conf").write_text(HOSTILE)
    tmux("new-session", "-d", "-s", "other")
    assert tmux("show-options", "-g", "-v", "base-index") == ["7"]
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await start(world, tmp_path)
        for option in ("automatic-rename", "allow-rename", "remain-on-exit"):
            assert tmux("show-options", "-w", "-v", "-t", f"={SESSION}:=world-0", option) == ["off"]
        os.kill(world_process(started), signal.SIGKILL)
        await wait_until_async(lambda: windows(tmux) == [])
        assert windows(tmux, "other") != []


def world_process(started: StartedWorld) -> int:
    """Return the world's process, which is a child of the window's shell."""
    family = {pid: command_line(pid) for pid in descendants(started.pid)}
    (found,) = [pid for pid, command in family.items() if str(MISBEHAVING) in command]
    return found


async def test_a_window_that_a_person_closes_ends_its_world(tmp_path: Path, tmux: Tmux) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        started = await start(world, tmp_path)
        tmux("kill-window", "-t", f"={SESSION}:=world-0")
        with anyio.fail_after(HANG_S):
            async for event in events:
                if event.kind == "exited":
                    break
        await world.stop()
        assert not is_listening(started.port)
        assert not marked_processes()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["w #S #{pane_id} ## d", 'it\'s "q" $HOME', "a;b {c} ~"])
async def test_a_directory_may_have_any_name(tmp_path: Path, tmux: Tmux, name: str) -> None:
    dump = tmp_path / "dump.json"
    async with AsyncWorld(dir=make_world(tmp_path, "--dump", str(dump), name=name)) as world:
        await start(world, tmp_path, run_dir=tmp_path / name / "run")
        await wait_until_async(dump.exists)
        assert json.loads(dump.read_text())["cwd"] == str(tmp_path / name)


@pytest.mark.thorough
async def test_a_session_renamed_by_tmux_is_found_again(tmp_path: Path, tmux: Tmux) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        for _ in range(2):
            await start(world, tmp_path, _tmux_session="model-4.1:run")
        assert windows(tmux, "model-4_1_run") == ["world-0", "world-1"]


# ---------------------------------------------------------------------------------- output


async def test_the_output_is_in_the_log_and_on_the_screen(tmp_path: Path, tmux: Tmux) -> None:
    log_file = tmp_path / "world.log"
    log_file.write_text("the run before\n")
    async with AsyncWorld(dir=make_world(tmp_path, "--say-ready", "0.05")) as world:
        started = await start(world, tmp_path, log_file=log_file)
        for line in (f"Spectator frontend: {started.url}/", "READY to serve"):
            await wait_until_async(lambda line=line: line in log_file.read_text())
            await wait_until_async(lambda line=line: line in pane(tmux, "world-0"))
        assert "counter world, process" in pane(tmux, "world-0")
        assert "the run before" not in pane(tmux, "world-0")
        async with world.logs() as lines:
            first = await anext(lines)
            assert first.text.startswith("counter world, process")


# ----------------------------------------------------------------------------- environment

VALUES = {
    "QUOTES": 'it\'s "quoted" `twice`',
    "LINES": "one\n  two\n\n\tthree\n",
    "DOLLARS": "$HOME ${HOME} $(id) $$",
    "FORMATS": "#S #{pane_id} %H %% ##",
    "BACKSLASHES": "\\ \\n \\\\ C:\\dir\\",
    "SHELL_SIGNS": "; { } ~ * ? ! & | < > = --",
    "UNICODE": "zwölf 界 \u2028",
    "CONTROL": "\x1b[31m\t\r\x07",
    "EMPTY": "",
    "LONG": "x" * 60_000,
    "log": "mine",
    "status": "mine",
}


async def test_the_environment_arrives_exactly(
    tmp_path: Path, tmux: Tmux, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = tmp_path / "dump.json"
    monkeypatch.setitem(os.environb, b"INHERITED", b"no \xff text")
    async with AsyncWorld(dir=make_world(tmp_path, "--dump", str(dump))) as world:
        await start(world, tmp_path, env=VALUES)
        await wait_until_async(dump.exists)
        env = json.loads(dump.read_text())["env"]
    assert {name: env[name] for name in VALUES} == VALUES
    assert os.fsencode(env["INHERITED"]) == b"no \xff text"


class Sampler:
    """Repeatedly collects the arguments of all processes until it is stopped."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._is_over.is_set():
            self.seen.update(command_line(pid) for pid in live_processes())


async def test_the_token_is_neither_in_arguments_nor_in_other_windows(
    tmp_path: Path, tmux: Tmux
) -> None:
    secrets = {"WORLD_OPERATOR_TOKEN": CANARY, "API_KEY": f"{CANARY}-key"}
    sidecars: Mapping[str, list[str]] = {"feed": []}
    async with AsyncWorld(dir=make_world(tmp_path, sidecars=sidecars)) as world:
        with Sampler() as sampler:
            await start(world, tmp_path, env=secrets)
        assert any("clawblox-window" in text for text in sampler.seen)
        assert not [text for text in sampler.seen if CANARY in text]
        told = tmp_path / "told"
        tmux("new-window", "-d", "-t", f"={SESSION}:", f"env >{told}.part; mv {told}.part {told}")
        await wait_until_async(told.exists)
        shown = [told.read_text(), *tmux("show-environment", "-g")]
        shown += tmux("show-environment", "-t", f"={SESSION}")
        assert not [text for text in shown if CANARY in text or "CLAWBLOX_INSTANCE" in text]


# -------------------------------------------------------------------------------- failures


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("flags", "status", "signal_name"),
    [
        (["--exit-at-once", "3"], 3, None),
        (["--exit-at-once", "0"], 0, None),
        (["--die-at-once", "SIGSEGV"], None, "SIGSEGV"),
        (["--die-at-once", "SIGKILL"], None, "SIGKILL"),
    ],
)
async def test_an_exit_before_ready_is_reported_with_status_or_signal(
    tmp_path: Path, tmux: Tmux, flags: list[str], status: int | None, signal_name: str | None
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, *flags)) as world:
        with anyio.fail_after(HANG_S), pytest.raises(WorldExitedBeforeReadyError) as caught:
            await start(world, tmp_path)
    assert caught.value.exit is not None
    assert (caught.value.exit.status, caught.value.exit.signal) == (status, signal_name)
    assert windows(tmux) == []
    assert not list(tmp_path.rglob("*.status"))


async def test_a_death_after_ready_emits_an_event_with_its_status(
    tmp_path: Path, tmux: Tmux
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world, world.events() as events:
        started = await start(world, tmp_path)
        ask(started.port, "POST", "/__die?status=9")
        with anyio.fail_after(HANG_S):
            async for event in events:
                if event.kind == "exited":
                    break
        assert event.data["exit"].status == 9
        await wait_until_async(lambda: windows(tmux) == [])


async def test_a_program_that_cannot_be_executed_opens_no_window(
    tmp_path: Path, tmux: Tmux
) -> None:
    directory = tmp_path / "world"
    directory.mkdir()
    (directory / "script").write_text("#!/bin/sh\n")
    for program in ("no-such-program", "./script", "."):
        text = f'name = "w"\n[run]\ncommand = ["{program}"]\n'
        (directory / "world.toml").write_text(text)
        async with AsyncWorld(dir=directory) as world:
            with pytest.raises(WorldCommandError, match=f"cannot execute '{program}'"):
                await start(world, tmp_path)
    assert tmux("list-sessions") == []
    assert not list(tmp_path.rglob("*.status"))


async def test_the_error_of_a_start_names_a_missing_tmux(
    tmp_path: Path, tmux: Tmux, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with monkeypatch.context() as patch:
            patch.setenv("PATH", str(tmp_path))
            with pytest.raises(WorldStartError, match="tmux is not installed"):
                await start(world, tmp_path)
        started = await start(world, tmp_path)
        assert started.name == "w000"


async def test_a_session_that_tmux_refuses_is_an_error_without_secrets(
    tmp_path: Path, tmux: Tmux
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with pytest.raises(WorldStartError, match="tmux") as caught:
            await start(world, tmp_path, _tmux_session="", env={"WORLD_OPERATOR_TOKEN": CANARY})
    assert CANARY not in str(caught.value)
    assert tmux("list-sessions") == []


def open_a_window(tmp_path: Path, **env: str) -> int:
    (tmp_path / "log").touch()
    return open_window(
        SESSION,
        "window",
        ["sleep", "60"],
        cwd=tmp_path,
        env=env,
        log_file=tmp_path / "log",
        status_file=tmp_path / "status",
        is_numbered=True,
    )


def test_a_session_that_ends_during_the_start_is_created_again(
    tmp_path: Path, tmux: Tmux, monkeypatch: pytest.MonkeyPatch
) -> None:
    listings = iter([[], [SESSION]])  # it existed at the check
    monkeypatch.setattr(clawblox.system.tmux, "_list", lambda *_: next(listings, []))
    open_a_window(tmp_path)
    assert windows(tmux) == ["window-0"]


def test_a_window_that_is_refused_leaves_no_session(
    tmp_path: Path, tmux: Tmux, monkeypatch: pytest.MonkeyPatch
) -> None:
    quote = clawblox.system.tmux._quote

    def refused(words: Sequence[str]) -> str:
        is_window = words[0] == "new-window"
        return quote(["kill-window", "-t", "nowhere"] if is_window else words)

    monkeypatch.setattr(clawblox.system.tmux, "_quote", refused)
    with pytest.raises(TmuxError, match="failed with status 1"):
        open_a_window(tmp_path, API_KEY=CANARY)
    assert tmux("list-sessions") == []


def test_only_the_windows_of_an_instance_are_closed_if_tmux_keeps_them(
    tmp_path: Path, tmux: Tmux
) -> None:
    first, second = open_a_window(tmp_path), open_a_window(tmp_path)
    dead = ("list-panes", "-s", "-t", f"={SESSION}", "-F", "#{pane_dead}")
    tmux("set-option", "-g", "remain-on-exit", "on")
    for name in ("window-0", "window-1"):
        tmux("set-option", "-w", "-u", "-t", f"={SESSION}:={name}", "remain-on-exit")
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: tmux(*dead) == ["1", "0"])
    close_window(first)
    assert windows(tmux) == ["window-1"]
    close_window(first)
    assert is_alive(second)


async def test_a_window_that_tmux_would_keep_does_not_outlive_the_stop(
    tmp_path: Path, tmux: Tmux, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clawblox.system.tmux, "_OPTIONS_OFF", ())
    (tmp_path / "home" / ".tmux.conf").write_text(HOSTILE)
    async with AsyncWorld(dir=make_world(tmp_path, sidecars={"feed": []})) as world:
        await start(world, tmp_path)
        await world.stop()
        assert windows(tmux) == []


# -------------------------------------------------------------------------------- the ladder

TREES: dict[str, tuple[list[str], str | None, str]] = {
    "a leader that ignores TERM": (["--ignore-sigterm"], None, "killed"),
    "a child that ignores TERM, but not the end of its terminal": (
        ["--stubborn-child"],
        None,
        "terminated",
    ),
    "a daemon with a session of its own": (["--daemon"], None, "killed"),
    "a world behind nohup and setsid": ([], "nohup", "terminated"),
}


@pytest.mark.parametrize(("flags", "wrapper", "rung"), TREES.values(), ids=TREES)
async def test_no_process_of_the_tree_outlives_a_stop(
    tmp_path: Path, tmux: Tmux, flags: list[str], wrapper: str | None, rung: str
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, *flags, wrapper=wrapper)) as world:
        started = await start(world, tmp_path)
        grace_seconds = 0.3 if rung == "killed" else HANG_S
        assert (await world.stop(grace_seconds=grace_seconds)).rung == rung
        assert not marked_processes()
        assert not is_listening(started.port)
        assert windows(tmux) == []


ORCHESTRATOR = """
import sys, anyio
from clawblox import AsyncWorld
async def main():
    async with AsyncWorld(dir=sys.argv[1]) as world:
        started = await world.start(
            run_dir=sys.argv[2], _tmux_session=sys.argv[3], detach=len(sys.argv) > 4
        )
        print(started.port, flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


@contextlib.contextmanager
def orchestrator(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-c", ORCHESTRATOR, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


@pytest.mark.thorough
def test_a_killed_orchestrator_leaves_no_window(tmp_path: Path, tmux: Tmux) -> None:
    tmux("new-session", "-d", "-s", SESSION, "-n", "mine", "sleep 60")
    directory = make_world(tmp_path, sidecars={"feed": []})
    with orchestrator(directory, tmp_path / "run", SESSION) as (process, port):
        assert windows(tmux) == ["mine", "world-0", "feed"]
        process.kill()
        wait_until(lambda: windows(tmux) == ["mine"])
        wait_until(lambda: not marked_processes())
        assert not is_listening(port)


@pytest.mark.thorough
async def test_a_detached_window_outlives_its_orchestrator_and_can_be_attached(
    tmp_path: Path, tmux: Tmux
) -> None:
    run = tmp_path / "run"
    with orchestrator(make_world(tmp_path), run, SESSION, "detach") as (process, port):
        process.kill()
        process.wait()
    async with AsyncWorld.attach(run) as world:
        assert windows(tmux) == ["world-0"]
        assert ask(port, "GET", "/api.md").status == 200
        (record,) = await anyio.to_thread.run_sync(read_records, run)
        shell = record.pid
        assert (await world.stop()).rung == "terminated"
        assert not is_alive(shell)
        await wait_until_async(lambda: windows(tmux) == [])
