"""Graphs and programs as text that people read, edit, diff, and parse back without loss.

    graph main {
      feed x: f32[N, 4]
      param w: f32[4, 3]
      (Out=h: f32[N, 3] @s0) = mul(X=x, Y=w)  // train.py:12
      (Out=y: f32[N, 3] @s1) = scale(X=h) {'scale': 2.0} @k1
      return y
    }

One op a line, and line order is the order. A temporary is declared where an op writes it; `w#1` is
the second var called `w`, and `over w` says that it lives in the storage of `w`. Labels follow `@`:
`@s0` the slot of a var (`@s0[128]` from a byte of it on, `@s0[128, 64, 256]` 64 bytes of every 256
from there on), `@k1` the kernel of an op (`@k1.0` its part), `@numpy` its target. What is at its
default is not said, and what is said is in an order that depends on nothing but the graph. The
grammar is in `compiler.ir.text.parser`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.program import OpDesc, Program
from compiler.ir.text.literals import attributes_text, name_text, said_attributes
from compiler.ir.text.parser import parse, parse_program
from compiler.ir.text.program_printer import INDENT, call_text, desc_line, program_text, source_text

__all__ = ["digest", "parse", "parse_program", "said", "same", "show", "show_op"]

_KERNEL_LIKE = re.compile(r"k[0-9]+")


def show(thing: Graph | Program) -> str:
    """A graph or a program as text; `parse` and `parse_program` read it back.

    Positions of ops are not said: those of the parsed graph are (0,), (1,), …
    Raises CompileError for an attribute that is no attribute value.
    """
    if isinstance(thing, Program):
        return program_text(thing)
    return "\n".join([line for _, line in said(thing)]) + "\n"


def said(g: Graph) -> Iterator[tuple[Op | None, str]]:
    """The lines of `show(g)`, each beside the op it is about; None for those about no op.

    >>> [line for op, line in said(Graph("empty"))]
    ['graph empty {', '}']
    """
    return _graph_lines(g, "", "")


def show_op(op: Op | OpDesc) -> str:
    """An op in one line, without types, source and body: for messages and comments.

    >>> show_op(OpDesc("mul", {"X": ["x"], "Y": ["my w"]}, {"Out": ["h"]}))
    '(Out=h) = mul(X=x, Y="my w")'
    """
    if isinstance(op, OpDesc):
        return desc_line(op)
    outputs = {slot: [var_text(var) for var in vars] for slot, vars in op.outputs.items()}
    return _op_line(op, outputs)


def var_text(var: Var) -> str:
    """A var's label as it stands in text, quoted where it must be: `w#1`, `"my w"#1`."""
    return f"{name_text(var.name)}#{var.version}" if var.version else name_text(var.name)


def digest(thing: Graph | Program) -> str:
    """The SHA-256 of the text, in hex: equal for equal graphs, whoever made them and when."""
    return hashlib.sha256(show(thing).encode()).hexdigest()


def same(a: Graph, b: Graph) -> bool:
    """True where two graphs are equal: vars, ops in their order, attributes, labels, bodies.

    Names, versions and labels count; so do the orders of feeds, of parameters and of results.
    Positions, attributes at their defaults, and the order in which temporaries were made do not.
    """
    return _facts(a) == _facts(b)


# ---- graphs ----


def _graph_lines(g: Graph, indent: str, source: str) -> Iterator[tuple[Op | None, str]]:
    """The lines of a graph; `indent` stands before all but the first, which ends in `source`."""
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
    """A result, with the name it is returned by where that is not its own."""
    return var_text(var) + (f" as {name_text(name)}" if name != var.name else "")


def _declared_ahead(g: Graph) -> dict[Var, None]:
    """Vars that need a line of their own.

    No op writes them, or not before others need them, or their role does not follow from where
    they are written.
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
    """All that counts of a graph, as values that compare."""
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
    attrs = said_attributes(op.kind, op.attrs)
    return (op.kind, inputs, outputs, attrs, op.source, op.kernel, op.part, op.target, body)
