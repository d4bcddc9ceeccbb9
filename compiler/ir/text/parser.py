"""The parser of `.ir` text: graphs and programs, as `compiler.ir.text.printer` writes them.

    graph   := "graph" NAME "{" {("feed" | "param" | "var") var} {op} ["return" result, …] "}"
    op      := "(" [SLOT "=" vars, …] ")" "=" KIND "(" [SLOT "=" vars, …] ")" [ATTRIBUTES]
               ["@k" N ["." N]] ["@" TARGET] [graph] ["//" SOURCE]
    vars    := var | "[" [var, …] "]"          result := LABEL ["as" NAME]
    var     := LABEL [":" TYPE ["over" LABEL] ["@s" N [REGION]]]
    program := "program" "{" {"block" N ["(" "parent" N ["," "forward" N] ")"] "{" … "}"} "}"

A line contains one declaration or op. A graph's LABEL is a name and a version, `w#1`; a var is
declared once, on a line of its own or where an op writes it. A program names vars without versions,
and declares them by `var` lines whose ATTRIBUTES are the fields of `VarDesc`. Input is checked
while it is parsed, so that errors have a position.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

from compiler.errors import CompileError, did_you_mean
from compiler.ir.graph import Graph, Var
from compiler.ir.opdef import check_attributes, find
from compiler.ir.opdef.type_inference import check_slots
from compiler.ir.program import EMPTY, NO_BLOCK, Block, OpDesc, Program, VarKind
from compiler.ir.region import WHOLE, Region
from compiler.ir.text.lexer import Cursor, Mark
from compiler.ir.types import TensorType, to_fluid
from compiler.support.dataclass import dataclass
from compiler.support.limits import MAX_NESTED_BLOCKS

T = TypeVar("T")
_KERNEL_LABEL = re.compile(r"@k(?=[0-9]+\b)")
_PART_LABEL = re.compile(r"\.(?=[0-9]+\b)")
_SLOT_LABEL = re.compile(r"@s(?=[0-9])")
_ROLES = {"feed": "feed", "param": "param", "var": "temp"}
_FIELDS: Mapping[str, type] = {
    "kind": str,
    "lod_level": int,
    "persistable": bool,
    "stop_gradient": bool,
    "need_check_feed": bool,
    "is_parameter": bool,
}


@dataclass(frozen=True)
class _Declared:
    """The declaration of a var."""

    type: TensorType
    over: _Ref | None
    slot: int | None
    region: Region


@dataclass(frozen=True)
class _Ref:
    """A reference to a var; `declared` is set if the line declares it."""

    mark: Mark
    name: str
    version: int = 0
    declared: _Declared | None = None

    @property
    def label(self) -> str:
        return f"{self.name}#{self.version}" if self.version else self.name


_Slots: TypeAlias = dict[str, list[_Ref]]


@dataclass(frozen=True)
class _OpLine:
    """A parsed op line; `mark` is the position of its kind."""

    outputs: _Slots
    mark: Mark
    kind: str
    inputs: _Slots
    attrs: dict[str, Any]
    kernel: int | None
    part: int | None
    target: str | None


def parse(text: str, file: str = "") -> Graph:
    """Parse a graph; the positions of its ops are (0,), (1,), …

    Raises ParseError with the line number (after `file`, if passed), the line, a caret, and what
    was expected. Slots and attributes are checked against the registry; `verify` checks the rest.
    """
    cursor = Cursor(text, file)
    graph, _ = _read_graph(cursor, 1)
    _check_end(cursor)
    return graph


def parse_program(text: str, file: str = "") -> Program:
    """Parse a program; raises ParseError as `parse` does."""
    cursor = Cursor(text, file)
    mark = cursor.mark()
    cursor.word("program")
    _open(cursor)
    program = Program()
    for index, _ in enumerate(_lines(cursor, mark)):
        _read_block(cursor, program, index)
    cursor.end_line()
    _check_end(cursor)
    return program


# ---- shared by graphs and programs ----


def _open(cursor: Cursor) -> str:
    """Take the brace and the comment that end a heading; returns the comment."""
    cursor.expect("{")
    return cursor.end_line()


def _lines(cursor: Cursor, opened: Mark) -> Iterator[None]:
    """Yield once per line up to the closing brace, and take that."""
    while not cursor.accept("}"):
        if cursor.at_end:
            raise cursor.error("expected a '}' that closes this, found the end of the text", opened)
        yield


def _check_end(cursor: Cursor) -> None:
    if not cursor.at_end:
        raise cursor.expected("the end of the text")


def _listed(cursor: Cursor, closing: str, item: Callable[[], T]) -> list[T]:
    """Take comma-separated items and the closing bracket."""
    items: list[T] = []
    while not cursor.accept(closing):
        if items and not cursor.accept(","):
            raise cursor.expected(f"',' or {closing!r}")
        items.append(item())
    return items


def _read_op(cursor: Cursor, read: Callable[[], _Ref], write: Callable[[], _Ref]) -> _OpLine:
    """Take an op up to its labels; `read` takes an input and `write` an output."""
    outputs = _read_slots(cursor, write)
    cursor.expect("=")
    mark, kind = cursor.mark(), cursor.name("the type of an op")
    inputs = _read_slots(cursor, read)
    attrs = cursor.attributes()
    kernel = cursor.number("a number") if cursor.take(_KERNEL_LABEL) else None
    part = cursor.number("a number") if kernel is not None and cursor.take(_PART_LABEL) else None
    target = cursor.name("a target") if cursor.accept("@") else None
    line = _OpLine(outputs, mark, kind, inputs, attrs, kernel, part, target)
    _check_op(cursor, line)
    return line


def _read_slots(cursor: Cursor, var: Callable[[], _Ref]) -> _Slots:
    slots: _Slots = {}

    def slot() -> None:
        mark, name = cursor.mark(), cursor.name("a slot or ')'")
        if name in slots:
            raise cursor.error(f"slot {name!r} appears twice", mark)
        cursor.expect("=")
        slots[name] = _listed(cursor, "]", var) if cursor.accept("[") else [var()]

    cursor.expect("(")
    _listed(cursor, ")", slot)
    return slots


def _check_op(cursor: Cursor, line: _OpLine) -> None:
    """Check kind, slots and attributes against the registry."""
    try:
        check_slots(OpDesc(line.kind, _names(line.inputs), _names(line.outputs)))
        check_attributes(line.kind, line.attrs)
        find(line.kind)(line.attrs)
    except CompileError as error:
        raise cursor.error(error.message, line.mark, error.hint) from error


def _names(slots: _Slots) -> dict[str, list[str]]:
    return {slot: [ref.label for ref in refs] for slot, refs in slots.items()}


def _source(comment: str) -> str:
    """Return the user's line from the comment after an op."""
    try:
        return str(json.loads(comment)) if comment.startswith('"') else comment
    except ValueError:
        return comment


