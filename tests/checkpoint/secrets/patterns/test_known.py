from __future__ import annotations

import base64
import html
import json
import os
import quopri
from urllib.parse import quote, quote_plus

import pytest

from clawblox.checkpoint.secrets import Scanner, known_values
from clawblox.checkpoint.secrets.content import STRIDE
from tests.checkpoint.secrets.fakes import Maker, rules_in, scan
from tests.checkpoint.secrets.wrapping import ENCODINGS

ODD = 'pass/word+ "quoted" \\ & ümläut'
PLAIN = Maker("known")(40, "abcdefghijklmnopqrstuvwxyz0123456789-_")
LONG = Maker("long")(3000)

VALUES = {
    "odd": ODD,
    "plain": PLAIN,
    "long": LONG,
    "lines": "-----BEGIN\nab\tcd/ef+gh==\n12\n",
    "cyrillic": "\u043f\u0430\u0440\u043e\u043b\u044c \u21167 \u0438 \u0435\u0449\u0451",
    "emoji": "correct \U0001f40e battery \U0001f9f7 staple",
}


def nested(value: str, depth: int) -> str:
    """Return a value in JSON in JSON..."""
    for _ in range(depth):
        value = json.dumps({"text": f"see {value}"})
    return value


FORMS = {
    "raw": lambda value: value.encode(),
    "json": lambda value: json.dumps(value).encode(),
    "json-utf-8": lambda value: json.dumps(value, ensure_ascii=False).encode(),
    "json-slash": lambda value: json.dumps(value).replace("/", "\\/").encode(),
    **{
        f"json {depth} times": lambda value, depth=depth: nested(value, depth).encode()
        for depth in (2, 3, 4, 5)
    },
    "json in json in UTF-8": lambda value: json.dumps(
        json.dumps({"text": value}, ensure_ascii=False)
    ).encode(),
    "json in a url": lambda value: quote(json.dumps(value)).encode(),
    "url twice": lambda value: quote(quote(value, safe=""), safe="").encode(),
    "html": lambda value: html.escape(value).encode("ascii", "xmlcharrefreplace"),
    "html in html": lambda value: html.escape(html.escape(value)).encode(),
    "html by numbers": lambda value: "".join(f"&#{ord(char)};" for char in value).encode(),
    "html by hexadecimal": lambda value: "".join(f"&#x{ord(char):X};" for char in value).encode(),
    "repr": lambda value: repr(value).encode(),
    "ascii": lambda value: ascii(value).encode(),
    "bytes": lambda value: repr(value.encode()).encode(),
    "json of bytes": lambda value: json.dumps(repr(value.encode())).encode(),
    "\\xHH": lambda value: "".join(f"\\x{byte:02x}" for byte in value.encode()).encode(),
    "%HH": lambda value: "".join(f"%{byte:02X}" for byte in value.encode()).encode(),
    "octal": lambda value: "".join(f"\\{byte:03o}" for byte in value.encode()).encode(),
    "quoted-printable": lambda value: quopri.encodestring(value.encode()),
    "utf-32-le": lambda value: f"see {value}".encode("utf-32-le"),
    "utf-32-be": lambda value: f"see {value}".encode("utf-32-be"),
    "json in utf-16": lambda value: json.dumps({"x": value}).encode("utf-16-le"),
    "latin-1": lambda value: value.encode("latin-1", "xmlcharrefreplace"),
    "url": lambda value: quote(value, safe="").encode(),
    "url-path": lambda value: quote(value).encode(),
    "form": lambda value: quote_plus(value).encode(),
    "hex": lambda value: value.encode().hex().encode(),
    "upper-case hex": lambda value: value.encode().hex().upper().encode(),
    "utf-16-le": lambda value: f"see {value}".encode("utf-16-le"),
    "utf-16-be": lambda value: f"see {value}".encode("utf-16-be"),
    **{
        f"base64 {before}": lambda value, before=before: base64.b64encode(
            b"x" * before + value.encode() + b"tail"
        )
        for before in range(4)
    },
    "base64-url": lambda value: base64.urlsafe_b64encode(b"??>" + value.encode()),
    "base64 inside a word": lambda value: b"prefix_" + base64.b64encode(value.encode()),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_known_value_is_found_in_every_form(value: str) -> None:
    size = len(value.encode())
    for form, write in FORMS.items():
        (finding,) = scan(b"before: " + write(value) + b" after\n", known={"label": value})
        assert finding.rule == "known-value:label", form
        assert size > 256 or finding.preview.endswith(f"({size} bytes)"), form


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_known_value_is_found_in_every_container(encoding: str) -> None:
    text = f"some text before it {PLAIN} and after it\n"
    assert rules_in(ENCODINGS[encoding](text.encode()), known={"k": PLAIN}) == ["known-value:k"]


@pytest.mark.parametrize("form", ["raw", "hex", "utf-16-le", "base64 1"])
def test_a_known_value_on_the_edge_of_a_window_is_found(form: str) -> None:
    written = FORMS[form](PLAIN)
    for displacement in (-len(written), -len(written) // 2, -1, 0):
        data = b"." * (STRIDE + displacement) + written
        assert rules_in(data, known={"k": PLAIN}) == ["known-value:k"]


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_text_like_a_known_value_takes_linear_time(value: str) -> None:
    anchored = value[: len(value) // 2]
    for almost in ("\\" * 70_000, anchored * 9000, (anchored + "\\" * 31) * 2000, "&amp;" * 20_000):
        assert rules_in(almost[:200_000], known={"k": value}) == []


def test_a_value_of_many_odd_characters_is_not_found_in_other_values() -> None:
    for other in (ODD[1:], ODD[:-1], ODD.replace("/", "|"), ODD.replace("\\", "")):
        assert rules_in(nested(other, 2), known={"k": ODD}) == []


def test_a_short_value_is_ignored() -> None:
    assert rules_in("password is hunter2-hun\n", known={"k": "hunter2-hun"}) == []
    assert rules_in("password is hunter2-hunt\n", known={"k": "hunter2-hunt"}) != []


def test_a_known_value_that_is_also_a_token_is_one_finding() -> None:
    token = "gh" + "p_" + PLAIN.replace("-", "a").replace("_", "b")[:36]
    assert rules_in(f"GITHUB_{'TOKEN'}={token}", known={"k": token}) == ["known-value:k"]


def test_variables_count_by_their_names() -> None:
    environ = {
        "SERVICE_API_KEY": PLAIN,
        "session_cookie": PLAIN[::-1],
        "DB_PASSWORD": "correct horse battery",
        "SHORT_TOKEN": "12345678901",
        "EDITOR": "a value that is no secret",
        "TLS_KEY_FILE": os.devnull + "/../null/../../dev/null",
        "HOME_KEY": os.path.abspath(os.curdir) + "/" * 20,
    }
    labels = {"env:SERVICE_API_KEY", "env:session_cookie", "env:DB_PASSWORD"}
    assert known_values({**environ, "TLS_KEY_FILE": "/dev/../dev/null"}, []).keys() == labels


def test_credential_files_of_agents_are_read(tmp_path) -> None:
    secrets = [Maker(n)(60) for n in range(5)]
    agent = tmp_path / "ada"
    for name, text in {
        "session/.credentials.json": json.dumps(
            {"claudeAiOauth": {"accessToken": secrets[0], "scopes": ["user:inference"]}}
        ),
        "session/auth.json": json.dumps(
            {"OPENAI_API_KEY": None, "tokens": {"refresh_token": secrets[1], "account": "x" * 30}},
            indent=1,
        ),
        "session/config.toml": f'model = "a-model-2-of-some-name"\n[p]\napi_key = "{secrets[2]}"\n',
        "session/credentials/mcp/x.json": json.dumps({"clientSecret": secrets[3]}),
        "home/.codex/auth.json": '{"broken": {"token": "' + secrets[4] + '", ',
        "session/other.json": json.dumps({"token": "this one is not looked at 1"}),
    }.items():
        path = agent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    os.mkfifo(agent / "home" / "auth.json")
    (agent / "home" / "config.toml").symlink_to(agent / "session" / "other.json")
    values = known_values({}, [agent, tmp_path / "absent"])
    assert sorted(values.values()) == sorted(secrets)
    assert "ada:.credentials.json:accessToken" in values


def test_a_credential_file_of_one_endless_word_is_read_quickly(tmp_path) -> None:
    (tmp_path / "session").mkdir()
    # A search from each letter would take days.
    text = f"{'a' * (1 << 20)}\n--api-key = '{PLAIN}'\n"
    (tmp_path / "session" / "config.toml").write_text(text)
    assert list(known_values({}, [tmp_path]).values()) == [PLAIN]


def test_an_odd_name_of_a_credential_file_is_printed_escaped(tmp_path) -> None:
    odd = tmp_path / "session" / "credentials" / "a\x1b[2J.json"
    odd.parent.mkdir(parents=True)
    odd.write_text(json.dumps({"token": PLAIN}))
    (finding,) = scan(PLAIN, known=known_values({}, [tmp_path]))
    assert str(finding).isprintable()


def test_no_repr_shows_a_known_value() -> None:
    rich_pretty = pytest.importorskip("rich.pretty")
    known = known_values({"A_TOKEN": PLAIN}, []) | {"other": ODD}
    scanner = Scanner(known)
    shown = repr(known) + str([known]) + rich_pretty.pretty_repr(known)
    shown += repr(scanner) + rich_pretty.pretty_repr(scanner) + str(vars(scanner))
    assert known["env:A_TOKEN"] == PLAIN
    for value in (PLAIN, ODD, PLAIN.encode().hex()):
        assert value not in shown
