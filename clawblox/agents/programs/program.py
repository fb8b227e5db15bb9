"""The facts of the agent programs: their names, homes and conversation ids.

Observed with Claude Code 2.1, codex-cli 0.169, kimi-code 2.1 and opencode 1.18.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import attrs

UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

STATE_DIR: Final = "session"
"""Directory in an agent's directory in which its program keeps its state."""

SANDBOX_WORKSPACE: Final = Path("/workspace")
"""The workspace as a program in our sandbox sees it."""


@attrs.frozen(kw_only=True)
class Program:
    """The facts of one agent program.

    Attributes:
        driver: Name of the driver that runs it, as in an agent's ``agent=``.
        command: Name of the program on PATH; ``""`` if any program can be run.
        home_dir: Directory in ``HOME`` where it keeps its state by default.
        state_variable: Variable that names its state directory; None if it has none.
        id_pattern: Pattern of its conversation ids, which become parts of paths.
        takes_id: Whether clawblox chooses the id of a new conversation; otherwise the program does.
        credential_variables: Variables for its keys and the address of its model's API, passed on
            from the orchestrator's environment if set there.
        api_hosts: Hosts of its model's API and login, reachable from the sandbox.
        package: Its npm package; ``""`` if unknown.
        own_sandbox_modes: Permission modes in which it runs its commands in a sandbox of its own,
            which needs namespaces.
        reads_prompts: Whether a language model reads its prompts. Other programs get the address of
            the world and the agent's name in variables.
        is_archived: Whether archives contain its conversations.
        id_file: Name of the file in an agent directory that records the conversation id.
    """

    driver: str
    command: str = ""
    home_dir: str = ""
    state_variable: str | None = None
    id_pattern: re.Pattern[str] = attrs.field(eq=False)
    takes_id: bool = False
    credential_variables: tuple[str, ...] = ()
    api_hosts: tuple[str, ...] = ()
    package: str = ""
    own_sandbox_modes: frozenset[str] = frozenset()
    reads_prompts: bool = True
    is_archived: bool = False
    id_file: str = attrs.field(init=False)

    @id_file.default
    def _name_id_file(self) -> str:
        return id_file_name(self.driver)


def id_file_name(driver: str) -> str:
    """Return the name of the file in an agent directory that records the conversation id."""
    return f"{driver}_session_id.txt"


CLAUDE: Final = Program(
    driver="claude",
    command="claude",
    home_dir=".claude",
    state_variable="CLAUDE_CONFIG_DIR",
    id_pattern=re.compile(UUID),
    takes_id=True,
    credential_variables=(
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "CLAUDE_CODE_OAUTH_TOKEN",
    ),
    api_hosts=("api.anthropic.com", "platform.claude.com"),
    package="@anthropic-ai/claude-code",
    is_archived=True,
)

CODEX: Final = Program(
    driver="codex",
    command="codex",
    home_dir=".codex",
    state_variable="CODEX_HOME",
    id_pattern=re.compile(UUID),
    credential_variables=("CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    api_hosts=("api.openai.com", "auth.openai.com", "chatgpt.com"),
    package="@openai/codex",
    own_sandbox_modes=frozenset({"workspace-write", "read-only"}),
    is_archived=True,
)

KIMI: Final = Program(
    driver="kimi",
    command="kimi",
    home_dir=".kimi-code",
    state_variable="KIMI_CODE_HOME",
    id_pattern=re.compile(rf"(session_)?{UUID}"),
    credential_variables=(
        "KIMI_MODEL_NAME",
        "KIMI_MODEL_API_KEY",
        "KIMI_MODEL_BASE_URL",
        "KIMI_MODEL_PROVIDER_TYPE",
    ),
    api_hosts=(
        "api.kimi.com",
        "api.kimi.ai",
        "api.moonshot.ai",
        "api.moonshot.cn",
        "auth.kimi.com",
    ),
    package="@moonshot-ai/kimi-code",
    is_archived=True,
)

OPENCODE: Final = Program(
    driver="opencode",
    command="opencode",
    home_dir=".local/share/opencode",
    id_pattern=re.compile(r"ses_[0-9A-Za-z]+"),
    credential_variables=(
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENCODE_API_KEY",
    ),
    api_hosts=("api.anthropic.com", "api.openai.com", "models.dev", "opencode.ai"),
    package="opencode-ai",
)

PROGRAMS: Final[Mapping[str, Program]] = MappingProxyType(
    {program.driver: program for program in (CLAUDE, CODEX, KIMI, OPENCODE)}
)
"""Programs by the name of their driver."""


ROLLOUT: Final = re.compile(
    r"(?:sessions/\d{4}/\d\d/\d\d|archived_sessions)/"
    rf"rollout-[0-9T-]+-(?P<thread>{UUID})(?:_(?P<rollout>{UUID}))?\.jsonl"
)
"""Path of a rollout of Codex below the state directory.

The first rollout of a thread has the thread's id. When the last turns are reverted, Codex continues
the thread in another rollout, whose first record refers to the previous one. Codex resumes the
rollout whose path is last in alphabetical order.

A person can archive a thread, which moves its rollouts to ``archived_sessions``. Codex does not
resume them there, but reads them as the history of a forked thread.
"""


def thread_id(path: str) -> str | None:
    """Return the thread of a rollout path; None if the path is not a rollout.

    Args:
        path: Path below the state directory.
    """
    match = ROLLOUT.fullmatch(path)
    return match["thread"] if match else None


def rollout_id(path: str) -> str | None:
    """Return the id with which records refer to a rollout; None if the path is not a rollout.

    Args:
        path: Path below the state directory.
    """
    match = ROLLOUT.fullmatch(path)
    return match and (match["rollout"] or match["thread"])


_MAX_SLUG: Final = 200
_BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def project_slug(path: str) -> str:
    """Return the name of Claude Code's project directory for a working directory.

    Every UTF-16 unit other than an ASCII letter or digit becomes a dash. A long name is truncated
    and ends with Java's string hash of the path, in base 36.

    Args:
        path: The working directory, absolute and with its links resolved.
    """
    encoded = path.encode("utf-16-le", "surrogatepass")
    units = [low | high << 8 for low, high in zip(encoded[::2], encoded[1::2], strict=True)]
    slug = "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units)
    if len(slug) <= _MAX_SLUG:
        return slug
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return f"{slug[:_MAX_SLUG]}-{_base36(min(value, 2**32 - value))}"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _BASE36[digit] + digits
    return digits or "0"
