"""Verified replays as text: a line or a row for each recording, and a summary. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from clawblox.differences import common_length
from clawblox.printable import printable, printable_name
from clawblox.replay.results import (
    AttemptPlace,
    CheckedScore,
    Divergence,
    RecordingLink,
    ReplayProgress,
    VerifiedReplay,
    VerifiedRun,
)
from clawblox.views.formatting import count_words, format_seconds, format_table, shorten_path

_MAX_CHARS: Final = 120
"""Maximum length of a recorded or replayed value."""
_MAX_FILES: Final = 5
"""Maximum number of changed files that are named."""
_BEFORE: Final = 20
"""Characters of a long value to show before the first difference."""
_STATUSES: Final = {
    "equal": "equal",
    "equal_unchecked_start": "equal from an unchecked start",
    "different": "different",
    "incomplete": "incomplete",
    "impossible": "not verified",
}
_DAMAGES: Final = {
    None: "",
    "incomplete": "incomplete, its file was cut after it was finished: ",
    "changed": "its file was changed after it was finished: ",
}
"""Start of the result text of a recording, by its damage."""
_HEADINGS: Final = ("CHAIN", "GEN", "ATTEMPT", "RECORDING", "OUTCOME", "LINK", "SCORES")
_COUNTED: Final = ("event", "observation", "frame", "fingerprint", "state")


def describe_replay(replay: VerifiedReplay) -> str:
    """Return the result of a recording as one line."""
    name = f"recording {replay.number}" if replay.number else shorten_path(replay.recording)
    where = f" ({printable_name(replay.instance)})" if replay.instance else ""
    result = f"{printable(_describe(replay))}{_describe_start(replay)}"
    return f"{name}{where}: {_DAMAGES[replay.damage]}{result}"


def sum_up(run: VerifiedRun) -> str:
    """Return a sentence with the number of equal recordings."""
    outcomes: Counter[str] = Counter(replay.status for replay in run.replays)
    total = count_words(len(run.replays), "recording")
    parts = [f"{outcomes[key]} {words}" for key, words in _STATUSES.items() if outcomes[key]]
    seconds = format_seconds(sum(replay.seconds for replay in run.replays))
    return f"{total} in {seconds}: {', '.join(parts)}"


def _describe(replay: VerifiedReplay) -> str:
    progress = replay.progress
    if progress.outcome == "impossible":
        return f"cannot be verified: {progress.reason}{_describe_reach(progress)}"
    if progress.divergence is not None:
        return _describe_divergence(progress.divergence)
    counts = _describe_counts(progress)
    equal = "equal from an unchecked start" if replay.start_checked_by is None else "equal"
    if progress.is_complete:
        return f"{equal} to the end: {counts}"
    text = "the recording has no end, its world was killed"
    rest = count_words(progress.unchecked, "later record")
    lost = f"; {rest} not compared, after an input that was lost" if progress.unchecked else ""
    return f"{equal} to tick {progress.tick}: {counts}; {text}{lost}"


def _describe_reach(progress: ReplayProgress) -> str:
    return f" (equal to tick {progress.tick})" if progress.tick > progress.first_tick else ""


def _describe_counts(progress: ReplayProgress) -> str:
    numbers = {noun: getattr(progress, f"{noun}s") for noun in _COUNTED}
    ticks = count_words(progress.tick - progress.first_tick, "tick")
    return ", ".join([ticks, *(count_words(n, noun) for noun, n in numbers.items() if n)])


def _describe_divergence(divergence: Divergence) -> str:
    what = " ".join(filter(None, (divergence.what, divergence.path)))
    moment = f"tick {divergence.tick} (t = {divergence.time:.3f} s)"
    recorded, replayed = _show_sides(divergence.recorded, divergence.replayed)
    return f"differs at {moment}: {what}: recorded {recorded}, replayed {replayed}"


def _show_sides(recorded: Any, replayed: Any) -> tuple[str, str]:  # noqa: ANN401 - JSON
    """Return both values, cut to the part around the first difference if they are long."""
    sides = tuple(
        "nothing" if side is None else json.dumps(side, ensure_ascii=False)
        for side in (recorded, replayed)
    )
    if max(map(len, sides)) <= _MAX_CHARS:
        return sides[0], sides[1]
    begin = max(0, common_length(*sides) - _BEFORE)
    return _cut(sides[0], begin), _cut(sides[1], begin)


def _cut(text: str, begin: int) -> str:
    shown = text[begin : begin + _MAX_CHARS]
    return f"{'...' if begin else ''}{shown}{'...' if begin + _MAX_CHARS < len(text) else ''}"


def _describe_start(replay: VerifiedReplay) -> str:
    progress = replay.progress
    parts = [] if replay.link is None else [_describe_link(replay.link)]
    if replay.start_checked_by == "save":
        parts.append(f"starts with the state of its save, at tick {progress.first_tick}")
    if replay.changed_files:
        parts.append(f"{_name_changes(replay.changed_files)} changed since the recording")
    elif progress.has_other_files:
        parts.append("the files of the world have changed since it was recorded")
    if progress.outcome == "different" and progress.is_of_earlier_version:
        parts.append(
            "the recording looks like one of an earlier version of clawblox, whose answers may"
            " differ: verify it with that version"
        )
    if progress.revisions is not None:
        parts.append(_describe_revisions(*progress.revisions))
    if progress.outcome == "different" and progress.revisions is not None:
        parts.append(_advise_revisions(*progress.revisions))
    if progress.outcome == "equal" and replay.start_checked_by is None:
        parts.append(_describe_unchecked(replay))
    return "".join(f"; {part}" for part in parts)


def _describe_revisions(recorded: int, replayed: int) -> str:
    age = "a newer" if recorded > replayed else "an older"
    return (
        f"made by {age} engine (revision {recorded}; this one is {replayed}), so whole states were"
        " not compared"
    )


def _advise_revisions(recorded: int, replayed: int) -> str:
    advice = "verify it with the clawblox that made it"
    if recorded > replayed:
        advice = "update the clawblox that the world uses"
    return (
        "that engine may run threads in another order, so a difference does not show a changed"
        f" recording: {advice}"
    )


def _name_changes(paths: Sequence[str]) -> str:
    """Return the names of changed files, such as ``rules.py``, and the number of further files."""
    if "." in paths:
        return "files of the world"
    names = ", ".join(map(printable_name, paths[:_MAX_FILES]))
    rest = len(paths) - _MAX_FILES
    return f"{names} and {rest} more" if rest > 0 else names


def _describe_unchecked(replay: VerifiedReplay) -> str:
    """Return why the first state of a recording could not be checked."""
    if replay.progress.has_given_rows:
        return "the rows of its data stores were taken from the recording, unchecked"
    if replay.progress.has_begun_again:
        return "so its first state was not compared"
    if replay.link is not None and replay.link.kind == "continues":
        return f"the start of recording {replay.link.number} is unchecked, and so is this one"
    return "its first state was taken from the recording, unchecked"


def _describe_link(link: RecordingLink) -> str:
    if link.kind == "continues":
        return f"continues recording {link.number} at tick {link.tick}"
    if link.kind == "differs" and link.number is None:
        return f"does not start with the state of its save, at tick {link.tick}"
    if link.kind == "differs":
        return f"does not continue recording {link.number}, whose state at tick {link.tick} differs"
    return (
        f"no earlier recording was verified up to tick {link.tick}, at which this recording starts"
    )


# -- the table of an experiment ------------------------------------------------------------------


def format_attempts(run: VerifiedRun) -> str:
    """Return the table of an experiment, followed by the result of each faulty recording."""
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
    """Return the scores that changed, or the reason why there are none."""
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
        return f"{_summarise_link(link, replay.attempt)}{also}"
    if replay.start_checked_by == "save":
        return by_save
    if replay.progress.outcome == "impossible":
        return ""
    return "fresh" if replay.progress.has_begun_again else "unchecked"


def _summarise_link(link: RecordingLink, own: AttemptPlace | None) -> str:
    if link.kind == "unknown":
        return f"unknown: nothing was verified up to tick {link.tick}"
    if link.kind == "differs" and link.number is None:
        return f"differs from its save at tick {link.tick}"
    word = "continues" if link.kind == "continues" else "differs from"
    return f"{word} {_name_earlier(link, own)} at tick {link.tick}"


def _name_earlier(link: RecordingLink, own: AttemptPlace | None) -> str:
    """Return a short name for the recording that a link leads to, relative to its own place."""
    place = link.attempt
    if place is None or place == own:
        return f"recording {link.number}"
    where = "" if own is not None and place.chain == own.chain else f"{place.chain}/"
    return f"{where}g{place.generation:03d}, attempt {place.number}"


def _describe_faults(run: VerifiedRun) -> Iterator[str]:
    """Yield the full result of each recording that is not simply equal from a checked start."""
    for replay in run.replays:
        if replay.status != "equal" or replay.changed_files:
            name = "" if replay.attempt is None else f"{printable(replay.attempt.name)}, "
            yield f"{name}{describe_replay(replay)}"
