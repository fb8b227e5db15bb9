"""``clawblox app`` as a process, and the answers of its pages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from tests.support.template import COMMAND_LINE, ForkedProgram, Template
from tests.support.waiting import HANG_S
from tests.support.worlds import Answer, ask


@attrs.define
class Served:
    """The pages of a directory, served by the real command.

    Attributes:
        process: The command.
        port: Its port.
        key: The key of its pages.
    """

    process: ForkedProgram
    port: int
    key: str

    @property
    def address(self) -> str:
        """The address of the first page."""
        return f"http://127.0.0.1:{self.port}/{self.key}/"

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Request a page, given its path below the key."""
        return self.ask_raw(f"/{self.key}/{path}", method, **headers)

    def ask_raw(self, target: str, method: str = "GET", **headers: str) -> Answer:
        """Send a request with any target."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return ask(self.port, method, target, headers=named)

    def text(self, path: str) -> str:
        """Return the text of a page, which must exist."""
        answer = self.ask(path)
        assert answer.status == 200, answer
        return answer.body.decode()


@contextmanager
def served(template: Template, root: Path, *words: str) -> Iterator[Served]:
    """Serve a directory with ``clawblox app``, started in it, until the block ends."""
    reader, writer = os.pipe()
    with open(reader) as written, open(os.devnull) as nothing:
        try:
            process = template.start(
                COMMAND_LINE,
                ["app", "--port", "0", "--no-browser", *words],
                [nothing.fileno(), writer, 2],
                os.environ,
                cwd=root,
            )
        finally:
            os.close(writer)
        try:
            match = None
            for line in written:
                match = re.search(r"http://127\.0\.0\.1:(\d+)/([\w-]+)/", line)
                if match is not None:
                    break
            assert match is not None, "the command has ended"
            yield Served(process, int(match[1]), match[2])
        finally:
            process.terminate()
            process.wait(HANG_S)
