"""Invented values pass; real values are refused even if they contain placeholders."""

from __future__ import annotations

import base64
import json
import random
import uuid
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.checkpoint.secrets.patterns.plausible import is_placeholder
from tests.checkpoint.secrets.fakes import (
    ALNUM,
    BASE32,
    BASE64,
    HEX,
    LOWER,
    SAFE,
    SPLICED,
    Maker,
    fake,
    rules_in,
)

MADE_UP = (
    "your_api_key_12", "changeme-changeme1", "<insert-key-1-here>", "xxxxxxxxxxxxxxx1",
    "example-value-123", "1111111111111111", "{{vault_key_1}}", "%SERVICE_KEY1%abc",
    "your-super-secret-jwt-token-with-at-least-32-characters-long", "YOUR_API_KEY_HERE_1",
    "fake-token-for-testing-1234", "0123456789abcdef0123456789abcdef", "a1b2c3d4e5f6g7h8i9j0",
    "qweqweqweqweqwe1", "AbCdEfGhIjKlMnOpQrStUvWxYz123456", "your-encryption-key-32-chars-min",
    "12345678-1234-1234-1234-123456789abc", "replaceMeWithYourToken1", "********************1",
    "................", "deadbeefdeadbeefdeadbeef00000000", "xxxx-xxxx-xxxx-1234", "Changeme123!",
    "django-insecure-change-me-1", "your-nextauth-secret-here-32chars",
)  # fmt: skip


@pytest.mark.parametrize("value", MADE_UP)
def test_a_placeholder_passes_after_every_word(value: str) -> None:
    assert is_placeholder(value.encode())
    texts = (
        "SERVICE_" + f"KEY={value}\n", "DB_" + f"PASSWORD='{value}'",
        '"API_' + f'TOKEN": "{value}"',
        '"refresh_' + f'token": "{value}"', '"client_' + f'secret": "{value}"',
        f"https://me:{value}@host/", "//host/:_auth" + f"Token={value}",
        "machine host login me " + f"password {value}\n", "operator" + f"-token: {value}",
        "mysql -u root " + f"-p{value} shop", "curl " + f"-u me:{value} https://x.org",
    )  # fmt: skip
    for text in texts:
        assert rules_in(text) == [], text


TOKENS = (
    "gh" + "p_" + "x" * 36, "gh" + "p_" + "x" * 48, "np" + "m_" + "x" * 40, "hf" + "_" + "X" * 34,
    "sk-" + "ant-" + "api03-" + "x" * 30, "sk-" + "ant-" + "api03-" + "your-api-key-goes-here-1",
    "sk-" + "proj-" + "xxxxxxxxxxxxxxxxxxxxxxxx", "sk-" + "or-v1-" + "0" * 64,
    "s" + "k-" + "1" * 40,
    "sk-" + "your-openai-key-here-xxxx", "xo" + "xb-" + "0000000000-0000000000-" + "X" * 24,
    "xo" + "xb-" + "1234567890-1234567890123-abcdefghijklmnopqrstuvwx",
    "AI" + "za" + "X" * 35, "AK" + "IA" + "X" * 16, "AK" + "IA222222222" + "EXAMPLE",
    "sk" + "_test_" + "1234567890abcdefghijklmn", "wh" + "sec_" + "x" * 32,
    "12345678" + ":AA" + "x" * 33,
    "gl" + "pat-" + "your-access-token-123", "eyJ" + "x" * 20 + ".eyJ" + "x" * 20 + "." + "x" * 43,
    "S" + "G." + "x" * 22 + "." + "x" * 43, "dapi" + "0123456789abcdef" * 2,
)  # fmt: skip


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_with_a_placeholder_for_a_body_passes(token: str) -> None:
    for text in (token, f"TOKEN={token}\n", json.dumps({"api_key": token}), f"see `{token}`."):
        assert rules_in(text) == []


