"""The manifest: its form, merging of updates, and reading."""

import json
import os
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox.errors import ConfigError, ManifestError
from clawblox.protocol import ScriptErrors
from clawblox.results import SavedSnapshot
from clawblox.rundir import manifest_file
from clawblox.rundir.manifest import (
    Manifest,
    Update,
    manifest_path,
    parse_manifest,
    read_manifest,
    read_runs,
    serialise_manifest,
)
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.rundir.manifest_updates import (
    agent_update,
    checkpoint_update,
    instances_update,
    recording_update,
    removal_update,
    reopened_update,
    restart_update,
    run_update,
)

ROOT = Path("/runs/r001")
PATH = manifest_path(ROOT)
EMPTY = Manifest(PATH)

SAVED = SavedSnapshot(
    path=ROOT / "checkpoints" / "a.json",
    format="mujoco-state-v1",
    time=12.5,
    size_bytes=10,
    sha256="ab",
    created_at="2026-06-22T18:59:25Z",
    instance="w000",
)


def write(run_dir: Path, document: object) -> Path:
    path = manifest_path(run_dir)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(document))
    return path


# --- the form -------------------------------------------------------------------------------


def test_the_file_is_indented_sorted_and_ends_with_a_newline():
    manifest = EMPTY.merged(run_update(id="r-1", status="running"), checkpoint_update(SAVED))
    assert serialise_manifest(manifest).decode() == (
        json.dumps(manifest.document, indent=2, sort_keys=True) + "\n"
    )
    assert manifest.document["schema_version"] == 1


def test_a_checkpoint_has_every_field_of_its_snapshot_and_a_relative_path():
    assert EMPTY.merged(checkpoint_update(SAVED)).checkpoints == [
        {**SAVED, "path": "checkpoints/a.json"}
    ]


def test_a_path_outside_the_run_directory_stays_absolute():
    manifest = EMPTY.merged(
        checkpoint_update({"path": "/elsewhere/a.json"}),
        agent_update(dir="/runs/r0011/agents/a"),
        recording_update(path="/runs/r001/../r002/rec"),
        run_update(resume_from="/runs/r000/checkpoints/z.json"),
    )
    assert manifest.checkpoints[0]["path"] == "/elsewhere/a.json"
    assert manifest.agents[0]["dir"] == "/runs/r0011/agents/a"
    assert manifest.recordings[0]["path"] == "/runs/r001/../r002/rec"
    assert manifest.run["resume_from"] == "/runs/r000/checkpoints/z.json"


def test_a_path_that_leads_inside_through_a_link_is_inside(tmp_path):
    root = tmp_path / "real"
    (root / "agents").mkdir(parents=True)
    (tmp_path / "link").symlink_to(root)
    manifest = Manifest(manifest_path(root)).merged(agent_update(dir=tmp_path / "link/agents/a"))
    assert manifest.agents[0]["dir"] == "agents/a"
    assert manifest.resolve("agents/a") == root / "agents" / "a"


def test_a_relative_argument_counts_from_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    manifest = Manifest(manifest_path(tmp_path / "r")).merged(
        agent_update(dir="r/agents/a"),
        recording_update(path=Path("r/rec")),
        run_update(resume_from="old.json"),
    )
    assert manifest.agents[0]["dir"] == "agents/a"
    assert manifest.recordings[0]["path"] == "rec"
    assert manifest.run["resume_from"] == str(tmp_path / "old.json")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(st.text(), json_values, max_size=4)
undecodable = st.text(st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF), max_size=3)


@settings(max_examples=30)
@given(st.dictionaries(st.text(), json_values | undecodable, max_size=4))
def test_a_written_manifest_reads_back_equal(unknown):
    document = {**{f"x{key}": value for key, value in unknown.items()}, "schema_version": 1}
    data = serialise_manifest(Manifest(PATH, document))
    assert parse_manifest(data, PATH).document == document
    assert data.endswith(b"}\n")
    assert list(json.loads(data)) == sorted(document)


