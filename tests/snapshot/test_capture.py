"""Saves: a good snapshot becomes a file and an entry, a bad one leaves no trace."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox import (
    AsyncWorld,
    ProcessExit,
    SavedSnapshot,
    SnapshotError,
    StartedWorld,
    WorldExitedError,
)
from clawblox.snapshot import capture as snapshots
from clawblox.snapshot import checker
from tests.snapshot.test_checker import DoomedChecker
from tests.support.processes import descendants, is_alive
from tests.support.sampling import sampled
from tests.support.waiting import HANG_S
from tests.support.worlds import RunningWorld, ask, make_world, running_world

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def running(
    tmp_path: Path, *flags: str, **arguments: Any
) -> AsyncIterator[tuple[AsyncWorld, StartedWorld]]:
    """Run one instance of a counter world."""
    with anyio.fail_after(HANG_S):
        async with AsyncWorld(dir=make_world(tmp_path, *flags)) as world:
            yield world, await world.start(run_dir=tmp_path / "run", **arguments)


def switch(started: StartedWorld, **faults: object) -> None:
    """Switch faults of a running world."""
    query = "&".join(f"{name.replace('_', '-')}={value}" for name, value in faults.items())
    ask(started.port, "POST", f"/__set?{query}")


def checkpoints_of(run_dir: Path) -> list[Any]:
    """Return the checkpoints in the manifest of a run."""
    manifest = json.loads((run_dir / ".clawblox" / "manifest.json").read_text())
    return manifest.get("checkpoints", [])  # type: ignore[no-any-return]


def files_of(run_dir: Path) -> list[str]:
    """Return all names in the directory of the checkpoints, including hidden ones."""
    directory = run_dir / "checkpoints"
    return sorted(os.listdir(directory)) if directory.exists() else []


async def failed_save(world: AsyncWorld, started: StartedWorld, **arguments: Any) -> SnapshotError:
    """Make a save that fails; check the error, the absence of leftovers, and the world."""
    with pytest.raises(SnapshotError) as caught:
        await world.save(**arguments)
    error = caught.value
    assert files_of(started.run_dir) == []
    assert checkpoints_of(started.run_dir) == []
    assert (error.instance, error.url, error.port) == (started.name, started.url, started.port)
    assert (error.log_file, error.command_file) == (started.log_file, started.command_file)
    assert error.log_lines
    assert error.elapsed_s is not None
    for fact in (f"phase: {error.phase}\n", f"bytes received: {error.bytes}", started.url):
        assert fact in str(error)
    assert is_alive(started.pid)
    switch(started, snapshot="sized", snapshot_mb=0)
    assert_is_on_disk(await world.save(), started)
    return error


def assert_is_on_disk(saved: SavedSnapshot, started: StartedWorld) -> None:
    """Check a saved snapshot against its file and entry, which must be the only ones."""
    content = saved["path"].read_bytes()
    assert saved["path"].parent == started.run_dir / "checkpoints"
    assert saved["size_bytes"] == len(content)
    assert saved["sha256"] == hashlib.sha256(content).hexdigest()
    assert stat.S_IMODE(saved["path"].stat().st_mode) == 0o600
    assert files_of(started.run_dir) == [saved["path"].name]
    (entry,) = checkpoints_of(started.run_dir)
    assert entry.pop("run_id").startswith(f"{started.name}-")
    assert entry == {**saved, "path": f"checkpoints/{saved['path'].name}"}


# ----------------------------------------------------------------------------- good answers


async def test_a_saved_snapshot_describes_the_file_on_disk(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        access = await world.connect("Rocky")
        body = b'{"type": "add", "data": 3}'
        ask(started.port, "POST", "/input", body=body, headers=access["headers"])
        saved = await world.save()
        assert_is_on_disk(saved, started)
    assert set(saved) == {
        *("path", "format", "time", "size_bytes", "sha256", "created_at", "instance")
    }
    assert (saved["format"], saved["time"], saved["instance"]) == ("counter-v1", 0.5, "w000")
    assert saved["created_at"].endswith("Z")
    document = json.loads(saved["path"].read_bytes())
    assert document["counter"] == 3
    assert document["sessions"][0]["session"] == access["session"]


@pytest.mark.thorough
@pytest.mark.parametrize("order", [(), ("--format-last",)], ids=["first", "last"])
@pytest.mark.parametrize("size", ["0", "6"])
@pytest.mark.parametrize("way", sampled(["sized", "chunked", "close-delimited"], 3))
async def test_format_and_time_are_found_at_any_position(
    tmp_path: Path, way: str, size: str, order: tuple[str, ...]
) -> None:
    flags = ("--snapshot", way, "--snapshot-mb", size, *order)
    async with running(tmp_path, *flags) as (world, started):
        saved = await world.save()
        assert_is_on_disk(saved, started)
    assert (saved["format"], saved["time"]) == ("counter-v1", 0.0)
    assert saved["path"].suffix == ".json"
    assert saved["size_bytes"] > int(size) * 900_000
    assert json.loads(saved["path"].read_bytes())["counter"] == 0


async def test_a_document_without_a_format_is_a_world_snapshot(tmp_path: Path) -> None:
    async with running(tmp_path, "--snapshot", "no-format") as (world, started):
        saved = await world.save()
        assert_is_on_disk(saved, started)
    assert (saved["format"], saved["time"]) == ("world-snapshot", 0.0)


@pytest.mark.parametrize("way", ["opaque", "garbage"])
async def test_a_snapshot_that_is_not_json_is_accepted(tmp_path: Path, way: str) -> None:
    async with running(tmp_path, "--snapshot", way) as (world, started):
        saved = await world.save()
        assert_is_on_disk(saved, started)
    assert (saved["format"], saved["time"]) == ("world-snapshot", None)
    assert saved["path"].suffix == ".snapshot"


@pytest.mark.parametrize("size", sampled([0, 6], 2))
@pytest.mark.parametrize(
    "shape", sampled(["nan", "opaque", "bom", "brace", "deep", "gzip-file", "text-html"], 3)
)
async def test_a_snapshot_of_any_shape_is_kept_to_the_byte_and_restored(
    tmp_path: Path, shape: str, size: int
) -> None:
    flags = ("--snapshot", shape, "--snapshot-mb", str(size))
    async with running(tmp_path, *flags) as (world, started):
        access = await world.connect("Rocky")
        ask(started.port, "POST", "/input", body=b'{"type": "add"}', headers=access["headers"])
        operator = {"X-Operator-Token": started.env["WORLD_OPERATOR_TOKEN"]}
        sent = ask(started.port, "GET", "/snapshot", headers=operator).body
        saved = await world.save()
        assert_is_on_disk(saved, started)
        assert saved["path"].read_bytes() == sent
        await world.stop()
        again = await world.start(run_dir=started.run_dir, resume=saved["path"])
        seen = ask(again.port, "GET", "/observe", headers=access["headers"])
        assert seen.json()["counter"] == 1
        assert (await world.save())["sha256"] == saved["sha256"]
    is_strict = shape == "text-html"
    found = (saved["format"], saved["time"], saved["path"].suffix)
    assert found == (
        ("counter-v1", 0.5, ".json") if is_strict else ("world-snapshot", None, ".snapshot")
    )


async def test_saves_of_one_instance_at_a_time_are_each_complete(tmp_path: Path) -> None:
    saved: list[SavedSnapshot] = []

    async def save() -> None:
        saved.append(await world.save())

    async with (
        running(tmp_path, "--snapshot-mb", "2") as (world, started),
        anyio.create_task_group() as tasks,
    ):
        for _ in range(6):
            tasks.start_soon(save)
    assert len({one["path"] for one in saved}) == 6
    assert len({one["sha256"] for one in saved}) == 1
    for one in saved:
        assert hashlib.sha256(one["path"].read_bytes()).hexdigest() == one["sha256"]
    assert files_of(started.run_dir) == sorted(one["path"].name for one in saved)
    assert len(checkpoints_of(started.run_dir)) == 6


async def test_a_snapshot_is_saved_to_the_given_directory(tmp_path: Path) -> None:
    os.chdir(tmp_path)
    async with running(tmp_path) as (world, started):
        inside = await world.save(dir="run/saves/deep")
        outside = await world.save(dir=tmp_path / "elsewhere")
    assert inside["path"].parent == tmp_path / "run" / "saves" / "deep"
    assert stat.S_IMODE(inside["path"].parent.stat().st_mode) == 0o700
    assert [entry["path"] for entry in checkpoints_of(started.run_dir)] == [
        f"saves/deep/{inside['path'].name}",
        str(outside["path"]),
    ]


async def test_only_files_of_killed_saves_are_swept(tmp_path: Path) -> None:
    directory = tmp_path / "run" / "checkpoints"
    directory.mkdir(parents=True)
    of_a_dead_owner = directory / ".w000.999999999-1.0a1b2c3d.partial"
    of_nobody = directory / ".w000.notes"
    for path in (of_a_dead_owner, of_nobody):
        path.touch()
    async with running(tmp_path) as (world, _):
        saved = await world.save()
    assert set(files_of(tmp_path / "run")) == {of_nobody.name, saved["path"].name}


# ------------------------------------------------------------------------------ bad answers


@pytest.mark.parametrize(
    ("fault", "phase", "received", "status", "message"),
    [
        ("status-401", "headers", 0, 401, "answered 401 -: 'who are you?'"),
        ("status-404", "headers", 0, 404, "answered 404 -: 'there is no such thing'"),
        ("status-500", "headers", 0, 500, "answered 500 -: 'Traceback"),
        ("redirect", "headers", 0, 302, "answered 302"),
        ("gzip", "headers", 0, 200, "Content-Encoding 'gzip'"),
        ("declared-huge", "headers", 0, 200, "has 1000000000000000 bytes"),
        ("truncated", "body", 40, None, "ended after 40 of"),
        ("truncated-chunked", "body", 40, None, "ended early"),
        ("truncated-close-delimited", "body", 40, None, "it may be incomplete"),
        ("empty", "body", 0, 200, "empty"),
        ("html", "verify", 33, 200, "web page"),
    ],
)
async def test_an_unusable_answer_leaves_neither_file_nor_entry(
    tmp_path: Path, fault: str, phase: str, received: int, status: int | None, message: str
) -> None:
    async with running(tmp_path, "--snapshot", fault) as (world, started):
        error = await failed_save(world, started)
    assert (error.phase, error.bytes, error.status) == (phase, received, status)
    assert message in error.message


@pytest.mark.thorough
async def test_a_document_whose_checkers_are_killed_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, "--snapshot-mb", "6") as (world, started):
        with monkeypatch.context() as patch:
            patch.setattr(checker, "Checker", DoomedChecker)
            error = await failed_save(world, started)
    assert error.phase == "verify"
    assert "the process that checked the document was killed" in error.message


@pytest.mark.thorough
async def test_no_checker_is_kept_without_a_save_in_progress(tmp_path: Path) -> None:
    async with running(tmp_path, "--snapshot-mb", "6") as (world, _):
        before = descendants(os.getpid())
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(world.save)
        assert descendants(os.getpid()) <= before


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "phase", "received"),
    [("hang-before-headers", "headers", 0), ("hang-in-body", "body", 40)],
)
async def test_a_hanging_snapshot_ends_at_its_timeout(
    tmp_path: Path, fault: str, phase: str, received: int
) -> None:
    async with running(tmp_path, "--snapshot", fault) as (world, started):
        error = await failed_save(world, started, timeout=0.25)
    assert (error.phase, error.bytes) == (phase, received)
    assert "took longer than 0.25 s" in error.message


@pytest.mark.thorough
async def test_the_timeout_applies_to_the_whole_slow_snapshot(tmp_path: Path) -> None:
    flags = ("--snapshot", "slow-loris", "--drip-interval", "0.02")
    async with running(tmp_path, *flags) as (world, started):
        error = await failed_save(world, started, timeout=0.5)
    assert error.phase == "body"
    assert 0 < error.bytes < 100
    assert "took longer than 0.5 s" in error.message


@pytest.mark.thorough
async def test_time_in_the_queue_does_not_count_towards_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_TRANSFERS_AT_ONCE", 1)
    waiting_s, timeout_s = 1.5, 1.0
    async with running(tmp_path, "--snapshot", "hang-before-headers") as (world, started):
        async with anyio.create_task_group() as tasks:
            first = anyio.CancelScope()

            async def hang() -> None:
                with first:
                    await world.save(timeout=HANG_S)

            async def let_go() -> None:
                await anyio.sleep(waiting_s)
                await anyio.to_thread.run_sync(lambda: switch(started, snapshot="sized"))
                first.cancel()

            tasks.start_soon(hang)
            tasks.start_soon(let_go)
            await anyio.wait_all_tasks_blocked()
            saved = await world.save(timeout=timeout_s)
        assert files_of(started.run_dir) == [saved.path.name]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "received"), [("sized", 0), ("chunked", 40_000), ("endless", 40_000)]
)
async def test_a_snapshot_above_the_size_limit_is_refused(
    tmp_path: Path, fault: str, received: int
) -> None:
    flags = ("--snapshot", fault, "--snapshot-mb", "1")
    async with running(tmp_path, *flags) as (world, started):
        error = await failed_save(world, started, max_bytes=40_000)
    assert "40000" in error.message
    assert error.phase == ("body" if received else "headers")
    assert error.bytes >= received


async def test_a_snapshot_of_exactly_the_size_limit_is_accepted(tmp_path: Path) -> None:
    async with running(tmp_path, "--snapshot", "chunked") as (world, _):
        size = (await world.save(dir=tmp_path / "first"))["size_bytes"]
        assert (await world.save(max_bytes=size))["size_bytes"] == size
        with pytest.raises(SnapshotError):
            await world.save(max_bytes=size - 1)


async def test_a_world_that_dies_in_the_body_is_reported_as_dead(tmp_path: Path) -> None:
    async with running(tmp_path, "--snapshot", "die-in-body") as (world, started):
        with pytest.raises(WorldExitedError) as caught:
            await world.save()
        assert caught.value.exit == ProcessExit(signal="SIGKILL")
        assert caught.value.log_lines
        assert files_of(started.run_dir) == []
        assert checkpoints_of(started.run_dir) == []


async def test_a_world_that_does_not_listen_fails_the_save_in_its_first_phase(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (world, started):
        ask(started.port, "POST", "/__close-listener")
        with pytest.raises(SnapshotError, match="Connection refused") as caught:
            await world.save()
        assert (caught.value.phase, caught.value.bytes) == ("connect", 0)
        assert files_of(started.run_dir) == []
        assert is_alive(started.pid)


async def test_a_failed_save_does_not_affect_earlier_saves(tmp_path: Path) -> None:
    async with running(tmp_path) as (world, started):
        saved = await world.save()
        switch(started, snapshot="truncated")
        with pytest.raises(SnapshotError):
            await world.save()
        assert_is_on_disk(saved, started)


# -------------------------------------------------------------------------- destinations


def received(world: RunningWorld) -> list[Any]:
    return world.ask("GET", "/__requests").json()  # type: ignore[no-any-return]


async def test_a_redirect_is_not_followed_with_the_token(tmp_path: Path) -> None:
    with running_world(tmp_path) as elsewhere:
        url = f"http://127.0.0.1:{elsewhere.port}/snapshot"
        flags = ("--snapshot", "redirect", "--redirect-to", url)
        async with running(tmp_path, *flags) as (world, started):
            await failed_save(world, started)
        assert received(elsewhere) == []


@pytest.mark.thorough
async def test_proxies_of_the_environment_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_world(tmp_path) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        async with running(tmp_path) as (world, _):
            access = await world.connect("Rocky")
            await world.save()
            await world.leave(access)
        assert received(proxy) == []


async def test_the_token_is_sent_for_snapshots_only_and_never_in_the_address(
    tmp_path: Path,
) -> None:
    token = "the-operator-token-of-this-test"
    async with running(tmp_path, env={"WORLD_OPERATOR_TOKEN": token}) as (world, started):
        await world.leave(await world.connect("Rocky"))
        await world.save()
        requests = ask(started.port, "GET", "/__requests").json()
    with_token = [one for one in requests if token in json.dumps(one)]
    assert [(one["method"], one["path"], one["query"]) for one in with_token] == [
        ("GET", "/snapshot", {})
    ]
    assert with_token[0]["headers"]["x-operator-token"] == token
    assert with_token[0]["headers"]["accept-encoding"] == "identity"


# ------------------------------------------------------------------------- memory and disk

SAVE = """
import json, os, resource, sys
import anyio
from clawblox import AsyncWorld, SnapshotError
from tests.support.resources import open_fds
from tests.support.waiting import wait_until_async

