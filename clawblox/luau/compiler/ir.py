"""The structured code of one function, and its two written forms.

A function is a tree of `CodeLine`, `CodeBranch` and `CodeLoop`. `write_function` writes it as a
Python function. `write_continuation` writes the code after a call: the rest of the innermost
block, then the rest of each enclosing block, with loops entered in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Variable:
    """A Python variable of generated code.

    Attributes:
        kind: Its content: a Luau value (``any``), a value of a known type (``num``, ``str``,
            ``bool``, ``nil``, ``table``, ``func``), a number that is not NaN (``counter``), the
            number of a branch (``arm``), the running ``for`` (``loop``), its key (``key``), a
            tuple of arguments (``arguments``), or the result of a function (``many``).
        is_boxed: Whether it contains a box with that value, shared by closures.
        is_temporary: Whether it is outside all scopes, and needed wherever it is read.
        function: The number of the function that it always contains; None if that varies.
        loop: For a key, the variable of its loop.
    """

    kind: str
    is_boxed: bool = False
    is_temporary: bool = False
    function: int | None = None
    loop: str = ""


_LENGTH_PER_STEP = 1000  # characters
_LINE_LENGTH = 20  # characters added to the length of each line
_TABLE_LENGTH = 1000  # characters that count for creating a table, as it takes memory
_FUNCTION_LENGTH = 2000
_UPVALUE_LENGTH = 500
_MOST_TOLLS = 4  # in a row; more steps are taken together
_MAKERS = re.compile(r"\b(?:T|table_of|table_with)\(|\bM[0-9]+\(([^()]*)\)")
"""Matches code that creates a table, or a function from its globals and upvalues."""
_ROOM = "next(A)"  # takes room from the iterator
_MOST_ROOMS = 2  # in a row; more are taken together
_UPVALUES_PER_ROOM = 2
_WRITE = re.compile(r"(?!E\[)\w+(?:\[0\])?\[(?:(['\"])|(?!0\]))")
"""Matches the start of an assignment to a field, possibly with a fixed name."""
_ADDITIONS_PER_ROOM = 12
_ADDITIONS_OF_WRITE = 4
_ADDITIONS_OF_FIELD = 1
_ADDITIONS_OF_CALL = 2
_ADDITIONS_OF_TEXT = 2


@dataclass(slots=True, eq=False)
class Site:
    """A call at which a function can be suspended.

    Attributes:
        ordinal: Its number within the function, in order of lowering; part of every snapshot.
        target: The variable for the result; None if the result is dropped.
        is_return: Whether the function returns the result unchanged.
        visible: The variables in scope.
        method: The method name for messages, if this is a method call.
        receiver: The variable of the method's object.
        callee: The number of the direct function that is called; None for any other call.
        key: The key of the loop, if this is the call of its iterator.
    """

    ordinal: int
    target: str | None
    is_return: bool
    visible: frozenset[str]
    method: str | None = None
    receiver: str = ""
    callee: int | None = None
    key: str = ""


@dataclass(slots=True, eq=False)
class CodeLine:
    """One Python statement on one line."""

    text: str
    line: int
    site: Site | None = None


@dataclass(slots=True, eq=False)
class CodeBranch:
    """A condition with two blocks."""

    condition: str
    line: int
    then: Block = field(default_factory=list)
    otherwise: Block = field(default_factory=list)


@dataclass(slots=True, eq=False)
class CodeLoop:
    """A Python ``for``; ``resumed`` is its header if it is entered in the middle.

    A charged loop runs on an iterator of steps, and continues with a new iterator afterwards.
    """

    header: str
    resumed: str
    line: int
    body: Block = field(default_factory=list)
    otherwise: str = ""
    is_charged: bool = False


Block = list[CodeLine | CodeBranch | CodeLoop]


class Writer:
    """The Python text of one compilation, with the Luau line and call site of every line."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.lines: list[int] = [0]
        self.sites: list[Site | None] = [None]
        self._flags = 0

    def length(self) -> int:
        """Return the number of lines, except those that take room or depend on the interpreter."""
        rooms = sum(line.endswith(_ROOM) for line in self.text)
        return sum(map(bool, self.lines)) - rooms

    def put(self, indent: int, text: str, line: int, site: Site | None = None) -> None:
        """Append a line."""
        self.text.append(" " * indent + text)
        self.lines.append(line)
        self.sites.append(site)

    def block(self, block: Block, indent: int) -> None:
        """Append a whole block."""
        for node in block:
            self._node(node, indent)
        if not block:
            self.put(indent, "pass", 0)

    def _node(self, node: CodeLine | CodeBranch | CodeLoop, indent: int) -> None:
        if isinstance(node, CodeLine):
            self.put(indent, node.text, node.line, node.site)
        elif isinstance(node, CodeBranch):
            self._if(node, indent, "if")
        else:
            indent = self._loop_start(node, indent)
            self.put(indent, node.header, node.line)
            self.block(node.body, indent + 1)
            self._loop_end(node, indent)

    def _if(self, node: CodeBranch, indent: int, word: str) -> None:
        while True:
            self.put(indent, f"{word} {node.condition}:", node.line)
            self.block(node.then, indent + 1)
            if len(node.otherwise) == 1 and isinstance(node.otherwise[0], CodeBranch):
                node, word = node.otherwise[0], "elif"
                continue
            if node.otherwise:
                self.put(indent, "else:", node.line)
                self.block(node.otherwise, indent + 1)
            return

    def _loop_start(self, node: CodeLoop, indent: int) -> int:
        if not node.is_charged:
            return indent
        self.put(indent, "while True:", node.line)
        return indent + 1

    def _loop_end(self, node: CodeLoop, indent: int) -> None:
        if node.is_charged:
            self.put(indent, "else:", node.line)
            self.put(indent + 1, "more(); continue", node.line)
            self.put(indent, "break", node.line)
        elif node.otherwise:
            self.put(indent, "else:", node.line)
            self.put(indent + 1, node.otherwise, node.line)

    def rest(self, block: Block, site: Site, indent: int) -> bool:
        """Append the code after a site in a block; return whether the block contains the site."""
        for index, node in enumerate(block):
            if self._enter(node, site, indent):
                for following in block[index + 1 :]:
                    self._node(following, indent)
                return True
        return False

    def _enter(self, node: CodeLine | CodeBranch | CodeLoop, site: Site, indent: int) -> bool:
        if isinstance(node, CodeLine):
            if node.site is site and site.is_return:
                self.put(indent, f"return {site.target}", node.line)
            return node.site is site
        if isinstance(node, CodeBranch):
            return self.rest(node.then, site, indent) or self.rest(node.otherwise, site, indent)
        if not holds(node.body, site):
            return False
        self._flags += 1
        flag = f"q{self._flags}"
        self.put(indent, f"{flag} = True", node.line)
        indent = self._loop_start(node, indent)
        self.put(indent, node.resumed, node.line)
        self.put(indent + 1, f"if {flag}:", node.line)
        self.put(indent + 2, f"{flag} = False", node.line)
        self.rest(node.body, site, indent + 2)
        self.put(indent + 1, "else:", node.line)
        self.block(node.body, indent + 2)
        self._loop_end(node, indent)
        return True


