"""Each pause, failure and end of an experiment is announced once, even across kills and resumes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.concurrency.threads import run_blocking
from clawblox.experiment.history.journal import read_lines
from clawblox.experiment.notices.notifier import Notifier
from clawblox.experiment.plan import Plan
from tests.experiment.fakes import Fault
from tests.experiment.notices.test_delivery import serve
from tests.experiment.test_async_experiment import Scene, run

pytestmark = pytest.mark.anyio

NO_LIMITS = {"min_free": None}


class Told(Scene):
    """A scene whose plans have commands that record their notices."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.root = root
        self.program = root / "tell.sh"
        self.program.write_text(f"#!/bin/sh\ncat >> {root}/told\n")
        self.program.chmod(0o700)

    def plan(self, **changes: Any) -> Plan:
        hooks = {hook: [str(self.program)] for hook in ("on_pause", "on_failure", "on_done")}
        return super().plan(**{**hooks, **changes})

    def take(self) -> list[Mapping[str, Any]]:
        """Return the notices that the commands got since the last call."""
        file = self.root / "told"
        text = file.read_text() if file.exists() else ""
        file.write_text("")
        return [json.loads(line) for line in text.splitlines()]

    def events(self) -> list[tuple[str, str, bool]]:
        return [(told["event"], told["reason"], told["running"]) for told in self.take()]


@pytest.fixture
def scene(tmp_path: Path) -> Told:
    return Told(tmp_path)


def cut_after(directory: Path, type_: str) -> None:
    """Cut the journal as if the process had been killed after the last line of a type."""
    journal = directory / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if json.loads(line)["type"] == type_)
    journal.write_text("".join(lines[: last + 1]))


async def test_the_end_is_announced_with_names_and_counts(scene: Told) -> None:
    await run(scene, scene.plan(repeats=2))
    (told,) = scene.take()
    assert told == {
        "event": "done",
        "experiment": "exp",
        "directory": str(scene.directory),
        "reason": "",
        "running": False,
        "text": "exp: done",
        "chains": {},
        "chain_count": 0,
        "counts": {"committed": 4},
        "generations": 4,
        "spent_usd": told["spent_usd"],
    }


async def test_the_end_is_announced_again_only_after_more_generations(scene: Told) -> None:
    for generations, told in ((1, [("done", "", False)]), (1, []), (2, [("done", "", False)])):
        await run(scene, scene.plan(generations=generations))
        assert scene.events() == told


async def test_end_of_some_chains_is_not_announced_as_the_end(scene: Told) -> None:
    async with scene.experiment(scene.plan(repeats=2)) as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(scene.tick)
        await exp.run(["r2"])
        tasks.cancel_scope.cancel()
    assert scene.events() == []


async def test_a_failed_chain_is_announced_at_once_and_the_end_with_failures_after_it(
    scene: Told,
) -> None:
    scene.backend.faults["r1"] = [Fault(1.0, "world")]
    plan = scene.plan(repeats=2, retry={"attempts": 0})
    assert (await run(scene, plan)).status == "failed"
    first, last = scene.take()
    assert (first["event"], first["reason"], first["running"]) == ("failure", "world", True)
    assert first["chains"] == {"r1": "the world has ended"}
    assert (last["event"], last["reason"], last["running"]) == ("failure", "world", False)
    assert (await run(scene, plan)).status == "failed"
    assert scene.events() == []


async def test_failure_of_the_only_chain_is_announced_once(scene: Told) -> None:
    scene.backend.faults["r1"] = [Fault(1.0, "world"), Fault(1.0, "world")]
    plan = scene.plan(retry={"attempts": 0})
    await run(scene, plan)
    assert scene.events() == [("failure", "world", True)]
    await run(scene, plan, retry_failed=True)
    assert scene.events() == [("failure", "world", True)]


