"""Allowed names of members, and names that count as equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.checkpoint.names import (
    check_directory,
    check_name,
    check_path,
    fold,
    is_name,
    is_path,
    is_reserved,
    names_itself,
    neutral_agent,
    neutral_name,
    split_name,
)
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
        (BELOW + "/".join("d" * 253), "deeper than 255"),
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


ODD = [
    "2026-06-22T18:59:24.log",
    "Foo::Bar.3pm",
    "1766.M1P2.host:2,S",
    "back\\slash",
    "..\\..\\x",
    "dot.",
    "blank ",
    " ",
    "...",
    "family \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "soft\u00adhyphen",
    "new\nline",
    "\x1b[2J",
    "\u202etxt.exe",
    "odd:/plain",
    "odd\n/plain/x",
]
"""Paths of a workspace that Linux allows and that cannot be names of members."""


@pytest.mark.parametrize("path", ODD)
def test_a_workspace_may_have_any_path_that_linux_allows(path):
    check_path(BELOW + path)
    assert not is_name(BELOW + path)
    assert split_name(BELOW + path) == ("a", "workspace", path)


@pytest.mark.parametrize("path", ODD)
def test_names_outside_workspaces_stay_strict(path):
    for name in (f"agents/a/session/{path}", f"agents/{path}/workspace/x"):
        assert not is_path(name)
    with pytest.raises(CheckpointPathError):
        check_name(BELOW + path)
    with pytest.raises(CheckpointPathError):
        check_directory(BELOW + path + "/")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("..", "not canonical"),
        ("odd:/../x", "not canonical"),
        ("./odd:", "not canonical"),
        ("odd://x", "not canonical"),
        ("/odd:", "not canonical"),
        ("odd:/", "not canonical"),
        ("odd:\0", "U+0000"),
        ("odd:\udcff", "not UTF-8"),
        ("odd:" + "x" * 252, "longer than 255 bytes"),
        ("odd:/" + "/".join(["x" * 200] * 25), "longer than 4096 bytes"),
        ("odd:/" + "/".join("d" * 252), "deeper than 255"),
    ],
)
def test_an_escaping_or_too_long_or_unencodable_path_is_refused(path, reason):
    with pytest.raises(CheckpointPathError) as refused:
        check_path(BELOW + path)
    assert reason in refused.value.message
    assert not is_path(BELOW + path)


@given(st.text(st.sampled_from("a.:\\ \n/\0\u202e\udcff"), max_size=8))
def test_a_path_is_allowed_exactly_if_linux_allows_it_and_it_can_be_encoded(text):
    parts = text.split("/")
    is_canonical = {"", ".", ".."}.isdisjoint(parts)
    assert is_path(BELOW + text) == (is_canonical and "\0" not in text and "\udcff" not in text)


@pytest.mark.parametrize("number", [0, 7, 10, 999_999_999])
def test_a_neutral_name_is_never_the_name_of_another_path(number):
    name = neutral_name("Ana María", number)
    check_name(name)  # like the check of an earlier version
    assert neutral_agent(name) == "Ana María"
    assert is_reserved(name)
    assert not names_itself(name)


@pytest.mark.parametrize(
    "name",
    [
        ".renamed",
        ".renamed/x",
        ".renamed/01",
        ".renamed/+1",
        ".renamed/1/2",
        ".renamed/1\n",
        ".renamed/\u0661",
        ".renamed/1000000000",
    ],
)
def test_a_neutral_name_has_a_single_form_and_its_directory_has_no_other_names(name):
    assert neutral_agent(BELOW + name) is None
    assert is_reserved(BELOW + name)
    assert not names_itself(BELOW + name)


@pytest.mark.parametrize(
    "name",
    [
        "agents/a/workspace/x/.renamed/1",
        "agents/a/workspace/.renamed1",
        "agents/a/workspace/renamed/1",
        "agents/a/session/.renamed/1",
        "world.snapshot",
    ],
)
def test_other_names_are_not_reserved(name):
    assert neutral_agent(name) is None
    assert names_itself(name)


@pytest.mark.parametrize(
    "name",
    [
        "agents/",
        "agents/a/",
        "agents/a/workspace/",
        "agents/a/workspace/src/ü/",
        "agents/a/session/",
        "agents/a/session/subagents/",
    ],
)
def test_a_directory_that_may_contain_members_can_have_an_entry(name):
    check_directory(name)


@pytest.mark.parametrize(
    "name",
    [
        "/",
        "//",
        "./",
        "../",
        "agents//",
        "agents/../",
        "agents/a//",
        "agents/a./",
        "agents/a/home/",
        "agents/a/renamed/",
        "agents/a/workspace//",
        "agents/a/workspace/../",
        "agents/a/workspace/x//",
        "agents/a/workspace/x\n/",
        "metadata.json/",
        "world.snapshot/",
        "evil/",
    ],
)
def test_no_other_directory_can_have_an_entry(name):
    with pytest.raises(CheckpointPathError):
        check_directory(name)


def test_a_refused_name_is_escaped_in_the_error():
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
def test_spellings_that_may_be_confused_fold_to_the_same_form(spelling):
    assert fold(spelling) == ".claude.json"


@given(st.text())
def test_folding_twice_changes_nothing(text):
    assert fold(fold(text)) == fold(text)
