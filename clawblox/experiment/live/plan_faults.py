"""Finds faults of a plan without running a program. All functions block.

The checks use the same code that would refuse the start.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.agents.drivers import find_driver
from clawblox.agents.options import IN_WORKSPACE
from clawblox.checkpoint.collect.workspace import list_workspace
from clawblox.config.options import StartOptions
from clawblox.config.world_toml import WorldConfig, read_world_config
from clawblox.errors import ClawbloxError, ConfigError
from clawblox.experiment.live.prompts import read_template
from clawblox.experiment.live.workspaces import WORLD_COPY, read_server
from clawblox.experiment.notices.delivery import check_program
from clawblox.experiment.plan.parts import AgentSpec, WorldSpec
from clawblox.experiment.plan.plan import Chain, Plan
from clawblox.experiment.plan.programs import HOOKS, map_program
from clawblox.instance.environment import fill_command
from clawblox.instance.launch import plan_launch
from clawblox.protocol import RECORD_ENV
from clawblox.system.regular_files import read_regular
from clawblox.world.sources import find_world_dir, is_source
from clawblox.world_keys import CONFIG_NAME

_RECORDING: Final = (RECORD_ENV.encode(), b"clawblox.server", b"clawblox.engine")
"""Names of which at least one occurs in the source of a world that can record itself."""
_MAX_FILES: Final = 1000
_MAX_SOURCE_BYTES: Final = 1 << 20


def world_options(spec: WorldSpec) -> dict[str, Any]:
    """Return the start options for the world of a plan."""
    names = attrs.fields_dict(WorldSpec).keys() - {"dir"}
    return {name: getattr(spec, name) for name in names}


# -- worlds ---------------------------------------------------------------------------------------


def find_world_faults(plan: Plan, chains: Iterable[Chain]) -> Iterator[ConfigError]:
    """Yield the errors that prevent the worlds of a plan from starting."""
    specs: dict[WorldSpec, set[AgentSpec]] = {}
    for chain in chains:
        specs.setdefault(chain.plan.world, set()).update(chain.plan.agents)
    for spec, agents in specs.items():
        try:
            config = read_world_config(find_world_dir(spec.dir))
        except ClawbloxError as error:
            as_plan = ConfigError(error.message, key="world.dir", value=spec.dir, hint=error.hint)
            yield error if isinstance(error, ConfigError) and error.key else as_plan
            continue
        if plan.seeds and not config.takes_reseed:
            yield ConfigError(
                "must be left out: the world takes no seed, so seeds would have no effect",
                key="seeds",
                value=list(plan.seeds),
                hint="set repeats = N for N chains; if the world reads its seed, set reseed = true"
                " under [run] in its world.toml",
            )
        yield from catch_fault(partial(_plan_start, config, spec), "world")
        if plan.cluster is None:  # otherwise the nodes' programs are used
            yield from _find_command_faults(spec, config)
        yield from _find_file_faults(config, agents)


def _plan_start(config: WorldConfig, spec: WorldSpec) -> None:
    plan_launch(config, StartOptions(**world_options(spec)))


def catch_fault(check: Callable[[], object], parent: str = "") -> Iterator[ConfigError]:
    """Yield the error of a check.

    Args:
        check: The check. It may block.
        parent: Key of the plan to put before the error's key, unless the error names another file.
    """
    try:
        check()
    except ConfigError as error:
        if parent and error.path is None and error.key is not None:
            error = error.but(key=f"{parent}.{error.key}")
        yield error


def _find_command_faults(spec: WorldSpec, config: WorldConfig) -> Iterator[ConfigError]:
    search = spec.env.get("PATH") or f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    commands = {f"run.sidecar.{car.name}": [*car.command] for car in config.sidecars}
    if config.run_command is not None:
        commands["run.command"] = config.run_command
    for key, command in commands.items():
        program = fill_command(command)[0]
        path = str(config.dir / program) if os.sep in program else program
        if shutil.which(path, path=search) is None:
            yield ConfigError(
                f"must begin with a program that can be executed, not {program!r}",
                path=config.dir / CONFIG_NAME,
                key=key,
                hint="a path is relative to the directory of the world",
            )


def _find_file_faults(config: WorldConfig, agents: Iterable[AgentSpec]) -> Iterator[ConfigError]:
    """Yield the faults of the world's files that its agents get."""
    root = config.config.get("sandbox", {}).get("deps_root")
    is_shown = root is not None and any(agent.sandbox for agent in agents)
    if is_shown and not (config.dir / root).is_dir():
        yield ConfigError(
            f"must be an existing directory, not {root!r}",
            path=config.dir / CONFIG_NAME,
            key="sandbox.deps_root",
        )
    if config.server_source is not None:
        yield from catch_fault(partial(read_server, config.server_source), "world")
    prompts = {agent.system_prompt: f"agents.{agent.name}" for agent in agents}
    for file, key in prompts.items():
        if file is None or file.is_file():  # other faults belong to the plan's inputs
            yield from catch_fault(partial(read_template, file, config.dir), key)


