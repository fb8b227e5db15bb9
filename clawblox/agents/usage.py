"""The total usage of an agent, and its budget.

Programs count in different ways: per turn, per process, or per conversation including its resumes.
The ledger combines these readings into one total that never decreases. A driver states the scope of
each reading; costs come from the program's reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

import attrs
import msgspec

from clawblox.agents.layout import AgentDir, read_agent_file
from clawblox.agents.values import TOKEN_KINDS, Usage, UsageScope
from clawblox.config.arguments import HINT, LEFT_OUT, check_amount, check_count, checked
from clawblox.errors import AgentError
from clawblox.foreign_values import finite_number, whole_number
from clawblox.system.record_file import RecordFormat, publish_record

_HINT: Final = "restore the file from an archive, or remove it to count from zero"


@attrs.frozen
class _ConversationUsage:
    """Counters of one conversation.

    Attributes:
        version: Version of the program that gave the last reading.
        last_tokens: The last token reading that covered the whole conversation.
        last_cost: The last cost reading that covered the whole conversation; None if unknown.
        counted: Everything counted for the conversation.
        files: Tokens of each kind already counted from each of its files, by the name of the file.
    """

    version: str | None = None
    last_tokens: Usage | None = None
    last_cost: float | None = None
    counted: Usage = attrs.field(factory=Usage)
    files: dict[str, tuple[int, ...]] = attrs.field(factory=dict)


@attrs.frozen
class _Process:
    """The last readings of the current process that covered the whole process."""

    tokens: Usage = attrs.field(factory=Usage)
    cost_usd: float = 0.0


def _is_plausible(value: object) -> bool:
    match value:
        case dict():
            return all(map(_is_plausible, value.values()))
        case list() | tuple():
            return all(map(_is_plausible, value))
        case int() | float():
            return finite_number(value) is not None
    return True


@attrs.define(eq=False)
class Ledger:
    """Counts the usage of an agent, over all its processes and conversations.

    The agent's owner reports the starts of processes, the readings, and the ends of turns, all in
    one task. The attributes are the content of ``usage.json``.

    Attributes:
        schema_version: Version of the file.
        usage: Usage of the agent so far; its members never decrease.
        conversations: Counters of each conversation, by its id.
        process: The last readings of the current process.
        log_offset: Offset in the agent's log of the first line that is not yet counted; None if
            unknown.
        inherited: The part of ``usage`` that came with an archive; zero in a file of an earlier
            version, which does not record it. None in a file that was just loaded: all usage,
            including the rest of the log from the archive.
    """

    schema_version: Literal[1]
    usage: Usage
    conversations: dict[str, _ConversationUsage]
    process: _Process = attrs.field(factory=_Process)
    log_offset: int | None = None
    inherited: Usage | None = attrs.field(factory=Usage)

    @classmethod
    def empty(cls) -> Self:
        """Return an empty ledger."""
        return cls(1, Usage(), {})

    @classmethod
    def load(cls, path: Path) -> Ledger:
        """Load the ledger from a file; a missing file gives an empty ledger. Blocks.

        Args:
            path: ``usage.json`` of an agent directory.

        Raises:
            AgentError: The file cannot be read, is incomplete, is not a record of usage, or was
                written by a later version.
        """
        ledger = read_agent_file(path, _FORMAT)
        if ledger is None:
            return cls.empty()
        has_all = all(
            len(counts) == len(TOKEN_KINDS)
            for conversation in ledger.conversations.values()
            for counts in conversation.files.values()
        )
        # Such a number would increase the budget.
        if not has_all or not _is_plausible(msgspec.to_builtins(ledger)):
            message = f"{path} is not a record of usage: it has a number below 0 or too large"
            raise AgentError(message, agent_dir=path.parent, hint=_HINT)
        return ledger

    def write(self, path: Path) -> None:
        """Replace the file atomically. Blocks.

        Raises:
            OSError: The file was not replaced.
        """
        publish_record(path, self)

    def branch(self, parent_id: str, conversation_id: str) -> Ledger:
        """Return the empty ledger of a branch, which counts from the parent's last reading.

        Args:
            parent_id: The branched conversation.
            conversation_id: The new conversation.
        """
        ledger = Ledger.empty()
        parent = self.conversations.get(parent_id, _ConversationUsage())
        ledger.conversations[conversation_id] = attrs.evolve(
            parent, last_tokens=parent.last_tokens or parent.counted, counted=Usage()
        )
        return ledger

    def begin_process(self, continued_id: str | None = None) -> None:
        """Note the start of a process of the program: readings per process restart at zero.

        Args:
            continued_id: The conversation that it continues; None if it is new or unknown.
        """
        self.process = _Process()
        if continued_id is not None:
            self.conversations.setdefault(continued_id, _ConversationUsage())

    def find_version(self, conversation_id: str | None) -> str:
        """Return the version of the program that last reported on a conversation; '' if unknown."""
        return self.conversations.get(conversation_id or "", _ConversationUsage()).version or ""

    def end_turn(self) -> None:
        """Note the end of a turn."""
        self.usage = attrs.evolve(self.usage, turns=self.usage.turns + 1)

    def count(
        self,
        reading: Usage,
        *,
        conversation_id: str,
        version: str | None,
        scope: UsageScope,
        cost_scope: UsageScope | None = None,
        past_cost_scope: UsageScope | None = None,
        files: Mapping[str, Usage] | None = None,
    ) -> Usage:
        """Add the growth of a reading since the last reading.

        A cumulative reading below the last one starts a new count, because the program has lost the
        old count. The cost of a conversation is the exception: a killed program continues from an
        older total, which cannot be distinguished from the cost of the turn. Such a reading adds no
        cost if it is the first, is below the last, or equals it after a turn with tokens; it is the
        base of the next reading. Files that record less than before add no usage: their content was
        lost or moved.

        Args:
            reading: The program's report; its turns are ignored.
            conversation_id: The conversation of the reading.
            version: Version of the program; None if unknown.
            scope: Scope of the reading.
            cost_scope: Scope of its cost; None means the same scope.
            past_cost_scope: Scope of the costs of the version that gave the last reading of the
            conversation: ``process`` means that the program kept no total with it.
            files: Usage recorded by each file, for the scope ``recorded``.

        Returns:
            The usage that was added.
        """
        past = self.conversations.get(conversation_id, _ConversationUsage(last_cost=0.0))
        readings: dict[str, Any] = {}
        if scope == "recorded":
            added, readings["files"] = _count_files(files or {}, past.files)
        else:
            reading, cost_scope = _plausible(reading), cost_scope or scope
            tokens = self._count_tokens(reading, scope, past)
            if cost_scope == "session":
                has_total = past_cost_scope != "process"
                before = past.last_cost if past.last_cost is not None or has_total else 0.0
                added = _count_conversation_cost(tokens, reading.cost_usd, before)
            else:
                cost = self._count_cost(reading.cost_usd, cost_scope, past)
                added = attrs.evolve(tokens, cost_usd=cost)
            if scope == "session":
                readings["last_tokens"] = reading
            if cost_scope in ("session", "cumulative") and reading.cost_usd is not None:
                readings["last_cost"] = reading.cost_usd
        self.usage = self.usage.plus(added)
        self.conversations[conversation_id] = attrs.evolve(
            past,
            version=version or past.version,
            counted=past.counted.plus(added),
            **readings,
        )
        return added

    def _count_tokens(self, reading: Usage, scope: UsageScope, past: _ConversationUsage) -> Usage:
        if scope == "turn":
            return reading
        if scope == "process":
            before = self.process.tokens
            self.process = attrs.evolve(self.process, tokens=reading)
        else:
            # An older version of the program may have counted the conversation differently.
            before = past.last_tokens or past.counted
        return reading if reading.tokens < before.tokens else reading.minus(before)

    def _count_cost(
        self, cost: float | None, scope: UsageScope, past: _ConversationUsage
    ) -> float | None:
        if cost is None or scope == "turn":
            return cost
        if scope == "process":
            before = self.process.cost_usd
            self.process = attrs.evolve(self.process, cost_usd=cost)
        else:  # the version is unknown, so the reading decides
            before = past.counted.cost_usd or 0.0 if past.last_cost is None else past.last_cost
        return cost if cost < before else cost - before


def _count_conversation_cost(tokens: Usage, cost: float | None, before: float | None) -> Usage:
    """Return the growth of a reading whose cost covers the whole conversation.

    Args:
        tokens: The growth of its tokens.
        cost: The cost of the conversation so far; None if the program did not report it.
        before: The last such cost; None if unknown.
    """
    if cost is None:
        return attrs.evolve(tokens, cost_usd=None)
    if before is None or cost < before or (cost == before > 0.0 and tokens.tokens > 0):
        return attrs.evolve(tokens, cost_usd=None, missing_costs=int(tokens.tokens > 0))
    return attrs.evolve(tokens, cost_usd=cost - before)


def _count_files(
    files: Mapping[str, Usage], known: Mapping[str, tuple[int, ...]]
) -> tuple[Usage, dict[str, tuple[int, ...]]]:
    """Return the growth of all files' records since the last count, and the new counts."""
    counted, added = dict(known), Usage()
    for name, reading in files.items():
        before = counted.get(name, (0,) * len(TOKEN_KINDS))
        now = [getattr(_plausible(reading), kind) for kind in TOKEN_KINDS]
        counted[name] = tuple(map(max, now, before))
        more = (max(0, new - old) for new, old in zip(now, before, strict=True))
        added = added.plus(Usage(**dict(zip(TOKEN_KINDS, more, strict=True))))
    return added, counted


