"""The command ``python -m clawblox.luau run FILE [--conformance [--torture N]]``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from clawblox.luau.core.errors import LuaError
from clawblox.luau.core.machine import Coroutine, current
from clawblox.luau.lib.buffer import create
from clawblox.luau.runtime import coroutines
from clawblox.luau.runtime.host import Host, HostObject, HostType, to_luau, to_python
from clawblox.luau.vm import VM

BLOCK_BYTES = 8 << 20  # the reference's test allocator refuses larger blocks
ITERATOR = """
return function(limit, index)
    if index < limit then
        coroutine.yield(index + 1)
        return index + 1
    end
    return nil
end
"""
PAUSING_ASSERT = """
local check, error, interval = assert, error, ...
local yield, running, isyieldable = coroutine.yield, coroutine.running, coroutine.isyieldable
local count = 0
return function(...)
    local value, message = ...
    if not value then
        check(...)
    end
    count += 1
    if count % interval == 0 and running() == nil and isyieldable() then
        yield()
    end
    return ...
end
"""


class ConformanceHost(Host):
    """Provides the functions and objects that conformance files expect, also after a restore.

    Args:
        interval: Suspend the file at every assertion whose number is a multiple of this; 0 never
            suspends it.
    """

    def __init__(self, interval: int = 0) -> None:
        super().__init__()
        self._interval = interval
        self._pointer = self.type(HostType("userdata"))
        self._pointers: dict[str, HostObject] = {}
        self.function("makelud")(lambda address: self.find_object(repr(address)))
        self.function("cxxthrow")(_throw)
        self.function("resumeerror")(_resume_with_error)
        self.function("is_native_if_supported")(lambda: True)
        self.function("buffer.create")(_create_uncharged)

    def find_object(self, ident: str) -> HostObject:
        """Return the unique pointer with an address."""
        return self._pointers.setdefault(ident, HostObject(self._pointer, ident))

    def prepare(self, vm: VM) -> None:
        """Add the globals, and set the memory limit."""
        functions = dict(self.functions)
        vm.globals["buffer"]["create"] = functions.pop("buffer.create")
        vm.globals.update(functions)
        vm.globals["cYieldingIterator"] = vm.call(vm.load(ITERATOR, "=iterator"))[0]
        if self._interval:
            pausing = vm.load(PAUSING_ASSERT, "=assert")
            vm.globals["assert"] = vm.call(pausing, float(self._interval))[0]
        self._limit(vm)

    def _limit(self, vm: VM) -> None:
        vm.block_limit = BLOCK_BYTES
        vm.memory_limit = 12 * BLOCK_BYTES

    def round_trip(self, vm: VM) -> VM:
        """Return a restored copy of a VM.

        Raises:
            AssertionError: Saving the copy gives a different document.
            VMSnapshotError: The VM cannot be saved or restored.
        """
        document = json.dumps(vm.snapshot())
        restored = VM.restore(json.loads(document), host=self)
        assert json.dumps(restored.snapshot()) == document
        self._limit(restored)
        return restored


def _throw() -> None:
    raise LuaError("oops")


def _create_uncharged(size: Any = None) -> Any:
    """Return a buffer without charging memory, for the conformance test of large buffers."""
    vm = current.vm
    assert isinstance(vm, VM)
    limits, vm.memory_limit, vm.block_limit = (vm.memory_limit, vm.block_limit), None, None
    try:
        return create(size)
    finally:
        vm.memory_limit, vm.block_limit = limits


def _resume_with_error(coroutine: Coroutine, error: Any) -> tuple[Any, ...]:
    """Resume a coroutine by raising an error at its suspended call."""
    coroutines.fail_call(coroutine, LuaError(to_luau(error)))
    ok, values = coroutines.resume(coroutine, ())
    return (ok, *values)


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The command line without the program; None for the command line of the process.

    Returns:
        The exit code: 0 for success, 1 for an error in the script.

    Raises:
        SystemExit: The command line is invalid, or requests help.
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
        host: The host with the globals of a conformance file; None to run a plain file.

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


if __name__ == "__main__":
    raise SystemExit(main())
