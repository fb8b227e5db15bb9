"""Foreign text for people cannot control a terminal, and is shown completely."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawblox import printable as module
from clawblox.printable import (
    is_printable,
    printable,
    printable_json,
    printable_lines,
    printable_name,
    quote_words,
)

HOSTILE = st.text(
    st.characters() | st.sampled_from("\x1b\x07\r\n\t\x9b\u202e\u200b\U000e0041\ud800")
)
UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def unsafe(text: str) -> set[str]:
    return {char for char in text if unicodedata.category(char) in UNSAFE}


@given(HOSTILE)
def test_printable_text_contains_no_unsafe_character(text: str) -> None:
    assert not unsafe(printable_name(text))
    assert not unsafe(printable(text))
    assert unsafe(printable_lines(text)) <= {"\n", "\t"}
    assert not unsafe(printable_json(json.dumps(text, ensure_ascii=False)))


@given(HOSTILE)
def test_a_json_document_keeps_its_value(text: str) -> None:
    assert json.loads(printable_json(json.dumps([text], ensure_ascii=False, indent=2))) == [text]


@given(st.text(st.characters(blacklist_characters="\\")))
def test_a_printable_name_can_be_parsed_back(text: str) -> None:
    shown = printable_name(text)
    assert shown.encode("latin-1", "backslashreplace").decode("unicode_escape") == text


@pytest.mark.parametrize("text", ["Größe 日本 ✓ ── ●", "e\u0301 😀", "a\u00a0b", "plain"])
def test_text_of_any_language_is_unchanged(text: str) -> None:
    assert printable_name(text) == printable_lines(text) == text


def test_newlines_of_other_systems_are_not_escaped() -> None:
    assert printable_lines("one\r\ntwo\r\n\x1b") == "one\ntwo\n\\x1b"
    assert printable("one\r\ntwo") == "one"


_BYTES = st.binary(max_size=20) | st.sampled_from((b"'; id; '", b"$(id)\n`id`", b"\\'\x1b7"))


@settings(max_examples=25)
@given(st.lists(HOSTILE.map(lambda text: text.encode(errors="surrogatepass")) | _BYTES, min_size=1))
def test_a_shell_parses_a_shown_command_line_into_its_words(words: list[bytes]) -> None:
    words = [word.replace(b"\0", b"") for word in words]
    line = quote_words(map(os.fsdecode, words))
    assert printable_name(line) == printable(line) == line
    command = ["/bin/bash", "-c", f"printf '%s\\0' {line}"]
    done = subprocess.run(command, capture_output=True, check=True, env={"LC_ALL": "C"})
    assert done.stdout == b"".join(word + b"\0" for word in words)


def test_the_module_works_as_a_filter_for_shells() -> None:
    command = [sys.executable, "-IS", module.__file__]
    text = "é\x1b]0;title\x07\n".encode() + b"\xff\r\nend"
    done = subprocess.run(command, input=text, capture_output=True, check=True, env={})
    assert done.stdout.decode() == "é\\x1b]0;title\\x07\n\ufffd\nend"


WOMAN, BROWN = "\U0001f469", "\U0001f3fd"


@pytest.mark.parametrize(
    "text",
    [
        f"Zoë {WOMAN}\u200d\U0001f52c {WOMAN}{BROWN}\u200d\U0001f680",
        f"\u2764\ufe0f\u200d\U0001f525 {WOMAN}\u200d{WOMAN}\u200d{WOMAN}",
        "\u2714\ufe0f 1\ufe0f\u20e3 \u2194\ufe0f \u00a9\ufe0f",
    ],
)
def test_emoji_of_several_characters_are_shown(text: str) -> None:
    assert is_printable(text)
    assert printable_name(text) == printable(text) == printable_lines(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a\u200db",
        f"\u200d{WOMAN}",
        f"{WOMAN}\u200d",
        f"{WOMAN}\u200db",
        f"{WOMAN}\u200d\u200d{WOMAN}",
        f"{WOMAN}\u200d{BROWN}",
        "a\ufe0f",
        "a\ufe00",
        f"{WOMAN}\ufe0f\ufe0f",
        "1\ufe0f",
        "\U000e0061",
    ],
)
def test_an_invisible_character_outside_an_emoji_is_escaped(text: str) -> None:
    assert "\u200d" not in text or not is_printable(text)
    for shown in (printable_name(text), printable_lines(text)):
        assert shown != text
        assert shown.encode("latin-1", "backslashreplace").decode("unicode_escape") == text
