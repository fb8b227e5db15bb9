"""Names of chains, agents and files, which stay the same when a plan is extended. Pure.

The word of a swept value depends on the value and on the values before it in its list, so values
that are appended rename nothing. It is the last word of letters of a text (``claude-fable-5``:
``fable``), the whole text where it has none, and the key with the value for numbers and booleans
(``turns20``, ``no_record``). If an earlier value has the same word, the whole text is used, then a
number is appended. Words contain no ``-``, so joining them by ``-`` is unambiguous.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.experiment.plan.values import fields_by_key, to_plain

NAME_PATTERN: Final = r"\A(?!\.+\Z)[A-Za-z0-9._-]{1,255}\Z"
"""Names of chains, runs and agents, by this package and by the public generation scripts."""

_DISPLAY_NAMES: Final = ("Eko", "Moa", "Rua", "Tavi", "Oni", "Zev", "Ika", "Pala")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_NOT_IN_WORDS: Final = re.compile(r"[^A-Za-z0-9.]+")
_LETTERS: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{3,}(?![A-Za-z0-9])")
_COPY: Final = re.compile(r"^(?:[0-9a-f]{16}-)+(?=.)")
_MAX_COPY_CHARS: Final = 200
_MAX_WORD_CHARS: Final = 20
_MAX_BASE_CHARS: Final = 38
_DIGEST_CHARS: Final = 8
_MAX_LABEL_CHARS: Final = 60


def safe_name(text: str) -> str:
    """Return a name for files, with ``_`` for all but letters, digits, ``.``, ``_`` and ``-``."""
    return _UNSAFE.sub("_", text)


def is_name(text: str) -> bool:
    """Return whether a text may be the name of a chain, a run or an agent."""
    return re.search(NAME_PATTERN, text) is not None


def display_name(index: int) -> str:
    """Return the display name of the agent at a position, counted from 0."""
    return _DISPLAY_NAMES[index] if index < len(_DISPLAY_NAMES) else f"Agent{index}"


def copy_name(digest: str, name: str) -> str:
    """Return the name of the copy of a file or directory with a digest.

    Args:
        digest: Digest of the content, in hexadecimal.
        name: Name of the original, or of a copy of it.
    """
    return f"{digest[:16]}-{original_name(name)}"


def original_name(name: str) -> str:
    """Return the name of the original for the name of a copy; other names only made safe."""
    return safe_name(_COPY.sub("", name))[:_MAX_COPY_CHARS]


def choose_words(path: str, values: Sequence[Any]) -> list[str]:
    """Return a different word for each of the values of a swept path."""
    words: list[str] = []
    for value in values:
        words.append(next(word for word in _spellings(path, value) if word not in words))
    return words


def chain_name(base: str, suffix: str) -> str:
    """Return the name of a chain: the words of its condition, then its repeat or seed.

    Args:
        base: The joined words; a long text is cut and ends in a digest.
        suffix: Such as ``r1`` or ``s7``.
    """
    if len(base) > _MAX_BASE_CHARS:
        digest = hashlib.sha256(base.encode()).hexdigest()[:_DIGEST_CHARS]
        base = f"{base[: _MAX_BASE_CHARS - _DIGEST_CHARS - 1]}_{digest}"
    return f"{base}-{suffix}" if base else suffix


def label_keys(paths: Sequence[str]) -> dict[str, str]:
    """Return a short key for each path: its last step, with earlier steps where paths share it."""
    return {path: _label_key(path, _distinct_steps(path, paths)) for path in paths}


def _distinct_steps(path: str, paths: Sequence[str]) -> int:
    """Return how many last steps of a path distinguish it from the other paths."""
    for steps in range(1, path.count(".") + 1):
        if [_label_key(other, steps) for other in paths].count(_label_key(path, steps)) == 1:
            return steps
    return path.count(".") + 1


def label_value(path: str, value: Any) -> str | int | float | bool:  # noqa: ANN401 - any value
    """Return the value of a label for a swept value."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, int | float):
        return value
    if isinstance(value, str) and value.isprintable() and 0 < len(value) <= _MAX_LABEL_CHARS:
        return value
    if isinstance(value, Path):
        return original_name(value.name)[:_MAX_LABEL_CHARS] or "_"
    return next(_spellings(path, value))


def _label_key(path: str, steps: int) -> str:
    key = re.sub(r"[^A-Za-z0-9_]+", "_", "_".join(path.split(".")[-steps:])).strip("_")
    return key[:_MAX_LABEL_CHARS] if key[:1].isalpha() else f"v{key}"[:_MAX_LABEL_CHARS]


def _spellings(path: str, value: Any) -> Iterator[str]:  # noqa: ANN401 - any value
    key = _to_word(path.rpartition(".")[2]) or "value"
    match value:
        case None | False:
            short = whole = f"no_{key}"
        case True:
            short = whole = key
        case int() | float():
            short = whole = f"{key}{_to_word(f'{value:.10g}')}"
        case Path():
            short, whole = _text_words(key, original_name(value.name))
        case str():
            short, whole = _text_words(key, value)
        case _:
            short = whole = _to_word("_".join(_leaves(_changed(value)))) or key
    yield short
    yield whole
    yield from (f"{whole}.{number}" for number in itertools.count(2))


def _text_words(key: str, text: str) -> tuple[str, str]:
    whole = _to_word(text)
    if not any(character.isalpha() for character in whole):
        whole = _to_word(f"{key}{whole}")
    letters = _LETTERS.findall(text)
    return _to_word(letters[-1]) if letters else whole, whole


def _to_word(text: str) -> str:
    return _NOT_IN_WORDS.sub("_", text).strip("_.")[:_MAX_WORD_CHARS].rstrip("_.")


def _changed(value: Any) -> Any:  # noqa: ANN401 - any value
    """Return the plain form of a value, without the defaults of a part."""
    plain = to_plain(value)
    if not attrs.has(type(value)):
        return plain
    defaults = {key: to_plain(field.default) for key, field in fields_by_key(type(value)).items()}
    return {key: item for key, item in plain.items() if item != defaults[key]}


def _leaves(value: Any) -> Iterator[str]:  # noqa: ANN401 - a plain value
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from (f"{key}{leaf}" for leaf in _leaves(item))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield str(value)
