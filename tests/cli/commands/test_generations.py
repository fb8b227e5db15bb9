"""``clawblox generations``: options become a plan; directories of the public script continue."""

from __future__ import annotations

import csv
import json
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.cli.commands.generations import clear_directory, open_generations
from clawblox.cli.commands.generations import command as generations
from clawblox.errors import ConfigError, RunLockedError, UsageError
from clawblox.experiment.harness.options import GenerationOptions
from clawblox.experiment.harness.replacing import set_experiment_aside
from clawblox.experiment.harness.script_files import RecordedOptions
from clawblox.experiment.history.journal import Journal, read_lines
from clawblox.experiment.plan import Plan
from clawblox.experiment.reading.record import read_experiment
from clawblox.experiment.running.opening import begin_or_continue
from tests.agents.standins import misbehave
from tests.cli.conftest import Start
from tests.support.files import read_all
from tests.support.orchestrators import STAY, kill_with_guard, orchestrator
from tests.support.processes import marked_processes
from tests.support.sockets import free_port
from tests.support.worlds import make_world, world_command

LOGIN = "sk-ant-oat01-not-a-token-0001"


@pytest.fixture(autouse=True)
def _world() -> None:
    make_world(Path.cwd())


def parse(*words: str, given: set[str] | None = None) -> GenerationOptions:
    """Return the options of a command line; all of them count as given unless some are named."""
    context = generations.make_context(
        "generations", ["--world-dir", "counter", "--experiment-id", "e1", *words]
    )
    values = dict(context.params)
    return GenerationOptions(values=values, given=set(values) if given is None else given)


def make_plan(*words: str) -> Plan:
    return parse(*words).new_plan()


def test_default_options_equal_the_public_script() -> None:
    plan = make_plan()
    (agent,) = plan.agents
    assert (plan.name, plan.layout, plan.run_prefix, plan.tmux) == (
        "e1",
        "flat",
        "e1",
        "clawblox-gen-python",
    )
    assert (plan.generations, plan.duration, plan.repeats) == (30, 1800.0, 1)
    assert (plan.world.dir, plan.world.port, plan.world.record) == (
        Path("counter").absolute(),
        8085,
        True,
    )
    assert (plan.world.port_wait, plan.world.health_timeout) == (120.0, 30.0)
    assert (agent.driver, agent.name, agent.model, agent.prompt) == ("claude", "Eko", None, "Begin")
    assert (agent.sandbox, agent.claude_native_sandbox, agent.bare) == (True, True, False)
    assert agent.permission_mode == "bypassPermissions"
    assert plan.save is not None
    assert (plan.save.before, plan.save.full) == (300.0, False)
    assert plan.save.prompt.startswith("You will be reset in 5 minutes.")
    assert (plan.checkpoint.every, plan.retry.attempts, plan.retry.delay) == (900.0, 3, 15.0)
    assert parse().directory == Path("counter").absolute() / "results" / "e1"


