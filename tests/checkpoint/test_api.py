"""The contents, the metadata, the refusals and the remains of saves."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

import clawblox
from clawblox import checkpoint
from clawblox.checkpoint import (
    Allowance,
    CheckpointError,
    CheckpointSecretError,
    load_checkpoint,
    read_metadata,
    save_checkpoint,
    verify_checkpoint,
)
from clawblox.checkpoint import save as save_module
from clawblox.checkpoint.collect.conversations import find_format
from clawblox.checkpoint.collect.plan import ArchivePlan
from clawblox.checkpoint.document import Document, WorldDocument
from clawblox.checkpoint.model import Limits, Source, WorkspaceLink
from clawblox.errors import CheckpointLimitError, ConfigError
from clawblox.results import Excluded
from clawblox.rundir.manifest_updates import run_update
from clawblox.system.files import digest_file
from tests.checkpoint.agents import BACKENDS, build_agent, find_conversation
from tests.checkpoint.runs import Run, contents, fake_token, make_run, update_manifest
from tests.support.resources import open_fds


def test_the_documented_functions_exist():
    for name in ("save_checkpoint", "load_checkpoint", "read_metadata"):
        assert getattr(clawblox, name) is getattr(checkpoint, name)
        assert getattr(clawblox, f"async_{name}") is getattr(checkpoint, f"async_{name}")
    assert checkpoint.CheckpointError is clawblox.CheckpointError


def test_the_saved_state_equals_the_loaded_state(run: Run, tmp_path: Path):
    (run.workspace / "deep" / "er").mkdir(parents=True)
    (run.workspace / "deep" / "er" / "naïve ☃.txt").write_bytes(b"\0\xff" * 500_000)
    (run.workspace / "empty").touch()
    path = run.save(metadata={"generation": 1, "elapsed_seconds": 900.5})
    assert path == run.archive()
    loaded = load_checkpoint(path, tmp_path / "new")
    assert loaded["world_snapshot"].read_bytes() == run.snapshot.read_bytes()
    workspace = loaded["agents"]["rocky"] / "workspace"
    assert dict(contents(workspace)) == dict(contents(run.workspace))
    assert os.access(workspace / "go.sh", os.X_OK)
    assert not os.access(workspace / "SOUL.md", os.X_OK)
    assert (workspace / "SOUL.md").stat().st_mtime_ns == (
        run.workspace / "SOUL.md"
    ).stat().st_mtime_ns
    assert loaded["metadata"] == read_metadata(path)
    assert loaded["verified"] is True


def test_the_metadata_lists_the_content_and_origin_of_the_archive(run: Run):
    update = run_update(id="r007", resume_from=run.dir / "s0.json", parent_sha256="ab" * 32)
    update_manifest(run, update)
    told = read_metadata(run.save(metadata={"generation": 1, "notes": ["ä", None]}))
    assert told["schema_version"] == 2
    assert told["created_at"].endswith("Z")
    assert told["generation"] == 1
    assert told["notes"] == ["ä", None]
    assert told["world"] == {"format": "counter-v1", "time": 12.5}
    assert told["lineage"] == {
        "run_id": "r007",
        "resume_from": "s0.json",
        "parent_sha256": "ab" * 32,
    }
    assert told["session_format"] is None
    assert told["agents"]["rocky"]["backend"] is None
    assert set(told["files"]) == {
        "world.snapshot",
        "agents/rocky/workspace/SOUL.md",
        "agents/rocky/workspace/go.sh",
    }
    assert told["files"]["agents/rocky/workspace/go.sh"]["mode"] == 0o700
    assert told["secret_scan"]["files"] == 4


def test_an_archive_does_not_reveal_paths_outside_the_run(run: Run):
    update_manifest(run, run_update(id="r007", resume_from="/home/somebody/s0.json"))
    assert read_metadata(run.save())["lineage"]["resume_from"] == "s0.json"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("document", "told"),
    [
        (b'{"format": "f", "time": 3}', {"format": "f", "time": 3}),
        (b'{"time": 3}', {"format": "world-snapshot", "time": 3}),
        (b"[1, 2]", {"format": "world-snapshot", "time": None}),
        (b'{"format": "a", "time": NaN}', {"format": "world-snapshot", "time": None}),
        (b"\x93NUMPY opaque", {"format": "world-snapshot", "time": None}),
        (b"", {"format": "world-snapshot", "time": None}),
        (b'{"format": "f", "pad": "%s"}' % (b"x" * (5 << 20)), {"format": "f", "time": None}),
    ],
    ids=["json", "no format", "no object", "not strict", "opaque", "empty", "large"],
)
def test_the_world_document_is_archived_unchanged_with_its_format(
    run: Run, tmp_path: Path, document: bytes, told: dict[str, object]
):
    run.snapshot.write_bytes(document)
    path = run.save()
    assert read_metadata(path)["world"] == told
    assert load_checkpoint(path, tmp_path / "new")["world_snapshot"].read_bytes() == document


def test_an_archive_of_only_agents_has_no_world(run: Run, tmp_path: Path):
    path = run.save(world_snapshot=None)
    assert read_metadata(path)["world"] is None
    assert load_checkpoint(path, tmp_path / "new")["world_snapshot"] is None


def test_a_missing_directory_is_created_private(run: Run):
    path = run.save("deep/a")
    for made in (path.parent, path.parent.parent):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_progress_is_reported_to_the_end_and_an_error_from_it_ends_the_save(run: Run):
    told: list[tuple[int, int]] = []
    run.save(progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 0

    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise InterruptedError("enough")

    with pytest.raises(CheckpointError):
        run.save("b", progress=stop)
    assert run.archives() == [run.archive()]
    assert run.partials() == []


def test_an_existing_archive_is_replaced_only_on_demand(run: Run):
    path = run.save()
    before = digest_file(path)
    (run.workspace / "SOUL.md").write_text("Now I look for shells.\n")
    with pytest.raises(CheckpointError, match="already") as told:
        run.save()
    assert told.value.hint is not None
    assert "overwrite=True" in told.value.hint
    assert digest_file(path) == before
    run.save(overwrite=True)
    assert digest_file(path) != before
    assert verify_checkpoint(path).is_verified
    assert [entry["sha256"] for entry in run.entries()] == [digest_file(path)]


# ------------------------------------------------------------------------------ the manifest


def test_the_manifest_names_the_archive(run: Run):
    path = run.save()
    (entry,) = run.entries()
    assert entry == {
        "path": "checkpoints/a.ckpt",
        "run_id": "r001",
        "format": "clawblox-ckpt-v1",
        "time": 12.5,
        "created_at": read_metadata(path)["created_at"],
        "size_bytes": path.stat().st_size,
        "sha256": digest_file(path),
    }


def test_an_archive_is_registered_in_the_nearest_run(run: Run):
    inner = attrs.evolve(run, dir=run.dir / "worlds" / "w000")
    (inner.dir / ".clawblox").mkdir(parents=True)
    update_manifest(inner, run_update(id="inner"))
    path = run.save("../worlds/w000/checkpoints/b")
    assert [entry["path"] for entry in inner.entries()] == ["checkpoints/b.ckpt"]
    assert run.entries() == []
    assert read_metadata(path)["lineage"]["run_id"] == "inner"


def test_an_archive_outside_any_run_needs_no_manifest(tmp_path: Path):
    run = make_run(tmp_path, manifest=False)
    run.save()
    assert not (run.dir / ".clawblox").exists()


def test_an_archive_is_complete_even_if_the_manifest_cannot_be_written(run: Run):
    (run.dir / ".clawblox" / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match="complete, but its run's manifest") as told:
        run.save()
    assert "repair" in str(told.value.hint)
    assert verify_checkpoint(run.archive()).is_verified


# ------------------------------------------------------------------------------ conversations


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("is_told", [False, True])
def test_a_loaded_conversation_is_found_by_its_program(tmp_path: Path, backend: str, is_told: bool):
    agent = build_agent(tmp_path / "rocky", backend)
    path = save_checkpoint(
        tmp_path / "a.ckpt", agents={"rocky": agent.dir}, backend=backend if is_told else None
    )
    told = read_metadata(path)
    assert told["session_format"] == find_format(backend).name
    assert told["agents"]["rocky"] == {
        "backend": backend,
        "session_format": told["session_format"],
        "session_id": agent.conversation_id,
        "state_dir": "session",
        "mid_turn": False,
    }
    loaded = load_checkpoint(path, tmp_path / "new")
    found = find_conversation(loaded["agents"]["rocky"], backend, agent.conversation_id)
    assert b"MELON" in found.read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize("home", ["home", "sandbox-home"])
@pytest.mark.parametrize(
    ("backend", "own"), [("claude", ".claude"), ("codex", ".codex"), ("kimi", ".kimi-code")]
)
def test_state_in_the_home_of_a_program_is_restored_to_the_home(
    tmp_path: Path, home: str, backend: str, own: str
):
    agent = build_agent(tmp_path / "rocky", backend)
    (agent.dir / home).mkdir(exist_ok=True)
    (agent.dir / "session").rename(agent.dir / home / own)
    path = save_checkpoint(tmp_path / "a.ckpt", agents={"rocky": agent.dir})
    assert read_metadata(path)["agents"]["rocky"]["state_dir"] == f"{home}/{own}"
    loaded = load_checkpoint(path, tmp_path / "new")
    new = loaded["agents"]["rocky"]
    found = find_conversation(new, backend, agent.conversation_id, state_dir=f"{home}/{own}")
    assert b"MELON" in found.read_bytes()
    assert not (new / home / ".netrc").exists()
    assert b"NEVER" not in b"".join(each.read_bytes() for each in new.rglob("*") if each.is_file())


def test_a_save_of_the_workspace_alone_has_no_conversation(tmp_path: Path):
    agent = build_agent(tmp_path / "rocky", "claude")
    path = save_checkpoint(
        tmp_path / "a.ckpt", agents={"rocky": agent.dir}, backend="claude", workspace_only=True
    )
    told = read_metadata(path)
    assert [*told["files"]] == ["agents/rocky/workspace/SOUL.md"]
    assert told["agents"]["rocky"]["session_id"] is None


def test_a_secret_in_a_conversation_is_refused_with_advice(tmp_path: Path):
    agent = build_agent(tmp_path / "rocky", "claude")
    line = json.dumps({"type": "user", "message": {"content": f"key {fake_token()}"}})
    with agent.transcript.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(CheckpointSecretError) as told:
        save_checkpoint(tmp_path / "a.ckpt", agents={"rocky": agent.dir}, idle_wait=0)
    assert [each.path for each in told.value.findings] == ["agents/rocky/session/transcript.jsonl"]
    assert "workspace_only=True" in str(told.value.hint)
    assert "allow" not in str(told.value.hint)
    (agent.workspace / "notes.txt").write_text(fake_token(2))
    with pytest.raises(CheckpointSecretError) as told:
        save_checkpoint(tmp_path / "a.ckpt", agents={"rocky": agent.dir}, idle_wait=0)
    assert "workspace_only=True" in str(told.value.hint)
    assert "allow=" in str(told.value.hint)


def test_a_save_waits_for_an_idle_moment_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    agent = build_agent(tmp_path / "rocky", "claude", mid_turn=True)
    path = save_checkpoint(tmp_path / "a.ckpt", agents={"rocky": agent.dir}, idle_wait=0.0)
    assert read_metadata(path)["agents"]["rocky"]["mid_turn"] is True
    answers = iter([False, False, True])
    monkeypatch.setattr(
        "clawblox.checkpoint.collect.plan.is_idle", lambda agents, backend: next(answers)
    )
    told: list[tuple[int, int]] = []
    save_checkpoint(
        tmp_path / "b.ckpt",
        agents={"rocky": agent.dir},
        idle_wait=30.0,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told[:3].count((0, 0)) == 2
    assert not [*answers]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError(2, "No such file or directory"), "vanished during the save"),
        (PermissionError(13, "Permission denied"), "not permitted to read"),
    ],
)
def test_an_archive_without_the_conversation_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, message: str
):
    agent = build_agent(tmp_path / "rocky", "claude")
    with_sources(
        monkeypatch,
        lambda one: attrs.evolve(one, open=failing(error)) if one.name.endswith(".jsonl") else one,
    )
    with pytest.raises(CheckpointError, match=message):
        save_checkpoint(tmp_path / "a.ckpt", agents={"rocky": agent.dir}, on_unarchivable="record")


# -------------------------------------------------------------------------- unarchivable files


def test_a_name_that_an_archive_cannot_contain_is_refused_or_recorded(run: Run, tmp_path: Path):
    for name in (b"new\nline \xff", b"latin-\xe9"):
        Path(os.fsdecode(os.fsencode(run.workspace) + b"/" + name)).write_text("x")
    (run.workspace / Path(*["deep"] * 253)).mkdir(parents=True)
    with pytest.raises(CheckpointError, match="names that are not allowed in an archive") as told:
        run.save()
    assert "new\\nline \\udcff" in str(told.value)
    assert "on_unarchivable" in str(told.value.hint)
    path = run.save(on_unarchivable="record")
    excluded = [each["path"] for each in read_metadata(path)["excluded"]]
    assert len(excluded) == 3
    assert "agents/rocky/workspace/new\\nline \\udcff" in excluded
    assert load_checkpoint(path, tmp_path / "new")["verified"]


def with_sources(monkeypatch: pytest.MonkeyPatch, change: Callable[[Source], Source]) -> None:
    """Change the files of every save's plan."""
    plan = save_module.tiers.plan

    def changed(*args: object, **options: object) -> ArchivePlan:
        made = plan(*args, **options)
        return attrs.evolve(made, sources=tuple(map(change, made.sources)))

    monkeypatch.setattr(save_module.tiers, "plan", changed)


