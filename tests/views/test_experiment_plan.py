"""The preview of a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawblox.experiment.live.survey import Survey
from clawblox.experiment.plan import AgentSpec, Plan
from clawblox.experiment.tables.lead_time import LeadTime
from clawblox.views.experiment_plan import describe_plan

GB = 10**9
TEMPLATE = Path("/templates/agent")
NEW = LeadTime(pause_s=None, lead_s=300)


def plan(**fields: Any) -> Plan:
    budget = {"output_tokens": 400_000}
    agent = AgentSpec("claude", model="m-1", template=TEMPLATE, budget=budget)
    known: dict[str, Any] = {
        "agents": [agent],
        "generations": 10,
        "repeats": 3,
        "sweep": {"agents.*.model": ["m-1", "m-2"]},
    }
    return Plan("/worlds/panda", **{**known, **fields})


def survey(**fields: Any) -> Survey:
    known: dict[str, Any] = {
        "world": "9f86d081884c",
        "programs": {"claude": "2.1.330"},
        "disk_bytes": 12 * GB,
        "free_bytes": 68 * GB,
        "has_costs": True,
    }
    return Survey(**{**known, **fields})


def test_plan_preview_has_hours_disk_tokens_and_dollars() -> None:
    save = {"budget": {"output_tokens": 40_000}}
    limits = {"worlds": 4, "dollars": 200, "wall": "72h"}
    chains, tokens, inputs, *_ = describe_plan(plan(save=save, limits=limits), survey(), NEW)
    assert chains == (
        "6 chains of 10 generations of 1h, 4 worlds at a time: at least 15h."
        " Disk: at least 12 GB of 68 GB free."
    )
    assert tokens == (
        "At most 26M output tokens (24M working, 2.4M saving)."
        " Starts no generation beyond $200. Ends after 3d."
    )
    assert inputs == "world panda 9f86d081884c   claude 2.1.330   copied: agent"


def test_suggested_job_signal_comes_twice_the_pause_time_before_the_end() -> None:
    assert describe_plan(plan(), survey(), NEW)[3] == (
        "Pause: not measured yet; ask the batch system for the signal 300 s before the end "
        "(--signal=B:TERM@300)."
    )
    measured = LeadTime(pause_s=54.2, lead_s=120)
    assert describe_plan(plan(), survey(), measured)[3] == (
        "Pause: about 55 s, so ask the batch system for the signal 120 s before the end "
        "(--signal=B:TERM@120)."
    )


def test_unknown_versions_sizes_and_costs_are_left_out() -> None:
    unknown = survey(programs={"command": None}, disk_bytes=0, has_costs=False)
    chains, _, inputs, *_ = describe_plan(plan(agents=[AgentSpec("claude")]), unknown, NEW)
    assert chains.endswith(" Disk: 68 GB free.")
    assert inputs == "world panda 9f86d081884c   command   costs are unknown without [prices]"


def test_different_durations_are_a_range() -> None:
    line = describe_plan(plan(sweep={"duration": ["30m", "2h"]}, repeats=1), survey(), NEW)[0]
    assert line.startswith(
        "2 chains of 10 generations of 30m to 2h, 2 worlds at a time: at least 20h."
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"save": False}, "At most 24M output tokens."),
        ({}, "At most 24M output tokens, and those of the save prompts."),
        (
            {"agents": [AgentSpec("claude")], "sweep": {}},
            "No limit of output tokens, as not every agent has such a budget.",
        ),
    ],
)
def test_missing_budgets_are_mentioned(fields: dict[str, Any], text: str) -> None:
    assert describe_plan(plan(**fields), survey(), NEW)[1] == text


def test_the_chains_are_listed_with_their_values() -> None:
    swept = plan(
        sweep={"agents.*.model": ["m-1", "m-2"], "inherit.workspace": [False]},
        seeds=[3],
        repeats=1,
        conditions=[{"name": "late", "set": {"duration": "2h", "save.prompt": "x" * 1000 + "end"}}],
    )
    notes = ["the world may not record"]
    _, _, _, _, note, blank, *chains = describe_plan(swept, survey(notes=notes), NEW)
    assert [note, blank] == [*notes, ""]
    beginning, end = "x" * 29, "x" * 25 + "end"
    assert chains == [
        'm_1-no_workspace-s3  agents.*.model = "m-1", inherit.workspace = false, seed = 3',
        'm_2-no_workspace-s3  agents.*.model = "m-2", inherit.workspace = false, seed = 3',
        f'late-s3              duration = 7200.0, save.prompt = "{beginning}…{end}", seed = 3',
    ]
    assert describe_plan(plan(sweep={}, repeats=1000), survey(), NEW)[-2:] == [
        "r100",
        "… and 900 more (--json has all)",
    ]


def test_late_save_prompt_is_mentioned() -> None:
    late = "The save prompt comes 1m to 3m before the end, a quarter of the duration."
    durations = {"duration": ["4m", "12m", "2h"]}
    assert late in describe_plan(plan(sweep=durations), survey(), NEW)[1]
    for save in (False, {"before": "30s"}):
        tokens = describe_plan(plan(sweep=durations, save=save), survey(), NEW)[1]
        assert "save prompt comes" not in tokens
    assert "save prompt comes" not in describe_plan(plan(), survey(), NEW)[1]