def test_values_unsupported_by_json_become_null():
    numbers = f"[NaN, -Infinity, 1e400, {'9' * 5000}, {10**60}]"
    manifest = parse_manifest(f'{{"x": {numbers}, "y": "\\ud800"}}'.encode(), PATH)
    written = serialise_manifest(manifest).decode()
    assert json.loads(written)["x"] == [None] * 4 + [10**60]
    assert "Infinity" not in written
    manifest = parse_manifest(b'{"x": [NaN, -Infinity]}', PATH)
    assert json.loads(serialise_manifest(manifest)) == {"x": [None, None]}


def test_the_documented_example_matches_a_written_manifest():
    page = (Path(__file__).parents[2] / "docs" / "manifest.md").read_text()
    example = page.split("```json\n")[1].split("```")[0].encode()
    assert serialise_manifest(parse_manifest(example, PATH)) == example


# --- the updates ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (datetime(2026, 6, 22, 18, 59, 25), "2026-06-22T18:59:25Z"),
        (datetime(2026, 6, 22, 18, 59, 25, 999_999, tzinfo=UTC), "2026-06-22T18:59:25Z"),
        (
            datetime(2026, 6, 22, 20, 59, 25, tzinfo=timezone(timedelta(hours=2))),
            "2026-06-22T18:59:25Z",
        ),
        ("2026-06-22T18:59:25Z", "2026-06-22T18:59:25Z"),
        ("2026-06-22T20:59:25.5+02:00", "2026-06-22T18:59:25Z"),
        ("2026-06-22 18:59:25", "2026-06-22T18:59:25Z"),
    ],
)
def test_times_are_written_as_utc_with_a_z(given, written):
    manifest = EMPTY.merged(run_update(started_at=given, ended_at=given))
    assert manifest.run == {"started_at": written, "ended_at": written}


@pytest.mark.parametrize(
    "given",
    [SAVED, dict(SAVED), SAVED.path, str(SAVED.path), {"path": "checkpoints/a.json", "more": {}}],
)
def test_every_form_of_a_snapshot_is_noted_as_the_origin_of_a_run(given):
    manifest = EMPTY.merged(run_update(resume_from=given))
    assert manifest.run["resume_from"] == "checkpoints/a.json"


@pytest.mark.parametrize(
    ("make", "arguments", "key"),
    [
        (run_update, {"id": ""}, "id"),
        (run_update, {"id": 5}, "id"),
        (run_update, {"index": "3"}, "index"),
        (run_update, {"index": True}, "index"),
        (run_update, {"index": -1}, "index"),
        (run_update, {"status": "done"}, "status"),
        (run_update, {"status": []}, "status"),
        (run_update, {"started_at": "yesterday"}, "started_at"),
        (run_update, {"started_at": 12}, "started_at"),
        (run_update, {"started_at": date(2026, 1, 1)}, "started_at"),
        (run_update, {"ended_at": datetime.min.replace(tzinfo=timezone.max)}, "ended_at"),
        (run_update, {"resume_from": ""}, "resume_from"),
        (run_update, {"resume_from": 5}, "resume_from"),
        (run_update, {"resume_from": {"format": "x"}}, "resume_from"),
        (run_update, {"resume_from": {"path": 5}}, "resume_from"),
        (run_update, {"parent_sha256": ""}, "parent_sha256"),
        (run_update, {"parent_sha256": b"ab"}, "parent_sha256"),
        (agent_update, {}, "dir"),
        (agent_update, {"name": "a"}, "dir"),
        (agent_update, {"dir": ""}, "dir"),
        (agent_update, {"dir": 5}, "dir"),
        (agent_update, {"id": 5}, "id"),
        (agent_update, {"dir": "/a", "name": 5}, "name"),
        (agent_update, {"dir": "/a", "run_name": ""}, "run_name"),
        (agent_update, {"dir": "/a", "world_agent_id": 5}, "world_agent_id"),
        (recording_update, {"path": ""}, "path"),
        (recording_update, {"path": "/a", "format": 5}, "format"),
        (recording_update, {"path": "/a", "events": object()}, "events"),
        (recording_update, {"path": "/a", "events": float("nan")}, "events"),
        (checkpoint_update, {"checkpoint": {}}, "path"),
        (checkpoint_update, {"checkpoint": {"path": 5}}, "path"),
        (checkpoint_update, {"checkpoint": {"path": "/a", "more": {1, 2}}}, "more"),
    ],
)
def test_the_error_names_an_invalid_argument_and_its_value(make, arguments, key):
    with pytest.raises(ConfigError) as caught:
        make(**arguments)
    assert caught.value.key == key
    assert key in str(caught.value)
    wrong = {**arguments, **arguments.get("checkpoint", {})}.get(key)
    wrong = wrong.get("path") if isinstance(wrong, dict) else wrong
    assert repr(caught.value.value) == repr(wrong)
    assert wrong is None or repr(wrong) in str(caught.value)


