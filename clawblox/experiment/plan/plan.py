"""The plan of an experiment, and its chains."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

import attrs

from clawblox.agents.options import OPTIONAL_WORD, check_word
from clawblox.agents.programs.program import PROGRAMS
from clawblox.config.arguments import (
    check_choice,
    check_count,
    check_kind,
    check_labels,
    check_path,
    checked,
    mismatch,
)
from clawblox.config.toml_text import parse_toml, read_toml_text
from clawblox.errors import ConfigError
from clawblox.experiment.plan.cluster import Cluster, require_fit
from clawblox.experiment.plan.naming import (
    NAMINGS,
    OPTIONAL_NAME,
    chain_name,
    display_name,
    safe_name,
    to_name,
)
from clawblox.experiment.plan.parts import (
    MAX_SAVING_SHARE,
    USUAL_SAVING_S,
    AgentSpec,
    Checkpoints,
    Condition,
    Inherit,
    Limits,
    Price,
    Retry,
    Save,
    Stop,
    WorldSpec,
    build_agent,
)
from clawblox.experiment.plan.plan_file import (
    build_all,
    format_tables,
    resolve_paths,
    shorten_paths,
)
from clawblox.experiment.plan.programs import HookTarget, check_hook_target, to_hook_target
from clawblox.experiment.plan.sweep import (
    MAX_CHAINS,
    Variant,
    expand,
    normalise_conditions,
    normalise_sweep,
)
from clawblox.experiment.plan.values import (
    AMENDMENT,
    DURATION,
    FLAG,
    FREE,
    OF_CHAINS,
    PART,
    FrozenMapping,
    build,
    check_function,
    fields_by_key,
    freeze,
    to_duration,
    to_frozen,
    to_function,
    to_labels,
    to_optional,
    to_plain,
    to_seeds,
    to_tuple,
)
from clawblox.results import Labels

Order: TypeAlias = Literal["breadth", "depth"]
"""Whether all chains advance together, or each chain is finished before the next starts."""
Layout: TypeAlias = Literal["chains", "flat"]
"""Whether each chain has its own directory, or the only chain uses the experiment's directory."""

_MAX_AGENT_NAME_CHARS: Final = 128
_LONGEST_RUN_SUFFIX: Final = "-g001-r20260101T000000Z-w0-a00"

_HOOK: Final = checked(check_hook_target, optional=True)


def _to_world(value: WorldSpec | Mapping[str, Any] | str | Path) -> WorldSpec:
    given = {"dir": value} if isinstance(value, str | Path) else value
    return build(WorldSpec, given, "world")


def _to_agents(value: Iterable[AgentSpec | Mapping[str, Any]]) -> tuple[AgentSpec, ...]:
    given = to_tuple(value, "agents", "a list of agents")
    agents = [build_agent(agent, f"agents.{index}") for index, agent in enumerate(given)]
    return tuple(
        agent if agent.name is not None else agent.but(name=display_name(index))
        for index, agent in enumerate(agents)
    )


def _to_conditions(value: Iterable[Condition | Mapping[str, Any]]) -> tuple[Condition, ...]:
    given = to_tuple(value, "conditions", "a list of conditions")
    return tuple(build(Condition, item, f"conditions.{i}") for i, item in enumerate(given))


def _to_prices(value: Mapping[str, Price | Mapping[str, Any]] | None) -> Mapping[str, Price]:
    prices: Mapping[Any, Any] = value or {}
    check_kind(prices, "prices", kind=Mapping, expected="a mapping of models to prices")
    for model in prices:
        check_word(model, "prices")
    built = {model: build(Price, price, f"prices.{model}") for model, price in prices.items()}
    return FrozenMapping(built)


def _to_save(value: Save | Mapping[str, Any] | None) -> Save | None:
    if to_optional(value) is None:
        return None
    if not isinstance(value, Save | Mapping):
        hint = "leave it out for the default message; False sends none"
        raise mismatch("save", 'a table such as {"prompt": "…"}, or False', value, hint=hint)
    return build(Save, value, "save")


def _to_cluster(value: Cluster | Mapping[str, Any] | None) -> Cluster | None:
    return None if to_optional(value) is None else build(Cluster, value, "cluster")


def _to_checkpoint(value: Checkpoints | Mapping[str, Any]) -> Checkpoints:
    return build(Checkpoints, value, "checkpoint")


def _to_inherit(value: Inherit | Mapping[str, Any]) -> Inherit:
    return build(Inherit, value, "inherit")


def _to_stop(value: Stop | Mapping[str, Any]) -> Stop:
    return build(Stop, value, "stop")


def _to_limits(value: Limits | Mapping[str, Any]) -> Limits:
    return build(Limits, value, "limits")