# ---- graphs ----


def _read_graph(cursor: Cursor, depth: int) -> tuple[Graph, str]:
    """Take a graph and the end of its last line; returns it with the comment of its heading."""
    mark = cursor.mark()
    if depth > MAX_NESTED_BLOCKS:
        raise cursor.error(f"graphs are nested more than {MAX_NESTED_BLOCKS} deep", mark)
    cursor.word("graph")
    reader = _GraphReader(cursor, Graph(cursor.name("the graph's name")), depth)
    comment = _open(cursor)
    for _ in _lines(cursor, mark):
        reader.read_line()
    cursor.end_line()
    return reader.graph, comment


class _GraphReader:
    """A builder of a graph from its lines."""

    def __init__(self, cursor: Cursor, graph: Graph, depth: int) -> None:
        self.cursor = cursor
        self.graph = graph
        self.depth = depth
        self.rows: dict[Var, int] = {}

    def read_line(self) -> None:
        """Take a declaration, an op, or the results."""
        if self.cursor.peek("("):
            return self.read_op()
        word = self.cursor.word("feed", "param", "var", "return", "(", "}")
        if word == "return":
            return self.read_results()
        ref = self.read_output()
        if ref.declared is None:
            raise self.cursor.expected("':' and a type")
        self.declare(ref, ref.declared, _ROLES[word])
        self.cursor.end_line()
        return None

    def read_results(self) -> None:
        """Take the labels of the results, which end a graph."""
        pairs: list[tuple[Var, str]] = []
        while not pairs or self.cursor.accept(","):
            var = self.found(self.read_input())
            named = self.cursor.accept("as ")
            pairs.append((var, self.cursor.name("a name") if named else var.name))
        self.graph.return_as(pairs)
        self.cursor.end_line()
        if not (self.cursor.peek("}") or self.cursor.at_end):
            raise self.cursor.expected("'}', since 'return' is a graph's last line")

    def read_op(self) -> None:
        """Take an op with its body, if it has one."""
        line = _read_op(self.cursor, self.read_input, self.read_output)
        inputs = {slot: [self.found(ref) for ref in refs] for slot, refs in line.inputs.items()}
        outputs = {slot: [self.written(ref) for ref in refs] for slot, refs in line.outputs.items()}
        if self.cursor.peek("graph"):
            body, comment = _read_graph(self.cursor, self.depth + 1)
        else:
            body, comment = None, self.cursor.end_line()
        source = _source(comment)
        op = self.graph.op(line.kind, inputs, outputs, line.attrs, source, body, last=True)
        op.kernel, op.part, op.target = line.kernel, line.part, line.target

    def read_input(self) -> _Ref:
        """Take a label."""
        mark, name = self.cursor.mark(), self.cursor.name("a var")
        version = self.cursor.number("a version") if self.cursor.accept("#") else 0
        return _Ref(mark, name, version)

    def read_output(self) -> _Ref:
        """Take a label and its declaration, if there is one."""
        ref = self.read_input()
        if not self.cursor.accept(":"):
            return ref
        dtype, shape = self.cursor.dtype(), self.cursor.shape()
        type = TensorType(dtype, shape, is_array=bool(self.cursor.accept("*")))
        over = self.read_input() if self.cursor.accept("over ") else None
        slot = self.cursor.number("a number") if self.cursor.take(_SLOT_LABEL) else None
        region = self.cursor.region() if slot is not None and self.cursor.peek("[") else WHOLE
        return _Ref(ref.mark, ref.name, ref.version, _Declared(type, over, slot, region))

    def declare(self, ref: _Ref, declared: _Declared, role: str = "") -> Var:
        """Declare a var; without `role` it has the role of the var it overwrites."""
        if self.graph.find(ref.name, ref.version) is not None:
            raise self.cursor.error(f"{ref.label!r} is declared already", ref.mark)
        earlier = self.found(declared.over) if declared.over is not None else None
        var = self.graph.var(ref.name, declared.type, ref.version)
        var.role = role or (earlier.role if earlier is not None else "temp")
        var.overwrites, var.slot, var.region = earlier, declared.slot, declared.region
        return var

    def found(self, ref: _Ref) -> Var:
        """Return the var with a label."""
        var = self.graph.find(ref.name, ref.version)
        if var is None:
            hint = did_you_mean(ref.label, (var.label for var in self.graph.vars()))
            raise self.cursor.error(f"{ref.label!r} is used before it is declared", ref.mark, hint)
        return var

    def written(self, ref: _Ref) -> Var:
        """Return the var an op writes, declared here or before."""
        var = self.declare(ref, ref.declared) if ref.declared is not None else self.found(ref)
        if var in self.rows:
            where = f"a producer already, in line {self.rows[var] + 1}"
            raise self.cursor.error(f"{ref.label!r} has {where}", ref.mark)
        self.rows[var] = ref.mark.row
        return var


