from __future__ import annotations

import random

import pytest

from clawblox.checkpoint.secrets.content import LEAD, OVERLAP, STRIDE
from tests.checkpoint.secrets.fakes import FAMILIES, fake, rule_name, scan
from tests.support.sampling import sampled

EDGES = (
    STRIDE - LEAD, STRIDE, STRIDE + LEAD, STRIDE + OVERLAP, 2 * STRIDE - LEAD, 2 * STRIDE,
    2 * STRIDE + OVERLAP,
)  # fmt: skip
SEED = random.randrange(1 << 32)


def filler(size: int) -> bytes:
    """Return lines of text without findings."""
    line = b"Nothing to be seen in this line, and 7 words more.\n"
    return (line * (size // len(line) + 1))[: size - 1] + b" " if size else b""


@pytest.mark.parametrize("edge", sampled(EDGES, 6))
def test_a_token_on_an_edge_is_found_once_at_every_offset(edge: int) -> None:
    token = fake("github-token")
    for displacement in range(-len(token) - 2, 3):
        before = filler(edge + displacement)
        (finding,) = scan(before + token.encode() + b"\n" + filler(OVERLAP))
        assert finding.offset == len(before)
        assert finding.line == before.count(b"\n") + 1


@pytest.mark.thorough
@pytest.mark.parametrize("family", sampled(FAMILIES, 8))
def test_a_secret_is_found_once_at_edges_and_ends(family: str) -> None:
    print("seed", SEED)  # shown when it fails
    choose = random.Random(f"{SEED} {family}")
    secret = fake(family).encode()
    places = [0, *(edge - choose.randrange(len(secret) + 1) for edge in choose.sample(EDGES, 2))]
    for place in places:
        for after in (b"", b"\n" + filler(STRIDE)):
            rules = [finding.rule for finding in scan(filler(place) + secret + after)]
            assert rules.count(rule_name(family)) == 1, place


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_a_wide_text_on_an_edge_is_found_once(encoding: str) -> None:
    token = fake("anthropic-api-key")
    for displacement in (-300, -101, -2, -1, 0):
        before = filler(STRIDE + displacement).decode()[: (STRIDE + displacement) // 2]
        (finding,) = scan(f"{before} {token} {before}".encode(encoding))
        assert (finding.rule, finding.line) == ("anthropic-api-key", None)


@pytest.mark.parametrize("size", [1, 7, 511, 4096, STRIDE, STRIDE + 1])
def test_the_size_of_the_pieces_does_not_matter(size: int) -> None:
    from clawblox.checkpoint.secrets import Scanner

    data = filler(STRIDE - 20 if size > 500 else 700) + fake("github-token").encode() + filler(900)
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    assert Scanner().scan("file", pieces) == scan(data, "file")


def test_empty_pieces_and_empty_files_are_clean() -> None:
    from clawblox.checkpoint.secrets import Scanner

    scanner = Scanner()
    assert scanner.scan("empty", []) == []
    assert scanner.scan("empty", [b"", b""]) == []
    assert scanner.scan("file", [b"", fake("github-token").encode(), b""]) != []
    assert (scanner.summary()["files"], scanner.summary()["bytes"]) == (3, 40)
