"""What a member may be called, and what names are taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.checkpoint.names import check_name, fold, is_name, split_name
from clawblox.errors import CheckpointPathError

BELOW = "agents/a/workspace/"


@pytest.mark.parametrize(
    "name",
    [
        "metadata.json",
        "world.snapshot",
        "agents/a/workspace/x",
        "agents/Ana María/workspace/.hidden/ünï/日本.txt",
        "agents/a/session/transcript.jsonl",
        "agents/a/workspace/~",
        "agents/a/workspace/a file, (with) [signs] #1~",
        "agents/a/workspace/" + "x" * 255,
        "agents/a/workspace/" + "é" * 127,
        "agents/a/workspace/" + "/".join("d" * 61),
        "agents/a/workspace/NUL.txt",
    ],
)
def test_a_canonical_name_is_allowed(name):
    check_name(name)
    assert is_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "not canonical"),
        ("/etc/passwd", "not canonical"),
        ("//srv/x", "not canonical"),
        ("~/x", "not in a directory of a checkpoint"),
        ("C:/x", "U+003A"),
        ("C:x", "U+003A"),
        (BELOW + "f:stream", "U+003A"),
        ("\\\\srv\\x", "U+005C"),
        ("\\\\?\\C", "U+005C"),
        (BELOW + "..\\..\\x", "U+005C"),
        ("../x", "not canonical"),
        (BELOW + "../x", "not canonical"),
        (BELOW + "x/..", "not canonical"),
        (BELOW + "./x", "not canonical"),
        (BELOW + "a//b", "not canonical"),
        (BELOW + "dir/", "not canonical"),
        ("agents/../workspace/x", "not canonical"),
        (BELOW + "a\0b", "U+0000"),
        (BELOW + "a\nb", "U+000A"),
        (BELOW + "a\rb", "U+000D"),
        (BELOW + "a\x1b[2Jb", "U+001B"),
        (BELOW + "a\x7fb", "U+007F"),
        (BELOW + "a\x85b", "U+0085"),
        (BELOW + "a\u202etxt.exe", "U+202E"),
        (BELOW + "a\u2066b", "U+2066"),
        (BELOW + "a\u200cb", "U+200C"),
        (BELOW + "a\u200bb", "U+200B"),
        (BELOW + "a\ufeffb", "U+FEFF"),
        (BELOW + "a\u00adb", "U+00AD"),
        (BELOW + "a\u2028b", "U+2028"),
        (BELOW + "a\udc80b", "not UTF-8"),
        (BELOW + "dot.", "ends with a dot"),
        (BELOW + "space /x", "ends with a dot or a space"),
        (BELOW + "x" * 256, "longer than 255 bytes"),
        (BELOW + "é" * 128, "longer than 255 bytes"),
        (BELOW + "/".join(["x" * 200] * 25), "longer than 4096 bytes"),
        (BELOW + "/".join("d" * 62), "deeper than 64"),
        ("readme.txt", "not in a directory of a checkpoint"),
        ("Metadata.json", "not in a directory of a checkpoint"),
        ("agents/a", "not in a directory of a checkpoint"),
        ("agents/a/workspace", "not in a directory of a checkpoint"),
        ("agents/a/home/x", "not in a directory of a checkpoint"),
        ("agents/a/Workspace/x", "not in a directory of a checkpoint"),
        ("agents/a/b/workspace/x", "not in a directory of a checkpoint"),
        ("world.snapshot/x", "not in a directory of a checkpoint"),
    ],
)
def test_any_other_name_is_refused_with_the_reason(name, reason):
    with pytest.raises(CheckpointPathError) as refused:
        check_name(name)
    assert reason in refused.value.message
    assert refused.value.entry == name
    assert not is_name(name)


def test_a_refused_name_reaches_no_terminal_as_it_is():
    with pytest.raises(CheckpointPathError) as refused:
        check_name(BELOW + "\x1b[2J\u202e" + "x" * 500)
    assert "\x1b" not in str(refused.value)
    assert "\u202e" not in str(refused.value)
    assert len(str(refused.value)) < 250


@given(st.text())
def test_an_allowed_name_stays_below_its_root(text):
    name = BELOW + text
    if is_name(name):
        assert split_name(name) == ("a", "workspace", text)
        assert not {"", ".", ".."} & set(name.split("/"))
        assert text.isprintable() or not text.isascii()


@pytest.mark.parametrize(
    "spelling",
    [
        ".claude.json",
        ".CLAUDE.json",
        ".claude.json. .",
        ".cla\u200cude.json",
        "\ufeff.claude.json",
        ".\uff43\uff4c\uff41\uff55\uff44\uff45.json",
        "\u2024claude.json",
        ".claude.j\u017fon",
    ],
)
def test_what_may_be_taken_for_one_name_folds_to_it(spelling):
    assert fold(spelling) == ".claude.json"


@given(st.text())
def test_folding_twice_changes_nothing(text):
    assert fold(fold(text)) == fold(text)
