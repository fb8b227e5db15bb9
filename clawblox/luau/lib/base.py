"""The global functions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from types import FrameType
from typing import Any

from clawblox.luau.core.deep import HEADROOM
from clawblox.luau.core.errors import LuaError, LuauSyntaxError, RuntimeFault
from clawblox.luau.core.iteration import builtin_iterators, charge_work, next_entry
from clawblox.luau.core.limits import OBJECT_BYTES, TABLE_BYTES
from clawblox.luau.core.machine import MAX_C_CALLS, current, thread_environment
from clawblox.luau.core.numbers import parse_in_base, to_number
from clawblox.luau.core.operators import join, raw_equal, shown_type, to_text
from clawblox.luau.core.tables import border
from clawblox.luau.core.values import (
    LuaTable,
    Userdata,
    as_result,
    check_key,
    check_writable,
    is_function,
    raw_assign,
    raw_get,
    raw_has,
    set_metatable,
    table_key,
    truth,
    type_name,
)
from clawblox.luau.lib.support import arguments as arg
from clawblox.luau.lib.support.registry import BUILTINS, install
from clawblox.luau.runtime.chunk import environment_cell, find_prototype
from clawblox.luau.runtime.diagnose import (
    Level,
    find_environment,
    frame_closure,
    run_handler,
    stack,
    to_luau_error,
    whole_function,
)
from clawblox.luau.runtime.heap import collect, heap_bytes
from clawblox.luau.runtime.suspension import ProtectedFrame, ScriptFrame, Yield

_STEPS_TO_COLLECT = 1000
_DIGITS_PER_STEP = 64


def assert_(*args: Any) -> Any:
    """Return the arguments if the first is true, else raise the second as the error.

    Raises:
        LuaError: The first argument is nil or false; the error is the second.
    """
    if not truth(arg.any_value(args, 0)):
        raise RuntimeFault(arg.optional_string(args, 1, "assert", "assertion failed!"))
    return as_result(args)


def error(value: Any = None, level: Any = 1.0, *_: Any) -> Any:
    """Raise a value; prefix a string or number with the position of a calling level.

    Raises:
        LuaError: Always; its value is the first argument.
    """
    depth = 1 if level is None else arg.integer((value, level), 1, "error")
    if value.__class__ in (str, float) and depth > 0:
        value = join([_position(stack(sys._getframe(1)), depth), to_text(value)])
    raise LuaError(value)


def _position(levels: Iterator[Level], depth: int) -> str:
    level = next(islice(levels, depth - 1, None), None)
    if level is None or level.prototype is None:
        return ""
    return f"{level.prototype.chunk.shown_name}:{level.line}: "


def _install_protected_call(name: str, *, has_handler: bool) -> None:
    """Register ``pcall`` or ``xpcall``.

    Each call must be a single Python frame, like in the reference.
    """
    first_argument = 2 if has_handler else 1

    def call(*args: Any) -> Any:
        if has_handler:
            handler = arg.function(args, 1, name)
        else:
            handler = None
            arg.any_value(args, 0)
        vm = current.vm
        vm.protect()
        counts = vm.c_calls > vm.base_c_calls  # if it cannot yield, it is an ordinary callback
        vm.c_calls += counts
        try:
            if counts and vm.c_calls >= MAX_C_CALLS:
                vm.check_c_calls()
            results = args[0](*args[first_argument:])
            return (True, *results) if results.__class__ is tuple else (True, results)
        except Yield as suspended:
            suspended.frames.append(ProtectedFrame(handler))
            raise
        except Exception as caught:  # noqa: BLE001 - re-raises errors of the host
            try:
                error = to_luau_error(caught)
            except RecursionError:  # the stack is full; the next protected call takes this back
                sys.setrecursionlimit(sys.getrecursionlimit() + HEADROOM)
                vm.has_headroom = True
                error = to_luau_error(caught)
            return (False, error.value) if handler is None else run_handler(handler, error)
        finally:
            vm.c_calls -= counts
            vm.depth -= 1

    install(name, call)


_install_protected_call("pcall", has_handler=False)
_install_protected_call("xpcall", has_handler=True)


def type_(*args: Any) -> str:
    """Return the type of a value.

    Raises:
        RuntimeFault: The argument is missing.
    """
    return type_name(arg.any_value(args, 0))


def typeof(*args: Any) -> str:
    """Return the type of a value; host objects have their own types.

    Raises:
        RuntimeFault: The argument is missing.
    """
    return shown_type(arg.any_value(args, 0))


def tostring(*args: Any) -> str:
    """Return a value as text.

    Raises:
        RuntimeFault: The argument is missing.
    """
    return to_text(arg.any_value(args, 0))


def tonumber(*args: Any) -> float | None:
    """Return a value as a number, optionally in another base.

    Raises:
        RuntimeFault: The value is missing, the base is not a whole number from 2 to 36, or a value
            in a base other than 10 is not a string.
    """
    base = arg.optional_integer(args, 1, "tonumber", 10)
    if base == 10:
        return to_number(arg.any_value(args, 0))
    text = arg.string(args, 0, "tonumber")
    charge_work(len(text) // _DIGITS_PER_STEP)
    if not 2 <= base <= 36:
        arg.wrong(1, "tonumber", "base out of range")
    return parse_in_base(text, base)


def print_(*args: Any) -> tuple[()]:
    """Pass a line to the host's output."""
    text = arg.printed(args)
    output = current.vm.output
    if output is not None:
        output(text)
    return ()


