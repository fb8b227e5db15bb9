"""Looks for every fault of an experiment before anything of it starts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from pathlib import Path

import attrs

from clawblox.agents.drivers import find_driver
from clawblox.concurrency.threads import run_blocking, run_checked
from clawblox.config.world_toml import read_world_config
from clawblox.errors import AgentError, ClawbloxError, ConfigError
from clawblox.experiment.inputs import Inputs, digest_inputs
from clawblox.experiment.live.attempt_agents import make_agent
from clawblox.experiment.live.credentials import Credentials
from clawblox.experiment.plan.parts import AgentSpec
from clawblox.experiment.plan.plan import Plan
from clawblox.system.files import available_bytes
from clawblox.system.trees import tree_size

_NOWHERE = Path("agents")
"""Directory of agents that are only checked; nothing is written there."""


@attrs.frozen(kw_only=True)
class Survey:
    """What an experiment will use, if it has no fault.

    Attributes:
        world: Digest of the files of its worlds.
        programs: Version of the program of each driver; None if it is not known.
        disk_bytes: Bytes that it needs, estimated from the templates of its agents.
        free_bytes: Bytes that are free.
        has_costs: Whether all its costs will be known.
    """

    world: str
    programs: Mapping[str, str | None]
    disk_bytes: int
    free_bytes: int
    has_costs: bool


async def survey_plan(
    plan: Plan,
    directory: Path,
    env: Mapping[str, str] | None = None,
    *,
    are_logins_checked: bool = True,
) -> Survey:
    """Check everything that an experiment needs; nothing is started or written.

    Args:
        plan: The plan.
        directory: The directory of the experiment, which need not exist.
        env: Values as for :class:`~clawblox.experiment.experiment.Experiment`; None means those of
            this process.
        are_logins_checked: Whether programs must be logged in.

    Raises:
        ConfigError: There are faults; the error names all of them.

    Cancellation: ends the programs of the checks.
    """
    credentials = Credentials(dict(os.environ if env is None else env))
    faults: list[ConfigError] = []
    programs: dict[str, str | None] = {}
    faults += await run_blocking(partial(lambda: list(_find_static_faults(plan, credentials))))
    async for spec, answer in _check_programs(plan, credentials):
        if isinstance(answer, AgentError):
            if are_logins_checked or answer.kind != "auth":
                faults.append(_as_fault(spec, answer))
        else:
            programs[spec.driver] = answer
            faults += _check_version(spec, answer)
    inputs: Inputs | None = None
    try:
        inputs = await run_checked(
            lambda check: digest_inputs(plan, experiment_dir=directory, check=check)
        )
    except ConfigError as error:
        if error.key not in {fault.key for fault in faults}:  # else its trouble is a fault already
            faults.append(error)
    if faults or inputs is None:
        raise _join(faults)
    return await run_blocking(_measure, plan, directory, inputs, programs)


def _find_static_faults(plan: Plan, credentials: Credentials) -> Iterator[ConfigError]:
    """Yield the faults that need no program. Blocks."""
    yield from _check_world(plan)
    for spec in _distinct_agents(plan):
        try:
            credentials.env(spec)
        except ConfigError as error:
            yield error
        yield from _check_driver(plan, spec)


def _check_world(plan: Plan) -> Iterator[ConfigError]:
    try:
        config = read_world_config(_find_world(plan.world.dir))
    except ClawbloxError as error:
        yield ConfigError(error.message, key="world.dir", hint=error.hint)
        return
    if plan.seeds and not config.takes_reseed:
        yield ConfigError(
            "must be left out: the world takes no seed, so they would change nothing",
            key="seeds",
            value=list(plan.seeds),
            hint="repeats = N makes N chains; [run] reseed = true in the world.toml of a world"
            " that reads its seed",
        )


def _find_world(given: Path | str) -> Path:
    if not isinstance(given, str):
        return given
    from clawblox.config.download import fetch_world  # here, since few worlds need it

    return fetch_world(given)


def _check_driver(plan: Plan, spec: AgentSpec) -> Iterator[ConfigError]:
    driver = find_driver(spec.driver)
    if plan.retry.source == "checkpoint" and not driver.archives_conversation:
        yield ConfigError(
            "cannot be continued from a checkpoint, which has no conversations of this driver",
            key=f"agents.{spec.name}.driver",
            value=spec.driver,
            hint='retry.from = "template" begins an interrupted generation from its beginning',
        )
    is_priced = driver.reports_cost or (spec.model or "") in plan.prices
    if plan.limits.dollars is not None and not is_priced:
        yield ConfigError(
            "has no cost: its program reports none, so limits.dollars would have no effect",
            key=f"agents.{spec.name}.model",
            value=spec.model,
            hint='add [prices."MODEL"], dollars per million tokens, or leave out limits.dollars',
        )


def _distinct_agents(plan: Plan) -> list[AgentSpec]:
    """Return the agents of all chains, without those that differ in nothing but their model."""
    agents: dict[AgentSpec, AgentSpec] = {}
    for chain in plan.chains():
        for spec in chain.plan.agents:
            agents.setdefault(spec.but(template=None, system_prompt=None, budget=None), spec)
    return list(agents.values())


async def _check_programs(
    plan: Plan, credentials: Credentials
) -> AsyncIterator[tuple[AgentSpec, str | AgentError | None]]:
    """Yield the version of each agent's program, or why it cannot work."""
    for spec in _distinct_agents(plan):
        try:
            yield spec, await _check_program(spec, credentials)
        except AgentError as error:
            yield spec, error
        except ConfigError:
            continue  # a variable without a value, which is a fault already