def bytes_of(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))

async def main():
    async with AsyncWorld(dir=sys.argv[1]) as world:
        await world.start(run_dir=sys.argv[2])
        await world.save()
        {body}

anyio.run(main)
"""


def run_orchestrator(tmp_path: Path, body: str, *flags: str) -> Any:
    """Run an orchestrator that saves once and continues with ``body``; return its output."""
    lines = body.strip().splitlines()
    program = SAVE.replace("{body}", "\n        ".join(lines))
    run = str(tmp_path / "run")
    directory = make_world(tmp_path, *flags)
    done = subprocess.run(
        [sys.executable, "-c", program, str(directory), run],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0
    return json.loads(done.stdout)


FAULTS = """
import urllib.request
def switch(query):
    request = urllib.request.Request(f"{world.url}/__set?{query}", method="POST")
    urllib.request.urlopen(request).close()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("way", sampled(["sized", "chunked"], 2))
def test_a_save_takes_constant_memory(tmp_path: Path, way: str) -> None:
    """Private memory is limited, because the peak of resident memory includes mapped files."""
    body = f"""{FAULTS}
switch("snapshot-mb=50&snapshot={way}&format-last=")
soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
resource.setrlimit(resource.RLIMIT_DATA, (bytes_of("VmData:") + 16_000_000, hard))
with open("/proc/self/clear_refs", "w") as control:
    control.write("5")
before = bytes_of("VmRSS:")
saved = await world.save()
growth = bytes_of("VmHWM:") - before
resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
print(json.dumps([saved["size_bytes"], saved["format"], growth]))
"""
    size, format_, growth = run_orchestrator(tmp_path, body)
    assert size > 49_000_000
    assert format_ == "counter-v1"
    assert growth < 16_000_000


