"""Limits of programs in a sandbox."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clawblox.agents.sandbox import entry
from clawblox.agents.sandbox.entry import find_delegated, find_limits, make_group
from clawblox.concurrency.threads import run_blocking
from clawblox.system.process_tree import read_start_time
from tests.agents.sandbox.support import PYTHON, TIMEOUT_S, Sandbox
from tests.support.waiting import wait_until, wait_until_async

pytestmark = pytest.mark.anyio

BOTH = frozenset({"memory", "pids"})

FORK = """
import errno, json, os, resource, signal
children = []
try:
    while len(children) < 500:
        child = os.fork()
        if not child:
            signal.pause()
        children.append(child)
except OSError as error:
    print(json.dumps([len(children), errno.errorcode[error.errno],
        resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY]))
for child in children:
    os.kill(child, signal.SIGKILL)
"""


@pytest.mark.thorough
@pytest.mark.needs("bwrap")
async def test_processes_are_limited_for_each_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (await run_blocking(find_limits, 1000)).counts_by_user:
        pytest.skip("this kernel counts the processes of a user over all namespaces")
    monkeypatch.setattr(entry, "_PROCESSES", 60)
    first, second = [
        await run_blocking(partial(Sandbox.open, tmp_path / name)) for name in ("a", "b")
    ]
    async with first.running(
        *PYTHON,
        f"{FORK}\nsignal.pause()",
    ) as running:
        async with second.running(*PYTHON, FORK) as other:
            count, error, has_no_other_limit = json.loads(await other.end())
        assert running.process.has_exited is False
    assert 40 < count < 60
    assert (error, has_no_other_limit) == ("EAGAIN", True)
    assert second.bubblewrap.facts["max_processes"] == 60


def test_the_limits_leave_room_for_a_large_build_and_for_others() -> None:
    found = find_limits(1000)
    assert 1024 <= found.processes <= 16_384
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0.8 * total < found.memory_bytes < total
    assert not find_limits(0).counts_by_user


# ------------------------------------------------------------------------- control groups


class Hierarchy:
    """Files like the kernel's, with this process in ``delegated/own``."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parent = root / "delegated"
        (self.parent / "own").mkdir(parents=True)
        (self.parent / "cgroup.procs").touch()
        self.control = self.parent / "cgroup.subtree_control"
        self.control.write_text("cpu memory pids\n")
        self.membership = root / "membership"
        self.membership.write_text("4:memory:/elsewhere\n0::/delegated/own\n")
        monkeypatch.setattr(entry, "_HIERARCHY", root)
        monkeypatch.setattr(entry, "_MEMBERSHIP", self.membership)
        monkeypatch.setattr(entry, "_SYSTEMD", root / "systemd")


@pytest.fixture
def hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hierarchy:
    return Hierarchy(tmp_path / "cgroup", monkeypatch)


def test_groups_are_created_in_a_delegated_hierarchy(hierarchy: Hierarchy) -> None:
    assert find_delegated(BOTH) == hierarchy.parent
    hierarchy.control.write_text("cpu\n")  # writing there enables no controller
    assert find_delegated(BOTH) is None
    hierarchy.control.unlink()
    assert find_delegated(BOTH) is None


def test_only_a_group_delegated_by_systemd_is_used(hierarchy: Hierarchy) -> None:
    (hierarchy.parent.parent / "systemd").mkdir()
    assert find_delegated(BOTH) is None
    try:
        os.setxattr(hierarchy.parent, "user.delegate", b"1")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error}")
    assert find_delegated(BOTH) == hierarchy.parent


@pytest.mark.parametrize("text", ["", "4:memory:/delegated/own\n", "0::/../delegated/own\n"])
def test_a_hierarchy_that_is_not_delegated_is_left_unchanged(
    hierarchy: Hierarchy, text: str
) -> None:
    hierarchy.membership.write_text(text)
    assert find_delegated(BOTH) is None


@pytest.mark.needs("bwrap")
async def test_a_sandbox_joins_a_group_with_its_limits(
    hierarchy: Hierarchy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry, "_find_parent", lambda: find_delegated(BOTH))
    sandbox = await run_blocking(partial(Sandbox.open, tmp_path))
    assert await sandbox.run("true") == ""
    facts = sandbox.bubblewrap.facts
    await run_blocking(check_group, hierarchy, facts)


def check_group(hierarchy: Hierarchy, facts: Mapping[str, Any]) -> None:
    (group,) = hierarchy.parent.glob("clawblox-*")
    assert (group / "pids.max").read_text() == str(facts["max_processes"])
    assert (group / "memory.max").read_text() == str(facts["max_memory_bytes"])
    assert (group / "cgroup.procs").read_text() == "0"


def test_groups_of_a_dead_process_are_removed(hierarchy: Hierarchy) -> None:
    pid = os.getpid()
    old = hierarchy.parent / f"clawblox-{pid}-{read_start_time(pid) - 1}-0123abcd"
    mine = hierarchy.parent / f"clawblox-{pid}-{read_start_time(pid)}-0123abcd"
    for path in (old, mine, hierarchy.parent / "clawblox-other"):
        path.mkdir()
    made = make_group(hierarchy.parent, {"pids.max": 5})
    assert (made.path / "pids.max").read_text() == "5"
    names = {path.name for path in hierarchy.parent.iterdir() if path.is_dir()}
    assert names == {mine.name, made.path.name, "clawblox-other", "own"}


def find_writable_hierarchy() -> Path | None:
    """Return the real group of this process if groups can be created in it."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    roots = [Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"]
    names = Path("/proc/self/cgroup").read_text().splitlines()
    own = [line.removeprefix("0::/") for line in names if line.startswith("0::/")]
    if not roots or not own or ".." in own[0]:
        return None
    group = roots[0] / own[0]
    return group if os.access(group, os.W_OK) else None


@pytest.mark.needs("bwrap")
async def test_the_kernel_moves_a_sandbox_into_its_group_and_ends_it_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await run_blocking(find_writable_hierarchy)
    if parent is None:
        pytest.skip("no control group can be made here")
    made = []

    def make(parent: Path, _limits: object) -> entry.ControlGroup:
        made.append(make_group(parent, {}))
        return made[0]

    monkeypatch.setattr(entry, "_find_parent", lambda: parent)
    monkeypatch.setattr(entry, "make_group", make)
    sandbox = await run_blocking(partial(Sandbox.open, tmp_path))
    async with sandbox.running("sh", "-c", "echo ready; sleep 600") as running:
        await wait_until_async(lambda: running.output == "ready\n", TIMEOUT_S)
        path = made[0].path
        members = await run_blocking((path / "cgroup.procs").read_text)
        assert str(running.process.pid) in members.split()
        assert len(members.split()) >= 2
        await run_blocking(made[0].remove)
        await running.process.wait()

    def is_removed() -> bool:
        made[0].remove()  # a process that was killed may leave the group a moment later
        return not path.exists()

    await run_blocking(partial(wait_until, is_removed, TIMEOUT_S))
