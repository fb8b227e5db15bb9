"""The string library, especially patterns."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.machine import current
from clawblox.luau.lib.support.fastpatterns import search
from clawblox.luau.lib.support.patterns import Matcher, parse_pattern
from clawblox.luau.lib.support.textformat import Convert, _convert, _read_plan, _refuse
from clawblox.luau.vm import VM
from tests.luau.support import check_values, failure, run_plainly, value, values

EXPRESSIONS: dict[str, tuple[object, ...]] = {
    "('hello'):sub(2, -2), ('hello'):sub(-3), ('hello'):sub(0), ('x'):sub(2)": ("ell", "llo", "hello", ""),
    "('abc'):byte(1, -1)": (97.0, 98.0, 99.0),
    "string.char(72, 105), ('abc'):reverse(), ('aB1'):upper(), ('aB1'):lower()": ("Hi", "cba", "AB1", "ab1"),
    "('ab'):rep(3, '-'), ('x'):rep(0), ('x'):rep(-1), ('abc'):len()": ("ababab", "", "", 3.0),
    "#('a,b,,c'):split(','), ('abc'):split('')[2], (''):split(',')[1]": (4.0, "b", ""),
    "('hello world'):find('o w')": (5.0, 7.0),
    "('hello'):find('l', 1, true)": (3.0, 3.0),
    "('a.b'):find('.', 2, true), ('a+b'):find('+', 1, true)": (2.0, 2.0, 2.0),
    "('hello'):find('')": (1.0, 0.0),
    "('hello'):find('', 10), ('hello'):find('', 6)": (None, 6.0, 5.0),
    "('key = value'):match('^(%w+)%s*=%s*(%w+)$')": ("key", "value"),
    "('2024-01-02'):match('(%d+)-(%d+)-(%d+)')": ("2024", "01", "02"),
    "('hello'):match('()ll()')": (3.0, 5.0),
    "('f(a(b)c)d'):match('%b()')": ("(a(b)c)",),
    "('THE (quick) fox'):find('%((%a+)%)')": (5.0, 11.0, "quick"),
    "('THE (quick) fox'):gsub('%f[%a]%a+', 'x')": ("x (x) x", 3.0),
    "('abcabc'):match('(a)(b).-%1%2')": ("a", "b"),
    "('x'):gsub('', '-')": ("-x-", 2.0),
    "('hello'):gsub('l', {l = 'L'}), (('hello'):gsub('.', {h = false}))": ("heLLo", "hello"),
    "('hello'):gsub('l+', function(s) return #s end)": ("he2o", 1.0),
    "('abc'):gsub('%w', '%0%0', 2)": ("aabbc", 2.0),
    "('a b'):gsub('(%w) (%w)', '%2 %1')": ("b a", 1.0),
    "('abc'):gsub('^a', 'x'), ('aaa'):gsub('^a', 'x')": ("xbc", "xaa", 1.0),
    "('a-b'):match('[%a-]+'), ('a]b'):match('[]]'), ('a^b'):match('[%^]')": ("a-b", "]", "^"),
    "('äö'):len(), ('\\u{48}'):byte()": (4.0, 72.0),
    "('%5.1f|%-5d|%05d|%+d|%x|%X|%o'):format(3.14159, 42, 42, 42, 255, 255, 8)": (
        "  3.1|42   |00042|+42|ff|FF|10",
    ),
    "('%s %q %c %g %e %%'):format(1.5, 'a\"b', 65, 0.1, 12345.678)": (
        '1.5 "a\\"b" A 0.1 1.234568e+04 %',
    ),
    "('%s|%5s|%.2s'):format('a\\0b', 'c\\0d', 'e\\0f'), #('%9s'):format(('x'):rep(100))": (
        "a\0b|    c|e", 100.0,
    ),
    "('%*, %*'):format(1.5, {} ~= nil), ('%10.3s|'):format('abcdef')": ("1.5, true", "       abc|"),
    "('%i'):format(-3.7), ('%+u'):format(3), ('%#.3o|%#o'):format(8, 8)": ("-3", "3", "010|010"),
    "string.packsize('j'), string.packsize('T'), string.pack('>s', 'ab')": (4.0, 4.0, "\0\0\0\2ab"),
    "string.pack('>I10', -1), string.pack('>i9', -1)": ("\0\0" + "\xff" * 8, "\xff" * 9),
    "string.unpack('B', '\\5\\6', 0), string.unpack('B', '\\5\\6', -9)": (5.0, 5.0, 2.0),
    "pcall(string.unpack, 'B', '\\5\\6', 4)": (
        False, "invalid argument #3 to 'unpack' (initial position out of string)",
    ),
    "pcall(string.packsize, 'z'), pcall(string.packsize, 's')": (
        False, False, "invalid argument #1 to 'packsize' (variable-length format)",
    ),
    "string.packsize('<i4 i8 !8 d'), string.pack('>I2', 258)": (24.0, "\x01\x02"),
    "string.unpack('<i2 z s1 B', string.pack('<i2 z s1 B', -2, 'hi', 'yo', 255))": (
        -2.0, "hi", "yo", 255.0, 10.0,
    ),
}  # fmt: skip


def test_string_functions_return_the_same_values_as_luau() -> None:
    check_values(EXPRESSIONS)


REFUSED = {
    "('%s'):format(nil)": "invalid argument #2 to 'format' (string expected, got nil)",
    "('%s'):format(setmetatable({}, {__tostring = tostring}))": (
        "invalid argument #2 to 'format' (string expected, got table)"
    ),
    "('%d %d'):format(1)": "missing argument #3",
    "('%*'):format()": "missing argument #2",
    "('%a'):format(1)": "invalid option '%a' to 'format'",
    "('a'):gsub('a', '%2')": "invalid capture index",
    "('a'):gsub('a', '%')": "invalid use of '%' in replacement string",
    r"('a'):gsub('a', '%\xb2')": "invalid use of '%' in replacement string",
}


def test_invalid_string_calls_are_refused() -> None:
    messages = {source: failure(f"return {source}") for source in REFUSED}
    assert messages == {source: f"test:1: {message}" for source, message in REFUSED.items()}


def test_a_set_ends_at_a_bracket_that_is_neither_first_nor_escaped() -> None:
    assert values("('x]'):find('[]x]+'), ('-]'):match('[a-%]]'), ('b]'):match('[a-]]')") == (
        1.0, "]", None,
    )  # fmt: skip


def test_fields_of_a_string_come_from_its_library() -> None:
    assert value("('abc').len == string.len")
    assert values("('abc')[1], ('abc')[true], ('abc')[nil], ('abc').nope") == (None,) * 4


def test_position_capture_cannot_be_repeated() -> None:
    assert values("('aa'):find('()a%1'), ('aa'):match('(a)%1')") == (None, "a")


def test_gmatch_finds_the_empty_match_after_another_match() -> None:
    assert run_plainly("for w in ('ab,'):gmatch('%a*') do print('<' .. w .. '>') end") == [
        "<ab>",
        "<>",
        "<>",
    ]


MALFORMED = {
    "[a": "malformed pattern (missing ']')",
    "[a-%]": "malformed pattern (missing ']')",
    "%": "malformed pattern (ends with '%')",
    "%f": "missing '[' after '%f' in pattern",
    "%b": "malformed pattern (missing arguments to '%b')",
    "(a": "unfinished capture",
    "(a))": "invalid pattern capture",
    "%1": "invalid capture index %1",
}


def test_malformed_patterns_are_refused() -> None:
    messages = {
        pattern: value(f"select(2, pcall(string.find, 'a', '{pattern}'))") for pattern in MALFORMED
    }
    assert messages == MALFORMED


subjects = st.text("ab1 -", max_size=12)
pieces = st.sampled_from(
    ["a", "b", ".", "%a", "%d", "%s", "[ab]", "[^a]", "%-", "%w", "(", ")", "()", "%f[%w]"]
)
patterns = st.lists(st.tuples(pieces, st.sampled_from(["", "", "*", "+", "-", "?"])), max_size=5)


def build(parts: list[tuple[str, str]]) -> str:
    depth, text = 0, ""
    for piece, repeat in parts:
        if piece == ")":
            if not depth:
                continue
            depth -= 1
        depth += piece == "("
        text += piece + (repeat if piece[0] not in "()" and piece != "%f[%w]" else "")
    return text + ")" * depth


@given(subjects, patterns.map(build))
def test_fast_matcher_agrees_with_the_exact_matcher(subject: str, pattern: str) -> None:
    vm = VM()
    with vm.entered():
        assert current.vm is vm
        found = search(subject, pattern, 0)
        matcher = Matcher(subject, parse_pattern(pattern))
        exact = next(
            ((at, end) for at in range(len(subject) + 1) if (end := matcher.match(at)) is not None),
            None,
        )
        if found is None or exact is None:
            assert found is None
            assert exact is None
            return
        assert (found.start, found.end) == exact
        start, end = exact
        assert found.captures(whole=True) == (matcher.groups() or (subject[start:end],))


@given(st.text("abc.%", max_size=20), st.text("abc.%", max_size=3))
def test_plain_find_ignores_pattern_characters(subject: str, needle: str) -> None:
    at = subject.find(needle)
    expected = (None,) if at < 0 else (float(at + 1), float(at + len(needle)))
    assert values(f"string.find({subject!r}, {needle!r}, 1, true)") == expected


@pytest.mark.thorough
@given(
    st.text(max_size=30).map(lambda text: text.encode().decode("latin-1")),
    st.integers(-40, 40),
    st.integers(-40, 40),
)
def test_string_sub_returns_a_slice(text: str, start: int, end: int) -> None:
    size = len(text)
    first = max(start if start >= 0 else size + start + 1, 1)
    last = min(end if end >= 0 else size + end + 1, size)
    vm = VM()
    vm.globals["text"] = text
    assert vm.call(vm.load(f"return text:sub({start}, {end})")) == (
        text[first - 1 : max(last, 0)] if last >= first else "",
    )


@pytest.mark.thorough
@given(
    st.lists(st.tuples(st.sampled_from("bBhHiIlLjJ"), st.integers(-128, 127)), max_size=8),
    st.sampled_from("<>"),
)
def test_packed_integers_are_unpacked_unchanged(items: list[tuple[str, int]], order: str) -> None:
    items = [(kind, abs(number) if kind.isupper() else number) for kind, number in items]
    form = order + "".join(kind for kind, _ in items)
    arguments = "".join(f", {number}" for _, number in items)
    got = values(f"string.unpack('{form}', string.pack('{form}'{arguments}))")
    assert got[:-1] == tuple(float(number) for _, number in items)
    assert got[-1] == value(f"string.packsize('{form}')") + 1


def test_gmatch_continues_at_its_position_after_a_restore() -> None:
    assert run_plainly("for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do print(k, v) end") == [
        "a\t1", "b\t2",
    ]  # fmt: skip


def test_patterns_with_many_repeats_on_long_texts_stay_exact() -> None:
    text = "a" * 300 + "b"
    assert value(f"#('{text}'):match('a*a*a*a*b')") == 301.0
    assert re.match("a+b", text)


CONVERSIONS = st.tuples(
    st.sampled_from(["", "-", "+", " ", "0", "#", "-0"]),
    st.sampled_from(["", "1", "9", "30", "100"]),
    st.sampled_from(["", ".", ".0", ".3", ".20", ".100"]),
    st.sampled_from("cdiuoxXeEfgGsq*y%"),
).map(lambda parts: "%" + "".join(parts))
ARGUMENTS = st.floats(width=64) | st.text(st.characters(max_codepoint=255), max_size=3) | st.none()


@given(CONVERSIONS, ARGUMENTS)
def test_fast_conversions_give_the_same_text_as_exact_conversions(
    form: str, argument: object
) -> None:
    def outcome(convert: Convert, spec: re.Match[str]) -> str:
        try:
            return convert(spec, ("", argument), 1)
        except RuntimeFault as fault:
            return f"error: {fault.value}"

    with VM().entered():
        for _, convert, spec in _read_plan(form)[1]:
            if convert is not _refuse:
                assert outcome(convert, spec) == outcome(_convert, spec)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ("('%d %y'):format(1, 2)", "invalid option '%y' to 'format'"),
        (
            "('%d %y'):format('a', 2)",
            "invalid argument #2 to 'format' (number expected, got string)",
        ),
        ("('%d %y'):format(1)", "missing argument #3"),
        ("(('-'):rep(300) .. '%0123d'):format(1)", "invalid format (width or precision too long)"),
    ],
)
def test_the_first_fault_of_a_format_is_reported(call: str, fault: str) -> None:
    assert value(f"select(2, pcall(function() return {call} end))").endswith(fault)