@pytest.mark.thorough
def test_a_full_disk_fails_the_save_without_leaving_files(tmp_path: Path) -> None:
    body = f"""{FAULTS}
switch("snapshot-mb=1")
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
try:
    await world.save()
except SnapshotError as error:
    failure = [error.phase, error.bytes, error.message]
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
print(json.dumps(failure))
"""
    phase, count, message = run_orchestrator(tmp_path, body)
    assert phase == "body"
    assert count > 0
    assert "File too large" in message
    assert len(files_of(tmp_path / "run")) == 1
    assert len(checkpoints_of(tmp_path / "run")) == 1


@pytest.mark.thorough
def test_a_lack_of_descriptors_fails_the_save_without_leaving_files(tmp_path: Path) -> None:
    body = """
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
kinds = []
for spare in range(6):
    count = len(open_fds())
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + spare, hard))
    try:
        await world.save()
        kinds.append("saved")
    except SnapshotError as error:
        kinds.append(error.phase)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await wait_until_async(lambda: len(open_fds()) == count)
print(json.dumps(kinds))
"""
    kinds = run_orchestrator(tmp_path, body)
    assert kinds[0] != "saved"
    assert kinds[-1] == "saved"
    saved = kinds.count("saved") + 1
    assert len(files_of(tmp_path / "run")) == len(checkpoints_of(tmp_path / "run")) == saved


@pytest.mark.thorough
async def test_the_error_names_a_path_that_is_not_a_directory(tmp_path: Path) -> None:
    place = tmp_path / "a-file"
    place.touch()
    async with running(tmp_path) as (world, started):
        for directory in (place, place / "below"):
            with pytest.raises(SnapshotError, match=str(place)) as caught:
                await world.save(dir=directory)
            assert caught.value.bytes == 0
        assert checkpoints_of(started.run_dir) == []
        assert ask(started.port, "GET", "/api.md").status == 200
        assert_is_on_disk(await world.save(), started)
