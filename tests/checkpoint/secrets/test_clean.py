from __future__ import annotations

import base64
import hashlib
import json
import random
import struct
import sysconfig
import uuid
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

import clawblox
from clawblox.checkpoint.secrets import Scanner
from clawblox.results import Finding
from tests.checkpoint.secrets.fakes import ALNUM, pieces, rules_in
from tests.checkpoint.secrets.wrapping import ENCODINGS
from tests.support.sampling import sampled

RANDOM = random.Random(7)


def word(length: int, alphabet: str = ALNUM) -> str:
    return "".join(RANDOM.choice(alphabet) for _ in range(length))


def lines(make) -> bytes:
    return "".join(f"{n}: {make()}\n" for n in range(2000)).encode()


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + RANDOM.randbytes(300) for _ in range(300))
    header = struct.pack(">2I5B", 100, 300, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def weights(kind: str) -> bytes:
    return struct.pack(f"<200000{kind}", *(RANDOM.gauss(0, 0.02) for _ in range(200_000)))


def minified() -> bytes:
    def statement() -> str:
        a, b, c = (word(RANDOM.randrange(1, 4), "abcdefgABCDEFG_$") for _ in range(3))
        choices = (
            f"function {a}({b},{c}){{return {b}.{c}({a})||null}}",
            f'var {a}={{key:"{b}",token:{c},secret:void 0,password:{a}.{b}}};',
            f'{a}.apiKey="{b}";{a}.access_token={b}.token||"";',
            f"if(!{a}&&{b}>=0x{word(8, '0123456789abcdef')}){c}=/{a}:[^/]+@{b}/g.test({c});",
            f'fetch("https://"+{a}+":"+{b}+"@"+{c}+"/api");',
        )
        return RANDOM.choice(choices)

    return "".join(statement() for _ in range(4000)).encode()


def claude() -> bytes:
    def record() -> dict:
        return {
            "parentUuid": str(uuid.UUID(int=RANDOM.getrandbits(128))),
            "sessionId": str(uuid.UUID(int=RANDOM.getrandbits(128))),
            "cwd": "/srv/run/agents/ada/workspace",
            "type": "assistant",
            "requestId": "req_" + word(24),
            "message": {
                "id": "msg_" + word(24),
                "model": "a-model-1-20260101",
                "content": [
                    {"type": "thinking", "thinking": "", "signature": base64.b64encode(
                        RANDOM.randbytes(600)).decode()},
                    {"type": "tool_use", "id": "toolu_" + word(24), "name": "Bash", "input": {
                        "command": "git log --oneline && echo \"API_KEY is not set\" # token?"}},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                        "data": base64.b64encode(png()[:4000]).decode()}},
                ],
                "usage": {"input_tokens": 9, "cache_read_input_tokens": 12345678901234567},
            },
        }  # fmt: skip

    return "".join(json.dumps(record()) + "\n" for _ in range(40)).encode()


def codex() -> bytes:
    def record() -> dict:
        return {
            "timestamp": "2026-01-01T00:00:00.000Z",
            "type": "response_item",
            "payload": {
                "type": "function_call",
                "call_id": "call_" + word(24),
                "id": "fc_" + word(50, "0123456789abcdef"),
                "encrypted_content": "gAAAA"
                + base64.urlsafe_b64encode(RANDOM.randbytes(900)).decode(),
                "arguments": json.dumps({"command": ["bash", "-lc", "env | grep -c TOKEN="]}),
                "git": {"commit_hash": word(40, "0123456789abcdef")},
            },
        }

    return "".join(json.dumps(record()) + "\n" for _ in range(80)).encode()


def kimi() -> bytes:
    def record() -> dict:
        return {
            "type": "tool.call",
            "workspaceId": f"wd_workspace_{word(12, '0123456789abcdef')}",
            "toolCallId": f"tool_{word(24)}",
            "arguments": json.dumps({"path": "src/tokenizer.py", "content": "key = 'value'\n"}),
            "profile": {"bind": {"systemPrompt": "Never print a password or an API key."}},
        }

    return "".join(json.dumps(record()) + "\n" for _ in range(200)).encode()


