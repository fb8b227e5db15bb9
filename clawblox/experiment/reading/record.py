"""Reads an experiment from its directory; finds checkpoints and generations by description.

``fable-r1/g003@20m`` is the latest checkpoint of generation 3 of the chain fable-r1 made within 20
active minutes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from clawblox.config.arguments import check_duration, check_path, mismatch
from clawblox.config.toml_text import parse_toml, read_toml_text
from clawblox.errors import ClawbloxError, ConfigError
from clawblox.experiment.history.checkpoints import Checkpoint, CheckpointRef
from clawblox.experiment.history.journal import (
    fold_lines,
    invalid_line,
    read_lines,
    require_none_lost,
)
from clawblox.experiment.history.lines import WORK, JournalLine
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.state import ChainState, ExperimentState, GenerationState
from clawblox.experiment.links import require_no_link, require_no_links
from clawblox.experiment.plan.naming import NAMINGS
from clawblox.experiment.plan.plan import Chain, Plan
from clawblox.experiment.tables.results import Results, make_results
from clawblox.experiment.tables.status import ExperimentStatus, LiveChain, make_status
from clawblox.printable import name_some
from clawblox.spelling import suggest_nearest
from clawblox.system.clock import utc_now

_OF_AGENTS: Final = ("usage", "used", "agents", "workspaces")
"""Members of lines that have one element per agent, or are empty."""

_PLACE: Final = re.compile(r"(?P<chain>[^/@]+)(/g?(?P<generation>[0-9]{1,6}))?(@(?P<at>.+))?")
_GENERATION: Final = "CHAIN/gNNN"
"""Argument with a chain and a generation."""
_NAMED: Final = 20
"""Maximum number of chains that an error names."""
_KINDS: Final = ("boundary", "end")


@attrs.frozen(kw_only=True)
class ExperimentRecord:
    """An experiment as its directory records it.

    Attributes:
        dir: The directory, absolute.
        plans: The plans, with the state according to the journal.
        lines: The lines of the journal.
    """

    dir: Path
    plans: Plans
    lines: Sequence[JournalLine]

    @property
    def state(self) -> ExperimentState:
        """The state according to the journal."""
        return self.plans.state

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.plans.present

    @property
    def chains(self) -> Mapping[str, Chain]:
        """The chains by name, branches included."""
        return self.plans.chains

    def require_no_links(self) -> None:
        """Check that no link could redirect writes or removals in the directory.

        Raises:
            ClawbloxError: A directory of the experiment is a link.
            OSError: A directory cannot be read.
        """
        runs = {name: _run_names(self.state.chain(name)) for name in self.chains}
        require_no_links(self.dir, runs, self.plan.layout)

    def find_checkpoint(self, place: str, at: str | float | None = None) -> Checkpoint:
        """Return a checkpoint; see :meth:`AsyncExperiment.find_checkpoint`.

        Args:
            place: Chain and generation, such as ``r2/g003``; without a generation, the latest. It
                may end with ``@`` and the moment.
            at: The moment: seconds, text such as ``20m``, ``boundary``, ``end`` or ``last``; None
                means the moment in ``place``, else ``last``.

        Raises:
            ConfigError: No checkpoint matches; the error names the existing ones.
        """
        match = _PLACE.fullmatch(place)
        if match is None:
            raise mismatch("checkpoint", "a chain and a generation, such as r2/g003@20m", place)
        generation = _find_generation(self.state, match["chain"], match["generation"])
        moment = at if at is not None else match["at"] or "last"
        points = list(generation.checkpoints())
        chosen = _choose(points, moment)
        if chosen is None:
            moments = ", ".join(f"{point.second}s ({point.kind})" for point in points) or "none"
            raise ConfigError(
                f"there is no checkpoint at {moment} in generation {generation.number} of"
                f" {generation.chain}",
                key="checkpoint",
                value=place,
                hint=f"its checkpoints: {moments}",
            )
        return chosen

    def find_generation(self, place: str) -> GenerationState:
        """Return a generation that has started.

        Args:
            place: Chain and generation, such as ``r2/g003``; without a generation, the latest.

        Raises:
            ConfigError: No generation matches; the error names similar or existing ones.
        """
        match = _PLACE.fullmatch(place)
        if match is None or match["at"] is not None:
            raise mismatch(_GENERATION, "a chain and a generation, such as r2/g003", place)
        chain, number = match["chain"], match["generation"]
        if chain not in self.chains:
            raise _no_chain(chain, self.chains, _GENERATION, "the chains")
        begun = self.state.chain(chain).generations
        if not begun:
            hint = "clawblox experiment status shows why it waits"
            raise ConfigError("has not started", key=_GENERATION, value=chain, hint=hint)
        if number is None:
            return begun[max(begun)]
        if int(number) not in begun:
            raise _no_generation(chain, number, begun, _GENERATION)
        return begun[int(number)]

    def status(
        self, *, pid: int | None = None, live: Mapping[str, LiveChain] | None = None
    ) -> ExperimentStatus:
        """Return the status now.

        Args:
            pid: The process that runs the experiment, or None.
            live: Facts by chain that only this process knows, or None.
        """
        return make_status(self.dir, self.plans, now=utc_now(), pid=pid, live=live)

    def results(self, *, forked_from: CheckpointRef | Checkpoint | None = None) -> Results:
        """Return the results.

        Args:
            forked_from: Only the branches that started from this checkpoint; None for all chains.
        """
        source = forked_from.ref if isinstance(forked_from, Checkpoint) else forked_from
        return make_results(self.plans, forked_from=source)


def read_experiment(directory: str | os.PathLike[str]) -> ExperimentRecord:
    """Read an experiment from its directory. Blocks.

    Args:
        directory: The directory.

    Raises:
        UsageError: There is no experiment.
        ClawbloxError: Its journal or its plan cannot be read, or is invalid.
    """
    path = check_path(directory, "directory").absolute()
    try:
        return read_record(path, read_lines(path))
    except ClawbloxError:
        require_none_lost(path)  # more helpful than the journal's error
        raise


def read_record(directory: Path, lines: Sequence[JournalLine]) -> ExperimentRecord:
    """Return an experiment from its lines and its directory. Blocks.

    Args:
        directory: The directory, absolute.
        lines: The lines of the journal.

    Raises:
        ClawbloxError: A plan cannot be read, or a line contradicts it or the lines before.
    """
    state = fold_lines(directory, lines)
    plans = Plans(read_plans(directory, lines), state)
    _require_fitting(directory, lines, plans.chains)
    return ExperimentRecord(dir=directory, plans=plans, lines=lines)


def read_plans(directory: Path, lines: Sequence[JournalLine]) -> list[Plan]:
    """Return the plan of an experiment in each revision. Blocks.

    Raises:
        ClawbloxError: A plan is missing, invalid or a link.
    """
    if not lines:
        raise ClawbloxError(
            f"the experiment in {directory} was interrupted before it started",
            hint="remove the directory, and run the experiment again",
        )
    if lines[0].type != "experiment.begun":
        message = f"its type must be experiment.begun, not {lines[0].type}"
        raise invalid_line(directory, f"line 1 is not valid: {message}")
    types = ("experiment.begun", "plan.amended")
    paths = [directory / str(line.data["plan"]) for line in lines if line.type in types]
    require_no_link(*paths)
    return list(map(_read_plan, paths))


def _read_plan(path: Path) -> Plan:
    """Return a recorded plan; a plan without naming rules is from an earlier version."""
    plan = Plan.load(path)
    is_old = "naming" not in parse_toml(read_toml_text(path), path)
    return plan.but(naming=NAMINGS[0]) if is_old else plan


def _run_names(chain: ChainState) -> set[str]:
    """Return the names of the runs of a chain, including those of the public scripts."""
    imported = (generation.imported for generation in chain.generations.values())
    return {
        *(attempt.attempt_id for attempt in chain.attempts),
        *(str(data["run_id"]) for data in imported if data is not None),
    }


def _require_fitting(
    directory: Path, lines: Sequence[JournalLine], chains: Mapping[str, Chain]
) -> None:
    """Check that the lines match the chains of the plan and their numbers of agents.

    A plan whose chains had never worked may have been amended, and may then have other chains.
    """
    agents = {name: len(chain.plan.agents) for name, chain in chains.items()}
    mended = max((line.seq for line in lines if line.data.get("mends")), default=0)
    for line in lines:
        if line.seq < mended and line.type in WORK:
            message = f"its plan cannot be amended as in line {mended}"
            raise invalid_line(directory, f"line {line.seq} is not valid: {message}")
        if line.chain is None or line.seq < mended:
            continue
        if line.chain not in agents:
            message = f"line {line.seq} is not valid: the plan has no chain {line.chain}"
            raise invalid_line(directory, message)
        counts = (0, agents[line.chain])
        for member in _OF_AGENTS:
            if line.type != "imported" and len(line.data.get(member, ())) not in counts:
                message = f"{member} must have {counts[1]} members, as many as there are agents"
                raise invalid_line(directory, f"line {line.seq} is not valid: {message}")


# -- checkpoints and generations by description ---------------------------------------------------


def _no_chain(chain: str, known: Collection[str], argument: str, others: str) -> ConfigError:
    names = name_some([*known], _NAMED) or "none"
    hint = suggest_nearest(chain, known) or f"{others}: {names}"
    return ConfigError("there is no such chain", key=argument, value=chain, hint=hint)


def _no_generation(
    chain: str, number: str | None, begun: Collection[int], argument: str
) -> ConfigError:
    numbers = ", ".join(map(str, begun)) or "none"
    message, hint = f"{chain} has no such generation", f"its generations: {numbers}"
    return ConfigError(message, key=argument, value=number, hint=hint)


def _find_generation(state: ExperimentState, chain: str, number: str | None) -> GenerationState:
    known = state.chains.get(chain)
    if known is None:
        raise _no_chain(chain, state.chains, "checkpoint", "chains with checkpoints")
    if number is None:
        begun = [entry for entry in known.generations.values() if any(entry.checkpoints())]
        if begun:
            return begun[-1]
    elif int(number) in known.generations:
        return known.generations[int(number)]
    raise _no_generation(chain, number, known.generations, "checkpoint")


def _choose(points: list[Checkpoint], moment: str | float) -> Checkpoint | None:
    if moment == "last":
        return points[-1] if points else None
    if moment in _KINDS:
        return next((point for point in reversed(points) if point.kind == moment), None)
    active_s = check_duration(moment, "at", may_be_zero=True)
    before = [point for point in points if point.second <= active_s]
    return max(before, key=lambda point: (point.active_s, point.seq), default=None)