def failing(error: OSError) -> Callable[[], int]:
    def open_() -> int:
        raise error

    return open_


def test_a_vanished_or_unreadable_file_is_recorded(run: Run, monkeypatch: pytest.MonkeyPatch):
    openers = {
        "SOUL.md": failing(FileNotFoundError(2, "No such file or directory")),
        "go.sh": failing(PermissionError(13, "Permission denied")),
    }
    with_sources(monkeypatch, lambda one: attrs.evolve(one, open=openers[one.path.name]))
    with pytest.raises(CheckpointError, match="not permitted to read") as told:
        run.save()
    assert told.value.entry == "agents/rocky/workspace/go.sh"
    told = read_metadata(run.save(on_unarchivable="record"))
    assert [*told["files"]] == ["world.snapshot"]
    assert {each["path"]: each["reason"] for each in told["excluded"]} == {
        "agents/rocky/workspace/SOUL.md": "vanished",
        "agents/rocky/workspace/go.sh": "unreadable",
    }


def test_a_secret_in_the_name_of_a_file_that_vanishes_is_masked(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    token = fake_token()
    (run.workspace / f"\u200d{token}").write_text("x")
    gone = failing(FileNotFoundError(2, "No such file or directory"))
    with_sources(monkeypatch, lambda one: attrs.evolve(one, open=gone))
    path = run.save()
    assert token.encode() not in path.read_bytes()
    paths = {entry["path"] for entry in read_metadata(path)["excluded"]}
    assert "agents/rocky/workspace/\\u200dghp_... (40 bytes)" in paths


def test_an_unreadable_directory_does_not_fail_a_save_that_records_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    (run.workspace / "locked").mkdir()
    real = os.open

    def refusing(path: str, flags: int, *mode: int, dir_fd: int | None = None) -> int:
        if path == "locked":
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *mode, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refusing)
        plan = save_module.tiers.plan({"rocky": run.agent}, backend=None, workspace_only=False)
    monkeypatch.setattr(save_module.tiers, "plan", lambda *_args, **_options: plan)
    with pytest.raises(CheckpointError, match="not permitted to read") as told:
        run.save()
    assert told.value.entry == "agents/rocky/workspace/locked"
    assert run.archives() == []
    excluded = read_metadata(run.save(on_unarchivable="record"))["excluded"]
    assert {"path": told.value.entry, "reason": "unreadable"} in excluded


