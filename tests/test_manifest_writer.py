"""The manifest writer, alone and among writers that know its lock and writers that do not."""

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from clawblox import linux, manifest_file
from clawblox.errors import ManifestError, UsageError
from clawblox.manifest import Manifest, Update, manifest_path, parse_manifest, read_manifest
from clawblox.manifest_file import ManifestFile
from clawblox.manifest_updates import agent_update, checkpoint_update, recording_update, run_update
from clawblox.manifest_writer import ManifestWriter, ManifestWriters
from tests.support import wait_until_async

pytestmark = pytest.mark.anyio

BACKENDS = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


@contextlib.asynccontextmanager
async def writing(run_dir: Path, **options: float):
    """Run a writer, close it at the end."""
    async with ManifestWriters(**options) as writers:
        yield writers.of(run_dir)


def writer_of(run_dir: Path) -> ManifestWriter:
    """Return a writer whose task nobody has started yet."""
    return ManifestWriter(ManifestFile(manifest_path(run_dir), lock_wait=10.0))


def checkpoint(name: str) -> Update:
    return checkpoint_update({"path": f"checkpoints/{name}", "format": "f"})


def read(run_dir: Path) -> Manifest:
    """Read the manifest; not by ``read_manifest``, which may not block a running loop."""
    path = manifest_path(run_dir)
    return parse_manifest(path.read_bytes(), path)


def checkpoint_names(run_dir: Path) -> list[str]:
    return [Path(entry["path"]).name for entry in read(run_dir).checkpoints]


def recording_names(run_dir: Path) -> list[str]:
    return [entry["path"] for entry in read(run_dir).recordings]


def rename_in(run_dir: Path, document: dict) -> None:
    """Write a manifest as worlds do: a temporary file of a name that everybody takes, renamed."""
    path = manifest_path(run_dir)
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name("manifest.json.tmp")
    temporary.write_text(json.dumps(document))
    temporary.rename(path)


def append_recording(run_dir: Path, name: str) -> None:
    """Append as worlds do: without any lock."""
    document = json.loads(manifest_path(run_dir).read_bytes())
    document.setdefault("recordings", []).append({"path": name, "events": 1, "format": "v1"})
    rename_in(run_dir, document)


def files_beside(run_dir: Path) -> set[str]:
    return {path.name for path in manifest_path(run_dir).parent.iterdir()}


CLEAN = {"manifest.json", "manifest.json.lock"}


