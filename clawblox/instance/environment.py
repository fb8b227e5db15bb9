"""What the processes of an instance are given: command, environment, the script that reruns them.

Plain values and text; nothing is written or started here.
"""

from __future__ import annotations

import functools
import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from clawblox import protocol
from clawblox.config.arguments import ARGUMENT_BY_VARIABLE
from clawblox.instance.launch import Launch
from clawblox.protocol import WorldEnvironment

__all__ = ["child_environment", "fill_command", "render_command_file", "world_environment"]

_TOKEN_BYTES: Final = 32

_PYTHON: Final = "{python}"
"""As a word of a command: the interpreter that runs us."""

_ACTIVATION_ENV: Final = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""Set, and one of them not blank, where a Python environment is activated."""

_OTHER_CONTRACT_ENV: Final = (
    protocol.BIN_ENV,
    protocol.INSTANCE_ENV,
    protocol.LISTEN_FDS_ENV,
    protocol.LISTEN_PID_ENV,
    protocol.LISTEN_FDNAMES_ENV,
)


def world_environment(launch: Launch, port: int, manifest_path: Path) -> WorldEnvironment:
    """Return the contract variables of one instance, with tokens of its own."""
    return WorldEnvironment(
        host=launch.options.host,
        port=port,
        base_path=launch.options.base_path,
        record=launch.record_dir is not None,
        record_dir=launch.record_dir,
        resume_path=launch.resume_path,
        reseed=launch.reseed,
        manifest_path=manifest_path,
        clawblox_bin=_clawblox_bin(),
        operator_token=_token(launch, protocol.OPERATOR_TOKEN_ENV),
        spectator_token=_token(launch, protocol.SPECTATOR_TOKEN_ENV),
    )


def _token(launch: Launch, variable: str) -> str:
    return launch.options.env.get(variable) or secrets.token_urlsafe(_TOKEN_BYTES)


def _clawblox_bin() -> str:
    return _find_own_bin() or shutil.which("clawblox") or "clawblox"


@functools.cache
def _find_own_bin() -> str | None:
    beside = Path(sys.executable).with_name("clawblox")
    return str(beside) if beside.exists() else None


def fill_command(command: Sequence[str]) -> list[str]:
    """Return a command of ``world.toml`` with the interpreter that runs us for ``{python}``."""
    return [sys.executable if word == _PYTHON else word for word in command]


def child_environment(launch: Launch, world: WorldEnvironment, cookie: str) -> dict[str, str]:
    """Return the whole environment of the instance's processes.

    Contract variables of an outer world do not leak in: what does not apply is unset. A program
    that is started by a notebook, cron or an editor has no environment activated: there the
    directory of our interpreter comes first in PATH, so that ``python`` is the one that runs us.
    """
    contract = {*ARGUMENT_BY_VARIABLE, *world.secrets(), *_OTHER_CONTRACT_ENV}
    inherited = {key: value for key, value in launch.inherited.items() if key not in contract}
    env = {"PYTHONUNBUFFERED": "1", **inherited, **launch.options.env}
    return {
        **env,
        **({} if "PATH" in launch.options.env else _search_path(env)),
        **world.public(),
        **world.secrets(),
        protocol.INSTANCE_ENV: cookie,
    }


def _search_path(env: Mapping[str, str]) -> dict[str, str]:
    """Return PATH as it has to be changed, if it has to be."""
    path, here = env.get("PATH", os.defpath), _interpreter_dir()
    if any(map(env.get, _ACTIVATION_ENV)) or path.split(os.pathsep)[0] == here:
        return {}
    return {"PATH": f"{here}{os.pathsep}{path}"}


@functools.cache
def _interpreter_dir() -> str:
    return str(Path(sys.executable).parent)


def render_command_file(launch: Launch, world: WorldEnvironment) -> str:
    """Return a shell script that reruns the launch by hand.

    Contract variables that the caller has set win, so that the port can be another one. Tokens
    and variables whose name says that they are secret are not in it: the tokens are made anew,
    the others are taken from the caller's environment.
    """
    given = {key: value for key, value in launch.options.env.items() if key not in world.secrets()}
    lines = [
        "#!/bin/sh",
        f"# Reruns an instance of the world {_one_line(launch.config.name)}.",
        "# Set WORLD_PORT, or another of the WORLD_ variables, to have it another way.",
        f"cd {shlex.quote(str(launch.config.dir))} || exit 1",
    ]
    for key, value in given.items():
        if protocol.SECRET_NAME.search(key) or not key.isidentifier():
            lines.append(f"# {_one_line(key)} comes from your environment.")
        else:
            lines.append(f"{key}={shlex.quote(value)}; export {key}")
    if "PATH" not in launch.options.env:
        activated = "".join(f"${{{name}:-}}" for name in _ACTIVATION_ENV)
        here = shlex.quote(_interpreter_dir())
        lines.append(f'[ -n "{activated}" ] || PATH={here}:"${{PATH:-{os.defpath}}}"; export PATH')
    for key, value in {"PYTHONUNBUFFERED": "1", **world.public()}.items():
        lines.append(f'[ -n "${{{key}:-}}" ] || {key}={shlex.quote(value)}; export {key}')
    for key in world.secrets():
        make = "$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')"
        lines.append(f'[ -n "${{{key}:-}}" ] || {key}="{make}"; export {key}')
    lines.append(f"exec {shlex.join(fill_command(launch.config.start_command))}")
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())