def test_later_changes_by_the_caller_do_not_affect_an_update():
    events = [1]
    update = recording_update(path="/a", events=events)
    events.append(2)
    assert update.recordings[0]["events"] == [1]


def test_an_update_can_be_pickled():
    update = run_update(id="a")
    assert pickle.loads(pickle.dumps(update)) == update


# --- how they merge -------------------------------------------------------------------------


def test_fields_that_an_update_omits_are_kept():
    first = EMPTY.merged(run_update(id="r", index=3, started_at="2026-06-22T18:59:25Z"))
    second = first.merged(run_update(id="r", status="complete"), agent_update(dir="/a", id="1"))
    assert second.run == {**first.run, "status": "complete"}
    assert second.merged(agent_update(dir="/a", name="x")).agents == [
        {"dir": "/a", "id": "1", "name": "x"}
    ]


def test_a_different_run_id_starts_another_run_and_keeps_unknown_keys():
    document = {
        "run": {"id": "a", "status": "complete", "ended_at": "x", "parent_sha256": "ab", "lab": 7}
    }
    ended = Manifest(PATH, document).merged(run_update(script_errors=ScriptErrors(1, "no")))
    assert ended.run["script_errors"] == {"count": 1, "last": "no"}
    manifest = ended.merged(run_update(id="b", status="running"))
    assert manifest.run == {"id": "b", "status": "running", "lab": 7}


def test_entries_of_an_agent_by_directory_and_by_id_are_merged():
    by_dir, by_id = agent_update(dir="/a", name="x"), agent_update(id="7", world_agent_id="w")
    both = agent_update(dir="/a", id="7")
    one = {"dir": "/a", "id": "7", "name": "x", "world_agent_id": "w"}
    assert EMPTY.merged(by_dir, by_id, both).agents == [one]
    assert EMPTY.merged(by_id, by_dir, both).agents == [one]
    assert EMPTY.merged(both, by_id, by_dir).agents == [one]


def test_agents_with_different_ids_in_the_same_directory_stay_apart():
    manifest = EMPTY.merged(agent_update(dir="/a", id="1"), agent_update(dir="/a", id="2"))
    assert [agent["id"] for agent in manifest.agents] == ["1", "2"]


def test_an_agent_that_moved_keeps_its_entry():
    manifest = EMPTY.merged(agent_update(dir="/a", id="1"), agent_update(dir="/b", id="1"))
    assert manifest.agents == [{"dir": "/b", "id": "1"}]


def test_another_spelling_of_a_path_is_the_same_entry():
    theirs = {"path": str(ROOT / "recordings" / ".." / "recordings" / "a"), "events": 3}
    manifest = Manifest(PATH, {"recordings": [theirs]})
    merged = manifest.merged(recording_update(path=ROOT / "recordings" / "a", format="f"))
    assert merged.recordings == [{**theirs, "format": "f"}]


def test_an_instance_is_listed_once_by_the_directory_of_its_manifest():
    worlds = {"w000": ROOT / "worlds/w000", "w001": ROOT / "worlds/w001"}
    others = {"x": Path("/other/x")}
    manifest = EMPTY.merged(instances_update(worlds, {}), instances_update(others, {}))
    assert manifest.instances == [
        {"name": "w000", "dir": "worlds/w000"},
        {"name": "w001", "dir": "worlds/w001"},
        {"name": "x", "dir": "/other/x"},
    ]
    assert manifest.resolve(manifest.instances[1]["dir"]) == worlds["w001"]
    again = manifest.merged(instances_update({"left": worlds["w000"]}, {}))
    assert [one["name"] for one in again.instances] == ["left", "w001", "x"]


