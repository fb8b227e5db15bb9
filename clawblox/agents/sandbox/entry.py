"""How a process gets into a sandbox: what its helper and bubblewrap inherit, and its sockets."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence

import attrs

from clawblox.agents.sandbox.endpoints import Endpoint
from clawblox.system.files import write_all
from clawblox.system.network_namespace import (
    Confinement,
    helper_command,
    open_channel,
    receive_listeners,
)


@attrs.define
class Entry:
    """What is open for a process that starts.

    Attributes:
        channel: Our end of the channel on which the helper hands out its sockets.
        helper_end: The other end.
        arguments: Descriptor of a file with bubblewrap's arguments.
        endpoints: What can be reached from inside.
        confinement: What the helper takes from the program.
        files: Descriptors that bubblewrap inherits.
    """

    channel: socket.socket
    helper_end: socket.socket
    arguments: int
    endpoints: tuple[Endpoint, ...]
    confinement: Confinement
    files: list[int]

    @classmethod
    def open(
        cls,
        arguments: Sequence[str],
        endpoints: tuple[Endpoint, ...],
        confinement: Confinement,
        system_calls: bytes | None,
    ) -> Entry:
        """Open it.

        Args:
            arguments: bubblewrap's own.
            endpoints: What can be reached from inside.
            confinement: What the helper takes from the program.
            system_calls: Filter of its system calls; None for none.

        Raises:
            OSError: No descriptor is left.
        """
        with contextlib.ExitStack() as undo:
            files = []
            words = list(arguments)
            if system_calls is not None:
                files.append(_memory_file("filter", system_calls))
                undo.callback(os.close, files[-1])
                words += ["--seccomp", str(files[-1])]
            content = b"".join(os.fsencode(word) + b"\0" for word in words)
            files.append(_memory_file("arguments", content))
            undo.callback(os.close, files[-1])
            channel, helper_end = open_channel()
            undo.pop_all()
        return cls(channel, helper_end, files[-1], endpoints, confinement, files)

    @property
    def pass_fds(self) -> tuple[int, ...]:
        """What the helper inherits."""
        return self.helper_end.fileno(), *self.files

    def command(self, bubblewrap: str, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command that runs ``argv`` inside."""
        listen = [(endpoint.address, endpoint.port) for endpoint in self.endpoints]
        # bubblewrap's own arguments name places of this machine; the program could read them.
        inner = [bubblewrap, "--args", str(self.arguments), "--", *argv]
        channel, *files = self.pass_fds
        return tuple(
            helper_command(channel, listen, inner, keep=files, confinement=self.confinement)
        )

    def hand_over(self) -> None:
        """Close what only the helper needs."""
        self.helper_end.close()
        while self.files:
            os.close(self.files.pop())

    def receive(self) -> list[socket.socket]:
        """Return the listening sockets.

        Raises:
            NamespaceRefused: The helper could not open them.
            OSError: They cannot be received.
        """
        return receive_listeners(self.channel, len(self.endpoints))

    def close(self) -> None:
        """Close all."""
        self.hand_over()
        self.channel.close()


def _memory_file(name: str, content: bytes) -> int:
    """Return a descriptor of a file in memory, to be read from its start."""
    descriptor = os.memfd_create(name)
    try:
        write_all(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