# ---- programs ----


def _read_block(cursor: Cursor, program: Program, index: int) -> None:
    mark = cursor.mark()
    cursor.word("block", "}")
    if cursor.number("the block's number") != index:
        raise cursor.error(f"this must be block {index}", mark)
    parent, forward = _read_relations(cursor)
    if parent not in (range(index) if index else (NO_BLOCK,)):
        raise cursor.error("a block's parent comes before it, and only block 0 has none", mark)
    block = program.add_block(parent) if index else program.blocks[0]
    block.forward_block_idx = forward
    _open(cursor)
    for _ in _lines(cursor, mark):
        _read_desc(cursor, block)
    cursor.end_line()


def _read_relations(cursor: Cursor) -> tuple[int, int]:
    """Take `(parent 0, forward 1)`, the related blocks."""
    relations = {"parent": NO_BLOCK, "forward": NO_BLOCK}
    if cursor.accept("("):

        def relation() -> None:
            word = cursor.word(*relations)
            relations[word] = cursor.number("a block's number")

        _listed(cursor, ")", relation)
    return relations["parent"], relations["forward"]


def _read_desc(cursor: Cursor, block: Block) -> None:
    if not cursor.peek("("):
        cursor.word("var", "(", "}")
        return _read_var(cursor, block)
    var = partial(_read_name, cursor, block)
    line = _read_op(cursor, var, var)
    if line.kernel is not None or line.target is not None:
        raise cursor.error("the ops of a program have no labels", line.mark)
    inputs, outputs = _names(line.inputs), _names(line.outputs)
    block.add_op(line.kind, inputs, outputs, line.attrs, _source(cursor.end_line()))
    return None