class Gate:
    """Holds the writer's thread just before it writes its file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_reached = threading.Event()
        self._is_open = threading.Event()
        write = manifest_file._write_private

        def gated(path: Path, data: bytes, mode: int) -> None:
            self.is_reached.set()
            assert self._is_open.wait(10)
            write(path, data, mode)

        monkeypatch.setattr(manifest_file, "_write_private", gated)

    def open(self) -> None:
        self._is_open.set()


# --- one writer -----------------------------------------------------------------------------


@BACKENDS
async def test_an_update_is_on_disk_when_apply_returns(tmp_path):
    async with writing(tmp_path / "run") as writer:
        await writer.apply(run_update(id="r", status="running"))
        await writer.apply(checkpoint("a"))
        manifest = read(tmp_path / "run")
        assert manifest.run == {"id": "r", "status": "running"}
        assert checkpoint_names(tmp_path / "run") == ["a"]
    assert files_beside(tmp_path / "run") == CLEAN


async def test_an_empty_update_makes_a_manifest_and_later_ones_touch_nothing(tmp_path):
    async with writing(tmp_path) as writer:
        await writer.apply(Update())
        before = manifest_path(tmp_path).stat()
        assert read(tmp_path).document == {"schema_version": 1}
        await writer.apply(Update())
        assert manifest_path(tmp_path).stat() == before


async def test_unknown_keys_and_permissions_are_kept(tmp_path):
    rename_in(tmp_path, {"lab": {"seed": 7}, "recordings": [{"path": "a", "weather": "rain"}]})
    manifest_path(tmp_path).chmod(0o640)
    async with writing(tmp_path) as writer:
        await writer.apply(recording_update(path=tmp_path / "a", format="f"))
    manifest = read(tmp_path)
    assert manifest.document["lab"] == {"seed": 7}
    assert manifest.recordings == [{"path": "a", "weather": "rain", "format": "f"}]
    assert manifest_path(tmp_path).stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("umask", [0o000, 0o077])
async def test_a_new_manifest_is_private_under_any_umask(tmp_path, umask):
    previous = os.umask(umask)
    try:
        async with writing(tmp_path) as writer:
            await writer.apply(checkpoint("a"))
    finally:
        os.umask(previous)
    assert manifest_path(tmp_path).stat().st_mode & 0o777 == 0o600
    assert manifest_path(tmp_path).parent.stat().st_mode & 0o777 == 0o700


async def test_the_temporary_name_of_the_worlds_is_never_used(tmp_path):
    obstacle = manifest_path(tmp_path).with_name("manifest.json.tmp")
    obstacle.mkdir(parents=True)
    async with writing(tmp_path) as writer:
        await writer.apply(checkpoint("a"))
        await writer.apply(checkpoint("b"))
    assert files_beside(tmp_path) == CLEAN | {"manifest.json.tmp"}
    assert list(obstacle.iterdir()) == []


async def test_updates_that_wait_together_are_written_together(tmp_path, monkeypatch):
    batches: list[int] = []
    apply = ManifestFile.apply

    def counting(self, updates):
        batches.append(len(updates))
        apply(self, updates)

    monkeypatch.setattr(ManifestFile, "apply", counting)
    async with writing(tmp_path) as writer, anyio.create_task_group() as callers:
        for n in range(100):
            callers.start_soon(writer.apply, checkpoint(f"{n:03}"))
    assert sum(batches) == 100
    assert len(batches) <= 3
    assert checkpoint_names(tmp_path) == [f"{n:03}" for n in range(100)]


async def test_descriptors_do_not_add_up(tmp_path):
    async with writing(tmp_path) as writer:
        await writer.apply(checkpoint("first"))
        before = len(os.listdir("/proc/self/fd"))
        for n in range(30):
            await writer.apply(checkpoint(str(n)))
        assert len(os.listdir("/proc/self/fd")) == before


# --- failures -------------------------------------------------------------------------------


async def test_a_torn_manifest_is_an_error_and_stays_as_it_is(tmp_path):
    rename_in(tmp_path, {"lab": 1})
    manifest_path(tmp_path).write_text('{"lab": ')
    async with writing(tmp_path) as writer:
        with pytest.raises(ManifestError, match="not JSON") as caught:
            await writer.apply(checkpoint("a"))
        assert caught.value.path == manifest_path(tmp_path)
        assert manifest_path(tmp_path).read_text() == '{"lab": '
        rename_in(tmp_path, {"lab": 1})
        await writer.apply(checkpoint("b"))
    assert checkpoint_names(tmp_path) == ["b"]
    assert read(tmp_path).document["lab"] == 1


async def test_a_lock_that_stays_taken_is_an_error_and_a_free_one_is_taken(tmp_path):
    lock = manifest_path(tmp_path).with_name("manifest.json.lock")
    async with writing(tmp_path, lock_wait=0.02) as writer:
        await writer.apply(Update())
        with lock.open("w") as holder:
            fcntl.flock(holder, fcntl.LOCK_EX)
            with pytest.raises(ManifestError, match=r"not free for 0\.02 s") as caught:
                await writer.apply(checkpoint("a"))
            assert caught.value.path == lock
        await writer.apply(checkpoint("b"))
    assert checkpoint_names(tmp_path) == ["b"]


async def test_every_caller_of_a_failed_batch_gets_an_error_of_its_own(tmp_path):
    (tmp_path / "run").write_text("a file where a directory should be")
    errors: list[ManifestError] = []

    async def call() -> None:
        with pytest.raises(ManifestError, match="Not a directory") as caught:
            await writer.apply(checkpoint("a"))
        errors.append(caught.value)

    async with writing(tmp_path / "run") as writer, anyio.create_task_group() as callers:
        callers.start_soon(call)
        callers.start_soon(call)
    assert len({id(error) for error in errors}) == 2
    assert all(isinstance(error.__cause__, OSError) for error in errors)


def failing(call: Callable, at: int, code: int) -> Callable:
    """Return ``call`` that fails once, at its n-th call."""
    count = iter(range(at + 1))

    def maybe(*args, **options):
        if next(count, None) == at:
            raise OSError(code, os.strerror(code))
        return call(*args, **options)

    return maybe


@pytest.mark.parametrize("name", ["fsync", "fchmod", "open", "link"])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_failing_disk_costs_no_entry_and_leaves_no_file(tmp_path, monkeypatch, name, is_new):
    if not is_new:
        rename_in(tmp_path, {"checkpoints": [{"path": "checkpoints/old"}]})
    for at in range(10):
        run_dir = tmp_path if not is_new else tmp_path / str(at)
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing(getattr(os, name), at, errno.ENOSPC))
            file = ManifestFile(manifest_path(run_dir), lock_wait=1.0)
            with contextlib.suppress(ManifestError):
                file.apply([checkpoint(f"{at}")])
        assert not list(run_dir.glob(".clawblox/.manifest*"))
        file.apply([checkpoint(f"{at}"), checkpoint("last")])
        names = checkpoint_names(run_dir)
        assert names == list(dict.fromkeys(names))
        assert {f"{at}", "last"} <= set(names)
        assert is_new or "old" in names


async def test_a_closed_writer_takes_nothing(tmp_path):
    async with writing(tmp_path) as writer:
        await writer.apply(checkpoint("a"))
    with pytest.raises(UsageError, match="closed"):
        await writer.apply(checkpoint("b"))
    await writer.aclose()


@BACKENDS
async def test_closing_writes_what_is_queued(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    writer = writer_of(tmp_path)
    async with anyio.create_task_group() as group:
        group.start_soon(writer.run)
        group.start_soon(writer.apply, checkpoint("a"))
        await wait_until_async(gate.is_reached.is_set)
        for name in "bcd":
            group.start_soon(writer.apply, checkpoint(name))
            await anyio.wait_all_tasks_blocked()
        group.start_soon(writer.aclose)
        await anyio.wait_all_tasks_blocked()
        gate.open()
        await writer.aclose()
        assert checkpoint_names(tmp_path) == ["a", "b", "c", "d"]


async def test_closing_a_writer_that_never_ran_answers_who_waits(tmp_path):
    writer = writer_of(tmp_path)

    async def call() -> None:
        with pytest.raises(ManifestError, match="ended before"):
            await writer.apply(checkpoint("a"))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        await writer.aclose()
        await writer.run()
    assert not manifest_path(tmp_path).exists()


async def test_a_run_directory_that_was_deleted_is_not_made_again(tmp_path):
    async with writing(tmp_path / "run", check_interval=0.01) as writer:
        await writer.apply(checkpoint("a"))
        for path in sorted((tmp_path / "run").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (tmp_path / "run").rmdir()
    assert not (tmp_path / "run").exists()


# --- cancellation ---------------------------------------------------------------------------


@BACKENDS
async def test_a_cancelled_caller_leaves_its_update_to_the_writer(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    async with writing(tmp_path) as writer:
        async with anyio.create_task_group() as callers:
            callers.start_soon(writer.apply, checkpoint("a"))
            await wait_until_async(gate.is_reached.is_set)
            callers.start_soon(writer.apply, checkpoint("b"))
            await anyio.wait_all_tasks_blocked()
            callers.cancel_scope.cancel()
        gate.open()
        await writer.apply(checkpoint("c"))
        assert set(checkpoint_names(tmp_path)) == {"a", "b", "c"}
    assert files_beside(tmp_path) == CLEAN


@BACKENDS
async def test_a_cancelled_writer_writes_what_is_queued_and_answers(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    writer = writer_of(tmp_path)
    answered = []

    async def call(name: str) -> None:
        await writer.apply(checkpoint(name))
        answered.append(name)

    async with anyio.create_task_group() as callers, anyio.create_task_group() as group:
        group.start_soon(writer.run)
        callers.start_soon(call, "a")
        await wait_until_async(gate.is_reached.is_set)
        callers.start_soon(call, "b")
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
        gate.open()
    assert sorted(answered) == ["a", "b"] == sorted(checkpoint_names(tmp_path))
    with pytest.raises(UsageError):
        await writer.apply(checkpoint("c"))
    assert files_beside(tmp_path) == CLEAN


@pytest.mark.parametrize("whom", ["caller", "writer"])
async def test_asyncios_own_cancel_tears_nothing_and_strands_nobody(tmp_path, monkeypatch, whom):
    gate = Gate(monkeypatch)
    writer = writer_of(tmp_path)
    running = asyncio.create_task(writer.run())
    calls = [asyncio.create_task(writer.apply(checkpoint("a")))]
    await wait_until_async(gate.is_reached.is_set)
    calls.append(asyncio.create_task(writer.apply(checkpoint("b"))))
    await anyio.wait_all_tasks_blocked()
    (calls[0] if whom == "caller" else running).cancel()
    await anyio.wait_all_tasks_blocked()
    gate.open()
    async with asyncio.timeout(10):
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        await writer.aclose()
        await asyncio.gather(running, return_exceptions=True)
    assert outcomes[1] is None
    assert sorted(checkpoint_names(tmp_path)) == ["a", "b"]
    assert files_beside(tmp_path) == CLEAN


# --- a program without the lock -------------------------------------------------------------


@pytest.fixture(params=["exchange", "replace"])
def _any_file_system(request, monkeypatch) -> None:
    """Run the test with, and as if without, the exchange of two files."""
    if request.param == "replace":
        monkeypatch.setattr(linux, "_libc", lambda _name: None)


def just_before(
    monkeypatch: pytest.MonkeyPatch, name: str, actions: Iterator[Callable[[], None]]
) -> None:
    """Do the next of ``actions`` whenever the function of that name is about to be called."""
    function = getattr(manifest_file, name)

    def disturbed(*args):
        next(actions, lambda: None)()
        return function(*args)

    monkeypatch.setattr(manifest_file, name, disturbed)


@pytest.mark.usefixtures("_any_file_system")
def test_an_entry_that_came_while_we_wrote_is_merged(tmp_path, monkeypatch):
    rename_in(tmp_path, {"lab": 1})
    actions = (lambda n=n: append_recording(tmp_path, f"rec{n}") for n in range(3))
    just_before(monkeypatch, "_write_private", actions)
    ManifestFile(manifest_path(tmp_path), lock_wait=1.0).apply([checkpoint("a")])
    assert recording_names(tmp_path) == ["rec0", "rec1", "rec2"]
    assert checkpoint_names(tmp_path) == ["a"]
    assert read(tmp_path).document["lab"] == 1
    assert files_beside(tmp_path) == CLEAN


def test_an_entry_that_came_in_the_very_last_moment_is_merged(tmp_path, monkeypatch):
    rename_in(tmp_path, {"recordings": [{"path": "old", "events": 1}]})

    def last_moment() -> None:
        append_recording(tmp_path, "rec")
        document = json.loads(manifest_path(tmp_path).read_bytes())
        document["recordings"][0]["events"] = 2
        rename_in(tmp_path, {**document, "lab": 1})

    just_before(monkeypatch, "rename_with", iter([last_moment]))
    ManifestFile(manifest_path(tmp_path), lock_wait=1.0).apply([checkpoint("a")])
    assert recording_names(tmp_path) == ["old", "rec"]
    assert read(tmp_path).recordings[0]["events"] == 2
    assert read(tmp_path).document["lab"] == 1
    assert checkpoint_names(tmp_path) == ["a"]
    assert files_beside(tmp_path) == CLEAN


@pytest.mark.parametrize("reads", ["ours", "theirs"])
def test_two_entries_around_an_exchange_are_merged(tmp_path, monkeypatch, reads):
    """The second one is made of our version, which lacks the first, or of the first, without us."""
    rename_in(tmp_path, {})
    theirs: list[dict] = []

    def first() -> None:
        append_recording(tmp_path, "one")
        theirs.append(json.loads(manifest_path(tmp_path).read_bytes()))

    def second() -> None:
        if reads == "theirs":
            rename_in(tmp_path, theirs[0])
        append_recording(tmp_path, "two")

    just_before(monkeypatch, "rename_with", iter([first]))
    # Two files are written: ours, which the exchange finds outdated, and the one after it.
    just_before(monkeypatch, "_write_private", iter([lambda: None, second]))
    ManifestFile(manifest_path(tmp_path), lock_wait=1.0).apply([checkpoint("a")])
    assert sorted(recording_names(tmp_path)) == ["one", "two"]
    assert checkpoint_names(tmp_path) == ["a"]
    assert files_beside(tmp_path) == CLEAN


def test_a_manifest_that_another_made_first_is_merged(tmp_path, monkeypatch):
    made = iter([lambda: rename_in(tmp_path, {"recordings": [{"path": "rec"}]})])
    just_before(monkeypatch, "_write_private", made)
    ManifestFile(manifest_path(tmp_path), lock_wait=1.0).apply([checkpoint("a")])
    assert recording_names(tmp_path) == ["rec"]
    assert checkpoint_names(tmp_path) == ["a"]


def endless(run_dir: Path) -> Iterator[Callable[[], None]]:
    n = 0
    while True:
        yield lambda n=n: append_recording(run_dir, f"rec{n}")
        n += 1


def test_a_program_that_is_always_faster_loses_nothing_in_the_end(tmp_path, monkeypatch):
    rename_in(tmp_path, {})
    file = ManifestFile(manifest_path(tmp_path), lock_wait=1.0)
    with monkeypatch.context() as patch:
        just_before(patch, "_write_private", endless(tmp_path))
        just_before(patch, "rename_with", (lambda: append_recording(tmp_path, "x") for _ in "x"))
        file.apply([checkpoint("a")])
    file.repair(is_thorough=False)
    attempts = manifest_file._ATTEMPTS
    assert set(recording_names(tmp_path)) == {"x", *(f"rec{n}" for n in range(attempts))}
    assert checkpoint_names(tmp_path) == ["a"]
    assert files_beside(tmp_path) == CLEAN


def test_without_the_exchange_such_a_program_is_an_error(tmp_path, monkeypatch):
    rename_in(tmp_path, {})
    monkeypatch.setattr(linux, "_libc", lambda _name: None)
    just_before(monkeypatch, "_write_private", endless(tmp_path))
    with pytest.raises(ManifestError, match="changes the manifest all the time"):
        ManifestFile(manifest_path(tmp_path), lock_wait=1.0).apply([checkpoint("a")])
    assert len(recording_names(tmp_path)) == manifest_file._ATTEMPTS
    assert files_beside(tmp_path) == CLEAN


@pytest.mark.parametrize("when", ["next write", "idle", "close"])
async def test_our_entries_come_back_when_a_world_overwrites_them(tmp_path, when):
    rename_in(tmp_path, {"recordings": []})
    stale = json.loads(manifest_path(tmp_path).read_bytes())
    interval = 0.01 if when == "idle" else 1000.0
    async with writing(tmp_path, check_interval=interval) as writer:
        await writer.apply(run_update(id="r"))
        await writer.apply(agent_update(dir=tmp_path / "agents/a", id="1"))
        await writer.apply(checkpoint("a"))
        rename_in(tmp_path, {**stale, "recordings": [{"path": "rec"}]})
        if when == "next write":
            await writer.apply(checkpoint("b"))
            assert checkpoint_names(tmp_path) == ["b", "a"]
        elif when == "idle":
            await wait_until_async(lambda: read(tmp_path).checkpoints)
    manifest = read(tmp_path)
    assert manifest.run == {"id": "r"}
    assert manifest.agents == [{"dir": "agents/a", "id": "1"}]
    assert "a" in checkpoint_names(tmp_path)
    assert recording_names(tmp_path) == ["rec"]


async def test_closing_looks_into_a_file_that_seems_untouched(tmp_path):
    async with writing(tmp_path) as writer:
        await writer.apply(checkpoint("a"))
        path = manifest_path(tmp_path)
        status = path.stat()
        path.write_bytes(path.read_bytes().replace(b"checkpoints/a", b"checkpoints/b"))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert checkpoint_names(tmp_path) == ["b", "a"]


async def test_what_others_wrote_is_not_undone_by_looking_after_our_entries(tmp_path):
    async with writing(tmp_path, check_interval=0.01) as writer:
        await writer.apply(run_update(id="r", status="running"))
        await writer.apply(agent_update(dir=tmp_path / "a", name="first"))
        theirs = {"run": {"id": "s"}, "agents": [{"dir": "a", "name": "later"}]}
        rename_in(tmp_path, theirs)
    manifest = read(tmp_path)
    assert (manifest.run, manifest.agents) == (theirs["run"], theirs["agents"])


async def test_a_manifest_that_cannot_be_repaired_is_reported_and_left(tmp_path, capsys):
    async with writing(tmp_path) as writer:
        await writer.apply(checkpoint("a"))
        manifest_path(tmp_path).write_text("{")
    assert manifest_path(tmp_path).read_text() == "{"
    assert "manifest_repair_failed" in capsys.readouterr().out


def test_what_a_killed_writer_left_beside_the_manifest_is_taken_in(tmp_path):
    rename_in(tmp_path, {})
    beside = manifest_path(tmp_path).parent
    (beside / ".manifest.json.0a.partial").write_text('{"recordings": [{"path": "saved"}]}')
    (beside / ".manifest.json.0b.partial").write_text('{"recordings": [{"pa')
    ManifestFile(manifest_path(tmp_path), lock_wait=1.0).apply([checkpoint("a")])
    assert recording_names(tmp_path) == ["saved"]
    assert files_beside(tmp_path) == CLEAN


# --- several manifests ----------------------------------------------------------------------


async def test_a_manifest_has_one_writer_and_every_manifest_its_own(tmp_path):
    async with ManifestWriters() as writers:
        one = writers.of(tmp_path / "one")
        assert writers.of(tmp_path / "one") is one
        assert writers.of(tmp_path / "other") is not one
    with pytest.raises(UsageError, match="closed"):
        await one.apply(checkpoint("a"))
    with pytest.raises(UsageError, match="closed"):
        writers.of(tmp_path / "third")


@BACKENDS
async def test_leaving_writes_what_is_queued_for_every_manifest(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    runs = [tmp_path / f"run{n}" for n in range(3)]
    async with anyio.create_task_group() as group, ManifestWriters() as writers:
        for run in runs:
            for name in "ab":
                group.start_soon(writers.of(run).apply, checkpoint(name))
        await wait_until_async(gate.is_reached.is_set)
        gate.open()
    for run in runs:
        assert sorted(checkpoint_names(run)) == ["a", "b"]
        assert files_beside(run) == CLEAN


@BACKENDS
async def test_what_somebody_overwrote_is_put_back_in_every_manifest_but_the_torn(tmp_path):
    runs = [tmp_path / f"run{n}" for n in range(3)]
    async with ManifestWriters(check_interval=0.01) as writers:
        await writers.of(runs[0]).apply(checkpoint("a"))
        for run in runs[1:]:
            await anyio.to_thread.run_sync(writers.apply, run, checkpoint("a"))
        manifest_path(runs[0]).write_bytes(b"{")
        for run in runs[1:]:
            rename_in(run, {"lab": 1})
            await wait_until_async(lambda: "a" in checkpoint_names(run))  # noqa: B023 - at once
        await writers.of(runs[1]).apply(checkpoint("b"))
        await anyio.to_thread.run_sync(writers.apply, runs[1], checkpoint("c"))
        assert checkpoint_names(runs[1]) == ["a", "b", "c"]
        rename_in(runs[2], {"lab": 2})
    assert checkpoint_names(runs[2]) == ["a"]
    assert read(runs[2]).document["lab"] == 2
    assert manifest_path(runs[0]).read_bytes() == b"{"


# --- several processes ----------------------------------------------------------------------

WRITER = """
import sys, anyio
from pathlib import Path
from clawblox.manifest_updates import checkpoint_update
from clawblox.manifest_writer import ManifestWriters
run_dir, who, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
async def main():
    async with ManifestWriters(lock_wait=30.0) as writers:
        writer = writers.of(run_dir)
        for n in range(count):
            await writer.apply(checkpoint_update({"path": f"checkpoints/{who}-{n}"}))
            print(f"{who}-{n}", flush=True)
        print("done", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)
