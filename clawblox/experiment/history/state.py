"""The state of an experiment, computed from the lines of its journal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.agents.values import Usage
from clawblox.experiment.history.checkpoints import (
    Branch,
    Checkpoint,
    CheckpointRef,
    read_checkpoint,
)
from clawblox.experiment.history.lines import (
    ENDINGS,
    JournalLine,
    Phase,
    collector_paused,
    read_usage,
)
from clawblox.experiment.history.scores import Scores, format_version, is_revision
from clawblox.typed_values import converter

Step: TypeAlias = Literal["opened", "prepared", "working", "closing", "saved", "scored"]
"""The last recorded step of an attempt."""

IMPORTED: Final = "imported"
"""Reason in the line that opens an attempt that ended in another harness."""

_STEPS: Final = frozenset({"prepared", "working", "closing", "saved", "scored"})


@attrs.define(kw_only=True)
class AttemptState:
    """An attempt.

    Attributes:
        chain: Its chain.
        generation: Its generation.
        attempt_id: Its name.
        opened: Its first line.
        phase: The phase in which it started.
        origin: The checkpoint that it started from; None for a fresh world.
        step: Its last completed step.
        checkpoints: Its existing checkpoints, in order.
        working: Data of its line ``working``; empty before.
        close_reason: Why the generation closes; empty before.
        active_s: Recorded active seconds of the generation.
        idle_s: Recorded seconds in which all agents only waited for their providers.
        world_time: Recorded simulation time; None if the world has none.
        scores: Data of its line ``scored``; None before.
        scored_by: Version of the function that computed them; empty if it is not recorded.
        ending: The line that ended it; None while it is running.
    """

    chain: str
    generation: int
    attempt_id: str
    opened: JournalLine
    phase: Phase
    origin: CheckpointRef | None
    step: Step = "opened"
    checkpoints: list[Checkpoint] = attrs.field(factory=list)
    working: Mapping[str, Any] = attrs.field(factory=dict)
    close_reason: str = ""
    active_s: float = 0.0
    idle_s: float = 0.0
    world_time: float | None = None
    scores: Mapping[str, Any] | None = None
    scored_by: str = ""
    ending: JournalLine | None = None

    @property
    def outcome(self) -> str | None:
        """Type of the line that ended it; None while it is running."""
        return None if self.ending is None else self.ending.type

    @property
    def end_data(self) -> Mapping[str, Any]:
        """Data of the line that ended it; empty while it is running."""
        return {} if self.ending is None else self.ending.data

    @property
    def dir_name(self) -> str:
        """Name of its run directory, which differs from its own after a failure."""
        return str(self.end_data.get("moved_to") or self.attempt_id)

    @property
    def spent(self) -> tuple[Usage, ...]:
        """Usage of each agent in this attempt; empty while it is running."""
        return read_usage(self.end_data.get("usage"))

    @property
    def revision(self) -> int:
        """Revision of the plan under which it was opened."""
        return int(self.opened.data.get("revision", 0))

    @property
    def host(self) -> Mapping[str, Any]:
        """Its host on a node of a cluster; empty on the machine of the driver."""
        return self.opened.data.get("host") or {}

    @property
    def node(self) -> str:
        """The node where it runs; empty for the machine of the driver."""
        return str(self.host.get("node", ""))

    @property
    def is_lost(self) -> bool:
        """True if it failed because its node was lost."""
        return self.outcome == "failed" and self.end_data.get("cause") == "node"


@attrs.define(kw_only=True)
class GenerationState:
    """A generation of a chain.

    Attributes:
        chain: Its chain.
        number: Its number, from 1.
        attempts: Its attempts, in order.
        imported: Data of the line that imported it from another harness, or None. An imported
            generation is over regardless of its attempts.
        rescored: Data of its lines ``rescored``, each with the version of the function.
        failures_from: Number of the line from which failures count.
        mended_at: Number of the line that corrected the plan before anything had worked, or 0.
    """

    chain: str
    number: int
    attempts: list[AttemptState] = attrs.field(factory=list)
    imported: Mapping[str, Any] | None = None
    rescored: list[tuple[Mapping[str, Any], str]] = attrs.field(factory=list)
    failures_from: int = 0
    mended_at: int = 0

    @property
    def latest_attempt(self) -> AttemptState | None:
        """The latest attempt; None before the first."""
        return self.attempts[-1] if self.attempts else None

    @property
    def committed(self) -> AttemptState | None:
        """The committed attempt; None before, and after an import."""
        last = None if self.imported is not None else self.latest_attempt
        return last if last is not None and last.outcome == "committed" else None

    @property
    def scores(self) -> Scores:
        """Its scores, from the committed attempt and from later computations."""
        scores, committed = Scores(), self.committed
        if committed is not None and committed.scores is not None:
            scores = scores.merge(committed.scores, committed.scored_by)
        for data, version in self.rescored:
            scores = scores.merge(data, version)
        return scores

    @property
    def score_error(self) -> str:
        """Why its latest score failed or left out a name; empty otherwise."""
        committed = None if self.committed is None else self.committed.scores
        latest = self.rescored[-1][0] if self.rescored else committed
        return "" if latest is None else str(latest.get("error", ""))

    @property
    def is_over(self) -> bool:
        """True if the next generation can start."""
        return self.imported is not None or self.committed is not None

    @property
    def revision(self) -> int | None:
        """Revision of the plan under which it was started; None without a lasting start."""
        begun = (attempt for attempt in self.attempts if attempt.opened.seq > self.mended_at)
        return next((attempt.revision for attempt in begun), None)

    @property
    def is_continued(self) -> bool:
        """True if it started elsewhere and continues from a given archive."""
        return bool(self.attempts) and self.attempts[0].opened.data.get("reason") == IMPORTED

    @property
    def source(self) -> str | None:
        """Attempt whose workspaces the next generation inherits; None before the end.

        It is not the committed attempt if that one only scored the result of another attempt.
        """
        if self.imported is not None:
            return str(self.imported["run_id"])
        committed = self.committed
        if committed is None:
            return None
        return str(committed.end_data.get("files", committed.attempt_id))

    def find_attempt(self, attempt_id: str) -> AttemptState | None:
        """Return an attempt by its name, or None."""
        latest_first = reversed(self.attempts)  # most lines are about the latest attempt
        return next((attempt for attempt in latest_first if attempt.attempt_id == attempt_id), None)

    @property
    def latest_checkpoint(self) -> Checkpoint | None:
        """Its latest existing checkpoint, or None."""
        return max(self.checkpoints(), key=lambda point: point.seq, default=None)

    def checkpoints(self) -> Iterator[Checkpoint]:
        """Yield its existing checkpoints, in order."""
        for attempt in self.attempts:
            yield from attempt.checkpoints

    def ancestry(self) -> list[Checkpoint]:
        """Return the latest checkpoint and its ancestors, the latest first."""
        newest = self.latest_checkpoint
        path: list[Checkpoint] = []
        while newest is not None:
            attempt = self.find_attempt(newest.ref.attempt)
            assert attempt is not None
            before = [other for other in attempt.checkpoints if other.seq <= newest.seq]
            path += reversed(before)
            origin = attempt.origin
            newest = next((point for point in self.checkpoints() if point.ref == origin), None)
        return path


@attrs.define(kw_only=True)
class ChainState:
    """A chain.

    Attributes:
        name: Its name.
        branch: Its origin if it is a branch; None for a chain of the plan.
        generations: Its generations by number, in order.
    """

    name: str
    branch: Branch | None = None
    generations: dict[int, GenerationState] = attrs.field(factory=dict)

    @property
    def latest(self) -> GenerationState | None:
        """The latest generation; None before the first."""
        return next(reversed(self.generations.values()), None)

    @property
    def attempts(self) -> Iterator[AttemptState]:
        """All attempts, in order."""
        for generation in self.generations.values():
            yield from generation.attempts

    @property
    def last_ending(self) -> JournalLine | None:
        """The line that ended its latest attempt, or None."""
        latest = self.latest
        return latest.attempts[-1].ending if latest is not None and latest.attempts else None


class ExperimentState:
    """The state of an experiment.

    Args:
        lines: Lines of the journal, from the first.

    Raises:
        ValueError: A line contradicts the lines before it.

    Attributes:
        chains: Chains with at least one line, by name, in the order of their first line.
        revision: Revision of the plan.
        plan_file: Name of the file with the plan.
        accounts: Data of the latest line of each limited account.
        wall_s: Total seconds of the runs that have ended.
        waits: Why chains wait since the end of the latest run, by name; empty during a run.
        current_run: The first line of the current or a killed run, or None.
        hooks: Name and digest of each hook in the latest run, by its argument.
        score_versions: Latest version of the function that computes each score, by its name.
        seq: Number of the last line.
        endings: Number of ended attempts.
    """

    def __init__(self, lines: Iterable[JournalLine] = ()) -> None:
        self.chains: dict[str, ChainState] = {}
        self.revision = 0
        self.plan_file = "plan.toml"
        self.accounts: dict[str, Mapping[str, Any]] = {}
        self.wall_s = 0.0
        self.waits: dict[str, Mapping[str, Any]] = {}
        self.current_run: JournalLine | None = None
        self.hooks: Mapping[str, Mapping[str, str | None]] = {}
        self.score_versions: dict[str, str] = {}
        self.seq = 0
        self.endings = 0
        with collector_paused():
            for line in lines:
                self.apply(line)

    @property
    def branches(self) -> Mapping[str, Branch]:
        """The branches by the names of their chains."""
        found = ((name, chain.branch) for name, chain in self.chains.items())
        return {name: branch for name, branch in found if branch is not None}

    @property
    def fork_sources(self) -> set[CheckpointRef]:
        """The checkpoints that branches start from."""
        return {branch.source for branch in self.branches.values()}

    def checkpoints(self) -> Iterator[Checkpoint]:
        """Yield all existing checkpoints."""
        for chain in self.chains.values():
            for generation in chain.generations.values():
                yield from generation.checkpoints()

    def chain(self, name: str) -> ChainState:
        """Return the state of a chain; an empty state if no line of the journal concerns it."""
        return self.chains.get(name) or ChainState(name=name)

    def find_attempt(
        self, chain: str | None, generation: int | None, attempt_id: str | None
    ) -> AttemptState | None:
        """Return an attempt by its chain, generation and name, or None."""
        found = self.chain(str(chain)).generations.get(generation or 0)
        return None if found is None else found.find_attempt(str(attempt_id))

    def is_of_run(self, line: JournalLine) -> bool:
        """Return whether the current run wrote a line."""
        return self.current_run is not None and line.seq > self.current_run.seq

    def apply(self, line: JournalLine) -> None:
        """Apply the next line; lines without an effect are ignored."""
        self.seq = line.seq
        handler = _HANDLERS.get(line.type)
        if handler is not None:
            handler(self, line)
        elif line.type in _STEPS or line.type in ENDINGS:
            self._advance(line)

    def _begin(self, line: JournalLine) -> None:
        if line.seq != 1:
            raise _contradiction(line, "an experiment must start in line 1")
        self.plan_file = str(line.data.get("plan", self.plan_file))

    def _begin_run(self, line: JournalLine) -> None:
        self.current_run = line
        self.waits = {}
        hooks = line.data.get("hooks")
        self.hooks = hooks if isinstance(hooks, Mapping) else {}

    def _end_run(self, line: JournalLine) -> None:
        self.wall_s += float(line.data.get("elapsed_s", 0.0))
        self.current_run = None
        self.waits = {name: wait for wait in line.data.get("waits", ()) for name in wait["chains"]}

    def _amend(self, line: JournalLine) -> None:
        self.revision += 1
        if line.data["revision"] != self.revision:
            raise _contradiction(line, f"the revision must be {self.revision}")
        self.plan_file = str(line.data["plan"])
        if line.data.get("mends"):
            for latest in filter(None, (chain.latest for chain in self.chains.values())):
                latest.mended_at = latest.failures_from = line.seq

    def _limit(self, line: JournalLine) -> None:
        self.accounts[str(line.data["account"])] = line.data

    def _clear(self, line: JournalLine) -> None:
        self.accounts.pop(str(line.data["account"]), None)

    def _fork(self, line: JournalLine) -> None:
        branch = _to_branch(line.data)
        self._require_made(line, branch.source)
        if line.chain in self.chains:
            raise _contradiction(line, f"{line.chain} already has lines")
        self._own_chain(line).branch = branch

    def _retry(self, line: JournalLine) -> None:
        latest = self._own_chain(line).latest
        if latest is not None:
            latest.failures_from = line.seq

    def _open(self, line: JournalLine) -> None:
        data, generation = line.data, self._own_generation(line)
        origin = None if data.get("origin") is None else _to_ref(data["origin"])
        if origin is not None:
            self._require_made(line, origin)
        if generation.find_attempt(str(line.attempt)) is not None:
            raise _contradiction(line, f"the attempt {line.attempt} already exists")
        previous = self._own_chain(line).generations.get(generation.number - 1)
        if (inherited := data.get("inherited")) not in (None, previous and previous.source):
            raise _contradiction(line, f"generation {generation.number - 1} has no {inherited}")
        if (revision := data.get("revision", 0)) > self.revision:
            raise _contradiction(line, f"there is no revision {revision} of the plan")
        generation.attempts.append(
            AttemptState(
                chain=generation.chain,
                generation=generation.number,
                attempt_id=str(line.attempt),
                opened=line,
                phase=data.get("phase", "work"),
                origin=origin,
                active_s=data.get("elapsed_s", 0.0),
                idle_s=data.get("idle_s", 0.0),
            )
        )

    def _import(self, line: JournalLine) -> None:
        self._own_generation(line).imported = line.data

    def _rescore(self, line: JournalLine) -> None:
        version = self._note_version(line, line.data.get("function"))
        self._own_generation(line).rescored.append((line.data, version))

    def _note_version(self, line: JournalLine, function: object) -> str:
        """Return the version of the function that computed the scores of a line.

        If a changed function fails, the kept scores still have the version of the earlier function.
        """
        version = format_version(function)
        known = self.score_versions
        revised = {name: version for name in known if is_revision(version, known[name])}
        self.score_versions |= revised | dict(Scores().merge(line.data, version).versions)
        return version

    def _checkpoint(self, line: JournalLine) -> None:
        attempt = self._own_attempt(line)
        checkpoint = read_checkpoint(line)
        attempt.checkpoints.append(checkpoint)
        attempt.close_reason = checkpoint.close_reason or attempt.close_reason
        attempt.active_s, attempt.idle_s = checkpoint.active_s, checkpoint.idle_s
        attempt.world_time = checkpoint.world_time

    def _remove_checkpoint(self, line: JournalLine) -> None:
        attempt = self._own_attempt(line)
        attempt.checkpoints = [
            other for other in attempt.checkpoints if other.ref.file != line.data["file"]
        ]

    def _advance(self, line: JournalLine) -> None:
        attempt = self._own_attempt(line)
        if line.type in ENDINGS:
            attempt.ending = line
            self.endings += 1
            return
        attempt.step = line.type  # type: ignore[assignment] # one of _STEPS
        attempt.world_time = line.data.get("world_time", attempt.world_time)
        if line.type == "working":
            attempt.working = line.data
        elif line.type == "closing":
            attempt.close_reason = str(line.data["reason"])
            attempt.active_s = line.data.get("elapsed_s", attempt.active_s)
            attempt.idle_s = line.data.get("idle_s", attempt.idle_s)
        elif line.type == "scored":
            attempt.scores = line.data
            attempt.scored_by = self._note_version(line, self.hooks.get("score"))

    def _own_chain(self, line: JournalLine) -> ChainState:
        name = str(line.chain)
        return self.chains.setdefault(name, ChainState(name=name))

    def _own_generation(self, line: JournalLine) -> GenerationState:
        chain, number = self._own_chain(line), int(line.generation or 0)
        begun = GenerationState(chain=chain.name, number=number)
        return chain.generations.setdefault(number, begun)

    def _own_attempt(self, line: JournalLine) -> AttemptState:
        attempt = self.find_attempt(line.chain, line.generation, line.attempt)
        if attempt is None:
            raise _contradiction(line, f"there is no attempt {line.attempt}")
        return attempt

    def _require_made(self, line: JournalLine, ref: CheckpointRef) -> None:
        """Require that an earlier attempt made a checkpoint, so that chains contain no cycle."""
        if self.find_attempt(ref.chain, ref.generation, ref.attempt) is None:
            raise _contradiction(line, f"there is no attempt {ref.attempt} of {ref.chain}")


def _contradiction(line: JournalLine, message: str) -> ValueError:
    return ValueError(f"line {line.seq} is not valid: {message}")


_to_branch: Final = converter(Branch)
_to_ref: Final = converter(CheckpointRef)
_HANDLERS: Final[Mapping[str, Callable[[ExperimentState, JournalLine], None]]] = {
    "experiment.begun": ExperimentState._begin,
    "session.begun": ExperimentState._begin_run,
    "session.ended": ExperimentState._end_run,
    "plan.amended": ExperimentState._amend,
    "account.limited": ExperimentState._limit,
    "account.cleared": ExperimentState._clear,
    "chain.forked": ExperimentState._fork,
    "chain.retried": ExperimentState._retry,
    "opened": ExperimentState._open,
    "imported": ExperimentState._import,
    "rescored": ExperimentState._rescore,
    "checkpoint": ExperimentState._checkpoint,
    "checkpoint.removed": ExperimentState._remove_checkpoint,
}