def test_labels_replace_the_labels_of_an_earlier_start_and_no_labels_remove_them():
    worlds = {"w000": ROOT / "worlds/w000"}
    labelled = EMPTY.merged(
        instances_update(worlds, {"w000": {"model": "fable", "seed": 3}}),
        run_update(id="a", labels={"model": "fable", "seed": 3}),
    )
    assert (
        labelled.instances[0]["labels"] == labelled.run["labels"] == {"model": "fable", "seed": 3}
    )
    again = labelled.merged(
        instances_update(worlds, {"w000": {"seed": 4}}), run_update(labels={"seed": 4})
    )
    assert again.instances[0]["labels"] == again.run["labels"] == {"seed": 4}
    plain = again.merged(instances_update(worlds, {}), run_update(labels={}))
    assert "labels" not in plain.instances[0]
    assert "labels" not in plain.run
    assert labelled.merged(run_update(id="b")).run == {"id": "b"}


def restart(number: int, resume_from: Path | None = None, exit_: str = "exit status 3") -> Update:
    at = f"2026-06-22T18:59:{number:02}Z"
    return restart_update(number=number, at=at, exit=exit_, resume_from=resume_from, by="policy")


def test_a_continued_run_has_no_end_and_keeps_its_other_fields():
    end = {"status": "failed", "ended_at": "2026-06-22", "script_errors": ScriptErrors(1, "no")}
    ended = EMPTY.merged(run_update(id="r", index=2, **end))
    again = ended.merged(reopened_update())
    assert again.run == {"id": "r", "index": 2, "status": "running"}
    assert again.merged(reopened_update()) == again
    assert EMPTY.merged(reopened_update()).run == {"status": "running"}


def test_restarts_are_listed_once_and_in_order():
    manifest = EMPTY.merged(
        restart(1, ROOT / "checkpoints/a.json"), restart(2), restart(3, Path("/other/b.json"))
    )
    assert manifest.restarts == [
        {
            "number": 1,
            "at": "2026-06-22T18:59:01Z",
            "exit": "exit status 3",
            "resume_from": "checkpoints/a.json",
            "by": "policy",
        },
        {"number": 2, "at": "2026-06-22T18:59:02Z", "exit": "exit status 3", "by": "policy"},
        {
            "number": 3,
            "at": "2026-06-22T18:59:03Z",
            "exit": "exit status 3",
            "resume_from": "/other/b.json",
            "by": "policy",
        },
    ]
    assert manifest.merged(restart(2), restart(1, ROOT / "checkpoints/a.json")) == manifest
    another = manifest.merged(restart(2, exit_="killed by SIGKILL"))
    assert [one["number"] for one in another.restarts] == [1, 2, 3, 2]
    assert EMPTY.filled(manifest).restarts == manifest.restarts
    assert manifest.filled(manifest) == manifest


def test_renaming_a_run_renames_it_in_all_entries():
    saved = {"path": "checkpoints/a.json"}
    manifest = EMPTY.merged(
        agent_update(dir=ROOT / "agents/a", run_id="old"),
        checkpoint_update(saved, run_id="old"),
        checkpoint_update({"path": "checkpoints/b.json"}, run_id="another"),
        checkpoint_update({"path": "checkpoints/c.json"}),
        restart_update(number=1, at="now", exit="", resume_from=None, run_id="old", by="policy"),
    )
    odd = Manifest(PATH, {**manifest.document, "recordings": [{"path": "r", "run_id": "old"}]})
    odd.document["checkpoints"].extend([7, {"run_id": ["old"]}])
    renamed = odd.merged(Update(renamed_runs={"old": "r001"}))
    assert [entry["run_id"] for entry in (*renamed.agents, *renamed.restarts)] == ["r001"] * 2
    first, *others = renamed.checkpoints
    assert first == {**saved, "run_id": "r001"}
    assert others == odd.checkpoints[1:]
    assert renamed.recordings == odd.recordings  # they belong to the world
    assert renamed.merged(Update(renamed_runs={"old": "r002"})) == renamed