async def test_pending_notices_are_sent_together_before_the_experiment_closes(
    scene: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(_: Notifier) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(Notifier, "run", wait)
    for name in ("r1", "r2"):
        scene.backend.faults[name] = [Fault(1.0, "world")]
    await run(scene, scene.plan(repeats=2, retry={"attempts": 0}))
    (told,) = scene.take()
    assert (told["event"], [*told["chains"]], told["chain_count"]) == ("failure", ["r1", "r2"], 2)


async def test_a_defect_is_announced_as_a_failure(scene: Told) -> None:
    scene.backend.faults["r1"] = [Fault(0.0, "defect")] * 9
    assert (await run(scene, scene.plan())).status == "failed"
    assert {told["event"] for told in scene.take()} == {"failure"}


async def test_pause_that_needs_a_person_is_announced_while_others_work(scene: Told) -> None:
    scene.backend.faults["r1"] = [Fault(1e9, "secret"), Fault(1e9, "secret")]
    await run(scene, scene.plan(repeats=2))
    (told,) = scene.take()
    assert (told["event"], told["reason"], told["running"]) == ("pause", "secret", True)
    assert told["chains"] == {"r1": "a secret"}
    await run(scene, scene.plan(repeats=2))
    assert scene.events() == [("pause", "secret", True)], "it has worked, and is paused again"


async def test_a_limit_of_an_account_is_announced_once_until_the_account_has_worked(
    scene: Told,
) -> None:
    tries = [Fault(0.0, "limit", lasts=60.0)] * 3
    again = [Fault(10.0, "limit", lasts=60.0)]
    scene.backend.faults["r1"] = [Fault(100.0, "limit", lasts=60.0), *tries, *again]
    assert (await run(scene, scene.plan())).status == "done"
    types = [line.type for line in read_lines(scene.directory)]
    assert (types.count("account.limited"), types.count("account.cleared")) == (5, 2)
    assert scene.events() == [*[("pause", "limit", True)] * 2, ("done", "", False)]


async def test_limit_that_ends_the_run_is_not_announced_again_by_a_resume(
    scene: Told,
) -> None:
    scene.backend.faults["r1"] = [Fault(100.0, "limit", lasts=1e6)]
    plan = scene.plan(retry={"longest_pause": 3600.0})
    assert (await run(scene, plan)).status == "paused"
    assert scene.events() == [("pause", "limit", True), ("pause", "limit", False)]
    assert (await run(scene, plan)).status == "paused"
    assert scene.events() == []


async def test_an_expired_login_is_announced_once(scene: Told) -> None:
    scene.backend.is_logged_in = False
    scene.backend.faults["r1"] = [Fault(100.0, "auth")]
    for told in ([("pause", "auth", True)], []):
        assert (await run(scene, scene.plan())).status == "paused"
        assert scene.events() == told


@pytest.mark.parametrize(
    ("limits", "reason"), [({"dollars": 0.3}, "dollars"), ({"wall": 1000.0}, "wall")]
)
async def test_limit_of_the_experiment_is_announced_once_until_it_is_raised(
    scene: Told, limits: Mapping[str, Any], reason: str
) -> None:
    plan = scene.plan(generations=9, limits={**NO_LIMITS, **limits})
    for told in ([("pause", reason, False)], []):
        assert (await run(scene, plan)).status == "paused"
        assert scene.events() == told
    raised = {name: 3 * value for name, value in limits.items()}
    plan = scene.plan(generations=9, limits={**NO_LIMITS, **raised})
    assert (await run(scene, plan)).status == "paused"
    assert scene.events() == [("pause", reason, False)]


async def test_a_full_disk_is_announced_once(scene: Told) -> None:
    plan = scene.plan(limits={"min_free": 10**13}, repeats=2)
    for told in ([("pause", "disk", False)], []):
        assert (await run(scene, plan)).status == "paused"
        assert scene.events() == told


async def test_a_stop_on_request_is_not_announced(scene: Told) -> None:
    async with scene.experiment(scene.plan()) as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(scene.tick)
        await anext(aiter(exp.run()))
        tasks.cancel_scope.cancel()
    assert scene.events() == []


@pytest.mark.parametrize("type_", ["session.ended", "hook.called"])
async def test_unrecorded_notice_of_a_killed_process_is_sent_at_the_next_open(
    scene: Told, type_: str
) -> None:
    plan = scene.plan(limits={**NO_LIMITS, "dollars": 0.3}, generations=9)
    await run(scene, plan)
    assert scene.events() == [("pause", "dollars", False)]
    await run_blocking(cut_after, scene.directory, type_)
    for _ in range(2):
        async with scene.experiment(None):
            pass
    assert scene.events() == ([("pause", "dollars", False)] if type_ == "session.ended" else [])


async def test_hook_may_change_at_a_resume_and_gets_no_earlier_events(scene: Told) -> None:
    limits = {**NO_LIMITS, "dollars": 0.3}
    await run(scene, scene.plan(generations=9, limits=limits, on_pause=None))
    await run(scene, scene.plan(generations=9, limits=limits))
    assert scene.events() == [("pause", "dollars", False)], "the resume has found it with the hook"
    async with scene.experiment(scene.plan(generations=9, limits=limits, on_pause=None)):
        pass
    assert scene.events() == []


async def test_failed_hook_is_ignored_and_not_called_again(scene: Told) -> None:
    scene.program.write_text("#!/bin/sh\ncat >> $(dirname $0)/told\necho no network\nexit 1\n")
    for told in ([("done", "", False)], []):
        assert (await run(scene, scene.plan())).status == "done"
        assert scene.events() == told
    failed = [line.data for line in read_lines(scene.directory) if line.type == "hook.failed"]
    assert failed == [{"hook": "on_done", "error": "it ended with status 1: no network"}]


async def test_an_address_gets_only_names_and_the_reason(scene: Told) -> None:
    scene.backend.faults["r1"] = [Fault(1.0, "world")]
    with serve() as (url, requests):
        await run(scene, scene.plan(retry={"attempts": 0}, on_failure=url))
    assert [json.loads(body) for _, _, body in requests] == [
        {
            "event": "failure",
            "experiment": "exp",
            "reason": "world",
            "running": True,
            "text": "exp: failed (world): r1",
            "chains": ["r1"],
            "chain_count": 1,
        }
    ]


async def test_the_call_of_a_hook_is_the_last_line_of_a_journal(scene: Told) -> None:
    await run(scene, scene.plan())
    types = [line.type for line in read_lines(scene.directory)]
    assert types[-2:] == ["session.ended", "hook.called"]
