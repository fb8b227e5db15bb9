"""Files are complete or absent after any failed system call or death of the process."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clawblox.system import files
from clawblox.system.files import (
    PartialFile,
    digest_file,
    has_digest,
    make_private_dir,
    memory_file,
    partial_tree,
    publish_bytes,
    publish_tree,
    rename_new,
    sweep_partials,
    write_all,
)
from clawblox.system.locks import lock_file, unlock_file
from tests.support.processes import read_process
from tests.support.resources import open_fds
from tests.support.waiting import HANG_S

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
    """Counts the system calls of the module under test, and fails the one at ``at``."""

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
                call(*args)  # a failed close still closes the descriptor
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
def test_after_any_failed_call_only_the_old_or_new_destination_exists(
    tmp_path: Path, publish: Publish, old: bytes | None, number: int
) -> None:
    publish(tmp_path / "first")  # which looks up this process's identity once
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


def test_publishing_syncs_the_content_then_the_name(
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


def test_after_a_death_at_any_call_the_destination_is_old_or_new(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-I", "-S", "-c", DIE_AT_EVERY_CALL, PACKAGE_ROOT, *SYSTEM_CALLS]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=HANG_S)
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


def test_an_existing_file_is_overwritten_only_on_request(tmp_path: Path) -> None:
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


def test_an_unpublished_partial_file_is_removed(tmp_path: Path) -> None:
    partial = PartialFile(tmp_path, "snapshot")
    write_all(partial.fd, NEW)
    assert names_in(tmp_path) == {Path(partial.path).name}
    assert os.pread(partial.fd, 100, 0) == NEW
    partial.close()
    assert names_in(tmp_path) == set()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_later_file_with_the_partial_name_is_kept_after_publishing(
    tmp_path: Path, overwrite: bool
) -> None:
    partial = PartialFile(tmp_path, "snapshot")
    partial.publish(tmp_path / "file", overwrite=overwrite)
    Path(partial.path).write_bytes(OLD)  # from another program
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
def test_a_published_file_has_the_requested_mode(tmp_path: Path, mode: int) -> None:
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


def test_a_private_directory_is_usable_under_any_umask(
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


def test_a_directory_created_concurrently_is_accepted_unchanged(
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
def test_a_file_in_place_of_a_directory_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        publish_bytes(make_private_dir(tmp_path / name) / "lock", NEW)


# --------------------------------------------------------------------------------- digests


def test_a_digest_is_computed_from_the_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(NEW)
    digest = hashlib.sha256(NEW).hexdigest()
    assert digest_file(tmp_path / "file") == digest
    assert has_digest(tmp_path / "file", digest)


@pytest.mark.parametrize("text", [None, OLD, b""])
def test_a_missing_or_changed_file_does_not_match_its_digest(
    tmp_path: Path, text: bytes | None
) -> None:
    if text is not None:
        (tmp_path / "file").write_bytes(text)
    assert not has_digest(tmp_path / "file", hashlib.sha256(NEW).hexdigest())


# -------------------------------------------------------------------------------- sweeping


def partial_name(pid: int, start_time: int) -> str:
    return f".snapshot.{pid}-{start_time}.0badcafe.partial"


def test_only_files_of_dead_processes_are_swept(tmp_path: Path) -> None:
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


def test_a_tree_of_a_dead_process_is_swept_without_following_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    left, link = (tmp_path / partial_name(2**22 + number, 1) for number in (1, 2))
    (left / "deep" / "er").mkdir(parents=True)
    (left / "deep" / "link").symlink_to(outside)
    link.symlink_to(outside)
    sweep_partials(tmp_path)
    assert names_in(tmp_path) == {"outside"}
    assert names_in(outside) == {"inner"}


def test_files_that_cannot_be_swept_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, tree = (tmp_path / partial_name(2**22 + number, 1) for number in range(1, 4))
    for path in (first, second):
        path.touch()
    tree.mkdir()

    def refuse(path: str) -> None:
        raise PermissionError(errno.EPERM, "not yours", path)

    monkeypatch.setattr(os, "unlink", refuse)
    sweep_partials(tmp_path)
    assert names_in(tmp_path) == {first.name, second.name}


# --- trees ----------------------------------------------------------------------------------


def test_a_partial_tree_is_published_or_removed_with_its_content(tmp_path: Path) -> None:
    destination = tmp_path / "tree"
    for is_complete in (False, True):
        with partial_tree(tmp_path, "tree") as partial:
            (partial / "file").write_bytes(NEW)
            assert stat.S_IMODE(partial.stat().st_mode) == 0o700
            if is_complete:
                publish_tree(partial, destination)
        assert names_in(tmp_path) == ({"tree"} if is_complete else set())
    assert (destination / "file").read_bytes() == NEW


@pytest.mark.parametrize("is_supported", [True, False])
def test_renaming_to_an_existing_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_supported: bool
) -> None:
    if not is_supported:
        monkeypatch.setattr(files, "rename_with", lambda *_names, **_places: False)
    taken, link, source = (tmp_path / name for name in ("taken", "link", "source"))
    taken.mkdir()
    link.symlink_to("nowhere")
    source.mkdir()
    for destination in (taken, link):
        with pytest.raises(FileExistsError, match=destination.name):
            rename_new(source, destination)
    rename_new(source, tmp_path / "free")
    assert names_in(tmp_path) == {"taken", "link", "free"}


def test_a_file_in_memory_is_read_from_its_start() -> None:
    with os.fdopen(memory_file("content", b"a line\nand another\n"), "rb") as file:
        assert file.read() == b"a line\nand another\n"