def test_a_removed_checkpoint_keeps_its_fields():
    manifest = EMPTY.merged(checkpoint_update(SAVED), checkpoint_update({"path": "/other/b.json"}))
    removed = manifest.merged(removal_update([SAVED.path], at="2026-06-23T00:00:00Z"))
    assert removed.checkpoints == [
        {**SAVED, "path": "checkpoints/a.json", "removed_at": "2026-06-23T00:00:00Z"},
        {"path": "/other/b.json"},
    ]
    # A world that rewrites what it read before brings the file's entry back, not the file.
    assert manifest.filled(removed).checkpoints == removed.checkpoints


def test_a_fork_names_its_parent_and_the_digest_of_it():
    manifest = EMPTY.merged(run_update(resume_from=SAVED, parent_sha256=SAVED.sha256))
    assert manifest.run == {"resume_from": "checkpoints/a.json", "parent_sha256": "ab"}


def test_unknown_entries_are_kept():
    odd = [None, 5, {"path": 7}, {}, {"path": "recordings/a", "x": 1}]
    manifest = Manifest(PATH, {"recordings": odd, "agents": None, "run": None})
    merged = manifest.merged(recording_update(path=ROOT / "recordings/a"), agent_update(dir="/a"))
    assert merged.recordings == odd
    assert merged.agents == [{"dir": "/a"}]


def test_filling_adds_missing_values_and_changes_no_present_value():
    ours = EMPTY.merged(
        run_update(id="r", status="running"),
        agent_update(dir="/a", id="1", name="new"),
        checkpoint_update(SAVED),
    )
    stale = Manifest(PATH, {"agents": [{"dir": "/a", "name": "old"}], "unknown": 1})
    filled = stale.filled(ours)
    assert filled.run == ours.run
    assert filled.agents == [{"dir": "/a", "id": "1", "name": "old"}]
    assert filled.checkpoints == ours.checkpoints
    assert filled.document["unknown"] == 1
    other_run = Manifest(PATH, {"run": {"id": "other"}})
    assert other_run.filled(ours).run == {"id": "other"}


def test_filling_with_unknown_entries_is_idempotent():
    odd = Manifest(PATH, {"recordings": [None, {"path": []}, {}, None], "agents": [5, {"id": []}]})
    filled = EMPTY.filled(odd)
    assert filled.recordings == [None, {"path": []}, {}]
    assert filled.filled(odd) == filled


def test_filling_keeps_agents_of_a_directory_apart_by_their_ids():
    one, other = (
        EMPTY.merged(agent_update(dir="/a", id="1")),
        EMPTY.merged(agent_update(dir="/a", id="2")),
    )
    assert [agent["id"] for agent in one.filled(other).agents] == ["1", "2"]


agents = st.builds(
    lambda n, fields, by: agent_update(
        **({"dir": f"/a/{n}"} if "dir" in by else {}),
        **({"id": f"id{n}"} if "id" in by else {}),
        **{field: f"{field}{n}" for field in fields},
    ),
    st.integers(0, 3),
    st.sets(st.sampled_from(["name", "run_name", "world_agent_id"])),
    st.sampled_from([{"dir"}, {"id"}, {"dir", "id"}]),
)
recordings = st.builds(
    lambda n, more: recording_update(path=ROOT / f"rec{n}", events=n, format="f" if more else None),
    st.integers(0, 3),
    st.booleans(),
)
checkpoints = st.builds(
    lambda n: checkpoint_update({"path": f"checkpoints/{n}", "size_bytes": n}), st.integers(0, 3)
)
runs = st.builds(
    lambda status, index: run_update(id="r", status=status, index=index),
    st.sampled_from(["running", "complete", None]),
    st.none() | st.integers(0, 2),
)
removals = st.builds(
    lambda n: removal_update([ROOT / f"checkpoints/{n}"], at=f"at {n}"), st.integers(0, 3)
)
instances = st.builds(
    lambda n, inside: instances_update({f"w{n}": (ROOT if inside else Path("/x")) / f"w{n}"}, {}),
    st.integers(0, 3),
    st.booleans(),
)
restarts = st.builds(
    lambda n, parent: restart(n, ROOT / f"checkpoints/{n}" if parent else None),
    st.integers(1, 3),
    st.booleans(),
)
entries = agents | recordings | checkpoints | removals | instances | restarts
existing = st.builds(
    lambda unknown, updates: Manifest(PATH, {**unknown, "schema_version": 1}).merged(*updates),
    st.dictionaries(st.text().map(lambda key: f"x{key}"), json_values, max_size=3),
    st.lists(entries | runs, max_size=4),
)