def _plausible(reading: Usage) -> Usage:
    """Return a reading with impossible numbers, such as negative numbers, removed."""
    return Usage(
        **{name: whole_number(getattr(reading, name)) or 0 for name in TOKEN_KINDS},
        cost_usd=finite_number(reading.cost_usd),
    )


_FORMAT: Final = RecordFormat(
    kind="a record of usage",
    decoder=msgspec.json.Decoder(Ledger),
    max_bytes=16 << 20,
    hint=_HINT,
)


def read_usage(directory: Path) -> Usage:
    """Return the recorded usage of an agent, which may be running. Blocks.

    Args:
        directory: The agent's directory; without a record, the usage is zero.

    Raises:
        AgentError: As for :meth:`Ledger.load`.
    """
    return Ledger.load(AgentDir(directory).usage_file).usage


# -- budgets ------------------------------------------------------------------------------------


_IS_COUNT: Final = checked(check_count, prefix="budget.", optional=True)
_IS_AMOUNT: Final = checked(check_amount, prefix="budget.", optional=True)
_NO_LIMIT: Final = {HINT: LEFT_OUT}


@attrs.frozen(kw_only=True)
class Budget:
    """Limits after which an agent is stopped; None sets no limit.

    The budget is checked between turns, so the turn that uses it up is finished. Only the minutes
    also end a turn, because a turn might last forever.

    Args:
        tokens: Tokens of all kinds, including cached tokens.
        output_tokens: Answer tokens, including reasoning.
        usd: Cost in US dollars, if the program reports it.
        turns: Turns.
        minutes: Minutes since the agent's first start in this process.

    Raises:
        ConfigError: A limit is not a number above 0, or not a whole number where one is required.
    """

    tokens: int | None = attrs.field(default=None, validator=_IS_COUNT, metadata=_NO_LIMIT)
    output_tokens: int | None = attrs.field(default=None, validator=_IS_COUNT, metadata=_NO_LIMIT)
    usd: float | None = attrs.field(default=None, validator=_IS_AMOUNT, metadata=_NO_LIMIT)
    turns: int | None = attrs.field(default=None, validator=_IS_COUNT, metadata=_NO_LIMIT)
    minutes: float | None = attrs.field(default=None, validator=_IS_AMOUNT, metadata=_NO_LIMIT)

    def exceeded(self, usage: Usage, minutes: float) -> str | None:
        """Return the used-up limit as a reason to stop, or None.

        Args:
            usage: Usage of the agent.
            minutes: Minutes since its first start.
        """
        reached: Mapping[str, tuple[float | None, float]] = {
            f"{self.tokens} tokens": (self.tokens, usage.tokens),
            f"{self.output_tokens} output tokens": (self.output_tokens, usage.output_tokens),
            f"{self.usd} USD": (self.usd, usage.cost_usd or 0.0),
            f"{self.turns} turn{'' if self.turns == 1 else 's'}": (self.turns, usage.turns),
            f"{self.minutes:g} minutes" if self.minutes else "": (self.minutes, minutes),
        }
        for limit, (most, used) in reached.items():
            if most is not None and used >= most:
                return f"budget of {limit} used up"
        return None


UNLIMITED: Final = Budget()
"""The budget of an agent without limits."""
