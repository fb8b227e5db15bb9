"""The names by which programs find credentials, and what they run or obey unasked. Data.

What counts is that a program looks for such a name by itself, where it is started, where a
directory is opened, or in a home directory. What runs only when somebody builds, tests or runs
the project that it belongs to (a makefile, ``package.json``, ``conftest.py``) is the project's
code, which travels, and so are texts that instruct an agent (``AGENTS.md``, skills, commands,
rules). All names are folded, as in :func:`clawblox.checkpoint.names.fold`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = [
    "CAPABILITY_NAMES",
    "CREDENTIAL_NAMES",
    "PROGRAM_CAPABILITIES",
    "PROGRAM_CREDENTIALS",
    "REBUILT_DIRS",
]

REBUILT_DIRS: Final = frozenset(
    [
        ".cache",
        ".eggs",
        ".gradle",
        ".mypy_cache",
        ".nox",
        ".npm",
        ".parcel-cache",
        ".pnpm-store",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
        "site-packages",
        "venv",
    ]
)
"""Directories that can be built anew."""


def _any(*patterns: str) -> re.Pattern[str]:
    """Return a pattern that matches what one of the patterns, separated by blanks, does."""
    return re.compile("|".join(part for pattern in patterns for part in pattern.split()), re.DOTALL)


CREDENTIAL_NAMES: Final = _any(
    # The programs of agents.
    r"\.claude\.json \.credentials\.json",
    # Settings of services. The templates that are committed hold none.
    r"\.env (?!.*\.(?:dist|example|sample|template)$)\.env\..* \.flaskenv",
    # Remote logins and keys.
    r"\.ssh \.gnupg \.password-store id_(?:dsa|ecdsa|ed25519|rsa)(?:_sk)? [._]netrc",
    r"\.authinfo(?:\.gpg)?",
    # Clouds and containers.
    r"\.aws \.azure \.boto \.docker \.dockercfg \.gcloud \.kube \.oci \.s3cfg \.terraform\.d",
    r"\.terraformrc \.vault-token",
    # Registries of packages, forges, databases.
    r"\.git-credentials \.npmrc \.pypirc \.yarnrc(?:\.yml)? \.mylogin\.cnf \.my\.cnf \.pgpass",
    r"\.pg_service\.conf",
)
"""Files and directories that hold credentials, wherever they are."""

CAPABILITY_NAMES: Final = _any(
    # The programs of agents.
    r"\.codex \.mcp\.json \.?crush\.json \.?opencode\.jsonc? \.aider\.conf\.ya?ml",
    # Editors, and what they open a project with.
    r"\.devcontainer(?:\.json)? \.fleet \.idea \.vs \.vscode \.zed .*\.code-workspace",
    r"\.dir-locals(?:-2)?\.el \.emacs(?:\.d|\.el)? \.exrc \.nexrc \.[gl]?vimrc \.vim",
    r"\.nvim(?:\.lua|rc)",
    # Shells, and what hooks into them.
    r"\.bash_(?:aliases|login|logout|profile) \.(?:bash|csh|ksh|tcsh|zsh)rc",
    r"\.z(?:shenv|profile|login|logout) \.profile \.login \.logout \.inputrc",
    r"\.direnv \.envrc \.?mise(?:\..*)?\.toml \.mise \.rtx(?:\..*)?\.toml",
    # Debuggers, interpreters and tools that read a file where they are started.
    r"\.gdbinit \.lldbinit \.pdbrc(?:\.py)? \.pythonrc(?:\.py)? (?:site|user)customize\.py",
    r"\.ipython \.jupyter (?:ipython|jupyter)(?:_[a-z]+)*_config\.(?:json|py)",
    r"\.rprofile \.renviron \.irbrc \.pryrc \.psqlrc \.sqliterc \.tclshrc \.curlrc \.wgetrc",
    r"\.screenrc \.tmux\.conf \.gitconfig \.?hgrc",
)
"""Files and directories that grant capabilities or run by themselves, wherever they are."""

PROGRAM_CREDENTIALS: Final = re.compile(
    r"auth\.json|credentials(\..*)?|google_accounts\.json|oauth_creds\.json"
)
"""What holds credentials directly in a directory of :data:`PROGRAM_CAPABILITIES`."""

# Of the programs that can be resumed, what is known; of the others, what is no text.
_NO_TEXT: Final = re.compile(
    r"(?!.*\.mdc?$|(?:commands?|docs|memory|memories|plans|prompts|rules(?:-.*)?|skills|specs"
    r"|steering)$).*",
    re.DOTALL,
)
_OTHER_PROGRAMS: Final = [
    ".aider",
    ".amazonq",
    ".amp",
    ".augment",
    ".continue",
    ".copilot",
    ".crush",
    ".cursor",
    ".factory",
    ".gemini",
    ".iflow",
    ".junie",
    ".kilocode",
    ".kimi",
    ".kiro",
    ".opencode",
    ".qwen",
    ".roo",
    ".trae",
    ".windsurf",
]
_NOTHING: Final = re.compile(r"(?!)")

PROGRAM_CAPABILITIES: Final[Mapping[str, re.Pattern[str]]] = {
    ".agents": re.compile(r"agents|hooks.*|mcp\.json|plugins"),
    ".claude": re.compile(r"agents|hooks.*|plugins|settings.*"),
    ".kimi-code": re.compile(r"agents|hooks.*|mcp\.json|plugins|.*\.toml"),
    **dict.fromkeys(_OTHER_PROGRAMS, _NO_TEXT),
    ".cargo": _NOTHING,
    ".config": re.compile(
        r"autostart|containers|direnv|doctl|emacs|environment\.d|fish|gcloud|gh|git|glab-cli|helix"
        r"|hub|mise|nvim|op|opencode|pip|pypoetry|rclone|systemd|uv|vim|zed|zsh"
    ),
    ".gem": _NOTHING,
    ".github": re.compile(r"hooks"),
    ".m2": re.compile(r"settings.*\.xml"),
    ".pip": re.compile(r"pip\.conf"),
}
"""What grants capabilities directly in a directory that a program reads, by the directory."""
