"""Research harnesses: their scripts, replayed with stand-ins for the programs."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from clawblox import Agent
from clawblox.agents.running import dialogue
from tests.agents.harness import AUTO_CONTINUE, SAVE_PROMPT, Run, ending, load
from tests.agents.standins import install, misbehave, read_dumps, told
from tests.support.processes import is_alive
from tests.support.tmux import Tmux
from tests.support.waiting import wait_until
from tests.support.worlds import make_world

pytestmark = pytest.mark.needs("tmux")

TURN_S = 0.05
KEYS = {
    "claude": {"CLAUDE_CODE_OAUTH_TOKEN": "not-a-token"},
    "codex": {"CODEX_API_KEY": "not-a-key"},
}
CUT_OFF = "Continue from where you left off."
FULL_NAME = "Eko-rexp-g001-w0-a0"

once = pytest.mark.parametrize("backend", ["claude"], indirect=True)
"""For behaviour that is the same with every program."""

MakeRun = Callable[..., Run]


@pytest.fixture(params=["claude", "codex"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make_run(tmp_path: Path, tmux: Tmux, backend: str) -> MakeRun:
    binary = install(tmp_path / "bin", backend)
    world_dir = make_world(tmp_path)

    def make(name: str = "run-exp-g001", **more: object) -> Run:
        return Run(
            dir=tmp_path / "runs" / name,
            world_dir=world_dir,
            tmux_session=re.sub(r"\W", "_", f"{tmp_path.name}-{name}"),
            backend=backend,
            binary=binary,
            env=KEYS[backend],
            **more,
        )

    return make


def transcript(run: Run, agent: Agent) -> Path:
    pattern = {"claude": "projects/*/*.jsonl", "codex": "sessions/*/*/*/rollout-*.jsonl"}
    [path] = (agent.dir / "session").glob(pattern[run.backend])
    return path


def messages(run: Run, agent: Agent) -> list[str]:
    return told(transcript(run, agent))


def session_id(run: Run, agent: Agent) -> str:
    return (agent.dir / f"{run.backend}_session_id.txt").read_text().strip()


def make_agents(run: Run, *names: str) -> list[Agent]:
    run.make_dirs(*names)
    for name in names:
        misbehave(run.dir / "agents" / name / "workspace", turn_s=TURN_S, dump=True)
    return [run.make_agent(run.dir / "agents" / name, name) for name in names]


@once
def test_a_constructor_before_the_world_touches_neither_disk_nor_tmux(
    make_run: MakeRun, tmux: Tmux
) -> None:
    run = make_run()
    with ending(run):
        agent = run.make_agent(run.dir / "agents" / "Eko", "Eko")
        assert not run.dir.exists()
        assert tmux("list-sessions") == []
        assert agent.visible_workspace_dir == run.dir / "agents" / "Eko" / "workspace"
    assert not run.dir.exists()


@pytest.mark.parametrize(
    "backend", ["claude", pytest.param("codex", marks=pytest.mark.thorough)], indirect=True
)
def test_a_run_continues_until_it_is_stopped_and_its_windows_stay(make_run: MakeRun) -> None:
    run = make_run()
    with ending(run):
        [agent] = make_agents(run, "Eko")
        run.start_world()
        access = run.connect(agent)
        run.start(agent, access)
        run.check_windows()
        assert set(run.windows()) == {"world-0", "agent-0-0"}
        run.validate_agent_dir(agent)
        run.watch_until(lambda: messages(run, agent).count(AUTO_CONTINUE) >= 3)
        first, *others = messages(run, agent)
        assert first == run.initial_prompt(access)
        assert set(others) == {AUTO_CONTINUE}
        assert f'"{access["session"]}"' not in (agent.dir / "logs" / "agent.log").read_text()
        assert (agent.dir / "workspace" / "SOUL.md").read_text() == "I am curious.\n"
        agent.stop(grace_seconds=1)
        last = run.process_events(agent)[-1]
        assert last["status"] == "stopped"
        assert "error" not in last
        assert "exit_code" in last


@pytest.mark.thorough
@once
def test_the_agent_reaches_its_world_by_the_address_it_was_given(make_run: MakeRun) -> None:
    run = make_run()
    with ending(run):
        [agent] = make_agents(run, "Eko")
        run.start_world()
        access = run.connect(agent)
        run.start(agent, access)
        log = agent.dir / "logs" / "agent.log"
        run.watch_until(lambda: '"200 ' in log.read_text())
        assert "/input" in log.read_text(), "the world's document for agents"


@pytest.mark.thorough
@once
def test_the_save_phase_stops_all_agents_and_sends_each_a_message(make_run: MakeRun) -> None:
    run = make_run()
    with ending(run):
        agents = make_agents(run, "Eko-rexp-w0-a0", "Ada-rexp-w0-a1")
        run.start_world()
        for agent in agents:
            run.start(agent, run.connect(agent))
        assert set(run.windows()) == {"world-0", "agent-0-0", "agent-0-1"}
        ids = [session_id(run, agent) for agent in agents]
        run.save_phase()
        for agent, recorded in zip(agents, ids, strict=True):
            wait_until(lambda agent=agent: SAVE_PROMPT in messages(run, agent))
            run.validate_agent_dir(agent)
            assert session_id(run, agent) == recorded
        names = [run.started[index].tmux_window for index in (0, 1, 2, 3)]
        assert names == ["agent-0-0", "agent-0-1"] * 2


@pytest.mark.thorough
@once
def test_an_agent_that_idles_writes_nothing(make_run: MakeRun) -> None:
    run = make_run()
    with ending(run):
        [agent] = make_agents(run, "Eko")
        run.start_world()
        run.start(agent, run.connect(agent))
        (agent.dir / "workspace" / ".standin-hold").touch()
        run.watch_until(run.is_idle)


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["claude", "codex"], indirect=True)
def test_a_checkpoint_is_continued_in_another_run_by_a_message(
    make_run: MakeRun, tmp_path: Path
) -> None:
    name = FULL_NAME
    old = make_run()
    with ending(old):
        [agent] = make_agents(old, name)
        old.start_world()
        access = old.connect(agent)
        old.start(agent, access)
        old.watch_until(lambda: messages(old, agent).count(AUTO_CONTINUE) >= 2)
        old.save_phase()
        wait_until(lambda: SAVE_PROMPT in messages(old, agent))
        agent.stop(grace_seconds=1)
        recorded, before = session_id(old, agent), messages(old, agent)
        system_prompt = (agent.dir / "runtime" / "system_prompt.md").read_text()
        path = old.checkpoint(tmp_path / "g001.ckpt")
    shutil.rmtree(old.dir)

    new = make_run("run-exp-g001-r20260101")
    with ending(new):
        loaded = load(path, new)
        [(loaded_name, directory)] = loaded["agents"].items()
        assert loaded_name == name
        assert (directory / "runtime" / "system_prompt.md").read_text() == system_prompt
        new.start_world(resume=loaded["world_snapshot"])
        agent = new.make_agent(directory, name)
        again = new.connect(agent)
        assert again["session"] == access["session"]
        new.send(agent, AUTO_CONTINUE)
        new.check_windows()
        new.validate_agent_dir(agent)
        assert session_id(new, agent) == recorded
        new.watch_until(lambda: len(messages(new, agent)) > len(before) + 1)
        after = messages(new, agent)
        assert after[: len(before)] == before
        # The program itself closes an interrupted turn, visibly for its agent.
        assert set(after[len(before) :]) - {CUT_OFF} == {AUTO_CONTINUE}


@pytest.mark.thorough
@once
def test_stop_is_safe_for_agents_that_never_started_or_have_ended(make_run: MakeRun) -> None:
    run = make_run()
    with ending(run):
        never, ended = make_agents(run, "Eko", "Ada")
        run.start_world()
        run.start(ended, run.connect(ended))
        ended.stop(grace_seconds=1)
        ended.stop(grace_seconds=1)
        never.stop(grace_seconds=1)
        assert "world-0" in run.windows()
        assert not {"agent-0-0", "agent-0-1"} & set(run.windows())


@pytest.mark.thorough
@once
def test_a_failed_start_leaves_no_process_or_window(make_run: MakeRun) -> None:
    run = make_run()
    with ending(run):
        [agent] = make_agents(run, "Eko")
        run.start_world()
        access = run.connect(agent)
        words = "Error: the stand-in crashed."
        misbehave(agent.dir / "workspace", dump=True, crash_at_start={"status": 3, "words": words})
        with pytest.raises(Exception, match="crashed"):
            run.start(agent, access)
        assert run.windows() == ["world-0"]
        pids = [dumped["pid"] for dumped in read_dumps(agent.dir / "workspace")]
        assert pids
        assert not any(map(is_alive, pids))
        last = run.process_events(agent)[-1]
        assert (last["status"], last["exit_code"]) == ("failed", 3)
        assert words in last["error"]


@pytest.mark.thorough
@once
def test_an_agent_whose_program_exits_fails_and_its_window_closes(make_run: MakeRun) -> None:
    run = make_run()
    with ending(run):
        [agent] = make_agents(run, "Eko")
        run.start_world()
        run.start(agent, run.connect(agent))
        run.check_windows()
        misbehave(agent.dir / "workspace", api_error=401)
        wait_until(lambda: "agent-0-0" not in run.windows())
        last = run.process_events(agent)[-1]
        assert last["status"] == "failed"
        assert last["error"]


@pytest.mark.thorough
@once
def test_the_environment_of_each_start_stays_in_memory(make_run: MakeRun, backend: str) -> None:
    canary = "canary-9b1d6f0c27"
    [name] = KEYS[backend]
    run = make_run()
    run.env = {name: canary, "CLAUDE_CODE_OAUTH_TOKEN": canary}
    with ending(run):
        [agent] = make_agents(run, "Eko")
        workspace = agent.dir / "workspace"
        run.start_world()
        run.start(agent, run.connect(agent))
        run.watch_until(lambda: messages(run, agent).count(AUTO_CONTINUE) >= 2)
        dumps = read_dumps(workspace)
        assert {dumped["environ"].get(name) for dumped in dumps} == {canary}
        if backend == "codex":
            assert len(dumps) >= 3, "a process for each turn"
            assert not any("CLAUDE_CODE_OAUTH_TOKEN" in dumped["environ"] for dumped in dumps)
        assert not any("WORLD_OPERATOR_TOKEN" in dumped["environ"] for dumped in dumps)
        agent.stop(grace_seconds=1)
        files = [path for path in run.dir.rglob("*") if path.is_file()]
        (workspace / ".standin-dump.jsonl").unlink()
        assert not [path for path in files if path.exists() and canary in path.read_text("latin-1")]


@pytest.mark.thorough
@once
def test_policy_files_of_the_workspace_have_no_effect(make_run: MakeRun) -> None:
    run = make_run()
    with ending(run):
        [agent] = make_agents(run, "Eko")
        workspace = agent.dir / "workspace"
        (workspace / ".claude").mkdir()
        (workspace / ".claude" / "settings.json").write_text('{"hooks": {}}')
        (workspace / ".mcp.json").write_text('{"mcpServers": {}}')
        run.start_world()
        run.start(agent, run.connect(agent))
        [dumped, *_] = read_dumps(workspace)
        words = dumped["argv"]
        assert "--strict-mcp-config" in words
        assert words[words.index("--setting-sources") + 1] == "user"


@pytest.mark.thorough
@once
def test_a_crash_restarts_the_program_inside_its_window(
    make_run: MakeRun, tmux: Tmux, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogue, "_FIRST_DELAY_S", 0.01)
    run = make_run()
    with ending(run):
        [agent] = make_agents(run, "Eko")
        workspace = agent.dir / "workspace"
        run.start_world()
        run.start(agent, run.connect(agent))
        pane = run.started[-1].tmux_pane_id
        misbehave(workspace, turn_s=TURN_S, crash_at_turn={"signal": 9, "times": 1})
        run.watch_until(
            lambda: (
                json.loads((workspace / ".standin.json").read_text())["crash_at_turn"]["times"] == 0
            )
        )
        count = len(messages(run, agent))
        run.watch_until(lambda: len(messages(run, agent)) > count + 1)
        assert pane in tmux("list-panes", "-s", "-t", f"={run.tmux_session}", "-F", "#{pane_id}")


@pytest.mark.thorough
@once
def test_the_world_gets_the_name_without_its_run_suffix(make_run: MakeRun) -> None:
    run = make_run()
    with ending(run):
        [agent] = make_agents(run, FULL_NAME)
        run.start_world()
        access = run.connect(agent)
        assert access["name"] == "Eko"
        chain = io.StringIO()
        csv.writer(chain).writerow([agent.name])
        assert chain.getvalue().strip() == FULL_NAME


@pytest.mark.thorough
@pytest.mark.needs("bwrap", "rg", "socat")
@pytest.mark.parametrize(
    ("backend", "native"),
    [("claude", True), ("codex", None)],
    indirect=["backend"],
)
def test_a_sandboxed_agent_knows_its_world_by_name_and_continues(
    make_run: MakeRun, tmp_path: Path, native: bool | None
) -> None:
    old = make_run(sandbox=True, native_sandbox=native)
    with ending(old):
        [agent] = make_agents(old, FULL_NAME)
        old.start_world()
        access = old.connect(agent)
        assert str(agent.visible_workspace_dir) == "/workspace"
        assert access["base_url"].startswith("http://")
        assert access["base_url"] != access["internal_base_url"]
        old.start(agent, access)
        old.check_windows()
        log = agent.dir / "logs" / "agent.log"
        old.watch_until(lambda: "200 " in log.read_text())
        if native:
            settings = agent.dir / "runtime" / "claude_sandbox_settings.json"
            sandbox = json.loads(settings.read_text())["sandbox"]
            assert (sandbox["enabled"], sandbox["failIfUnavailable"]) == (True, True)
        old.watch_until(lambda: messages(old, agent).count(AUTO_CONTINUE) >= 2)
        old.validate_agent_dir(agent)
        [dumped, *_] = read_dumps(agent.dir / "workspace")
        assert dumped["cwd"] == "/workspace"
        assert dumped["uid"] != 0
        agent.stop(grace_seconds=1)
        recorded, before = session_id(old, agent), messages(old, agent)
        path = old.checkpoint(tmp_path / "g001.ckpt")
    shutil.rmtree(old.dir)

    new = make_run("again", sandbox=True, native_sandbox=native)
    with ending(new):
        loaded = load(path, new)
        new.start_world(resume=loaded["world_snapshot"])
        agent = new.make_agent(loaded["agents"][FULL_NAME], FULL_NAME)
        assert new.connect(agent)["base_url"] == access["base_url"]
        new.send(agent, AUTO_CONTINUE)
        new.watch_until(lambda: len(messages(new, agent)) > len(before) + 1)
        assert messages(new, agent)[: len(before)] == before
        assert session_id(new, agent) == recorded