def test_every_option_reaches_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("template").mkdir()
    plan = make_plan(
        *("--generations", "7", "--generation-duration", "90", "--backend", "codex"),
        *("--agents-per-world", "2", "--model", "gpt-6", "--goal", "Build.", "--no-sandbox"),
        *("--template", "template", "--system-prompt", "prompt.md", "--bare", "--no-record"),
        *("--permission-mode", "plan", "--no-claude-native-sandbox", "--base-port", "9000"),
        *("--port-wait", "1", "--health-timeout", "2", "--run-prefix", "run", "--tmux-prefix", "t"),
        *("--save-prompt", "Save.", "--save-time", "20", "--full-save-phase"),
        *("--checkpoint-every", "60", "--retries", "1", "--retry-delay", "0"),
        "--no-prune-reconstructable-artifacts",
    )
    assert [agent.name for agent in plan.agents] == ["Eko", "Moa"]
    for agent in plan.agents:
        assert (agent.driver, agent.model, agent.prompt) == ("codex", "gpt-6", "Build.")
        assert (agent.sandbox, agent.claude_native_sandbox, agent.bare) == (False, False, True)
        assert agent.template == Path("template").absolute()
        assert agent.system_prompt == Path("prompt.md").absolute()
        assert agent.permission_mode == "plan"
    assert (plan.generations, plan.duration, plan.run_prefix, plan.tmux) == (7, 90.0, "run", "t")
    assert not plan.prune
    world = plan.world
    assert (world.record, world.port, world.port_wait, world.health_timeout) == (False, 9000, 1, 2)
    assert plan.save is not None
    assert (plan.save.prompt, plan.save.before, plan.save.full) == ("Save.", 20.0, True)
    assert (plan.checkpoint.every, plan.retry.attempts, plan.retry.delay) == (60.0, 1, 0.0)
    for name, value in {"GENERATIONS": "4", "SANDBOX": "false", "GOAL": "", "MODEL": "m"}.items():
        monkeypatch.setenv(name, value)
    plan = make_plan()
    assert (plan.generations, plan.agents[0].sandbox, plan.agents[0].prompt) == (4, False, "Begin")
    assert plan.agents[0].model == "m"


def test_the_time_for_saving_leaves_time_for_work_unless_it_is_given(call: Start) -> None:
    words = ("--generation-duration", "2m", "--no-sandbox")
    assert parse(*words).new_plan().saving_s == 300.0
    assert parse(*words, given={"generation_duration"}).new_plan().saving_s == 30.0
    refused = run(call, {"SAVE_GRACE_SECONDS": "300"}, *words)
    assert refused.wait() == 2
    assert "--save-time: must be less than the duration, 120 s, not 300.0" in refused.err
    assert not Path("counter/results").exists()


def test_zero_seconds_turn_saves_and_checkpoints_off() -> None:
    plan = make_plan("--save-time", "0", "--checkpoint-every", "0")
    assert (plan.save, plan.checkpoint.every) == (None, None)


def test_parallel_chains_have_their_own_directories_and_ports() -> None:
    plan = make_plan("--parallel", "6")
    assert (plan.layout, plan.repeats, plan.limits.worlds, plan.world.port) == (
        "chains",
        6,
        6,
        None,
    )
    assert [chain.name for chain in plan.chains()] == [f"r{number}" for number in range(1, 7)]


def test_the_usual_template_is_used_if_it_exists() -> None:
    assert make_plan().agents[0].template is None
    usual = Path("agent/template/agent")
    usual.mkdir(parents=True)
    assert make_plan().agents[0].template == usual.absolute()


def test_resume_changes_only_the_given_options() -> None:
    recorded = make_plan("--model", "m-1", "--generations", "3")
    options = parse("--generations", "5", given={"generations"})
    assert options.changed_plan(recorded) == recorded.but(generations=5)
    with pytest.raises(ConfigError, match="--agents-per-world: must be 1 as before, not 2"):
        parse("--agents-per-world", "2").changed_plan(recorded)
    with pytest.raises(ConfigError, match="--parallel: must be 1 as before, not 2"):
        parse("--parallel", "2").changed_plan(recorded)
    with pytest.raises(ConfigError, match="--run-prefix: must be e1 as before, not other"):
        parse("--run-prefix", "other", given={"run_prefix"}).changed_plan(recorded)
    assert parse("--run-prefix", "e1", given={"run_prefix"}).changed_plan(recorded) == recorded


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (RecordedOptions(), ("claude", "claude-opus-4-8", 1800.0)),
        (RecordedOptions(driver="codex", duration_s=90.0), ("codex", "gpt-5.5", 90.0)),
        (RecordedOptions(driver="claude", model="m"), ("claude", "m", 1800.0)),
        (RecordedOptions(driver="claude", model=""), ("claude", None, 1800.0)),
        (RecordedOptions(driver="kimi"), ("kimi", None, 1800.0)),
        (RecordedOptions(driver="command"), ("claude", "claude-opus-4-8", 1800.0)),
    ],
)
def test_a_directory_of_the_script_is_continued_with_its_options(
    recorded: RecordedOptions, expected: tuple[str, str | None, float]
) -> None:
    plan = parse(given=set()).new_plan(None, recorded)
    assert (plan.agents[0].driver, plan.agents[0].model, plan.duration) == expected
    words = ("--backend", "codex", "--model", "own", "--generation-duration", "7")
    given = {"backend", "model", "generation_duration"}
    plan = parse(*words, given=given).new_plan(None, recorded)
    assert (plan.agents[0].driver, plan.agents[0].model, plan.duration) == ("codex", "own", 7.0)


