"""How the help shows the options of commands: sections, texts, metavars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from clawblox import protocol


@attrs.frozen
class OptionHelp:
    """How the help shows the option of a field.

    Attributes:
        section: Title of its section.
        text: Its purpose.
        metavar: Placeholder for its value; empty for a flag or a choice.
        none: Meaning of the default None; empty if the text has it.
        flag: The option, if its name differs from the field.
        envvar: Environment variable that sets it, in commands that read the environment.
    """

    section: str
    text: str
    metavar: str = ""
    none: str = ""
    flag: str = ""
    envvar: str | None = None


_ADDRESS = "Address"
_STATE = "Recording and resuming"
_FILES = "Files and names"
_FAILURES = "Failures"
_SAVES = "Saves"
_TIMEOUTS = "Timeouts"
_ORCHESTRATOR = "Orchestrator"
_AGENT = "Agent"

SECTIONS: Final = (
    "Instances",
    _AGENT,
    _ADDRESS,
    _STATE,
    _FILES,
    _FAILURES,
    _SAVES,
    _TIMEOUTS,
    _ORCHESTRATOR,
)
"""Titles of the sections in the order of the help."""

HELP: Final[Mapping[str, OptionHelp]] = {
    "agent": OptionHelp(
        _AGENT,
        "Run an agent in the world: claude, codex, kimi, opencode, acp or command.",
        "DRIVER",
        none="none",
    ),
    "agent_name": OptionHelp(_AGENT, "Name of the agent.", "NAME"),
    "agent_command": OptionHelp(
        _AGENT,
        "Program of the driver: a command line for acp, a JSON table for command.",
        "COMMAND",
        none="none",
    ),
    "model": OptionHelp(_AGENT, "Model to use.", "MODEL", none="the program's own choice"),
    "prompt": OptionHelp(
        _AGENT, "First message to the agent, after the address of its world.", "TEXT|@FILE"
    ),
    "system_prompt": OptionHelp(_AGENT, "File with the system prompt.", "FILE", none="the default"),
    "sandbox": OptionHelp(_AGENT, "Run the agent's program in a sandbox."),
    "strict_sandbox": OptionHelp(_AGENT, "Like --sandbox, but refuse a weaker level."),
    "max_turns": OptionHelp(_AGENT, "Stop after this many further turns.", "N", none="none"),
    "max_tokens": OptionHelp(
        _AGENT, "Stop after this many tokens, over all its starts.", "N", none="none"
    ),
    "max_usd": OptionHelp(
        _AGENT, "Stop at this reported cost, over all its starts.", "USD", none="none"
    ),
    "max_minutes": OptionHelp(_AGENT, "Stop after this time.", "MINUTES", none="none"),
    "checkpoint_every": OptionHelp(
        _AGENT,
        "Make a checkpoint of world and agent at this interval; 0 makes none.",
        "SECONDS",
        envvar="CHECKPOINT_EVERY",
    ),
    "host": OptionHelp(_ADDRESS, "Address to bind.", "ADDRESS", envvar=protocol.HOST_ENV),
    "port": OptionHelp(
        _ADDRESS, "Port to listen on; 0 picks a free one.", "PORT", envvar=protocol.PORT_ENV
    ),
    "base_path": OptionHelp(
        _ADDRESS, "Prefix of all routes.", "PATH", none="none", envvar=protocol.BASE_PATH_ENV
    ),
    "port_wait": OptionHelp(_ADDRESS, "How long to wait for a busy port.", "SECONDS"),
    "record": OptionHelp(_STATE, "Make the world record.", envvar=protocol.RECORD_ENV),
    "record_dir": OptionHelp(
        _STATE,
        "Directory to record to.",
        "DIR",
        none="recordings in the run directory",
        envvar=protocol.RECORD_DIR_ENV,
    ),
    "resume": OptionHelp(
        _STATE,
        "Snapshot or archive (.ckpt) to resume from; a relative path is looked up in the world "
        "directory, then in the current one.",
        "FILE",
        none="start fresh",
        envvar=protocol.RESUME_ENV,
    ),
    "reseed": OptionHelp(
        _STATE,
        "Random seed, for engine worlds and worlds with [run] reseed = true; each further instance "
        "gets the next number.",
        "SEED",
        none="draw one for a fresh world, keep the random state of a snapshot",
    ),
    "datastore": OptionHelp(
        _STATE,
        "Where an engine world keeps the rows of data stores; postgres needs DATABASE_URL.",
        none="sqlite",
    ),
    "watch": OptionHelp(
        _STATE,
        "Restart an engine world when its files change: fresh after a change of a script, with its "
        "state if only its document has changed.",
    ),
    "run_dir": OptionHelp(
        _FILES,
        "Run directory.",
        "DIR",
        none="parent of --record-dir, else runs/<world>-<time>",
    ),
    "name": OptionHelp(
        _FILES, "Name of the instance.", "NAME", none="the first free of w000, w001, ..."
    ),
    "labels": OptionHelp(
        _FILES,
        "Label for tables, filters and metrics; can be repeated.",
        "NAME=VALUE",
        flag="--label",
    ),
    "log_file": OptionHelp(
        _FILES, "File for the world's output.", "FILE", none="logs/<name>.log in the run directory"
    ),
    "command_file": OptionHelp(
        _FILES,
        "File for a script that repeats the launch.",
        "FILE",
        none="runtime/<name>.sh in the run directory",
    ),
    "env": OptionHelp(_FILES, "Set an environment variable; can be repeated.", "KEY=VALUE"),
    "restart": OptionHelp(
        _FAILURES, "Restart an instance that dies: never, as first started, or from its last save."
    ),
    "max_restarts": OptionHelp(
        _FAILURES, "Give up after this many restarts within the window.", "N"
    ),
    "restart_window": OptionHelp(_FAILURES, "Length of the restart window.", "SECONDS"),
    "on_failure": OptionHelp(
        _FAILURES, "If an instance fails to start, keep the others or stop all."
    ),
    "autosave": OptionHelp(_SAVES, "Save all instances at this interval.", "SECONDS", none="none"),
    "keep": OptionHelp(_SAVES, "Number of autosaves to keep per instance.", "N"),
    "min_free": OptionHelp(
        _SAVES,
        "Skip periodic saves while less disk space than this is free: 5GB, 500MiB.",
        "SIZE",
        none="no limit",
    ),
    "save_at_end": OptionHelp(
        _SAVES, "On the first Ctrl-C, save each instance before stopping it."
    ),
    "dir": OptionHelp(
        _FILES, "Directory to save to.", "DIR", none="the checkpoints directory of each instance"
    ),
    "timeout": OptionHelp(_TIMEOUTS, "Time limit for each save.", "SECONDS"),
    "health_timeout": OptionHelp(
        _TIMEOUTS, "How long a world may take to become ready.", "SECONDS"
    ),
    "grace_seconds": OptionHelp(
        _TIMEOUTS, "Time between SIGTERM and SIGKILL.", "SECONDS", flag="--grace"
    ),
    "metrics_port": OptionHelp(
        _ORCHESTRATOR,
        "Serve Prometheus metrics on this port of 127.0.0.1; 0 picks a free one.",
        "PORT",
        none="none",
    ),
}
