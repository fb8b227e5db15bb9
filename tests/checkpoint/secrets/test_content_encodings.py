from __future__ import annotations

import base64
import random
import re

import pytest

from clawblox.checkpoint.secrets.content import STRIDE
from tests.checkpoint.secrets.fakes import EMBEDDINGS, FAMILIES, fake, rule_name, scan
from tests.checkpoint.secrets.wrapping import ENCODINGS, as_is, columns
from tests.support.sampling import sampled

SEED = random.randrange(1 << 32)
KINDS = ("picture.png", "uv.lock", "README", "model.safetensors", ".hidden", "notes.docx")


WITHIN_A_WINDOW = {"utf-16-base64", "base64-slashes-in-json"}
ESCAPES = {
    "backslash-x", "backslash-x-in-json", "backslash-u-in-json-in-json", "backslash-u-braces",
    "octal", "percent", "percent-twice", "html", "html-hexadecimal", "html-in-html",
}  # fmt: skip
"""Encodings that make a text several times as long."""

TWICE = {"base64-odd-columns", "base64-comment", "quoted-printable"}
"""Encodings in which the first line of a broken token is also found."""


SOME = 20
"""Default number of families per encoding, which change with each run."""


@pytest.mark.parametrize("count", [SOME, pytest.param(len(FAMILIES), marks=pytest.mark.thorough)])
@pytest.mark.parametrize("encoding", sampled(ENCODINGS, 3))
def test_every_family_is_found_in_every_encoding(encoding: str, count: int) -> None:
    choose = random.Random(f"{SEED} {encoding}")
    for family in choose.sample(sorted(FAMILIES), count):
        embedding, kind = choose.choice(sorted(EMBEDDINGS)), choose.choice(KINDS)
        text = "# some text before\n" + EMBEDDINGS[embedding](fake(family, embedding))
        findings = scan(ENCODINGS[encoding](text.encode()), f"agents/a/workspace/{kind}")
        case = (SEED, family, embedding, kind)
        assert rule_name(family) in {finding.rule for finding in findings}, case


TOUCHING = (
    *(r"\u201c", r"\u00e9", r"\ud83d\ude00", r"\u0007", r"\\u201c", r"\\\\u201c", r"\u{201c}"),
    *(r"\x1b", r"\xe9", r"\U0001f600", r"\342\200\234", r"\033", r"\0", r"\a", r"\b", r"\e"),
    *("%E2%80%9C", "%25E2%2580%259C", "=E2=80=9C", "&#8220;", "&ldquo;"),
)
"""Escapes directly before a token, in JSON, programs, URLs, mail and HTML."""


@pytest.mark.parametrize("family", sampled(FAMILIES, 12))
def test_a_token_directly_after_an_escape_is_found(family: str) -> None:
    for escape in TOUCHING:
        assert scan(f'{{"text": "{escape}{fake(family)}"}}'), escape


@pytest.mark.parametrize("prefix", [b"", b"# "])
def test_a_short_last_line_belongs_to_a_token(prefix: bytes) -> None:
    token = fake("firecrawl-key").encode()
    sizes = set()
    for before in range(40, 80):
        lines = columns(b"." * before + b"\n" + token, 70).rstrip(b"\n=").split(b"\n")
        sizes.add(len(lines[-1]))
        findings = scan(b"\n".join(prefix + line for line in lines), "agents/a/workspace/.hidden")
        assert {finding.rule for finding in findings} == {rule_name("firecrawl-key")}, lines
    assert {1, 2, 3} & sizes


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, 1),
        *(pytest.param(*counts, marks=pytest.mark.thorough) for counts in ((0, 1), (1, 0), (2, 1))),
    ],
)
@pytest.mark.parametrize("encoding", sampled(ENCODINGS, 8))
def test_a_token_is_found_anywhere_in_a_large_encoded_file(
    encoding: str, before: int, after: int
) -> None:
    token = fake("anthropic-oauth-token").encode()
    # Escaped or wide base64 is decoded only within a window.
    size = STRIDE // 20 if encoding in WITHIN_A_WINDOW | ESCAPES else STRIDE
    noise = base64.b85encode(random.Random(1).randbytes(size)) + b" "
    data = ENCODINGS[encoding](noise * before + token + b" " + noise * after)
    rules = [finding.rule for finding in scan(data, "file")]
    assert set(rules) == {"anthropic-oauth-token"}
    assert len(rules) == 1 or encoding in TWICE


@pytest.mark.thorough
@pytest.mark.parametrize("encoding", ["base64", "base64-lines", "base64-lines-in-json"])
@pytest.mark.parametrize("displacement", [-400, -57, -1, 0, 1, 2, 3, 19, 20])
def test_base64_on_the_edge_of_a_window_is_found(encoding: str, displacement: int) -> None:
    token = fake("github-token").encode()
    run = ENCODINGS[encoding](b"some text " * 5 + token + b" and more" * 10)
    before = b"A line of text before it.\n" * 9000
    findings = scan(before[: STRIDE + displacement - 1] + b"\n" + run + b"\n" + before)
    assert [finding.rule for finding in findings] == ["github-token"]


def test_secrets_in_short_base64_runs_are_all_found() -> None:
    tokens = [fake("github-token", n) for n in range(3)]
    text = "\n".join(f"value: {base64.b64encode(token.encode()).decode()}" for token in tokens)
    findings = scan(text)
    assert [finding.line for finding in findings] == [1, 2, 3]
    assert len({finding.fingerprint for finding in findings}) == 3


def test_a_nested_finding_is_named_by_its_path() -> None:
    token = f"first line\n{fake('github-token')}"
    ways = {
        "zip-in-zip": "file!a.jar!b.txt",
        "tar-gzip": "file!gzip!inner/file",
        "git-pack": "file!entry N",
        "git-loose": "file!zlib",
        "gzip-in-base64": "file!base64!gzip",
    }
    for encoding, path in ways.items():
        (finding,) = scan(ENCODINGS[encoding](token.encode()), "file")
        assert re.sub(r"entry \d+", "entry N", finding.path) == path
        assert finding.line == 2


def test_a_secret_has_one_fingerprint_in_every_encoding() -> None:
    secret = fake("npm-token")
    fingerprints = {
        finding.fingerprint
        for encode in ENCODINGS.values()
        if encode is not as_is
        for finding in scan(encode(f"some text\n {secret}\nand more text".encode()))
    }
    assert len(fingerprints) == 1
