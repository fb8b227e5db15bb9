"""Programs that speak the Agent Client Protocol: JSON-RPC lines on standard input and output.

The protocol has no system prompt, so it is sent before the first prompt of a conversation, and the
program keeps it. Measured with gemini-cli 0.61, qwen-code 0.15, kimi-code 2.1 and opencode 1.18.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Final

import attrs

from clawblox.agents.drivers.acp_client import ERRORS, AcpClient
from clawblox.agents.drivers.command import CONVERSATION_ID, check_words
from clawblox.agents.drivers.driver import (
    AgentSetup,
    Conversation,
    Driver,
    Invocation,
    Turn,
)
from clawblox.agents.drivers.kimi import QUIET_ENV as KIMI_QUIET_ENV
from clawblox.agents.drivers.opencode import XDG_ENV
from clawblox.agents.programs import KIMI, OPENCODE, Program
from clawblox.config.arguments import mismatch
from clawblox.system.files import make_private_dir


@attrs.frozen(kw_only=True)
class KnownProgram:
    """The command line of a known program.

    Attributes:
        args: Arguments that make it speak the protocol.
        env: Variables for it; ``{state}`` is replaced by its state directory.
        package: Its npm package.
    """

    args: tuple[str, ...]
    env: Mapping[str, str]
    package: str


KNOWN_PROGRAMS: Final[Mapping[str, KnownProgram]] = {
    "gemini": KnownProgram(
        args=("--acp",),
        env={"GEMINI_CLI_HOME": "{state}"},
        package="@google/gemini-cli",
    ),
    "qwen": KnownProgram(
        args=("--acp",),
        env={"QWEN_HOME": "{state}"},
        package="@qwen-code/qwen-code",
    ),
    "kimi": KnownProgram(
        args=("acp",),
        env={"KIMI_CODE_HOME": "{state}", **KIMI_QUIET_ENV},
        package=KIMI.package,
    ),
    "opencode": KnownProgram(
        args=("acp",),
        env={
            **{name: f"{{state}}/{place}" for name, place in XDG_ENV.items()},
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
        },
        package=OPENCODE.package,
    ),
}
"""Programs that need only ``binary=``."""


class AcpDriver(Driver):
    """Drives any program that speaks the Agent Client Protocol; pass its keys with ``env=``."""

    program = Program(driver="acp", id_pattern=CONVERSATION_ID)
    errors = ERRORS

    def name_binary(self, binary: str | None, command: object) -> str:
        """Return the program for a caller's ``binary=`` or ``command=``.

        Raises:
            ConfigError: Neither names a program, or the program needs a ``command``.
        """
        if command is not None:
            words = check_words(command, "command")
            return binary or words[0]
        if binary is None or PurePath(binary).name not in KNOWN_PROGRAMS:
            hint = 'for any other program, give command=["my-agent", "--acp"]'
            raise mismatch("binary", f"one of {', '.join(KNOWN_PROGRAMS)}", binary, hint=hint)
        return binary

    def version_argv(self, binary: str) -> tuple[str, ...]:
        """Return the command that prints the version; empty for a caller's own program."""
        return (binary, "--version") if PurePath(binary).name in KNOWN_PROGRAMS else ()

    def prepare(self, setup: AgentSetup, env: Mapping[str, str]) -> None:
        """Create the state directory; the protocol answers the program's questions."""
        make_private_dir(setup.directory.state)

    def invocation(self, setup: AgentSetup, turn: Turn) -> Invocation:
        """Return the command for a process for this turn."""
        if setup.command is not None:
            words = check_words(setup.command, "command")
            return Invocation(argv=(setup.binary, *words[1:]), has_stdin=True)
        known = KNOWN_PROGRAMS[PurePath(setup.binary).name]
        env = {name: value.format(state=setup.state) for name, value in known.env.items()}
        return Invocation(argv=(setup.binary, *known.args), env=env, has_stdin=True)

    def converse(self, setup: AgentSetup, turn: Turn) -> Conversation:
        """Return the conversation with a process started for this turn."""
        return AcpClient(setup, turn)
