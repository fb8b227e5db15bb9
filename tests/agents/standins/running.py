"""Runs a stand-in by hand, in directories of its own, for the tests of the stand-ins."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from tests.agents.standins import install, misbehave
from tests.support.waiting import HANG_S

CLAUDE = ["--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions"]
CODEX = ["exec", "--json", "--skip-git-repo-check"]


@attrs.frozen
class Ended:
    """The output of an ended process."""

    status: int
    output: str
    errors: str

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.splitlines()]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record.get("type") == kind]


class StandIn:
    """A stand-in with a workspace, a home and a state directory."""

    def __init__(self, root: Path, program: str, version: str | None = None) -> None:
        self.program = program
        self.binary = install(root / "bin", program, version=version)
        self.workspace, self.home, self.state = (
            root / name for name in ("workspace", "home", "session")
        )
        for directory in (self.workspace, self.home, self.state):
            directory.mkdir(exist_ok=True)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "CLAUDE_CONFIG_DIR": str(self.state),
            "CODEX_HOME": str(self.state),
            "KIMI_CODE_HOME": str(self.state),
            "XDG_DATA_HOME": str(self.state),
            "IS_SANDBOX": "1",
        }

    def misbehave(self, **faults: Any) -> None:
        misbehave(self.workspace, **faults)

    @contextlib.contextmanager
    def started(
        self, *arguments: str, stdin: int = subprocess.DEVNULL, cwd: Path | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """Start the stand-in; kill it at the end of the block if it still runs."""
        with subprocess.Popen(
            [self.binary, *arguments],
            env=self.env,
            cwd=cwd or self.workspace,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *arguments: str, stdin: str | None = None, cwd: Path | None = None) -> Ended:
        """Run the stand-in to its end; without ``stdin``, its standard input is empty."""
        how = subprocess.DEVNULL if stdin is None else subprocess.PIPE
        with self.started(*arguments, stdin=how, cwd=cwd) as process:
            output, errors = process.communicate(stdin, timeout=HANG_S)
        return Ended(process.returncode, output, errors)


def say(*texts: str) -> str:
    """Return messages in the format of Claude Code's standard input."""
    messages = ({"type": "user", "message": {"role": "user", "content": text}} for text in texts)
    return "".join(f"{json.dumps(message)}\n" for message in messages)


def new_id() -> str:
    return str(uuid.uuid4())