def test_a_file_above_the_size_limit_is_refused_by_name_and_not_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    with (run.workspace / "sparse.bin").open("wb") as file:
        file.truncate(8 << 40)
    name, read = "agents/rocky/workspace/sparse.bin", []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda *args: read.append(args) or real(*args))
    with pytest.raises(CheckpointLimitError, match=f"{name}': {8 << 40} bytes") as told:
        run.save()
    assert "max_file_bytes" in str(told.value.hint)
    assert run.archives() == []
    assert read == []
    path = run.save(on_unarchivable="record")
    assert {"path": name, "reason": "too large"} in read_metadata(path)["excluded"]
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert "agents/rocky/workspace/SOUL.md" in archive.namelist()


def test_the_largest_files_are_refused_if_the_total_is_too_large(run: Run):
    for name, size in (("a.bin", 3000), ("b.bin", 5000), ("c.bin", 4000)):
        (run.workspace / name).write_bytes(b"x" * size)
    with pytest.raises(CheckpointLimitError, match=r"b\.bin"):
        run.save(max_total_bytes=8000)
    excluded = read_metadata(run.save(max_total_bytes=8000, on_unarchivable="record"))["excluded"]
    assert {"path": "agents/rocky/workspace/b.bin", "reason": "too large"} in excluded
    assert not any(entry["path"].endswith("a.bin") for entry in excluded)