def _to_retry(value: Retry | Mapping[str, Any]) -> Retry:
    return build(Retry, value, "retry")


@attrs.frozen
class Plan:
    """An experiment: one world with some agents, in a number of chains of generations.

    A chain is one condition with one repeat or seed. Its generations run in sequence; each is a run
    of the world with all agents, limited by ``duration``. Parts can also be given as mappings:
    ``Plan("worlds/panda", [agent], limits={"worlds": 6})``.

    Attributes:
        world: The world: its directory, or a :class:`WorldSpec`.
        agents: The agents of each world.
        name: Name of the experiment and of its directory; None means the name of the world's
            directory. Characters that are unsafe in names of files are replaced by ``_``.
        generations: Number of generations per chain.
        duration: Active seconds of a generation, including the time for saving.
        repeats: Number of chains per condition.
        seeds: Seeds of the worlds, instead of ``repeats``: one chain for each.
        labels: Texts, numbers or booleans by name that describe the experiment.
        save: The message that asks agents to save their memory; None sends none.
        checkpoint: When checkpoints are made.
        inherit: The parts that a generation inherits from the previous one.
        stop: The conditions that end a generation early.
        limits: Limits of the whole experiment.
        retry: The reactions to failures and pauses.
        score: Function that scores each generation at its end, such as ``scores:points`` for
            ``points`` in ``scores.py``; None for none.
        sweep: Lists of values by dotted path, such as ``agents.*.model``; all combinations are
            conditions.
        conditions: Further conditions, by name. Without a sweep, these are all conditions.
        on_pause: Command or address to notify when the experiment or a chain is paused for any
            reason except a request; None for none.
        on_failure: Command or address to notify when a chain fails, and when the experiment ends
            with failures; None for none.
        on_done: Command or address to notify when all generations are committed; None for none.
        order: Whether all chains advance together (``breadth``), or each is finished before the
            next starts (``depth``).
        prices: Prices of models, for programs that do not report their cost.
        layout: ``chains``, or ``flat`` for a single chain in the directory of the experiment.
        run_prefix: Prefix of the names of runs, before the name of the chain; None means the name
            of the experiment.
        cluster: The cluster whose nodes run the attempts; None runs them on this machine.
        tmux: Prefix of the names of tmux sessions for worlds and agents; None opens no sessions.
        prune: Whether reproducible files are removed from the directories of agents when their
            generation is committed: versions of programs, and virtual environments.
        naming: Rules for the names of chains. An experiment keeps its original rules.

    Raises:
        ConfigError: A value is invalid; the error names the field and the value.
    """

    world: WorldSpec = attrs.field(converter=_to_world, metadata={PART: WorldSpec} | OF_CHAINS)
    agents: Sequence[AgentSpec] = attrs.field(
        converter=_to_agents, metadata={PART: AgentSpec} | OF_CHAINS
    )
    name: str = attrs.field(default=None, kw_only=True, converter=to_name, validator=OPTIONAL_NAME)
    generations: int = attrs.field(default=1, kw_only=True, validator=checked(check_count))
    duration: float = attrs.field(
        default=3600.0,
        kw_only=True,
        converter=to_duration,
        validator=DURATION,
        metadata=AMENDMENT | OF_CHAINS,
    )
    repeats: int = attrs.field(
        default=1, kw_only=True, validator=checked(check_count, at_most=MAX_CHAINS), metadata=FREE
    )
    seeds: Sequence[int] = attrs.field(default=(), kw_only=True, converter=to_seeds, metadata=FREE)
    labels: Labels = attrs.field(factory=dict, kw_only=True, converter=to_labels, metadata=FREE)
    save: Save | None = attrs.field(
        factory=Save,
        kw_only=True,
        converter=_to_save,
        metadata={PART: Save} | AMENDMENT | OF_CHAINS,
    )
    checkpoint: Checkpoints = attrs.field(
        factory=Checkpoints, kw_only=True, converter=_to_checkpoint, metadata=FREE | OF_CHAINS
    )
    inherit: Inherit = attrs.field(
        factory=Inherit, kw_only=True, converter=_to_inherit, metadata=OF_CHAINS
    )
    stop: Stop = attrs.field(
        factory=Stop, kw_only=True, converter=_to_stop, metadata=AMENDMENT | OF_CHAINS
    )
    limits: Limits = attrs.field(factory=Limits, kw_only=True, converter=_to_limits, metadata=FREE)
    retry: Retry = attrs.field(factory=Retry, kw_only=True, converter=_to_retry, metadata=FREE)
    score: str | None = attrs.field(
        default=None,
        kw_only=True,
        converter=to_function,
        validator=checked(check_function, optional=True),
        metadata=FREE,
    )
    sweep: Mapping[str, Sequence[Any]] = attrs.field(
        factory=dict,
        kw_only=True,
        converter=to_frozen,
        validator=checked(
            check_kind, kind=Mapping, expected="a mapping of dotted paths to lists of values"
        ),
        metadata=FREE,
    )
    conditions: Sequence[Condition] = attrs.field(
        default=(), kw_only=True, converter=_to_conditions, metadata=FREE
    )
    on_pause: HookTarget | None = attrs.field(
        default=None, kw_only=True, converter=to_hook_target, validator=_HOOK, metadata=FREE
    )
    on_failure: HookTarget | None = attrs.field(
        default=None, kw_only=True, converter=to_hook_target, validator=_HOOK, metadata=FREE
    )
    on_done: HookTarget | None = attrs.field(
        default=None, kw_only=True, converter=to_hook_target, validator=_HOOK, metadata=FREE
    )
    order: Order = attrs.field(
        default="breadth",
        kw_only=True,
        validator=checked(check_choice, choices=("breadth", "depth")),
        metadata=FREE,
    )
    prices: Mapping[str, Price] = attrs.field(
        factory=dict, kw_only=True, converter=_to_prices, metadata=FREE
    )
    layout: Layout = attrs.field(
        default="chains", kw_only=True, validator=checked(check_choice, choices=("chains", "flat"))
    )
    run_prefix: str | None = attrs.field(
        default=None, kw_only=True, converter=to_name, validator=OPTIONAL_NAME
    )
    cluster: Cluster | None = attrs.field(
        default=None, kw_only=True, converter=_to_cluster, metadata={PART: Cluster} | FREE
    )
    tmux: str | None = attrs.field(
        default=None,
        kw_only=True,
        converter=to_optional,
        validator=OPTIONAL_WORD,
        metadata=FREE,
    )
    prune: bool = attrs.field(default=True, kw_only=True, validator=FLAG, metadata=FREE)
    naming: int = attrs.field(
        default=NAMINGS[-1], kw_only=True, validator=checked(check_choice, choices=NAMINGS)
    )

    def __attrs_post_init__(self) -> None:
        if not self.name:
            self._replace("name", safe_name(self.world.dir_name).lstrip(".-") or "experiment")
        self._check_agents()
        self._check_limits()
        if self.seeds and self.repeats != 1:
            raise ConfigError("must be left out with seeds", key="repeats", value=self.repeats)
        if self.inherit.world and not self.checkpoint.end:
            problem = "must be true if worlds are inherited"
            hint = "leave out checkpoint.end, or set inherit.world to false"
            raise ConfigError(problem, key="checkpoint.end", value=False, hint=hint)
        if self.cluster is not None:
            require_fit(self.tmux, self.world.port, self.world.host)
        if self.sweep or self.conditions:
            plain = self._unconditional()
            self._replace("sweep", normalise_sweep(plain, self.sweep))
            self._replace("conditions", normalise_conditions(plain, self.conditions))
        self._check_chains()

    def _replace(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_agents(self) -> None:
        if not self.agents:
            raise ConfigError("must be a list of at least one agent", key="agents")
        names = [agent.name for agent in self.agents]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise mismatch(f"agents.{index}.name", "a name that no other agent has", name)

    def _check_limits(self) -> None:
        """Check that the agents of a world may run at the same time, or no world could start."""
        limits, least = self.limits, "must be at least {}, the number in a world"
        if limits.agents is not None and limits.agents < len(self.agents):
            text = least.format(len(self.agents))
            raise ConfigError(text, key="limits.agents", value=limits.agents)
        if self.sweep or self.conditions:
            return  # each variant is checked
        models = Counter(agent.model or agent.driver for agent in self.agents)
        for model, limit in limits.per_model.items():
            if limit < models[model]:
                text = least.format(models[model])
                raise ConfigError(text, key=f"limits.per_model.{model}", value=limit)

    def _check_chains(self) -> None:
        variants = self._variants()
        count = len(variants) * max(self.repeats, len(self.seeds))
        if count > MAX_CHAINS:
            raise ConfigError(f"must be at most {MAX_CHAINS} chains, not {count}", key="repeats")
        if self.layout == "flat" and count > 1:
            expected = f"chains for an experiment of {count} chains"
            raise mismatch("layout", expected, self.layout)
        for variant in variants:
            check_labels({**self.labels, **variant.labels})
        self._check_lengths(variants)

    def _check_lengths(self, variants: Sequence[Variant]) -> None:
        """Check the lengths of the full names of agents, because they contain the names of runs."""
        suffix = f"s{max(self.seeds)}" if self.seeds else f"r{self.repeats}"
        chain = max(
            (chain_name(variant.base, suffix, self.naming) for variant in variants), key=len
        )
        flat = self.run_prefix or self.name
        prefix = flat if self.layout == "flat" else f"{flat}-{chain}"
        agent = max((str(agent.name) for agent in self.agents), key=len)
        length = len(f"{agent}-r{prefix}{_LONGEST_RUN_SUFFIX}")
        if length > _MAX_AGENT_NAME_CHARS:
            excess = length - _MAX_AGENT_NAME_CHARS
            raise ConfigError(
                f"must be shorter by {excess} characters, as names of agents contain it",
                key="run_prefix" if self.run_prefix else "name",
                value=flat,
                hint=f"the longest names are those of the agent {agent} and the chain {chain}",
            )

    @property
    def saving_s(self) -> float:
        """Seconds before the end of a generation when the save prompt is sent; 0 for none."""
        if self.save is None:
            return 0.0
        usual_s = min(USUAL_SAVING_S, MAX_SAVING_SHARE * self.duration)
        return usual_s if self.save.before is None else self.save.before

    def but(self, **changes: Any) -> Self:
        """Return the plan with new values for some fields.

        Raises:
            ConfigError: A value is invalid.
        """
        return attrs.evolve(self, **changes)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a plan from a TOML file. Blocks.

        Args:
            path: The file; relative paths in it are resolved against its directory.

        Raises:
            ConfigError: The file cannot be read, or is not TOML, or has unknown keys or invalid
                values; the error names all faults with their lines.
        """
        file = check_path(path, "path").absolute()
        try:
            text = read_toml_text(file)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ConfigError("the file does not exist", path=file) from error
        return cls._parse(text, file.parent, file)

    @classmethod
    def loads(cls, text: str, *, base: str | os.PathLike[str] = ".") -> Self:
        """Return the plan of a TOML document.

        Args:
            text: The document.
            base: Directory against which relative paths are resolved.

        Raises:
            ConfigError: The text is not TOML, or has unknown keys or invalid values.
        """
        return cls._parse(text, check_path(base, "base").absolute(), None)

    @classmethod
    def _parse(cls, text: str, base: Path, file: Path | None) -> Self:
        given = resolve_paths(parse_toml(text, file), base)
        return build_all(given, partial(build, cls, key=""), text, file, fields_by_key(cls))

    def dumps(self, *, base: str | os.PathLike[str] | None = None) -> str:
        """Return the plan as a TOML document with every value; ``loads`` is the inverse.

        Args:
            base: Directory of the document; paths below it are written relative to it. None writes
                absolute paths.
        """
        tables = to_plain(self)
        if base is not None:
            tables = shorten_paths(tables, check_path(base, "base").absolute())
        return format_tables(tables)

    def chains(self) -> tuple[Chain, ...]:
        """Return the chains: the first repeat or seed of each condition, then the second, etc.

        Names are stable: appending values to a sweep, conditions, repeats or seeds does not rename
        chains.
        """
        variants = self._variants()
        rounds: list[tuple[int, int | None, str]] = [
            (number, seed, f"s{seed}") for number, seed in enumerate(self.seeds, 1)
        ] or [(number, None, f"r{number}") for number in range(1, self.repeats + 1)]
        return tuple(
            Chain(
                name=chain_name(variant.base, suffix, self.naming),
                index=index * len(variants) + position,
                repeat=repeat,
                seed=seed,
                condition=variant.condition,
                labels=freeze({**self.labels, **variant.labels}),
                plan=variant.plan,
            )
            for index, (repeat, seed, suffix) in enumerate(rounds)
            for position, variant in enumerate(variants)
        )

    def _variants(self) -> list[Variant]:
        return expand(self._unconditional(), self.sweep, self.conditions)

    def _unconditional(self) -> Self:
        is_plain = not self.sweep and not self.conditions
        return self if is_plain else attrs.evolve(self, sweep={}, conditions=(), layout="chains")


@attrs.frozen(kw_only=True)
class Chain:
    """A sequence of generations: one condition of a plan, and one repeat or seed.

    Attributes:
        name: Its name, unique in the experiment, valid as the name of a directory.
        index: Its position in the plan, from 0.
        repeat: Number of the repeat or seed within the condition, from 1.
        seed: Seed of its worlds; None if the plan has no seeds.
        condition: The values of its condition by dotted path, in plain form.
        labels: The labels of the plan, and the values of its condition by short keys.
        plan: The plan with the values of the condition, and without further conditions.
    """

    name: str
    index: int
    repeat: int
    seed: int | None
    condition: Mapping[str, Any]
    labels: Labels
    plan: Plan

    @property
    def archives_conversations(self) -> bool:
        """True if archives contain the conversations of all its agents."""
        programs = [PROGRAMS.get(agent.driver) for agent in self.plan.agents]
        return all(program is not None and program.is_archived for program in programs)
