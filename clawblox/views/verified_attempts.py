"""The verified recordings of an experiment as one table, with each fault below it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clawblox.printable import printable
from clawblox.replay.results import AttemptPlace, CheckedScore, Link, VerifiedReplay, VerifiedRun
from clawblox.views.formatting import format_table
from clawblox.views.verified_runs import describe_replay

_HEADINGS = ("CHAIN", "GEN", "ATTEMPT", "RECORDING", "OUTCOME", "LINK", "SCORES")


def format_attempts(run: VerifiedRun) -> str:
    """Return the table of an experiment, and below it the result of each recording at fault."""
    scores = {score.attempt: score for score in run.scores}
    rows = [_make_row(replay, scores) for replay in run.replays]
    return "\n".join([format_table(_HEADINGS, rows), *_describe_faults(run)])


def _make_row(replay: VerifiedReplay, scores: Mapping[str, CheckedScore]) -> list[str]:
    place = replay.attempt or AttemptPlace("", 0, 0, "")
    recording = " ".join(filter(None, (replay.instance, str(replay.number or ""))))
    cells = (
        place.chain,
        str(place.generation),
        f"{place.number} {place.outcome}",
        recording,
        f"{replay.damage}: {_summarise(replay)}" if replay.damage else _summarise(replay),
        _summarise_start(replay),
        "" if place.name not in scores else _summarise_scores(scores[place.name]),
    )
    return list(map(printable, cells))


def _summarise(replay: VerifiedReplay) -> str:
    progress = replay.progress
    if progress.outcome == "impossible":
        return "not verified"
    if progress.divergence is not None:
        return f"differs at tick {progress.divergence.tick}"
    equal = "equal" if replay.start_checked_by else "equal from an unchecked start"
    return equal if progress.is_complete else f"{equal} to tick {progress.tick}, cut (killed)"


def _summarise_scores(score: CheckedScore) -> str:
    """Return which scores are others now, or why there are none."""
    if not score.computed:
        return f"not computed: {score.reason or 'the function returns none'}"
    if not score.differences:
        return "equal"
    changes = (
        f"{name} {score.recorded.get(name, 'nothing')} -> {score.computed[name]}"
        for name in score.differences
    )
    return ", ".join(changes)


def _summarise_start(replay: VerifiedReplay) -> str:
    by_save = f"its save at tick {replay.progress.first_tick}"
    if (link := replay.link) is not None:
        also = f"; equals {by_save}" if replay.start_checked_by == "save" else ""
        return f"{_describe_link(link, replay.attempt)}{also}"
    if replay.start_checked_by == "save":
        return by_save
    if replay.progress.outcome == "impossible":
        return ""
    return "fresh" if replay.progress.has_begun_again else "unchecked"


def _describe_link(link: Link, own: AttemptPlace | None) -> str:
    if link.kind == "unknown":
        return f"unknown: nothing was verified up to tick {link.tick}"
    if link.kind == "differs" and link.number is None:
        return f"differs from its save at tick {link.tick}"
    word = "continues" if link.kind == "continues" else "differs from"
    return f"{word} {_name_earlier(link, own)} at tick {link.tick}"


def _name_earlier(link: Link, own: AttemptPlace | None) -> str:
    """Return the recording that a link leads to, as short as it is clear beside its own place."""
    place = link.attempt
    if place is None or place == own:
        return f"recording {link.number}"
    where = "" if own is not None and place.chain == own.chain else f"{place.chain}/"
    return f"{where}g{place.generation:03d}, attempt {place.number}"


def _describe_faults(run: VerifiedRun) -> Iterator[str]:
    """Yield the whole result of each recording that is not just equal from a checked start."""
    for replay in run.replays:
        if replay.status != "equal" or replay.changed_files:
            name = "" if replay.attempt is None else f"{printable(replay.attempt.name)}, "
            yield f"{name}{describe_replay(replay)}"
