"""Archives in one step: starts from them, forks from them, and checkpoints into them."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import pickle
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import attrs
import pytest

import clawblox
from clawblox import (
    AsyncWorld,
    CheckpointError,
    CheckpointFormatError,
    CheckpointSecretError,
    ConfigError,
    ManifestError,
    SnapshotRefusedError,
    StartedWorld,
    World,
    WorldExitedError,
    async_load_checkpoint,
    async_read_metadata,
    async_save_checkpoint,
    read_manifest,
    save_checkpoint,
)
from clawblox.checkpoint import verify_checkpoint
from tests.checkpoint.runs import contents, fake_token
from tests.support.crowd import act
from tests.support.running import Bot, manifest_of
from tests.support.starting import add
from tests.support.worlds import ask, make_world
from tests.world.test_cancellation import (
    LAST_SUSPENSION,
    Interrupted,
    leftovers,
    run_and_cancel,
)

PACKAGE = Path(clawblox.__file__).parent

pytestmark = pytest.mark.anyio


@pytest.fixture
def world_dir(tmp_path: Path) -> Path:
    return make_world(tmp_path)


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """Make the directory of an agent that has written something."""
    workspace = tmp_path / "first" / "agents" / "Rocky" / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "SOUL.md").write_text("I look for stones.\n")
    (workspace / ".mcp.json").write_text("{}")
    return workspace.parent


@pytest.fixture
async def archive(tmp_path: Path, world_dir: Path, agent: Path) -> Path:
    """Play in a world until its number is 5, and archive the world."""
    async with AsyncWorld(dir=world_dir) as world:
        started = await world.start(run_dir=tmp_path / "first")
        access = await world.connect(Bot("Rocky", agent))
        add(started, access["headers"], 5)
        path = tmp_path / "first" / "checkpoints" / "gen1.ckpt"
        await world.checkpoint(path, {"Rocky": agent}, metadata={"generation": 1})
    return path


def number(started: StartedWorld) -> int:
    session = ask(started.port, "POST", "/join?name=reader").json()["session"]
    return int(json.loads(act(started.port, session, 0))["counter"])


async def is_sound(path: Path) -> bool:
    return (await anyio.to_thread.run_sync(verify_checkpoint, path)).is_verified


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def loads(run_dir: Path) -> list[str]:
    """Return the files that a load has put into a run directory, including temporary files."""
    names = [path.name for path in run_dir.glob("*")] if run_dir.exists() else []
    return sorted(
        name for name in names if name in ("world.snapshot", "agents") or "partial" in name
    )


# ------------------------------------------------------------------------------------ starting


@pytest.mark.thorough
async def test_a_start_from_an_archive_loads_the_agents_and_restores_the_world(
    tmp_path: Path, world_dir: Path, archive: Path, agent: Path
) -> None:
    run_dir = tmp_path / "second"
    session = (agent / "world_session.txt").read_text()
    async with AsyncWorld(dir=world_dir) as world:
        started = await world.start(resume=archive, run_dir=run_dir)
        assert started.resume_path == run_dir / "world.snapshot"
        assert started.loaded is not None
        assert started.loaded["agents"] == {"Rocky": run_dir / "agents" / "Rocky"}
        assert started.loaded.agents == started.loaded["agents"]
        assert pickle.loads(pickle.dumps(started)).loaded == started.loaded
        assert started.loaded["metadata"]["generation"] == 1
        soul = run_dir / "agents" / "Rocky" / "workspace" / "SOUL.md"
        assert soul.read_text() == "I look for stones.\n"
        assert add(started, {"X-Session": session.strip()}, 2)["counter"] == 7
        assert (await world.start(run_dir=tmp_path / "fresh")).loaded is None
    by_hand = await async_load_checkpoint(archive, tmp_path / "again")
    assert started.loaded.keys() == by_hand.keys()
    for key in ("metadata", "excluded", "verified"):
        assert started.loaded[key] == by_hand[key]


async def test_the_manifest_names_the_snapshot_its_digest_and_the_archive(
    tmp_path: Path, world_dir: Path, archive: Path
) -> None:
    async with AsyncWorld(dir=world_dir) as world:
        await world.start(resume=archive, run_dir=tmp_path / "second")
        path = await world.checkpoint(tmp_path / "second" / "gen2.ckpt")
    run = manifest_of(tmp_path / "second")["run"]
    expected = (await async_read_metadata(archive))["files"]["world.snapshot"]["sha256"]
    assert run == {
        "resume_from": "world.snapshot",
        "parent_sha256": expected,
        "resume_archive": str(archive),
    }
    assert (await async_read_metadata(path))["lineage"]["parent_sha256"] == expected


@pytest.mark.thorough
async def test_an_archive_is_recognised_by_its_first_bytes(
    tmp_path: Path, world_dir: Path, archive: Path
) -> None:
    renamed = archive.rename(tmp_path / "gen1.zip")
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("positions.bin", b"")  # a name as long as that of the metadata
    (tmp_path / "state.zip").write_bytes(other.getvalue())
    (tmp_path / "short").write_bytes(b"PK\3\4")
    async with AsyncWorld(dir=world_dir) as world:
        started = await world.start(resume=renamed, run_dir=tmp_path / "second")
        assert started.loaded is not None
        assert number(started) == 5
        for name in ("state.zip", "short"):  # snapshots that no world of this kind reads
            with pytest.raises(SnapshotRefusedError):
                await world.start(resume=tmp_path / name, run_dir=tmp_path / "third")


async def test_a_file_that_is_only_named_like_an_archive_is_refused(
    tmp_path: Path, world_dir: Path
) -> None:
    false = tmp_path / "false.ckpt"
    for content in (b"", b"PK", b'{"counter": 5}'):
        false.write_bytes(content)
        async with AsyncWorld(dir=world_dir) as world:
            with pytest.raises(CheckpointFormatError) as caught:
                await world.start(resume=false, run_dir=tmp_path / "run")
            with pytest.raises(CheckpointFormatError):
                await world.fork(false, run_dir=tmp_path / "run")
        assert caught.value.path == false
    assert loads(tmp_path / "run") == []


async def test_an_archive_is_not_loaded_into_a_world_directory(
    tmp_path: Path, world_dir: Path, archive: Path
) -> None:
    (tmp_path / "link").symlink_to(world_dir)
    async with AsyncWorld(dir=world_dir) as world:
        for options in ({}, {"run_dir": world_dir}, {"run_dir": tmp_path / "link"}):
            with pytest.raises(ConfigError, match="give run_dir=") as caught:
                await world.start(resume=archive, **options)
            assert caught.value.key == "run_dir"
    assert loads(world_dir) == []


async def test_an_archive_without_a_snapshot_starts_no_world(
    tmp_path: Path, world_dir: Path, agent: Path
) -> None:
    path = await async_save_checkpoint(tmp_path / "agents.ckpt", agents={"Rocky": agent})
    async with AsyncWorld(dir=world_dir) as world:
        for begin in (world.start(resume=path, run_dir=tmp_path / "run"), world.fork(path)):
            with pytest.raises(CheckpointError, match="no snapshot of a world") as caught:
                await begin
            assert caught.value.path == path
    assert loads(tmp_path / "run") == []


async def test_an_archive_that_differs_from_the_registered_one_is_refused(
    tmp_path: Path, world_dir: Path, archive: Path
) -> None:
    given = {"path": archive, "sha256": "0" * 64}
    async with AsyncWorld(dir=world_dir) as world:
        with pytest.raises(ConfigError, match="its digest differs"):
            await world.start(resume=given, run_dir=tmp_path / "run")
        started = await world.start(
            resume={**given, "sha256": digest(archive)}, run_dir=tmp_path / "run"
        )
        assert number(started) == 5


@pytest.mark.parametrize("had", ["nothing", "an empty directory of agents", "another agent"])
async def test_a_failed_start_removes_the_loaded_state(
    tmp_path: Path, world_dir: Path, archive: Path, had: str
) -> None:
    run_dir = tmp_path / "second"
    if had != "nothing":
        (run_dir / "agents").mkdir(parents=True)
    if had == "another agent":
        (run_dir / "agents" / "Eko").mkdir()
        (run_dir / "agents" / "Eko" / "notes").write_text("here before")
    before = dict(contents(run_dir))
    foreign = make_world(tmp_path, "--scene", "other", name="foreign")
    async with AsyncWorld(dir=foreign) as world:
        with pytest.raises(SnapshotRefusedError):
            await world.start(resume=archive, run_dir=run_dir)
    after = dict(contents(run_dir))
    assert {path: after[path] for path in before} == before
    assert loads(run_dir) == (["agents"] if before else [])
    assert not [path for path in after if "Rocky" in path or "partial" in path]
    async with AsyncWorld(dir=world_dir) as world:
        assert number(await world.start(resume=archive, run_dir=run_dir)) == 5


async def test_existing_files_in_the_way_of_an_archive_are_kept(
    tmp_path: Path, world_dir: Path, archive: Path
) -> None:
    run_dir = tmp_path / "second"
    (run_dir / "agents" / "Rocky").mkdir(parents=True)
    async with AsyncWorld(dir=world_dir) as world:
        with pytest.raises(CheckpointError, match="already exists"):
            await world.start(resume=archive, run_dir=run_dir)
        # An invalid option is found before the archive is loaded.
        with pytest.raises(ConfigError, match="its directory does not exist"):
            await world.start(
                resume=archive, run_dir=tmp_path / "third", log_file=tmp_path / "no" / "log"
            )
    assert (run_dir / "agents" / "Rocky").is_dir()
    assert loads(run_dir) == ["agents"]
    assert not (tmp_path / "third").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_a_cancelled_start_from_an_archive_leaves_no_files(
    tmp_path: Path, world_dir: Path, archive: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from clawblox.world.archives import ArchiveStart

    original, run_dir = ArchiveStart.run, tmp_path / "second"
    async with AsyncWorld(dir=world_dir) as world:
        for at in range(1, LAST_SUSPENSION):
            interrupted = Interrupted(at)
            monkeypatch.setattr(
                ArchiveStart, "run", lambda self, i=interrupted: i.drive(original(self))
            )
            was_cancelled = await run_and_cancel(
                interrupted, kind, lambda: world.start(resume=archive, run_dir=run_dir)
            )
            if not was_cancelled:
                break
            assert interrupted.has_struck
            assert loads(run_dir) == [], f"cancelled at suspension {at}"
            assert leftovers(run_dir) == [], f"cancelled at suspension {at}"
            assert world.instances == ()
        assert at > 4, "the start hardly suspended: is it still driven?"
        assert world.instances
        assert loads(run_dir) == ["agents", "world.snapshot"]


# ------------------------------------------------------------------------------------- many


@pytest.mark.thorough
async def test_many_instances_use_only_the_world_of_an_archive(
    tmp_path: Path, world_dir: Path, archive: Path
) -> None:
    run_dir = tmp_path / "many"
    expected = (await async_read_metadata(archive))["files"]["world.snapshot"]["sha256"]
    async with AsyncWorld(dir=world_dir) as world:
        batches = [
            await world.start_many(2, resume=archive, run_dir=run_dir),
            await world.start_many([{"resume": str(archive)}, {}], run_dir=run_dir),
            await world.fork(archive, 2, run_dir=run_dir),
        ]
        numbers = [[number(started) for started in batch] for batch in batches]
        assert numbers == [[5, 5], [5, 0], [5, 5]]
    assert loads(run_dir) == []
    (snapshot,) = (run_dir / "checkpoints").iterdir()  # one for all instances
    assert snapshot.name == f"gen1-{expected[:12]}.snapshot"
    assert digest(snapshot) == expected
    for batch in batches:
        for started in batch:
            run = manifest_of(started.instance_dir)["run"]
            if started.resume_path is None:
                assert "resume_archive" not in run
                continue
            assert (run["resume_from"], run["parent_sha256"]) == (str(snapshot), expected)
            assert run["resume_archive"] == str(archive)


@pytest.mark.thorough
async def test_a_fork_of_an_archive_joins_the_run_of_the_archive(
    tmp_path: Path, world_dir: Path, archive: Path
) -> None:
    async with AsyncWorld(dir=world_dir) as world:
        (fork,) = await world.fork(archive)
    assert fork.run_dir == tmp_path / "first"


@pytest.mark.thorough
async def test_a_changed_extracted_snapshot_is_extracted_again(
    tmp_path: Path, world_dir: Path, archive: Path
) -> None:
    async with AsyncWorld(dir=world_dir) as world:
        (fork,) = await world.fork(archive, run_dir=tmp_path / "many")
        assert fork.resume_path is not None
        fork.resume_path.write_text("{}")
        (again,) = await world.fork(archive, run_dir=tmp_path / "many")
        assert again.resume_path == fork.resume_path
        assert number(again) == 5


# ------------------------------------------------------------------------------- checkpoints


async def test_a_checkpoint_is_a_save_and_an_archive_and_both_are_registered(
    tmp_path: Path, archive: Path
) -> None:
    assert await is_sound(archive)
    manifest = await anyio.to_thread.run_sync(read_manifest, tmp_path / "first")
    snapshot, listed = manifest.checkpoints
    assert [snapshot["instance"], listed["format"]] == ["w000", "clawblox-ckpt-v1"]
    assert manifest.resolve(listed["path"]) == archive
    metadata = await async_read_metadata(archive)
    assert metadata["files"]["world.snapshot"]["sha256"] == snapshot["sha256"]
    assert metadata["lineage"]["run_id"] == snapshot["run_id"] == listed["run_id"]
    assert metadata["generation"] == 1
    excluded = [one["path"] for one in metadata["excluded"] if "/workspace/" in one["path"]]
    assert excluded == ["agents/Rocky/workspace/.mcp.json"]


async def test_a_checkpoint_returns_the_facts_of_its_archive(
    tmp_path: Path, world_dir: Path, agent: Path
) -> None:
    async with AsyncWorld(dir=world_dir) as world:
        await world.start(run_dir=tmp_path / "first")
        path = tmp_path / "first" / "gen1.ckpt"
        saved = await world.checkpoint(path, {"Rocky": agent}, metadata={"generation": 1})
        assert (saved.path, os.fspath(saved)) == (path, str(path))
        content = path.read_bytes()
        assert saved.size_bytes == len(content)
        assert saved.sha256 == hashlib.sha256(content).hexdigest()
        assert saved.metadata == await async_read_metadata(saved)
        (left_out,) = saved.excluded
        assert left_out.path == "agents/Rocky/workspace/.mcp.json"
        assert saved.mid_turn == ()
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            saved.size_bytes = 0  # type: ignore[misc]
        listed = manifest_of(tmp_path / "first")["checkpoints"][-1]
        assert (listed["sha256"], listed["size_bytes"]) == (saved.sha256, saved.size_bytes)
        assert (await world.start(resume=saved, run_dir=tmp_path / "next")).loaded is not None


async def test_a_checkpoint_takes_the_options_of_save_checkpoint() -> None:
    ours = dict(inspect.signature(AsyncWorld.checkpoint).parameters)
    theirs = dict(inspect.signature(save_checkpoint).parameters)
    own = {"self", "instance", "timeout", "max_bytes"}
    assert ours.keys() - own == theirs.keys() - {"world_snapshot"}
    for name in ours.keys() - own:
        assert ours[name].default == theirs[name].default, name
        assert ours[name].annotation == theirs[name].annotation, name


async def test_a_checkpoint_accepts_agents_instead_of_directories(
    tmp_path: Path, world_dir: Path, agent: Path
) -> None:
    async with AsyncWorld(dir=world_dir) as world:
        await world.start(run_dir=tmp_path / "first")
        made = await world.checkpoint(tmp_path / "one.ckpt", [Bot("Rocky", agent)])
        assert list((await async_read_metadata(made))["agents"]) == ["Rocky"]
        for wrong in (Bot("Rocky", agent), [agent], "Rocky", 7):
            with pytest.raises(ConfigError, match="must be agents, or their directories by name"):
                await world.checkpoint(tmp_path / "two.ckpt", wrong)  # type: ignore[arg-type]
        twice = [Bot("Rocky", agent), Bot("Rocky", tmp_path)]
        with pytest.raises(ConfigError, match="must be agents of different names, not 'Rocky'"):
            await world.checkpoint(tmp_path / "two.ckpt", twice)


Spoil = Callable[[Path], dict[str, Any]]


def put_secret(agent: Path) -> dict[str, Any]:
    (agent / "workspace" / "notes").write_text(fake_token())
    return {}


def stop_it(_agent: Path) -> dict[str, Any]:
    def fail(done: int, _total: int) -> None:
        if done:
            raise KeyError(done)

    return {"progress": fail}


@pytest.mark.parametrize(
    ("spoil", "error"), [(put_secret, CheckpointSecretError), (stop_it, KeyError)]
)
async def test_a_failed_checkpoint_leaves_neither_archive_nor_snapshot(
    tmp_path: Path, world_dir: Path, agent: Path, spoil: Spoil, error: type[Exception]
) -> None:
    run_dir, path = tmp_path / "first", tmp_path / "first" / "checkpoints" / "gen1.ckpt"
    async with AsyncWorld(dir=world_dir) as world:
        await world.start(run_dir=run_dir, restart="checkpoint")
        options = spoil(agent)
        with pytest.raises(error):
            await world.checkpoint(path, {"Rocky": agent}, **options)
        assert list(path.parent.iterdir()) == []
        (entry,) = manifest_of(run_dir)["checkpoints"]
        assert "removed_at" in entry


@pytest.mark.thorough
async def test_a_checkpoint_whose_archive_is_complete_when_it_fails_keeps_both_files(
    tmp_path: Path, world_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_run_dir: Path, *_entries: Any) -> None:
        raise ManifestError("the disk is full")

    monkeypatch.setattr("clawblox.checkpoint.archive.registry.register", fail)
    path = tmp_path / "first" / "checkpoints" / "gen1.ckpt"
    async with AsyncWorld(dir=world_dir) as world:
        await world.start(run_dir=tmp_path / "first")
        with pytest.raises(CheckpointError, match="the archive is complete"):
            await world.checkpoint(path)
    assert sorted(one.suffix for one in path.parent.iterdir()) == [".ckpt", ".json"]


@pytest.mark.thorough
async def test_a_checkpoint_with_an_invalid_argument_saves_no_file(
    tmp_path: Path, world_dir: Path, agent: Path, archive: Path
) -> None:
    run_dir = tmp_path / "second"
    async with AsyncWorld(dir=world_dir) as world:
        started = await world.start(run_dir=run_dir)
        path = run_dir / "checkpoints" / "gen1.ckpt"
        for options in (
            {"path": run_dir / "gen1.zip"},
            {"agents": {"Rocky": tmp_path / "nobody"}},
            {"idle_wait": -1},
            {"allow": ["this"]},
            {"timeout": 0},
        ):
            with pytest.raises(ConfigError):
                await world.checkpoint(**{"path": path, **options})
        with pytest.raises(CheckpointError, match="a file of that name"):
            await world.checkpoint(archive)
        assert not path.parent.exists()
        await world.checkpoint(path)
        add(started, (await world.connect("Eko"))["headers"], 3)
        await world.checkpoint(path, overwrite=True)
        assert await is_sound(path)
        (fork,) = await world.fork(path, run_dir=tmp_path / "fork")
        assert number(fork) == 3
        ask(started.port, "POST", "/__die?status=9")
        with pytest.raises(WorldExitedError):
            await world.checkpoint(run_dir / "late.ckpt", instance=started.name)


async def test_a_checkpoint_is_removed_with_its_snapshot_and_marked_in_the_manifest(
    tmp_path: Path, world_dir: Path, agent: Path
) -> None:
    run_dir = tmp_path / "run"
    first, second = (run_dir / "checkpoints" / f"gen{number}.ckpt" for number in (1, 2))
    async with AsyncWorld(dir=world_dir) as world:
        started = await world.start(run_dir=run_dir)
        await world.checkpoint(first, {"Rocky": agent})
        ask(started.port, "POST", "/join?name=Rocky")
        await world.checkpoint(second)
        await world.remove_checkpoint(first)
        assert kept(run_dir) == on_disk(run_dir)
        assert [path.suffix for path in sorted(on_disk(run_dir))] == [".ckpt", ".json"]
        assert await is_sound(second)
        await world.remove_checkpoint(second)
        assert [path.suffix for path in on_disk(run_dir)] == [".json"]  # the latest save
        await world.checkpoint(first)
        assert first in kept(run_dir)
        with pytest.raises(CheckpointError, match="No such file"):
            await world.remove_checkpoint(second)
        with pytest.raises(CheckpointFormatError):
            await world.remove_checkpoint(world_dir / "world.toml")
    assert (world_dir / "world.toml").exists()


def on_disk(run_dir: Path) -> set[Path]:
    return set((run_dir / "checkpoints").iterdir())


def kept(run_dir: Path) -> set[Path]:
    """Return the checkpoints in the manifest that were not removed."""
    entries = (one for one in _entries(run_dir) if "removed_at" not in one)
    return {run_dir / one["path"] for one in entries}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["anyio", "asyncio"])
async def test_a_cancelled_checkpoint_leaves_both_files_or_neither(
    tmp_path: Path, world_dir: Path, agent: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from clawblox.world import instance_calls

    original, run_dir = instance_calls.save_archive, tmp_path / "run"
    path = run_dir / "checkpoints" / "gen1.ckpt"
    async with AsyncWorld(dir=world_dir) as world:
        await world.start(run_dir=run_dir)
        for at in range(1, LAST_SUSPENSION):
            interrupted = Interrupted(at)
            monkeypatch.setattr(
                instance_calls,
                "save_archive",
                lambda *args, i=interrupted: i.drive(original(*args)),
            )
            was_cancelled = await run_and_cancel(
                interrupted, kind, lambda: world.checkpoint(path, {"Rocky": agent})
            )
            found = sorted(one.suffix for one in path.parent.glob("*"))
            assert found in ([], [".ckpt", ".json"]), f"cancelled at suspension {at}"
            entries = [one for one in _entries(run_dir) if "removed_at" not in one]
            assert sorted(Path(one["path"]).suffix for one in entries) == found
            if found:
                assert await is_sound(path)
                break
        assert at > 4, "the checkpoint hardly suspended: is it still driven?"
        assert found or not was_cancelled


def _entries(run_dir: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = manifest_of(run_dir).get("checkpoints", [])
    return found


# ------------------------------------------------------------------------------------- sync


@pytest.fixture
def sync_world(world_dir: Path) -> Iterator[World]:
    with World(dir=world_dir) as world:
        yield world


def test_a_script_makes_a_checkpoint_and_starts_from_it(
    tmp_path: Path, sync_world: World, agent: Path
) -> None:
    steps: list[tuple[int, int]] = []
    started = sync_world.start(run_dir=tmp_path / "first")
    act(started.port, sync_world.connect("Rocky")["session"], 4)
    path = sync_world.checkpoint(
        tmp_path / "gen1.ckpt", {"Rocky": agent}, progress=lambda *step: steps.append(step)
    )
    sync_world.stop(grace_seconds=1)
    again = sync_world.start(resume=path, run_dir=tmp_path / "second")
    assert number(again) == 4
    assert again.loaded is not None
    assert list(again.loaded["agents"]) == ["Rocky"]
    assert steps
    assert steps[-1][0] == steps[-1][1] > 0


@pytest.mark.thorough
def test_a_checkpoint_traceback_shows_no_known_secret(
    tmp_path: Path, sync_world: World, agent: Path
) -> None:
    secret = "correct horse " + "battery staple"
    (agent / "workspace" / "notes").write_text(f"The word is {secret}.")
    sync_world.start(run_dir=tmp_path / "first")
    with pytest.raises(CheckpointSecretError) as caught:
        sync_world.checkpoint(
            tmp_path / "gen1.ckpt", {"Rocky": agent}, known_secrets=["".join(secret)]
        )
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    frames = [frame for frame in shown.stack if Path(frame.filename).is_relative_to(PACKAGE)]
    assert len(frames) > 2
    assert secret not in json.dumps([frame.locals for frame in frames])
