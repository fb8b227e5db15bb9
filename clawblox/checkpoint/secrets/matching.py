"""Searches a piece of content in memory: a window of a file.

Pure. Containers are returned, not opened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

import attrs

from clawblox.checkpoint.secrets.containers.beginnings import beginnings
from clawblox.checkpoint.secrets.containers.detect import HEAD_SIZE, opener_for
from clawblox.checkpoint.secrets.patterns.accelerator import can_match
from clawblox.checkpoint.secrets.patterns.base64_runs import base64_runs, decode_base64
from clawblox.checkpoint.secrets.patterns.known import KnownSecrets
from clawblox.checkpoint.secrets.patterns.shapes import SecretMatch, find_shapes, long_words
from clawblox.checkpoint.secrets.patterns.views import find_views

MAX_DEPTH: Final = 4
"""Maximum number of nested containers."""

UNFINISHED: Final = 160
"""Maximum distance from a run's end to the window's end at which the run may continue."""


@attrs.frozen
class Base64Runs:
    """The base64 of a window.

    Attributes:
        matches: Secrets in the decoded bytes, with the positions of the base64.
        containers: Decoded bytes that are or contain a container.
        long_run: Start of a run that continues after the window; None if there is no such run.
    """

    matches: list[SecretMatch]
    containers: list[bytes] = attrs.field(repr=False)
    long_run: int | None


def find_matches(text: bytes, known: KnownSecrets) -> Iterator[SecretMatch]:
    """Yield the secrets in a text, in every reading."""
    yield from _find_in_one_reading(text, known)
    for view in find_views(text):
        # In these readings, base64 is decoded only up to the end of the window.
        encoded = read_base64(view.text, 0, len(view.text), True, known).matches
        for match in (*_find_in_one_reading(view.text, known), *encoded):
            yield _moved(match, view.origin(match.start), view.origin(match.end - 1) + 1)


def read_base64(
    text: bytes, begin: int, stop: int, is_last: bool, known: KnownSecrets
) -> Base64Runs:
    """Decode the base64 runs of a text and search the decoded bytes.

    Args:
        text: The text.
        begin: First position at which a run may start.
        stop: Position from which runs are skipped.
        is_last: Whether the text is the end of the content, so that a run at its end is complete.
        known: Secrets known by value.
    """
    spans: list[tuple[int, int]] = []
    containers: list[bytes] = []
    pieces: list[bytes] = []
    long_run = None
    for start, end in base64_runs(text, begin):
        if start >= stop:
            break
        if end > len(text) - UNFINISHED and not is_last:
            long_run = start if long_run is None else long_run
            continue
        decoded = decode_base64(text[start:end])
        if opener_for(decoded[:HEAD_SIZE]):
            containers.append(decoded)
        else:
            spans.append((start, end))
            pieces.append(decoded)
    matches, inner = _search_pieces(pieces, spans, known) if pieces else ([], [])
    return Base64Runs(matches, containers + inner, long_run)


def _search_pieces(
    pieces: list[bytes], spans: list[tuple[int, int]], known: KnownSecrets
) -> tuple[list[SecretMatch], list[bytes]]:
    # Search all pieces at once: searching a short digest alone would cost as much.
    text = b"\n".join(pieces)
    starts = list(accumulate((len(piece) + 1 for piece in pieces), initial=0))
    inside = beginnings(text, 0, len(text), is_start=False, is_deepest=False)
    holders = dict.fromkeys(bisect_right(starts, at) - 1 for at in inside)
    nested = read_base64(text, 0, len(text), True, known)
    matches = (*find_matches(text, known), *nested.matches)
    moved = [_moved(match, *spans[bisect_right(starts, match.start) - 1]) for match in matches]
    return moved, [*(pieces[index] for index in holders), *nested.containers]


def _find_in_one_reading(text: bytes, known: KnownSecrets) -> list[SecretMatch]:
    has_shapes = can_match(text)
    if not (has_shapes or known):
        return []
    words = long_words(text)
    shapes = find_shapes(text, words) if has_shapes else ()
    return _without_overlaps([*known.find(text, words), *shapes])


def _moved(match: SecretMatch, start: int, end: int) -> SecretMatch:
    return attrs.evolve(match, start=start, end=end)


def _without_overlaps(matches: Iterable[SecretMatch]) -> list[SecretMatch]:
    """Return the strongest matches, so that a secret that matches several rules is one finding."""
    kept: list[SecretMatch] = []  # in order, without overlaps
    for match in sorted(matches, key=lambda match: (match.rank, match.start - match.end)):
        at = bisect_right(kept, match.start, key=lambda other: other.start)
        follows = at == 0 or kept[at - 1].end <= match.start
        if follows and (at == len(kept) or match.end <= kept[at].start):
            kept.insert(at, match)
    return kept
