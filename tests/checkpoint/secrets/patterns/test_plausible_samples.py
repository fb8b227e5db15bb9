"""Published samples, by their digests. Like all tokens here, they are composed at run time."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping

import pytest

from clawblox.checkpoint.secrets.patterns.plausible import DIGESTS
from tests.checkpoint.secrets.fakes import FAMILIES, Maker, fake, rules_in
from tests.checkpoint.secrets.wrapping import ENCODINGS

JWT_IO = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9l"
RFC_7515 = ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290"

SAMPLES: Mapping[str, str] = {
    "AWS key id": "AKIA" + "IOSFODNN7EXAMPLE",
    "AWS temporary key id": "ASIA" + "IOSFODNN7EXAMPLE",
    "AWS secret": "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY",
    "AWS secret in signatures": "wJalrXUtnFEMI/K7MDENG+" + "bPxRfiCYEXAMPLEKEY",
    "AWS key id in the command line's examples": "AKIA" + "IESZCNJ3OEXAMPLE",
    "jwt.io until 2025": (
        JWT_IO + "IiwiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
    ),
    "jwt.io": (
        JWT_IO
        + "IiwiYWRtaW4iOnRydWUsImlhdCI6MTUxNjIzOTAyMn0.KMUFsIDTnFmyG3nMiGM6H9FNFUROf3wh7SmqJp-QV30"
    ),
    "RFC 7515 A.1": (
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"
        + RFC_7515
        + "Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    ),
    "RFC 7515 A.3": (
        "eyJhbGciOiJFUzI1NiJ9"
        + RFC_7515
        + "Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqP"
        + "P3-Kg6NU1Q"
    ),
    "PyJWT": (
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzb21lIjoicGF5bG9hZCJ9"
        ".4twFt5NiznN84AWoo1d7KO1T_yoc0Z6XOpOVswacPZg"
    ),
    "Stripe": "sk_test_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "GitHub": "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "Slack": "xoxb-" + "17653672481-19874698323-pdFZKVeTuE8sk7oOcBrzbqgy",
}
"""Tokens that are found by their shape."""

NAMED: Mapping[str, str] = {
    name: "".join(parts)
    for name, parts in {
        "AWS session token": ('{"SessionToken": "', "AgoGb3JpZ2luENz...", 'EXAMPLETOKEN=="}'),
        "Cognito": ('{"AccessToken": "', "eyJra456def", 'EXAMPLE"}'),
        "RFC 6749": ('{"access_token": "', "2YotnFZFEjr1", "zCsicMWpAA", '"}'),
        "hardhat": (
            "PRIVATE_KEY", "=0xac0974bec39a17e36ba4a6b4d238ff944b",
            "acb478cbed5efcae784d7bf4f2ff80",
        ),
        "anvil": ("KEY", "=59c6995e998f97a5a0044966f0945389dc9e86dae8", "8c7a8412f4603b6b78690d"),
        "Python's key": ("GPG_KEY", "=A035C8C19219BA821ECEA86B64", "E628F8D684696D"),
        "Telegram": ("TELEGRAM_BOT_TOKEN", "=110201543:AAHdqTcvCH1v", "GWJxfSeofSAs0K5PALDsaw"),
        "Slack's webhook": ("https://hooks.slack.com/services/", "T00000000/B00000000/", "X" * 24),
        "Twilio's key": (
            "-----BEGIN RSA PRIVATE ", "KEY-----\\nMIIEpQIBAAKCAQEAuyf/lNrH9ck8DmNyo3fGgvCI1",
            "l9s+cmBY3WIz+cUDqmxiieR\\n.-----END RSA PRIVATE KEY-----",
        ),
    }.items()
}  # fmt: skip
"""Values that are found only by their context."""


def spellings(token: str) -> list[str]:
    """Return texts that contain a token."""
    return [
        token, f"<{token}>\n{token}", f"API_TOKEN={token}\n", f"TOKEN='{token}', ",
        json.dumps({"access_token": token, "text": json.dumps([f"see\n{token}."])}),
        f"export SERVICE_KEY='{token}'; curl -H 'Authorization: Bearer {token}' https://x.org",
    ]  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_a_published_sample_passes(name: str) -> None:
    for text in spellings(SAMPLES[name]):
        assert rules_in(text) == [], text.replace(SAMPLES[name], "…")


@pytest.mark.parametrize("name", NAMED)
def test_a_published_value_passes_next_to_its_name(name: str) -> None:
    assert rules_in(NAMED[name]) == []
    assert rules_in(json.dumps({"text": NAMED[name]})) == []


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_with_one_character_changed_is_refused(name: str) -> None:
    token = SAMPLES[name]
    before = "aws_secret_access_key = " if name.startswith("AWS secret") else "see "
    for at in random.Random(name).sample(range(len(token) - 16, len(token)), 6):
        changed = "B" if token[at] in "ACG" else "C"
        assert len(rules_in(f"{before}{token[:at]}{changed}{token[at + 1 :]}")) == 1


def test_the_key_of_another_account_is_refused() -> None:
    for name in ("hardhat", "anvil"):
        text = NAMED[name]
        assert rules_in(text[:-1] + ("1" if text[-1] == "0" else "0")) == ["env-assignment"]


def test_a_sample_does_not_hide_an_adjacent_secret() -> None:
    for name, token in SAMPLES.items():
        secret = fake("github-token", name)
        for text in (f"{token} {secret}", f"{secret},{token}", f"TOKEN={token};{secret}"):
            assert rules_in(text) == ["github-token"], name


def test_the_list_of_digests_is_complete_and_unique() -> None:
    assert all(len(digest) == 64 and int(digest, 16) for digest in DIGESTS)
    assert len(DIGESTS) > 200


def test_a_key_with_the_first_line_of_a_sample_is_refused() -> None:
    body = NAMED["Twilio's key"].split("KEY-----\\n")[1].split("\\n")[0]
    begin = "-----BEGIN RSA PRIVATE " + "KEY-----"
    for between in ("\n", "\\n", "\r\n", "\\\\n", " ", '"\n  "'):
        assert rules_in(f"{begin}{between}{body}{between}-----END") == []
        for line in (Maker("a key")(64), "ab", body):
            lines = between.join((begin, body, line, "-----END RSA PRIVATE " + "KEY-----"))
            assert rules_in(lines) == ["private-key"], between


def test_a_key_with_a_first_line_of_padding_is_refused() -> None:
    begin = "-----BEGIN PRIVATE " + "KEY-----"
    filling = "X" * 64
    for between in ("\n", "\\n"):
        assert rules_in(between.join((begin, filling, "XXXX", "-----END"))) == []
        for lines in ([filling, Maker("a key")(64)], [filling] * 40 + [Maker("a key")(64)]):
            assert rules_in(between.join((begin, *lines, "-----END"))) == ["private-key"]


@pytest.mark.parametrize("between", ["#", "...", "> ", "Comment: none", '", b"', "-" * 9, "é" * 9])
@pytest.mark.parametrize("first", ["a filling", "a sample"])
def test_a_key_does_not_hide_after_an_interruption(first: str, between: str) -> None:
    sample = NAMED["Twilio's key"].split("KEY-----\\n")[1].split("\\n")[0]
    begin, end = (f"-----{word} RSA PRIVATE " + "KEY-----" for word in ("BEGIN", "END"))
    first_line = "X" * 64 if first == "a filling" else sample
    lines = [Maker(f"line {number}")(64) for number in range(8)]
    assert rules_in(f"{begin}\n{first_line}\n{end}") == []
    for filling in ((), ["X" * 64] * 30):
        text = "\n".join((begin, first_line, between, *filling, *lines, end))
        assert rules_in(text) == ["private-key"]
    quoted = f"\n{between} ".join((first_line, *lines, end))
    assert rules_in(f"{begin}\n{quoted}") == ["private-key"]


def encoded(part: object) -> str:
    text = part if isinstance(part, str) else json.dumps(part)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def jwt(claims: object, header: object = None, seed: object = 0) -> str:
    parts = (encoded(header or {"alg": "HS256", "typ": "JWT"}), encoded(claims))
    return ".".join((*parts, Maker(f"jwt {seed}")(43)))


DEMO = {"iss": "supabase-demo", "role": "service_role", "exp": 1983812996}


def test_tokens_of_the_demo_of_supabase_pass() -> None:
    for claims in (DEMO, DEMO | {"iat": 1641769200}, {"ref": "x" * 20, "role": "anon"} | DEMO):
        token = jwt(claims)
        for text in (*spellings(token), f"SUPABASE_SERVICE_ROLE_KEY={token}"):
            assert rules_in(text) == []


def test_a_token_of_the_demo_passes_with_blanks_in_its_claims() -> None:
    claims = "{ \n    " + json.dumps(DEMO, indent=4)[1:]
    assert rules_in(f"ANON_KEY={jwt(claims)}\n") == []
    other = claims.replace("supabase-demo", "supabase-live")
    assert rules_in(f"ANON_KEY={jwt(other)}\n") == ["env-assignment"]


@pytest.mark.parametrize(
    "token",
    [
        jwt(DEMO | {"iss": "supabase-demo2"}),
        jwt(DEMO | {"iss": "supabase"}),
        jwt(DEMO | {"iss": "Supabase-Demo"}),
        jwt(DEMO | {"iss": " supabase-demo"}),
        jwt(DEMO | {"iss": ["supabase-demo"]}),
        jwt({"sub": "1", "role": "supabase-demo", "ISS": "supabase-demo"}),
        jwt({"sub": "someone"}, {"alg": "HS256", "typ": "JWT", "iss": "supabase-demo"}),
        jwt({"sub": "someone", "inner": {"iss": "supabase-demo"}}),
        jwt('{"iss":"https://auth.x.org","iss":"supabase-demo"}'),
        jwt('{"iss":"supabase-demo","iss":"https://auth.x.org"}'),
        jwt('{"iss":"supabase-demo"} trailing'),
        jwt('{"iss":"supabase-demo"'),
        jwt('{"a":' + '{"iss":"supabase-demo",' * 3),
    ],
)
def test_a_token_of_another_issuer_is_refused(token: str) -> None:
    assert rules_in(token) == ["jwt"]
    assert rules_in(f"SUPABASE_ANON_KEY={token}") == ["jwt"]


@pytest.mark.parametrize("family", [*FAMILIES][::7])
def test_a_secret_in_a_token_of_the_demo_is_refused(family: str) -> None:
    if family == "jwt":
        return
    assert rules_in(jwt(DEMO | {"note": f"it is\n{fake(family)}\n"})) != []


@pytest.mark.parametrize("encoding", ["base64", "utf-16-le", "gzip", "zip", "percent", "git-loose"])
def test_samples_pass_in_other_encodings(encoding: str) -> None:
    for token in (*SAMPLES.values(), jwt(DEMO)):
        assert rules_in(ENCODINGS[encoding](f"some text\n {token}\nand more".encode())) == []
