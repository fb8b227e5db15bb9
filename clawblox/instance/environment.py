"""Builds the command and environment of an instance's processes, and the rerun script.

The functions return plain values and text, without side effects.
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
from types import MappingProxyType
from typing import Final

from clawblox import protocol
from clawblox.config.arguments import ARGUMENT_BY_VARIABLE
from clawblox.instance.launch import Launch
from clawblox.protocol import WorldEnvironment
from clawblox.rundir.manifest import manifest_path

_ENGINE: Final = ("-P", "-m", "clawblox.engine")
"""Interpreter arguments of an engine world; -P keeps the world's files out of imports."""

_TOKEN_BYTES: Final = 32

_PYTHON: Final = "{python}"
"""Placeholder in a command for the interpreter that runs clawblox."""

_ACTIVATION_ENV: Final = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""Environment variables of which an activated Python environment sets one."""

_OTHER_CONTRACT_ENV: Final = (
    protocol.BIN_ENV,
    protocol.DATASTORE_ENV,
    protocol.FILES_ENV,
    protocol.INSTANCE_ENV,
    protocol.LEASE_ENV,
    protocol.LISTEN_FDS_ENV,
    protocol.LISTEN_PID_ENV,
    protocol.LISTEN_FDNAMES_ENV,
    protocol.REPLAY_ENV,
)


def world_environment(
    launch: Launch, name: str, port: int, variables: Mapping[str, str] = MappingProxyType({})
) -> WorldEnvironment:
    """Return the contract variables of an instance, with new tokens unless it has tokens.

    If this process is the world of a run, and the new world uses its port, the new world writes
    to the manifest and rows of that run.

    Args:
        launch: The launch; tokens in its ``env`` are used instead of new tokens.
        name: Name of the instance.
        port: Port that the world must bind.
        variables: Variables of an already running world, including its tokens.
    """
    manifest, rows = manifest_path(launch.instance_dir), launch.own_rows(name)
    record_dir = launch.record_dir if launch.config.records_itself else None
    outer = launch.inherited
    if outer.get(protocol.LEASE_ENV) and outer.get(protocol.PORT_ENV) == str(port):
        manifest = Path(outer.get(protocol.MANIFEST_ENV) or manifest)
        rows = Path(given) if (given := outer.get(protocol.DATASTORE_ENV)) else rows
    return WorldEnvironment(
        host=launch.options.host,
        port=port,
        base_path=launch.options.base_path,
        record=record_dir is not None,
        record_dir=record_dir,
        resume_path=launch.resume_path,
        reseed=launch.options.reseed,
        datastore_path=rows,
        manifest_path=manifest,
        clawblox_bin=_find_own_bin() or shutil.which("clawblox") or "clawblox",
        operator_token=_token(launch, protocol.OPERATOR_TOKEN_ENV, variables),
        spectator_token=_token(launch, protocol.SPECTATOR_TOKEN_ENV, variables),
    )


def _token(launch: Launch, variable: str, variables: Mapping[str, str]) -> str:
    given = variables.get(variable) or launch.options.env.get(variable)
    return given or secrets.token_urlsafe(_TOKEN_BYTES)


@functools.cache
def _find_own_bin() -> str | None:
    script = Path(sys.executable).with_name("clawblox")
    return str(script) if script.exists() else None


def fill_command(command: Sequence[str]) -> list[str]:
    """Return a command from ``world.toml`` with ``{python}`` replaced by this interpreter."""
    return [sys.executable if word == _PYTHON else word for word in command]


def world_command(launch: Launch) -> list[str]:
    """Return the command that starts the world: its own, or that of the built-in engine."""
    own, options = launch.config.run_command, launch.options
    if own is not None:
        return fill_command(own)
    flags = [] if options.datastore is None else ["--datastore", options.datastore]
    if options.watch:
        flags.append("--watch")
    return [sys.executable, *_ENGINE, str(launch.config.dir), *flags]


def child_environment(
    launch: Launch, world: WorldEnvironment, cookie: str, lease: str
) -> dict[str, str]:
    """Return the complete environment of the instance's processes.

    Contract variables of this process are not inherited, and those that do not apply are unset.
    Without an activated Python environment (in a notebook, an editor or a cron job), PATH starts
    with the directory of this interpreter, so ``python`` is the interpreter that runs clawblox.

    Args:
        launch: The launch.
        world: The contract variables.
        cookie: Marks the processes of the instance.
        lease: Token of the lease of its port.
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
        protocol.LEASE_ENV: lease,
    }


def _search_path(env: Mapping[str, str]) -> dict[str, str]:
    """Return the new PATH, or an empty dict if it is unchanged."""
    path, here = env.get("PATH", os.defpath), _interpreter_dir()
    if any(map(env.get, _ACTIVATION_ENV)) or path.split(os.pathsep)[0] == here:
        return {}
    return {"PATH": f"{here}{os.pathsep}{path}"}


@functools.cache
def _interpreter_dir() -> str:
    return str(Path(sys.executable).parent)


def render_command_file(launch: Launch, world: WorldEnvironment) -> str:
    """Return a shell script that reruns the launch by hand.

    Contract variables that the caller has set take precedence, for example to use another port.
    The script does not contain secrets: it creates new tokens, and takes variables with a secret
    name from the caller's environment.
    """
    given = {key: value for key, value in launch.options.env.items() if key not in world.secrets()}
    lines = [
        "#!/bin/sh",
        f"# Reruns an instance of the world {_one_line(launch.config.name)}.",
        "# Set WORLD_PORT or another WORLD_ variable to override its value below.",
        f"cd {shlex.quote(str(launch.config.dir))} || exit 1",
    ]
    for key, value in given.items():
        if protocol.SECRET_NAME.search(key) or not key.isidentifier():
            lines.append(f"# {_one_line(key)} is taken from your environment.")
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
    lines.append(f"exec {shlex.join(world_command(launch))}")
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())
