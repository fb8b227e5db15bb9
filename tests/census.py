"""Counts of the package's code, which can be compared between two versions.

python -m tests.census [--package DIR] [--no-ways] [--json FILE]

*Lines of code* contain a token that is neither a comment, nor a docstring, nor part of an import;
lines of imports are counted separately. *Modules* are counted without the ``__init__`` of packages.
*Branches* are places where the control flow splits, so that denser lines do not look like less
code. *Public names* are those without an underscore at the top level of modules and classes, so
that merged files do not look like a smaller surface. A *cupboard* is a module of under 150 lines
with exactly one importer within the package. *Repeated lines* belong to a run of six or more lines
of code that occurs again.

*Ways* are traced in a separate process: every function of the package that is entered between a
call and the event that ends the way is counted once, with its file. The events are the start of the
world's program, the return of the agent's start, and the end of the command.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.support.waiting import HANG_S

ROOT = Path(__file__).parent.parent
CUPBOARD_LINES = 150
RUN_LINES = 6
OPTIONS = ("health_timeout", "restart_window", "labels")
BRANCHES = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.comprehension,
    ast.BoolOp, ast.match_case, ast.Assert,
)  # fmt: skip
PROSE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
PROSE |= {tokenize.ENCODING, tokenize.ENDMARKER}


# -- modules ---------------------------------------------------------------------------------


class Module:
    """One file of the package."""

    def __init__(self, package: Path, path: Path) -> None:
        relative = path.relative_to(package.parent).with_suffix("")
        parts = relative.parts[:-1] if path.stem == "__init__" else relative.parts
        self.is_package = path.stem == "__init__"
        self.name = ".".join(parts)
        inside = path.relative_to(package).parts
        self.room = inside[0] if len(inside) > 1 else "(ground)"
        self.text = path.read_text()
        self.lines = len(self.text.splitlines())
        self.tree = ast.parse(self.text)

    def docstrings(self) -> set[int]:
        """Return the numbers of the lines that contain only unused strings."""
        found: set[int] = set()
        for node in ast.walk(self.tree):
            match node:
                case ast.Expr(value=ast.Constant(value=str())):
                    found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return found

    def code(self) -> list[int]:
        """Return the numbers of the lines of code."""
        numbers: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in PROSE:
                numbers.update(range(token.start[0], token.end[0] + 1))
        return sorted(numbers - self.docstrings() - self.import_lines())

    def import_lines(self) -> set[int]:
        """Return the numbers of the lines that import."""
        return {
            number
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }

    def branches(self) -> int:
        """Return the number of places where the control flow splits."""
        return sum(isinstance(node, BRANCHES) for node in ast.walk(self.tree))

    def public_names(self) -> int:
        """Return the number of names without an underscore in the module and its classes."""
        return len(set(_public_names(self.tree)))

    def imports(self) -> set[str]:
        """Return the imported names: modules, and names in modules."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    up = self.name.split(".")
                    up = up[: len(up) - node.level + self.is_package]
                    base = ".".join([*up, *([base] if base else [])])
                found.add(base)
                found.update(f"{base}.{alias.name}" for alias in node.names)
        return found


