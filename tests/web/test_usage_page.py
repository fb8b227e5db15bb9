"""The page of usage: own tokens and cost by experiment, model and day."""

from __future__ import annotations

import re
from pathlib import Path

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentRecord, StatusWriter
from clawblox.agents.values import Usage
from clawblox.web.site import Site
from tests.support.lineages import run_of, write_run
from tests.web.drawing import draw


def add_agent(run: Path, name: str, usage: Usage, inherited: Usage, time: str) -> None:
    """Write the status of an agent that has ended."""
    directory = AgentDir(run / "agents" / name)
    directory.runtime.mkdir(parents=True)
    record = AgentRecord(
        name=name, driver="claude", state="stopped", usage=usage, inherited=inherited, time=time
    )
    StatusWriter(directory).write(record)


def row(text: str, part: str, name: str) -> str:
    section = re.search(rf'<section id="{part}".*?</section>', text, re.S)
    assert section is not None
    plain = re.sub(r"<[^>]+>", " ", section[0].replace("</tr>", "\n"))
    return next(" ".join(line.split()) for line in plain.splitlines() if name in line)


def test_inherited_usage_of_a_fork_is_not_counted_again(tmp_path: Path) -> None:
    parent = Usage(input_tokens=1000, output_tokens=500, turns=5, cost_usd=1.0)
    child = parent.plus(Usage(input_tokens=100, output_tokens=50, turns=1, cost_usd=0.25))
    for name, usage, inherited in (("r1", parent, Usage()), ("r2", child, parent)):
        run = write_run(tmp_path / name, {"w000": {"run": run_of("w000")}})
        add_agent(run, "Ada", usage, inherited, f"2026-06-0{name[1]}T10:00:00Z")
    text = draw(Site(tmp_path), "usage")
    assert "6 turns" in text
    assert "$1.25" in text
    assert "1,500 tokens in all" in text
    assert row(text, "experiment", "r1") == "r1 1 5 1.0k 500 $1.00"
    assert row(text, "experiment", "r2") == "r2 1 1 100 50 $0.25"
    assert row(text, "day", "2026-06-02") == "2026-06-02 1 1 100 50 $0.25"
    assert row(text, "model", "claude").startswith("claude, model not chosen 2")
