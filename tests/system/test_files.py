"""Files are complete or absent, whatever system call fails and wherever the process dies."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clawblox.system import files
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import (
    PartialFile,
    digest_file,
    has_digest,
    lock_file,
    lock_owner,
    make_private_dir,
    publish_bytes,
    sweep_partials,
    unlock_file,
    write_all,
)
from tests.support import open_fds, read_process, wait_until

OLD, NEW = b"the old content", b"the new content, which is longer than one short write"
SYSTEM_CALLS = ("open", "write", "fchmod", "fsync", "replace", "link", "unlink", "close")
MOST_CALLS = 200
PACKAGE_ROOT = str(Path(files.__file__).parents[2])

SHORT_WRITE_BYTES = 7

Publish = Callable[[Path], None]


def replace_it(destination: Path) -> None:
    publish_bytes(destination, NEW)


def create_it(destination: Path) -> None:
    partial = PartialFile(destination.parent, "snapshot")
    try:
        write_all(partial.fd, NEW)
        partial.publish(destination, overwrite=False)
    finally:
        partial.close()


class FaultyCalls:
    """Counts the system calls of this module's subject; the one at ``at`` fails."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int | None, number: int = errno.EIO) -> None:
        self.names: list[str] = []
        self._at = at
        self._number = number
        for name in SYSTEM_CALLS:
            patch.setattr(os, name, self._faulty(name, getattr(os, name)))

    @property
    def was_reached(self) -> bool:
        return self._at is not None and len(self.names) > self._at

    def _faulty(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def fail_or_call(*args: Any, **kwargs: Any) -> Any:
            self.names.append(name)
            is_faulty = len(self.names) - 1 == self._at
            if is_faulty and name == "close":
                call(*args)  # what fails to be closed is closed all the same
            if is_faulty:
                raise OSError(self._number, os.strerror(self._number))
            if name == "write":
                args = (args[0], args[1][:SHORT_WRITE_BYTES])
            return call(*args, **kwargs)

        return fail_or_call


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


# ------------------------------------------------------------------------------ publishing


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize(("publish", "old"), [(replace_it, OLD), (create_it, None)])
def test_whatever_call_fails_the_destination_is_old_or_new_and_nothing_else_is_left(
    tmp_path: Path, publish: Publish, old: bytes | None, number: int
) -> None:
    publish(tmp_path / "first")  # which looks up who we are, once
    before = open_fds()
    for at in range(MOST_CALLS):
        directory = tmp_path / str(at)
        directory.mkdir()
        destination = directory / "file"
        if old is not None:
            destination.write_bytes(old)
        failure = None
        with pytest.MonkeyPatch.context() as patch:
            calls = FaultyCalls(patch, at, number)
            try:
                publish(destination)
            except OSError as error:
                failure = error
        assert content(destination) in (old, NEW)
        assert names_in(directory) <= {"file"}
        assert open_fds() == before
        if not calls.was_reached:
            break
        assert failure is not None
        assert failure.errno == number
    assert at >= 8
    assert failure is None
    assert content(destination) == NEW


def test_content_is_on_the_disk_before_the_name_and_the_name_before_the_return(
    tmp_path: Path,
) -> None:
    destination = tmp_path / "file"
    for publish, step in ((create_it, "link"), (replace_it, "replace")):
        with pytest.MonkeyPatch.context() as patch:
            calls = FaultyCalls(patch, None)
            publish(destination)
        names = calls.names
        first, second = (at for at, name in enumerate(names) if name == "fsync")
        last_write = max(at for at, name in enumerate(names) if name == "write")
        assert last_write < names.index("fchmod") < first < names.index(step) < second


DIE_AT_EVERY_CALL = """
import os, sys
root, *names = sys.argv[1:]
sys.path.insert(0, root)
from clawblox.system.files import PartialFile, publish_bytes, write_all

OLD, NEW = b"the old content", b"the new content, which is longer than one short write"

def die_at(last):
    count = -1
    def mortal(name, call):
        def die_or_call(*args, **kwargs):
            nonlocal count
            count += 1
            if count == last:
                if name == "write":
                    call(args[0], args[1][:7])
                os._exit(9)
            if name == "write":
                args = (args[0], args[1][:7])
            return call(*args, **kwargs)
        return die_or_call
    for name in names:
        setattr(os, name, mortal(name, getattr(os, name)))

def publish(kind, destination):
    if kind == "replace":
        return publish_bytes(destination, NEW)
    partial = PartialFile(destination.parent, "snapshot")
    write_all(partial.fd, NEW)
    partial.publish(destination, overwrite=False)
    partial.close()

def run(kind, number):
    from pathlib import Path
    directory = Path(kind) / str(number)
    directory.mkdir(parents=True)
    if kind == "replace":
        (directory / "file").write_bytes(OLD)
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    die_at(number)
    publish(kind, directory / "file")
    os._exit(0)

for kind in ("replace", "create"):
    number = 0
    while run(kind, number):
        number += 1
"""


def test_wherever_the_process_dies_the_destination_is_old_or_new_and_a_sweep_removes_the_rest(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-I", "-S", "-c", DIE_AT_EVERY_CALL, PACKAGE_ROOT, *SYSTEM_CALLS]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    for kind, old in (("replace", OLD), ("create", None)):
        deaths = sorted((tmp_path / kind).iterdir(), key=lambda path: int(path.name))
        assert len(deaths) > 8
        found = []
        for directory in deaths:
            sweep_partials(directory)
            assert names_in(directory) <= {"file"}
            found.append(content(directory / "file"))
        assert set(found) == {old, NEW}
        assert found == sorted(found, key=lambda one: one == NEW)  # new once, new from then on


def test_what_exists_is_not_overwritten_unless_it_shall_be(tmp_path: Path) -> None:
    destination = tmp_path / "file"
    destination.write_bytes(OLD)
    with pytest.raises(FileExistsError):
        create_it(destination)
    assert content(destination) == OLD
    assert names_in(tmp_path) == {"file"}


def test_a_dangling_link_is_not_followed(tmp_path: Path) -> None:
    destination = tmp_path / "file"
    destination.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        create_it(destination)
    replace_it(destination)
    assert content(destination) == NEW
    assert names_in(tmp_path) == {"file"}
    assert not destination.is_symlink()


def test_a_partial_file_that_is_not_published_disappears(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path, "snapshot")
    write_all(partial.fd, NEW)
    assert names_in(tmp_path) == {Path(partial.path).name}
    assert os.pread(partial.fd, 100, 0) == NEW
    partial.close()
    assert names_in(tmp_path) == set()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_published_file_leaves_alone_what_comes_under_its_partial_name(
    tmp_path: Path, overwrite: bool
) -> None:
    partial = PartialFile(tmp_path, "snapshot")
    partial.publish(tmp_path / "file", overwrite=overwrite)
    Path(partial.path).write_bytes(OLD)  # a stranger's, who knows why
    partial.close()
    assert content(Path(partial.path)) == OLD


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_it(tmp_path / "missing" / "file")


@pytest.fixture(params=[0o000, 0o077], ids=["umask 000", "umask 077"])
def _any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_any_umask")
@pytest.mark.parametrize("mode", [0o600, 0o700, 0o644])
def test_the_mode_of_a_published_file_is_the_one_asked_for(tmp_path: Path, mode: int) -> None:
    publish_bytes(tmp_path / "file", NEW, mode=mode)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


@pytest.mark.usefixtures("_any_umask")
def test_files_and_directories_are_private(tmp_path: Path) -> None:
    made = make_private_dir(tmp_path / "a" / "b" / "c")
    publish_bytes(made / "file", NEW)
    partial = PartialFile(made, "snapshot")
    lock = lock_file(made / "lock")
    assert lock is not None
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    unlock_file(made / "lock", lock)
    partial.close()
    assert modes == {"a": 0o700, "b": 0o700, "c": 0o700, "file": 0o600, "lock": 0o600} | {
        Path(partial.path).name: 0o600
    }


def test_a_private_directory_is_its_owners_even_where_the_umask_takes_that_away(
    tmp_path: Path,
) -> None:
    before = os.umask(0o277)
    try:
        made = make_private_dir(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (made.parent, made)] == [0o700] * 2


def test_a_directory_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_dir(tmp_path / "new")
    make_private_dir(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_directory_that_another_makes_meanwhile_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def be_late(path: Path, mode: int) -> None:
        make(path, 0o750)
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", be_late)
    made = make_private_dir(tmp_path / "a" / "b")
    assert stat.S_IMODE(made.stat().st_mode) == 0o750


@pytest.mark.parametrize("name", ["file", "file/in/it"])
def test_no_directory_can_be_made_of_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        publish_bytes(make_private_dir(tmp_path / name) / "lock", NEW)


# --------------------------------------------------------------------------------- digests


def test_a_digest_is_that_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(NEW)
    digest = hashlib.sha256(NEW).hexdigest()
    assert digest_file(tmp_path / "file") == digest
    assert has_digest(tmp_path / "file", digest)


@pytest.mark.parametrize("text", [None, OLD, b""])
def test_a_file_that_is_gone_or_changed_has_not_the_digest_that_it_had(
    tmp_path: Path, text: bytes | None
) -> None:
    if text is not None:
        (tmp_path / "file").write_bytes(text)
    assert not has_digest(tmp_path / "file", hashlib.sha256(NEW).hexdigest())


# -------------------------------------------------------------------------------- sweeping


def partial_name(pid: int, start_time: int) -> str:
    return f".snapshot.{pid}-{start_time}.0badcafe.partial"


def test_only_what_the_dead_left_is_swept(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        own, living = read_process(os.getpid()), read_process(other.pid)
        assert own is not None
        assert living is not None
        kept = {
            *(partial_name(other.pid, living.start_time), "snapshot.json", ".hidden"),
            *(".snapshot.partial", ".snapshot.0-0.partial", "snapshot.1-1.0badcafe.partial"),
        }
        swept = {
            partial_name(os.getpid(), own.start_time + 1),
            partial_name(2**22 + 1, 1),
            partial_name(2**22 + 1, 1).replace(".snapshot", ".two.dots"),
        }
        for name in kept | swept:
            (tmp_path / name).touch()
        mine = PartialFile(tmp_path, "snapshot")
        sweep_partials(tmp_path)
        assert names_in(tmp_path) == kept | {Path(mine.path).name}
        mine.close()
        other.kill()
    sweep_partials(tmp_path)
    assert names_in(tmp_path) == kept - {partial_name(other.pid, living.start_time)}


def test_a_tree_that_the_dead_left_is_swept_and_nothing_that_it_links_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    left, link = (tmp_path / partial_name(2**22 + number, 1) for number in (1, 2))
    (left / "deep" / "er").mkdir(parents=True)
    (left / "deep" / "link").symlink_to(outside)
    link.symlink_to(outside)
    sweep_partials(tmp_path)
    assert names_in(tmp_path) == {"outside"}
    assert names_in(outside) == {"inner"}


def test_what_cannot_be_swept_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, tree = (tmp_path / partial_name(2**22 + number, 1) for number in range(1, 4))
    for path in (first, second):
        path.touch()
    tree.mkdir()

    def refuse(path: str) -> None:
        raise PermissionError(errno.EPERM, "not yours", path)

    monkeypatch.setattr(os, "unlink", refuse)
    sweep_partials(tmp_path)
    assert names_in(tmp_path) == {first.name, second.name}


# ----------------------------------------------------------------------------------- locks

CONTEND = """
import os, sys, time
from pathlib import Path
root, rounds = sys.argv[1], int(sys.argv[2])
sys.path.insert(0, root)
from clawblox.system.files import lock_file, unlock_file

path, inside = Path("lock"), Path("inside")
print("here", flush=True)
sys.stdin.readline()
done = refused = 0
while done < rounds:
    fd = lock_file(path)
    if fd is None:
        refused += 1
        continue
    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails where two are inside
    assert path.read_text().split()[0] == str(os.getpid())
    inside.unlink()
    unlock_file(path, fd)
    done += 1
print(refused)
"""

HOLD = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from clawblox.system.files import lock_file
assert lock_file(Path("lock")) is not None
if sys.argv[2:] == ["fork"] and os.fork() == 0:
    os.close(1)
    sys.stdin.read()
    os._exit(0)
print("locked", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def program(text: str, cwd: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program that begins with a line on its output and ends with its input."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", text, PACKAGE_ROOT, *arguments],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
        process.kill()


def pid_in(path: Path) -> int | None:
    owner = lock_owner(path)
    return owner.pid if owner else None


def test_of_several_processes_exactly_one_holds_a_lock_at_a_time(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(program(CONTEND, tmp_path, "300")) for _ in range(4)]
        for process in crowd:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        refusals = [process.communicate(timeout=60)[0] for process in crowd]
    assert [process.returncode for process in crowd] == [0] * 4
    assert sum(map(int, refusals)) > 0  # they did meet
    assert names_in(tmp_path) == set()


def test_a_lock_is_refused_while_another_process_lives_that_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with program(HOLD, tmp_path) as holder:
        assert lock_file(path) is None
        assert pid_in(path) == holder.pid
        holder.kill()
        holder.wait()
        fd = lock_file(path)
        assert fd is not None
        assert pid_in(path) == os.getpid()
        unlock_file(path, fd)
    assert names_in(tmp_path) == set()


def test_a_lock_tells_who_holds_it_where_and_since_when(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    before = format_utc(utc_now())
    fd = lock_file(path)
    assert fd is not None
    owner = lock_owner(path)
    unlock_file(path, fd)
    assert owner is not None
    assert (owner.pid, owner.host) == (os.getpid(), socket.gethostname())
    assert before <= owner.since <= format_utc(utc_now())


def test_a_forked_child_does_not_hold_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with program(HOLD, tmp_path, "fork") as holder:
        assert lock_file(path) is None
        holder.kill()
        holder.wait()
        # The child may not have come so far yet that it knows itself for one.
        fd = wait_until(lambda: lock_file(path))
        unlock_file(path, fd)


def test_a_forked_child_does_not_give_back_the_lock_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    child = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {PACKAGE_ROOT!r})
from clawblox.system.files import lock_file, unlock_file
fd = lock_file(Path("lock"))
if os.fork() == 0:
    unlock_file(Path("lock"), fd)
    os._exit(0 if lock_file(Path("lock")) is None else 1)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    command = [sys.executable, "-I", "-S", "-c", child]
    assert subprocess.run(command, cwd=tmp_path, timeout=60).returncode == 0
    assert path.exists()


def test_a_lock_is_refused_to_its_own_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    fd = lock_file(path)
    assert fd is not None
    assert lock_file(path) is None
    unlock_file(path, fd)
    unlock_file(path, fd)
    assert names_in(tmp_path) == set()


def test_a_lock_whose_file_is_replaced_meanwhile_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    fds: list[int] = []

    def lock_after_removal(fd: int, operation: int) -> None:
        fds.append(fd)
        if len(fds) == 1:
            path.unlink()
            path.touch()
        if len(fds) == 2:
            path.unlink()

    monkeypatch.setattr(files.fcntl, "flock", lock_after_removal)
    fd = lock_file(path)
    assert len(fds) == 3
    assert fd is not None
    unlock_file(path, fd)


@pytest.mark.parametrize("call", ["ftruncate", "pwrite", "fstat"])
def test_a_lock_that_cannot_be_written_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "lock"
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            lock_file(path)
    fd = lock_file(path)
    assert fd is not None
    unlock_file(path, fd)


def test_a_link_in_the_place_of_a_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(OLD)
    (tmp_path / "lock").symlink_to("precious")
    with pytest.raises(OSError, match="symbolic link"):
        lock_file(tmp_path / "lock")
    assert content(tmp_path / "precious") == OLD


UNREADABLE = [None, b"", b"\xff", b"no number", b"4711", b"x here 2026-06-22T18:59:25Z"]


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_lock_without_a_readable_owner_has_none(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / "lock").write_bytes(text)
    assert lock_owner(tmp_path / "lock") is None


def test_what_somebody_put_in_the_place_of_a_lock_stays_when_it_is_given_back(
    tmp_path: Path,
) -> None:
    lock = tmp_path / "lock"
    fd = lock_file(lock)
    assert fd is not None
    lock.unlink()
    lock.mkdir()
    unlock_file(lock, fd)
    assert lock.is_dir()
