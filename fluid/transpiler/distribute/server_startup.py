"""The startup program of a server: the original initialisation of its variables (B.6).

A slice is initialised with its rows of the whole parameter. Random ops generate the numbers of
the whole and keep their rows (`whole_shape`, `first_row`, `row_step`); results of ops other than
these and constants are computed whole, and sliced.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fluid.distributed.sharding import ShardingPlan, Slice, Table
from fluid.framework import Block, Operator, Program
from fluid.parameter_server.names import backup_name
from fluid.transpiler.distribute.server_builder import InitialValue
from fluid.transpiler.distribute.trainer_startup import add_constant

__all__ = ["make_server_startup"]

DRAWN = {"uniform_random", "gaussian_random", "truncated_gaussian_random"}
EXCHANGE = {"recv", "fetch_barrier", "concat", "send", "fake_init"}
VALUES = ("fp32_values", "int32_values", "int64_values", "bool_values", "values")


def make_server_startup(
    startup: Program,
    server: Program,
    initial: Mapping[str, InitialValue],
    plan: ShardingPlan,
    endpoint: str,
) -> Program:
    """The startup program of a server.

    `startup` is the original one, `server` its main program, whose variables have the `initial`
    values.

    Raises ValueError for a table with `is_distributed` that no single constant or random op
    initialises.
    """
    program = Program()
    block = program.global_block()
    for var in server.global_block().vars.values():
        block.clone_variable(var)
    source = [op for op in startup.global_block().ops if op.type not in EXCHANGE]
    _copy_ops(block, source, startup.global_block(), initial)
    if plan.table is not None:
        _init_table(block, source, plan.table, endpoint)
    _set_counters(block, plan)
    if plan.dc_asgd:
        _add_backups(block, plan, endpoint)
    return program


def _copy_ops(
    block: Block, source: list[Operator], declared: Block, initial: Mapping[str, InitialValue]
) -> None:
    """Copy the ops that initialise a server's variables, each for its slice."""
    makers: dict[str, list[Operator]] = {}
    for op in source:
        for name in op.writes():
            makers.setdefault(name, []).append(op)
    targets: dict[str, list[str]] = {}
    for name, variable in initial.items():
        targets.setdefault(variable.origin, []).append(name)
    cut = [name for name, variable in initial.items() if variable.part is not None]
    wholes = {initial[name].origin for name in cut if not _is_direct(makers, initial[name].origin)}
    same = {name: name for name, variable in initial.items() if variable.part is None}
    needed = _needed(makers, wholes | {initial[name].origin for name in same})
    for op in source:
        if needed.intersection(op.writes()):
            _copy(block, op, declared, initial, targets, wholes)
        elif op.writes() and not set(op.writes()).isdisjoint(targets):
            for name in targets[op.writes()[0]]:
                _copy_slice(block, op, name, initial[name].part)
    for name in cut:
        if initial[name].origin in wholes:
            _append_slice(block, name, initial[name])


def _is_direct(makers: Mapping[str, list[Operator]], name: str) -> bool:
    """Whether one op computes a variable from attributes only, so that it can compute a slice."""
    writers = makers.get(name, [])
    kinds = {"fill_constant", "assign_value", *DRAWN}
    return not writers or (
        len(writers) == 1 and writers[0].type in kinds and not writers[0].reads()
    )


def _needed(makers: Mapping[str, list[Operator]], names: set[str]) -> set[str]:
    """The transitive inputs needed to compute some variables."""
    needed: set[str] = set()
    waiting = sorted(names)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [input_name for op in makers.get(name, ()) for input_name in op.reads()]
    return needed


def _copy(
    block: Block,
    op: Operator,
    declared: Block,
    initial: Mapping[str, InitialValue],
    targets: Mapping[str, list[str]],
    wholes: set[str],
) -> None:
    """Copy an op once for each name that its whole result has on the server."""
    for name in [*op.reads(), *op.writes()]:
        if name not in block.vars and name in declared.vars:
            block.clone_variable(declared.vars[name], force_persistable=False)
    result = op.writes()[0]
    names = [target for target in targets.get(result, []) if initial[target].part is None]
    for name in names if names and result not in wholes else [result]:
        _add(block, op, {result: name}, {})


def _copy_slice(block: Block, op: Operator, name: str, part: Slice | None) -> None:
    """Copy an op so that it computes a slice of its result."""
    assert part is not None
    attrs: dict[str, object] = {"shape": list(part.shape)}
    if op.type in DRAWN:
        attrs |= {"whole_shape": list(part.whole), "first_row": part.start}
    if op.type == "assign_value":
        attrs |= _cut_values(op, part)
    _add(block, op, {op.writes()[0]: name}, attrs)


def _cut_values(op: Operator, part: Slice) -> dict[str, object]:
    """The values of a constant tensor that belong to a slice."""
    stop = part.offset + math.prod(part.shape)
    attrs = {name: op.attrs[name] for name in VALUES if op.attrs.get(name)}
    return {name: values[part.offset : stop] for name, values in attrs.items()}


def _add(block: Block, op: Operator, names: Mapping[str, str], attrs: dict[str, object]) -> None:
    """Append a copy of an op with other output names and attributes."""
    outputs = {
        slot: [names.get(n, n) for n in names_of_slot] for slot, names_of_slot in op.outputs.items()
    }
    block.add_op(op.type, op.inputs, outputs, {**op.attrs, **attrs}, op.source)


def _append_slice(block: Block, name: str, value: InitialValue) -> None:
    """Append a slice of a variable that was computed whole."""
    assert value.part is not None
    stop = value.part.start + value.part.rows
    attrs = {"axes": [0], "starts": [value.part.start], "ends": [stop]}
    block.append_op("slice", inputs={"Input": value.origin}, outputs={"Out": name}, attrs=attrs)


def _init_table(block: Block, source: list[Operator], table: Table, endpoint: str) -> None:
    """Initialise a server's rows of a table: every n-th one."""
    makers = [op for op in source if table.name in op.writes()]
    if len(makers) != 1 or makers[0].type not in {"fill_constant", *DRAWN}:
        kinds = ", ".join(op.type for op in makers) or "nothing"
        raise ValueError(
            f"table {table.name!r} is initialised by {kinds}, of which no server can make its rows "
            "alone; use a constant, uniform or normal initializer"
        )
    servers, rows = len(table.endpoints), table.rows_here
    attrs: dict[str, object] = {"shape": [rows, table.shape[1]]}
    if makers[0].type in DRAWN:
        number = table.endpoints.index(endpoint)
        whole = [rows * servers, table.shape[1]]
        attrs |= {"whole_shape": whole, "first_row": number, "row_step": servers}
    _add(block, makers[0], {}, attrs)


def _set_counters(block: Block, plan: ShardingPlan) -> None:
    """Initialise the schedule counters that trainers advance: their sum is the initial count."""
    for counter in plan.counters:
        makers = [op for op in block.ops if counter in op.writes()]
        begin = float(makers[-1].attrs.get("value", 0.0)) if makers else 0.0
        for trainer in range(plan.trainers):
            add_constant(block, plan.counter_name(counter, trainer), 0.0 if trainer else begin)


def _add_backups(block: Block, plan: ShardingPlan, endpoint: str) -> None:
    """Initialise the record of parameters that each trainer has received (delay compensation)."""
    for _, part in plan.owned(endpoint):
        for trainer in range(plan.trainers):
            outputs = {"Out": backup_name(part.name, trainer)}
            block.append_op("assign", inputs={"X": part.name}, outputs=outputs)
