"""The distributed table of a program: an embedding with `is_distributed`, its ids and results."""

from __future__ import annotations

from collections.abc import Iterator

from fluid.framework import Operator, Program, Variable

__all__ = [
    "find_distributed_lookup_table",
    "find_distributed_lookup_table_inputs",
    "find_distributed_lookup_table_outputs",
]

LOOKUP_TABLE_TYPE = "lookup_table"


def find_distributed_lookup_table(program: Program) -> str | None:
    """Return the name of the only distributed table; None if there is none.

    Raises RuntimeError for several, and AssertionError if a look-up that is not distributed reads
    the table, too.
    """
    lookups = [op for op in program.global_block().ops if op.type == LOOKUP_TABLE_TYPE]
    tables = {_table(op) for op in lookups if op.attr("is_distributed")}
    if len(tables) > 1:
        raise RuntimeError("all distributed lookup_table_ops should have only one table")
    others = {_table(op) for op in lookups if not op.attr("is_distributed")}
    assert not tables & others, f"{', '.join(tables & others)} is read by other look-ups, too"
    return next(iter(tables), None)


def find_distributed_lookup_table_inputs(program: Program, table_name: str) -> list[Variable]:
    """Return the ids that are looked up in a table."""
    variables = program.current_block().vars
    return [variables[name] for op in _lookups(program, table_name) for name in op.input("Ids")]


def find_distributed_lookup_table_outputs(program: Program, table_name: str) -> list[Variable]:
    """Return the rows that are read from a table."""
    variables = program.current_block().vars
    return [variables[name] for op in _lookups(program, table_name) for name in op.output("Out")]


def _lookups(program: Program, table_name: str) -> Iterator[Operator]:
    for op in program.global_block().ops:
        if op.type == LOOKUP_TABLE_TYPE and _table(op) == table_name:
            yield op


def _table(op: Operator) -> str:
    return op.input("W")[0]