def select(*args: Any) -> Any:
    """Return the arguments from a position on, or their number.

    Raises:
        RuntimeFault: The first argument is neither ``#`` nor a number, or the position is out of
            range.
    """
    if args and args[0].__class__ is str and args[0][:1] == "#":
        return float(len(args) - 1)
    at = arg.integer(args, 0, "select")
    if at < 0:
        at += len(args)
    if at < 1:
        arg.wrong(0, "select", "index out of range")
    return as_result(args[at:])


def rawget(*args: Any) -> Any:
    """Return a field without metamethods.

    Raises:
        RuntimeFault: The first argument is not a table, or the second argument is missing.
    """
    table = arg.table(args, 0, "rawget")
    return raw_get(table, table_key(arg.any_value(args, 1)))


def rawset(*args: Any) -> Any:
    """Set a field without metamethods.

    Raises:
        RuntimeFault: The first argument is not a table, another is missing, the table is frozen, or
            the key is nil or NaN.
    """
    table = arg.table(args, 0, "rawset")
    key = table_key(arg.any_value(args, 1))
    value = arg.any_value(args, 2)
    check_writable(table)
    check_key(key)
    raw_assign(table, key, value)
    return table


def rawequal(*args: Any) -> bool:
    """Return whether two values are equal without metamethods.

    Raises:
        RuntimeFault: An argument is missing.
    """
    return raw_equal(arg.any_value(args, 0), arg.any_value(args, 1))


def rawlen(*args: Any) -> float:
    """Return a length without metamethods.

    Raises:
        RuntimeFault: The argument is neither a table nor a string.
    """
    value = arg.any_value(args, 0)
    if isinstance(value, LuaTable):
        return border(value)
    if value.__class__ is str:
        return float(len(value))
    arg.wrong(0, "rawlen", "table or string expected")


def next_(*args: Any) -> Any:
    """Return the entry of a table after a key.

    Raises:
        RuntimeFault: The first argument is not a table, or the table does not have the key.
    """
    table = arg.table(args, 0, "next")
    return next_entry(table, table_key(args[1]) if len(args) > 1 else None)


def pairs(*args: Any) -> Any:
    """Return an iterator over a table's entries.

    Raises:
        RuntimeFault: The argument is not a table.
    """
    return next_, arg.table(args, 0, "pairs"), None


def _inext(*args: Any) -> Any:
    """Return the entry after an index.

    Raises:
        RuntimeFault: The first argument is not a table, or the second argument is not a number.
    """
    table = arg.table(args, 0, "ipairs")
    at = arg.number(args, 1, "ipairs") + 1.0
    value = raw_get(table, at)
    return () if value is None else (at, value)


def ipairs(*args: Any) -> Any:
    """Return an iterator over the values at 1, 2, 3 and so on, up to the first nil.

    Raises:
        RuntimeFault: The argument is not a table.
    """
    return _inext, arg.table(args, 0, "ipairs"), 0.0


def getmetatable(*args: Any) -> Any:
    """Return a value's metatable, or the metatable's ``__metatable`` field.

    Raises:
        RuntimeFault: The argument is missing.
    """
    value = arg.any_value(args, 0)
    if value.__class__ is str:
        return raw_get(current.vm.string_metatable, "__metatable")
    meta = getattr(value, "meta", None)
    if meta is None:
        return None
    shown = raw_get(meta, "__metatable")
    return meta if shown is None else shown


