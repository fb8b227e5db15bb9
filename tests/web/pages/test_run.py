"""The page of a run: state and reasons, origin, cost, and commands to continue."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from clawblox import ScriptErrors, World
from clawblox.agents.values import Usage
from clawblox.results import ProcessExit
from clawblox.rundir.experiments import JOURNAL_NAME, PLAN_NAME
from clawblox.rundir.manifest import manifest_path
from clawblox.team.record import AgentRunOptions, RunAgent
from clawblox.web.page import Page
from clawblox.web.site import NoSuchPage, Site
from tests.agents.support import write_status
from tests.golden.test_golden_run_directory import V1
from tests.rundir.test_records import alive
from tests.support.lineages import make_restart, run_of, save_of, write_manifest
from tests.support.worlds import make_world
from tests.web.agent_runs import WrittenAgent
from tests.web.sites import html_of, links_of, make, words_of, write_log

__all__ = ["alive"]


def open_page(root: Path, name: str | None = None) -> Page:
    site = Site(root)
    run = next(run for run in site.runs() if name in (None, run.name))
    return make(site, f"run/{run.ident}")


def test_dead_instances_come_first_with_their_last_log_line(tmp_path: Path) -> None:
    write_log(tmp_path, "w000", b"all well\n")
    write_log(tmp_path, "w001", b"begun\nValueError: no <b>ball\n\n", exit=ProcessExit(status=3))
    page = open_page(tmp_path)
    why = words_of(page, "why")
    assert why.startswith("✕ exited w001 : exit status 3")
    assert "ValueError: no <b>ball" in why
    assert "exited : 1 instance, exit status 0" in why
    assert words_of(page, "instances").index("w001") < words_of(page, "instances").index("w000")


def test_many_deaths_are_counted(tmp_path: Path) -> None:
    for number in range(9):
        write_log(tmp_path, f"w{number:03}", b"", exit=ProcessExit(signal="SIGKILL"))
    assert "4 more died as well" in words_of(open_page(tmp_path), "why")


def test_script_errors_are_named_with_their_number_and_the_last(tmp_path: Path) -> None:
    errors = ScriptErrors(3, "main.lua:2: no <b>oar")
    write_log(tmp_path, "w000", b"", script_errors=errors)
    write_log(tmp_path, "w001", b"")
    why = words_of(open_page(tmp_path), "why")
    assert "! w000 : 3 script errors, the last: main.lua:2: no <b>oar" in why
    assert "! w001" not in why


def test_restarted_instance_is_listed_with_its_death(tmp_path: Path, alive: dict[str, Any]) -> None:
    write_manifest(
        tmp_path,
        {
            "schema_version": 1,
            "run": run_of("w000", status="running"),
            "checkpoints": [save_of("w000", 1)],
            "restarts": [make_restart("w000", 30, 1, by="policy")],
        },
    )
    up = {"state": "ready", "exit": None, "restarts": 1, "run_id": "w000-run"}
    write_log(tmp_path, "w000", b"", **up, **alive)
    why = words_of(open_page(tmp_path), "why")
    assert "w000 died: killed by SIGKILL; came back 2026-06-22 18:00:30 UTC , 1 restart" in why
    assert why.endswith("● ready : 1 instance")


def test_run_page_names_resumable_instances_with_the_command(tmp_path: Path) -> None:
    write_manifest(
        tmp_path, {"schema_version": 1, "run": run_of("w000"), "checkpoints": [save_of("w000", 7)]}
    )
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "w000-7.json").write_text("{}")
    left = {"state": "ready", "exit": None, "run_id": "w000-run", "orchestrator_pid": 2**22 + 2}
    write_log(tmp_path, "w000", b"", **left)
    page = open_page(tmp_path)
    assert "A resume would restore w000 from w000-7.json at 7.0 s" in words_of(page, "why")
    assert f"clawblox resume {tmp_path}" in words_of(page, "how")


def test_run_page_has_the_reason_and_own_usage_of_an_agent(tmp_path: Path) -> None:
    write_log(tmp_path, "w000", b"")
    agent = tmp_path / "agents" / "Ada"
    usage = Usage(input_tokens=3000, output_tokens=200, cost_usd=1.5, turns=14)
    write_status(
        agent,
        state="stopped",
        turn=14,
        reason="budget of 14 turns used up",
        usage=usage,
        inherited=Usage(input_tokens=1000, cost_usd=1.0, turns=4),
    )
    page = open_page(tmp_path)
    assert "stopped Ada after turn 14: budget of 14 turns used up" in words_of(page, "why")
    assert "Cost $0.50 Tokens 2.2k Inherited tokens 1.0k Turns 10" in words_of(page, "facts")


def test_used_up_limit_is_shown_with_the_option_that_raises_it(
    tmp_path: Path,
) -> None:
    write_log(tmp_path, "w000", b"")
    agent = tmp_path / "agents" / "Ada"
    for limit, option in (("1 turn", "turns"), ("5000 tokens", "tokens"), ("2.5 USD", "usd")):
        write_status(agent, state="stopped", reason=f"budget of {limit} used up")
        how = words_of(open_page(tmp_path), "how")
        assert "Ada has used up its budget: raise it to let the agent continue." in how
        assert "Raise its" not in how  # the script that started the agent must continue it
        options = AgentRunOptions(agent="claude", agent_name="Ada")
        RunAgent(options=options).record(tmp_path).write(tmp_path)
        how = words_of(open_page(tmp_path), "how")
        command = f"clawblox run --resume {tmp_path} --max-{option} N"
        assert f"Raise its budget {command}" in how
        (tmp_path / ".clawblox" / "agent.json").unlink()
    write_status(agent, state="stopped", reason="stopped on request")
    assert "budget" not in words_of(open_page(tmp_path), "how")


def test_used_up_budget_of_an_attempt_is_not_a_warning(tmp_path: Path) -> None:
    run = tmp_path / "chains" / "a" / "runs" / "g001"
    for name in (JOURNAL_NAME, PLAN_NAME):
        (tmp_path / name).write_text("")
    write_log(run, "w000", b"")
    write_status(run / "agents" / "Ada", state="stopped", reason="budget of 3 turns used up")
    how = words_of(open_page(tmp_path), "how")
    assert "Continue the experiment" in how
    assert "raise it" not in how


def test_run_page_shows_the_end_of_a_usage_limit(tmp_path: Path) -> None:
    ada = WrittenAgent(tmp_path, state="failed", reason="you have hit your limit")
    ada.begin("Begin")
    ada.events.add("limit", 1, 0, message="the limit", resets_at="2026-01-01T00:00:00Z")
    assert "usage limit" not in words_of(open_page(tmp_path), "how")  # the limit is over
    ada.events.add("limit", 1, 0, message="the limit", resets_at="2999-01-02T03:04:05Z")
    words = "The usage limit that ended Ada lasts until 2999-01-02 03:04:05 UTC ."
    assert words in words_of(open_page(tmp_path), "how")
    ada.status(state="working")
    assert "usage limit" not in words_of(open_page(tmp_path), "how")


def test_run_page_has_the_command_for_the_world_without_agents(tmp_path: Path) -> None:
    left = {"state": "ready", "exit": None, "orchestrator_pid": 2**22 + 2}
    write_manifest(
        tmp_path, {"schema_version": 1, "run": run_of("w000"), "checkpoints": [save_of("w000", 7)]}
    )
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "w000-7.json").write_text("{}")
    write_log(tmp_path, "w000", b"", run_id="w000-run", **left)
    how = words_of(open_page(tmp_path), "how")
    assert "Resume it clawblox resume" in how
    assert "Fork it clawblox fork" in how
    write_status(tmp_path / "agents" / "Ada", state="stopped")
    how = words_of(open_page(tmp_path), "how")
    assert "Resume it, without agents clawblox resume" in how
    assert "Fork it, without agents clawblox fork" in how
    options = AgentRunOptions(agent="claude", agent_name="Ada")
    RunAgent(options=options).record(tmp_path).write(tmp_path)
    how = words_of(open_page(tmp_path), "how")
    assert "Resume it clawblox resume" in how
    assert "Fork it, without agents clawblox fork" in how


def test_run_page_links_to_the_save_of_its_origin(tmp_path: Path) -> None:
    for name, parent in (("first", None), ("second", "first")):
        run = run_of(name)
        if parent is not None:
            run["resume_from"] = str(tmp_path / "first/checkpoints/first-1.json")
        document = {"schema_version": 1, "run": run, "checkpoints": [save_of(name, 1)]}
        write_manifest(tmp_path / name, document)
        write_log(tmp_path / name, name, b"", run_id=f"{name}-run")
    site = Site(tmp_path)
    save = site.identify(tmp_path.resolve() / "first/checkpoints/first-1.json")
    first = next(run for run in site.runs() if run.name == "first")
    page = open_page(tmp_path, "second")
    assert "Came from first-1.json of first at 1.0 s" in words_of(page, "facts")
    assert f"/key/run/{first.ident}/save/{save}" in links_of(page)
    picture = words_of(page, "lineage")
    assert "second forked from first, first-1.json" in picture
    assert "2 instances" in picture
    assert "a fresh start" in words_of(open_page(tmp_path, "first"), "facts")
    shutil.rmtree(tmp_path / "first")
    assert "not below here" in words_of(open_page(tmp_path, "second"), "facts")


@pytest.mark.parametrize(("old", "new"), [("lab", "moved"), ("lab/first", "lab/renamed")])
def test_an_archive_without_a_digest_is_found_where_its_run_was_moved_to(
    tmp_path: Path, old: str, new: str
) -> None:
    archive = {"path": "checkpoints/gen001.ckpt", "time": 9.0, "created_at": "2026-06-23"}
    for name, more in (("first", {"checkpoints": [archive]}), ("second", {})):
        path = tmp_path / "lab/first/checkpoints/gen001.ckpt"
        run = run_of(name) if more else run_of(name, resume_archive=str(path))
        write_manifest(tmp_path / "lab" / name, {"schema_version": 1, "run": run, **more})
        write_log(tmp_path / "lab" / name, name, b"", run_id=f"{name}-run")
    (tmp_path / old).rename(tmp_path / new)
    root = (tmp_path / new.split("/")[0]).resolve()
    name = "renamed" if "/" in new else "first"
    page = open_page(root, "second")
    assert f"Came from gen001.ckpt of {name} at 9.0 s" in words_of(page, "facts")
    ident = Site(root).identify(root / name / "checkpoints/gen001.ckpt")
    assert any(to.endswith(f"/save/{ident}") for to in links_of(page))


def test_archives_and_snapshots_are_distinguished_and_linked(tmp_path: Path) -> None:
    archive = {"path": "gen001.ckpt", "time": 9.0, "size_bytes": 5000, "created_at": "2026-06-23"}
    write_manifest(
        tmp_path,
        {
            "schema_version": 1,
            "run": run_of("w000"),
            "checkpoints": [save_of("w000", 1), save_of("w000", 2, removed_at="2026"), archive],
        },
    )
    write_log(tmp_path, "w000", b"", run_id="w000-run")
    page = open_page(tmp_path)
    saves = words_of(page, "saves")
    assert "gen001.ckpt archive 9.0 5.0 kB" in saves
    assert "w000-2.json snapshot, removed w000 2.0 1.0 kB" in saves
    ident = Site(tmp_path).identify(tmp_path.resolve() / "gen001.ckpt")
    assert any(to.endswith(f"/save/{ident}") for to in links_of(page))
    assert f"--resume {tmp_path / 'gen001.ckpt'}" in words_of(page, "how")


def test_page_of_a_real_run_shows_its_fork_and_restart(tmp_path: Path) -> None:
    shutil.copytree(V1, tmp_path / "run")
    page = open_page(tmp_path)
    assert "w001 forked from w000" in html_of(page)
    assert words_of(page, "saves").count("snapshot") == 3
    assert not page.is_live
    again = open_page(tmp_path)
    assert [part.version for part in page.parts] == [part.version for part in again.parts]


def test_a_running_world_is_live_until_it_ends(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with World(dir=make_world(tmp_path)) as world:
        world.start(run_dir=tmp_path / "run")
        page = open_page(tmp_path)
        assert page.is_live
        assert "● ready : 1 instance" in words_of(page, "why")
        assert "clawblox play" in words_of(page, "how")
        assert [part.version for part in page.parts] == [
            part.version for part in open_page(tmp_path).parts
        ]
    page = open_page(tmp_path)
    assert not page.is_live
    assert "exited : 1 instance" in words_of(page, "why")
    with pytest.raises(NoSuchPage):
        make(site, "run/0123456789")


def test_unreadable_manifest_is_mentioned(tmp_path: Path) -> None:
    write_log(tmp_path, "w000", b"")
    manifest_path(tmp_path).write_text('{"schema_version": 1, "run": {"id"')
    assert "Not all can be read" in words_of(open_page(tmp_path), "why")


HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e"


def test_hostile_values_are_shown_and_not_interpreted(tmp_path: Path) -> None:
    text = HOSTILE * 50
    save = save_of("w000", 1, instance="w000", path=f"checkpoints/{HOSTILE[:25]}\u202e.json")
    run = run_of("w000", resume_from=f"/x/{HOSTILE[:8]}")
    write_manifest(tmp_path, {"schema_version": 1, "run": run, "checkpoints": [save]})
    changes = {"halt": text, "world": text, "run_id": "w000-run", "exit": ProcessExit(status=1)}
    write_log(tmp_path, "w000", text.encode(), **changes)
    write_status(tmp_path / "agents" / "Ada", name=HOSTILE, reason=text, state="failed")
    body = html_of(open_page(tmp_path))
    assert "<script>" not in body
    assert "\x1b" not in body
    assert "\u202e" not in body
    assert len(body) < 60_000
