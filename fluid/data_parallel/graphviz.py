"""Writes a program as Graphviz text: ops are boxes, variables are ellipses."""

from __future__ import annotations

from collections.abc import Iterator

from fluid.framework import Program

__all__ = ["program_dot"]


def program_dot(program: Program) -> str:
    """The ops of all blocks with the variables they read and write, as a directed graph."""
    return "\n".join(["digraph G {", *_lines(program), "}", ""])


def _lines(program: Program) -> Iterator[str]:
    names: dict[str, str] = {}
    for block in program.blocks:
        for index, op in enumerate(block.ops):
            node = f"op_{block.idx}_{index}"
            yield f"  {node} [shape=box, label={_quoted(op.type)}]"
            for name in op.reads():
                yield from _variable(names, name)
                yield f"  {names[name]} -> {node}"
            for name in op.writes():
                yield from _variable(names, name)
                yield f"  {node} -> {names[name]}"


def _variable(names: dict[str, str], name: str) -> Iterator[str]:
    """Declare a variable node on its first use."""
    if name not in names:
        names[name] = f"var_{len(names)}"
        yield f"  {names[name]} [label={_quoted(name)}]"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
