"""Graphs and programs as text for people to read, edit and diff; parsing it back is lossless.

    graph main {
      feed x: f32[N, 4]
      param w: f32[4, 3]
      (Out=h: f32[N, 3] @s0) = mul(X=x, Y=w)  // train.py:12
      (Out=y: f32[N, 3] @s1) = scale(X=h) {'scale': 2.0} @k1
      return y
    }

There is one op per line, in order. A temporary is declared where an op writes it; `w#1` is the
second version of `w`, and `over w` means that it shares the storage of `w`. Labels follow `@`:
`@s0` is the slot of a var (`@s0[128]` at byte offset 128, `@s0[128, 64, 256]` 64 bytes of every 256
from there), `@k1` the kernel of an op (`@k1.0` its part), `@numpy` its target. Defaults are
omitted, and the order of the text is determined by the graph alone. The grammar is in
`compiler.ir.text.parser`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.program import OpDesc, Program
from compiler.ir.text.literals import attributes_text, name_text, nondefault_attributes
from compiler.ir.text.parser import parse, parse_program
from compiler.ir.text.program_printer import INDENT, call_text, desc_line, program_text, source_text

__all__ = ["digest", "parse", "parse_program", "lines_with_ops", "same", "show", "show_op"]

_KERNEL_LIKE = re.compile(r"k[0-9]+")


def show(thing: Graph | Program) -> str:
    """Format a graph or a program; `parse` and `parse_program` read it back.

    Positions of ops are not included: those of the parsed graph are (0,), (1,), … Raises
    CompileError for an unsupported attribute value.
    """
    if isinstance(thing, Program):
        return program_text(thing)
    return "\n".join([line for _, line in lines_with_ops(thing)]) + "\n"


def lines_with_ops(g: Graph) -> Iterator[tuple[Op | None, str]]:
    """Yield the lines of `show(g)`, each with the op that it prints, or None.

    >>> [line for op, line in lines_with_ops(Graph("empty"))]
    ['graph empty {', '}']
    """
    return _graph_lines(g, "", "")


def show_op(op: Op | OpDesc) -> str:
    """Format an op as one line, without types, source and body, for messages and comments.

    >>> show_op(OpDesc("mul", {"X": ["x"], "Y": ["my w"]}, {"Out": ["h"]}))
    '(Out=h) = mul(X=x, Y="my w")'
    """
    if isinstance(op, OpDesc):
        return desc_line(op)
    outputs = {slot: [var_text(var) for var in vars] for slot, vars in op.outputs.items()}
    return _op_line(op, outputs)


def var_text(var: Var) -> str:
    """Format a var's label, quoted if necessary: `w#1`, `"my w"#1`."""
    return f"{name_text(var.name)}#{var.version}" if var.version else name_text(var.name)


def digest(thing: Graph | Program) -> str:
    """Return the SHA-256 of the text, in hex: equal for equal graphs."""
    return hashlib.sha256(show(thing).encode()).hexdigest()


def same(a: Graph, b: Graph) -> bool:
    """Return whether two graphs are equal: vars, ops in order, attributes, labels, bodies.

    Names, versions and labels are compared, and the orders of feeds, parameters and results.
    Positions, default attributes, and the order in which temporaries were created are not.
    """
    return _facts(a) == _facts(b)


# ---- graphs ----


def _graph_lines(g: Graph, indent: str, source: str) -> Iterator[tuple[Op | None, str]]:
    """Yield the lines of a graph; all but the first are indented, the first ends in `source`."""
    inner = indent + INDENT
    yield None, f"graph {name_text(g.name)} {{{source_text(source)}"
    ahead = _declared_ahead(g)
    for var in ahead:
        keyword = "var" if var.role == "temp" else var.role
        yield None, f"{inner}{keyword} {_declaration(var)}"
    for op in g.ops():
        for line in _op_lines(op, ahead, inner):
            yield op, line
    if g.results:
        pairs = zip(g.results, g.fetches, strict=True)
        yield None, f"{inner}return {', '.join(_result_text(*pair) for pair in pairs)}"
    yield None, indent + "}"


def _result_text(var: Var, name: str) -> str:
    """Format a result, with the fetch name if it is not the var's own."""
    return var_text(var) + (f" as {name_text(name)}" if name != var.name else "")


def _declared_ahead(g: Graph) -> dict[Var, None]:
    """List the vars that need a declaration line.

    Those are vars that no op writes, that are used before their producer, or whose role does not
    follow from their producer.
    """
    seen: set[Var] = set()
    early: set[Var] = set()
    for op in g.ops():
        early |= {var for var in op.reads() if var not in seen}
        for var in op.writes():
            early |= {var.overwrites} - seen if var.overwrites is not None else set()
            early |= {var} if var.role != _role_when_written(var) else set()
        seen.update(op.writes())
    return dict.fromkeys(var for var in g.vars() if var in early or g.producer(var) is None)


def _role_when_written(var: Var) -> str:
    return "temp" if var.overwrites is None else var.overwrites.role


def _declaration(var: Var) -> str:
    over = f" over {var_text(var.overwrites)}" if var.overwrites is not None else ""
    slot = f" @s{var.slot}{var.region}" if var.slot is not None else ""
    return f"{var_text(var)}: {var.type}{over}{slot}"


def _op_lines(op: Op, ahead: Mapping[Var, None], indent: str) -> Iterator[str]:
    outputs = {
        slot: [var_text(var) if var in ahead else _declaration(var) for var in vars]
        for slot, vars in op.outputs.items()
    }
    line = indent + _op_line(op, outputs)
    if op.body is None:
        yield line + source_text(op.source)
        return
    body = [inner for _, inner in _graph_lines(op.body, indent, op.source)]
    yield f"{line} {body[0]}"
    yield from body[1:]


def _op_line(op: Op, outputs: Mapping[str, Sequence[str]]) -> str:
    inputs = {slot: [var_text(var) for var in vars] for slot, vars in op.inputs.items()}
    words = [call_text(op.kind, inputs, outputs), attributes_text(op.kind, op.attrs)]
    part = "" if op.part is None else f".{op.part}"
    words += [f"@k{op.kernel}{part}"] if op.kernel is not None else []
    words += [f"@{_target_text(op.target)}"] if op.target is not None else []
    return " ".join(filter(None, words))


def _target_text(target: str) -> str:
    return json.dumps(target) if _KERNEL_LIKE.fullmatch(target) else name_text(target)


# ---- equality ----


def _facts(g: Graph) -> tuple[Any, ...]:
    """Return everything that graph equality compares."""
    vars = {
        _key(var): (var.type, var.role, _key(var.overwrites), var.slot, var.region)
        for var in g.vars()
    }
    orders = [_keys(g.feeds()), _keys(g.params()), _keys(g.results)]
    return (g.name, vars, orders, g.fetches, [_op_facts(op) for op in g.ops()])


def _key(var: Var | None) -> tuple[str, int] | None:
    return None if var is None else (var.name, var.version)


def _keys(vars: Iterable[Var]) -> list[tuple[str, int] | None]:
    return [_key(var) for var in vars]


def _op_facts(op: Op) -> tuple[Any, ...]:
    inputs = [(slot, _keys(vars)) for slot, vars in op.inputs.items()]
    outputs = [(slot, _keys(vars)) for slot, vars in op.outputs.items()]
    body = None if op.body is None else _facts(op.body)
    attrs = nondefault_attributes(op.kind, op.attrs)
    return (op.kind, inputs, outputs, attrs, op.source, op.kernel, op.part, op.target, body)