def _read_name(cursor: Cursor, block: Block) -> _Ref:
    """Take the name of a variable that is declared in the block or an enclosing one."""
    ref = _Ref(cursor.mark(), cursor.name("a variable"))
    if ref.name != EMPTY and block.lookup(ref.name) is None:
        text = f"{ref.name!r} is not declared in this or an enclosing block"
        raise cursor.error(text, ref.mark, did_you_mean(ref.name, block.vars))
    return ref


def _read_var(cursor: Cursor, block: Block) -> None:
    mark, name = cursor.mark(), cursor.name("a variable")
    if name in block.vars:
        raise cursor.error(f"{name!r} is declared already", mark)
    cursor.expect(":", "and a type")
    dtype, shape = cursor.dtype(), cursor.shape() if cursor.peek("[") else None
    if shape is not None and any(not isinstance(size, int) and size.known for size in shape):
        raise cursor.error("a program's sizes are numbers, or ? if unknown", mark)
    fields = _read_fields(cursor)
    block.add_var(name, shape=None if shape is None else to_fluid(shape), dtype=dtype, **fields)
    cursor.end_line()


def _read_fields(cursor: Cursor) -> dict[str, Any]:
    """Take the fields of a `VarDesc` that are not at their defaults."""
    mark = cursor.mark()
    fields = cursor.attributes()
    for name, value in fields.items():
        if name not in _FIELDS:
            raise cursor.error(f"a variable has no {name!r}", mark, did_you_mean(name, _FIELDS))
        if type(value) is not _FIELDS[name]:
            wanted = _FIELDS[name].__name__
            raise cursor.error(f"{name!r} is {value!r}, not {wanted}", mark)
    if "kind" in fields:
        fields["kind"] = _kind(cursor, mark, fields["kind"])
    return fields


def _kind(cursor: Cursor, mark: Mark, text: str) -> VarKind:
    if text not in set(VarKind):
        raise cursor.error(f"{text!r} is not a kind of variable", mark, did_you_mean(text, VarKind))
    return VarKind(text)
