"""Claude Code's own sandbox, which encloses its commands but not Claude Code itself.

If that sandbox cannot start, every command fails, but Claude Code still exits successfully. Its
requirements are therefore tested before the agent starts. Names and arguments were observed in
Claude Code 2.1.197 and 2.1.330.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from clawblox.agents.layout import AgentDir
from clawblox.agents.running.hooks import Enclosed, Enclosure
from clawblox.agents.values import SandboxLevel
from clawblox.errors import AgentSetupError
from clawblox.system.files import publish_bytes
from clawblox.system.process import ProgramOutcome, run_briefly

NATIVE_PROGRAMS: Final = ("bwrap", "socat", "rg")
"""Programs that the sandbox needs on PATH."""

_PROBE: Final = """
for program in "$@"; do
    command -v "$program" >/dev/null || { echo "$program is not installed"; exit 1; }
done
"""
_NEW_PROC: Final = ("--proc", "/proc")
_SAME_PROC: Final = ("--unshare-user", "--bind", "/proc", "/proc")

_HINT: Final = (
    "Install the missing programs: apt install bubblewrap socat ripgrep. "
    "Or start the agent with claude_native_sandbox=False, to leave its own sandbox off."
)

_SHELL_FILE: Final = "native_sandbox.sh"
_SHELL_TEXT: Final = """\
# This machine can be reached from Claude Code's sandbox through its proxy only.
unset NO_PROXY no_proxy
"""


def native_settings(
    hosts: Iterable[str], world: Mapping[str, Any], *, is_nested: bool
) -> dict[str, Any]:
    """Return the settings of the sandbox, except those that enable it.

    Args:
        hosts: Hosts that its commands may reach.
        world: The table ``[sandbox]`` of the agent's world.
        is_nested: Whether it runs in clawblox's sandbox, where it cannot mount its own ``/proc``.
    """
    loopback = ("127.0.0.1", "localhost") if world.get("allow_loopback") else ()
    return {
        "enableWeakerNestedSandbox": is_nested or _is_weaker(world),
        "network": {"allowedDomains": sorted({*hosts, *loopback}), "allowLocalBinding": True},
    }


def _is_weaker(world: Mapping[str, Any]) -> bool:
    return bool(world.get("enable_weaker_nested_sandbox"))


def probe_command(*, is_nested: bool) -> list[str]:
    """Return a command that creates a sandbox like Claude Code's, and checks its requirements.

    It fails with an explanation if Claude Code's sandbox would not start.

    Args:
        is_nested: As for :func:`native_settings`.
    """
    sandbox = [
        *("bwrap", "--new-session", "--die-with-parent", "--unshare-net", "--ro-bind", "/", "/"),
        *("--dev", "/dev", "--unshare-pid", *(_SAME_PROC if is_nested else _NEW_PROC)),
        *("--", "true"),
    ]
    return ["sh", "-c", f"{_PROBE}exec {' '.join(sandbox)}", "sh", *NATIVE_PROGRAMS]


def require_native(outcome: ProgramOutcome) -> None:
    """Check that the command from :func:`probe_command` succeeded.

    Raises:
        AgentSetupError: The sandbox cannot start; the error explains why.
    """
    if outcome.status:
        words = outcome.first_line or f"exit status {outcome.status}"
        raise AgentSetupError(f"Claude Code's own sandbox cannot start: {words}", hint=_HINT)


@attrs.define(eq=False)
class NativeSandbox(Enclosure):
    """Only Claude Code's own sandbox; see :class:`Enclosure` in ``running.hooks``.

    Attributes:
        base_url: Returns the address under which the agent knows its world; None without a world.
        settings: Returns the table ``[sandbox]`` of its world.
    """

    base_url: Callable[[], str | None]
    settings: Callable[[], Mapping[str, Any]]
    _runtime: Path | None = None

    @property
    def level(self) -> SandboxLevel:
        """See ``Enclosure.level``."""
        return "native"

    @property
    def native_settings(self) -> Mapping[str, Any]:
        """See ``Enclosure.native_settings``."""
        host = urlsplit(self.base_url() or "").hostname
        return native_settings([] if host is None else [host], self.settings(), is_nested=False)

    def open(self, directory: AgentDir, binary: Path) -> None:
        """See ``Enclosure.open``."""
        del binary
        command = probe_command(is_nested=_is_weaker(self.settings()))
        env = {"PATH": os.environ.get("PATH", os.defpath)}
        try:
            outcome = run_briefly(command, env=env, timeout=30.0)
        except TimeoutError as error:
            outcome = ProgramOutcome(1, str(error))
        require_native(outcome)
        self._runtime = directory.runtime
        publish_bytes(directory.runtime / _SHELL_FILE, _SHELL_TEXT.encode(), durable=False)

    def enclose(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> Enclosed:
        """See ``Enclosure.enclose``."""
        del cwd
        assert self._runtime is not None
        # Commands reach loopback addresses, such as the world's, without a proxy.
        shell = {"BASH_ENV": str(self._runtime / _SHELL_FILE)}
        return Enclosed(argv=argv, env={**shell, **env})