def test_given_options_are_accepted_as_amendments() -> None:
    given = {"generation_duration", "save_prompt", "model", "accept"}
    options = parse("--accept", "world", given=given)
    assert options.accepted == {"duration", "save", "world"}
    assert parse(given=set()).accepted == set()


def test_resume_retries_failed_generations_and_keeps_the_grace() -> None:
    begun = open_generations(parse("--grace", "7"))
    assert (begun._grace_s, begun._retry_failed) == (7.0, False)
    directory = Path("counter/results/e1").absolute()
    directory.mkdir(parents=True)
    with Journal(directory) as journal:
        begin_or_continue(journal, directory, make_plan())
        journal.append("session.begun")
    options = parse("--resume", "--accept", "world", "--grace", "7", given={"accept", "resume"})
    resumed = open_generations(options)
    assert (resumed._grace_s, resumed._retry_failed) == (7.0, True)
    assert set(resumed._accept) == {"world"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--system-prompt", "none.md"), "agents.0.system_prompt: must be an existing file"),
        (("--generation-duration", "1.5h"), "must be a duration like 3600, 60m or 1h, not '1.5h'"),
        (("--generation-duration", "0"), "must be a duration like 3600, 60m or 1h, not '0'"),
        (("--backend", "acp"), "'acp' is not one of 'claude', 'codex', 'kimi', 'opencode'"),
        (("--generations", "0"), "must be a whole number, 1 to 1000000, not 0"),
        (("--base-port", "65536"), "must be a whole number, 1 to 65535, not 65536"),
        (("--world-dir", "none"), "--world-dir: must be an existing directory, not 'none'"),
        (("--experiment-id", "." * 3), "--experiment-id: must be 1 to 64 characters"),
        (("--model", "a\nb"), "--model: must be"),
        (("--resume",), "--experiment-id: must be an experiment that exists, not 'e1'"),
        (("--resume-from", "none.ckpt"), "none.ckpt"),
    ],
)
def test_wrong_values_are_refused_in_the_words_of_options(
    call: Start, words: tuple[str, ...], text: str
) -> None:
    start = ("generations", "--world-dir", "counter", "--experiment-id", "e1")
    command = call(*start, *words)
    assert command.wait() in (1, 2)
    assert text in command.err
    assert command.out == ""
    assert not Path("counter/results").exists()


def test_the_login_in_a_file_reaches_agents_only_and_is_never_on_disk(
    call: Start, claude_env: dict[str, str]
) -> None:
    Path(".env").write_text(f"SECRET_OF_OTHERS=1\nexport CLAUDE_CODE_OAUTH_TOKEN='{LOGIN}'\n")
    Path("template").mkdir()
    misbehave(Path("template"), turn_s=0.05, needs_login=True)
    names = "env | cut -d= -f1"
    command = ["/bin/sh", "-c", f'{names} >names; exec "$@"', "sh", *world_command()]
    toml = Path("counter/world.toml")
    toml.write_text(toml.read_text().replace(json.dumps(world_command()), json.dumps(command)))
    look = f"{names} >names; printenv CLAUDE_CODE_OAUTH_TOKEN | sha256sum >digest"
    Path("template/look.sh").write_text(look)
    env = {"PATH": claude_env["PATH"], "GOAL": "RUN sh look.sh"}
    words = ("--no-sandbox", "--no-claude-native-sandbox", "--generation-duration", "2")
    words += ("--base-port", str(free_port()), "--generations", "1", "--template", "template")
    done = run(call, env, *words)
    assert done.wait() == 0, done.out + done.err
    (workspace,) = Path("counter/results/e1/runs").glob("*/agents/*/workspace")
    digest = sha256(f"{LOGIN}\n".encode()).hexdigest()
    assert (workspace / "digest").read_text().split()[0] == digest
    of_agent, of_world = ((place / "names").read_text() for place in (workspace, Path("counter")))
    assert "CLAUDE_CODE_OAUTH_TOKEN" in of_agent
    assert "CLAUDE_CODE_OAUTH_TOKEN" not in of_world
    assert "SECRET_OF_OTHERS" not in of_agent + of_world
    written = [path for path, data in read_all(Path.cwd()) if LOGIN.encode() in data]
    assert written == [Path.cwd() / ".env"]
    assert LOGIN not in done.out + done.err