CLEAN = {
    "uuids": lambda: lines(uuid.uuid4),
    "git hashes": lambda: lines(lambda: word(40, "0123456789abcdef")),
    "digests": lambda: lines(lambda: hashlib.sha256(RANDOM.randbytes(9)).hexdigest()),
    "integrity": lambda: lines(lambda: "sha512-" + base64.b64encode(RANDOM.randbytes(64)).decode()),
    "ids of calls": lambda: lines(
        lambda: " ".join(
            f"{kind}_{word(24)}" for kind in ("toolu", "msg", "req", "call", "chatcmpl")
        )
    ),
    "a picture": png,
    "a picture in base64": lambda: base64.b64encode(png()),
    "a picture in JSON": lambda: json.dumps({"data": base64.b64encode(png()).decode()}).encode(),
    "minified script": minified,
    "weights": lambda: struct.pack("<200000f", *(RANDOM.gauss(0, 0.02) for _ in range(200_000))),
    "half weights": lambda: struct.pack(
        "<200000e", *(RANDOM.gauss(0, 0.02) for _ in range(200_000))
    ),
    "noise": lambda: RANDOM.randbytes(2 << 20),
    "claude": claude,
    "codex": codex,
    "kimi": kimi,
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", CLEAN)
def test_clean_content_passes(kind: str) -> None:
    assert rules_in(CLEAN[kind]()) == []


@pytest.fixture(scope="module")
def transcript() -> bytes:
    return claude()[:60_000]


HARMLESS = """
mysql -u root -p shop; mysql -p$MYSQL_PASSWORD shop; mysql -p"${DB_PASS1}" ; mysqldump -ppassword1 x
docker run --name mysql -p 3306:3306 mysql:8; docker run --name mongo -p 27017:27017/tcp mongo:7
docker run -p 127.0.0.1:27017:27017 mongo -p 27017; mongod --port 27017 --dbpath /data/db1
curl -u user:password https://x.org; curl -u "$USER1:$TOKEN1" x; curl -U x:example123 https://y.org
curl -H 'Accept: a/b1' -o out2.txt -d '{"a":1}' http://127.0.0.1:8080/input; sshpass -e ssh host1
sshpass -p "$PASS1" ssh x; sshpass -p <password> ssh x; ssh -p 2222 me@host1; redis-cli -a $AUTH1
wget --password=your-password1 x; unzip -P "$(cat p1)" a.zip; 7z x a1.7z -oout2; docker login -u me
openssl enc -pass env:PASS1 -in a2; openssl req -passout file:key1.pem; ldapsearch -x -W -b dc=a1
PGPASSWORD= psql; PGPASSWORD=$PW1 psql; --password-stdin <file1; zip -r a1.zip b2 -P
mkdir -p a1/b2c3; git push -u origin:branch1
npx mongo-seeding -p 8080:80; smbclient -U me //host1/share2
lftp -u me, x
"""


@pytest.mark.parametrize(
    "password", ["admin1234", "passwordX9kq2", "secret-Zq81LmX0", "xxxxZq81LmX0p"]
)
def test_a_password_is_refused_even_if_it_contains_a_common_word(password: str) -> None:
    for command in (f"mysql -h db.x.org -u root -p{password} shop", f"PGPASSWORD={password} psql"):
        assert rules_in(command) == ["command-password"]


def test_commands_without_a_password_of_their_own_pass() -> None:
    assert rules_in(HARMLESS) == []
    assert rules_in(json.dumps({"command": HARMLESS})) == []


@pytest.mark.thorough
@pytest.mark.parametrize("encoding", sampled(sorted(ENCODINGS.keys() - {"utf-8"}), 6))
def test_a_clean_transcript_passes_in_every_encoding(encoding: str, transcript: bytes) -> None:
    assert rules_in(ENCODINGS[encoding](transcript)) == []


def findings_in(paths: Iterable[Path]) -> list[Finding]:
    scanner = Scanner()
    scans = [scanner.scan(str(path), pieces(path.read_bytes())) for path in paths]
    assert len(scans) > 20
    return [finding for findings in scans for finding in findings]


def test_our_own_sources_contain_no_complete_token() -> None:
    package = Path(clawblox.__file__).parent
    parts = (package, package.parent / "tests" / "checkpoint")
    assert findings_in(path for part in parts for path in part.rglob("*.py")) == []


def test_the_standard_library_passes() -> None:
    library = Path(sysconfig.get_path("stdlib"))
    parts = (library, *(library / part for part in ("asyncio", "email", "email/__pycache__")))
    assert findings_in(path for part in parts for path in part.glob("*.py*")) == []
