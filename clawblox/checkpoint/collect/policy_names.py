"""Names by which programs find credentials, and names that they run or obey unasked. Data.

A name is listed if a program looks for it by itself: where it is started, where a directory is
opened, or in a home directory. Not listed is code that runs only when its project is built, tested
or run (a makefile, ``package.json``, ``conftest.py``), and text that instructs an agent
(``AGENTS.md``, skills, commands, rules): both are archived. All names are folded, as in
:func:`clawblox.checkpoint.names.fold`.
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
"""Directories that can be rebuilt."""


def _compile_any(*patterns: str) -> re.Pattern[str]:
    """Return a pattern that matches what any of the blank-separated patterns matches."""
    return re.compile("|".join(part for pattern in patterns for part in pattern.split()), re.DOTALL)


CREDENTIAL_NAMES: Final = _compile_any(
    # The programs of agents.
    r"\.claude\.json \.credentials\.json",
    # Settings of services. Committed templates hold no credentials.
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
"""Files and directories that hold credentials, anywhere in a workspace."""

CAPABILITY_NAMES: Final = _compile_any(
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
"""Files and directories that grant capabilities or run by themselves, anywhere in a workspace."""

PROGRAM_CREDENTIALS: Final = re.compile(
    r"auth\.json|credentials(\..*)?|google_accounts\.json|oauth_creds\.json"
)
"""Names that hold credentials directly inside a directory of :data:`PROGRAM_CAPABILITIES`."""

# Programs that can be resumed list their names; of other programs only texts are archived.
_NOT_TEXT: Final = re.compile(
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
    **dict.fromkeys(_OTHER_PROGRAMS, _NOT_TEXT),
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
"""By directory that a program reads: names directly inside it that grant capabilities."""
