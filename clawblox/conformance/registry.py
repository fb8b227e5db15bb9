"""The checks of worlds by id, and the outcomes of a check."""

from __future__ import annotations

import fnmatch
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.conformance.exchange import Exchange
from clawblox.differences import ValueDifference
from clawblox.errors import UsageError, WorldError, WorldStartError
from clawblox.spelling import suggest_nearest

Level: TypeAlias = Literal["must", "should"]

AREAS: Final = ("static", "contract", "gate", "restore", "refuse", "invisible", "hygiene")


@attrs.frozen
class Findings:
    """The evidence of a passed check, for the verdict about the restore.

    Attributes:
        evidence: The observation, a sentence.
        equal_answers: Number of answers of a restored lock-step world that were equal to the byte.
        equal_times: Number of simulated times at which the documents of two runs were equal.
        equal_landings: Number of pairs of restores that were equal after inputs that landed
            together.
        places: The fresh places of a run, in words; empty without such a run.
        limits: Reasons why the evidence is weaker than it could be.
    """

    evidence: str = ""
    equal_answers: int = 0
    equal_times: int = 0
    equal_landings: int = 0
    places: str = ""
    limits: tuple[str, ...] = ()


Look: TypeAlias = Callable[[Any], Awaitable[str | Findings]]
"""Checks a world, given as a ``CheckContext``, and returns the evidence of its conformance.

The evidence is a sentence, or findings if the verdict needs them. Other outcomes are raised.
"""


class NotMet(Exception):  # noqa: N818 - named after the outcome
    """The world does not meet the requirement.

    Args:
        evidence: The observation, a sentence.
        exchange: The request that showed the failure; None if there was none.
        difference: The first difference between the expected and the actual value, if any.
    """

    def __init__(
        self,
        evidence: str,
        *,
        exchange: Exchange | None = None,
        difference: ValueDifference | None = None,
    ) -> None:
        super().__init__(evidence)
        self.evidence = evidence
        self.exchange = exchange
        self.difference = difference


class NotApplicable(Exception):  # noqa: N818 - named after the outcome
    """The requirement does not apply to the world; the text is the reason."""


class CouldNotRun(Exception):  # noqa: N818 - named after the outcome
    """There is too little evidence to decide; the text is the reason."""


class TooLittleSeen(CouldNotRun):
    """There is too little evidence, but a longer check of the slow world would give enough."""


@attrs.frozen
class Check:
    """A check of one requirement.

    Attributes:
        id: Its permanent name, ``<area>.<name>``.
        level: Whether a world must or should meet the requirement.
        requirement: The requirement, a sentence.
        look: The function that checks a world.
        needs_directory: Whether it starts its own instances, so that it cannot run on an address.
        needs_start: Whether it needs an instance, and not only the ``world.toml``.
        is_last: Whether it inspects files and processes that the other checks have left.
    """

    id: str
    level: Level
    requirement: str
    look: Look = attrs.field(repr=False)
    needs_directory: bool = False
    needs_start: bool = True
    is_last: bool = False

    @property
    def area(self) -> str:
        """The area of the check: the part of its id before the dot."""
        return self.id.partition(".")[0]


class AreaChecks:
    """The checks of one area, in order.

    Args:
        area: The first part of the ids, one of :data:`AREAS`.
    """

    def __init__(self, area: str) -> None:
        self._area = area
        self._checks: list[Check] = []

    def __iter__(self) -> Iterator[Check]:
        return iter(self._checks)

    def must(self, name: str, requirement: str, **traits: bool) -> Callable[[Look], Look]:
        """Return a decorator that adds a check that a world must pass; see :class:`Check`."""
        return self._add("must", name, requirement, traits)

    def should(self, name: str, requirement: str, **traits: bool) -> Callable[[Look], Look]:
        """Return a decorator that adds a check that a world should pass; see :class:`Check`."""
        return self._add("should", name, requirement, traits)

    def _add(
        self, level: Level, name: str, requirement: str, traits: Mapping[str, bool]
    ) -> Callable[[Look], Look]:
        def decorate(look: Look) -> Look:
            self._checks.append(Check(f"{self._area}.{name}", level, requirement, look, **traits))
            return look

        return decorate


@contextmanager
def before_save() -> Iterator[None]:
    """Run a block before a save; its failures do not concern the restore.

    Raises:
        CouldNotRun: The world failed in the block.
        WorldStartError: The world did not become ready.
    """
    try:
        yield
    except WorldStartError:
        raise
    except (NotMet, WorldError) as error:
        raise CouldNotRun(f"the world could not be saved to be restored: {error}") from None


def select_checks(checks: Sequence[Check], names: Sequence[str]) -> list[Check]:
    """Return the requested checks, in order.

    Args:
        checks: All checks.
        names: Ids, areas such as ``restore``, or patterns such as ``*.host_*``; empty for all.

    Raises:
        UsageError: No check matches a name; the hint has the most similar check.
    """
    selected = set[str]()
    for name in names:
        fitting = {
            check.id for check in checks if check.area == name or fnmatch.fnmatch(check.id, name)
        }
        if not fitting:
            known = [*AREAS, *(check.id for check in checks)]
            hint = suggest_nearest(name, known) or "list them: clawblox check --list"
            raise UsageError(
                f"check: must be an area or the id of a check, not {name!r}", hint=hint
            )
        selected |= fitting
    return [check for check in checks if not names or check.id in selected]
