"""Programs that write the same manifest, with or without the lock, lose no entries."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawblox.errors import ManifestError
from clawblox.rundir import manifest_file
from clawblox.rundir.manifest import manifest_path, read_manifest
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.rundir.manifest_updates import agent_update, checkpoint_update, run_update
from clawblox.system import files
from tests.rundir.manifest_writer.support import (
    CLEAN,
    checkpoint,
    checkpoint_names,
    files_beside,
    read,
    recording_names,
    rename_in,
    writing,
)
from tests.support.waiting import HANG_S, wait_until_async

pytestmark = pytest.mark.anyio


def append_recording(run_dir: Path, name: str) -> None:
    """Append like worlds, without a lock."""
    document = json.loads(manifest_path(run_dir).read_bytes())
    document.setdefault("recordings", []).append({"path": name, "events": 1, "format": "v1"})
    rename_in(run_dir, document)


# --- a program without the lock -------------------------------------------------------------


@pytest.fixture(params=["exchange", "replace"])
def _any_file_system(request, monkeypatch) -> None:
    """Run the test with and without the exchange of two files."""
    if request.param == "replace":
        monkeypatch.setattr(files, "_libc", lambda _name: None)


def just_before(
    monkeypatch: pytest.MonkeyPatch, name: str, actions: Iterator[Callable[[], None]]
) -> None:
    """Run the next of ``actions`` before each call of the function with that name."""
    function = getattr(manifest_file, name)

    def disturbed(*args, **options):
        next(actions, lambda: None)()
        return function(*args, **options)

    monkeypatch.setattr(manifest_file, name, disturbed)


@pytest.mark.usefixtures("_any_file_system")
def test_an_entry_written_during_a_write_is_merged(tmp_path, monkeypatch):
    rename_in(tmp_path, {"lab": 1})
    actions = (lambda n=n: append_recording(tmp_path, f"rec{n}") for n in range(3))
    just_before(monkeypatch, "_write_private", actions)
    ManifestFile(manifest_path(tmp_path), lock_wait=1.0).apply([checkpoint("a")])
    assert recording_names(tmp_path) == ["rec0", "rec1", "rec2"]
    assert checkpoint_names(tmp_path) == ["a"]
    assert read(tmp_path).document["lab"] == 1
    assert files_beside(tmp_path) == CLEAN


def test_an_entry_written_just_before_the_exchange_is_merged(tmp_path, monkeypatch):
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
    """The second entry is added to the own version, without the first, or to the first version."""
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
    # Two files are written: one that the exchange finds outdated, and its successor.
    just_before(monkeypatch, "_write_private", iter([lambda: None, second]))
    ManifestFile(manifest_path(tmp_path), lock_wait=1.0).apply([checkpoint("a")])
    assert sorted(recording_names(tmp_path)) == ["one", "two"]
    assert checkpoint_names(tmp_path) == ["a"]
    assert files_beside(tmp_path) == CLEAN


def test_a_manifest_that_another_program_created_first_is_merged(tmp_path, monkeypatch):
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


def test_a_program_that_is_always_faster_loses_no_entry(tmp_path, monkeypatch):
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


def test_a_program_that_is_always_faster_is_an_error_without_exchange(tmp_path, monkeypatch):
    rename_in(tmp_path, {})
    monkeypatch.setattr(files, "_libc", lambda _name: None)
    just_before(monkeypatch, "_write_private", endless(tmp_path))
    with pytest.raises(ManifestError, match="keeps changing the manifest"):
        ManifestFile(manifest_path(tmp_path), lock_wait=1.0).apply([checkpoint("a")])
    assert len(recording_names(tmp_path)) == manifest_file._ATTEMPTS
    assert files_beside(tmp_path) == CLEAN


@pytest.mark.parametrize("when", ["next write", "idle", "close"])
async def test_own_entries_are_restored_after_a_world_overwrites_them(tmp_path, when):
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


async def test_closing_reads_a_file_that_seems_unchanged(tmp_path):
    async with writing(tmp_path) as writer:
        await writer.apply(checkpoint("a"))
        path = manifest_path(tmp_path)
        status = path.stat()
        path.write_bytes(path.read_bytes().replace(b"checkpoints/a", b"checkpoints/b"))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert checkpoint_names(tmp_path) == ["b", "a"]


async def test_repairing_own_entries_keeps_entries_of_other_writers(tmp_path):
    async with writing(tmp_path, check_interval=0.01) as writer:
        await writer.apply(run_update(id="r", status="running"))
        await writer.apply(agent_update(dir=tmp_path / "a", name="first"))
        theirs = {"run": {"id": "s"}, "agents": [{"dir": "a", "name": "later"}]}
        rename_in(tmp_path, theirs)
    manifest = read(tmp_path)
    assert (manifest.run, manifest.agents) == (theirs["run"], theirs["agents"])


async def test_an_unrepairable_manifest_is_reported_and_left_unchanged(tmp_path, capsys):
    async with writing(tmp_path) as writer:
        await writer.apply(checkpoint("a"))
        manifest_path(tmp_path).write_text("{")
    assert manifest_path(tmp_path).read_text() == "{"
    assert "manifest_repair_failed" in capsys.readouterr().err


def test_the_remnants_of_a_killed_writer_are_merged(tmp_path):
    rename_in(tmp_path, {})
    beside = manifest_path(tmp_path).parent
    (beside / ".manifest.json.0a.partial").write_text('{"recordings": [{"path": "saved"}]}')
    (beside / ".manifest.json.0b.partial").write_text('{"recordings": [{"pa')
    ManifestFile(manifest_path(tmp_path), lock_wait=1.0).apply([checkpoint("a")])
    assert recording_names(tmp_path) == ["saved"]
    assert files_beside(tmp_path) == CLEAN


KILLED_BETWEEN = """
import os, signal, sys
from pathlib import Path
from clawblox.rundir import manifest_file
from clawblox.rundir.manifest import manifest_path
from clawblox.rundir.manifest_updates import retirement_update
run_dir, moment = Path(sys.argv[1]), sys.argv[2]
def kill(*_args):
    os.kill(os.getpid(), signal.SIGKILL)
