"""Runs the examples of the pages, and writes what they print below them.

    python -m docs.examples             # run all, and write what has changed
    python -m docs.examples --check     # run all, and compare

An example is a ``python`` or ``bash`` block with a ``text`` block below it, its output. A comment
above a block tells more:

- ``<!-- first terminal: "WORDS" -->``: the block runs beside those below it, which begin when it
  has printed the words. It ends when they have run, or by Ctrl-C.
- ``<!-- until "WORDS" -->``: Ctrl-C is pressed when the block has printed the words.

The examples of a page run one after the other in one directory that looks like a clone.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PAGES", "Example", "find_examples", "is_alike", "run_examples"]

_ROOT: Final = Path(__file__).parent.parent
PAGES: Final = [_ROOT / "README.md", _ROOT / "docs" / "world.md", _ROOT / "docs" / "many.md"]
_TIMEOUT_S: Final = 60
_HOME: Final = "/home/ada/clawblox"
"""Where the clone is, in the outputs that the pages show."""

_BLOCK: Final = re.compile(
    r'(?:<!-- (?P<mode>first terminal|until):? "(?P<words>[^"]+)" -->\n+)?'
    r"```(?P<language>python|bash)\n(?P<code>.*?)```\n"
    r"\n```text\n(?P<output>.*?)```\n",
    re.DOTALL,
)
_FIXED_PORTS: Final = ("8080", "8085")
_SETUP: Final = re.compile(r"^.*pip install \S+ && ")
_VARIES: Final = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{6,}\b|\d{8}T\d+Z?|\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Example:
    """A block of a page and what it prints.

    Attributes:
        language: ``python`` or ``bash``.
        code: The program or the commands.
        output: What the page says that it prints.
        span: Where the output is in the page.
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
            match["output"],
            match.span("output"),
            match["mode"] or "",
            match["words"] or "",
        )
        for match in _BLOCK.finditer(page.read_text())
    ]


def is_alike(shown: str, printed: str) -> bool:
    """Return whether two outputs differ in numbers, spaces and the order of lines only."""
    return _shape(shown) == _shape(printed)


def _shape(output: str) -> list[str]:
    lines = (_VARIES.sub("0", line).split() for line in output.splitlines())
    return sorted(" ".join(words) for words in lines)


def run_examples(examples: Sequence[Example], directory: Path) -> list[str]:
    """Run examples in a directory; return what each prints.

    Raises:
        RuntimeError: One of them failed, or printed nothing.
    """
    if not (directory / "examples").exists():
        (directory / "examples").symlink_to(_ROOT / "examples")
    ports = dict(zip(_FIXED_PORTS, _free_ports(len(_FIXED_PORTS)), strict=True))
    outputs = [""] * len(examples)
    beside: tuple[int, subprocess.Popen[str], list[str]] | None = None
    try:
        for number, example in enumerate(examples):
            process = _spawn(example.command(ports), directory)
            if example.mode == "first terminal":
                beside = (number, process, _read_until(process, example.words))
                continue
            outputs[number] = _finish(process, example, directory)
            if beside and (number + 1 == len(examples) or _is_over(beside[1])):
                outputs[beside[0]] = _end_beside(beside[1], beside[2], directory)
                beside = None
    finally:
        if beside:
            beside[1].send_signal(signal.SIGINT)
            beside[1].communicate(timeout=_TIMEOUT_S)
    return outputs


def _finish(process: subprocess.Popen[str], example: Example, directory: Path) -> str:
    lines: list[str] = []
    if example.mode:
        lines = _read_until(process, example.words)
        process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=_TIMEOUT_S)[0]
    output = _clean("".join(lines) + rest, directory)
    expected = 128 + signal.SIGINT if example.mode else 0
    if process.returncode != expected or not output.strip():
        raise RuntimeError(f"exit status {process.returncode}:\n{example.code}\n{output}")
    return output


def _is_over(process: subprocess.Popen[str]) -> bool:
    """Return whether a process ends by itself, now that a command may have told it to."""
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end_beside(process: subprocess.Popen[str], lines: Sequence[str], directory: Path) -> str:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    return _clean("".join(lines) + process.communicate(timeout=_TIMEOUT_S)[0], directory)


def _spawn(command: Sequence[str], directory: Path) -> subprocess.Popen[str]:
    bin_dir = Path(sys.executable).parent
    left = ("VIRTUAL_ENV", "CONDA_PREFIX", "WORLD_", "COLUMNS")
    env = {key: value for key, value in os.environ.items() if not key.startswith(left)}
    return subprocess.Popen(
        command,
        cwd=directory,
        env={**env, "PATH": f"{bin_dir}:/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _read_until(process: subprocess.Popen[str], words: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return lines
    raise RuntimeError(f"ended without printing {words!r}:\n{''.join(lines)}")


def _clean(output: str, directory: Path) -> str:
    return output.replace(str(directory.resolve()), _HOME)


def _free_ports(count: int) -> Iterator[str]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    for listener in listeners:
        with listener:
            yield str(listener.getsockname()[1])


def _update(page: Path, *, is_check: bool) -> list[str]:
    """Run a page's examples; write the outputs that have changed, and return their programs."""
    text, examples = page.read_text(), find_examples(page)
    with tempfile.TemporaryDirectory(prefix="clawblox-") as directory:
        outputs = run_examples(examples, Path(directory))
    changed = []
    for example, output in reversed(list(zip(examples, outputs, strict=True))):
        if not is_alike(example.output, output):
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
    changed = {page: _update(page, is_check=options.check) for page in PAGES}
    for page, programs in changed.items():
        print(f"{page.relative_to(_ROOT)}: {len(programs)} outputs have changed")
    if options.check and any(changed.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
