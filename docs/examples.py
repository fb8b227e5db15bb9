"""Runs the examples of the pages, and writes their output below them.

    python -m docs.examples             # run all, and write the changes
    python -m docs.examples --check     # run all, and compare

An example is a ``python`` or ``bash`` block with a ``text`` block below it, its output. A comment
above a block may add:

- ``<!-- first terminal: "WORDS" -->``: the block runs beside those below it, which start when it
  has printed the words, until one of them ends it. It needs no output below it.
- ``<!-- until "WORDS" -->``: Ctrl-C is pressed when the block has printed the words.

The examples of a page run one after the other in one directory that looks like a clone. It also
has the files of the page: blocks whose first line is a path in a comment, as ``-- lamp/main.lua``.
On pages with agents, ``claude`` is a stand-in that plays marbles.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.agents.standins import install

__all__ = [
    "LONG_PAGES",
    "PAGES",
    "PAGES_WITH_AGENTS",
    "Example",
    "find_examples",
    "find_files",
    "install_agents",
    "is_alike",
    "run_examples",
    "run_page",
    "write_files",
]

_ROOT: Final = Path(__file__).parent.parent
PAGES: Final = [
    _ROOT / "README.md",
    *(_ROOT / "docs" / name for name in ("engine.md", "world.md", "many.md", "conformance.md")),
]
PAGES_WITH_AGENTS: Final = [_ROOT / "docs" / "experiments.md"]
LONG_PAGES: Final = [_ROOT / "docs" / "tutorial.md", *PAGES_WITH_AGENTS]
"""Pages whose examples take a minute; the others are run whenever the tests are."""
_TIMEOUT_S: Final = 300
_HOME: Final = "/home/ada/clawblox"
"""Where the clone is, in the outputs that the pages show."""

_BLOCK: Final = re.compile(
    r'(?:<!-- (?P<mode>first terminal|until):? "(?P<words>[^"]+)" -->\n+)?'
    r"^```(?P<language>python|bash)\n(?P<code>(?:(?!```).)*)^```\n"
    r"(?:\n^```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
_FILE: Final = re.compile(
    r"^```\w+\n(?P<text>(?:#|--|<!--) (?P<path>[\w-]+/[\w./-]+?)(?: -->)?\n.*?)^```",
    re.DOTALL | re.MULTILINE,
)
_FIXED_PORTS: Final = ("8080", "8085")
_ADDRESS: Final = re.compile(r"127\.0\.0\.1:\d+")
_SETUP: Final = re.compile(r"^.*pip install \S+ && ")
_VARIES: Final = re.compile(
    r"\d{8}T\d+Z?(?:-[0-9a-f]{6}\b)?"  # the name of a snapshot
    r"|\b(?=[0-9a-f]*\d)[0-9a-f]{6,}\b"
    r"|\d+(?:\.\d+)?"
)


@dataclass(frozen=True)
class Example:
    """A block of a page and what it prints.

    Attributes:
        language: ``python`` or ``bash``.
        code: The program or the commands.
        output: What the page says that it prints.
        span: Where the output is in the page; (-1, -1) where the page shows none.
        mode: ``first terminal``, ``until``, or an empty string.
        words: What it prints when it is to be interrupted, or when the next one may begin.
    """

    language: str
    code: str
    output: str
    span: tuple[int, int]
    mode: str = ""
    words: str = ""

    def command(self, ports: dict[str, str]) -> list[str]:
        """Return the words that run it, with other ports for those that the page shows."""
        code = _SETUP.sub("", self.code)
        for shown, port in ports.items():
            code = code.replace(shown, port)
        if self.language == "python":
            return [sys.executable, "-c", code]
        return ["/bin/sh", "-c", f"exec {code}" if self.mode else f"set -e\n{code}"]


def find_examples(page: Path) -> list[Example]:
    """Return the examples of a page, in their order."""
    return [
        Example(
            match["language"],
            match["code"],
            match["output"] or "",
            match.span("output"),
            match["mode"] or "",
            match["words"] or "",
        )
        for match in _BLOCK.finditer(page.read_text())
        if match["output"] is not None or match["mode"] == "first terminal"
    ]


def find_files(page: Path) -> dict[str, str]:
    """Return the files that a page shows, by their paths."""
    return {match["path"]: match["text"] for match in _FILE.finditer(page.read_text())}


def write_files(page: Path, directory: Path) -> None:
    """Write the files that a page shows into a directory."""
    for name, text in find_files(page).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def install_agents(directory: Path) -> dict[str, str]:
    """Install the stand-ins for agents' programs; return the environment in which they work.

    Args:
        directory: Where they are installed; made if it is missing.
    """
    install(directory, "claude", plays=True)
    path = f"{directory}:{Path(sys.executable).parent}:/usr/bin:/bin"
    return {"PATH": path, "ANTHROPIC_API_KEY": "sk-of-the-example"}


def run_page(page: Path, directory: Path) -> list[str]:
    """Write a page's files into a directory and run its examples there; return what each prints.

    Raises:
        RuntimeError: One of them failed, or printed nothing.
    """
    write_files(page, directory)
    env = install_agents(directory / ".agents") if page in PAGES_WITH_AGENTS else {}
    return run_examples(find_examples(page), directory, env)


def is_alike(shown: str, printed: str) -> bool:
    """Return whether two outputs differ in numbers, spaces and the order of lines only."""
    return _shape(shown) == _shape(printed)


def _shape(output: str) -> list[str]:
    lines = (_VARIES.sub("0", line).split() for line in output.splitlines())
    return sorted(" ".join(words) for words in lines)


def run_examples(
    examples: Sequence[Example], directory: Path, env: Mapping[str, str] | None = None
) -> list[str]:
    """Run examples in a directory; return what each prints.

    Args:
        examples: The examples.
        directory: Where they run.
        env: Additional environment variables.

    Raises:
        RuntimeError: One of them failed, or printed nothing.
    """
    if not (directory / "examples").exists():
        (directory / "examples").symlink_to(_ROOT / "examples")
    ports = dict(zip(_FIXED_PORTS, _free_ports(len(_FIXED_PORTS)), strict=True))
    outputs = [""] * len(examples)
    beside: tuple[int, _Running] | None = None
    try:
        for number, example in enumerate(examples):
            running = _Running(example.command(ports), directory, env or {})
            if example.mode == "first terminal":
                beside = (number, running)
                running.read_until(example.words)
                continue
            outputs[number] = _finish(running, example)
            if beside and (number + 1 == len(examples) or beside[1].is_over()):
                outputs[beside[0]] = beside[1].end()
                beside = None
    finally:
        if beside:
            beside[1].end()
    return [_with_shown_ports(output, ports) for output in outputs]


def shown_addresses(output: str) -> list[str]:
    """Return the addresses in an output that its commands give, and do not lease."""
    return [match for match in _ADDRESS.findall(output) if match.endswith(_FIXED_PORTS)]


def _with_shown_ports(output: str, ports: dict[str, str]) -> str:
    """Return an output with the ports that the page shows, for those that were used."""
    for shown, port in ports.items():
        output = output.replace(f"127.0.0.1:{port}", f"127.0.0.1:{shown}")
    return output


class _Running:
    """A command that runs, and what it has printed so far.

    Args:
        command: The command.
        directory: Where it runs.
        extra: Additional environment variables.
    """

    def __init__(self, command: Sequence[str], directory: Path, extra: Mapping[str, str]) -> None:
        left = ("VIRTUAL_ENV", "CONDA_PREFIX", "WORLD_", "COLUMNS")
        env = {key: value for key, value in os.environ.items() if not key.startswith(left)}
        self._directory = directory
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            env={**env, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **extra},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )
        self._printed = b""

    @property
    def output(self) -> str:
        """The text printed so far."""
        text = self._printed.decode(errors="replace")
        return text.replace(str(self._directory.resolve()), _HOME)

    def read_until(self, words: str) -> None:
        """Read until it has printed some words.

        Raises:
            RuntimeError: It ended without them, or they did not come in time.
        """
        while words not in self.output:
            if not self._read(_TIMEOUT_S):
                self.process.kill()
                raise RuntimeError(f"did not print {words!r}:\n{self.output}")

    def is_over(self) -> bool:
        """Return whether it ends by itself, now that a command may have told it to."""
        while self._read(1.0):
            pass
        return self.process.poll() is not None

    def end(self, *, by_itself: bool = False) -> str:
        """Let it end, by Ctrl-C or by itself; return its output."""
        if not by_itself and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        while self._read(_TIMEOUT_S):
            pass
        try:
            self.process.wait(_TIMEOUT_S)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()
        return self.output

    def _read(self, timeout: float) -> bool:
        """Read the next output; return False at the end, and when nothing came in time."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            return False
        chunk = self.process.stdout.read(1 << 16)
        self._printed += chunk
        return bool(chunk)