def _public_names(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    for node in getattr(tree, "body", []):
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        public = [name for name in names if not name.startswith("_")]
        yield from (prefix + name for name in public)
        if isinstance(node, ast.ClassDef) and public:
            yield from _public_names(node, f"{prefix}{node.name}.")


def read_package(package: Path) -> list[Module]:
    """Read every module of a package."""
    return [Module(package, path) for path in sorted(package.rglob("*.py"))]


def list_cupboards(modules: list[Module]) -> list[str]:
    """Return the short modules that exactly one other module imports."""
    importers: Counter[str] = Counter()
    names = {module.name for module in modules}
    for module in modules:
        importers.update((module.imports() & names) - {module.name})
    return [
        module.name
        for module in modules
        if not module.is_package and module.lines < CUPBOARD_LINES and importers[module.name] == 1
    ]


def count_repeated(modules: list[Module]) -> int:
    """Return the number of lines of code in repeated runs of six or more lines."""
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for module in modules:
        text = module.text.splitlines()
        lines = [text[number - 1].strip() for number in module.code()]
        lines = [line for line in lines if re.search(r"\w", line)]
        for start in range(len(lines) - RUN_LINES + 1):
            places[tuple(lines[start : start + RUN_LINES])].append((module.name, start))
    repeated = {
        (name, start + offset)
        for where in places.values()
        if len(where) > 1
        for name, start in where
        for offset in range(RUN_LINES)
    }
    return len(repeated)


def count_modules(package: Path) -> dict[str, Any]:
    """Return the counts that are read from the files."""
    modules = read_package(package)
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for module in modules:
        for room in (module.room, "total"):
            rooms[room].update(
                modules=not module.is_package,
                lines=len(module.code()),
                import_lines=len(module.import_lines()),
                branches=module.branches(),
                public_names=module.public_names(),
            )
    cupboards = list_cupboards(modules)
    mentions = {
        option: sum(len(re.findall(rf"^.*\b{option}\b.*$", m.text, re.M)) for m in modules)
        for option in OPTIONS
    }
    return {
        "rooms": {room: dict(rooms[room]) for room in sorted(rooms)},
        "cupboards": len(cupboards),
        "cupboard_names": cupboards,
        "repeated_lines": count_repeated(modules),
        "mentions": mentions,
    }


# -- ways ------------------------------------------------------------------------------------

WORLD = """
import http.server, os, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"format": "census-v1", "time": 1}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
if os.environ.get("WORLD_RESUME_PATH"):
    threading.Timer(1, os._exit, [0]).start()
address = (os.environ["WORLD_HOST"], int(os.environ["WORLD_PORT"]))
http.server.ThreadingHTTPServer(address, Handler).serve_forever()
"""
AGENT = """#!{python}
import json, os, re, sys
if "--version" in sys.argv:
    print("2.1.197 (Claude Code)")
    raise SystemExit
session = sys.argv[sys.argv.index("--session-id") + 1]
slug = re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath("."))
project = os.path.join(os.environ["CLAUDE_CONFIG_DIR"], "projects", slug)
os.makedirs(project, exist_ok=True)
for line in iter(sys.stdin.readline, ""):
    with open(os.path.join(project, session + ".jsonl"), "a") as transcript:
        transcript.write(line)
    init = dict(type="system", subtype="init", session_id=session, claude_code_version="2.1.197")
    print(json.dumps(init), flush=True)
    usage = dict(input_tokens=1, output_tokens=1)
    end = dict(type="result", subtype="success", is_error=False, session_id=session, usage=usage)
    print(json.dumps(end), flush=True)
"""
WAYS = {
    "start": """
import anyio
from clawblox import AsyncWorld
async def main():
    async with AsyncWorld("world", run_dir="run") as world:
        trace.begin(until_program="census_world.py")
        await world.start()
        trace.end()
anyio.run(main)
""",
    "agent": """
import anyio
from clawblox import AsyncAgent
async def main():
    agent = AsyncAgent(agent="claude", name="a", dir="agent", binary="./census_claude")
    async with agent:
        trace.begin()
        await agent.start("Go.")
        trace.end()
anyio.run(main)
""",
    "resume": """
import sys
from clawblox.cli import main
sys.argv = ["clawblox", "resume", "run"]
trace.begin()
try:
    main()
except SystemExit:
    pass
trace.end()
""",
}
INTERRUPTED = """
import os, signal
import anyio
from clawblox import AsyncWorld
async def main():
    async with AsyncWorld("world", run_dir="run") as world:
        await world.start_many(2)
        await world.save_all()
        os.kill(os.getpid(), signal.SIGKILL)
anyio.run(main)
"""


class Trace:
    """Collects the functions of the package that are entered during a way."""

    def __init__(self, package: Path) -> None:
        self._prefix = f"{package}{os.sep}"
        self._program: str | None = None
        self._is_ended = False
        self._codes: set[CodeType] = set()
        self._loops = 0

    def begin(self, until_program: str | None = None) -> None:
        """Start; the start of a program whose arguments contain this name ends the way."""
        self._program = until_program
        sys.addaudithook(self._audit)
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        is_start = event in ("subprocess.Popen", "os.posix_spawn")
        if is_start and self._program is not None and self._program in str(arguments[1]):
            self._is_ended = True

    def _enter(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or self._is_ended:
            return
        code = frame.f_code
        if code.co_filename.startswith(self._prefix) and not code.co_name.startswith("<"):
            self._codes.add(code)
        elif code.co_qualname == "new_event_loop" and "asyncio" in code.co_filename:
            self._loops += 1

    def end(self) -> None:
        """Print the functions that were found, as JSON."""
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        files = {code.co_filename[len(self._prefix) :] for code in self._codes}
        counts = {
            "functions": len(self._codes),
            "files": len(files),
            "rooms": len({file.partition(os.sep)[0] for file in files}),
            "event_loops": self._loops,
        }
        print("census:" + json.dumps(counts), flush=True)


def follow(way: str, package: Path) -> dict[str, int]:
    """Trace one way in a new process; return the counts."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        world = directory / "world"
        world.mkdir()
        (world / "census_world.py").write_text(WORLD)
        command = json.dumps([sys.executable, "census_world.py"])
        (world / "world.toml").write_text(f'name = "census"\n[run]\ncommand = {command}\n')
        agent = directory / "census_claude"
        agent.write_text(AGENT.replace("{python}", sys.executable))
        agent.chmod(0o755)
        if way == "resume":
            _run(INTERRUPTED, directory, package)
        begin = f"from pathlib import Path\ntrace = Trace(Path({str(package)!r}))\n"
        output = _run(f"from tests.census import Trace\n{begin}{WAYS[way]}", directory, package)
    for line in output.splitlines():
        if line.startswith("census:"):
            counts: dict[str, int] = json.loads(line.removeprefix("census:"))
            return counts
    raise RuntimeError(f"{way}: {output}")


def _run(program: str, directory: Path, package: Path) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "PYTHONPATH": f"{package.parent}{os.pathsep}{ROOT}",
        "ANTHROPIC_API_KEY": "none",
    }
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    return result.stdout


# -- the page --------------------------------------------------------------------------------


def render(census: dict[str, Any]) -> str:
    """Return a census as text."""
    rows = ["room             modules   lines  imports  branches  public names"]
    for room, counts in census["rooms"].items():
        rows.append(
            f"{room:<16} {counts['modules']:7,} {counts['lines']:7,} {counts['import_lines']:8,}"
            f" {counts['branches']:9,} {counts['public_names']:13,}"
        )
    rows.append(f"\ncupboards: {census['cupboards']}")
    rows.append(f"repeated lines: {census['repeated_lines']:,}")
    rows.append(
        "lines that mention: "
        + ", ".join(f"{option} {count}" for option, count in census["mentions"].items())
    )
    for way, counts in census.get("ways", {}).items():
        rows.append(f"{way}: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    return "\n".join(rows)


def main() -> None:
    """Take the census and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--package", type=Path, default=ROOT / "clawblox")
    parser.add_argument("--no-ways", action="store_true", help="follow no ways")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to this file")
    arguments = parser.parse_args()
    package = arguments.package.resolve()
    census = count_modules(package)
    if not arguments.no_ways:
        census["ways"] = {way: follow(way, package) for way in WAYS}
    print(render(census))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(census, indent=2) + "\n")


if __name__ == "__main__":
    main()
