"""Names of chains, agents and files that stay the same when a plan is extended. Pure.

The word of a swept value depends on the value and on the values before it in its list, so appended
values rename nothing. It is the last word of letters of a text (``claude-fable-5``:
``fable``), the whole text if it has no such word, and the key with the value for numbers and
booleans (``turns20``, ``no_record``). If an earlier value has the same word, the whole text is
used, then a number is appended. Words contain no ``-``, so joining them by ``-`` is unambiguous.

A long value (a text of several words or of more than 40 characters, or a table) is used whole
if it fits, else as its first words with a digest: ``Play_the_game_3f2a91``. Only the last step of a
path counts, because directories move. Experiments of earlier versions use rules 1, without digests;
there a swept value may have the label of branches.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.config.arguments import checked, mismatch
from clawblox.experiment.plan.values import fields_by_key, to_optional, to_plain

NAME_PATTERN: Final = r"\A(?!\.+\Z)[A-Za-z0-9._-]{1,255}\Z"
"""Names of chains, runs and agents, given by this package or by the public generation scripts."""

BRANCH_LABEL: Final = "prompt"
"""Label of branches: the short name of their first message."""

_DISPLAY_NAMES: Final = ("Eko", "Moa", "Rua", "Tavi", "Oni", "Zev", "Ika", "Pala")
_NAME: Final = re.compile(r"[^.-].{0,63}", re.DOTALL)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_NOT_IN_WORDS: Final = re.compile(r"[^A-Za-z0-9.]+")
_LETTERS: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{3,}(?![A-Za-z0-9])")
_COPY: Final = re.compile(r"^(?:[0-9a-f]{16}-)+(?=.)")
NAMINGS: Final = (1, 2)
"""The versions of the rules for names; new experiments use the last."""

_MAX_COPY_CHARS: Final = 200
_MAX_PLAIN_CHARS: Final = 40
_STEM_CHARS: Final = 13
_STEM_DIGEST_CHARS: Final = 6
_MAX_WORD_CHARS: Final = 20
_MAX_BASE_CHARS: Final = 38
_DIGEST_CHARS: Final = {1: 8, 2: 12}
"""Length of the digest of joined words, by rules; ten thousand chains must differ."""
_MAX_LABEL_CHARS: Final = 60
_LABEL_START_CHARS: Final = 50


def safe_name(text: str) -> str:
    """Return a name for files; ``_`` replaces all but letters, digits, ``.``, ``_`` and ``-``."""
    return _UNSAFE.sub("_", text)


def to_name(value: str | None) -> Any:  # noqa: ANN401 - None and False are replaced
    """Return a name for files; None for False, and every other value unchanged."""
    return safe_name(value) if isinstance(value, str) else to_optional(value)


def _check_name(value: object, key: str) -> None:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise mismatch(key, "1 to 64 characters, the first neither '.' nor '-'", value)


OPTIONAL_NAME: Final = checked(_check_name, optional=True)
"""Accepts names of experiments, prefixes of names of runs, and None."""


def numbered(text: str) -> Iterator[str]:
    """Yield a text, then the text with a dot and a number: ``x``, ``x.2``, ``x.3``, …."""
    return itertools.chain([text], (f"{text}.{number}" for number in itertools.count(2)))


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
        name: Name of the original or of a copy.
    """
    return f"{digest[:16]}-{original_name(name)}"


def original_name(name: str) -> str:
    """Return the name of the original for the name of a copy; other names are only made safe."""
    return safe_name(_COPY.sub("", name))[:_MAX_COPY_CHARS]


def choose_words(path: str, values: Sequence[Any], naming: int = NAMINGS[-1]) -> list[str]:
    """Return a different word for each value of a swept path.

    Args:
        path: The path.
        values: The values.
        naming: The rules.
    """
    words: list[str] = []
    for value in values:
        words.append(next(word for word in _spellings(path, value, naming) if word not in words))
    return words


def choose_labels(
    path: str, values: Sequence[Any], words: Sequence[str], naming: int
) -> list[str | int | float | bool]:
    """Return a different label for each value of a swept path.

    With rules 1, values with the same last word have the same label.

    Args:
        path: The path.
        values: The values.
        words: Their words.
        naming: The rules.
    """
    labels: list[str | int | float | bool] = []
    for value, word in zip(values, words, strict=True):
        label = label_value(path, value, naming)
        others = (f"{label}.{number}" for number in itertools.count(2))
        choices = itertools.chain([label, word], others)
        labels.append(next(choice for choice in choices if choice not in labels or naming == 1))
    return labels


def chain_name(base: str, suffix: str, naming: int) -> str:
    """Return the name of a chain: the words of its condition, then its repeat or seed.

    Args:
        base: The joined words; a long text is truncated and ends in a digest.
        suffix: Such as ``r1`` or ``s7``.
        naming: The rules.
    """
    if len(base) > _MAX_BASE_CHARS:
        chars = _DIGEST_CHARS[naming]
        base = f"{base[: _MAX_BASE_CHARS - chars - 1]}_{_digest(base, chars)}"
    return f"{base}-{suffix}" if base else suffix


