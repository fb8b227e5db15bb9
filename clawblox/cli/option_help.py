"""Help of the options of commands: sections, texts, metavars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from clawblox import protocol


class OptionHelp(msgspec.Struct, frozen=True):
    """Help of the option of a field.

    Attributes:
        text: The purpose of the option.
        metavar: Placeholder for its value; empty for a flag or a choice.
        none: Meaning of the default None; empty to show no default.
        flag: The option, if its name differs from the field.
        envvar: Environment variable that sets the option in commands that read the environment.
    """

    text: str
    metavar: str = ""
    none: str = "none"
    flag: str = ""
    envvar: str | None = None


HELP: Final[Mapping[str, Mapping[str, OptionHelp]]] = {
    "Instances": {},
    "Generations": {},
    "Agent": {
        "agent": OptionHelp(
            "Run an agent in the world: claude, codex, kimi, opencode, acp or command.",
            "DRIVER",
        ),
        "agent_name": OptionHelp("Name of the agent.", "NAME"),
        "agent_command": OptionHelp(
            "Program of the driver: a command line for acp, a JSON table for command.",
            "COMMAND",
        ),
        "model": OptionHelp("Model to use.", "MODEL", none="the program's own choice"),
        "prompt": OptionHelp(
            "First message to the agent, after the address of its world.", "TEXT|@FILE"
        ),
        "system_prompt": OptionHelp("File with the system prompt.", "FILE", none="the default"),
        "sandbox": OptionHelp("Run the agent's program in a sandbox."),
        "strict_sandbox": OptionHelp("Like --sandbox, but refuse a weaker level."),
        "max_turns": OptionHelp("Stop after this many further turns.", "N"),
        "max_tokens": OptionHelp("Stop after this many tokens, counted over all starts.", "N"),
        "max_usd": OptionHelp("Stop at this reported cost, counted over all starts.", "USD"),
        "max_minutes": OptionHelp("Stop after this time.", "MINUTES"),
        "checkpoint_every": OptionHelp(
            "Make a checkpoint of world and agent at this interval; 0 disables this.",
            "SECONDS",
            envvar="CHECKPOINT_EVERY",
        ),
    },
    "Address": {
        "host": OptionHelp("Address to bind.", "ADDRESS", envvar=protocol.HOST_ENV),
        "port": OptionHelp(
            "Port to listen on; 0 picks a free port.", "PORT", envvar=protocol.PORT_ENV
        ),
        "base_path": OptionHelp("Prefix of all routes.", "PATH", envvar=protocol.BASE_PATH_ENV),
        "port_wait": OptionHelp("Time to wait for a busy port.", "SECONDS"),
    },
    "Recording and resuming": {
        "record": OptionHelp("Let the world record its run.", envvar=protocol.RECORD_ENV),
        "record_dir": OptionHelp(
            "Directory to record to.",
            "DIR",
            none="recordings in the run directory",
            envvar=protocol.RECORD_DIR_ENV,
        ),
        "resume": OptionHelp(
            "Snapshot or archive (.ckpt) to resume from; a relative path is looked up in the world "
            "directory, then in the current one.",
            "FILE",
            none="start fresh",
            envvar=protocol.RESUME_ENV,
        ),
        "reseed": OptionHelp(
            "Random seed, for engine worlds and worlds with [run] reseed = true; each further "
            "instance gets the next number.",
            "SEED",
            none="draw one for a fresh world, keep the random state of a snapshot",
        ),
        "datastore": OptionHelp(
            "Storage of an engine world for the rows of data stores; postgres needs DATABASE_URL.",
            none="sqlite",
        ),
        "watch": OptionHelp(
            "Restart an engine world when its files change: fresh after a change of a script, with "
            "its state if only its document has changed."
        ),
    },
    "Files and names": {
        "run_dir": OptionHelp(
            "Run directory.", "DIR", none="parent of --record-dir, else runs/<world>-<time>"
        ),
        "name": OptionHelp(
            "Name of the instance.", "NAME", none="the first free of w000, w001, ..."
        ),
        "labels": OptionHelp(
            "Label for tables, filters and metrics; can be repeated.",
            "NAME=VALUE",
            none="",
            flag="--label",
        ),
        "log_file": OptionHelp(
            "File for the world's output.", "FILE", none="logs/<name>.log in the run directory"
        ),
        "command_file": OptionHelp(
            "File for a script that repeats the launch.",
            "FILE",
            none="runtime/<name>.sh in the run directory",
        ),
        "env": OptionHelp("Set an environment variable; can be repeated.", "KEY=VALUE", none=""),
        "dir": OptionHelp(
            "Directory to save to.", "DIR", none="the checkpoints directory of each instance"
        ),
    },
    "Failures": {
        "restart": OptionHelp(
            "Restart an instance that dies: never, as first started, or from its last save."
        ),
        "max_restarts": OptionHelp("Give up after this many restarts within the window.", "N"),
        "restart_window": OptionHelp("Length of the restart window.", "SECONDS"),
        "on_failure": OptionHelp("If an instance fails to start, keep the others or stop all."),
    },
    "Saves": {
        "autosave": OptionHelp("Save all instances at this interval.", "SECONDS"),
        "keep": OptionHelp("Number of autosaves to keep per instance.", "N"),
        "min_free": OptionHelp(
            "Skip periodic saves while less disk space than this is free: 5GB, 500MiB.",
            "SIZE",
            none="no limit",
        ),
        "save_at_end": OptionHelp("On the first Ctrl-C, save each instance before stopping it."),
    },
    "Checks": {
        "seed": OptionHelp(
            "Seed of all random choices; each report shows its seed.", "N", none="draw one"
        ),
        "in_place": OptionHelp("Run the world in its own directory, not in a private copy."),
        "strict": OptionHelp(
            "Count unmet recommendations and checks that could not run as failures."
        ),
    },
    "Timeouts": {
        "timeout": OptionHelp("Time limit for each save.", "SECONDS"),
        "health_timeout": OptionHelp("Time limit for a world to become ready.", "SECONDS"),
        "check_timeout": OptionHelp("Time limit for each check.", "SECONDS"),
        "stall_timeout": OptionHelp("Time limit without progress of a replay.", "SECONDS"),
        "grace_seconds": OptionHelp("Time between SIGTERM and SIGKILL.", "SECONDS", flag="--grace"),
    },
    "Orchestrator": {
        "metrics_port": OptionHelp(
            "Serve Prometheus metrics on this port of 127.0.0.1; 0 picks a free port.",
            "PORT",
        ),
        "detach": OptionHelp(
            "Return when the instances are ready, and keep running in the background."
        ),
    },
}
"""The options of each section by the names of their fields, in the order of the help."""
