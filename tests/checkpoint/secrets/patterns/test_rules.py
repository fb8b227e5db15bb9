from __future__ import annotations

import pytest

from clawblox.checkpoint.secrets.patterns.rules import CONTEXT_RULES, WORD_RULES
from tests.checkpoint.secrets.fakes import (
    EMBEDDINGS,
    FAMILIES,
    TOKENS,
    Maker,
    fake,
    rule_name,
    rules_in,
    scan,
)
from tests.support.sampling import sampled


def test_every_rule_has_a_fake() -> None:
    rules = {rule.name for rule in (*WORD_RULES, *CONTEXT_RULES)}
    assert rules == {rule_name(family) for family in FAMILIES}
    assert len(rules) > 45


@pytest.mark.parametrize("embedding", sampled(EMBEDDINGS, 4))
def test_a_secret_is_found_in_any_text(embedding: str) -> None:
    for family in FAMILIES:
        secret = fake(family, embedding)
        assert rule_name(family) in rules_in(EMBEDDINGS[embedding](secret)), family


@pytest.mark.parametrize("family", sampled(TOKENS, 4))
def test_a_token_is_one_finding_in_any_surroundings(family: str) -> None:
    token = fake(family)
    texts = (
        f"<{token}>", f"'{token}'", f"({token})", f"={token}&", f"\x1b[32m{token}\x1b[0m",
        f"\\u001b[1;32m{token}", f"q%3D{token}%26", f'\\"{token}\\"', f"\t{token}\r\n",
        f"x\\n{token}", f"\\\\n{token}\\\\n", f"\\u0022{token}\\u0022",
        f"\x1b[01;31m\x1b[K{token}\x1b[m\x1b[K", f"\\u001b[01;31m\\u001b[K{token}",
    )  # fmt: skip
    for text in texts:
        assert rules_in(text) == [rule_name(family)], ascii(text).replace(token, "…")


def test_the_length_of_a_text_in_a_binary_file_does_not_hide_a_token() -> None:
    for family in TOKENS:
        token = fake(family).encode()
        for before in (b"\x80\x04\x95\0\x8cl", b"\x8c4", b"\x02\x81e", b"\0\0\0\0Z"):
            assert rules_in(before + token + b"\x94.") == [rule_name(family)], (family, before)


def test_a_finding_names_place_and_rule_but_not_the_secret() -> None:
    token = fake("github-token")
    (finding,) = scan(f"one\ntwo {token}\n")
    assert (finding.line, finding.offset) == (2, 8)
    assert finding.preview == "ghp_... (40 bytes)"
    assert len(finding.fingerprint) == 16
    assert token[4:] not in repr(finding) + str(finding)


def test_the_fingerprint_does_not_depend_on_the_place() -> None:
    token = fake("anthropic-api-key")
    fingerprints = {
        finding.fingerprint
        for embed in EMBEDDINGS.values()
        for finding in scan("padding " * 20_000 + embed(token))
    }
    assert len(fingerprints) == 1


def test_a_repeated_secret_is_one_finding_at_its_first_place() -> None:
    token = fake("github-token")
    (finding,) = scan(f"\n{token}\n" * 4_000)
    assert finding.line == 2


def test_a_token_in_a_text_of_only_letters_and_slashes_is_found() -> None:
    for seed in range(3, 40):
        token = "1/" + "/0" + Maker(f"a refresh token {seed}")(98)
        assert rules_in(f"x\n{token}\n") == ["google-refresh-token"]