NOT_ENOUGH = (
    "AK" + "IA" + "EXAMPLEEXAMPLEAA", "AK" + "IA" + "Q7TZJX3RM" + "EXAMPLE",
    "sk-" + "ant-" + "api03-" + "example-Zq81LmX0pTt4",
    "gh" + "p_" + "xxxxxxxxxxxxxxxxxxxx" + "Zq81LmX0pTt4VbN2",
)  # fmt: skip


@pytest.mark.parametrize("token", NOT_ENOUGH)
def test_a_token_is_refused_if_enough_for_a_secret_remains(token: str) -> None:
    assert len(rules_in(token)) == 1


@pytest.mark.parametrize(
    "value",
    ["password123", "Password1234", "SuperSecret123", "secret123456", "admin-root-99", "test2024"],
)
def test_words_common_in_passwords_do_not_make_a_placeholder(value: str) -> None:
    assert not is_placeholder(value.encode())


ALPHABETS = (ALNUM, HEX, HEX.upper(), BASE32, BASE64, LOWER, SAFE)
WORDS = (*SPLICED, "xxx", "***", "...", "<key>", "${KEY}", "your_api_key_", "foo-bar-", "x" * 64)


@given(
    st.integers(0, 1 << 64),
    st.sampled_from(ALPHABETS),
    st.integers(20, 120),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=5),
)
def test_a_random_body_with_inserted_placeholders_is_not_a_placeholder(
    seed: int, alphabet: str, length: int, words: list[str]
) -> None:
    choose = random.Random(seed)
    body = "".join(choose.choices(alphabet, k=length))
    for word in words:
        at = choose.randrange(len(body) + 1)
        body = body[:at] + word + body[at:]
    assert not is_placeholder(body.encode())


@given(
    st.lists(
        st.sampled_from(
            ("your", "example", "api", "key", "here", "xxxx", "0000000", "token", "12345")
        ),
        min_size=3,
    ),
    st.sampled_from(("", "-", "_", ".", " ")),
)
def test_placeholder_words_and_repetition_are_a_placeholder(words: list[str], between: str) -> None:
    assert is_placeholder(between.join(["example", *words]).encode())


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_judged_without_an_error(body: bytes) -> None:
    assert is_placeholder(body) in (True, False)


REAL = Maker("real")(32)
HIDDEN: Mapping[str, str] = {
    "after x": "x" * 32 + REAL,
    "after more x than the rule reads": "x" * 300 + REAL,
    "after thousands of x": "x" * 9000 + REAL,
    "after a repeated word": "test" * 100 + REAL,
    "after repeated signs": "-=" * 400 + REAL,
    "after a sentence again and again": "this-is-a-test-" * 200 + REAL,
    "before x": REAL + "x" * 160,
    "between x": "x" * 80 + REAL + "x" * 80,
    "after a word": "example-" + REAL,
    "after many words": "your-example-placeholder-" * 6 + REAL,
    "before a word": REAL + "-EXAMPLE",
    "between dots": "..." + REAL + "...",
    "between stars": "***" + REAL + "***",
    "between signs of a gap": "%" + REAL + "%",
    "after zeros": "0" * 64 + REAL,
    "after a sequence": "1234567890" + REAL,
    "in halves": REAL[:16] + "xxxxxxxx" + REAL[16:],
    "in quarters": "example".join(REAL[at : at + 8] for at in range(0, 32, 8)),
}


@pytest.mark.parametrize("way", HIDDEN)
def test_a_key_does_not_hide_among_placeholders(way: str) -> None:
    value = HIDDEN[way]
    for text in ("API_" + f"KEY={value}\n", '"API_' + f'TOKEN": "{value}"', f"SECRET={value}"):
        assert rules_in(text) == ["env-assignment"]
    if len(value) < 1500:
        assert rules_in('"access_' + f'token": "{value}"') == ["oauth-json"]