async def _check_program(spec: AgentSpec, credentials: Credentials) -> str | None:
    agent = make_agent(spec, str(spec.name), _NOWHERE)
    return await agent.check(env=credentials.env(spec))


def _check_version(spec: AgentSpec, version: str | None) -> Iterator[ConfigError]:
    if spec.version is not None and version != spec.version:
        yield ConfigError(
            f"must be {version}, the installed version, not {spec.version!r}",
            key=f"agents.{spec.name}.version",
            hint="install that version, or leave out the pin",
        )


def _as_fault(spec: AgentSpec, error: AgentError) -> ConfigError:
    return ConfigError(error.message, key=f"agents.{spec.name}", hint=error.hint)


def _join(faults: list[ConfigError]) -> ConfigError:
    """Return one error with all faults."""
    first = faults[0]
    texts = dict.fromkeys(f"{fault.subject}: {fault.message}" for fault in faults)
    _, *others = texts  # agents of several chains may have the same faults
    return ConfigError(
        first.message,
        key=first.key,
        value=first.value,
        path=first.path,
        hint=first.hint,
        others=[*first.others, *others],
    )


# -- what it takes ------------------------------------------------------------------------------


def _measure(
    plan: Plan, directory: Path, inputs: Inputs, programs: Mapping[str, str | None]
) -> Survey:
    """Return what the experiment will use. Blocks."""
    digest = hashlib.sha256(repr(sorted(inputs.world.items())).encode())
    place = next(path for path in (directory, *directory.parents) if path.is_dir())
    return Survey(
        world=digest.hexdigest()[:12],
        programs=programs,
        disk_bytes=_estimate_disk(plan),
        free_bytes=available_bytes(place),
        has_costs=all(
            find_driver(spec.driver).reports_cost or (spec.model or "") in plan.prices
            for chain in plan.chains()
            for spec in chain.plan.agents
        ),
    )


def _estimate_disk(plan: Plan) -> int:
    """Return the size of all copies of the templates: workspaces, and archives of them."""
    chains = plan.chains()
    templates = {agent.template for chain in chains for agent in chain.plan.agents}
    sizes = {template: _measure_template(template) for template in templates}
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


def _measure_template(template: Path | None) -> int:
    return 0 if template is None else tree_size(template.resolve())
