"""Opens the directory of an experiment for writing: creates the experiment, or compares the plans.

A plan may be changed at a resume as ``plan.changes`` allows. Each changed plan is a revision: a
file of its own, and a line in the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from clawblox.errors import UsageError
from clawblox.experiment.harness import check_takeover, take_over
from clawblox.experiment.history.journal import JOURNAL_FORMAT, Journal, invalid_line
from clawblox.experiment.history.lines import WORK, About, JournalLine
from clawblox.experiment.history.machine import Finished, next_step
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.inputs import InputDigests, copy_inputs, digest_inputs
from clawblox.experiment.layout import INPUTS_DIR
from clawblox.experiment.links import require_no_link
from clawblox.experiment.plan.changes import compare, require_acceptable
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.plan.save_times import require_time_to_work
from clawblox.experiment.reading.record import read_plans, read_record
from clawblox.rundir.experiments import PLAN_NAME
from clawblox.system.clock import parse_utc
from clawblox.system.files import publish_bytes


def begin_or_continue(
    journal: Journal,
    directory: Path,
    plan: Plan | None,
    *,
    accept: Collection[str] = (),
    retry_failed: bool = False,
    resume_from: Path | None = None,
    check: Callable[[], None] = lambda: None,
) -> Plans:
    """Create or continue an experiment, and return its plans with the state. Blocks.

    Args:
        journal: Its journal, open.
        directory: Its directory.
        plan: The plan; None continues with the recorded one.
        accept: Accepted amendments of the plan.
        retry_failed: Whether failed chains are retried.
        resume_from: An archive from which the only chain continues, or None.
        check: Called often while files are read; ends the call by raising an error.

    Raises:
        UsageError: There is neither an experiment nor a plan.
        PlanChangedError: The plan, or a file that it names, has changed, and that is not accepted.
        ConfigError: The plan leaves no time for work.
        ClawbloxError: A file cannot be read.
        OSError: A file cannot be written.
    """
    lines = journal.lines
    require_no_link(directory / INPUTS_DIR)  # nothing is written before this
    if not lines:
        if plan is None:
            hint = "give the directory of an experiment, by default experiments/<name>"
            raise UsageError(f"there is no experiment in {directory}", hint=hint)
        if not check_takeover(directory, plan, resume_from):
            require_time_to_work(plan)
        _begin(journal, directory, plan, check)
    else:
        _amend(journal, directory, plan, accept, check)
    record = read_record(directory, lines)
    record.require_no_links()
    _end_killed_run(journal, record.state)
    take_over(journal, record.state, directory, record.plan, resume_from)
    if retry_failed:
        _retry_failed(journal, record.plans)
    return record.plans


def _begin(journal: Journal, directory: Path, plan: Plan, check: Callable[[], None]) -> None:
    kept = _write_plan(directory, PLAN_NAME, plan, check)
    inputs = digest_inputs(kept, experiment_dir=directory, check=check)
    facts = {"plan": PLAN_NAME, "format": JOURNAL_FORMAT, "inputs": attrs.asdict(inputs)}
    journal.append("experiment.begun", facts)


def _write_plan(directory: Path, name: str, plan: Plan, check: Callable[[], None]) -> Plan:
    """Copy the files that a plan names, write the plan, and return it with the copies' names."""
    kept = copy_inputs(plan, directory / INPUTS_DIR, check=check)
    publish_bytes(directory / name, kept.dumps(base=directory).encode())
    return kept


def _amend(
    journal: Journal,
    directory: Path,
    given: Plan | None,
    accept: Collection[str],
    check: Callable[[], None],
) -> None:
    """Compare the plan with the recorded plan, and record accepted changes."""
    plan, facts = check_amendment(directory, journal.lines, given, accept, check)
    if facts["changes"]:
        _write_plan(directory, facts["plan"], plan, check)
        journal.append("plan.amended", facts)


def check_amendment(
    directory: Path,
    lines: Sequence[JournalLine],
    given: Plan | None,
    accept: Collection[str] = (),
    check: Callable[[], None] = lambda: None,
) -> tuple[Plan, Mapping[str, Any]]:
    """Return the plan with which an experiment continues, and the facts of its changes. Blocks.

    Args:
        directory: The directory of the experiment.
        lines: The lines of its journal; at least one.
        given: The plan; None for the recorded plan.
        accept: Accepted amendments of the plan.
        check: Called often while files are read; ends the call by raising an error.

    Raises:
        PlanChangedError: An unaccepted change of the plan, or of a file that it names.
        ConfigError: The plan leaves no time for work.
        ClawbloxError: A file cannot be read.
    """
    recorded = read_plans(directory, lines)
    before = recorded[-1]
    plan = before if given is None else given.but(naming=before.naming)
    inputs = digest_inputs(plan, experiment_dir=directory, check=check)
    changes = [*compare(before, plan), *_last_inputs(directory, lines).compare(inputs)]
    has_worked = any(line.type in WORK for line in lines)
    require_acceptable(changes, accept, has_worked=has_worked)
    if changes:
        require_time_to_work(plan, before)
    revision = len(recorded)
    return plan, {
        "revision": revision,
        "plan": f"plan-{revision}.toml",
        "changes": [
            {"field": change.field, "old": change.old, "new": change.new} for change in changes
        ],
        "inputs": attrs.asdict(inputs),
        "mends": not has_worked,
    }


def _last_inputs(directory: Path, lines: Sequence[JournalLine]) -> InputDigests:
    for line in reversed(lines):
        if (facts := line.data.get("inputs")) is not None:
            return InputDigests(**{name: facts[name] for name in ("world", "prompts", "templates")})
    raise invalid_line(directory, "no line has the digests of the files that the plan names")


def _end_killed_run(journal: Journal, state: ExperimentState) -> None:
    """Record the end of a run whose process was killed, at the time of its last line."""
    if state.current_run is None:
        return
    begun, ended = parse_utc(state.current_run.at), parse_utc(journal.lines[-1].at)
    elapsed_s = 0.0 if begun is None or ended is None else (ended - begun).total_seconds()
    facts = {"reason": "killed", "elapsed_s": max(0.0, elapsed_s)}
    state.apply(journal.append("session.ended", facts))


def _retry_failed(journal: Journal, plans: Plans) -> None:
    for name in list(plans.state.chains):  # a corrected plan may have other chains
        if name in plans.chains and next_step(plans, plans.chains[name]) == Finished(
            status="failed"
        ):
            plans.state.apply(journal.append("chain.retried", about=About(name)))