def test_a_file_that_grows_above_the_limit_is_not_read(run: Run, monkeypatch: pytest.MonkeyPatch):
    (run.workspace / "grows.bin").write_bytes(b"x" * 101)
    monkeypatch.setattr(save_module, "read_size", lambda _path: 1)
    with pytest.raises(CheckpointError, match="larger than 100 bytes") as told:
        run.save(max_file_bytes=100)
    assert told.value.entry is not None


def test_a_snapshot_that_vanishes_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch):
    describe = WorldDocument.describe

    def describe_and_remove(document: WorldDocument) -> dict[str, object]:
        run.snapshot.unlink()
        return describe(document)

    monkeypatch.setattr(WorldDocument, "describe", describe_and_remove)
    with pytest.raises(CheckpointError, match="vanished during the save"):
        run.save()
    assert run.archives() == []


# ------------------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"metadata": {"schema_version": 2}}, "metadata.schema_version"),
        ({"metadata": {"files": {}}}, "metadata.files"),
        ({"metadata": {"at": object()}}, "metadata.at"),
        ({"metadata": {"at": {"deep": [float("nan")]}}}, "metadata.at"),
        ({"metadata": {1: 2}}, "metadata"),
        ({"metadata": [1]}, "metadata"),
        ({"agents": {"../x": "."}}, "agents"),
        ({"agents": {"a/b": "."}}, "agents"),
        ({"agents": {"": "."}}, "agents"),
        ({"agents": {7: "."}}, "agents"),
        ({"agents": {"rocky": "nowhere"}}, "agents.rocky"),
        ({"agents": {"rocky": None}}, "agents.rocky"),
        ({"agents": ["rocky"]}, "agents"),
        ({"world_snapshot": "nowhere.json"}, "world_snapshot"),
        ({"backend": "emacs"}, "backend"),
        ({"workspace_only": 1}, "workspace_only"),
        ({"overwrite": "yes"}, "overwrite"),
        ({"idle_wait": -1.0}, "idle_wait"),
        ({"idle_wait": float("nan")}, "idle_wait"),
        ({"on_unarchivable": "ignore"}, "on_unarchivable"),
        ({"max_file_bytes": 0}, "max_file_bytes"),
        ({"max_total_bytes": 1.5}, "max_total_bytes"),
        ({"known_secrets": "one"}, "known_secrets"),
        ({"known_secrets": [b"bytes of a secret"]}, "known_secrets"),
        ({"known_secrets": ["short"]}, "known_secrets"),
        ({"allow": [{"path": "x"}]}, "allow"),
    ],
)
def test_a_wrong_argument_is_named_before_any_file_is_written(
    run: Run, options: dict[str, object], key: str
):
    with pytest.raises(ConfigError) as told:
        run.save("deep/a", **options)
    assert told.value.key == key
    assert not run.checkpoints.exists()