def _finish(running: _Running, example: Example) -> str:
    if example.mode:
        running.read_until(example.words)
    output = running.end(by_itself=not example.mode)
    status = running.process.returncode
    if status != (128 + signal.SIGINT if example.mode else 0) or not output.strip():
        raise RuntimeError(f"exit status {status}:\n{example.code}\n{output}")
    return output


def _free_ports(count: int) -> Iterator[str]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    for listener in listeners:
        with listener:
            yield str(listener.getsockname()[1])


def _update(page: Path, *, is_check: bool) -> list[str]:
    """Run a page's examples; write the outputs that have changed, and return their programs."""
    text, examples = page.read_text(), find_examples(page)
    with tempfile.TemporaryDirectory(prefix="clawblox-") as directory:
        outputs = run_page(page, Path(directory))
    changed = []
    for example, output in reversed(list(zip(examples, outputs, strict=True))):
        if example.span[0] >= 0 and not is_alike(example.output, output):
            begin, end = example.span
            text = text[:begin] + output.rstrip("\n") + "\n" + text[end:]
            changed.append(example.code)
    if changed and not is_check:
        page.write_text(text)
    return changed


def main() -> None:
    """Run all pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where it differs")
    options = parser.parse_args()
    changed = {page: _update(page, is_check=options.check) for page in (*PAGES, *LONG_PAGES)}
    for page, programs in changed.items():
        print(f"{page.relative_to(_ROOT)}: {len(programs)} outputs have changed")
    if options.check and any(changed.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
