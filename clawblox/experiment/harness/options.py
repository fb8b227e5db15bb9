"""The options of the public generation script, and the plan and login derived from them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.agents.drivers import DRIVERS
from clawblox.concurrency.threads import run_blocking
from clawblox.config.arguments import mismatch
from clawblox.errors import ConfigError
from clawblox.experiment import layout
from clawblox.experiment.harness.replacing import set_experiment_aside
from clawblox.experiment.harness.script_files import (
    ImportedChain,
    RecordedOptions,
    find_resume_point,
    read_chain,
    read_options,
)
from clawblox.experiment.history.journal import read_lines
from clawblox.experiment.live.survey import survey_plan
from clawblox.experiment.plan import AgentSpec, Limits, Plan, WorldSpec
from clawblox.experiment.plan.dotted import apply_settings
from clawblox.experiment.plan.naming import safe_name
from clawblox.experiment.reading.record import read_experiment
from clawblox.rundir.experiments import JOURNAL_NAME
from clawblox.system.regular_files import read_regular

RESULTS_DIR: Final = "results"
"""Directory of experiments, relative to the world's directory."""

BACKENDS: Final = tuple(name for name in DRIVERS if name not in ("acp", "command"))
"""The drivers that need no further description of their program."""

_USUAL_TEMPLATE: Final = Path("agent/template/agent")

_SCRIPT_MODELS: Final = {"claude": "claude-opus-4-8", "codex": "gpt-5.5"}
"""Default models of the public script, by driver."""

_PATHS: Final = {
    "backend": "agents.*.driver",
    "model": "agents.*.model",
    "permission_mode": "agents.*.permission_mode",
    "sandbox": "agents.*.sandbox",
    "claude_native_sandbox": "agents.*.claude_native_sandbox",
    "bare": "agents.*.bare",
    "goal": "agents.*.prompt",
    "template": "agents.*.template",
    "system_prompt": "agents.*.system_prompt",
    "generations": "generations",
    "generation_duration": "duration",
    "record": "world.record",
    "base_port": "world.port",
    "health_timeout": "world.health_timeout",
    "port_wait": "world.port_wait",
    "save_time": "save.before",
    "save_prompt": "save.prompt",
    "full_save_phase": "save.full",
    "checkpoint_every": "checkpoint.every",
    "retries": "retry.attempts",
    "retry_delay": "retry.delay",
    "tmux_prefix": "tmux",
    "prune_reconstructable_artifacts": "prune",
}
"""Fields of the plan by the names of the options that set them."""
_OFF_AT_ZERO: Final = {"save_time": "save", "checkpoint_every": "checkpoint.every"}
"""Options for which 0 turns a feature off, with the field."""

FILE_VARIABLE: Final = "CLAWBLOX_ENV_FILE"
"""The variable that names the file with the login."""

_TOKEN: Final = "CLAUDE_CODE_OAUTH_TOKEN"  # noqa: S105 - a name, not a token
_USUAL_FILE: Final = Path(".env")
_MAX_LOGIN_BYTES: Final = 1 << 16
_QUOTES: Final = "'\""


