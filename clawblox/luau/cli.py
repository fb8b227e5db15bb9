"""The command ``python -m clawblox.luau run FILE [--conformance [--torture N]]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from clawblox.luau.core.errors import LuaError
from clawblox.luau.reference_globals import ConformanceHost
from clawblox.luau.runtime.host import to_python
from clawblox.luau.vm import VM


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The command line without the program; None means that of the process.

    Returns:
        The exit code: 0 for success, 1 for an error in the script.

    Raises:
        SystemExit: The command line is wrong, or asks for help.
        OSError: The file cannot be read.
    """
    parser = argparse.ArgumentParser(prog="python -m clawblox.luau", description="Run Luau files.")
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run a file as a coroutine in a sandbox")
    run.add_argument("file", type=Path, help="the Luau source")
    run.add_argument(
        "--conformance",
        action="store_true",
        help="add the globals of the reference's test program, silence print, and fail unless the "
        "file returns 'OK'",
    )
    run.add_argument(
        "--torture",
        type=int,
        default=0,
        metavar="N",
        help="with --conformance: at every Nth assertion, save and restore the VM",
    )
    options = parser.parse_args(arguments)
    host = ConformanceHost(options.torture) if options.conformance else None
    return run_file(options.file, host)


def run_file(path: Path, host: ConformanceHost | None) -> int:
    """Run a file.

    Args:
        path: The file.
        host: The host with the globals of a conformance file; None runs a plain file.

    Returns:
        The exit code: 0 for success, 1 for an error in the script.

    Raises:
        OSError: The file cannot be read.
    """
    vm = VM(output=_write_line if host is None else None)
    if host is not None:
        host.prepare(vm)
    vm.sandbox()
    try:
        values = _run(vm, path, host)
    except LuaError as error:
        sys.stderr.write(f"{error}\n{to_python(error.traceback)}")
        return 1
    if host is not None and (not values or values[-1] != "OK"):
        sys.stderr.write(f"{path}: the last value is not 'OK': {values!r}\n")
        return 1
    return 0


def _run(vm: VM, path: Path, host: ConformanceHost | None) -> tuple[Any, ...]:
    environment = vm.main_environment = vm.new_environment()
    if host is not None:
        environment["_G"] = environment
    main_function = vm.load(path.read_bytes(), f"={path.name}", environment)
    coroutine = vm.main_coroutine = vm.coroutine(main_function)
    values = vm.resume(coroutine)
    while host is not None and coroutine.status == "suspended":
        vm = host.round_trip(vm)
        assert vm.main_coroutine is not None
        coroutine = vm.main_coroutine
        values = vm.resume(coroutine)
    return values


def _write_line(text: str) -> None:
    sys.stdout.buffer.write(text.encode("latin-1") + b"\n")
