"""A chain of generations of agents in one world, with the options of the public script.

python examples/run_agent_generations.py --world-dir worlds/panda --generations 10 python
examples/run_agent_generations.py --world-dir worlds/panda --experiment-id ID --resume

Each generation has a new world, and its agents inherit the workspaces of their predecessors. All
options are environment variables too: GENERATIONS for --generations, and so on. After Ctrl-C or a
crash, --resume continues from the last checkpoint, and --resume-from from any checkpoint.
``clawblox generations`` has more options.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import anyio

from clawblox import AgentSpec, AsyncExperiment, ClawbloxError, Plan, WorldSpec

LOGIN = "CLAUDE_CODE_OAUTH_TOKEN"
Number = TypeVar("Number", int, float)
SAVE_PROMPT = "You will be reset in 5 minutes. Update your workspace memory files now."


def seconds(text: str) -> int:
    """Return the seconds of 3600, 60m or 1h."""
    match = re.fullmatch(r"([1-9][0-9]*)([smh]?)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"must be a duration like 3600, 60m or 1h, not {text!r}")
    return int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def environment(name: str, default: str) -> str:
    """Return a variable; the default if it is unset or empty."""
    return os.environ.get(name) or default


def is_off(name: str) -> bool:
    """Return whether a variable with seconds is 0, which turns off its feature."""
    return bool(text := environment(name, "")) and text.strip("0") in ("", ".")


def number(name: str, default: str, kind: type[Number]) -> Number:
    """Return a variable with a number."""
    text = environment(name, default)
    try:
        return kind(text)
    except ValueError:
        sys.exit(f"Error: {name}: must be a number, not {text!r}")


def find_login() -> dict[str, str]:
    """Return the token of Claude Code from the file .env unless the environment contains it."""
    path = Path(environment("CLAWBLOX_ENV_FILE", ".env"))
    if os.environ.get(LOGIN) or not path.is_file():
        return {}
    with path.open(encoding="utf-8") as file:
        line = re.search(rf"^\s*(?:export\s+)?{LOGIN}=(.*)$", file.read(1 << 16), re.MULTILINE)
    return {} if line is None else {LOGIN: line[1].strip(" \t'\"")}


def parse_arguments(words: list[str]) -> argparse.Namespace:
    """Return the values of the options."""
    parser = argparse.ArgumentParser(description="Run a chain of generations of agents.")

    def option(flag: str, default: str, **more: object) -> None:
        variable = flag[2:].replace("-", "_").upper()
        parser.add_argument(flag, default=environment(variable, default), **more)  # type: ignore[arg-type]

    def switch(flag: str, *, default: bool) -> None:
        value = environment(flag[2:].replace("-", "_").upper(), "")
        is_on = value != "false" if default else value == "true"
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=is_on)

    option("--generations", "30", type=int)
    option("--generation-duration", "30m", type=seconds)
    option("--agents-per-world", "1", type=int)
    option("--backend", "claude")
    option("--model", "")
    option("--goal", "Begin")
    option("--template", "")
    option("--permission-mode", "bypassPermissions")
    option("--base-port", "8085", type=int)
    option("--world-dir", "worlds/mujoco-panda", type=Path)
    option("--experiment-id", f"genexp-python-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    option("--run-prefix", "")
    option("--tmux-prefix", "clawblox-gen-python")
    switch("--record", default=True)
    switch("--sandbox", default=True)
    switch("--claude-native-sandbox", default=True)
    switch("--bare", default=False)
    switch("--prune-reconstructable-artifacts", default=True)
    parser.add_argument("--system-prompt")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--resume-from", type=Path, metavar="ARCHIVE")
    return parser.parse_args(words)


def make_plan(args: argparse.Namespace) -> Plan:
    """Return the plan of the experiment."""
    world = WorldSpec(
        args.world_dir,
        record=args.record,
        port=args.base_port,
        port_wait=number("PORT_WAIT_SECONDS", "120", float),
        health_timeout=number("HEALTH_TIMEOUT", "30", float),
    )
    agent = AgentSpec(
        args.backend,
        model=args.model or None,
        prompt=args.goal or "Begin",
        template=args.template or None,
        system_prompt=args.system_prompt or None,
        permission_mode=args.permission_mode or None,
        sandbox=args.sandbox,
        claude_native_sandbox=args.claude_native_sandbox,
        bare=args.bare,
    )
    save = {
        "prompt": environment("SAVE_PROMPT", SAVE_PROMPT),
        "before": environment("SAVE_GRACE_SECONDS", "") or None,  # by default 300 s at most
        "full": True,
    }
    return Plan(
        world,
        [agent] * args.agents_per_world,
        name=args.experiment_id,
        layout="flat",  # the files of the script: table, pointer and run directories
        generations=args.generations,
        duration=args.generation_duration,
        run_prefix=args.run_prefix or args.experiment_id,
        tmux=args.tmux_prefix or None,
        prune=args.prune_reconstructable_artifacts,
        save=None if is_off("SAVE_GRACE_SECONDS") else save,
        checkpoint={
            "every": None if is_off("CHECKPOINT_EVERY") else environment("CHECKPOINT_EVERY", "900")
        },
        retry={
            "attempts": number("MAX_GENERATION_RETRIES", "3", int),
            "delay": environment("RETRY_DELAY_SECONDS", "15"),
        },
    )


async def run(args: argparse.Namespace) -> int:
    """Run the chain, and return the exit status."""
    plan = make_plan(args)
    directory = args.world_dir / "results" / plan.name
    is_resumed = args.resume or args.resume_from is not None
    if directory.exists() and not is_resumed:
        print(f"{directory} exists; --resume continues it", file=sys.stderr)
        return 2
    async with AsyncExperiment(
        plan,
        dir=directory,
        env=find_login() or None,  # in memory only
        accept={"duration", "save"},  # for later generations, as in the script
        retry_failed=is_resumed,
        resume_from=args.resume_from,
        grace_seconds=number("STOP_GRACE_SECONDS", "1", float),
    ) as experiment:
        session = experiment.run()
        async for row in session:
            print(f"generation {row.generation}: {row.output_tokens} output tokens, {row.run_dir}")
        outcome = await session
        print(outcome)
    return outcome.exit_status


if __name__ == "__main__":
    try:
        sys.exit(anyio.run(run, parse_arguments(sys.argv[1:])))
    except ClawbloxError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