def setmetatable(*args: Any) -> Any:
    """Give a table a metatable.

    Raises:
        RuntimeFault: The first argument is not a table, the second is neither nil nor a table, the
            table is frozen, or its metatable is protected.
    """
    table = arg.table(args, 0, "setmetatable")
    meta = args[1] if len(args) > 1 else None
    if len(args) < 2 or not (meta is None or isinstance(meta, LuaTable)):
        arg.wrong_type(args, 1, "setmetatable", "nil or table")
    if table.meta is not None and raw_get(table.meta, "__metatable") is not None:
        raise RuntimeFault("cannot change a protected metatable")
    check_writable(table)
    set_metatable(table, meta)
    if meta is not None and raw_has(meta, "__mode"):
        current.vm.has_weak_tables = True
    return table


def newproxy(*args: Any) -> Userdata:
    """Return a new userdata, with an empty metatable if the argument is true.

    Raises:
        RuntimeFault: The argument is neither nil nor a boolean.
    """
    wants = args[0] if args else None
    if wants is not None and wants.__class__ is not bool:
        arg.wrong_type(args, 0, "newproxy", "nil or boolean")
    current.vm.allocate(OBJECT_BYTES + (TABLE_BYTES if wants else 0))
    return Userdata(LuaTable() if wants is True else None)


def loadstring(*args: Any) -> Any:
    """Compile a chunk; return its function, or nil and the error message.

    Raises:
        RuntimeFault: The first argument is not a string, or the second argument is neither nil nor
            a string.
    """
    source = arg.string(args, 0, "loadstring")
    name = arg.optional_string(args, 1, "loadstring", source)
    try:
        return current.vm.load_charged(source, name, thread_environment())
    except LuauSyntaxError as error:
        return None, error.value


def collectgarbage(*args: Any) -> Any:
    """Collect garbage, or return the size of the heap in KB.

    Raises:
        RuntimeFault: The argument is neither nil nor a string, or the option is unknown.
    """
    option = arg.optional_string(args, 0, "collectgarbage", "collect")
    if option == "collect":
        charge_work(_STEPS_TO_COLLECT)
        current.vm.charge_search()
        collect()
        return 0.0
    if option == "count":
        return float(heap_bytes(current.vm, sys._getframe())) / 1024.0
    arg.wrong(0, "collectgarbage", f"invalid option '{option}'")


def gcinfo(*_: Any) -> float:
    """Return the last measured size of the heap plus later allocations, in KB.

    It does not measure the heap; a VM without a memory limit returns 0.
    """
    return float(current.vm.allocated // 1024)


# Environments


def _level(args: arg.Arguments, function: str) -> int:
    level = arg.integer(args, 0, function)
    if level < 0:
        arg.wrong(0, function, "level must be non-negative")
    return level


def _frame_at(level: int, function: str) -> FrameType | ScriptFrame | None:
    selected = next(islice(stack(sys._getframe(2)), level - 1, None), None)
    if selected is None:
        arg.wrong(0, function, "invalid level")
    return selected.frame


def getfenv(*args: Any) -> Any:
    """Return the globals of a function, of a level of the stack, or of the thread (0).

    Raises:
        RuntimeFault: The argument is neither nil, a function nor a number, or the level does not
            exist.
    """
    target = args[0] if args and args[0] is not None else 1.0
    if is_function(target):
        cell = environment_cell(target)
        return thread_environment() if cell is None else cell.cell_contents
    level = _level((target,), "getfenv")
    if level == 0:
        return thread_environment()
    return find_environment(_frame_at(level, "getfenv"))


def setfenv(*args: Any) -> Any:
    """Set the globals of a function, of a level of the stack, or of the thread (0).

    Raises:
        RuntimeFault: The first argument is neither a function nor a number, the second is not a
            table, the level does not exist, or the function has no globals.
    """
    environment = arg.table(args, 1, "setfenv")
    closure = args[0]
    if not is_function(closure):
        level = _level(args, "setfenv")
        if level == 0:
            if current.vm.running is None:
                current.vm.main_environment = environment
            else:
                current.vm.running.environment = environment
            return ()
        frame = _frame_at(level, "setfenv")
        closure = None if frame is None else frame_closure(frame)
    cell = environment_cell(closure)
    if cell is not None:
        cell.cell_contents = environment
    elif find_prototype(closure) is None:
        raise RuntimeFault("'setfenv' cannot change environment of given object")
    return whole_function(closure)


BUILTINS.add("ipairs.next", _inext, internal=True)
builtin_iterators.update(next=next_, inext=_inext)
