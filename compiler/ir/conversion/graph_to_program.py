"""Graph → Program: one op per node in graph order; versions share a name where possible.

A companion (LoD, row indices) becomes an ordinary variable, so that the program is as explicit as
the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from compiler.errors import CompileError
from compiler.ir.conversion.block_owners import SUB_BLOCK
from compiler.ir.conversion.block_walk import CAPTURED, WRITTEN
from compiler.ir.graph import Graph, Op, Var, without_tokens
from compiler.ir.program import Block, BlockRef, Program
from compiler.ir.types import TOKEN, to_fluid

Sides: TypeAlias = tuple[dict[str, list[str]], dict[str, list[str]]]


def to_program(graph: Graph, like: Program | None = None) -> Program:
    """Convert a graph to a program with one op per node, in the graph's order.

    Versions share one name where the order allows it. `like` supplies the fields that a graph does
    not keep (`lod_level`, `stop_gradient`, …).
    """
    program = Program()
    _write_block(program, program.blocks[0], graph, like, {})
    return program


def _write_block(
    program: Program, block: Block, graph: Graph, like: Program | None, outer: Mapping[Var, str]
) -> None:
    names = {**var_names(graph), **outer}
    for var in graph.vars():
        if var not in outer and var.type != TOKEN:
            _declare(block, names[var], var, like)
    for op in graph.ops():
        kind, slots, attrs = _program_op(op, names)
        if op.body is not None:
            attrs[SUB_BLOCK] = _write_body(program, block, op, op.body, like, names)
        block.add_op(kind, slots[0], slots[1], attrs, op.source)


_KINDS = {
    "if": ("conditional_block", {"Cond": "Cond", CAPTURED: "Input"}, {WRITTEN: "Out"}),
    "loop": ("while", {"Cond": "Condition", CAPTURED: "X"}, {WRITTEN: "Out"}),
}
"""The program ops and slots for graph ops with a body."""


def _program_op(op: Op, names: Mapping[Var, str]) -> tuple[str, Sides, dict[str, Any]]:
    """Return the kind, slots and attributes of an op in a program."""
    inputs, outputs = (_named(without_tokens(side), names) for side in (op.inputs, op.outputs))
    if op.kind == "unwind":
        raise CompileError(f"{op!r} reads iterations of another op, which a program cannot express")
    if op.kind not in _KINDS:
        return op.kind, (inputs, outputs), dict(op.attrs)
    kind, ins, outs = _KINDS[op.kind]
    renamed = {ins[slot]: operands for slot, operands in inputs.items()}
    left = {outs[slot]: operands for slot, operands in outputs.items() if slot in outs}
    return kind, (renamed, left), dict(op.attrs)


def _write_body(
    program: Program, block: Block, op: Op, body: Graph, like: Program | None,
    names: Mapping[Var, str],
) -> BlockRef:  # fmt: skip
    inner = program.add_block(block.idx)
    pairs = [*zip(body.feeds(), op.inputs.get(CAPTURED, []), strict=True)]
    pairs += zip(body.results, op.outputs.get(WRITTEN, []), strict=True)
    _write_block(program, inner, body, like, {mine: names[theirs] for mine, theirs in pairs})
    return BlockRef(inner.idx)


def _named(slots: Mapping[str, Sequence[Var]], names: Mapping[Var, str]) -> dict[str, list[str]]:
    return {slot: [names[var] for var in vars] for slot, vars in slots.items()}


def var_names(graph: Graph) -> dict[Var, str]:
    """Name all vars: by their own name unless an earlier version is read after the write.

    Such a version gets a unique name.
    """
    step = {op: index for index, op in enumerate(graph.ops())}
    taken = {var.name for var in graph.vars()}
    names: dict[Var, str] = {}
    for var in graph.vars():
        before, writer = graph.find(var.name, var.version - 1), graph.producer(var)
        readers = graph.readers(before) if before is not None else []
        late = writer is not None and any(step[r] > step[writer] for r in readers)
        names[var] = _unique_name(var, taken) if late else var.name
    return names


def _unique_name(var: Var, taken: set[str]) -> str:
    """Create and reserve an unused name for a later version."""
    name = f"{var.name}@v{var.version}"
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _declare(block: Block, name: str, var: Var, like: Program | None) -> None:
    desc = like.blocks[0].lookup(name) if like is not None else None
    if name in block.vars:
        return
    block.add_var(
        name,
        shape=to_fluid(var.type.shape),
        dtype=var.type.dtype,
        persistable=var.role == "param",
        lod_level=desc.lod_level if desc else 0,
        stop_gradient=desc.stop_gradient if desc else False,
        is_parameter=desc.is_parameter if desc else False,
    )