def exchange_and_die(*args, exchange=manifest_file.rename_with):
    assert exchange(*args)
    kill()
manifest_file.rename_with = {"before": kill, "after": exchange_and_die}[moment]
update = retirement_update([run_dir / "checkpoints" / "a"], at="2026-01-01T00:00:00Z")
manifest_file.ManifestFile(manifest_path(run_dir), lock_wait=1.0).apply([update])
"""


@pytest.mark.parametrize(("moment", "left"), [("before", ["a", "b"]), ("after", ["b"])])
def test_entries_that_a_killed_writer_retired_do_not_come_back(tmp_path, moment, left):
    file = ManifestFile(manifest_path(tmp_path), lock_wait=1.0)
    for name in ("a", "b"):
        entry = {"path": f"checkpoints/{name}", "format": "f", "autosave": True}
        file.apply([checkpoint_update(entry)])
    with program(KILLED_BETWEEN, tmp_path, moment) as process:
        assert process.wait(HANG_S) == -signal.SIGKILL
    assert len(files_beside(tmp_path) - CLEAN) == 1
    ManifestFile(manifest_path(tmp_path), lock_wait=1.0).apply([run_update(id="r")])
    assert checkpoint_names(tmp_path) == left
    assert files_beside(tmp_path) == CLEAN


# --- several processes ----------------------------------------------------------------------

WRITER = """
import sys, anyio
from pathlib import Path
from clawblox.rundir.manifest_updates import checkpoint_update
from clawblox.rundir.manifest_writer import ManifestWriters
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
    """Read the manifest in a thread, and fail if any read is torn."""
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


@pytest.mark.thorough
def test_concurrent_writers_lose_no_entry_and_tear_no_file(tmp_path):
    rename_in(tmp_path, {"lab": 1})
    with contextlib.ExitStack() as stack:
        stack.enter_context(reading_all_the_time(tmp_path))
        for process in [stack.enter_context(program(WRITER, tmp_path, who, 40)) for who in "abc"]:
            process.communicate(timeout=HANG_S)
            assert process.returncode == 0
    assert set(checkpoint_names(tmp_path)) == {f"{who}-{n}" for who in "abc" for n in range(40)}
    assert len(checkpoint_names(tmp_path)) == 120
    assert read(tmp_path).document["lab"] == 1
    assert files_beside(tmp_path) == CLEAN


@pytest.mark.thorough
def test_a_world_without_a_lock_and_its_orchestrators_lose_no_entry(tmp_path):
    rename_in(tmp_path, {"lab": 1})
    with contextlib.ExitStack() as stack:
        stack.enter_context(reading_all_the_time(tmp_path))
        writers = [stack.enter_context(program(WRITER, tmp_path, who, 40)) for who in "ab"]
        for process in writers:
            assert process.stdout.readline() == f"{'ab'[writers.index(process)]}-0\n"
        world = stack.enter_context(program(WORLD, manifest_path(tmp_path), 400))
        assert world.wait(HANG_S) == 0
        for process in writers:
            process.communicate(timeout=HANG_S)
            assert process.returncode == 0
    names = checkpoint_names(tmp_path)
    assert set(names) == {f"{who}-{n}" for who in "ab" for n in range(40)}
    recordings = recording_names(tmp_path)
    assert set(recordings) == {f"rec{n}" for n in range(400)}
    assert (len(names), len(recordings)) == (80, 400)
    assert read(tmp_path).document["lab"] == 1
    assert files_beside(tmp_path) == CLEAN


@pytest.mark.thorough
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