def as_set(manifest: Manifest) -> dict[str, object]:
    """Return the document without the order of its lists."""
    return {
        key: sorted(map(json.dumps, value)) if isinstance(value, list) else value
        for key, value in json.loads(serialise_manifest(manifest)).items()
    }


@settings(max_examples=30)
@given(existing, st.lists(entries | runs, max_size=5))
def test_merging_is_idempotent(manifest, updates):
    once = manifest.merged(*updates)
    assert once.merged(*updates) == once


@settings(max_examples=30)
@given(existing, st.lists(entries | runs, max_size=5))
def test_merging_updates_together_equals_merging_them_in_sequence(manifest, updates):
    stepwise = manifest
    for update in updates:
        stepwise = stepwise.merged(update)
    assert manifest.merged(*updates) == stepwise or not updates


@settings(max_examples=30)
@given(existing, st.lists(entries, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_different_entries_does_not_matter(manifest, updates, random):
    # Every agent is fully known in the end; until then, its two entries cannot be merged.
    known = [agent_update(dir=f"/a/{n}", id=f"id{n}") for n in range(4)]
    shuffled = random.sample(updates, len(updates))
    one, other = manifest.merged(*updates, *known), manifest.merged(*shuffled, *known)
    assert as_set(one) == as_set(other)
    assert len(one.agents) == 4


@settings(max_examples=30)
@given(existing, st.lists(entries | runs, max_size=5))
def test_no_key_is_ever_lost(manifest, updates):
    merged = manifest.merged(*updates)
    for key, value in manifest.document.items():
        if key.startswith("x"):
            assert merged.document[key] == value
    for name, key in (("recordings", "path"), ("checkpoints", "path"), ("instances", "dir")):
        paths = [entry[key] for entry in merged.document.get(name, [])]
        assert len(paths) == len(set(paths))
        assert set(paths) >= {entry[key] for entry in manifest.document.get(name, [])}
    assert merged.restarts[: len(manifest.restarts)] == manifest.restarts
    distinct = {json.dumps(one, sort_keys=True) for one in merged.restarts}
    assert len(distinct) == len(merged.restarts)


@settings(max_examples=30)
@given(existing, existing)
def test_filling_restores_everything_and_is_idempotent(manifest, other):
    filled = manifest.filled(other)
    assert filled.filled(other) == filled
    assert filled.filled(manifest) == filled
    assert {entry["path"] for entry in filled.checkpoints} == {
        entry["path"] for each in (manifest, other) for entry in each.checkpoints
    }
    assert {entry["dir"] for entry in filled.instances} == {
        entry["dir"] for each in (manifest, other) for entry in each.instances
    }
    for each in (manifest, other):
        assert all(entry in filled.restarts for entry in each.restarts)


@settings(max_examples=30)
@given(existing, st.lists(entries, max_size=4))
def test_filling_restores_entries_that_a_stale_copy_overwrote(manifest, updates):
    ours = EMPTY.merged(*updates)
    merged = manifest.merged(*updates)
    repaired = manifest.filled(ours)
    assert {entry["path"] for entry in repaired.recordings} == {
        entry["path"] for entry in merged.recordings
    }
    assert len(repaired.agents) <= len(merged.agents) or not updates


# --- how it is read -------------------------------------------------------------------------


def test_a_manifest_is_read_from_its_run_directory_or_its_own_path(tmp_path):
    path = write(tmp_path, {"run": {"id": "a"}, "recordings": [{"path": "gone"}], "z": 1})
    for where in (tmp_path, str(tmp_path), path):
        manifest = read_manifest(where)
        assert manifest.run == {"id": "a"}
        assert manifest.state_root == tmp_path
        assert manifest.resolve(manifest.recordings[0]["path"]) == tmp_path / "gone"
        assert manifest.document["z"] == 1
        assert (manifest.agents, manifest.checkpoints) == ([], [])
        assert (manifest.instances, manifest.restarts) == ([], [])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not JSON"),
        (b'{"run": {', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"schema_version": 2}', "schema_version 2, and this clawblox reads up to 1"),
        (b'{"run": []}', None),
        (b'{"run": "x"}', "run is not an object"),
        (b'{"agents": {"a": 1}}', "agents is not a list"),
        (b'{"checkpoints": 5}', "checkpoints is not a list"),
        (b'{"instances": {}}', None),
        (b'{"instances": "w000"}', "instances is not a list"),
        (b'{"restarts": 1}', "restarts is not a list"),
    ],
)
def test_a_file_that_is_not_a_manifest_is_refused(tmp_path, content, complaint):
    path = manifest_path(tmp_path)
    path.parent.mkdir()
    path.write_bytes(content)
    if complaint is None:
        assert read_manifest(tmp_path).run == {}
        return
    with pytest.raises(ManifestError, match=complaint) as caught:
        read_manifest(tmp_path)
    assert caught.value.path == path
    assert str(path) in str(caught.value)


