"""Journals of experiments that no process ran, line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from clawblox.agents.values import Usage
from clawblox.experiment.history.lines import JournalLine, usage_data
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan import AgentSpec, Plan

BEGIN = datetime(2026, 6, 22, 18, tzinfo=UTC)
SHA = "ab" * 32


def make_plan(**fields: Any) -> Plan:
    agents = [AgentSpec("claude", model="claude-fable-5"), AgentSpec("codex", model="gpt-6")]
    plain: dict[str, Any] = {"name": "panda", "generations": 3, "repeats": 2, "agents": agents}
    return Plan(**{"world": Path("/worlds/panda"), **plain, **fields})


def used(output: int, cost: float | None = None, turns: int = 1) -> Usage:
    return Usage(input_tokens=10, output_tokens=output, cost_usd=cost, turns=turns)


class Journal:
    """Lines written one minute apart, unless :meth:`wait` is called."""

    def __init__(self) -> None:
        self.lines: list[JournalLine] = []
        self.now = BEGIN

    @property
    def state(self) -> ExperimentState:
        return ExperimentState(self.lines)

    def plans(self, *revisions: Plan) -> Plans:
        return Plans(revisions, self.state)

    def wait(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)

    def write(self, kind: Any, data: Mapping[str, Any] | None = None, **place: Any) -> None:
        self.wait(1)
        at = self.now.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        self.lines.append(
            JournalLine(seq=len(self.lines) + 1, at=at, type=kind, data=data or {}, **place)
        )

    def open(self, chain: str, generation: int, **data: Any) -> Attempt:
        taken = len({line.attempt for line in self.lines if line.chain == chain})
        name = f"panda-{chain}-g{generation:03d}-{taken}"
        attempt = Attempt(self, {"chain": chain, "generation": generation, "attempt": name})
        attempt.write("opened", {"origin": None, "phase": "work", "revision": 0, **data})
        return attempt


class Attempt:
    """Writes the lines of an attempt."""

    def __init__(self, journal: Journal, place: dict[str, Any]) -> None:
        self.journal = journal
        self.place = place
        self.name = str(place["attempt"])

    def write(self, kind: Any, data: Mapping[str, Any] | None = None) -> Attempt:
        self.journal.write(kind, data, **self.place)
        return self

    def work(self) -> Attempt:
        names = [f"{name}-r{self.name}-w0-a{i}" for i, name in enumerate(("Eko", "Moa"))]
        agents = [{"name": name, "version": f"2.1.{i}"} for i, name in enumerate(names)]
        return self.write("prepared").write("working", {"agents": agents})

    def checkpoint(self, kind: str = "periodic", usage: Sequence[Usage] = (), **data: Any) -> Any:
        number = sum(line.type == "checkpoint" for line in self.journal.lines)
        facts = {"file": f"c{number}.ckpt", "sha256": SHA, "kind": kind, "elapsed_s": 900.0, **data}
        self.write("checkpoint", {**facts, "usage": usage_data(usage)})
        place = {key: self.place[key] for key in ("chain", "generation", "attempt")}
        return {**place, "file": facts["file"], "sha256": SHA}

    def end(self, kind: Any, usage: Sequence[Usage] = (), **data: Any) -> Attempt:
        return self.write(kind, {"usage": usage_data(usage), "elapsed_s": 0.0, **data})

    def commit(
        self, usage: Sequence[Usage], total: Sequence[Usage] | None = None, **data: Any
    ) -> Attempt:
        paths = [f"runs/{self.name}/agents/a{index}/workspace" for index in range(2)]
        agents = [
            {"name": f"a{index}", "display": "A", "model": "m", "driver": "claude"}
            for index in range(2)
        ]
        return self.end(
            "committed",
            usage,
            **{
                "used": usage_data(usage if total is None else total),
                "files": self.name,
                "workspaces": paths,
                "agents": agents,
                "elapsed_s": 3600.0,
                "idle_s": 60.0,
                "ended_by": "duration",
                "world_time": 7200.0,
                "started_at": "2026-06-22T18:00:00Z",
                "ended_at": "2026-06-22T19:00:00Z",
                **data,
            },
        )
