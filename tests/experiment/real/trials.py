"""Experiments of stand-in programs, each run by its own process, which a test kills.

The program is always the same: it runs the plan of a directory, regardless of earlier runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from clawblox.agents.drivers import find_driver
from clawblox.agents.layout import AgentDir
from clawblox.experiment import AgentSpec, ExperimentRecord, Plan, read_experiment
from clawblox.experiment.history.checkpoints import Checkpoint
from clawblox.experiment.history.journal import read_lines
from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.history.state import AttemptState
from clawblox.experiment.layout import archive_path, attempt_dir, chain_dir
from tests.agents.standins import ANSWER, install, misbehave, told
from tests.support.processes import processes_in
from tests.support.waiting import wait_until
from tests.support.worlds import make_world

AGENTS = {"Eko": "claude", "Moa": "codex"}
KEYS = {"ANTHROPIC_API_KEY": "sk-not-a-key-0001", "OPENAI_API_KEY": "sk-not-a-key-0002"}
_KEY_NAMES = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY"}
_ADDRESS = "$(grep -o 'http[^\"]*' ../world_access.json)"
SAVE = "Save your memory now.\nRUN echo saved >> saves.txt"

CUT_OFF = "Continue from where you left off."
"""Text that Claude Code adds after a turn that was cut off by the save prompt."""

FIND_TESTS = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
"""

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
import anyio
from clawblox.experiment import AsyncExperiment, Plan
from clawblox.experiment.history.journal import Journal

root, *deaths = sys.argv[1:]
if "TRIAL_NODES" in os.environ:
    from clawblox.experiment.cluster import connect
    from tests.experiment.cluster.local_engine import LocalEngine
    from clawblox.experiment.plan import cluster
    cluster._SHORTEST_LEASE_S = 0.1
    connect.connect = lambda _: LocalEngine(json.loads(os.environ["TRIAL_NODES"]))
append = Journal.append

def append_or_die(self, type, *others, **named):
    die(f"before {type}", f"before {len(self.lines) + 1}")
    line = append(self, type, *others, **named)
    die(f"after {type}", f"after {line.seq}")
    return line

def die(*moments):
    if set(moments) & set(deaths):
        os.kill(os.getpid(), signal.SIGKILL)

async def stop(live):
    enough = Path(root, f"enough-{live.generation}")
    turns = min(agent.usage.turns for agent in live.agents)
    return "enough" if enough.exists() and turns >= int(enough.read_text()) else None

async def score(end):
    return {"counter": (await end.observe(end.agents[-1].name))["counter"]}

async def main():
    plan = Plan.load(Path(root, "plan.toml"))
    async with AsyncExperiment(plan, dir=Path(root, "exp"), score=score, stop=stop) as exp:
        outcome = await exp.run()
    print(json.dumps({"status": outcome.status, "text": outcome.text}))
    return outcome.exit_status

