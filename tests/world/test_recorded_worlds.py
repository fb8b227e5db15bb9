"""A record of a recording's world is trusted only if no other user or agent can have written it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawblox.errors import UsageError
from clawblox.rundir.manifest import manifest_path
from clawblox.rundir.paths import records_journal, state_dir
from clawblox.rundir.recordings import find_run_dir, list_recordings
from clawblox.rundir.records import read_records
from clawblox.world.recorded_worlds import find_recorded_world
from tests.rundir.support import make_record

NOBODY = 65534
FILE = "recordings/recording-0001.jsonl.zst"


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return write_world(tmp_path / "world")


@pytest.fixture
def run_dir(tmp_path: Path, world: Path) -> Path:
    return write_run(tmp_path / "run", world)


def write_world(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "world.toml").write_text('name = "w"\n')
    return directory


def write_run(run_dir: Path, world: Path, instance: str = "", **fields: Any) -> Path:
    """Write a run directory with a recording, of the only instance or of one of many."""
    home = run_dir / "worlds" / instance if instance else run_dir
    (home / "recordings").mkdir(parents=True, mode=0o700)
    (home / FILE).touch(mode=0o600)
    names = {"name": instance} if instance else {}
    make_record(
        run_dir, 0, **{"world_dir": str(world), "instance_dir": str(home), **names, **fields}
    )
    write_manifest(home, {"recordings": [{"path": FILE, "format": "clawblox-recording-v2"}]})
    if instance:
        entry = {"name": instance, "dir": f"worlds/{instance}"}
        write_manifest(run_dir, {"instances": [entry]})
    return run_dir


def write_manifest(directory: Path, document: dict[str, Any]) -> None:
    state_dir(directory).mkdir(mode=0o700, exist_ok=True)
    path = manifest_path(directory)
    path.write_bytes(msgspec.json.encode({"schema_version": 1, **document}))
    path.chmod(0o600)


def find(file: Path) -> Path:
    """Find the world of a recording as ``clawblox verify FILE`` does."""
    run_dir = find_run_dir(file)
    assert run_dir is not None
    (recording,) = list_recordings(run_dir)
    return find_recorded_world(recording, run_dir)


def test_a_moved_world_must_be_given_explicitly(run_dir: Path, world: Path) -> None:
    world.rename(world.with_name("moved"))
    with pytest.raises(UsageError) as caught:
        find(run_dir / FILE)
    assert f"is gone: {world} is not a directory" in caught.value.message
    assert caught.value.hint == "if it was moved, give its directory with world_dir="


@pytest.mark.parametrize("instance", ["", "w000"])
def test_the_own_record_of_a_listed_recording_names_its_world(
    tmp_path: Path, world: Path, instance: str
) -> None:
    run_dir = write_run(tmp_path / "run", world, instance)
    assert find((run_dir / "worlds" / instance if instance else run_dir) / FILE) == world


PLACES: dict[str, Callable[[Path], Path]] = {
    "the run directory": lambda run_dir: run_dir,
    "its state": state_dir,
    "the directory of its records": lambda run_dir: records_journal(run_dir).parent,
    "its records": records_journal,
    "the manifest": lambda run_dir: manifest_path(run_dir / "worlds" / "w000"),
    "the directory of the manifest": lambda run_dir: state_dir(run_dir / "worlds" / "w000"),
    "the instance": lambda run_dir: run_dir / "worlds" / "w000",
    "the directory of the recording": lambda run_dir: (run_dir / "worlds" / "w000" / FILE).parent,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_record_writable_by_other_users_is_ignored(
    tmp_path: Path, world: Path, place: str
) -> None:
    run_dir = write_run(tmp_path / "run", world, "w000")
    file, part = run_dir / "worlds" / "w000" / FILE, PLACES[place](run_dir)
    mode = part.stat().st_mode & 0o7777
    for writable in (0o020, 0o002, 0o1002):
        part.chmod(mode | writable)
        with pytest.raises(
            UsageError, match=f"is not trusted, because other users can write {part}"
        ):
            find(file)
    part.chmod(mode | 0o055)  # others may read it
    assert find(file) == world


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("place", PLACES)
def test_a_record_of_another_user_is_ignored(tmp_path: Path, world: Path, place: str) -> None:
    run_dir = write_run(tmp_path / "run", world, "w000")
    part = PLACES[place](run_dir)
    os.chown(part, NOBODY, -1)
    with pytest.raises(
        UsageError, match=f"is not trusted, because {part} belongs to user {NOBODY}"
    ):
        find(run_dir / "worlds" / "w000" / FILE)


def test_only_records_of_the_caller_and_root_are_trusted(
    run_dir: Path, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    if owner == 0:
        assert find(run_dir / FILE) == world
        return
    with pytest.raises(UsageError, match=f"{run_dir} belongs to user {owner}"):
        find(run_dir / FILE)


@pytest.mark.parametrize("place", ["its state", "the instance", "the directory of the recording"])
def test_a_link_between_record_and_recording_is_not_followed(
    tmp_path: Path, world: Path, place: str
) -> None:
    run_dir = write_run(tmp_path / "run", world, "w000")
    part = PLACES[place](run_dir)
    part.rename(tmp_path / "elsewhere")
    part.symlink_to(tmp_path / "elsewhere")
    (recording,) = list_recordings(run_dir)
    with pytest.raises(UsageError, match=f"is not trusted, because {part} is a symbolic link"):
        find_recorded_world(recording, run_dir)


def test_a_record_counts_only_for_recordings_that_its_manifest_lists(run_dir: Path) -> None:
    planted = run_dir / "recordings" / "planted"
    planted.write_bytes((run_dir / FILE).read_bytes())
    assert find_run_dir(planted) is None
    manifest_path(run_dir).unlink()
    assert find_run_dir(run_dir / FILE) is None


def test_a_strangers_manifest_does_not_hide_the_run_directory_above(run_dir: Path) -> None:
    records_journal(run_dir / "recordings").parent.mkdir(parents=True)
    records_journal(run_dir / "recordings").touch()
    manifest_path(run_dir / "recordings").write_text("[" * 10_000)
    assert find_run_dir(run_dir / FILE) == run_dir


@pytest.mark.parametrize("place", ["worlds/planted", "agents/a/workspace/w", "."])
def test_a_world_in_the_run_directory_must_be_given_explicitly(tmp_path: Path, place: str) -> None:
    world = tmp_path / "run" / place
    run_dir = write_run(tmp_path / "run", world)
    with pytest.raises(UsageError, match=r"must be given: .* is in the run directory"):
        find(run_dir / FILE)
    (tmp_path / "link").symlink_to(world)
    make_record(run_dir, 0, world_dir=str(tmp_path / "link"))
    with pytest.raises(UsageError, match=f"the one that ran, {world.resolve()}, is in"):
        find(run_dir / FILE)


@pytest.mark.parametrize("place", ["workspace/made/w", "home", "session/x"])
def test_a_world_in_an_agents_files_must_be_given_explicitly(tmp_path: Path, place: str) -> None:
    agent = tmp_path / "agent"
    (agent / "runtime").mkdir(parents=True)
    run_dir = write_run(tmp_path / "run", write_world(agent / place))
    with pytest.raises(UsageError, match=f"is in the files of the agent in {agent}"):
        find(run_dir / FILE)


def test_a_run_in_an_agents_files_is_ignored(tmp_path: Path, world: Path) -> None:
    agent = tmp_path / "agent"
    (agent / "session").mkdir(parents=True)  # an agent from an archive has no runtime yet
    run_dir = write_run(agent / "workspace" / "run", world)
    with pytest.raises(UsageError, match=f"because the agent in {agent} can write it"):
        find(run_dir / FILE)


@pytest.mark.parametrize("world_dir", ["https://github.com/o/r/tree/main/w", "worlds/panda", ""])
def test_a_record_names_its_world_by_an_absolute_path(tmp_path: Path, world_dir: str) -> None:
    run_dir = write_run(tmp_path / "run", tmp_path, world_dir=world_dir)
    assert (read_records(run_dir) == []) is (":" in world_dir)  # an address would be downloaded
    with pytest.raises(UsageError, match="it is not known which world made"):
        find(run_dir / FILE)
