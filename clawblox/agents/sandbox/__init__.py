"""Sandboxes: isolate an agent's program from this machine.

- ``bubblewrap``: clawblox's sandbox.
- ``native``: Claude Code's own sandbox.
- ``entry``: starts a process in the sandbox, and limits its use of this machine.
- ``inside``: the program's view of this machine, as bubblewrap's arguments.
- ``program_files``: the files that a program needs.
- ``system_calls``: the filter of system calls.
- ``endpoints``: the addresses reachable from inside.
- ``relay``: forwards connections from inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawblox.agents.access.agent_access import AgentAccess
from clawblox.agents.options import AgentOptions
from clawblox.agents.programs import CLAUDE, Program
from clawblox.agents.running.hooks import Enclosure, Service
from clawblox.agents.sandbox.bubblewrap import Bubblewrap
from clawblox.agents.sandbox.native import NativeSandbox

__all__ = ["choose_sandbox"]


def choose_sandbox(
    options: AgentOptions, program: Program, access: AgentAccess
) -> tuple[Enclosure, tuple[Service, ...]]:
    """Return the sandbox of an agent, and the services that run while the agent is started.

    The option for Claude Code's own sandbox has no effect on other programs, because one set of
    options may serve agents of several programs.

    Args:
        options: The agent's options.
        program: Its program.
        access: Its access to worlds.
    """
    has_native = options.claude_native_sandbox and program is CLAUDE

    def settings() -> Mapping[str, Any]:
        return {} if access.granted is None else access.granted.sandbox

    if options.sandbox:
        bubblewrap = Bubblewrap(
            api_hosts=program.api_hosts,
            host=lambda: access.host,
            settings=settings,
            has_native=has_native,
            may_nest=options.permission_mode in program.own_sandbox_modes,
            is_strict=options.sandbox == "strict",
        )
        return bubblewrap, (bubblewrap.relays.serve,)
    if has_native:
        return NativeSandbox(lambda: access.base_url, settings), ()
    return Enclosure(), ()
