"""The parts of a plan. Pure; values are checked on construction, and no file is read.

All durations are seconds as float; constructors also accept text: ``"90s"``, ``"30m"``, ``"1.5h"``,
``"2d"``. Relative paths are resolved against the current directory; the program of a command may
also be in the workspace of its agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

import attrs

from clawblox import protocol
from clawblox.agents.options import (
    DEFAULT_RESTART_WINDOW_S,
    DRIVER_NAMES,
    OPTIONAL_WORD,
    CommonAgentOptions,
    check_word,
)
from clawblox.agents.prompts import check_prompt
from clawblox.agents.usage import Budget
from clawblox.config.arguments import (
    COUNT,
    HINT,
    LEFT_OUT,
    OPTIONAL_AMOUNT,
    OPTIONAL_COUNT,
    check_choice,
    check_count,
    check_duration,
    check_env,
    check_kind,
    check_known,
    check_path,
    check_port,
    check_size,
    checked,
    is_world_url,
    mismatch,
)
from clawblox.config.options import CommonOptions
from clawblox.errors import ConfigError
from clawblox.experiment.plan.programs import find_program, map_program
from clawblox.experiment.plan.values import (
    AMENDMENT,
    DURATION,
    FLAG,
    FREE,
    KEY,
    OPTIONAL_DURATION,
    PART,
    build,
    check_display_name,
    check_names,
    check_not_negative,
    freeze,
    inherit_fields,
    join_keys,
    to_duration,
    to_frozen,
    to_number,
    to_optional,
    to_optional_duration,
)

DEFAULT_SAVE_PROMPT: Final = (
    "You will be reset in 5 minutes. Update your workspace memory files now."
)
USUAL_SAVING_S: Final = 300.0
"""Default seconds for saving."""
MAX_SAVING_SHARE: Final = 0.25
"""Maximum share of a generation that the default takes."""
DEFAULT_PROMPT: Final = "Begin"

AgentsEnded: TypeAlias = Literal["all", "any", "never"]
"""The agents that must have ended by themselves for a generation to end."""
RetrySource: TypeAlias = Literal["checkpoint", "template"]
"""The point where a failed generation continues: its last checkpoint, or its start."""
OnChainFailure: TypeAlias = Literal["keep_others", "stop_all"]
"""The effect of a failed chain on the other chains."""

_CONDITION_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,37}")

_PROMPT: Final = checked(check_prompt)
_ANY_SECONDS: Final = checked(check_duration, may_be_zero=True)
_NO_LIMIT: Final = {HINT: LEFT_OUT}
_OWN_PROGRAM: Final = 'your own program needs driver = "command", and the program in command'


def _seconds_or_none(default: float | None, **metadata: str) -> Any:  # noqa: ANN401 - as attrs.field
    return attrs.field(
        default=default,
        converter=to_optional_duration,
        validator=OPTIONAL_DURATION,
        metadata=metadata,
    )


def _to_budget(value: Budget | Mapping[str, Any] | None) -> Budget | None:
    return None if to_optional(value) is None else build(Budget, value, "budget")


def _to_template(value: str | Path | None) -> Path | None:
    path = to_optional(value)
    return None if path is None else check_path(path, "template").absolute()


def _to_system_prompt(value: str | Path | None) -> Path | None:
    path = to_optional(value)
    return None if path is None else check_path(path, "system_prompt").absolute()


def _to_command(
    value: Mapping[str, Any] | Sequence[str] | None,
) -> Mapping[str, Any] | Sequence[str] | None:
    command = map_program(to_optional(value), partial(find_program, Path()))
    return freeze(command)  # type: ignore[no-any-return]


def _check_command(value: object, key: str) -> None:
    if not isinstance(value, Mapping | tuple):
        raise mismatch(key, "a table or a list of words", value)


@attrs.frozen(
    field_transformer=inherit_fields(
        binary=FREE, max_restarts=AMENDMENT, stall_timeout=AMENDMENT, request_rate=AMENDMENT
    )
)
class AgentSpec(CommonAgentOptions):
    """An agent in every world of an experiment.

    Attributes:
        driver: Driver of its program: ``claude``, ``codex``, ``kimi``, ``opencode``, ``acp`` or
            ``command``.
        name: Display name, unique in the plan. The plan replaces None by ``Eko``, ``Moa``, … by
            position.
        template: Directory with the files of its workspace in the first generation; None means an
            empty workspace.
        system_prompt: File with its system prompt; None means ``system_prompt.md`` of the world, or
            else the default of the package.
        prompt: Its first message.
        env: Names of the environment variables that it gets. The values come from the process that
            runs the experiment, and are never written to disk.
        version: Required version of the program; None accepts any.
        budget: Limits of usage per generation; None sets no limit.
        command: The command of the drivers ``command`` and ``acp``; None for other drivers. A
            program with a slash is relative to the directory of the plan if it exists there, else
            to the workspace.

    Raises:
        ConfigError: A value is invalid; the error names the field and the value.
    """

    driver: str = attrs.field(
        validator=checked(check_known, names=DRIVER_NAMES), metadata={HINT: _OWN_PROGRAM}
    )
    name: str | None = attrs.field(
        default=None,
        kw_only=True,
        converter=to_optional,
        validator=checked(check_display_name, optional=True),
    )
    template: Path | None = attrs.field(default=None, kw_only=True, converter=_to_template)
    system_prompt: Path | None = attrs.field(
        default=None, kw_only=True, converter=_to_system_prompt
    )
    prompt: str = attrs.field(default=DEFAULT_PROMPT, kw_only=True, validator=_PROMPT)
    env: Sequence[str] = attrs.field(
        default=(),
        kw_only=True,
        converter=freeze,
        validator=checked(check_names),
        metadata=FREE,
    )
    version: str | None = attrs.field(
        default=None,
        kw_only=True,
        converter=to_optional,
        validator=OPTIONAL_WORD,
        metadata=AMENDMENT,
    )
    budget: Budget | None = attrs.field(
        default=None, kw_only=True, converter=_to_budget, metadata={PART: Budget} | AMENDMENT
    )
    command: Mapping[str, Any] | Sequence[str] | None = attrs.field(
        default=None,
        kw_only=True,
        converter=_to_command,
        validator=checked(_check_command, optional=True),
    )

    def but(self, **changes: Any) -> Self:
        """Return the agent with new values for some fields.

        Raises:
            ConfigError: A value is invalid.
        """
        return attrs.evolve(self, **changes)


_NOT_IN_PLANS: Final = {
    "agent": "the key of its driver is 'driver'",
    "dir": "the experiment gives each agent a directory in each of its runs",
    "tmux": "the key 'tmux' of the plan names the sessions of worlds and agents",
    "restart_window": f"'max_restarts' counts within {DEFAULT_RESTART_WINDOW_S:g} s in all plans",
}
"""Options of agents that plans refuse, with the reasons."""


def build_agent(given: object, key: str) -> AgentSpec:
    """Return an agent of a plan, built from its plain form if necessary.

    Raises:
        ConfigError: As for ``values.build``; the error explains refused options.
    """
    for name in given if isinstance(given, Mapping) else ():
        if name in _NOT_IN_PLANS:
            problem = "must be left out of plans"
            raise ConfigError(problem, key=join_keys(key, name), hint=_NOT_IN_PLANS[name])
    return build(AgentSpec, given, key)


def _to_world_dir(value: str | Path) -> Path | str:
    if isinstance(value, str) and is_world_url(value):
        return value
    return check_path(value, "dir").absolute()


def _to_port(value: int | None) -> int | None:
    return check_port(to_optional(value))


def _to_world_env(value: Mapping[str, str] | None) -> Mapping[str, str]:
    env = check_env(value)
    for name in env:
        if protocol.SECRET_NAME.search(name):
            raise ConfigError(
                "must be left out, as its name looks like a secret, and plans are written to disk",
                key=f"env.{name}",
                hint="set the variable where the experiment is run",
            )
    return to_frozen(env)  # type: ignore[no-any-return]


@attrs.frozen(field_transformer=inherit_fields(host=FREE, health_timeout=FREE))
class WorldSpec(CommonOptions):
    """The world of an experiment.

    Attributes:
        dir: Directory of the world, or the address of a folder on GitHub.
        record: Whether the world records.
        env: Additional environment variables, which must not be secret: the plan records them.
        port: Port of the world; None leases a free port for each world.
        port_wait: Seconds to wait until a given port becomes free; 0 does not wait.

    Raises:
        ConfigError: A value is invalid; the error names the field and the value.
    """

    dir: Path | str = attrs.field(converter=_to_world_dir)
    record: bool = attrs.field(default=True, kw_only=True, validator=FLAG)
    env: Mapping[str, str] = attrs.field(factory=dict, kw_only=True, converter=_to_world_env)
    port: int | None = attrs.field(default=None, kw_only=True, converter=_to_port, metadata=FREE)
    port_wait: float = attrs.field(
        default=0.0,
        kw_only=True,
        converter=to_duration,
        validator=_ANY_SECONDS,
        metadata=FREE,
    )

    @property
    def dir_name(self) -> str:
        """The last component of its directory or address."""
        return Path(self.dir).name


@attrs.frozen(kw_only=True)
class Save:
    """The message before the end of a generation that asks agents to save their memory.

    Attributes:
        prompt: The message.
        before: Seconds before the end of the generation at which the message is sent; None means
            300, but at most a quarter of the duration.
        budget: Limits of usage for the answer; None sets no limit.
        full: Whether to wait for the whole time even if all agents are done.

    Raises:
        ConfigError: A value is invalid; the error names the field and the value.
    """

    prompt: str = attrs.field(default=DEFAULT_SAVE_PROMPT, validator=_PROMPT)
    before: float | None = _seconds_or_none(None)
    budget: Budget | None = attrs.field(default=None, converter=_to_budget, metadata={PART: Budget})
    full: bool = attrs.field(default=False, validator=FLAG)


@attrs.frozen(kw_only=True)
class Checkpoints:
    """The times of checkpoints of a world and its agents.

    Attributes:
        every: Seconds between periodic checkpoints; None makes none.
        keep: Number of periodic checkpoints to keep per generation; None keeps all.
        idle_quiet: Seconds without a request of an agent that count as idle.
        idle_wait: Seconds to wait for an idle moment before a checkpoint is made during a turn.
        boundary: Whether to make a checkpoint before the save prompt.
        end: Whether to make a checkpoint at the end of each generation.
        required: Whether a chain is paused after three failed checkpoints in a row.

    Raises:
        ConfigError: A value is invalid; the error names the field and the value.
    """

    every: float | None = _seconds_or_none(900.0, hint="False turns off periodic checkpoints")
    keep: int | None = attrs.field(
        default=3,
        converter=to_optional,
        validator=OPTIONAL_COUNT,
        metadata={HINT: "False keeps all"},
    )
    idle_quiet: float = attrs.field(default=5.0, converter=to_duration, validator=_ANY_SECONDS)
    idle_wait: float = attrs.field(default=60.0, converter=to_duration, validator=_ANY_SECONDS)
    boundary: bool = attrs.field(default=True, validator=FLAG)
    end: bool = attrs.field(default=True, validator=FLAG)
    required: bool = attrs.field(default=True, validator=FLAG)


@attrs.frozen(kw_only=True)
class Inherit:
    """The parts of a generation that the next one inherits.

    Attributes:
        workspace: Whether agents keep their workspaces.
        world: Whether the world continues from its last checkpoint instead of starting fresh.

    Raises:
        ConfigError: A value is invalid; the error names the field and the value.
    """

    workspace: bool = attrs.field(default=True, validator=FLAG)
    world: bool = attrs.field(default=False, validator=FLAG)


@attrs.frozen(kw_only=True)
class Stop:
    """The conditions that end a generation besides its duration and its agents' budgets.

    Attributes:
        world_time: Seconds of simulated time; None sets no limit.
        agents_ended: Whether the generation ends when ``all`` agents have ended, or ``any``, or
            ``never``.

    Raises:
        ConfigError: A value is invalid; the error names the field and the value.
    """

    world_time: float | None = _seconds_or_none(None, **_NO_LIMIT)
    agents_ended: AgentsEnded = attrs.field(
        default="all", validator=checked(check_choice, choices=("all", "any", "never"))
    )


def _to_size(value: int | str | None) -> int | None:
    size = to_optional(value)
    try:
        return None if size is None else check_size(size, "min_free")
    except ConfigError as error:
        raise error.but(hint="False sets no limit") from None


def _check_per_model(value: object, key: str) -> None:
    check_kind(value, key, kind=Mapping, expected="a mapping of models to numbers of agents")
    for model, count in value.items():  # type: ignore[attr-defined]
        check_word(model, key)
        check_count(count, f"{key}.{model}")


@attrs.frozen(kw_only=True)
class Limits:
    """Limits of the whole experiment.

    Attributes:
        worlds: Number of concurrent worlds.
        agents: Number of concurrent agents; None sets no limit.
        dollars: Cost of all agents; None sets no limit.
        wall: Total seconds of all runs of the experiment; None sets no limit.
        min_free: Bytes that must remain free on disk, also as text (``"5GB"``); None sets no limit.
        per_model: Number of agents at a time, by model.

    Raises:
        ConfigError: A value is invalid; the error names the field and the value.
    """

    worlds: int = attrs.field(default=4, validator=COUNT)
    agents: int | None = attrs.field(
        default=None, converter=to_optional, validator=OPTIONAL_COUNT, metadata=_NO_LIMIT
    )
    dollars: float | None = attrs.field(
        default=None, converter=to_number, validator=OPTIONAL_AMOUNT, metadata=_NO_LIMIT
    )
    wall: float | None = _seconds_or_none(None, **_NO_LIMIT)
    min_free: int | None = attrs.field(default=10**9, converter=_to_size)
    per_model: Mapping[str, int] = attrs.field(
        factory=dict, converter=to_frozen, validator=checked(_check_per_model)
    )


@attrs.frozen(kw_only=True)
class Retry:
    """The reactions to failures and pauses.

    Attributes:
        attempts: Number of retries of a generation without progress before its chain fails.
        delay: Seconds before a retry.
        source: The start of a retry: ``checkpoint`` or ``template``; ``from`` in TOML.
        on_failure: Whether the other chains continue when a chain fails (``keep_others``) or are
            stopped (``stop_all``).
        pause_after: Seconds of uninterrupted waiting for the model's provider after which a chain
            is paused.
        longest_pause: Seconds after which a pause ends the run, to be resumed later.

    Raises:
        ConfigError: A value is invalid; the error names the field and the value.
    """

    attempts: int = attrs.field(default=3, validator=checked(check_count, at_least=0))
    delay: float = attrs.field(default=15.0, converter=to_duration, validator=_ANY_SECONDS)
    source: RetrySource = attrs.field(
        default="checkpoint",
        validator=checked(check_choice, choices=("checkpoint", "template")),
        metadata={KEY: "from"},
    )
    on_failure: OnChainFailure = attrs.field(
        default="keep_others",
        validator=checked(check_choice, choices=("keep_others", "stop_all")),
    )
    pause_after: float = attrs.field(default=120.0, converter=to_duration, validator=_ANY_SECONDS)
    longest_pause: float = attrs.field(default=43200.0, converter=to_duration, validator=DURATION)


_A_PRICE: Final = "dollars per million tokens, 0 or more"
_PRICE: Final = checked(check_not_negative, expected=_A_PRICE)
_OPTIONAL_PRICE: Final = checked(check_not_negative, expected=_A_PRICE, optional=True)


@attrs.frozen(kw_only=True)
class Price:
    """The price of a model, in dollars per million tokens.

    Attributes:
        input: Price of input tokens.
        output: Price of output tokens.
        cached: Price of cached input tokens; None means the same as ``input``.
        cache_write: Price of input tokens written to the cache; None means the same as ``input``.

    Raises:
        ConfigError: A value is invalid; the error names the field and the value.
    """

    input: float = attrs.field(converter=to_number, validator=_PRICE)
    output: float = attrs.field(converter=to_number, validator=_PRICE)
    cached: float | None = attrs.field(default=None, converter=to_number, validator=_OPTIONAL_PRICE)
    cache_write: float | None = attrs.field(
        default=None, converter=to_number, validator=_OPTIONAL_PRICE
    )


def _check_condition_name(value: object, key: str) -> None:
    if not isinstance(value, str) or not _CONDITION_NAME.fullmatch(value):
        expected = "1 to 38 letters, digits, '_', '.' or '-', the first a letter or digit"
        raise mismatch(key, expected, value)


@attrs.frozen
class Condition:
    """A condition that is not part of the sweep.

    Attributes:
        name: Its name, unique in the plan; the names of its chains start with it.
        set: Values by dotted path, such as ``{"agents.*.model": "…"}``.

    Raises:
        ConfigError: A value is invalid; the error names the field and the value.
    """

    name: str = attrs.field(validator=checked(_check_condition_name))
    set: Mapping[str, Any] = attrs.field(
        factory=dict,
        converter=to_frozen,
        validator=checked(check_kind, kind=Mapping, expected="a mapping of dotted paths to values"),
    )