def find_hook_faults(plan: Plan) -> Iterator[ConfigError]:
    """Yield the errors that prevent hook commands from running. Blocks."""
    for hook in HOOKS:
        target = getattr(plan, hook)
        if target is not None and not isinstance(target, str):
            yield from catch_fault(partial(check_program, target[0], hook))


def find_world_notes(spec: WorldSpec) -> Iterator[str]:
    """Yield notes about features that a world seems to lack, judging by its files."""
    config = read_world_config(find_world_dir(spec.dir))
    if spec.record and not _mentions_recording(config):
        yield (
            f"world.record is true, but nothing in {spec.dir_name} shows that it can record itself:"
            ' [run] recorder = "clawblox" in its world.toml lets clawblox record what agents do'
        )


def _mentions_recording(config: WorldConfig) -> bool:
    """Return whether a world may record itself, judging by its configuration and source."""
    if config.is_engine_world or "recorder" in config.run:
        return True
    command = " ".join(config.run_command or ()).encode()
    contents = itertools.chain([command], _read_sources(config.dir))
    return any(mark in content for content in contents for mark in _RECORDING)


def _read_sources(root: Path) -> Iterator[bytes]:
    """Yield the contents of the first files of a world, skipping files that are too large."""
    listing = list_workspace(
        root,
        "",
        is_name=lambda _name: True,
        judge=lambda path, _is_dir: None if is_source(path) else "no source",
    )
    for path in listing.files[:_MAX_FILES]:
        with suppress(OSError):
            yield read_regular(root / path, max_bytes=_MAX_SOURCE_BYTES)


# -- agents ---------------------------------------------------------------------------------------


def find_agent_faults(plan: Plan, spec: AgentSpec) -> Iterator[ConfigError]:
    """Yield the errors that prevent an agent from running to the end of a generation.

    Args:
        plan: The plan of its chain.
        spec: The agent.
    """
    driver, key = find_driver(spec.driver), f"agents.{spec.name}"
    if plan.retry.source == "checkpoint" and not driver.archives_conversation:
        yield ConfigError(
            "cannot be continued from a checkpoint: checkpoints lack this driver's conversations",
            key=f"{key}.driver",
            value=spec.driver,
            hint='retry.from = "template" restarts an interrupted generation',
        )
    is_priced = driver.reports_cost or (spec.model or "") in plan.prices
    if plan.limits.dollars is not None and not is_priced:
        yield ConfigError(
            "has no known cost, as its program reports none: limits.dollars would have no effect",
            key=f"{key}.model",
            value=spec.model,
            hint='add [prices."MODEL"] in dollars per million tokens, or leave out limits.dollars',
        )
    try:
        can_continue = driver.can_continue(spec.command)
    except ConfigError:  # the check of the program reports it
        return
    if not can_continue and plan.save is not None:
        yield _require_resume(key, "the save prompt", "save = false sends none")
    if not can_continue and spec.auto_continue:
        yield _require_resume(key, "auto_continue", f"set {key}.auto_continue to false")


def _require_resume(key: str, what: str, hint: str) -> ConfigError:
    message = f"must be given, with session: {what} continues the conversation"
    return ConfigError(message, key=f"{key}.command.resume", hint=hint)


def place_program(spec: AgentSpec, world: Path | str) -> AgentSpec:
    """Return an agent with its program in the workspace replaced by the file to be copied.

    Args:
        spec: The agent.
        world: The directory of its world, or an address.
    """

    def place(program: str) -> str:
        name = program.removeprefix(IN_WORKSPACE)
        if name == program:
            return program
        paths = [] if spec.template is None else [spec.template / name]
        if isinstance(world, Path) and name.startswith(f"{WORLD_COPY}/"):
            paths.append(world / name.removeprefix(f"{WORLD_COPY}/"))
        return next((str(path) for path in paths if path.is_file()), program)

    return spec.but(command=map_program(spec.command, place))


# -- limits ---------------------------------------------------------------------------------------


def find_port_faults(plan: Plan, chains: Iterable[Chain]) -> Iterator[ConfigError]:
    """Yield errors for ports that worlds would occupy for longer than other worlds wait."""
    plans = [chain.plan for chain in chains if chain.plan.world.port is not None]
    ports = Counter(one.world.port for one in plans if one.world.port_wait <= one.duration)
    for port, count in ports.items():
        if min(count, plan.limits.worlds) > 1:
            yield ConfigError(
                "must be left out if several worlds run at the same time",
                key="world.port",
                value=port,
                hint="each world gets a free port; with limits.worlds = 1 they take turns",
            )


def find_money_faults(plan: Plan, chains: Iterable[Chain]) -> Iterator[ConfigError]:
    """Yield an error if the budgets of some world's agents reach the spending limit."""
    limit = plan.limits.dollars
    budgets = (
        sum((agent.budget and agent.budget.usd) or 0.0 for agent in chain.plan.agents)
        for chain in chains
    )
    if limit is not None and (most := max(budgets, default=0.0)) >= limit:
        yield ConfigError(
            f"must be more than ${most:g}, the total budget of the agents of a world",
            key="limits.dollars",
            value=limit,
            hint="a generation starts only if the remaining money covers its budgets",
        )
