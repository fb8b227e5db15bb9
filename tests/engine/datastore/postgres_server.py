"""A private Postgres server for tests, on a socket in its directory."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.optional import require_program

ACCOUNT = "postgres"


def find_account() -> str | None:
    """Return the account for the server, which refuses to run as root; None for the current."""
    if os.geteuid() != 0:
        return None
    accounts = {account.pw_name: account for account in pwd.getpwall() if account.pw_uid != 0}
    return next(name for name in (ACCOUNT, "nobody", *accounts) if name in accounts)


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Create an empty database and start a server for the database."""
    programs = require_program("initdb").resolve().parent
    # Not below the directories of tests, because a server started by root runs under another
    # account, and the path of a socket must be short.
    directory = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    try:
        server = PostgresServer(programs, directory)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


class PostgresServer:
    def __init__(self, programs: Path, directory: Path) -> None:
        self._programs = programs
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._account = find_account()
        if self._account:
            shutil.chown(directory, self._account)
        self.url = f"postgresql://{ACCOUNT}@/postgres?host={directory}"

    def make(self) -> None:
        command = ["initdb", "--no-sync", "--auth=trust", f"--username={ACCOUNT}", "--locale=C"]
        self._run([*command, "--encoding=UTF8", str(self.directory / "data")])

    def start(self) -> None:
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "fsync": "off",
            "autovacuum": "off",
            "shared_buffers": "1MB",
            "max_connections": "10",
        }
        self._process = subprocess.Popen(
            [
                self._programs / "postgres",
                *("-D", str(self.directory / "data")),
                *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._account,
            cwd=self.directory,
        )
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        while self._run(["pg_isready", "-h", str(self.directory)], check=False) != 0:
            assert self._process is not None
            assert self._process.poll() is None, "the server has ended"

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # fast shutdown
            self._process.wait(30)
            self._process = None

    def _run(self, command: list[str], *, check: bool = True) -> int:
        program = self._programs / command[0]
        done = subprocess.run(
            [program, *command[1:]],
            check=False,
            capture_output=True,
            user=self._account,
            cwd=self.directory,
        )
        assert done.returncode == 0 or not check, done.stderr.decode()
        return done.returncode