def test_a_missing_manifest_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ManifestError, match="No such file") as caught:
        read_manifest(tmp_path)
    assert caught.value.path == manifest_path(tmp_path)
    with pytest.raises(ManifestError):
        read_manifest(tmp_path / "nowhere")


def test_runs_come_in_the_order_of_their_index_and_then_of_their_names(tmp_path):
    for name, run in {
        "z": {"index": 0},
        "b": {"index": 2},
        "a": {"index": 10},
        "m": {},
        "c": {"index": "1"},
    }.items():
        write(tmp_path / name, {"run": run})
    (tmp_path / "notes").mkdir()
    (tmp_path / "readme.txt").write_text("")
    assert [run.state_root.name for run in read_runs(tmp_path)] == ["z", "b", "a", "c", "m"]


def test_a_folder_of_runs_that_cannot_be_listed_is_an_error(tmp_path):
    assert read_runs(tmp_path) == []
    with pytest.raises(ManifestError, match="cannot be read"):
        read_runs(tmp_path / "nowhere")
    write(tmp_path / "r", [])
    with pytest.raises(ManifestError, match="not a manifest"):
        read_runs(tmp_path)


def test_a_path_that_is_not_utf8_survives(tmp_path):
    name = os.fsdecode(b"caf\xe9")
    manifest = Manifest(manifest_path(tmp_path)).merged(recording_update(path=tmp_path / name))
    again = parse_manifest(serialise_manifest(manifest), manifest.path)
    assert again.resolve(again.recordings[0]["path"]) == tmp_path / name


def test_a_worlds_number_of_any_length_is_kept(tmp_path):
    text = f'{{"schema_version": 1, "seed": {10**30}, "long": {"9" * 300}, "none": {"9" * 9000}}}'
    manifest = parse_manifest(text.encode(), manifest_path(tmp_path))
    again = parse_manifest(serialise_manifest(manifest), manifest.path).document
    assert (again["seed"], again["long"], again["none"]) == (10**30, int("9" * 300), None)


def test_an_empty_update_adds_only_the_schema_version():
    assert EMPTY.merged(Update()).document == {"schema_version": 1}


def test_a_manifest_beyond_the_limit_is_neither_read_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = manifest_path(tmp_path)
    file = ManifestFile(path, lock_wait=1.0)
    file.apply([run_update(id="r001")])
    before = path.read_bytes()
    monkeypatch.setattr(manifest_file, "MAX_MANIFEST_BYTES", 200)
    with pytest.raises(ManifestError, match="would be larger than 200 bytes") as caught:
        file.apply([run_update(labels={"text": "x" * 200})])
    assert caught.value.path == path
    assert path.read_bytes() == before
    os.truncate(path, 8 << 40)
    with pytest.raises(ManifestError, match="is larger than 67108864 bytes") as caught:
        read_manifest(tmp_path)
    assert caught.value.path == path


def test_an_impossible_directory_name_has_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="the file does not exist"):
        read_manifest(tmp_path / "\ud800")
