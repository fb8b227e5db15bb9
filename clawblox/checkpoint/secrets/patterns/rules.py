"""The shapes of credentials, as data: the pattern of each, and the literals at its start.

A shape starts at its literal and ends with its characters. It has a left boundary but no right
boundary: in a transcript, a key may be followed by an escaped quote, an escaped newline or the end
of the file. ``shapes`` searches for the shapes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

import attrs

from clawblox.checkpoint.secrets.patterns.plausible import (
    encodes_login,
    is_key,
    is_local_password,
    is_login_password,
    is_no_identifier,
    is_password,
    is_plausible,
)

RULESET: Final = "clawblox-secrets-5"
"""Version of the rules, the placeholder filter and the samples; increased with every change."""

_HEX: Final = rb"[0-9A-Fa-f]"
# A token may directly follow an escape (of a newline, a quotation mark, an emoji, in JSON,
# programs, URLs and mail), because ``views`` replaces only escapes of ASCII before the search. It
# may also follow its length, as a letter, in a binary file, a pickle or a database.
ESCAPES: Final = (
    *(rb"\\[0-3][0-7]{2}", rb"\\[abefnrtv0]"),
    *(rb"\\x" + _HEX * 2, rb"\\u" + _HEX * 4, rb"\\U" + _HEX * 8),
    *(rb"%" + _HEX * 2, rb"%25" + _HEX * 2, rb"=[89A-F][0-9A-F]"),
)
_LENGTH: Final = rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\xff][A-Za-z0-9]"
_TOUCHED: Final = b"|".join(b"(?<=" + end + b")" for end in (*ESCAPES, _LENGTH))
_LEFT: Final = rb"(?:(?<![A-Za-z0-9])|" + _TOUCHED + rb")"
_GAP: Final = rb"(?:\s|\\+[nrt])"
_IS: Final = rb"""\\*["']?\s{0,4}[:=]\s{0,4}\\*["']?"""


@attrs.frozen(kw_only=True)
class Rule:
    """The shape of a kind of credential.

    Attributes:
        name: Name in findings.
        keywords: Literals; every match starts at a keyword. Folded (:func:`shapes.fold`) for rules
            that need context.
        regex: Matched at a keyword. The secret is its first group, or the whole match without a
            group.
        flags: Flags of its pattern.
        check: Returns whether a match counts; None accepts every match.
        hint: Matches a long word wherever ``regex`` matches; for rules without keywords.
        rank: Of two overlapping matches, the smaller rank wins.
    """

    name: str
    keywords: tuple[bytes, ...]
    regex: bytes
    flags: int = 0
    check: Callable[[bytes], bool] | None = None
    hint: re.Pattern[bytes] | None = None
    rank: int = 1

    @functools.cached_property
    def pattern(self) -> re.Pattern[bytes]:
        """The compiled ``regex``, compiled on first use because most processes do not search."""
        return re.compile(self.regex, self.flags)


_WEAK: Final = (is_plausible, is_key, is_login_password, is_local_password)
"""Checks of rules with lower precedence than more specific rules."""


def _words(*rules: tuple[str, str, str], left: bytes = _LEFT) -> list[Rule]:
    """Return rules for keys without context: their names, keywords and patterns."""
    return [
        Rule(
            name=name,
            keywords=tuple(keywords.encode().split()),
            regex=left + b"(?:" + body.encode() + b")",
        )
        for name, keywords, body in rules
    ]


def _context(
    name: str,
    keywords: tuple[bytes, ...],
    regex: bytes,
    check: Callable[[bytes], bool] | None = None,
    flags: int = re.IGNORECASE,
) -> Rule:
    rank = 3 if check in _WEAK else 2
    return Rule(name=name, keywords=keywords, regex=regex, flags=flags, check=check, rank=rank)


_AGENTS = _words(
    ("anthropic-api-key", "sk-ant-api", r"sk-ant-api\d\d-[\w-]{20,200}"),
    ("anthropic-admin-key", "sk-ant-admin", r"sk-ant-admin\d\d-[\w-]{20,200}"),
    ("anthropic-oauth-token", "sk-ant-o", r"sk-ant-o[ar]t\d\d-[\w-]{20,200}"),
    ("anthropic-session-key", "sk-ant-sid", r"sk-ant-sid\d\d-[\w-]{20,200}"),
    ("openai-key", "sk-", r"sk-(?:proj|svcacct|admin|service|None)-[\w-]{20,250}"),
    ("openai-legacy-key", "sk-", r"sk-(?!ant-)[\w-]{16,100}?T3BlbkFJ[\w-]{16,100}"),
    ("openai-session-key", "sess-", r"sess-[A-Za-z0-9]{40}"),
    ("kimi-key", "sk-kimi-", r"sk-kimi-[\w-]{20,200}"),
    ("openrouter-key", "sk-or-v", r"sk-or-v\d-[0-9a-f]{32,64}"),
    ("langfuse-key", "sk-lf-", r"sk-lf-[0-9a-f]{8}-[0-9a-f-]{27}"),
    ("xai-key", "xai-", r"xai-[A-Za-z0-9]{40,100}"),
    ("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{40,60}"),
    ("cerebras-key", "csk-", r"csk-[a-z0-9]{40,60}"),
    ("perplexity-key", "pplx-", r"pplx-[A-Za-z0-9]{40,60}"),
    ("nvidia-key", "nvapi-", r"nvapi-[\w-]{50,100}"),
    ("replicate-token", "r8_", r"r8_[A-Za-z0-9]{37}"),
    ("tavily-key", "tvly-", r"tvly-[\w-]{28,64}"),
    ("firecrawl-key", "fc-", r"fc-[0-9a-f]{32}"),
    ("langsmith-key", "lsv2_", r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    ("pinecone-key", "pcsk_", r"pcsk_[A-Za-z0-9_]{40,100}"),
    ("wandb-key", "wandb_v1_", r"wandb_v1_[A-Za-z0-9_]{40,100}"),
)

# Tokens of letters only. Symbols of a compiled program look similar when the NULs between them are
# removed.
_HUGGING_FACE = Rule(
    name="huggingface-token",
    keywords=(b"hf_", b"api_org_"),
    regex=_LEFT + rb"(?:hf|api_org)_[A-Za-z0-9]{30,60}",
    check=is_no_identifier,
)

_FORGES = _words(
    ("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36,251}"),
    ("github-fine-grained-token", "github_pat_", r"github_pat_\w{60,120}"),
    (
        "gitlab-token",
        "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat- glffct-",
        r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[\w-]{20,100}",
    ),
    ("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    ("pypi-token", "pypi-AgE", r"pypi-AgE[\w-]{50,300}"),
    ("rubygems-token", "rubygems_", r"rubygems_[0-9a-f]{48}"),
    ("docker-hub-token", "dckr_pat_ dckr_oat_", r"dckr_[po]at_[\w-]{27,60}"),
    ("linear-key", "lin_api_", r"lin_api_[A-Za-z0-9]{40}"),
    ("atlassian-token", "ATATT3", r"ATATT3[\w=-]{100,300}"),
    ("sentry-token", "sntryu_ sntrys_", r"sntry(?:u_[0-9a-f]{64}|s_eyJ[\w=+/-]{40,400})"),
    ("postman-key", "PMAK-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
)

_CLOUDS = _words(
    ("aws-access-key-id", "AKIA ASIA ABIA ACCA", r"A(?:KI|SI|BI|CC)A[A-Z2-7]{16}(?![A-Z2-7])"),
    ("aws-bedrock-key", "bedrock-api-key-", r"bedrock-api-key-[A-Za-z0-9+/]{40,400}"),
    ("google-api-key", "AIza", r"AIza[\w-]{35}"),
    ("google-api-key", "AQ.Ab", r"AQ\.Ab[\w-]{40,100}"),
    ("google-oauth-token", "ya29.", r"ya29\.[\w-]{20,400}"),
    ("google-oauth-secret", "GOCSPX-", r"GOCSPX-[\w-]{20,60}"),
    ("google-refresh-token", "1//0", r"1//0[\w-]{24,200}"),
    ("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    ("databricks-token", "dapi", r"dapi[0-9a-f]{32}"),
    ("vault-token", "hvs. hvb. hvr.", r"hv[sbr]\.[\w-]{24,300}"),
    ("pulumi-token", "pul-", r"pul-[0-9a-f]{40}"),
    ("doppler-token", "dp.pt. dp.st. dp.ct.", r"dp\.[psc]t\.[A-Za-z0-9]{40,50}"),
    ("tailscale-key", "tskey-", r"tskey-[a-z]+-\w{8,30}-\w{20,60}"),
    ("supabase-key", "sbp_ sb_secret_", r"sb(?:p_[0-9a-f]{40}|_secret_[\w-]{30,60})"),
    ("fly-token", "fo1_", r"fo1_[\w-]{40,60}"),
    (
        "grafana-token",
        "glsa_ glc_eyJ",
        r"gl(?:sa_[A-Za-z0-9]{32}_[0-9A-Fa-f]{8}|c_eyJ[\w=]{40,400})",
    ),
    ("newrelic-key", "NRAK-", r"NRAK-[A-Z0-9]{27}"),
)

_SERVICES = _words(
    (
        "slack-token",
        "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxe- xoxe.",
        r"xox[abeoprs][.-][\w.-]{24,250}",
    ),
    ("slack-app-token", "xapp-", r"xapp-\d-[A-Z0-9]{6,20}-\d{6,20}-[0-9a-f]{32,80}"),
    (
        "stripe-key",
        "sk_live_ sk_test_ rk_live_ rk_test_",
        r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,250}",
    ),
    ("elevenlabs-key", "sk_", r"sk_[0-9a-f]{48}"),
    ("sendgrid-key", "SG.", r"SG\.[\w-]{16,32}\.[\w-]{32,64}"),
    ("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{32}"),
    ("square-token", "sq0atp- sq0csp-", r"sq0(?:atp|csp)-[\w-]{22,50}"),
    ("figma-token", "figd_", r"figd_[\w-]{40,60}"),
    ("1password-token", "ops_eyJ", r"ops_eyJ[\w-]{100,900}"),
    ("age-secret-key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-(?:PQ-)?1[0-9A-Z]{50,100}"),
    ("jwt", "eyJ", r"eyJ[\w-]{12,800}\.eyJ[\w-]{8,3000}\.[\w-]{20,700}"),
)

_INFIXES = _words(
    ("terraform-token", ".atlasv1.", r"(?<=[A-Za-z0-9]{14})\.atlasv1\.[\w-]{60,80}"),
    ("telegram-token", ":AA", r"(?<=\d{8}):AA[\w-]{33}"),
    left=b"",
)

# The user's id: decimal digits in base64, without a literal but with few choices per character.
_DISCORD_USER = rb"[MNO][DTjz][AEIMQUYcgk][wxyz0-5]" * 5
_DISCORD = Rule(
    name="discord-token",
    keywords=(),
    hint=re.compile(_DISCORD_USER),
    regex=_DISCORD_USER + rb"[\w-]{3,8}\.[\w-]{6}\.[\w-]{27,45}",
)

WORD_RULES: Final = (*_AGENTS, _HUGGING_FACE, *_FORGES, *_CLOUDS, *_SERVICES, *_INFIXES, _DISCORD)
"""Tokens that are a long word of letters, digits, ``_`` and ``-``, or start just before one."""

# The letter of a JSON newline or tab may directly precede a name.
_NAME_LEFT = rb"(?:(?<![a-z])|(?<=\\[nrt]))"
# Many programs accept any text as such a key.
_ANY_TEXT = rb"(?:(?<=SECRET_)|(?<=MASTER_)|(?<=ENCRYPTION_))"
_KEY_NAME = rb"(?-i:" + _NAME_LEFT + rb"(?!" + _ANY_TEXT + rb")KEY)"
_SECRET_NAME = (
    rb"(?-i:" + _NAME_LEFT + rb"(?:" + _ANY_TEXT + rb"KEY"
    rb"|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?))"
)
_ASSIGNED = (
    rb"(?:=|\\*[\"']\s{0,4}:\s{0,4}(?=\\*[\"']))\\*[\"']?"
    rb"([^\s\"'\\;&|<>$`(){}\[\],]{12,200})(?![(\[])"
)

_URL_PASSWORD = rb"(?<=[a-z0-9])://[^\s:/@\"'<>?#\\{}$]{0,128}:([^\s:/@\"'<>?#\\{}$]{8,128})@"
_THIS_MACHINE = (
    rb"(?:localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|0\.0\.0\.0|\[::1\]|host\.docker\.internal)"
    rb"(?![\w-]|\.\w|(?::\d{0,5})?@)"
)


def _after(*beginnings: str) -> bytes:
    # A lookbehind has a fixed width. A JSON name starts with a quote or continues to the left.
    widths = (f"(?<=[\\w\"'-]{beginning}{dash})" for beginning in beginnings for dash in ("", "_"))
    return f"(?:{'|'.join(widths)})".encode()


_JSON_KEY_NAME = _after("api") + rb"key"
_JSON_SECRET_NAME = (
    rb"(?:" + _after("refresh", "access", "id", "auth", "session", "bearer") + rb"token"
    rb"|" + _after("client") + rb"secret|" + _after("secret") + rb"key)"
)
_JSON_VALUE = rb"\\*\"\s{0,4}:\s{0,4}\\*\"([^\"'\\\s<>{}$()]{16,2000})"

# The password of a command in a shell's history, a script or a transcript. The number of words
# before it is bounded, and blanks separate them, so that no text makes the search slow.
_QUOTE = rb"\\*[\"']?"
_PASSWORD = rb"(?![0-9.:]+(?:[\s\"'/]|$))([^\s\"'\\;&|<>$`(){}\[\],]{6,128})"
_WORDS = rb"(?:[ \t]{1,40}[^\s;|&<>]{1,160}){0,16}?[ \t]{1,40}"


def _of_command(programs: bytes, option: bytes) -> bytes:
    """Return the pattern of a password in an option of a program."""
    return rb"(?:" + programs + rb")" + _WORDS + rb"(?-i:" + option + rb")" + _QUOTE + _PASSWORD


_GIVEN = rb"(?:[ \t]+|=)"
_LOGIN = rb"[^\s:\"'$]{1,64}:"
_CONTAINERS = rb"(?:docker|podman|buildah|skopeo|oras|helm(?: registry)?) login"
_COMMANDS: Final[tuple[tuple[str, bytes], ...]] = (
    ("mysql|mariadb", _of_command(rb"(?:mysql|mariadb)[a-z_]{0,8}(?:-[a-z]{1,12})?", rb"-p")),
    ("curl ", _of_command(rb"curl", rb"-[A-Za-z]{0,8}[uU][ \t]*" + _QUOTE + _LOGIN)),
    ("curl ", _of_command(rb"curl", rb"--(?:proxy-)?user" + _GIVEN + _QUOTE + _LOGIN)),
    ("sshpass ", rb"sshpass(?:[ \t]+-v)?[ \t]+(?-i:-p)[ \t]*" + _QUOTE + _PASSWORD),
    ("-password", rb"-password" + _GIVEN + _QUOTE + _PASSWORD),
    (
        "pgpassword=|mysql_pwd=|sshpass=|rediscli_auth=",
        rb"(?-i:PGPASSWORD|MYSQL_PWD|SSHPASS|REDISCLI_AUTH)=" + _QUOTE + _PASSWORD,
    ),
    ("redis-cli ", _of_command(rb"redis-cli", rb"(?:-a|--pass)[ \t]+")),
    ("mongo", _of_command(rb"mongo[a-z]{0,8}", rb"-p[ \t]*")),
    ("docker |podman |buildah |helm |oras |skopeo ", _of_command(_CONTAINERS, rb"-p[ \t]+")),
    ("sqlcmd |bcp ", _of_command(rb"sqlcmd|bcp", rb"-P[ \t]*")),
    ("mosquitto_", _of_command(rb"mosquitto_[a-z]{3,4}", rb"-P[ \t]+")),
    ("ldap", _of_command(rb"ldap[a-z]{3,9}", rb"-w[ \t]*")),
    (
        "smbclient |rpcclient |net rpc",
        _of_command(rb"smbclient|rpcclient|net rpc", rb"-U[ \t]*" + _QUOTE + rb"[^\s%\"']{1,64}%"),
    ),
    ("lftp ", _of_command(rb"lftp", rb"(?:-u|--user)[ \t=]*" + _QUOTE + rb"[^\s,]{1,64},")),
    ("xfreerdp", _of_command(rb"xfreerdp3?", rb"[/+]p:")),
    ("unzip |zip ", _of_command(rb"(?:un)?zip", rb"-P[ \t]*")),
    ("7z|rar ", _of_command(rb"7z[az]?|(?:un)?rar", rb"-h?p")),
    ("openssl ", _of_command(rb"openssl", rb"-pass(?:in|out)?[ \t]+" + _QUOTE + rb"pass:")),
    ("htpasswd ", rb"htpasswd[ \t]+-[a-z0-9]{0,6}b[a-z0-9]{0,6}" + _WORDS + _PASSWORD),
)
"""Passwords in commands: the literals at the start of a match, and its pattern."""

CONTEXT_RULES: Final = (
    *(
        _context("command-password", tuple(begin.encode().split(b"|")), pattern, is_password)
        for begin, pattern in _COMMANDS
    ),
    _context(
        "private-key",
        (b"-----begin ",),
        rb"-----BEGIN (?:[A-Z0-9]{2,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        rb"(?:(?!-----).){0,300}?[A-Za-z0-9+/]{40,70}",
        flags=re.DOTALL,
    ),
    _context(
        "putty-private-key",
        (b"private-lines:",),
        rb"Private-Lines: \d+" + _GAP + rb"{1,4}([A-Za-z0-9+/]{40,70})",
    ),
    _context(
        "aws-secret-access-key",
        (b"secret_access_key", b"secretaccesskey", b"aws_secret_key"),
        rb"(?:secret_?access_?key|aws_secret_key)" + _IS + rb"([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
    ),
    _context(
        "aws-session-token",
        (b"iqojb3jpz2lux2vj", b"fwogzxivyxdz"),
        rb"(?-i:IQoJb3JpZ2luX2Vj|FwoGZXIvYXdz)[A-Za-z0-9/+]{60,400}",
    ),
    _context(
        "google-service-account",
        (b"private_key_id=",),
        rb"private_key_id" + _IS + rb"([0-9a-f]{40})",
    ),
    # Tokens with characters that split them into short words.
    _context("aws-bedrock-key", (b"absk",), _LEFT + rb"(?-i:ABSK)[A-Za-z0-9+/]{60,200}"),
    _context("azure-client-secret", (b"q~",), rb"(?<=[\w~.-]{3}\d)(?-i:Q)~[\w~.-]{31,34}"),
    _context("fly-token", (b"fm2_", b"fm1r_"), _LEFT + rb"fm(?:2|1r)_[\w+/-]{40,400}"),
    _context("stripe-webhook-secret", (b"whsec_",), _LEFT + rb"whsec_[A-Za-z0-9+/]{24,80}"),
    _context("azure-storage-key", (b"accountkey=",), rb"AccountKey=([A-Za-z0-9+/]{80,88})"),
    _context(
        "slack-webhook",
        (b"hooks.slack.com/",),
        rb"hooks\.slack\.com/(?:services|workflows|triggers)/(T[\w/]{8,40}/\w{16,48})",
    ),
    _context(
        "discord-webhook",
        (b"/api/webhooks/",),
        rb"/api/webhooks/(\d{15,22}/[\w-]{50,80})",
    ),
    _context(
        "netrc-password",
        (b"machine ",),
        rb"machine\s+[^\s\"']{1,200}"
        + _GAP
        + rb"+login\s+[^\s\"'\\]{1,200}"
        + _GAP
        + rb"+password\s+([^\s\"'\\{}<>$]{6,200})",
    ),
    _context(
        "wandb-key",
        (b"wandb",),
        rb"wandb[a-z_. ]{0,24}(?:key|login|password)[\"'\\=:,(\s]{1,8}([0-9a-f]{40})(?![0-9a-f])",
    ),
    _context(
        "kubeconfig-key",
        (b"client-key-data",),
        rb"client-key-data" + _IS + rb"([A-Za-z0-9+/]{60,200})",
    ),
    _context(
        "docker-auth",
        (b"=auth=",),
        rb"[\"']auth" + _IS + rb"([A-Za-z0-9+/]{16,400}={0,2})",
        encodes_login,
    ),
    _context(
        "operator-token",
        (b"operator-token", b"operator_token"),
        rb"operator[-_]token" + _IS + rb"((?=[A-Za-z_-]{0,40}[0-9])[\w-]{20,200})",
    ),
    _context(
        "url-password",
        (b"://",),
        _URL_PASSWORD + rb"(?!" + _THIS_MACHINE + rb")[\w\[]",
        is_login_password,
    ),
    _context("url-password", (b"://",), _URL_PASSWORD + _THIS_MACHINE, is_local_password),
    _context("env-assignment", (b"key=",), _KEY_NAME + _ASSIGNED, is_key),
    _context(
        "env-assignment",
        (b"key=", b"token=", b"secret=", b"password=", b"passwd=", b"credential"),
        _SECRET_NAME + _ASSIGNED,
        is_plausible,
    ),
    _context("oauth-json", (b"key=",), _JSON_KEY_NAME + _JSON_VALUE, is_key),
    _context(
        "oauth-json",
        (b"token=", b"secret=", b"key="),
        _JSON_SECRET_NAME + _JSON_VALUE,
        is_plausible,
    ),
    _context(
        "npmrc",
        (b"_auth", b":_password"),
        rb"(?:(?<=[:\n])|(?<=\\n)|:)_(?:authToken|auth|password)\s{0,4}=\s{0,4}\\*\"?([^\s\"'\\$]{12,400})",
        is_plausible,
    ),
    _context(
        "sk-generic",
        (b"sk-",),
        rb"(?:(?<![\w-])|" + _TOUCHED + rb")(?-i:sk)-[A-Za-z0-9]{32,64}",
        is_plausible,
    ),
)
"""Rules for secrets recognised only by their context; keywords are searched in folded text."""