@pytest.mark.parametrize("path", ["a.zip", "a", ".ckpt", "a\0b.ckpt", 7])
def test_an_archive_has_a_name_that_tools_find(run: Run, path: object):
    with pytest.raises(ConfigError) as told:
        save_checkpoint(path, agents={"rocky": run.agent})
    assert told.value.key == "path"


@pytest.mark.parametrize("path", [None, 7, "a\0b.ckpt"])
def test_reading_an_archive_names_a_value_that_is_not_a_path(path: object, tmp_path: Path):
    for read in (clawblox.read_metadata, lambda path: clawblox.load_checkpoint(path, tmp_path)):
        with pytest.raises(ConfigError) as told:
            read(path)
        assert told.value.key == "path"


def test_values_that_may_be_secrets_are_not_shown_in_errors(run: Run):
    token = fake_token()
    for options in ({"known_secrets": [token.encode()]}, {"metadata": {"at": token.encode()}}):
        with pytest.raises(ConfigError) as told:
            run.save(**options)
        assert token not in f"{told.value!s} {told.value!r}"


def test_later_changes_by_the_caller_have_no_effect(run: Run):
    metadata = {"list": [1]}

    def change(done: int, total: int) -> None:
        metadata["list"].append(2)

    assert read_metadata(run.save(metadata=metadata, progress=change))["list"] == [1]


