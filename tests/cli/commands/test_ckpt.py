"""``clawblox ckpt``: its output and its exit status."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clawblox import save_checkpoint
from clawblox.checkpoint.archive.metadata import serialise_metadata
from tests.cli.conftest import Start
from tests.support.terminals import terminal
from tests.support.waiting import HANG_S, wait_until

FAKE_TOKEN = "gh" + "p_" + "Zq7" * 12


def write_plain_zip(path: Path, files: Mapping[str, bytes]) -> Path:
    """Write an archive like another program, without digests."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


class Ckpt:
    """Runs ``clawblox ckpt``."""

    def __init__(self, call: Start) -> None:
        self._call = call

    def __call__(self, *words: str | Path, status: int = 0) -> str:
        """Return the output of a command, which must exit with ``status``."""
        command = self._call("ckpt", *map(str, words))
        assert command.wait() == status, command.err
        self.err = command.err
        return command.out

    def fields(self, *words: str | Path, status: int = 0) -> Any:
        """Return the JSON output of a command."""
        return json.loads(self(*words, "--json", status=status))


@pytest.fixture
def ckpt(call: Start) -> Ckpt:
    return Ckpt(call)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Make a run directory with an agent, a snapshot and a manifest."""
    run = tmp_path / "run"
    workspace = run / "agents" / "Rocky" / "workspace"
    (workspace / "notes").mkdir(parents=True)
    (workspace / "notes" / "plan.md").write_text("north\n")
    (workspace / "SOUL.md").write_text("I am\n")
    (workspace / ".mcp.json").write_text("{}")
    (run / ".clawblox").mkdir()
    manifest = {"schema_version": 1, "run": {"id": "r001", "index": 0}}
    (run / ".clawblox" / "manifest.json").write_text(json.dumps(manifest))
    (run / "w.json").write_text(json.dumps({"format": "tally-v1", "time": 3.5}))
    return run


def save(run: Path, name: str = "one.ckpt") -> Path:
    return save_checkpoint(
        run / "checkpoints" / name,
        world_snapshot=run / "w.json",
        agents={"Rocky": run / "agents" / "Rocky"},
        metadata={"generation": 7},
    )


def test_inspect_shows_the_metadata_of_an_archive(ckpt: Ckpt, run: Path) -> None:
    shown = ckpt("inspect", save(run), "--files")
    for line in (
        "world    tally-v1, 35 B, sim time 3.5",
        "lineage  run r001",
        "digests  for every member",
        "Rocky  2      11 B",
        "agents/Rocky/workspace/.mcp.json  grants capabilities or runs by itself",
        "generation  7",
        "agents/Rocky/workspace/notes/plan.md  6 B",
    ):
        assert line in shown


def test_inspect_prints_json_for_programs(ckpt: Ckpt, run: Path) -> None:
    told = ckpt.fields("inspect", save(run))
    assert told["verified"] is True
    assert told["metadata"]["generation"] == 7
    assert [each["name"] for each in told["members"]][:2] == ["metadata.json", "world.snapshot"]


def test_the_hosts_that_git_will_contact_are_shown(ckpt: Ckpt, tmp_path: Path) -> None:
    git = "agents/Rocky/workspace/repo/.git"
    promisor = {"name": "origin", "url": "https://example.org:8443/x.git"}
    metadata = {"schema_version": 2, "repositories": [{"path": git, "promisors": [promisor]}]}
    files = {"metadata.json": serialise_metadata(metadata), f"{git}/HEAD": b"ref: x\n"}
    archive = write_plain_zip(tmp_path / "partial.ckpt", files)
    shown = ckpt("inspect", archive)
    assert "PARTIAL CLONE                     GIT CONTACTS\n" in shown
    assert f"{git}  example.org:8443\n" in shown
    line = "git will contact example.org:8443 for objects that repo/.git of Rocky lacks"
    assert line in ckpt("extract", archive, tmp_path / "new").splitlines()
    told = ckpt.fields("extract", archive, tmp_path / "newer")
    assert told["git_hosts"] == {"Rocky": {"repo/.git": ["example.org:8443"]}}


def test_untrusted_metadata_is_escaped(ckpt: Ckpt, tmp_path: Path) -> None:
    metadata = {
        "schema_version": 1,
        "note": "\x1b[2Jgone\x07",
        "created_at": "\x1b]0;x\x07",
        "turned\u202e": "a\u2066b\u2028c",
    }
    archive = write_plain_zip(
        tmp_path / "odd.ckpt", {"metadata.json": serialise_metadata(metadata)}
    )
    shown = ckpt("inspect", archive)
    assert "gone" in shown
    assert r"turned\u202e  a\u2066b\u2028c" in shown
    assert not set(shown) & set("\x1b\x07\u202e\u2066\u2028")


@pytest.mark.thorough
def test_the_file_name_of_an_archive_is_escaped(ckpt: Ckpt, run: Path) -> None:
    odd = save(run, "one\x07\u202e.ckpt")
    (run / ".clawblox" / "manifest.json").unlink()
    for words in (("inspect", odd), ("verify", odd), ("scan", odd), ("repair", run)):
        shown = ckpt(*words)
        assert r"one\x07\u202e.ckpt" in shown
        assert not set(shown) & set("\x07\u202e")


ODD: list[dict[str, Any]] = [
    {"secret_scan": {"files": "\x1b[2J", "bytes": [], "allowed": 3, "ruleset": None}},
    {"secret_scan": {}, "world": {"format": ["x"], "time": {"a": "\x1b"}}},
    {"secret_scan": {"files": -1, "bytes": 10**900, "allowed": [], "ruleset": "x"}},
    {"lineage": {"run_id": 7, "resume_from": [], "parent_sha256": 1.5}, "agents": ["Rocky"]},
]


@pytest.mark.thorough
@pytest.mark.parametrize("odd", ODD, ids=["scan", "world", "large", "lineage"])
def test_malformed_metadata_can_be_inspected(ckpt: Ckpt, tmp_path: Path, odd: Any) -> None:
    files = {
        "metadata.json": serialise_metadata({"schema_version": 1, **odd}),
        "world.snapshot": b"{}",
    }
    assert "\x1b" not in ckpt("inspect", write_plain_zip(tmp_path / "odd.ckpt", files))


@pytest.mark.thorough
def test_an_archive_without_digests_is_reported(ckpt: Ckpt, tmp_path: Path) -> None:
    metadata = {"schema_version": 1, "agents": {}}
    archive = write_plain_zip(
        tmp_path / "old.ckpt", {"metadata.json": serialise_metadata(metadata)}
    )
    assert "never searched for secrets" in ckpt("inspect", archive)
    assert "intact, but has no digests to verify" in ckpt("verify", archive)
    assert ckpt.fields("inspect", archive)["verified"] is False
    assert "only checksums were verified" in ckpt("extract", archive, tmp_path / "new")


def test_verify_distinguishes_intact_and_damaged_archives(ckpt: Ckpt, run: Path) -> None:
    good, bad = save(run, "a.ckpt"), save(run, "b.ckpt")
    data = bytearray(bad.read_bytes())
    data[data.index(b"I am\n")] ^= 1
    bad.write_bytes(data)
    shown = ckpt("verify", good, bad, status=1)
    assert "a.ckpt: verified, 4 members" in shown
    assert "b.ckpt" not in shown
    assert "SOUL.md" in ckpt.err
    told = ckpt.fields("verify", good, bad, status=1)
    assert [each["error"] is None for each in told] == [True, False]


def test_extract_prints_paths_and_refuses_to_replace_files(
    ckpt: Ckpt, run: Path, tmp_path: Path
) -> None:
    archive, target = save(run), tmp_path / "new"
    assert f"agent Rocky     {target}/agents/Rocky" in ckpt("extract", archive, target)
    assert (target / "agents/Rocky/workspace/SOUL.md").read_text() == "I am\n"
    before = sorted(target.rglob("*"))
    ckpt("extract", archive, target, status=1)
    assert "agents/Rocky" in ckpt.err
    assert sorted(target.rglob("*")) == before


def test_diff_names_the_changed_members(ckpt: Ckpt, run: Path) -> None:
    one = save(run, "a.ckpt")
    workspace = run / "agents/Rocky/workspace"
    (workspace / "SOUL.md").write_text("I was\n")
    (workspace / "notes/plan.md").unlink()
    (workspace / "new.txt").write_text("x")
    other = save(run, "b.ckpt")
    lines = ckpt("diff", one, other, status=1).splitlines()
    assert [line for line in lines if not line.endswith("created_at")] == [
        "+ agents/Rocky/workspace/new.txt",
        "- agents/Rocky/workspace/notes/plan.md",
        "~ agents/Rocky/workspace/SOUL.md",
        "~ metadata.json: directories",
        "1 added, 1 removed, 1 changed, 1 unchanged",
    ]
    assert ckpt("diff", one, one) == "0 added, 0 removed, 0 changed, 3 unchanged\n"


def test_scan_never_shows_a_secret_and_ignores_allowed_findings(ckpt: Ckpt, tmp_path: Path) -> None:
    archive = write_plain_zip(
        tmp_path / "leaky.ckpt",
        {
            "metadata.json": serialise_metadata({"schema_version": 1}),
            "agents/Rocky/workspace/note": f"use {FAKE_TOKEN}".encode(),
        },
    )
    shown = ckpt("scan", archive, status=1)
    assert "github-token" in shown
    assert FAKE_TOKEN not in shown
    found = ckpt.fields("scan", archive, status=1)["findings"][0]
    allowed = {key: found[key] for key in ("path", "rule", "fingerprint")}
    allow_file = tmp_path / "allow.json"
    allow_file.write_text(json.dumps([{**allowed, "reason": "a made-up one"}]))
    assert "1 finding allowed" in ckpt("scan", archive, "--allow", allow_file)


def test_repair_registers_archives_that_the_manifest_lacks(ckpt: Ckpt, run: Path) -> None:
    archive = save(run)
    manifest = run / ".clawblox" / "manifest.json"
    document = json.loads(manifest.read_text())
    entry = document.pop("checkpoints")
    manifest.write_text(json.dumps(document))
    assert ckpt("repair", run).startswith("registered ")
    assert json.loads(manifest.read_text())["checkpoints"] == entry
    archive.write_bytes(archive.read_bytes()[:-1])
    assert "damaged" in ckpt("repair", run, status=1)


def test_a_file_that_is_not_an_archive_is_a_clear_error(ckpt: Ckpt, tmp_path: Path) -> None:
    path = tmp_path / "page.ckpt"
    path.write_text("<html>")
    assert ckpt("inspect", path, status=1) == ""
    assert ckpt.err.startswith("Error: ")
    assert "Traceback" not in ckpt.err


def test_a_missing_archive_is_named(ckpt: Ckpt, tmp_path: Path) -> None:
    ckpt("verify", tmp_path / "none.ckpt", status=1)
    assert "none.ckpt" in ckpt.err


@pytest.mark.thorough
def test_long_scan_shows_a_progress_bar_and_removes_it(run: Path) -> None:
    big = run / "agents" / "Rocky" / "workspace" / "weights.bin"
    big.write_bytes(random.Random(7).randbytes(30_000_000))
    archive = save(run)
    with terminal("ckpt", "scan", str(archive)) as one:
        wait_until(lambda: one.shows("Scanning "))
        wait_until(lambda: one.shows("nothing found"))
        assert one.process.wait(HANG_S) == 0
