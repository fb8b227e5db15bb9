"""Checks an experiment for faults before it starts."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from clawblox.agents.drivers import find_driver
from clawblox.concurrency.threads import run_blocking, run_checked
from clawblox.errors import AgentError, ConfigError
from clawblox.experiment.inputs import InputDigests, digest_inputs
from clawblox.experiment.live.attempt_agents import make_agent
from clawblox.experiment.live.credentials import Credentials
from clawblox.experiment.live.plan_faults import (
    catch_fault,
    find_agent_faults,
    find_hook_faults,
    find_money_faults,
    find_port_faults,
    find_world_faults,
    find_world_notes,
    place_program,
)
from clawblox.experiment.plan.parts import AgentSpec
from clawblox.experiment.plan.plan import Chain, Plan
from clawblox.experiment.plan.plan_file import join_faults
from clawblox.experiment.plan.save_times import find_long_saves
from clawblox.experiment.plan.values import below
from clawblox.experiment.schedule.score_functions import load_score
from clawblox.system.amounts import format_bytes
from clawblox.system.files import available_bytes
from clawblox.system.trees import tree_size

Stage: TypeAlias = Literal["new", "recorded", "worked"]
"""Stage of an experiment: not created, created, or with agents that have worked."""

CheckProgram: TypeAlias = Callable[[Chain, AgentSpec], Awaitable[str | None]]
"""Returns the version of an agent's program; see :func:`check_program_here`."""

_NOWHERE = Path("agents")
"""Directory of agents that are only checked; no file is written there."""


@attrs.frozen(kw_only=True)
class Survey:
    """The resources that an experiment without faults will use.

    Attributes:
        world: Digest of the files of its worlds.
        programs: Version of the program of each driver; None if unknown.
        disk_bytes: Disk space it needs in bytes, estimated from the templates of its agents.
        free_bytes: Free disk space in bytes.
        has_costs: Whether all its costs will be known.
        notes: Settings that are valid but may not be intended.
        missing_env: Names of the agents' variables that have no values.
        rooms: Number of attempts for which each node of a cluster has resources, by node name.
    """

    world: str
    programs: Mapping[str, str | None]
    disk_bytes: int
    free_bytes: int
    has_costs: bool
    notes: Sequence[str] = ()
    missing_env: tuple[str, ...] = ()
    rooms: Mapping[str, int] = attrs.field(factory=dict)


async def survey_plan(
    plan: Plan,
    directory: Path,
    env: Mapping[str, str] | None = None,
    *,
    stage: Stage = "new",
    are_variables_needed: bool = True,
    check_program: CheckProgram | None = None,
) -> Survey:
    """Check the requirements of an experiment; start and write nothing.

    Args:
        plan: The plan.
        directory: The directory of the experiment, which need not exist.
        env: Values as for :class:`clawblox.AsyncExperiment`; None means those of this process.
        stage: Stage of the experiment. Once it is created, too little space causes a pause instead
            of an error, and the save phase may be longer than the generation. Once agents have
            worked, expired logins and too little money cause pauses.
        are_variables_needed: Whether the variables of agents must have values. If not, the programs
            of agents without values need not be logged in.
        check_program: Returns the version of an agent's program where it will run, or raises an
            error; None checks this machine.

    Raises:
        ConfigError: There are faults; the error names each.

    Cancellation: ends the programs of the checks.
    """
    credentials = Credentials(os.environ if env is None else env)
    needed = credentials if are_variables_needed and takes_driver_keys(plan) else None
    faults = await run_blocking(lambda: [*_find_static_faults(plan, directory, needed, stage)])
    programs: dict[str, str | None] = {}
    check = check_program or partial(check_program_here, credentials)
    for chain, spec in _distinct_agents(plan.chains()):
        key = f"agents.{spec.name}"
        try:
            programs[spec.driver] = await check(chain, spec)
            faults += _check_version(spec, programs[spec.driver])
        except AgentError as error:
            is_login_needed = stage != "worked" and not credentials.missing(spec)
            if is_login_needed or error.kind != "auth":
                faults.append(ConfigError(error.message, key=key, hint=error.hint))
        except ConfigError as error:
            faults.append(below(error, key))
    inputs: InputDigests | None = None
    try:
        inputs = await run_checked(
            lambda check: digest_inputs(plan, experiment_dir=directory, check=check)
        )
    except ConfigError as error:
        if error.key not in {fault.key for fault in faults}:  # else already reported
            faults.append(error)
    if faults and takes_driver_keys(plan) and not needed:  # a run needs the variables
        for _, spec in _distinct_agents(plan.chains()):
            faults += catch_fault(partial(credentials.env, spec))
    if faults or inputs is None:
        raise join_faults(faults)
    survey = await run_blocking(_measure, plan, directory, inputs, programs)
    specs = [spec for _, spec in _distinct_agents(plan.chains())]
    at_driver = specs if takes_driver_keys(plan) else ()
    names = [name for spec in at_driver for name in credentials.missing(spec)]
    return attrs.evolve(survey, missing_env=tuple(dict.fromkeys(names)))


