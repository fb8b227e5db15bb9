"""Removal of entries from a manifest, and entries kept because they are referenced."""

import json
from pathlib import Path

import pytest

from clawblox.rundir.manifest import Manifest, Update, manifest_path, read_manifest
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.rundir.manifest_updates import (
    agent_update,
    checkpoint_update,
    instances_update,
    restart_update,
    retirement_update,
    run_update,
)

ROOT = Path("/runs/r")
EMPTY = Manifest(ROOT / ".clawblox" / "manifest.json")
A, B = (ROOT / "checkpoints" / name for name in ("a.json", "b.json"))


def autosave(path):
    return checkpoint_update({"path": path, "sha256": "ab"}, is_autosave=True)


def retirement(*paths):
    return retirement_update(paths, at="2026-06-23T00:00:00Z")


def names(manifest):
    return [Path(entry["path"]).name for entry in manifest.checkpoints]


def test_a_retired_autosave_leaves_no_entry():
    manifest = EMPTY.merged(autosave(A), autosave(B))
    removed = manifest.merged(retirement(A))
    assert removed == EMPTY.merged(autosave(B))
    assert removed.merged(retirement(A)) == removed
    assert EMPTY.merged(retirement(A)) == EMPTY


def test_an_update_can_register_an_autosave_and_remove_another():
    registered = autosave(B)
    both = Update(checkpoints=registered.checkpoints, retired=retirement(A).retired)
    assert names(EMPTY.merged(autosave(A)).merged(both)) == ["b.json"]


@pytest.mark.parametrize(
    "naming",
    [
        restart_update(number=1, at="now", exit="", resume_from=A, run_id="r", by="policy"),
        run_update(resume_from=A),
        run_update(labels={"parent": "a.json"}),
        instances_update({"w1": ROOT / "worlds/w1"}, {"w1": {"parent": str(A)}}),
        Update(forked=(str(A),)),
    ],
    ids=["restart", "resume_from", "label of the run", "label of an instance", "fork"],
)
def test_a_referenced_autosave_stays_listed_after_its_retirement(naming):
    manifest = EMPTY.merged(autosave(A), naming).merged(retirement(A), naming)
    (entry,) = manifest.checkpoints
    assert (entry["path"], entry["sha256"]) == ("checkpoints/a.json", "ab")
    assert entry["removed_at"] == "2026-06-23T00:00:00Z"


def test_a_fork_from_an_unlisted_file_adds_no_entry():
    assert EMPTY.merged(Update(forked=(str(A),))) == EMPTY
    assert EMPTY.merged(autosave(B), Update(forked=(str(A),))) == EMPTY.merged(autosave(B))


def test_invalid_entries_survive_a_retirement():
    odd = [7, None, {}, {"path": 5}, {"path": ""}, {"path": "checkpoints/a.json", "autosave": 1}]
    manifest = Manifest(EMPTY.path, {"checkpoints": odd, "restarts": [3], "instances": [None]})
    *others, last = manifest.merged(retirement(A)).checkpoints
    assert others == odd[:-1]
    assert last == {**odd[-1], "removed_at": "2026-06-23T00:00:00Z"}


def test_a_retired_autosave_stays_away_when_a_world_writes_a_stale_copy(tmp_path):
    file = ManifestFile(manifest_path(tmp_path), lock_wait=1.0)
    first, second = tmp_path / "checkpoints/a.json", tmp_path / "checkpoints/b.json"
    file.apply([autosave(first)])
    stale = json.loads(manifest_path(tmp_path).read_bytes())
    both = Update(checkpoints=autosave(second).checkpoints, retired=retirement(first).retired)
    file.apply([both])
    for repair in (
        lambda: file.repair(is_thorough=False),
        lambda: file.apply([run_update(id="r")]),
    ):
        temporary = manifest_path(tmp_path).with_name("manifest.json.tmp")
        temporary.write_text(json.dumps({**stale, "recordings": [{"path": "rec"}]}))
        temporary.replace(manifest_path(tmp_path))
        repair()
        manifest = read_manifest(tmp_path)
        assert names(manifest) == ["b.json"]
        assert manifest.recordings == [{"path": "rec"}]


def joined(name, number):
    return agent_update(id=f"agent-{number}", name=name, world_agent_id=f"agent-{number}")


def test_an_id_reused_by_a_restored_world_with_another_name_is_another_agent():
    manifest = EMPTY.merged(joined("ada", 3)).merged(joined("ben", 3)).merged(joined("ada", 3))
    assert [agent["name"] for agent in manifest.agents] == ["ada", "ben"]
    assert EMPTY.filled(manifest).agents == manifest.agents


def test_an_agent_that_rejoins_replaces_its_old_entry():
    left = ({"id": "agent-1", "name": "ada"},)
    again = Update(agents=joined("ada", 2).agents, left=left)
    with_dir = agent_update(id="agent-1", name="ada", world_agent_id="agent-1", dir="/agents/ada")
    manifest = EMPTY.merged(joined("ben", 7), joined("ada", 1)).merged(again)
    assert [agent["id"] for agent in manifest.agents] == ["agent-7", "agent-2"]
    assert manifest.merged(again) == manifest
    assert len(EMPTY.merged(with_dir).merged(again).agents) == 2