@attrs.frozen(kw_only=True)
class GenerationOptions:
    """The options of ``clawblox generations``.

    Attributes:
        values: The values by the names of the options.
        given: Names of the options that the command line or the environment sets.
    """

    values: Mapping[str, Any]
    given: Collection[str]

    @property
    def name(self) -> str:
        """Name of the experiment, and of its directory."""
        return safe_name(self.values["experiment_id"])

    @property
    def directory(self) -> Path:
        """Directory of the experiment.

        Raises:
            ConfigError: The world does not exist.
        """
        return self.world_dir / RESULTS_DIR / self.name

    @property
    def is_new(self) -> bool:
        """True if the experiment is new."""
        return self.archive is None and not self.values["resume"]

    @property
    def archive(self) -> Path | None:
        """The archive from which a generation continues, or None."""
        archive = self.values["resume_from"]
        return None if archive is None else Path(archive)

    @property
    def accepted(self) -> set[str]:
        """The accepted amendments of a recorded plan: the fields of all given options."""
        fields = {path.partition(".")[0] for name, path in _PATHS.items() if name in self.given}
        return {*self.values["accept"], *(fields & {"duration", "save"})}

    @property
    def agents(self) -> int:
        """Number of agents in each world."""
        return int(self.values["agents_per_world"])

    @property
    def world_dir(self) -> Path:
        """Directory of the world.

        Raises:
            ConfigError: The directory does not exist.
        """
        path = Path(self.values["world_dir"])
        if not path.is_dir():
            hint = "give the directory that holds the world.toml"
            raise mismatch("--world-dir", "an existing directory", str(path), hint=hint)
        return path.absolute()

    @property
    def chains(self) -> int:
        """Number of chains, which run at the same time."""
        return int(self.values["parallel"])

    def choose_plan(self) -> Plan:
        """Return the plan with which the experiment starts or continues. Blocks.

        Raises:
            ConfigError: The value of an option is wrong.
            ClawbloxError: There is nothing to continue.
        """
        if self.is_new:
            return self.new_plan()
        directory = self.directory
        if _has_run_here(directory):
            return self.changed_plan(read_experiment(directory).plan)
        if self.chains > 1:
            hint = "leave out --parallel; the public script continues a single chain"
            raise ConfigError("must be 1 to continue a single chain", key="--parallel", hint=hint)
        archive, imported = self.archive, None
        point = None if archive is None else find_resume_point(archive, agents=self.agents)
        has_table = layout.table_path(directory).exists()
        if point is None or (has_table and point.generation > 1):
            imported = read_chain(directory, agents=self.agents)
        return self.new_plan(imported, read_options(directory, imported, archive))

    def new_plan(
        self, imported: ImportedChain | None = None, recorded: RecordedOptions | None = None
    ) -> Plan:
        """Return the plan of a new experiment.

        Args:
            imported: Generations that the public script has completed in the directory, or None.
            recorded: The options of those generations; None for a new experiment.

        Raises:
            ConfigError: A value is invalid; the error names the option.
        """
        values = dict(self.values) if recorded is None else self._recorded_values(recorded)
        prefix = values["run_prefix"] or (imported.run_prefix if imported else self.name)
        try:
            plan = Plan(
                WorldSpec(self.world_dir),
                [AgentSpec(values["backend"])] * self.agents,
                name=self.name,
                layout="flat" if self.chains == 1 else "chains",
                repeats=self.chains,
                run_prefix=prefix,
                limits=Limits(worlds=max(self.chains, Limits().worlds)),
            )
        except ConfigError as error:
            options = {"name": "experiment_id", "run_prefix": "run_prefix", "repeats": "parallel"}
            raise _in_options(error, options) from error
        if _USUAL_TEMPLATE.is_dir():
            values["template"] = values["template"] or _USUAL_TEMPLATE
        if "save_time" not in self.given:
            values["save_time"] = None  # shorter for short generations
        if imported is not None:
            values["tmux_prefix"] = imported.tmux_prefix or values["tmux_prefix"]
        if self.chains > 1:
            values["base_port"] = None  # each world needs its own port
        return self._apply(plan, values)

    def _recorded_values(self, recorded: RecordedOptions) -> dict[str, Any]:
        """Return the values of the options; recorded values replace options that are not given."""
        driver = recorded.driver if recorded.driver in BACKENDS else self.values["backend"]
        known = {
            "backend": driver,
            "model": _SCRIPT_MODELS.get(driver) if recorded.model is None else recorded.model,
            "generation_duration": recorded.duration_s,
        }
        defaults = {name: value for name, value in known.items() if value is not None}
        given = {name: self.values[name] for name in known if name in self.given}
        return {**self.values, **defaults, **given}

    def changed_plan(self, recorded: Plan) -> Plan:
        """Return the recorded plan of an experiment with the given options.

        Raises:
            ConfigError: A value is invalid, or changes a field that must not change.
        """
        before = recorded.run_prefix or recorded.name
        prefix = safe_name(self.values["run_prefix"] or before)
        fixed = {
            "agents_per_world": (len(recorded.agents), self.agents),
            "parallel": (recorded.repeats, self.chains),
            "run_prefix": (before, prefix),
        }
        for name, (old, new) in fixed.items():
            if name in self.given and old != new:
                message = f"must be {old} as before, not {new}"
                raise ConfigError(message, key=f"--{name.replace('_', '-')}")
        given = {name: value for name, value in self.values.items() if name in self.given}
        return self._apply(recorded, given)

    def _apply(self, plan: Plan, values: Mapping[str, Any]) -> Plan:
        options = dict(_settings(values))
        try:
            return apply_settings(plan, {path: value for path, (_, value) in options.items()})
        except ConfigError as error:
            raise _in_options(error, {path: name for path, (name, _) in options.items()}) from error