def takes_driver_keys(plan: Plan) -> bool:
    """Return whether agents get variables of this process, not those of a node."""
    return plan.cluster is None or plan.cluster.keys == "driver"


def _find_static_faults(
    plan: Plan, directory: Path, credentials: Credentials | None, stage: Stage
) -> Iterator[ConfigError]:
    """Yield the faults that need no program. Blocks."""
    chains = plan.chains()
    yield from find_world_faults(plan, chains)
    if plan.score is not None:
        yield from catch_fault(partial(load_score, plan.score))
    yield from find_hook_faults(plan)
    for chain, spec in _distinct_agents(chains):
        if credentials is not None:
            yield from catch_fault(partial(credentials.env, spec))
        yield from find_agent_faults(chain.plan, spec)
    if plan.tmux is not None and shutil.which("tmux") is None:
        yield ConfigError("must be left out: tmux is not installed", key="tmux", value=plan.tmux)
    if stage != "worked":  # successful attempts prove the rest
        yield from find_port_faults(plan, chains)
        yield from find_money_faults(plan, chains)
    if stage == "new":
        yield from find_long_saves(plan)
        yield from _find_disk_faults(plan, directory)


def _find_disk_faults(plan: Plan, directory: Path) -> Iterator[ConfigError]:
    least, free = plan.limits.min_free, _free_bytes(directory)
    if least is not None and free < least:
        yield ConfigError(
            f"must be at most {format_bytes(free)}, the free space, not {format_bytes(least)}",
            key="limits.min_free",
            hint="free some space, or choose a directory on another disk",
        )


def _free_bytes(directory: Path) -> int:
    return available_bytes(next(p for p in (directory, *directory.parents) if p.is_dir()))


def _distinct_agents(chains: Iterable[Chain]) -> list[tuple[Chain, AgentSpec]]:
    """Return the distinct agents of all chains, each with one of its chains."""
    agents: dict[object, tuple[Chain, AgentSpec]] = {}
    for chain in chains:
        for spec in chain.plan.agents:
            template = spec.template if spec.command else None  # its program may be there
            alike = spec.but(template=template, system_prompt=None, budget=None)
            agents.setdefault((alike, chain.plan.save, chain.plan.world.dir), (chain, spec))
    return list(agents.values())


async def check_program_here(credentials: Credentials, chain: Chain, spec: AgentSpec) -> str | None:
    """Return the version of an agent's program on this machine, or None if unknown.

    Args:
        credentials: The variables of agents.
        chain: A chain of the agent.
        spec: The agent.

    Raises:
        AgentError: The agent cannot work, for example without a login.
        ConfigError: It cannot be run.

    Cancellation: ends the program.
    """
    placed = await run_blocking(place_program, spec, chain.plan.world.dir)
    agent = make_agent(placed, str(spec.name), _NOWHERE)
    save = chain.plan.save
    prompts = (spec.prompt, "" if save is None else save.prompt)
    return await agent.check(env=credentials.given(spec), prompt=max(prompts, key=len))


def _check_version(spec: AgentSpec, version: str | None) -> Iterator[ConfigError]:
    if spec.version is not None and version != spec.version:
        yield ConfigError(
            f"must be {version}, the installed version, not {spec.version!r}",
            key=f"agents.{spec.name}.version",
            hint="install that version, or leave out the pin",
        )


# -- what it takes ------------------------------------------------------------------------------


def _measure(
    plan: Plan, directory: Path, inputs: InputDigests, programs: Mapping[str, str | None]
) -> Survey:
    """Return the resources that the experiment will use. Blocks."""
    digest = hashlib.sha256(repr(sorted(inputs.world.items())).encode())
    worlds = dict.fromkeys(chain.plan.world for chain in plan.chains())
    return Survey(
        notes=[note for spec in worlds for note in find_world_notes(spec)],
        world=digest.hexdigest()[:12],
        programs=programs,
        disk_bytes=_estimate_disk(plan),
        free_bytes=_free_bytes(directory),
        has_costs=all(
            find_driver(spec.driver).reports_cost or (spec.model or "") in plan.prices
            for chain in plan.chains()
            for spec in chain.plan.agents
        ),
    )


def _estimate_disk(plan: Plan) -> int:
    """Return the size of all copies of the templates: workspaces and their archives."""
    chains = plan.chains()
    templates = {agent.template for chain in chains for agent in chain.plan.agents}
    sizes = {path: 0 if path is None else tree_size(path.resolve()) for path in templates}
    return sum(
        chain.plan.generations * (1 + _count_archives(chain.plan)) * sizes[agent.template]
        for chain in chains
        for agent in chain.plan.agents
    )


def _count_archives(plan: Plan) -> int:
    """Return how many archives of a generation are kept."""
    policy = plan.checkpoint
    periodic = 0.0 if policy.every is None else plan.duration // policy.every
    kept = periodic if policy.keep is None else min(periodic, policy.keep)
    return int(kept) + policy.boundary + policy.end
