"""Run directories that are made from archives, and where archives are found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clawblox.checkpoint.names import ROWS_NAME, SNAPSHOT_NAME
from clawblox.errors import UsageError
from clawblox.experiment.history.checkpoints import Branch, CheckpointRef
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.live.branches import source_dir
from clawblox.experiment.live.preparing import Preparation, find_archive
from clawblox.experiment.plan import AgentSpec, Plan
from clawblox.experiment.schedule.ports import AttemptError
from clawblox.system.files import digest_file
from tests.checkpoint.archives import checkpoint
from tests.support.worlds import make_world

EKO = "Eko-rexp-r1-g001-w0-a0"
WORKSPACE = {f"agents/{EKO}/workspace/notes.md": b"notes"}
WORLD = {SNAPSHOT_NAME: b"{}"}
AGENTS: Mapping[str, Any] = {EKO: {"session_format": None}}


def prepare(order: AttemptOrder, experiment: Path) -> Path:
    """Create the run directory of an attempt, and return it."""
    chain_dir = experiment / "chains" / "r1"
    Preparation(order, lambda _chain: chain_dir, experiment, lambda: None).run()
    return chain_dir / "runs" / order.attempt_id


def load(root: Path, files: Mapping[str, bytes], *, agents: int = 1, **keys: Any) -> Path:
    """Prepare an attempt that continues from an archive with these files."""
    is_branch = keys.pop("is_branch", False)
    experiment = root / "exp"
    archive = experiment / "chains" / "r1" / "runs" / "exp-r1-g001" / "checkpoints" / "a.ckpt"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(checkpoint(files, agents=AGENTS, **keys))
    ref = CheckpointRef(
        chain="r1",
        generation=1,
        attempt="exp-r1-g001",
        file=archive.name,
        sha256=digest_file(archive),
    )
    plan = Plan(make_world(root), [AgentSpec("claude")] * agents, name="exp")
    branch = Branch(source=ref, group=1, number=1) if is_branch else None
    order = AttemptOrder(
        chain=plan.chains()[0], generation=1, attempt_id="exp-r1-g001-r2", origin=ref, branch=branch
    )
    try:
        return prepare(order, experiment)
    except (AttemptError, UsageError):
        assert [path.name for path in archive.parents[2].iterdir()] == ["exp-r1-g001"]
        raise


def test_world_and_agents_come_from_the_archive(tmp_path: Path) -> None:
    run_dir = load(tmp_path, {**WORLD, **WORKSPACE})
    assert (run_dir / SNAPSHOT_NAME).read_bytes() == b"{}"
    assert (run_dir / "agents" / EKO / "workspace" / "notes.md").read_text() == "notes"


def test_restored_worktree_refers_to_its_final_path(tmp_path: Path) -> None:
    workspace = f"agents/{EKO}/workspace"
    git = f"{workspace}/repo/.git"
    heads = dict.fromkeys((f"{git}/HEAD", f"{git}/worktrees/wt/HEAD"), b"ref: refs/heads/main\n")
    worktree = {"path": f"{git}/worktrees/wt", "git_file": f"{workspace}/wt/.git"}
    run_dir = load(tmp_path, {**WORLD, **heads}, schema_version=2, repositories=[worktree])
    pointer = (run_dir / git / "worktrees" / "wt" / "gitdir").read_text()
    assert pointer == f"{run_dir}/{workspace}/wt/.git\n"


def test_an_archive_without_a_world_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AttemptError, match="has no snapshot of the world"):
        load(tmp_path, WORKSPACE)


def test_an_archive_with_other_agents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the archive has 1 agents, but the plan has 2"):
        load(tmp_path, {**WORLD, **WORKSPACE}, agents=2)


def test_an_archive_whose_conversation_is_lost_is_refused(tmp_path: Path) -> None:
    session = {f"agents/{EKO}/session/projects/a/b.jsonl": b"{}\n"}
    with pytest.raises(AttemptError, match=f"{EKO}: its conversation was not restored: "):
        load(tmp_path, {**WORLD, **WORKSPACE, **session})


def test_a_branch_has_the_world_with_its_rows_and_the_agents_to_be_forked(tmp_path: Path) -> None:
    run_dir = load(tmp_path, {**WORLD, ROWS_NAME: b"", **WORKSPACE}, is_branch=True)
    assert (run_dir / SNAPSHOT_NAME).is_file()
    assert (run_dir / ROWS_NAME).is_file()
    assert list((run_dir / "agents").iterdir()) == []
    assert [path.name for path in (source_dir(run_dir) / "agents").iterdir()] == [EKO]


def test_the_experiment_is_not_copied_with_its_world(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    experiment = world / "studies" / "exp"
    experiment.mkdir(parents=True)
    (experiment / "journal.jsonl").touch()
    (experiment.parent / "README.md").touch()
    plan = Plan(world, [AgentSpec("claude")], name="exp")
    order = AttemptOrder(chain=plan.chains()[0], generation=1, attempt_id="exp-r1-g001")
    workspace = prepare(order, experiment) / "agents" / EKO / "workspace"
    assert [path.name for path in (workspace / "world" / "studies").iterdir()] == ["README.md"]


def test_archive_is_found_even_if_another_run_took_the_name_of_its_attempt(
    tmp_path: Path,
) -> None:
    ref = CheckpointRef(chain="r1", generation=1, attempt="exp-g001", file="t1.ckpt", sha256="")
    for name in ("exp-g001", "exp-g001.failed-1", "exp-g001.failed-2"):
        (tmp_path / "runs" / name / "checkpoints").mkdir(parents=True)
    assert find_archive(tmp_path, ref) is None
    archive = tmp_path / "runs" / "exp-g001.failed-1" / "checkpoints" / "t1.ckpt"
    archive.touch()
    assert find_archive(tmp_path, ref) == archive