def label_keys(paths: Sequence[str], naming: int = NAMINGS[-1]) -> dict[str, str]:
    """Return a short key for each path: its last step, with earlier steps if that is taken.

    Args:
        paths: The paths.
        naming: The rules. With rules 1, a key may be the label of branches.
    """
    if naming == 1:
        return {path: _label_key(path, _distinct_steps(path, paths)) for path in paths}
    short = [path.replace(".*.", ".", 1) for path in paths]
    keys = (_label_key(path, _distinct_steps(path, short, BRANCH_LABEL)) for path in short)
    return dict(zip(paths, keys, strict=True))


def _distinct_steps(path: str, paths: Sequence[str], taken: str = "") -> int:
    """Return the number of last steps that distinguish a path from the others and a taken key."""
    for steps in range(1, path.count(".") + 1):
        keys = [taken, *(_label_key(other, steps) for other in paths)]
        if keys.count(_label_key(path, steps)) == 1:
            return steps
    return path.count(".") + 1


def label_value(path: str, value: Any, naming: int) -> str | int | float | bool:  # noqa: ANN401
    """Return the label for a swept value."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, int | float):
        return value
    if isinstance(value, str) and value.isprintable() and 0 < len(value) <= _MAX_LABEL_CHARS:
        return value
    if isinstance(value, Path):
        return original_name(value.name)[:_MAX_LABEL_CHARS] or "_"
    if isinstance(value, str) and value.strip() and naming > 1:
        start = "".join(filter(str.isprintable, " ".join(value.split())))
        return f"{start[:_LABEL_START_CHARS].rstrip()}… {_digest(value)}".lstrip("… ")
    return next(_spellings(path, value, naming))


def _label_key(path: str, steps: int) -> str:
    key = re.sub(r"[^A-Za-z0-9_]+", "_", "_".join(path.split(".")[-steps:])).strip("_")
    return key[:_MAX_LABEL_CHARS] if key[:1].isalpha() else f"v{key}"[:_MAX_LABEL_CHARS]


def _spellings(path: str, value: Any, naming: int) -> Iterator[str]:  # noqa: ANN401 - any value
    key = _to_word(path.rpartition(".")[2]) or "value"
    match value:
        case None | False:
            short = whole = f"no_{key}"
        case True:
            short = whole = key
        case int() | float():
            short = whole = f"{key}{_to_word(f'{value:.10g}')}"
        case Path():
            short, whole = _text_words(key, original_name(value.name), naming)
        case str():
            short, whole = _text_words(key, value, naming)
        case _ if naming == 1:
            short = whole = _to_word("_".join(_leaves(_changed(value)))) or key
        case _:
            plain = _without_places(_changed(value))
            short = whole = _fit("_".join(_leaves(plain)), key, json.dumps(plain, sort_keys=True))
    yield short
    yield from numbered(whole)


def _text_words(key: str, text: str, naming: int) -> tuple[str, str]:
    if naming > 1 and (len(text) > _MAX_PLAIN_CHARS or len(text.split()) > 1):
        has_word = _NOT_IN_WORDS.sub("", text).strip(".")
        long = _fit(text, key, text) if has_word else _cut(text, key, text)
        return long, long
    whole = _to_word(text) if naming == 1 else _fit(text, key, text)
    if not any(character.isalpha() for character in whole):
        whole = _to_word(f"{key}{whole}")
    letters = _LETTERS.findall(text)
    if not letters:
        return whole, whole
    return _to_word(letters[-1]) if naming == 1 else _fit(letters[-1], key, text), whole


def _fit(text: str, key: str, whole: str) -> str:
    """Return a text as a word; a long text is cut and ends in a digest of ``whole``."""
    word = _NOT_IN_WORDS.sub("_", text).strip("_.")
    return word or key if len(word) <= _MAX_WORD_CHARS else _cut(text, key, whole)


def _cut(text: str, key: str, whole: str) -> str:
    """Return the first words of a text that fit, and a digest of ``whole``."""
    word = _NOT_IN_WORDS.sub("_", text).strip("_.")
    stem = word[:_STEM_CHARS]
    if len(word) > _STEM_CHARS and word[_STEM_CHARS] != "_" and "_" in stem:
        stem = stem.rpartition("_")[0]
    return f"{stem.rstrip('_.') or key[:_STEM_CHARS]}_{_digest(whole)}"


def _digest(text: str, chars: int = _STEM_DIGEST_CHARS) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:chars]


def _without_places(value: Any) -> Any:  # noqa: ANN401 - a plain value
    """Return a plain value with each absolute path reduced to its last component."""
    if isinstance(value, Mapping):
        return {key: _without_places(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_places(item) for item in value]
    is_path = isinstance(value, str) and value.startswith("/")
    return original_name(Path(value).name) if is_path else value


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