def holds(block: Block, site: Site | None = None) -> bool:
    """Return whether a block contains a site; None stands for any site."""
    for node in block:
        if isinstance(node, CodeLine):
            if node.site is not None and (site is None or node.site is site):
                return True
        elif isinstance(node, CodeBranch):
            if holds(node.then, site) or holds(node.otherwise, site):
                return True
        elif holds(node.body, site):
            return True
    return False


def charged_loop(line: int) -> CodeLoop:
    """Return an endless loop whose iterations are charged."""
    return CodeLoop("for _ in B:", "for _ in B:", line, is_charged=True)


def toll(line: int) -> CodeLoop:
    """Return the code that charges one step."""
    return CodeLoop("for _ in B:", "for _ in B:", line, [CodeLine("break", line)], "more()")


def add_tolls(block: Block) -> int:
    """Charge for long code and for created tables and functions; return the uncharged rest."""
    charged: Block = []
    length = 0
    for node in block:
        behind = 0
        if isinstance(node, CodeLine):
            length += _LINE_LENGTH + _length(node.text)
        elif isinstance(node, CodeBranch):
            conditions, behind = _cover_arms(node, _length, add_tolls)
            length += conditions
        else:
            behind = add_tolls(node.body)
        steps, length = divmod(length, _LENGTH_PER_STEP)
        if steps > _MOST_TOLLS:
            charged.append(CodeLine(f"charge({steps})", node.line))
        else:
            charged += [toll(node.line) for _ in range(steps)]
        charged.append(node)
        length += behind
    block[:] = charged
    return length


def _cover_arms(
    node: CodeBranch, measure: Callable[[str], int], cover: Callable[[Block], int]
) -> tuple[int, int]:
    """Cover the arms of a chain; return the measure of its conditions and the largest rest."""
    conditions = rest = 0
    while True:
        conditions += measure(node.condition)
        rest = max(rest, cover(node.then))
        if len(node.otherwise) != 1 or not isinstance(node.otherwise[0], CodeBranch):
            return conditions, max(rest, cover(node.otherwise))
        node = node.otherwise[0]