# -------------------------------------------------------------------------------- the document


def test_the_reserved_space_for_the_metadata_is_never_too_small(run: Run):
    names = [f"agents/rocky/workspace/{'ä' * 60}-{number}" for number in range(300)]
    sources = [Source(name=name, path=Path(name), open=lambda: -1) for name in names]
    links = [WorkspaceLink(path="agents/rocky/workspace/link", target="x" * 4000)]
    document = Document(
        plan=ArchivePlan(sources=sources, links=links),
        created_at="2026-06-22T18:59:25Z",
        caller={"note": "x" * 10_000},
        world=None,
        lineage={},
    )
    allow = [
        Allowance(path=name, rule="github-token", fingerprint="f" * 16, reason="a reason")
        for name in names
    ]
    largest = document.largest_bytes(allow, {"allowed": [], "files": 0})
    files = {
        name: {"size": 2**62, "sha256": "f" * 64, "mode": 448, "mtime_ns": 2**62, "unstable": True}
        for name in names
    }
    scan = {"allowed": [attrs.asdict(each) for each in allow], "files": 10**9}
    assert len(document.as_bytes(files, (), scan)) <= largest


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("session/agents/main/blobs/", {"listed_as": f"agents/rocky/session/{'x/' * 200}"}),
        (f"workspace/{chr(0x202E) * 80}", {"neutral_name": "agents/rocky/odd/"}),
    ],
    ids=["of a conversation", "with escapes"],
)
def test_the_reserved_space_for_the_metadata_suffices_without_members(
    name: str, more: dict[str, str]
):
    sources = [
        Source(
            name=f"agents/rocky/{name}{number}",
            path=Path(name),
            open=lambda: -1,
            **{key: f"{value}{number}" for key, value in more.items()},
        )
        for number in range(300)
    ]
    created_at = "2026-06-22T18:59:25Z"
    plan = ArchivePlan(sources=sources)
    document = Document(plan=plan, created_at=created_at, caller={}, world=None, lineage={})
    scan = {"allowed": [], "files": 0}
    reason = "its content does not match its name"
    excluded = [Excluded(path=each.listed_as or each.name, reason=reason) for each in sources]
    assert len(document.as_bytes({}, excluded, scan)) <= document.largest_bytes((), scan)


def test_more_files_than_a_reader_accepts_are_refused_before_they_are_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(save_module, "Limits", lambda: Limits(entries=3))
    monkeypatch.setattr(save_module, "ArchiveWriter", None)
    for name in "abcd":
        (run.workspace / name).touch()
    with pytest.raises(CheckpointLimitError, match="readers accept only 3 and"):
        run.save()
    monkeypatch.setattr(save_module, "Limits", lambda: Limits(metadata_bytes=1000))
    with pytest.raises(CheckpointLimitError, match="accept only 500000 and 1000"):
        run.save()


def test_no_descriptor_stays_open(run: Run):
    fds = open_fds()
    run.save()
    (run.workspace / "notes.txt").write_text(fake_token())
    with pytest.raises(CheckpointSecretError):
        run.save("b")
    verify_checkpoint(run.archive())
    assert open_fds() == fds
