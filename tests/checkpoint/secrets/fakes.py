"""Fake secrets, composed at run time so that no file contains a complete token."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterable, Mapping

from clawblox.checkpoint.secrets import Scanner
from clawblox.results import Finding

ALNUM = string.ascii_letters + string.digits
LOWER = string.ascii_lowercase + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"
BASE64 = ALNUM + "+/"
SAFE = ALNUM + "_-"


class Maker:
    """Creates the random parts of fakes, deterministic for a seed."""

    def __init__(self, seed: object) -> None:
        self._random = random.Random(str(seed))

    def __call__(self, length: int, alphabet: str = ALNUM) -> str:
        # An early digit, as in nearly all real tokens.
        text = "".join(self._random.choice(alphabet) for _ in range(length))
        digit = next((c for c in alphabet if c in string.digits[2:]), "")
        return text[:3] + digit + text[3 + len(digit) :]

    def bytes(self, length: int) -> bytes:
        return self._random.randbytes(length)


SPLICED = (
    "example", "EXAMPLE", "placeholder", "changeme", "your", "test", "dummy", "secret", "token",
    "xxxx", "XXXXXXXX", "xxxxxxxxxxxxxxxx", "0000", "00000000", "1234567", "abcdef", "deadbeef",
    "222222", "AAAA",
)  # fmt: skip


class SplicingMaker(Maker):
    """Creates random parts with a placeholder in the middle, if enough characters remain."""

    def __call__(self, length: int, alphabet: str = ALNUM) -> str:
        text = super().__call__(length, alphabet)
        fitting = [
            word for word in SPLICED if set(word) <= set(alphabet) and len(word) + 8 <= length
        ]
        if not fitting:
            return text
        word = self._random.choice(fitting)
        at = self._random.randrange(4, length - len(word) + 1)
        return text[:at] + word + text[at + len(word) :]


def _jwt(make: Maker) -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": make(12), "exp": 1})
    encoded = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts
    )
    return ".".join((*encoded, make(43, SAFE)))


def _discord(make: Maker) -> str:
    user = base64.b64encode(make(18, string.digits).encode()).decode()
    return f"{user}.{make(6)}.{make(38)}"


def _pem(kind: str) -> Callable[[Maker], str]:
    def build(make: Maker) -> str:
        body = "\n".join(make(64, BASE64) for _ in range(4))
        begin, end = (f"-----{word} {kind}PRIVATE " + "KEY-----" for word in ("BEGIN", "END"))
        return f"{begin}\n{body}\n{end}"

    return build


def _login(make: Maker) -> str:
    return base64.b64encode(f"robot:{make(20)}".encode()).decode()


TOKENS: Mapping[str, Callable[[Maker], str]] = {
    "anthropic-api-key": lambda make: "sk-" + "ant-" + "api03-" + make(95, SAFE),
    "anthropic-admin-key": lambda make: "sk-" + "ant-" + "admin01-" + make(95, SAFE),
    "anthropic-oauth-token": lambda make: "sk-" + "ant-" + "oat01-" + make(95, SAFE),
    "anthropic-oauth-token/refresh": lambda make: "sk-" + "ant-" + "ort01-" + make(95, SAFE),
    "anthropic-session-key": lambda make: "sk-" + "ant-" + "sid01-" + make(86, SAFE),
    "openai-key": lambda make: "sk-" + "proj-" + make(120, SAFE),
    "openai-key/service": lambda make: "sk-" + "svcacct-" + make(120, SAFE),
    "openai-legacy-key": lambda make: "sk-" + make(20) + "T3Blbk" + "FJ" + make(20),
    "openai-session-key": lambda make: "se" + "ss-" + make(40),
    "kimi-key": lambda make: "sk-" + "kimi-" + make(64),
    "openrouter-key": lambda make: "sk-" + "or-v1-" + make(64, HEX),
    "langfuse-key": lambda make: "sk-" + "lf-" + "-".join(make(n, HEX) for n in (8, 4, 4, 4, 12)),
    "xai-key": lambda make: "xa" + "i-" + make(80),
    "groq-key": lambda make: "gs" + "k_" + make(52),
    "cerebras-key": lambda make: "cs" + "k-" + make(48, LOWER),
    "perplexity-key": lambda make: "pp" + "lx-" + make(48),
    "nvidia-key": lambda make: "nv" + "api-" + make(64, SAFE),
    "replicate-token": lambda make: "r" + "8_" + make(37),
    "tavily-key": lambda make: "tv" + "ly-" + make(32),
    "firecrawl-key": lambda make: "f" + "c-" + make(32, HEX),
    "langsmith-key": lambda make: "ls" + "v2_pt_" + make(32, HEX) + "_" + make(10, HEX),
    "pinecone-key": lambda make: "pc" + "sk_" + make(60),
    "huggingface-token": lambda make: "h" + "f_" + make(34),
    "wandb-key": lambda make: "wan" + "db_v1_" + make(80),
    "github-token": lambda make: "gh" + "p_" + make(36),
    "github-token/server": lambda make: "gh" + "s_" + make(36),
    "github-fine-grained-token": lambda make: "github" + "_pat_" + make(22) + "_" + make(59),
    "gitlab-token": lambda make: "gl" + "pat-" + make(20, SAFE),
    "npm-token": lambda make: "np" + "m_" + make(36),
    "pypi-token": lambda make: "py" + "pi-AgE" + make(150, SAFE),
    "rubygems-token": lambda make: "ruby" + "gems_" + make(48, HEX),
    "docker-hub-token": lambda make: "dck" + "r_pat_" + make(27, SAFE),
    "linear-key": lambda make: "lin" + "_api_" + make(40),
    "atlassian-token": lambda make: "ATA" + "TT3" + make(180, SAFE),
    "sentry-token": lambda make: "sn" + "tryu_" + make(64, HEX),
    "postman-key": lambda make: "PM" + "AK-" + make(24, HEX) + "-" + make(34, HEX),
    "aws-access-key-id": lambda make: "AK" + "IA" + make(16, BASE32),
    "aws-access-key-id/temporary": lambda make: "AS" + "IA" + make(16, BASE32),
    "aws-bedrock-key": lambda make: "AB" + "SK" + make(128, BASE64),
    "google-api-key": lambda make: "AI" + "za" + make(35, SAFE),
    "google-oauth-token": lambda make: "ya" + "29." + make(150, SAFE),
    "google-oauth-secret": lambda make: "GOC" + "SPX-" + make(28, SAFE),
    "google-refresh-token": lambda make: "1/" + "/0" + make(98, SAFE),
    "digitalocean-token": lambda make: "do" + "p_v1_" + make(64, HEX),
    "databricks-token": lambda make: "da" + "pi" + make(32, HEX),
    "vault-token": lambda make: "hv" + "s." + make(90, SAFE),
    "terraform-token": lambda make: make(14) + ".atlas" + "v1." + make(67, SAFE),
    "pulumi-token": lambda make: "pu" + "l-" + make(40, HEX),
    "doppler-token": lambda make: "dp" + ".pt." + make(43),
    "tailscale-key": lambda make: "ts" + "key-auth-" + make(12) + "-" + make(32),
    "supabase-key": lambda make: "sb" + "p_" + make(40, HEX),
    "fly-token": lambda make: "fo" + "1_" + make(43, SAFE),
    "fly-token/macaroon": lambda make: "fm" + "2_" + make(120, BASE64),
    "grafana-token": lambda make: "gl" + "sa_" + make(32) + "_" + make(8, HEX),
    "newrelic-key": lambda make: "NR" + "AK-" + make(27, UPPER),
    "azure-client-secret": lambda make: make(3) + "8" + "Q" + "~" + make(34, SAFE),
    "slack-token": lambda make: (
        "xo" + "xb-" + make(12, string.digits) + "-" + make(12, string.digits) + "-" + make(24)
    ),
    "slack-app-token": lambda make: (
        "xa" + "pp-1-A" + make(10, UPPER) + "-" + make(13, string.digits) + "-" + make(64, HEX)
    ),
    "stripe-key": lambda make: "sk" + "_live_" + make(24),
    "stripe-key/restricted": lambda make: "rk" + "_live_" + make(99),
    "stripe-webhook-secret": lambda make: "wh" + "sec_" + make(32),
    "elevenlabs-key": lambda make: "s" + "k_" + make(48, HEX),
    "sendgrid-key": lambda make: "S" + "G." + make(22, SAFE) + "." + make(43, SAFE),
    "shopify-token": lambda make: "shp" + "at_" + make(32, HEX),
    "square-token": lambda make: "sq0" + "atp-" + make(22, SAFE),
    "telegram-token": lambda make: make(10, "123456789") + ":A" + "A" + make(33, SAFE),
    "discord-token": _discord,
    "figma-token": lambda make: "fi" + "gd_" + make(40, SAFE),
    "1password-token": lambda make: "op" + "s_eyJ" + make(300, SAFE),
    "age-secret-key": lambda make: "AGE-" + "SECRET-KEY-1" + make(58, UPPER),
    "jwt": _jwt,
    "sk-generic": lambda make: "s" + "k-" + make(48),
}
"""Tokens that are found in any context; a slash separates kinds of the same rule."""

PHRASES: Mapping[str, Callable[[Maker], str]] = {
    "private-key": _pem("RSA "),
    "private-key/pkcs8": _pem(""),
    "private-key/openssh": _pem("OPENSSH "),
    "putty-private-key": lambda make: "Private-" + "Lines: 8\n" + make(64, BASE64),
    "aws-secret-access-key": lambda make: "aws_secret_" + "access_key = " + make(40, BASE64),
    "aws-session-token": lambda make: "aws_session: IQoJb3" + "JpZ2luX2Vj" + make(200, BASE64),
    "google-service-account": lambda make: f'"private_key_id": "{make(40, HEX)}"',
    "azure-storage-key": lambda make: "Account" + "Key=" + make(86, BASE64) + "==",
    "slack-webhook": lambda make: (
        "https://hooks.slack"
        ".com/services/T" + make(8, UPPER) + "/B" + make(8, UPPER) + "/" + make(24)
    ),
    "discord-webhook": lambda make: (
        "https://discord.com/api" + "/webhooks/" + make(18, string.digits) + "/" + make(68, SAFE)
    ),
    "netrc-password": lambda make: "machine api.host login me " + "password " + make(20),
    "wandb-key/legacy": lambda make: "wandb " + "login " + make(40, HEX),
    "kubeconfig-key": lambda make: "client-key" + "-data: " + make(120, BASE64),
    "docker-auth": lambda make: f'"auths": {{"host": {{"auth": "{_login(make)}"}}}}',
    "operator-token": lambda make: "X-Operator-" + "Token: " + make(43, SAFE),
    "url-password": lambda make: "postgres://me:" + make(20) + "@db.host:5432/x",
    "env-assignment": lambda make: "SERVICE_" + "PASSWORD=" + make(20),
    "oauth-json": lambda make: '"refresh_' + f'token": "{make(40)}"',
    "command-password": lambda make: "mysql -u root " + "-p" + make(12) + " shop",
    "command-password/dump": lambda make: "mysqldump --single-transaction " + f"-p'{make(12)}' x",
    "command-password/curl": lambda make: "curl -sS " + f"-u robot:{make(12)} https://x.org/a",
    "command-password/user": lambda make: "curl https://x.org " + f"--user 'robot:{make(12)}'",
    "command-password/ssh": lambda make: "ssh" + f"pass -p {make(12)} ssh root@x.org",
    "command-password/option": lambda make: "wget --user=me " + f"--password={make(12)} x.org",
    "command-password/variable": lambda make: "PG" + f"PASSWORD={make(9)} psql -h x.org",
    "command-password/redis": lambda make: "redis-cli -h x.org " + f"-a {make(12)} PING",
    "command-password/mongo": lambda make: "mongosh x.org/a -u me " + f"-p {make(12)}",
    "command-password/docker": lambda make: "docker login " + f"-u me -p {make(12)} x.org",
    "command-password/sql": lambda make: "sqlcmd -S x.org -U sa " + f"-P {make(12)}",
    "command-password/mqtt": lambda make: "mosquitto_pub -u me " + f"-P {make(12)} -t a -m b",
    "command-password/ldap": lambda make: "ldapsearch -x -D cn=me " + f"-w {make(12)} -b a",
    "command-password/smb": lambda make: "smbclient //x.org/a " + f"-U me%{make(12)}",
    "command-password/lftp": lambda make: "lftp " + f"-u me,{make(12)} x.org",
    "command-password/rdp": lambda make: "xfreerdp /v:x.org /u:me " + f"/p:{make(12)}",
    "command-password/zip": lambda make: "unzip " + f"-P {make(12)} a.zip",
    "command-password/7z": lambda make: "7z x " + f"-p{make(12)} a.7z",
    "command-password/openssl": lambda make: "openssl enc -d " + f"-pass pass:{make(12)} -in a",
    "command-password/htpasswd": lambda make: "htpasswd " + f"-bc users me {make(12)}",
    "npmrc": lambda make: "//registry.host/:_auth" + "Token=" + make(32),
}
"""Secrets that are recognised only by their context, and are not single words."""

FAMILIES = {**TOKENS, **PHRASES}


def rule_name(family: str) -> str:
    """Return the rule that must find a family."""
    return family.split("/")[0]


def fake(family: str, seed: object = 0, maker: type[Maker] = Maker) -> str:
    """Return the fake of a family for a seed."""
    return FAMILIES[family](maker(f"{family} {seed}"))


EMBEDDINGS: Mapping[str, Callable[[str], str]] = {
    "bare": lambda secret: secret,
    "env": lambda secret: f"export A_VALUE={secret}\n",
    "json": lambda secret: json.dumps({"text": f"it says\n{secret}\nthere"}),
    "json-in-json": lambda secret: json.dumps({"text": json.dumps({"x": f"a\n{secret}\n"})}),
    "mid-line": lambda secret: f"see here: {secret}, and there\n",
    "quoted-in-json": lambda secret: json.dumps({"text": f'the value is "{secret}".'}),
}
"""Texts that contain a secret."""


def pieces(data: bytes, size: int = 100_000) -> Iterable[bytes]:
    """Yield the data in pieces."""
    for at in range(0, len(data), size):
        yield data[at : at + size]


def scan(
    data: bytes | str,
    path: str = "agents/a/workspace/file",
    size: int = 100_000,
    **options: object,
) -> list[Finding]:
    """Return the findings of a new scanner in data that arrives in pieces of a size."""
    content = data.encode() if isinstance(data, str) else data
    scanner = Scanner(**options)  # type: ignore[arg-type]
    return scanner.scan(path, pieces(content, size))


def rules_in(data: bytes | str, **options: object) -> list[str]:
    """Return the rules with findings in data."""
    return sorted(finding.rule for finding in scan(data, **options))  # type: ignore[arg-type]