@pytest.mark.parametrize("family", ["github-token", "npm-token", "anthropic-api-key", "stripe-key"])
def test_a_token_does_not_hide_among_placeholders(family: str) -> None:
    token = fake(family)
    for text in (
        f"{token}xxxxxxxxxxxxxxxx", f"example-{token}", f"xxxx {token} xxxx", f"x{token}-example",
        f"your-{token}-EXAMPLE", f"API_KEY=xxxxxxxxxxxx-{token}", f"{token}{'x' * 200}",
        token[:20] + "xxxx" + token[20:], token[:16] + "example" + token[16:],
    ):  # fmt: skip
        assert rules_in(text) != [] or text.startswith("x")


KEYS: Mapping[str, Callable[[Maker], str]] = {
    "hexadecimal": lambda make: make(32, HEX),
    "upper hexadecimal": lambda make: make(40, HEX.upper()),
    "base64": lambda make: base64.b64encode(make.bytes(32)).decode(),
    "url-safe base64": lambda make: base64.urlsafe_b64encode(make.bytes(24)).decode(),
    "base32": lambda make: make(26, BASE32),
    "a uuid": lambda make: str(uuid.UUID(bytes=make.bytes(16), version=4)),
    "a short key": lambda make: make(16),
    "a key in groups": lambda make: "-".join(make(5, LOWER) for _ in range(5)),
    "an id and a key": lambda make: f"user:{make(24)}",
    "a path and a key": lambda make: f"projects/main/{make(24)}",
    "a version and a key": lambda make: f"v2.{make(20)}.{make(20)}",
    "words and a key": lambda make: f"production_service_{make(20)}",
    "marked": lambda make: make(24, ALNUM + "!@#%^*-_=+:./?"),
    "words with digits among the letters": lambda make: "t0ken-s3rvice-pr0duction-k3y",
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_name_that_ends_in_key_with_a_key_is_refused(kind: str) -> None:
    for seed in range(40):
        value = KEYS[kind](Maker(f"{kind} {seed}"))
        for text in (f"CACHE_KEY={value}", f'"API_TOKEN": "{value}"', '"api_' + f'key": "{value}"'):
            assert rules_in(text) != [], (kind, seed)


NAMES = (
    "user:profile:v2", "cache:v1:user:42", "order:12345:charge", "tenants/42/items",
    "app.settings.v2", "feature_flags::v3", "my-service-session-v1", "userProfile:settings:v12",
    "sessions:2024:active", "uploads/2024/01/report.pdf", "/home/agent/.ssh/id_ed25519",
    "~/.ssh/id_rsa_2024", "./certs/live/server-2024.pem", "com.example.application2",
    "https://example.com/keys/v2/jwks.json",
)  # fmt: skip


@pytest.mark.parametrize("value", NAMES)
def test_a_name_that_ends_in_key_with_a_name_passes(value: str) -> None:
    for text in (
        f"CACHE_KEY={value}\n", f"export SORT_KEY='{value}'", f'{{"PAGE_KEY": "{value}"}}',
        json.dumps({"api_key": value, "name": value}), json.dumps({"SORT_KEY": f"{value}/12"}),
    ):  # fmt: skip
        assert rules_in(text) == []


@pytest.mark.parametrize(
    "phrase", ["river-stone-tiger-42", "Falcon9380_Orbit6", "two-words-2_more"]
)
def test_words_with_only_dashes_between_them_may_be_a_passphrase(phrase: str) -> None:
    assert rules_in(f"STRIPE_KEY={phrase}") == ["env-assignment"]


@pytest.mark.parametrize(
    "name",
    [
        "SECRET_KEY",
        "MASTER_KEY",
        "ENCRYPTION_KEY",
        "ACCESS_TOKEN",
        "DB_PASSWORD",
        "APP_SECRET",
        "ADMIN_PASSWD",
    ],
)
def test_a_phrase_is_refused_if_any_text_can_be_a_secret(name: str) -> None:
    assert rules_in(f"{name}=purple-monkey-dishwasher-42") == ["env-assignment"]


def test_a_phrase_is_refused_as_a_token_in_json() -> None:
    for name in ("refresh_token", "accessToken", "id_token", "session_token", "authToken"):
        text = json.dumps({name: "purple-monkey-dishwasher-42"})
        assert rules_in(text) == rules_in(json.dumps(text)) == ["oauth-json"]


@pytest.mark.parametrize("name", ["KEY", "TOKEN", "SECRET", "PASSWORD"])
def test_a_name_on_a_line_of_its_own_is_found_in_json(name: str) -> None:
    text = f"cat .env\n{name}={REAL}\n"
    for _ in range(3):
        assert rules_in(text) == rules_in(text.replace("\\n", "\\t")) == ["env-assignment"]
        text = json.dumps({"text": text})


def test_symbols_of_a_program_are_not_tokens() -> None:
    symbols = ["_removed_pairs", "_hf_entries", "PyInterpreterState", "multidict", "_proxy"]
    assert rules_in("\0".join(symbols)) == []
    token = fake("huggingface-token")
    assert rules_in("\0".join([*symbols, token])) == ["huggingface-token"]


def test_placeholders_in_one_run_are_judged_together(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = 0

    def count(body: bytes) -> bool:
        nonlocal judged
        judged += len(body)
        return is_placeholder(body)

    monkeypatch.setattr("clawblox.checkpoint.secrets.patterns.shapes.is_placeholder", count)
    for token in (
        "A_KEY=a1b2c3d4e5f6=",
        "gh" + "p_" + "a1" * 18 + ".",
        "sk_" + "live_1234567890123456-",
    ):
        judged = 0
        text = token * (4000 // len(token))
        rules_in(text)
        assert 0 < judged < 20 * len(text)


LOCAL = ("localhost", "127.0.0.1", "127.1.2.3", "[::1]", "0.0.0.0", "host.docker.internal")
SCHEMES = (
    "postgres://postgres",
    "postgresql+asyncpg://app",
    "redis://",
    "amqp://guest",
    "https://me",
)


@pytest.mark.parametrize("host", LOCAL)
@pytest.mark.parametrize(
    "word",
    ["postgres", "password1", "password123", "postgres123", "admin1234", "secret-1234", "root_2024",
     "changeme1", "example123", "guest1234", "mysecretpassword1", "test-user-1", "Passwd123!"],
)  # fmt: skip
def test_a_common_password_of_this_machine_passes(host: str, word: str) -> None:
    for scheme in SCHEMES:
        for end in (":5432/db", "/0", "", "."):
            assert rules_in(f"URL = '{scheme}:{word}@{host}{end}'") == []


@pytest.mark.parametrize("host", LOCAL)
def test_another_password_of_this_machine_is_refused(host: str) -> None:
    make = Maker("local")
    for password in (
        make(12), make(20), make(16, HEX), "hunter2-" + make(8), "postgres" + make(6),
        "Tr0ub4dor&3x", "password-" + make(10), make(8) + "password", "QwErTyUiOpLkJh7",
        "p%40ssW0rd%21x",
    ):  # fmt: skip
        for scheme in SCHEMES:
            assert rules_in(f"{scheme}:{password}@{host}:5432/db") == ["url-password"], password


@pytest.mark.parametrize(
    "host",
    ["localhost@db.example.org", "localhost:5432@db",
     "localhost.example.org", "localhost-db", "localhosts", "127.0.0.1.nip.io", "db", "10.0.0.1",
     "db.localhost.io", "my-localhost", "127.0.0.1234"],
)  # fmt: skip
def test_a_common_password_of_another_machine_is_refused(host: str) -> None:
    assert rules_in(f"postgres://app:postgres123@{host}:5432/db") == ["url-password"]