def test_force_renames_the_old_directory_only_after_all_checks(
    claude_env: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in claude_env.items():
        monkeypatch.setenv(name, value)
    directory = Path("counter/results/e1")
    (directory / "runs").mkdir(parents=True)
    words = ("--no-sandbox", "--no-claude-native-sandbox")
    with pytest.raises(UsageError, match="--force renames it"):
        clear_directory(parse(*words))
    with pytest.raises(ConfigError, match="system_prompt: must be an existing file"):
        clear_directory(parse(*words, "--force", "--system-prompt", "none.md"))
    assert directory.is_dir()
    clear_directory(parse(*words, "--force"))
    (replaced,) = directory.parent.iterdir()
    assert re.fullmatch(r"e1\.replaced-\d{8}T\d{6}Z", replaced.name)
    assert (replaced / "runs").is_dir()
    assert capsys.readouterr().err == f"{directory} is now {replaced}\n"
    clear_directory(parse(*words, "--force"))
    assert capsys.readouterr().err == ""


@pytest.mark.thorough
def test_force_starts_an_experiment_in_place_of_another(
    call: Start, claude_env: dict[str, str]
) -> None:
    Path("template").mkdir()
    misbehave(Path("template"), turn_s=0.05)
    env = {**claude_env, "SAVE_GRACE_SECONDS": "0", "CHECKPOINT_EVERY": "0", "TEMPLATE": "template"}
    fixed = ("--no-sandbox", "--no-claude-native-sandbox", "--generation-duration", "1")
    fixed += ("--base-port", str(free_port()), "--generations", "1", "--force")
    directory = Path("counter/results/e1")
    first = run(call, env, *fixed)
    assert first.wait() == 0, first.out + first.err
    assert "is now" not in first.err
    (begun, *_) = read_lines(directory)
    second = run(call, env, *fixed)
    assert second.wait() == 0, second.out + second.err
    (replaced,) = directory.parent.glob("e1.replaced-*")
    assert f"{directory} is now {replaced}\n" in second.err
    assert read_lines(replaced)[0] == begun != read_lines(directory)[0]
    for place in (directory, replaced):
        assert len(read_experiment(place).results().rows()) == 1
    continued = run(call, env, "--resume", "--force")
    assert continued.wait() == 2
    assert "--force: must be left out" in continued.err


def test_force_renames_repeatedly_but_not_while_a_process_runs_the_experiment() -> None:
    directory = Path("counter/results/e1").absolute()
    directory.mkdir(parents=True)
    with Journal(directory), pytest.raises(RunLockedError, match=f"(?s)pid {os.getpid()} .* runs "):
        anyio.run(set_experiment_aside, directory)
    names = {anyio.run(set_experiment_aside, directory)}
    directory.mkdir()
    names.add(anyio.run(set_experiment_aside, directory))
    assert len(names) == 2
    assert anyio.run(set_experiment_aside, directory) is None


@pytest.mark.thorough
def test_an_experiment_is_not_renamed_while_a_world_runs_in_it() -> None:
    directory = Path("counter/results/e1").absolute()
    run_dir = directory / "runs" / "e1-g001"  # written by the public script, which takes no lock
    with orchestrator(STAY, Path("counter").absolute(), run_dir) as program:
        program.hear()
        with pytest.raises(RunLockedError, match=f"(?s)pid {program.pid} .* runs {run_dir}"):
            anyio.run(set_experiment_aside, directory)
        assert directory.is_dir()
        kill_with_guard(program.process)
        place = anyio.run(set_experiment_aside, directory)
    assert list(directory.parent.iterdir()) == [place]
    assert not marked_processes()


def test_a_resume_needs_the_name_of_an_experiment(call: Start) -> None:
    Path("counter/results/e2").mkdir(parents=True)
    command = call("generations", "--world-dir", "counter", "--resume")
    assert command.wait() == 2
    assert command.err == (
        "Error: --experiment-id: must be given with --resume\n  hint: there are: e2\n"
    )


def run(call: Start, env: dict[str, str], *words: str) -> Any:
    return call("generations", "--world-dir", "counter", "--experiment-id", "e1", *words, env=env)


@pytest.mark.thorough
def test_generations_continue_without_a_journal(call: Start, claude_env: dict[str, str]) -> None:
    Path("template").mkdir()
    misbehave(Path("template"), turn_s=0.05)
    env = {**claude_env, "SAVE_GRACE_SECONDS": "0", "CHECKPOINT_EVERY": "0", "TEMPLATE": "template"}
    fixed = ("--no-sandbox", "--no-claude-native-sandbox", "--generation-duration", "1")
    fixed += ("--base-port", str(free_port()))
    first = run(call, env, *fixed, "--generations", "1")
    assert first.wait() == 0, first.out + first.err
    directory = Path("counter/results/e1")
    refused = run(call, env, *fixed)
    assert refused.wait() == 2
    assert "--resume continues it" in refused.err
    for name in ("journal.jsonl", "plan.toml"):  # as the public script leaves a directory
        (directory / name).unlink()
    second = run(call, env, *fixed, "--generations", "2", "--resume")
    assert second.wait() == 0, second.out + second.err
    again = run(call, env, "--generation-duration", "2", "--generations", "2", "--resume")
    assert again.wait() == 0, again.out + again.err
    with (directory / "generation_chain.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [row["run_id"] for row in rows] == ["e1-g001", "e1-g002"]
    assert rows[1]["template_in"] == rows[0]["workspace_out"]
    assert len(read_experiment(directory).results().rows()) == 2


@pytest.mark.thorough
def test_an_archive_of_an_interrupted_generation_is_continued(
    start: Start, call: Start, claude_env: dict[str, str]
) -> None:
    Path("template").mkdir()
    misbehave(Path("template"), turn_s=0.05)
    env = {**claude_env, "SAVE_GRACE_SECONDS": "0", "CHECKPOINT_EVERY": "1", "TEMPLATE": "template"}
    fixed = ["generations", "--world-dir", "counter", "--experiment-id", "e1", "--no-sandbox"]
    fixed += ["--no-claude-native-sandbox", "--base-port", str(free_port()), "--generations", "1"]
    first = start(*fixed, "--generation-duration", "4", env=env)
    first.wait_for("generation 1 saved")
    assert first.interrupt() == 130
    directory = Path("counter/results/e1")
    older, *_ = sorted((directory / "runs" / "e1-g001" / "checkpoints").glob("*.ckpt"))
    for name in ("journal.jsonl", "plan.toml"):  # as the public script leaves a directory
        (directory / name).unlink()
    words = ("--resume-from", str(older), "--generation-duration", "4")
    second = call(*fixed, *words, env=env)
    assert second.wait() == 0, second.out + second.err
    with (directory / "generation_chain.csv").open() as table:
        (row,) = csv.DictReader(table)
    assert row["run_id"].startswith("e1-g001-r")
    assert row["template_in"] == f"checkpoint:{older.absolute()}"
    assert row["agent_name"] == "Eko-re1-g001-w0-a0"