def _length(text: str) -> int:
    """Return the number of characters that a text counts for, including its memory."""
    length = len(text)
    if "(" in text:
        for maker in _MAKERS.finditer(text):
            if maker[1] is None:
                length += _TABLE_LENGTH
            else:
                length += _FUNCTION_LENGTH + _UPVALUE_LENGTH * maker[1].count(",")
    return length


def add_room(block: Block) -> int:
    """Make code take heap room for the values it creates; return the additions not yet covered.

    Tables and functions take room immediately. The memory covered by a step is too little for code
    that adds to tables many times per step, so field assignments and calls take room together.
    """
    covered: Block = []
    additions = 0
    for node in block:
        room = behind = 0
        if isinstance(node, CodeLine):
            room = _count_room(node.text)
            additions += _count_additions(node)
        elif isinstance(node, CodeBranch):
            room, behind = _cover_arms(node, _count_room, add_room)
        else:
            add_room(node.body)  # its iterations cover the rest
        more, additions = divmod(additions, _ADDITIONS_PER_ROOM)
        room += more
        if room > _MOST_ROOMS:
            covered.append(CodeLine(f"take_room({room})", node.line))
        else:
            covered += [CodeLine(_ROOM, node.line)] * room
        covered.append(node)
        additions += behind
    block[:] = covered
    return additions


def _count_additions(node: CodeLine) -> int:
    """Return how much a line may add to the heap; computed table keys add most."""
    text = node.text
    additions = _ADDITIONS_OF_CALL if node.site is not None else 0
    if "] = " in text and (write := _WRITE.match(text)):
        additions += _ADDITIONS_OF_FIELD if write[1] else _ADDITIONS_OF_WRITE
    if "concat" in text or "text(" in text:
        additions += _ADDITIONS_OF_TEXT * max(text.count("concat"), text.count("text("))
    return additions


def _count_room(text: str) -> int:
    """Return how often a text takes room for tables and functions."""
    room = 0
    if "T(" in text or "table_" in text or "M" in text:  # a search takes longer
        for maker in _MAKERS.finditer(text):
            room += 1
            if maker[1] is not None:
                room += maker[1].count(",") // _UPVALUES_PER_ROOM
    return room


def write_function(
    writer: Writer, index: int, signature: str, body: Block, *, counts_depth: bool
) -> None:
    """Append a function that saves its state when a `Yield` passes through.

    Args:
        writer: The writer to append to.
        index: The function's number in its chunk.
        signature: Its Python parameters.
        body: Its code.
        counts_depth: Whether it guards against recursion itself.
    """
    writer.put(1, f"def F{index}({signature}):", 0)
    if not holds(body):
        writer.block(body, 2)
        writer.put(2, "return E", 0)  # never reached; it refers to the globals
        return
    if counts_depth:
        writer.put(2, "deeper()", body[0].line)
    writer.put(2, "try:", 0)
    writer.block(body, 3)
    _write_capture(writer, index, counts_depth=counts_depth)


def _write_capture(writer: Writer, index: int, *, counts_depth: bool) -> None:
    writer.put(2, "except Y as y:", 0)
    writer.put(3, f"save_frame(y, P[{index}], locals(), lambda: E)", 0)
    writer.put(3, "raise", 0)
    if counts_depth:
        writer.put(2, "finally:", 0)
        writer.put(3, "shallower()", 0)


def write_continuation(
    index: int, body: Block, site: Site, needed: list[str], *, counts_depth: bool
) -> Writer:
    """Return the continuation after a site.

    Like the function itself, it is a closure over the function's globals. It takes its variables
    and the result of the call from a list, and empties the list.

    Args:
        index: The function's number in its chunk.
        body: Its code.
        site: The call.
        needed: The variables needed by the rest of the function.
        counts_depth: Whether it guards against recursion itself.
    """
    writer = Writer()
    writer.put(0, f"def M{index}(E):", 0)
    writer.put(1, f"def F{index}(v):", 0)
    writer.put(2, f"{', '.join([*needed, site.target or '_r'])}, = v", 0)
    writer.put(2, "v.clear()", 0)
    if counts_depth:
        writer.put(2, "deeper()", 0)
    writer.put(2, "try:", 0)
    writer.rest(body, site, 3)
    writer.put(3, "return ()", 0)
    _write_capture(writer, index, counts_depth=counts_depth)
    writer.put(1, f"return F{index}", 0)
    return writer
