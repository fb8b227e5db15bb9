from __future__ import annotations

import random
import re
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawblox.checkpoint.secrets import matching
from clawblox.checkpoint.secrets.matching import find_matches
from clawblox.checkpoint.secrets.patterns import accelerator
from clawblox.checkpoint.secrets.patterns.accelerator import (
    Untranslatable,
    can_match,
    widen_pattern,
)
from clawblox.checkpoint.secrets.patterns.known import KnownSecrets
from clawblox.checkpoint.secrets.patterns.rules import CONTEXT_RULES, WORD_RULES, Rule
from tests.checkpoint.secrets.fakes import EMBEDDINGS, FAMILIES, fake, rule_name
from tests.checkpoint.secrets.test_clean import CLEAN
from tests.checkpoint.secrets.wrapping import ENCODINGS
from tests.support.sampling import sampled

re2 = pytest.importorskip("re2")

RULES = (*WORD_RULES, *CONTEXT_RULES)
SEED = random.randrange(1 << 32)
KNOWN = KnownSecrets({"label": "a-value-that-is-known-1"})
UNKNOWN = KnownSecrets({})
FAKES = [fake(family).encode() for family in FAMILIES]


@pytest.fixture
def retranslated():
    """Translate the rules again in this test and after it."""
    accelerator._search.cache_clear()
    yield
    accelerator._search.cache_clear()


def matches(text: bytes, known: KnownSecrets, search=can_match):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "can_match", search)
        return list(find_matches(text, known))


def assert_same(text: bytes) -> None:
    """Check that the findings in a text are the same with and without RE2."""
    for known in (UNKNOWN, KNOWN):
        assert matches(text, known) == matches(text, known, search=lambda _: True), SEED


def make_search(pattern: re.Pattern[bytes]):
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(widen_pattern(pattern), options).search


@pytest.mark.usefixtures("retranslated")
def test_re2_is_used_if_it_is_installed() -> None:
    assert accelerator._search() is not None
    assert not can_match(b"Nothing to be seen in this line, and 7 words more.\n" * 3000)


def test_every_rule_is_widened() -> None:
    for rule in RULES:
        search = make_search(rule.pattern)
        assert not search(b""), rule.name
        matching = [text for text in FAKES if rule.pattern.search(text)]
        assert all(search(text) for text in matching), rule.name


@pytest.mark.thorough
@pytest.mark.parametrize("family", sampled(FAMILIES, 4))
def test_every_fake_is_found_with_and_without_re2(family: str) -> None:
    for embedding, embed in EMBEDDINGS.items():
        text = embed(fake(family, embedding)).encode()
        assert rule_name(family) in {match.rule for match in matches(text, UNKNOWN)}
        assert_same(text)
    for encoding in random.Random(f"{SEED} {family}").sample(sorted(ENCODINGS), 6):
        assert_same_in(encoding, family)


@pytest.mark.thorough
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_fake_has_the_same_findings_with_and_without_re2_in_every_encoding(
    encoding: str,
) -> None:
    for family in FAMILIES:
        assert_same_in(encoding, family)


def assert_same_in(encoding: str, family: str) -> None:
    assert_same(ENCODINGS[encoding](b"some text\n" + fake(family).encode()))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", CLEAN)
def test_clean_text_is_clean_with_and_without_re2(kind: str) -> None:
    text = CLEAN[kind]()
    for at in range(0, len(text), 128 << 10):
        assert_same(text[at : at + (140 << 10)])


def test_a_known_value_is_found_where_no_rule_matches() -> None:
    (match,) = matches(b"it is a-value-that-is-known-1.", KNOWN)
    assert match.rule == "known-value:label"


