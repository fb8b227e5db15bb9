"""A compiled chunk: its functions, their Python code, and continuations created on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

from clawblox.luau.compiler import syntax as ast
from clawblox.luau.compiler.infer import NumberLocals
from clawblox.luau.compiler.ir import (
    Block,
    CodeLine,
    Site,
    Variable,
    Writer,
    add_room,
    add_tolls,
    holds,
    toll,
    write_continuation,
    write_function,
)
from clawblox.luau.compiler.liveness import Liveness
from clawblox.luau.compiler.lower_statements import FunctionLowering
from clawblox.luau.compiler.parser import parse
from clawblox.luau.core.deep import recursion_is_unchecked
from clawblox.luau.core.errors import LuauSyntaxError, RuntimeFault, chunk_id
from clawblox.luau.core.limits import CHARGED_COPY, Charge, free_of_charge
from clawblox.luau.core.values import NativeFunction, type_name

UNIT_PREFIX = "<luau "
MAIN_UNIT = f"{UNIT_PREFIX}main>"
_TOO_NESTED = "Exceeded allowed nesting; simplify your code to make it compile"
_MOST_FRAMES = 30  # of a search for the place in a script
_MOST_PLACES = 2000  # remembered; finding the line in a long function takes 20 µs
_TEXT_PER_STEP = 2  # characters that Python compiles
FORMAT = 5  # of snapshots; must change whenever the same source is lowered differently


@dataclass(slots=True, eq=False)
class Continuation:
    """The rest of a function after a call.

    Attributes:
        prototype: The function.
        site: The call.
        line: Its line in the source, counted from 1.
        names: The variables needed by the rest.
        length: The number of lines of generated code.
    """

    prototype: Prototype
    site: Site
    line: int
    names: list[str]
    length: int
    _function: FunctionType

    def function(self, environment: CellType) -> Callable[..., Any]:
        """Return the code as a function with the globals in a cell."""
        (cell,) = self._function.__closure__ or (None,)
        if cell is not environment:  # otherwise it was the same function as last time
            code = self._function.__code__
            self._function = FunctionType(
                code, self._function.__globals__, code.co_name, closure=(environment,)
            )
        return self._function


class Prototype:
    """A function of a chunk.

    Attributes:
        numeric_parameters: The positions of the parameters that the code of a direct function
            assumes to be numbers; None for a function that any code may call.
    """

    def __init__(self, chunk: Chunk, body: ast.FunctionBody) -> None:
        self.chunk = chunk
        self.index = body.index
        self.name = body.name
        self.line = body.line
        self.parameters = len(body.params)
        self.is_vararg = body.is_vararg
        self.numeric_parameters: list[int] | None = None
        self.upvalues: list[str] = []
        self.block: Block = []
        self.sites: list[Site] = []
        self.variables: dict[str, Variable] = {}
        self._liveness: Liveness | None = None
        self._continuations: dict[int, Continuation] = {}

    def continuation(self, ordinal: int) -> Continuation:
        """Return the code after a call site, compiled on first use.

        Raises:
            LookupError: The function has no call with this number.
            LuauSyntaxError: Python cannot compile the code.
        """
        cached = self._continuations.get(ordinal)
        if cached is not None:
            return cached
        site = self.sites[ordinal]
        if self._liveness is None:
            self._liveness = Liveness(self.block, self.variables)
        names = self._liveness.needed(site)
        writer = write_continuation(
            self.index, self.block, site, names, counts_depth=recursion_is_unchecked()
        )
        defined: dict[str, Any] = {}
        self.chunk.compile(writer, f"{self.index}/{site.ordinal}", defined)
        unit = self.chunk.units[MAIN_UNIT]
        line = unit.lines[unit.sites.index(site)]
        function = defined[f"M{self.index}"](None)
        new = Continuation(self, site, line, names, writer.length(), function)
        self._continuations[ordinal] = new
        return new


class Chunk:
    """A loaded source."""

    def __init__(
        self, source: str, name: str, names: dict[str, Any], charge: Charge = free_of_charge
    ) -> None:
        """Compile a source.

        Args:
            source: The source, one character per byte.
            name: The chunk name, ``=x``, ``@x``, or source text.
            names: The names that generated code may use.
            charge: Called with a number of steps before the work that they pay for.

        Raises:
            LuauSyntaxError: The source is not valid Luau, or too deeply nested.
        """
        self.source = source
        self.name = name
        self.shown_name = chunk_id(name)
        self.tokens = 0
        self.units: dict[str, Writer] = {}
        self.prototypes: list[Prototype] = []
        self.namespace = {**names, "CHUNK": self, "P": self.prototypes}
        try:
            writer = self._lower(charge)
        except RecursionError:
            raise LuauSyntaxError(name, 1, _TOO_NESTED) from None
        charge(sum(map(len, writer.text)) // _TEXT_PER_STEP)
        self.compile(writer, "main", self.namespace)

    def _lower(self, charge: Charge) -> Writer:
        functions, self.tokens = parse(self.source, self.name, charge)
        self.prototypes += [Prototype(self, body) for body in functions]
        writer = Writer()
        numbers = NumberLocals(functions)
        kinds: dict[ast.Local, str] = {}
        for body, prototype in zip(functions, self.prototypes, strict=True):
            _write(writer, body, prototype, FunctionLowering(body, numbers, kinds, charge))
            if body in numbers.direct.names:
                prototype.numeric_parameters = [
                    at for at, local in enumerate(body.params) if local in numbers.numbers
                ]
        return writer

    def compile(self, writer: Writer, name: str, into: dict[str, Any]) -> None:
        """Compile and run the text of a unit, to define names.

        Args:
            writer: The text.
            name: The unit's name.
            into: The dict for the defined names.

        Raises:
            LuauSyntaxError: The code is nested too deeply for Python.
        """
        filename = f"{UNIT_PREFIX}{name}>"
        self.units[filename] = writer
        text = "\n".join(writer.text) + "\n"
        try:
            code = compile(text, filename, "exec", dont_inherit=True, optimize=0)
        except (SyntaxError, RecursionError, MemoryError) as error:
            line = writer.lines[error.lineno or 0] if isinstance(error, SyntaxError) else 1
            raise LuauSyntaxError(self.name, line, _TOO_NESTED) from None
        exec(code, self.namespace, into)  # noqa: S102 - the text is our own

    def main(self, environment: Any) -> Callable[..., Any]:
        """Return the main function, with a table of globals."""
        function: Callable[..., Any] = self.namespace["M0"](environment)
        return function


def _write(
    writer: Writer, body: ast.FunctionBody, prototype: Prototype, compiler: FunctionLowering
) -> None:
    signature, block = compiler.compile()
    add_tolls(block)
    add_room(block)
    if holds(block):
        if body.is_vararg:
            block.insert(0, CodeLine(f"if len(va) > {CHARGED_COPY}: hold(va)", body.line))
        block.insert(0, toll(body.line))
    prototype.block, prototype.sites = block, compiler.sites
    prototype.variables = compiler.variables
    captured = [f"{local.name}_{local.ident}" for local in body.captured()]
    prototype.upvalues = ["E", *captured]
    writer.put(0, f"def M{body.index}({', '.join(prototype.upvalues)}):", 0)
    write_function(writer, body.index, signature, block, counts_depth=recursion_is_unchecked())
    writer.put(1, f"return F{body.index}", 0)


def is_generated(code: CodeType) -> bool:
    """Return whether a code object was compiled from Luau."""
    return code.co_filename.startswith(UNIT_PREFIX)


@dataclass(slots=True, eq=False, repr=False)
class CheckedFunction(NativeFunction):
    """A direct function that a script has obtained from the stack.

    The code of the function trusts the arguments of calls in its chunk, so other arguments are
    checked here.
    """

    function: FunctionType

    def __call__(self, *arguments: Any) -> Any:
        """Call the function after checking its arguments.

        Raises:
            RuntimeFault: An argument is not a number although the code assumes a number.
        """
        prototype = prototype_in(self.function.__code__, self.function.__globals__)
        for at in prototype.numeric_parameters or ():
            if at >= len(arguments) or arguments[at].__class__ is not float:
                got = type_name(arguments[at]) if at < len(arguments) else "no value"
                raise RuntimeFault(
                    f"invalid argument #{at + 1} to '{prototype.name}' (number expected, got {got})"
                )
        return self.function(*arguments[: prototype.parameters])


def is_direct(function: Any) -> bool:
    """Return whether a value is a function that only the calls in its chunk may call."""
    if function.__class__ is not FunctionType:
        return False
    prototype = find_prototype(function)
    return prototype is not None and prototype.numeric_parameters is not None


def checked(function: FunctionType) -> Any:
    """Return the form of a Luau function for scripts, the same object every time."""
    if not is_direct(function):
        return function
    if "checked" not in function.__dict__:
        function.__dict__["checked"] = CheckedFunction(function)
    return function.__dict__["checked"]


def environment_cell(function: Any) -> CellType | None:
    """Return the cell of a Luau function's globals; None if it uses no globals."""
    if function.__class__ is CheckedFunction:
        function = function.function
    if not isinstance(function, FunctionType) or not is_generated(function.__code__):
        return None
    return closure_cells(function).get("E")


