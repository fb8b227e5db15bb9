"""The checks around every test can fail."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import blockbuster
import pytest

import clawblox
from tests import conftest
from tests.support.processes import GUARD_NAME, command_line, descendants, is_alive
from tests.support.resources import PORTAL_THREAD, Resources, open_fds
from tests.support.waiting import wait_until, wait_until_async

SLEEP = "import time; time.sleep(60)"


@contextlib.contextmanager
def child(*arguments: str, cwd: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", SLEEP, *arguments], cwd=cwd)
    try:
        # The command line of its new program appears after a moment.
        wait_until(lambda: command_line(process.pid) != "")
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def thread(name: str) -> Iterator[None]:
    done = threading.Event()
    running = threading.Thread(target=done.wait, name=name)
    running.start()
    yield
    done.set()
    running.join()


def test_an_open_descriptor_is_a_leak(tmp_path: Path) -> None:
    before = Resources.now()
    with (tmp_path / "open").open("w") as file:
        leaks = Resources.now().leaks_since(before)
        assert leaks == [f"descriptor {file.fileno()}: {tmp_path}/open"]
    assert not Resources.now().leaks_since(before)


def test_a_thread_is_a_leak_unless_an_event_loop_keeps_it() -> None:
    before = Resources.now()
    with thread("reader"), thread("AnyIO worker thread"):
        assert Resources.now().leaks_since(before) == ["thread reader"]


def test_a_child_or_a_zombie_is_a_leak() -> None:
    before = Resources.now()
    with child() as process:
        (leak,) = Resources.now().leaks_since(before)
        assert leak.startswith(f"process {process.pid}: ")
        process.kill()
        wait_until(lambda: not is_alive(process.pid))
        assert Resources.now().leaks_since(before) == [f"process {process.pid}: zombie"]
        assert process.pid in descendants(os.getpid())


def test_an_orphan_in_a_directory_of_the_session_is_a_leak(tmp_path: Path) -> None:
    before = Resources.now()
    script = 'setsid sleep 60 >/dev/null 2>&1 & echo "$!"'
    answer = subprocess.run(["bash", "-c", script], cwd=tmp_path, env={}, stdout=subprocess.PIPE)
    orphan = int(answer.stdout)
    assert orphan not in descendants(os.getpid())
    assert Resources.now().processes_since(before).keys() == {orphan}
    os.kill(orphan, 9)


def test_a_file_is_a_leak(tmp_path: Path) -> None:
    before = Resources.now(tmp_path)
    (tmp_path / "left.tmp").touch()
    assert Resources.now(tmp_path).leaks_since(before) == [f"file {tmp_path}/left.tmp"]


def test_one_guard_with_one_pipe_may_stay() -> None:
    before = Resources.now()
    reader, writer = os.pipe()
    os.close(reader)
    with child(GUARD_NAME):
        assert not Resources.now().leaks_since(before)
        with child(GUARD_NAME):
            assert len(Resources.now().leaks_since(before)) == 1
    assert Resources.now().leaks_since(before) == [f"descriptor {writer}: {open_fds()[writer]}"]
    os.close(writer)


def test_one_portal_with_its_loop_may_stay() -> None:
    before = Resources.now()
    loop = (*socket.socketpair(), select.epoll())
    assert len(Resources.now().leaks_since(before)) == 3
    with thread(PORTAL_THREAD):
        assert not Resources.now().leaks_since(before)
    for part in loop:
        part.close()


def test_a_leak_fails_the_test_and_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "SETTLE_TIMEOUT_S", 0.0)
    before = Resources.now()
    with child() as process:
        with pytest.raises(pytest.fail.Exception, match=f"left behind:\n  process {process.pid}"):
            conftest.fail_on_leaks(before)
        assert process.wait() == -9


def test_every_test_has_its_own_home_and_directories() -> None:
    home = Path(os.environ["CLAWBLOX_HOME"])
    assert home.is_dir()
    assert tempfile.gettempdir() == os.environ["TMPDIR"]
    assert Path.cwd().parent == home.parent == Path(os.environ["TMPDIR"]).parent
    assert not list(Path.cwd().iterdir())


def test_only_unchanged_directories_are_reused_by_another_test(
    tmp_path: Path,
) -> None:
    directories = conftest.Directories.make(tmp_path)
    assert directories.are_untouched
    (directories.home / "file").touch()
    assert not directories.are_untouched
    (directories.home / "file").unlink()
    directories.working.chmod(0o500)
    assert not directories.are_untouched
    directories.working.chmod(directories.mode)
    assert directories.are_untouched
    directories.temporary.rmdir()
    assert not directories.are_untouched


@pytest.mark.anyio
async def test_only_the_package_is_checked_for_blocking_the_loop() -> None:
    source = "import time\ntime.sleep(0)"
    exec(compile(source, __file__, "exec"), {})
    ours = str(Path(clawblox.__path__[0]) / "blocking.py")
    with pytest.raises(blockbuster.BlockingError, match=r"time\.sleep"):
        exec(compile(source, ours, "exec"), {})


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_condition_is_awaited_on_both_backends() -> None:
    moment = time.monotonic() + 0.02
    assert await wait_until_async(lambda: time.monotonic() > moment)
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: the moon"):
        await wait_until_async(lambda: False, timeout=0.01, what="the moon")