@st.composite
def fragments(draw: st.DrawFn) -> bytes:
    """Draw a fake or a part of a fake, perhaps damaged, or significant characters."""
    text = bytearray(draw(st.sampled_from(FAKES)))
    start = draw(st.integers(0, 9))
    del text[len(text) - draw(st.integers(0, 40)) :], text[:start]
    if text and draw(st.booleans()):
        text[draw(st.integers(0, len(text) - 1))] = draw(st.integers(0, 255))
    return draw(st.sampled_from((bytes, bytes.lower, bytes.upper)))(bytes(text))


NOISE = st.one_of(
    st.binary(max_size=6),
    st.sampled_from([b"\\n", b"\x0b", b"\\\\n", b"=", b'"', b": ", b"KEY=", b"://", b"%3D", b"\0"]),
)


@pytest.mark.thorough
@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(fragments(), NOISE), max_size=8).map(b"".join))
def test_a_random_embedding_is_found_with_and_without_re2(text: bytes) -> None:
    assert_same(text)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, marks=pytest.mark.thorough if at % 4 else ())
        for at, rule in enumerate(RULES)
    ],
    ids=lambda rule: rule.name,
)
def test_a_text_that_a_rule_matches_is_never_skipped(rule: Rule, data: st.DataObject) -> None:
    before, after = data.draw(st.binary(max_size=4)), data.draw(st.binary(max_size=4))
    text = before + data.draw(st.from_regex(rule.pattern)) + after
    assert rule.pattern.search(text) is None or can_match(text)


PATTERNS = (
    re.compile(rb"a\sb"), re.compile(rb"a[\s.]b"), re.compile(rb"a[^\s]b"), re.compile(rb"a\Wb"),
    re.compile(rb"K[^a]k", re.IGNORECASE), re.compile(rb"a(?-i:b)A", re.IGNORECASE),
    re.compile(rb"a(?i:b)[a-b]"), re.compile(rb"a.b"), re.compile(rb"a.b", re.DOTALL),
    re.compile(rb"[^\x80-\xff]a[\xe0-\xff]", re.IGNORECASE), re.compile(rb"(?<=\xe9)a(?!b)$"),
    re.compile(rb"^(?:a|bb){2,3}?\b"), re.compile(rb"[^a]b[^AB]", re.IGNORECASE | re.DOTALL),
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: ascii(pattern.pattern))
def test_a_widened_pattern_matches_wherever_the_original_does(pattern: re.Pattern[bytes]) -> None:
    search = make_search(pattern)
    choose = random.Random(1)
    texts = [bytes(choose.choices(b"aAbBkK\n\x0b .\xe0\xc0\xe9", k=5)) for _ in range(20_000)]
    matching = [text for text in texts if pattern.search(text)]
    assert matching
    assert all(search(text) for text in matching)
    assert not all(search(text) for text in texts)


UNTRANSLATABLE = (rb"(a)\1", rb"a++", rb"(?>a)b", rb"(?m)a", rb"(?L)a", rb"(a)?(?(1)b|c)")


@pytest.mark.usefixtures("retranslated")
@pytest.mark.parametrize("body", UNTRANSLATABLE)
def test_one_rule_that_cannot_be_widened_disables_re2(
    monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    rule = Rule(name="new", keywords=(b"a",), regex=body)
    with pytest.raises(Untranslatable):
        widen_pattern(rule.pattern)
    monkeypatch.setattr(accelerator, "WORD_RULES", (*WORD_RULES, rule))
    assert accelerator._search() is None
    assert can_match(b"")


@pytest.mark.usefixtures("retranslated")
@pytest.mark.parametrize(
    ("name", "module"), [("re2", None), ("re2", re), ("re2", 7), ("re._parser", None)]
)
def test_without_re2_every_text_is_searched(
    monkeypatch: pytest.MonkeyPatch, name: str, module: object
) -> None:
    monkeypatch.setitem(sys.modules, name, module)
    assert accelerator._search() is None
    assert can_match(b"")


@pytest.mark.usefixtures("retranslated")
def test_a_pattern_that_re2_refuses_disables_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "widen_pattern", lambda _: b"(")
    assert accelerator._search() is None
    assert can_match(b"")