anyio.run(main)
"""

WORLD = """
import json, os, sys
path, count = sys.argv[1], int(sys.argv[2])
for n in range(count):
    with open(path) as file:
        document = json.load(file)
    document.setdefault("recordings", []).append({"path": f"rec{n}", "events": n, "format": "v1"})
    with open(path + ".tmp", "w") as file:
        json.dump(document, file)
    os.rename(path + ".tmp", path)
"""


@contextlib.contextmanager
def program(source: str, *args: object) -> Iterator[subprocess.Popen]:
    with subprocess.Popen(
        [sys.executable, "-c", source, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def reading_all_the_time(run_dir: Path) -> Iterator[None]:
    """Read the manifest in a thread, and fail when a single reading is torn."""
    is_over = threading.Event()
    torn: list[Exception] = []

    def read() -> None:
        while not is_over.is_set():
            try:
                read_manifest(run_dir)
            except ManifestError as error:
                torn.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    assert not torn, torn[0]


def test_processes_that_write_at_once_lose_nothing_and_tear_nothing(tmp_path):
    rename_in(tmp_path, {"lab": 1})
    with contextlib.ExitStack() as stack:
        stack.enter_context(reading_all_the_time(tmp_path))
        for process in [stack.enter_context(program(WRITER, tmp_path, who, 40)) for who in "abc"]:
            process.communicate(timeout=60)
            assert process.returncode == 0
    assert set(checkpoint_names(tmp_path)) == {f"{who}-{n}" for who in "abc" for n in range(40)}
    assert len(checkpoint_names(tmp_path)) == 120
    assert read(tmp_path).document["lab"] == 1
    assert files_beside(tmp_path) == CLEAN


def test_a_world_that_appends_without_a_lock_and_its_orchestrators_lose_nothing(tmp_path):
    rename_in(tmp_path, {"lab": 1})
    with contextlib.ExitStack() as stack:
        stack.enter_context(reading_all_the_time(tmp_path))
        writers = [stack.enter_context(program(WRITER, tmp_path, who, 40)) for who in "ab"]
        for process in writers:
            assert process.stdout.readline() == f"{'ab'[writers.index(process)]}-0\n"
        world = stack.enter_context(program(WORLD, manifest_path(tmp_path), 400))
        assert world.wait(60) == 0
        for process in writers:
            process.communicate(timeout=60)
            assert process.returncode == 0
    names = checkpoint_names(tmp_path)
    assert set(names) == {f"{who}-{n}" for who in "ab" for n in range(40)}
    recordings = recording_names(tmp_path)
    assert set(recordings) == {f"rec{n}" for n in range(400)}
    assert (len(names), len(recordings)) == (80, 400)
    assert read(tmp_path).document["lab"] == 1
    assert files_beside(tmp_path) == CLEAN


def test_a_killed_writer_leaves_a_whole_manifest_with_all_it_acknowledged(tmp_path):
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    acknowledged: set[str] = set()
    for life in range(6):
        with program(WRITER, tmp_path, f"life{life}", 10_000) as process:
            lines = [process.stdout.readline() for _ in range(chance.randrange(1, 30))]
            threading.Event().wait(chance.random() / 500)
            process.send_signal(signal.SIGKILL)
            acknowledged.update(line.strip() for line in [*lines, *process.stdout])
        assert acknowledged <= set(checkpoint_names(tmp_path)), f"seed {seed}"
    ManifestFile(manifest_path(tmp_path), lock_wait=1.0).apply([checkpoint("last")])
    assert acknowledged <= set(checkpoint_names(tmp_path))
    assert files_beside(tmp_path) == CLEAN
