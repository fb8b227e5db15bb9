"""Tools that are separate programs, with a configuration file for the worlds."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from typing import Any

from benchmarks.tools.base import DEADLINE_S, InProcess, wait_until_serving
from benchmarks.worlds import WorldSpec, poll_until

__all__ = ["Circus", "Honcho", "Supervisord"]


class Daemon(InProcess):
    """A tool that is a separate program."""

    module = ""

    @property
    def root(self) -> int:
        """The program."""
        return self._daemon.pid

    def spawn(self, *arguments: str) -> None:
        """Start the program."""
        command = [sys.executable, "-m", self.module, *arguments]
        self._daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def close(self) -> None:
        """End the program."""
        self._daemon.send_signal(signal.SIGTERM)
        self._daemon.wait()


class Circus(Daemon):
    """``circusd`` with a watcher per world."""

    note = "circusd, a watcher a world; its user polls"
    module = "circus.circusd"

    def open(self) -> None:
        """Start circusd."""
        from circus.client import CircusClient

        endpoint = f"ipc://{self.directory}/control"
        config = self.directory / "circus.ini"
        head = f"[circus]\nendpoint = {endpoint}\npubsub_endpoint = ipc://{self.directory}/events\n"
        config.write_text(head + "".join(map(self._section, self.specs)))
        self.spawn("--log-level", "error", str(config))
        self._client = CircusClient(endpoint=endpoint, timeout=DEADLINE_S)
        self._client.send_message("list")

    @staticmethod
    def _section(spec: WorldSpec) -> str:
        env = "".join(f"{name} = {value}\n" for name, value in spec.env.items())
        watcher = f"cmd = {shlex.join(spec.command)}\nautostart = False\ncopy_env = True\n"
        return f"[watcher:{spec.name}]\n{watcher}[env:{spec.name}]\n{env}"

    def start(self) -> None:
        """Start all worlds by name; otherwise watchers without autostart are omitted."""
        for spec in self.specs:
            self._client.send_message("start", name=spec.name, match="simple", waiting=True)
        wait_until_serving(self.specs)

    def stop(self) -> None:
        """Stop all worlds."""
        self._client.send_message("stop", waiting=True)


class Supervisord(Daemon):
    """``supervisord`` with a program per world, as in its documentation."""

    note = "startsecs = 1, its default; its user polls"
    module = "supervisor.supervisord"

    def open(self) -> None:
        """Start supervisord."""
        from xmlrpc.client import ServerProxy

        from supervisor.xmlrpc import SupervisorTransport

        config = self.directory / "supervisord.conf"
        config.write_text(self._head() + "".join(map(self._section, self.specs)))
        self.spawn("--nodaemon", "--silent", "--configuration", str(config))
        poll_until((self.directory / "control").exists, timeout=DEADLINE_S)
        transport = SupervisorTransport(None, None, f"unix://{self.directory}/control")
        self._calls: Any = ServerProxy("http://127.0.0.1", transport=transport).supervisor
        self._calls.getState()

    def _head(self) -> str:
        factory = "supervisor.rpcinterface:make_main_rpcinterface"
        return (
            f"[unix_http_server]\nfile = {self.directory}/control\n"
            f"[supervisord]\nlogfile = {self.directory}/log\npidfile = {self.directory}/pid\n"
            f"[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory = {factory}\n"
        )

    @staticmethod
    def _section(spec: WorldSpec) -> str:
        env = ",".join(f'{name}="{value}"' for name, value in spec.env.items())
        return (
            f"[program:{spec.name}]\ncommand = {shlex.join(spec.command)}\n"
            f"environment = {env}\nautostart = false\n"
            "stdout_logfile = /dev/null\nstderr_logfile = /dev/null\n"
        )

    def start(self) -> None:
        """Start all worlds."""
        self._calls.startAllProcesses(True)
        wait_until_serving(self.specs)

    def stop(self) -> None:
        """Stop all worlds."""
        self._calls.stopAllProcesses(True)


class Honcho(Daemon):
    """``honcho start`` with a line in the Procfile per world."""

    note = "honcho start, itself included; its user polls"
    module = "honcho.command"

    def open(self) -> None:
        """Write the Procfile; honcho itself is started with the worlds."""
        import honcho  # noqa: F401 - is it there?

        (self.directory / "Procfile").write_text("".join(map(self._line, self.specs)))

    @staticmethod
    def _line(spec: WorldSpec) -> str:
        env = shlex.join(f"{name}={value}" for name, value in spec.env.items())
        return f"{spec.name}: exec env {env} {shlex.join(spec.command)}\n"

    def start(self) -> None:
        """Start all worlds."""
        self.spawn("start", "--procfile", str(self.directory / "Procfile"))
        wait_until_serving(self.specs)

    def stop(self) -> None:
        """Stop all worlds."""
        super().close()

    def close(self) -> None:
        """Do nothing, since honcho has ended with its worlds."""
