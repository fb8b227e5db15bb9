"""The command ``python -m clawblox.luau run FILE [--conformance]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clawblox.luau.conformance import prepare
from clawblox.luau.errors import LuaError
from clawblox.luau.vm import VM


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m clawblox.luau", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run a file as a coroutine")
    run.add_argument("file", type=Path)
    run.add_argument(
        "--conformance",
        action="store_true",
        help="silence print; succeed only if the chunk's last value is 'OK'",
    )
    options = parser.parse_args(arguments)
    return run_file(options.file, conformance=options.conformance)


def run_file(path: Path, *, conformance: bool) -> int:
    """Run a file; return 0 if it went well."""
    vm = VM(output=None if conformance else _write_line)
    if conformance:
        prepare(vm)
    vm.sandbox()
    try:
        environment = vm.main_environment = vm.new_environment()
        if conformance:
            environment["_G"] = environment
        main_function = vm.load(path.read_bytes(), f"={path.name}", environment)
        coroutine = vm.coroutine(main_function)
        vm.main_coroutine = coroutine
        values = vm.resume(coroutine)
    except LuaError as error:
        sys.stderr.write(f"{error}\n{error.traceback}")
        return 1
    if conformance and (not values or values[-1] != "OK"):
        sys.stderr.write(f"the last value is not 'OK': {values!r}\n")
        return 1
    return 0


def _write_line(text: str) -> None:
    sys.stdout.buffer.write(text.encode("latin-1") + b"\n")