Journal.append = append_or_die
sys.exit(anyio.run(main))
"""


def act(number: int = 1, *, sandbox: bool = False) -> str:
    """Return a message that makes an agent add a number to the counter of its world."""
    address = "http://counter" if sandbox else _ADDRESS
    data = json.dumps({"type": "add", "data": number})
    return f"RUN curl -s -d '{data}' {address}/input"


ACT = act()

ALONE = """
import fcntl, os, sys
chain = os.path.realpath(os.path.join(os.environ["WORLD_RECORD_DIR"], "../../.."))
place = os.path.join(sys.argv[1], "exp/chains", os.path.basename(chain))
lock = os.open(os.path.join(place, "alive"), os.O_RDWR | os.O_CREAT)
os.set_inheritable(lock, True)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(os.path.join(place, "alive-twice"), "w").close()
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Runs a world, and creates a file if another world of the same chain is running."""


@attrs.frozen
class Trial:
    """A plan for stand-ins, and the directory in which programs run it.

    Attributes:
        root: Directory of everything.
        plan: The plan.
        nodes: Number of attempts that fit on each node, by name; None runs them in the program.
        env: Additional environment variables of the program.
    """

    root: Path
    plan: Plan
    nodes: Mapping[str, int] | None = None
    env: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def make(
        cls,
        root: Path,
        *,
        agents: Iterable[str] = AGENTS,
        faults: Mapping[str, Any] | None = None,
        sandbox: bool = False,
        nodes: Mapping[str, int] | None = None,
        **changes: Any,
    ) -> Trial:
        """Make a trial whose agents end turns quickly and act in their world once.

        Args:
            root: Existing directory for everything.
            agents: Names of the agents.
            faults: Faults of the agents, stored in their first workspaces.
            sandbox: Whether the agents have a sandbox.
            nodes: Number of attempts that fit on each node of a cluster; None for no cluster.
            **changes: Additional fields of the plan.
        """
        template = root / "template"
        template.mkdir()
        misbehave(template, **{"turn_s": 0.05, **(faults or {})})
        specs = [
            AgentSpec(
                AGENTS[name],
                name=name,
                binary=install(root / "bin", AGENTS[name]),
                template=template,
                prompt=f"Begin\n{act(sandbox=sandbox)}",
                env=[_KEY_NAMES[AGENTS[name]]],
                sandbox=sandbox,
            )
            for name in agents
        ]
        settings: dict[str, Any] = {
            "name": "exp",
            "generations": 2,
            "duration": 600.0,
            "save": {"prompt": SAVE},
            "checkpoint": {"every": 0.4, "idle_quiet": 0.0, "idle_wait": 10.0},
            "limits": {"min_free": None},
            "retry": {"delay": 0.0},
        }
        world = make_world(root)
        _watch_worlds(world / "world.toml", root)
        plan = Plan(world, specs, **{**settings, **changes})
        (root / "plan.toml").write_text(plan.dumps())
        return cls(root, plan, nodes)

    def with_prompt(self, prompt: str) -> Trial:
        """Return the trial with other first messages to the agents."""
        agents = [agent.but(prompt=prompt) for agent in self.plan.agents]
        return self.with_plan(self.plan.but(agents=agents))

    def with_plan(self, plan: Plan) -> Trial:
        """Return the trial with another plan."""
        (self.root / "plan.toml").write_text(plan.dumps())
        return attrs.evolve(self, plan=plan)

    # -- programs ---------------------------------------------------------------------------

    def start(self, *deaths: str, wrapper: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Start the program.

        Args:
            *deaths: Moments at which it kills itself, by the number or the type of a line:
                ``before 7`` or ``after scored``.
            wrapper: A command that runs the program.
        """
        return subprocess.Popen(
            [*wrapper, sys.executable, "-c", f"{FIND_TESTS}{PROGRAM}", str(self.root), *deaths],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **KEYS, **self.environment, **self.env},
        )

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the program and of each cluster node."""
        (self.root / "scratch").mkdir(exist_ok=True)
        nodes = {} if self.nodes is None else {"TRIAL_NODES": json.dumps(self.nodes)}
        return {
            **nodes,
            "CLAWBLOX_HOME": str(self.root / "home"),
            "CLAWBLOX_SCRATCH": str(self.root / "scratch"),
        }

    def run(self, *deaths: str, wrapper: Sequence[str] = ()) -> tuple[int, dict[str, Any]]:
        """Run the program to its end; return its exit status and its output."""
        with self.start(*deaths, wrapper=wrapper) as program:
            output, _ = program.communicate()
        self.wait_for_silence()
        return program.returncode, json.loads(output) if output else {}

    def kill(self, program: subprocess.Popen[str]) -> None:
        """Kill the program, and wait until all its processes have ended."""
        program.kill()
        program.communicate()
        self.wait_for_silence()

    def wait_for_silence(self) -> None:
        """Wait until no process works for the experiment."""
        wait_until(lambda: not processes_in(self.root), what="no process is left")

    def close(self, generation: int, turns: int = 0) -> None:
        """Let a generation close at the end of a turn.

        Args:
            generation: Its number.
            turns: Number of turns of each agent in an attempt before it closes.
        """
        (self.root / f"enough-{generation}").write_text(str(turns))

    # -- results ----------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """The directory of the experiment."""
        return self.root / "exp"

    @property
    def record(self) -> ExperimentRecord:
        """The recorded experiment."""
        return read_experiment(self.directory)

    @property
    def lines(self) -> list[JournalLine]:
        """The lines of its journal; empty if the journal does not exist yet."""
        return read_lines(self.directory) if (self.directory / "journal.jsonl").exists() else []

    def chain_dir(self, chain: str) -> Path:
        """Return the directory of a chain."""
        return chain_dir(self.directory, chain, self.plan.layout)

    def attempts(self, chain: str, generation: int) -> list[AttemptState]:
        """Return the attempts at a generation."""
        return self.record.state.chains[chain].generations[generation].attempts

    def archive(self, checkpoint: Checkpoint) -> Path:
        """Return the archive of a checkpoint whose attempt has not failed."""
        ref = checkpoint.ref
        return archive_path(self.chain_dir(ref.chain), ref.attempt, ref.file)

    def run_dir(self, attempt: AttemptState) -> Path:
        """Return the run directory of an attempt that has not failed."""
        return attempt_dir(self.chain_dir(attempt.chain), attempt.attempt_id)

    def transcripts(self, attempt: AttemptState) -> list[Path]:
        """Return the transcripts of an attempt's agents, in their order."""
        return self.transcripts_in(self.run_dir(attempt), attempt.working["agents"])

    def transcripts_in(self, run_dir: Path, agents: Sequence[Any]) -> list[Path]:
        """Return the transcripts of agents in a run directory, by their recorded conversations."""
        return [
            (find_driver(spec.driver).transcripts(AgentDir(run_dir / agent["dir"])) or {})[
                agent["conversation"]
            ]
            for spec, agent in zip(self.plan.agents, agents, strict=True)
        ]

    def messages(self, attempt: AttemptState) -> list[list[str]]:
        """Return the messages to each agent of an attempt, in their order."""
        return [told(path) for path in self.transcripts(attempt)]


def count_answers(transcript: Path) -> int:
    """Return the number of complete turns in a transcript."""
    records = map(json.loads, transcript.read_text().splitlines())
    messages = [
        record.get("message") or record.get("payload") or {}
        for record in records
        if record.get("type") in ("assistant", "response_item")
    ]
    answers = [m for m in messages if m.get("role") == "assistant"]
    return sum(ANSWER in json.dumps(answer["content"]) for answer in answers)


def _watch_worlds(world_toml: Path, root: Path) -> None:
    text = world_toml.read_text()
    before = "command = ["
    watched = json.dumps([sys.executable, "-I", "-S", "-c", ALONE, str(root)])[:-1]
    world_toml.write_text(text.replace(before, f"command = {watched}, ", 1))
