"""Names of credentials, and of files that programs execute or follow automatically. Data.

A name is listed if a program reads it automatically: in its working directory, in an opened
directory, or in a home directory. Not listed, and thus archived, are code that runs only when its
project is built, tested or run (a makefile, ``package.json``, ``conftest.py``), and text that
instructs an agent (``AGENTS.md``, skills, commands, rules). All names are folded, as in
:func:`clawblox.checkpoint.names.fold`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

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
    """Return a pattern that matches if any of the blank-separated patterns matches."""
    return re.compile("|".join(part for pattern in patterns for part in pattern.split()), re.DOTALL)


CREDENTIAL_NAMES: Final = _compile_any(
    # The programs of agents.
    r"\.claude\.json \.credentials\.json",
    # Settings of services. Committed templates contain no credentials.
    r"\.env (?!.*\.(?:dist|example|sample|template)\Z)\.env\..* \.flaskenv",
    # Remote logins and keys.
    r"\.ssh \.gnupg \.password-store id_(?:dsa|ecdsa|ed25519|rsa)(?:_sk)? [._]netrc",
    r"\.authinfo(?:\.gpg)?",
    # Clouds and containers.
    r"\.aws \.azure \.boto \.docker \.dockercfg \.gcloud \.kube \.oci \.s3cfg \.terraform\.d",
    r"\.terraformrc \.vault-token",
    # Registries of packages, forges, databases.
    r"\.fetchmailrc \.mbsyncrc \.msmtprc \.offlineimaprc \.?rclone\.conf",
    r"\.smbcredentials \.snowsql \.xauthority \.iceauthority",
    r"\.git-credentials \.npmrc \.pypirc \.yarnrc(?:\.yml)? \.mylogin\.cnf \.my\.cnf \.pgpass",
    r"\.pg_service\.conf",
)
"""Files and directories that contain credentials, anywhere in a workspace."""

CAPABILITY_NAMES: Final = _compile_any(
    # The programs of agents, and services that start a project when it is opened.
    r"\.codex \.mcp\.json \.?crush\.json \.?opencode\.jsonc? \.aider\.conf\.ya?ml",
    r"\.claude-plugin \.roomodes \.kilocodemodes gptme\.toml",
    r"\.replit replit\.nix \.gitpod\.ya?ml \.idx \.?devfile\.ya?ml \.codesandbox",
    # Editors, and the settings with which they open a project.
    r"\.devcontainer(?:\.json)? \.fleet \.idea \.vs \.vscod(?:e|ium)(?:-.*)? \.zed",
    r".*\.code-workspace .*\.sublime-(?:project|settings|workspace) \.nova \.lapce \.atom",
    r"\.dir-locals(?:-2)?\.el \.emacs(?:\.d|\.el|\.desktop)? _emacs \.gnus(?:\.el)?",
    r"\.(?:doom|spacemacs)(?:\.d)? [._]exrc \.nexrc [._][gl]?vimrc(?:[._]local)? \.vim vimfiles",
    r"\.local\.n?vim(?:rc)? \.nvim(?:\.lua|rc)? \.lazy\.lua \.neoconf\.json \.nlsp-settings",
    r"\.helix \.kakrc \.nanorc \.jedrc \.joerc \.ycm_extra_conf\.py \.externaltoolbuilders",
    # Language servers run commands from these when an editor opens a file.
    r"\.bsp \.metals \.?rust-analyzer\.toml \.luarc\.jsonc? \.merlin \.solargraph\.yml",
    # Shells and their hooks.
    r"\.bash_(?:aliases|completion(?:\.d)?|login|logout|profile)",
    r"\.(?:a|ba|c|da|es|k|mk|pdk|r|s|tc|ya|z)?shrc \.(?:es|rc)rc \.shinit \.cshdirs \.login_conf",
    r"\.z(?:shenv|profile|login|logout|imrc) \.oh-my-zsh \.zprezto \.yash(?:env|_profile)",
    r"\.profile \.login \.logout \.inputrc \.editrc \.xonsh(?:rc|rc\.d)? \.elvish",
    r"\.murex_(?:modules|preload|profile) \.oshrc (?:.*_)?profile\.ps1",
    r"\.autoenv(?:\..*)? \.direnv \.envrc \.?mise(?:\..*)?\.toml \.mise \.rtx(?:\..*)?\.toml",
    r"\.ondirrc \.shadowenv\.d \.rvmrc",
    # Logins, mail and desktops, which read from a home directory.
    r"\.pam_environment \.forward \.procmailrc \.mailfilter \.qmail(?:-.*)? \.mailcap",
    r"\.(?:neo)?mutt(?:rc)? \.mailrc \.nailrc \.[rs]hosts \.k5(?:login|users)",
    r"\.x(?:bindkeysrc|clients|defaults|initrc|profile|resources|serverrc|session(?:rc)?)",
    r"\.wezterm\.lua \.alacritty\.(?:toml|ya?ml) \.xmonad \.i3 \.fluxbox \.fvwm(?:rc|2rc)?",
    r"\.gnomerc \.asoundrc",
    # Debuggers, interpreters and tools that read a file in their working directory.
    r"\.gdb(?:early)?init \.lldbinit(?:-.*)? \.dbx(?:init|rc) \.cgdb \.radare2rc \.rizinrc",
    r"\.pdbrc(?:\.py)? \.pudb \.pythonrc(?:\.py)? \.pystartup (?:site|user)customize\.py",
    r"\.ipython \.jupyter (?:ipython|jupyter)(?:_[a-z]+)*_config\.(?:json|py) \.bpython \.ptpython",
    r"\.?pydistutils\.cfg \.condarc matplotlibrc \.perldb perldb\.ini \.replyrc \.re\.pl",
    r"[._$]?irbrc \.pryrc \.(?:bye|r?)debugrc \.rdbgrc \.railsrc \.gemrc \.bundle \.guard\.rb",
    r"\.rprofile rprofile\.site \.renviron renviron\.site \.rdata \.octaverc startup\.m",
    r"\.gnuplot gnuplotrc \.scilab \.mathematica \.maple(?:init|rc) \.gaprc \.gprc \.magmarc",
    r"\.maxima maxima-init\.(?:lisp|mac) \.sage \.?root(?:alias|logoff|logon)\.c \.rootrc",
    r"\.?pymolrc(?:\.p(?:ml|y))? \.vmdrc vmd\.rc \.idlstartup",
    r"\.iex(?:\.exs)? \.erlang(?:\.crypt)? \.ghci(?:\..*)? \.hugsrc \.ocamlinit \.utop(?:rc)?",
    r"\.(?:ccl|cmucl)-init\.lisp ccl-init\.lisp \.(?:abcl|clisp|ecl|sbcl)rc(?:\.lisp)?",
    r"\.guile \.(?:g?racket|mzscheme|scheme48|cs)rc \.csirc \.scheme\.init \.gambini gambini",
    r"\.swiplrc \.plrc \.lein \.clojure \.groovy \.ammonite \.sbt \.julia \.mavenrc",
    r"\.tclshrc \.wishrc \.expect(?:\.rc|rc) \.phpdbginit \.psysh(?:\.php)? \.user\.ini",
    r"\.psqlrc \.sqliterc \.duckdbrc login\.sql \.mongo(?:sh)?rc\.js \.myclirc \.redisclirc",
    r"\.usqlrc \.cqlshrc [._]curlrc \.wget2?rc \.lftp(?:rc)? \.ncftp \.elinks \.w3m \.mitmproxy",
    r"\.yt-dlp yt-dlp\.conf \.lessfilter [._]lesskey \.valgrindrc \.perfconfig \.taskrc",
    r"\.screenrc \.byobu \.tmux(?:\..*)? \.zellij \.lnav \.vagrant\.d \.nixpkgs",
    # Version control.
    r"\.gitconfig \.?hgrc(?:-.*)? \.jjconfig\.toml \.subversion \.bazaar \.breezy \.cvsrc \.pijul",
    r"\.fossil-settings \.tigrc",
)
"""Files and directories that grant capabilities or run automatically, anywhere in a workspace."""

CAPABILITY_PATHS: Final = _compile_any(
    r"(?:.*/)?\.jj/(?:repo/)?(?:config|workspace-config).*",
    r"(?:.*/)?\.sl/config",
    r"(?:.*/)?_darcs/prefs/(?:defaults|prefs|sources)",
    r"(?:.*/)?\.clinerules/hooks",
    r"(?:.*/)?mise/config(?:\..*)?\.toml",
    r"(?:.*/)?\.local/share/(?:applications|bash-completion|dbus-1|fish|jupyter|kio|kservices5"
    r"|nautilus|nemo|nvim|plasma.*|powershell|systemd|vim|zsh)",
)
"""Paths that grant capabilities and end in common names; the last four components are compared."""

REDIRECT_PATHS: Final = _compile_any(
    r"(?:.*/)?(?:\.git|\.jj(?:/repo)?|\.sl|_darcs(?:/prefs)?|\.local(?:/share)?)"
)
"""Partially archived directories; a file or link in their place could lead elsewhere."""

PROGRAM_CREDENTIALS: Final = _compile_any(
    r"auth\.json credentials(?:\..*)? google_accounts\.json oauth_creds\.json"
)
"""Names of credentials directly inside a directory of :data:`PROGRAM_CAPABILITIES`."""

# Resumable programs have lists of names; of other programs only texts are archived.
_NOT_TEXT: Final = re.compile(
    r"(?!.*\.mdc?\Z|(?:commands?|docs|memory|memories|microagents|plans|prompts|rules(?:-.*)?|skills"
    r"|specs|steering)\Z).*",
    re.DOTALL,
)
_OTHER_PROGRAMS: Final = [
    ".aider",
    ".amazonq",
    ".amp",
    ".antigravity",
    ".augment",
    ".cline",
    ".codebuddy",
    ".codeium",
    ".continue",
    ".copilot",
    ".crush",
    ".cursor",
    ".factory",
    ".gemini",
    ".goose",
    ".grok",
    ".iflow",
    ".junie",
    ".kilocode",
    ".kimi",
    ".kiro",
    ".opencode",
    ".openhands",
    ".pi",
    ".qoder",
    ".qwen",
    ".roo",
    ".rovodev",
    ".trae",
    ".vibe",
    ".warp",
    ".windsurf",
    ".zencoder",
]
_NOTHING: Final = re.compile(r"(?!)")

PROGRAM_CAPABILITIES: Final[Mapping[str, re.Pattern[str]]] = {
    ".agents": _compile_any(r"agents hooks.* mcp\.json plugins"),
    ".claude": _compile_any(r"agents hooks.* plugins session-env settings.* shell-snapshots"),
    ".kimi-code": _compile_any(r"agents hooks.* mcp\.json plugins .*\.toml"),
    **dict.fromkeys(_OTHER_PROGRAMS, _NOT_TEXT),
    ".cargo": _NOTHING,
    ".config": _compile_any(
        # Agents, editors, version control.
        r"opencode goose helix kak lvim micro nvim.* vim vis zed emacs doom gh git glab-cli hub jj",
        r"lazygit tig gitui rclone",
        # Shells, terminals, multiplexers, their tools.
        r"bash broot direnv elvish fish ion murex nushell oils? powershell starship\.toml",
        r"topgrade\.toml xonsh zsh mise atuin alacritty foot ghostty kitty wezterm tmux zellij",
        r"byobu curlrc lf lftp mc nnn ranger vifm yazi yt-dlp",
        # Desktops, mail, services of the user.
        r"autostart.* awesome bspwm environment\.d hypr i3 labwc openbox plasma-.* polybar qtile",
        r"river rofi sway sxhkd systemd upstart waybar xmonad aerc mutt neomutt newsboat mpv",
        r"qutebrowser weechat containers doctl gcloud op",
        # Interpreters, packages.
        r"bpython gdb gnuplot irb ipython pgcli psysh ptpython pudb radare2 rizin swi-prolog utop",
        r"go guix home-manager nix nixpkgs pip pypoetry uv",
    ),
    ".gem": _NOTHING,
    ".github": _compile_any(r"hooks"),
    ".m2": _compile_any(r"settings.*\.xml"),
    ".pip": _compile_any(r"pip\.conf"),
}
"""Names that grant capabilities, by the directory of a program that contains them."""