def closure_cells(function: FunctionType) -> dict[str, CellType]:
    """Return the cells of a Python function by the names of its free variables."""
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def upvalue_cells(function: FunctionType, prototype: Prototype) -> dict[str, CellType]:
    """Return the cells of a Luau function's upvalues, in the order of the compiler."""
    cells = closure_cells(function)
    return {name: cells[name] for name in prototype.upvalues if name in cells}


def is_continuation(code: CodeType) -> bool:
    """Return whether generated code is the rest of a function."""
    return code.co_filename != MAIN_UNIT


def find_prototype(function: Any) -> Prototype | None:
    """Return the prototype of a Luau function; None for a built-in one."""
    if function.__class__ is CheckedFunction:
        function = function.function
    if not isinstance(function, FunctionType) or not is_generated(function.__code__):
        return None
    return prototype_in(function.__code__, function.__globals__)


def prototype_in(code: CodeType, names: dict[str, Any]) -> Prototype:
    """Return the prototype that generated code belongs to."""
    prototype: Prototype = names["P"][int(code.co_name[1:])]
    return prototype


def locate(frame: FrameType, line: int | None = None) -> tuple[Prototype, int]:
    """Return the prototype and the Luau line of a generated frame."""
    code = frame.f_code
    chunk: Chunk = frame.f_globals["CHUNK"]
    unit = chunk.units[code.co_filename]
    return prototype_in(code, frame.f_globals), unit.lines[line or frame.f_lineno or 0]


class Places:
    """Finds the place in a script of a frame, with a cache."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[CodeType, str]] = {}

    def find(self, frame: FrameType | None) -> str | None:
        """Return the place of a frame, or of its nearest caller in a script: ``name:line``.

        None if there is no Luau function among the last frames.
        """
        for _ in range(_MOST_FRAMES):
            if frame is None:
                return None
            if is_generated(frame.f_code):
                return self._read(frame)
            frame = frame.f_back
        return None

    def _read(self, frame: FrameType) -> str:
        key = id(frame.f_code), frame.f_lasti
        cached = self._known.get(key)
        if cached is None:
            if len(self._known) == _MOST_PLACES:
                self._known.clear()
            prototype, line = locate(frame)
            place = f"{prototype.chunk.shown_name}:{line}"
            cached = self._known[key] = frame.f_code, place  # keeps the id unique
        return cached[1]