def _settings(values: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Yield the path of each field to set, with the option and the value."""
    is_saving = values.get("save_time") != 0
    for name, path in _PATHS.items():
        value = values.get(name)
        if value in (None, "") or (path.startswith("save.") and not is_saving):
            continue
        yield path, (name, value)
    for name, path in _OFF_AT_ZERO.items():
        if values.get(name) == 0:
            yield path, (name, False)


def _in_options(error: ConfigError, names: Mapping[str, str]) -> ConfigError:
    """Return an error about plan fields, naming the options that set them."""
    error = error.but(others=tuple(_in_options(other, names) for other in error.others))
    name = names.get(error.key or "")
    if name is None:
        return error
    return error.but(key=f"--{name.replace('_', '-')}")


async def make_room(options: GenerationOptions) -> Path | None:
    """Check everything that a new experiment needs, and rename an existing directory with --force.

    If something is missing, nothing is changed.

    Args:
        options: The options.

    Returns:
        The new path of the existing directory, or None.

    Raises:
        ConfigError: The value of an option is wrong, or something is missing.
        RunLockedError: Another process runs the existing experiment.
        ClawbloxError: The existing directory cannot be renamed.

    Cancellation: ends the programs of the checks; the directory is either renamed or unchanged.
    """

    def prepare() -> tuple[Path, Plan, Mapping[str, str] | None]:
        plan = options.new_plan()
        return options.directory, plan, find_env(plan)

    directory, plan, env = await run_blocking(prepare)
    try:
        await survey_plan(plan, directory, env)
    except ConfigError as error:
        raise _in_options(error, {path: name for name, path in _PATHS.items()}) from error
    return await set_experiment_aside(directory) if options.values["force"] else None


def find_env(plan: Plan) -> Mapping[str, str] | None:
    """Return the variables of agents if the login is in a file; None means the environment.

    Blocks.

    Raises:
        ConfigError: The file cannot be read.
    """
    login = read_login(os.environ) if any(spec.driver == "claude" for spec in plan.agents) else {}
    names = {name for spec in plan.agents for name in spec.env if name in os.environ}
    return {**{name: os.environ[name] for name in names}, **login} if login else None


def _has_run_here(directory: Path) -> bool:
    """Return whether this package, not only the public script, has run the experiment."""
    if not (directory / JOURNAL_NAME).exists():
        return False
    return any(line.type == "session.begun" for line in read_lines(directory))


# -- the login of Claude Code in a file -----------------------------------------------------------


def read_login(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the token of Claude Code if a file, but not the environment, contains it. Blocks.

    The first line ``CLAUDE_CODE_OAUTH_TOKEN=…`` counts, with or without ``export`` and quotes;
    other lines are ignored. The value stays in memory and is passed to agents only, never to
    worlds.

    Args:
        environ: The environment; its ``CLAWBLOX_ENV_FILE`` names the file, by default ``.env`` in
            the current directory, which need not exist.

    Returns:
        The variable and its value, or an empty dict.

    Raises:
        ConfigError: The file cannot be read. The error does not show its content.
    """
    if environ.get(_TOKEN):
        return {}
    named = environ.get(FILE_VARIABLE)
    path = Path(named) if named else _USUAL_FILE
    if not named and not path.is_file():
        return {}
    values = (_find_token(line) for line in _read_login_file(path).splitlines())
    token = next((value for value in values if value is not None), None)
    return {_TOKEN: token} if token else {}


def _read_login_file(path: Path) -> str:
    hint = f"{FILE_VARIABLE} names the file with {_TOKEN}=…, by default {_USUAL_FILE}"
    try:
        return read_regular(os.path.realpath(path), max_bytes=_MAX_LOGIN_BYTES).decode()
    except UnicodeDecodeError:
        fault = "is not UTF-8"
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    raise ConfigError(fault, path=path, hint=hint)


def _find_token(line: str) -> str | None:
    name, equals, value = line.strip().removeprefix("export ").lstrip().partition("=")
    return value.strip().strip(_QUOTES) if equals and name == _TOKEN else None
