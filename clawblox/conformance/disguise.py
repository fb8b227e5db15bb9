"""Random words, names and variables of a check, drawn from its seed. Pure.

With fixed words, a world could recognise a check and behave well only then.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Final

_CONSONANTS: Final = "bdfgklmnprstvz"
_VOWELS: Final = "aeiou"
_SECRETS: Final = ("API_KEY", "API_TOKEN", "ACCESS_KEY", "ACCESS_TOKEN", "SECRET", "SECRET_KEY")
_AGENTS: Final = 3


def draw_word(random: Random) -> str:
    """Return a random pronounceable word."""
    syllables = random.randint(2, 3)
    return "".join(random.choice(_CONSONANTS) + random.choice(_VOWELS) for _ in range(syllables))


def draw_sentence(random: Random) -> str:
    """Return a few such words, as a chat message."""
    return " ".join(draw_word(random) for _ in range(random.randint(2, 5)))


def draw_names(random: Random) -> tuple[str, ...]:
    """Return different names for the agents."""
    names: dict[str, None] = {}
    while len(names) < _AGENTS:
        names[draw_word(random).capitalize()] = None
    return tuple(names)


def draw_variable(random: Random, taken: Collection[str]) -> str:
    """Return a name for a variable with a secret of an invented service.

    Args:
        random: Source of the choices.
        taken: Names that are in use.
    """
    while True:
        name = f"{draw_word(random).upper()}_{random.choice(_SECRETS)}"
        if name not in taken:
            return name
